//! Snapshots from the command line and over NBD.

use crate::support::{Scratch, Serving, bad, good, json, lode, run, same, sound, tool};

#[test]
fn a_snapshot_is_exported_and_served_as_it_was() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let (old, new) = (scratch.file("old", 4 << 20, 1), scratch.file("new", 4 << 20, 2));
    good(lode(&["import"]).arg(&disk).arg("data").arg(&old));
    good(lode(&["volume", "create"]).arg(&disk).args(["other", "--size", "1MiB"]));
    good(lode(&["snapshot", "create"]).arg(&disk).arg("monday"));
    good(lode(&["snapshot", "create"]).arg(&disk).args(["half", "--volume", "other"]));
    good(lode(&["import"]).arg(&disk).arg("data").arg(&new));
    let listed = json(lode(&["snapshot", "list", "--json"]).arg(&disk));
    assert_eq!(listed[0]["name"], "monday");
    assert_eq!(listed[0]["volumes"], serde_json::json!(["data", "other"]));
    assert_eq!(listed[1]["volumes"], serde_json::json!(["other"]));
    assert!(listed[0]["made"].as_str().unwrap().starts_with("20"), "{listed}");
    assert!(good(lode(&["snapshot", "list"]).arg(&disk)).contains("data other"));

    let back = scratch.path("back");
    good(lode(&["export"]).arg(&disk).arg("data@monday").arg(&back));
    same(&old, &back);
    good(lode(&["export", "--force"]).arg(&disk).arg("data").arg(&back));
    same(&new, &back);

    let socket = scratch.socket();
    let serving = Serving::start(&disk, &socket.0, &[]);
    let exports = good(tool("nbdinfo", "libnbd-bin").args(["--list", "--json"]).arg(serving.uri("")));
    assert!(exports.contains("\"data@monday\"") && exports.contains("\"other@half\""), "{exports}");
    let copy = scratch.path("copy");
    good(tool("nbdcopy", "libnbd-bin").arg(serving.uri("data@monday")).arg(&copy));
    same(&old, &copy);
    let refused = run(tool("nbdcopy", "libnbd-bin").arg(&new).arg(serving.uri("data@monday")));
    assert!(!refused.status.success(), "a snapshot was written to");
    serving.stop();

    good(lode(&["snapshot", "delete"]).arg(&disk).arg("monday"));
    assert!(bad(lode(&["export"]).arg(&disk).arg("data@monday").arg(&back), 3).contains("no snapshot named monday"));
    sound(&disk);
}

#[test]
fn what_changed_since_a_snapshot_is_told_and_taken_back() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let (old, new) = (scratch.file("old", 4 << 20, 1), scratch.path("new"));
    good(lode(&["import"]).arg(&disk).arg("data").arg(&old));
    good(lode(&["snapshot", "create"]).arg(&disk).arg("a"));
    assert_eq!(json(lode(&["diff", "--json"]).arg(&disk).args(["data", "a"])), serde_json::json!([]));
    let socket = scratch.socket();
    let serving = Serving::start(&disk, &socket.0, &[]);
    let writes = ["-c", "write -P 7 64k 8k", "-c", "discard 1M 4k", "-c", "flush"];
    good(tool("qemu-io", "qemu-utils").args(["-f", "raw"]).args(writes).arg(serving.uri("data")));
    serving.stop();
    good(lode(&["snapshot", "create"]).arg(&disk).arg("b"));
    let expected = serde_json::json!([{"offset": 65536, "bytes": 8192}, {"offset": 1 << 20, "bytes": 4096}]);
    assert_eq!(json(lode(&["diff", "--json"]).arg(&disk).args(["data", "a"])), expected);
    assert_eq!(json(lode(&["diff", "--json"]).arg(&disk).args(["data", "a", "b"])), expected);
    assert!(good(lode(&["diff"]).arg(&disk).args(["data", "a"])).contains("12 KiB in 2 ranges"));
    assert!(bad(lode(&["diff"]).arg(&disk).args(["data", "b", "a"]), 2).contains("older snapshot"));
    good(lode(&["snapshot", "rollback"]).arg(&disk).args(["a", "--volume", "data"]));
    good(lode(&["export"]).arg(&disk).arg("data").arg(&new));
    same(&old, &new);
    sound(&disk);
}

#[test]
fn names_of_snapshots_that_make_no_sense_are_refused() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    good(lode(&["snapshot", "create"]).arg(&disk).arg("s"));
    assert!(bad(lode(&["snapshot", "create"]).arg(&disk).arg("s"), 7).contains("a snapshot named s"));
    assert!(bad(lode(&["snapshot", "create"]).arg(&disk).arg("a@b"), 2).contains('@'));
    assert!(bad(lode(&["volume", "create"]).arg(&disk).args(["a@b", "--size", "1MiB"]), 2).contains('@'));
    let absent = bad(lode(&["snapshot", "create"]).arg(&disk).args(["t", "--volume", "nobody"]), 3);
    assert!(absent.contains("no volume named nobody"), "{absent}");
    assert!(bad(lode(&["snapshot", "delete"]).arg(&disk).arg("t"), 3).contains("no snapshot named t"));
}

/// A served disk takes what is due by itself, and keeps so many.
#[test]
fn schedules_are_kept_while_the_disk_is_served() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let disk = scratch.disk("256MiB");
    let on = |words: &[&str], more: &[&str]| {
        let mut command = lode(words);
        command.arg(&disk).args(more);
        command
    };
    good(&mut on(&["volume", "create"], &["data", "--size", "8MiB"]));
    good(&mut on(&["snapshot", "schedule", "set"], &["often", "--every", "1s", "--keep", "2"]));
    bad(&mut on(&["snapshot", "schedule", "set"], &["never", "--every", "1ms", "--keep", "2"]), 2);
    let names = || {
        let listed = json(&mut on(&["snapshot", "list"], &["--json"]));
        let names = listed.as_array().unwrap().iter().map(|snapshot| snapshot["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert!(good(&mut on(&["snapshot", "schedule", "run"], &[])).contains("taken"));
    let first = names();
    assert!(first.len() == 1 && first[0].starts_with("often-20"), "{first:?}");
    let serving = Serving::start(&disk, &socket.0, &[]);
    let start = std::time::Instant::now();
    while names().contains(&first[0]) {
        assert!(start.elapsed() < std::time::Duration::from_secs(60), "the first one is still there: {:?}", names());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(names().len() <= 3);
    good(&mut on(&["snapshot", "schedule", "remove"], &["often"]));
    let listed = json(&mut on(&["snapshot", "schedule", "list"], &["--json"]));
    assert_eq!(listed.as_array().map(Vec::len), Some(0));
    serving.stop();
    sound(&disk);
}
