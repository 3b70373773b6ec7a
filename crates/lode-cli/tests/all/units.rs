//! Units and clones by the command and through NBD: what is written to one nobody else sees before it commits.

use crate::client::Client;
use crate::support::{Process, Scratch, Serving, bad, good, json, lode, sound, tool};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn on(disk: &Path, words: &[&str], more: &[&str]) -> Command {
    let mut command = lode(words);
    command.arg(disk).args(more);
    command
}

fn disk(scratch: &Scratch) -> PathBuf {
    let disk = scratch.disk("256MiB");
    good(&mut on(&disk, &["volume", "create"], &["data", "--size", "8MiB"]));
    disk
}

fn read(client: &mut Client, offset: u64) -> u8 {
    let bytes = client.read(offset, 4096).unwrap();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

#[test]
fn a_connection_bound_to_a_unit_is_private_until_the_commit() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let disk = disk(&scratch);
    let serving = Serving::start(&disk, &socket.0, &[]);
    let mut open = Client::connect(&socket.0, "data").unwrap();
    open.write(0, &[1; 8192], false).unwrap();
    let mut bound = Client::connect(&socket.0, "data?unit=job").unwrap();
    bound.write(0, &[2; 4096], false).unwrap();
    let mut second = Client::connect(&socket.0, "data?unit=job").unwrap();
    assert_eq!([read(&mut bound, 0), read(&mut bound, 4096), read(&mut second, 0)], [2, 1, 2]);
    assert_eq!(read(&mut open, 0), 1);
    let listed = json(&mut on(&disk, &["unit", "list"], &["--json"]));
    assert_eq!((&listed[0]["label"], &listed[0]["state"]), (&"job".into(), &"in use".into()));
    assert_eq!(listed[0]["changed_bytes"], 4096, "a reply to a write survives kill -9, so there was a barrier");
    // A write that was replied to is there after kill -9, in the unit.
    drop((bound, second, open));
    serving.kill();
    let serving = Serving::start(&disk, &socket.0, &[]);
    let listed = json(&mut on(&disk, &["unit", "list"], &["--json"]));
    assert_eq!((&listed[0]["label"], &listed[0]["state"]), (&"job".into(), &"dormant".into()));
    let mut open = Client::connect(&socket.0, "data").unwrap();
    let mut bound = Client::connect(&socket.0, "data?unit=job").unwrap();
    assert_eq!((read(&mut bound, 0), read(&mut open, 0)), (2, 1));
    bound.write(8192, &[3; 4096], true).unwrap();
    // The commit is another process's, while the connection is open.
    good(&mut on(&disk, &["unit", "commit"], &["job"]));
    assert_eq!([read(&mut open, 0), read(&mut open, 4096), read(&mut open, 8192)], [2, 1, 3]);
    assert!(bound.read(0, 4096).is_err(), "its unit has ended");
    let words = bad(&mut on(&disk, &["unit", "commit"], &["job"]), 3);
    assert!(words.contains("no open unit"), "{words}");
    serving.stop();
    sound(&disk);
}

#[test]
fn clones_live_until_they_are_merged_or_dropped() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let disk = disk(&scratch);
    // Also without a server.
    good(&mut on(&disk, &["snapshot", "create"], &["monday"]));
    good(&mut on(&disk, &["clone", "create"], &["keep", "monday"]));
    good(&mut on(&disk, &["clone", "create"], &["lose", "monday"]));
    let words = bad(&mut on(&disk, &["clone", "create"], &["lose", "monday"]), 7);
    assert!(words.contains("lose"), "{words}");
    bad(&mut on(&disk, &["clone", "create"], &["other", "tuesday"]), 3);
    let serving = Serving::start(&disk, &socket.0, &[]);
    let mut now = Client::connect(&socket.0, "data").unwrap();
    let mut keep = Client::connect(&socket.0, "data?unit=keep").unwrap();
    let mut lose = Client::connect(&socket.0, "data?unit=lose").unwrap();
    now.write(0, &[1; 8192], false).unwrap();
    keep.write(0, &[2; 4096], true).unwrap();
    lose.write(4096, &[3; 4096], true).unwrap();
    assert_eq!([read(&mut keep, 0), read(&mut keep, 4096)], [2, 0], "it sees the snapshot");
    assert_eq!([read(&mut lose, 0), read(&mut lose, 4096)], [0, 3]);
    good(&mut on(&disk, &["snapshot", "delete"], &["monday"]));
    // A clone of a clone that is in use: as it is now.
    good(&mut on(&disk, &["clone", "copy"], &["keep", "again"]));
    bad(&mut on(&disk, &["clone", "copy"], &["none", "other"]), 3);
    assert!(bad(&mut on(&disk, &["clone", "copy"], &["keep", "lose"]), 7).contains("lose"));
    keep.write(0, &[4; 4096], true).unwrap();
    let mut again = Client::connect(&socket.0, "data?unit=again").unwrap();
    assert_eq!([read(&mut again, 0), read(&mut again, 4096)], [2, 0], "it sees what the clone was");
    again.write(4096, &[5; 4096], true).unwrap();
    assert_eq!([read(&mut keep, 0), read(&mut keep, 4096)], [4, 0]);
    keep.write(0, &[2; 4096], true).unwrap();
    drop((keep, lose, again));
    serving.stop();
    let listed = json(&mut on(&disk, &["clone", "list"], &["--json"]));
    assert_eq!(listed.as_array().map(Vec::len), Some(3));
    good(&mut on(&disk, &["clone", "drop"], &["again"]));
    good(&mut on(&disk, &["clone", "merge"], &["keep"]));
    good(&mut on(&disk, &["clone", "drop"], &["lose"]));
    // A unit that asks for conflicts is none.
    good(&mut on(&disk, &["unit", "begin"], &["careful", "--conflicts", "read"]));
    assert!(bad(&mut on(&disk, &["clone", "drop"], &["careful"]), 2).contains("found a unit (lode unit abort)"));
    good(&mut on(&disk, &["unit", "abort"], &["careful"]));
    let out = scratch.path("out");
    good(&mut on(&disk, &["export"], &["data", out.to_str().unwrap()]));
    let bytes = std::fs::read(&out).unwrap();
    assert_eq!((bytes[0], bytes[4096]), (2, 1), "merged into what others wrote");
    assert_eq!(good(&mut on(&disk, &["clone", "list"], &[])).trim(), "no clones");
    sound(&disk);
}

#[test]
fn units_by_the_command_alone() {
    let scratch = Scratch::new();
    let disk = disk(&scratch);
    let begun = good(&mut on(&disk, &["unit", "begin"], &["job", "--conflicts", "written", "--keep", "2h"]));
    let number = begun.trim().rsplit(' ').next().unwrap().to_owned();
    assert_eq!(good(&mut on(&disk, &["unit", "status"], &[&number])).trim(), "open");
    let listed = json(&mut on(&disk, &["unit", "list"], &["--json"]));
    assert!(listed[0]["kept_until"].is_string() && listed[0]["begun"].is_string());
    good(&mut on(&disk, &["unit", "abort"], &[&number]));
    assert_eq!(good(&mut on(&disk, &["unit", "list"], &[])).trim(), "no open units");
    assert!(
        good(&mut on(&disk, &["unit", "status"], &[&number])).starts_with("forgotten"),
        "the disk was closed since"
    );
    bad(&mut on(&disk, &["unit", "abort"], &[&number]), 3);
    sound(&disk);
}

#[test]
fn a_commit_that_is_refused_says_so_and_leaves_the_unit_open() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let disk = disk(&scratch);
    good(&mut on(&disk, &["unit", "begin"], &["job", "--conflicts", "written"]));
    let serving = Serving::start(&disk, &socket.0, &[]);
    let mut open = Client::connect(&socket.0, "data").unwrap();
    let mut bound = Client::connect(&socket.0, "data?unit=job").unwrap();
    bound.write(0, &[2; 4096], false).unwrap();
    open.write(0, &[1; 4096], false).unwrap();
    let refused = |served: &str| {
        let words = bad(&mut on(&disk, &["unit", "commit"], &["job"]), 10);
        assert!(words.contains("nothing was changed, it is still open"), "{served}: {words}");
        let listed = json(&mut on(&disk, &["unit", "list"], &["--json"]));
        assert_eq!((&listed[0]["label"], &listed[0]["changed_bytes"]), (&"job".into(), &4096.into()), "{served}");
    };
    refused("served");
    assert_eq!([read(&mut open, 0), read(&mut bound, 0)], [1, 2]);
    bound.write(4096, &[3; 4096], false).unwrap();
    assert_eq!(read(&mut bound, 4096), 3);
    bound.trim(4096, 4096).unwrap();
    drop((open, bound));
    serving.stop();
    refused("alone");
    good(&mut on(&disk, &["unit", "abort"], &["job"]));
    sound(&disk);
}

#[test]
fn of_those_who_end_a_unit_at_once_one_does() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let disk = disk(&scratch);
    let serving = Serving::start(&disk, &socket.0, &[]);
    for round in 0..5 {
        let mut bound = Client::connect(&socket.0, "data?unit=job").unwrap();
        bound.write(0, &[round + 1; 4096], false).unwrap();
        let end = |command: &str| {
            let mut command = on(&disk, &["unit", command], &["job"]);
            Process(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
        };
        let ends = ["commit", "abort", "commit", "abort", "commit", "abort"].map(|command| (command, end(command)));
        let codes = ends.map(|(command, mut end)| (command, end.0.wait().unwrap().code().unwrap()));
        let done: Vec<_> = codes.iter().filter(|(_, code)| *code == 0).collect();
        assert!(done.len() == 1 && codes.iter().all(|(_, code)| [0, 3].contains(code)), "{codes:?}");
        let committed = read(&mut Client::connect(&socket.0, "data").unwrap(), 0) == round + 1;
        assert_eq!(committed, done[0].0 == "commit", "{codes:?}");
    }
    serving.stop();
    sound(&disk);
}

#[test]
fn a_unit_is_no_clone() {
    let scratch = Scratch::new();
    let disk = disk(&scratch);
    good(&mut on(&disk, &["unit", "begin"], &["job"]));
    for command in ["merge", "drop"] {
        let words = bad(&mut on(&disk, &["clone", command], &["job"]), 2);
        assert!(words.contains("expected a clone, found a unit"), "{words}");
        assert!(bad(&mut on(&disk, &["clone", command], &["other"]), 3).contains("no clone other"));
    }
    assert_eq!(json(&mut on(&disk, &["unit", "list"], &["--json"]))[0]["label"], "job");
}

#[test]
fn clients_reach_a_unit_by_its_uri() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let disk = disk(&scratch);
    let serving = Serving::start(&disk, &socket.0, &[]);
    let file = scratch.file("file", 8 << 20, 1);
    for name in ["data%3Funit=job", "data%3Funit%3Djob"] {
        let uri = serving.uri(name);
        good(tool("nbdcopy", "libnbd-bin").arg(&file).arg(&uri));
        assert_eq!(good(tool("nbdinfo", "libnbd-bin").arg("--size").arg(&uri)).trim(), "8388608");
        assert!(good(tool("qemu-img", "qemu-utils").arg("info").arg(&uri)).contains("8 MiB"));
    }
    let listed = json(&mut on(&disk, &["unit", "list"], &["--json"]));
    assert_eq!((listed.as_array().map(Vec::len), &listed[0]["label"]), (Some(1), &"job".into()));
    serving.stop();
    sound(&disk);
}
