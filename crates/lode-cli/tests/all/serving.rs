//! Standard clients agree with the server.

use crate::client::Client;
use crate::support::{Scratch, Serving, bad, good, json, lode, run, same, sound, tool};
use std::path::PathBuf;

/// A disk with a volume, served.
fn served(scratch: &Scratch, socket: &std::path::Path, bytes: &str) -> (PathBuf, Serving) {
    let disk = scratch.disk("512MiB");
    good(lode(&["volume", "create"]).arg(&disk).args(["data", "--size", bytes]));
    let serving = Serving::start(&disk, socket, &[]);
    (disk, serving)
}

#[test]
fn qemu_img_converts_compares_and_maps() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let (disk, serving) = served(&scratch, &socket.0, "64MiB");
    let (file, uri) = (scratch.file("file", 64 << 20, 1), serving.uri("data"));
    let convert = ["convert", "-n", "-f", "raw", "-O", "raw"];
    good(tool("qemu-img", "qemu-utils").args(convert).arg(&file).arg(&uri));
    good(tool("qemu-img", "qemu-utils").args(["compare", "-f", "raw", "-F", "raw"]).arg(&file).arg(&uri));
    let map = json(tool("qemu-img", "qemu-utils").args(["map", "--output=json", "-f", "raw", &uri]));
    let map = map.as_array().unwrap();
    assert!(map.iter().any(|extent| extent["data"] == false), "holes are seen");
    assert_eq!(map.iter().map(|extent| extent["length"].as_u64().unwrap()).sum::<u64>(), 64 << 20);
    let bench = ["bench", "-f", "raw", "-w", "-c", "500", "-d", "16", "--flush-interval=50", &uri];
    good(tool("qemu-img", "qemu-utils").args(bench));
    serving.stop();
    sound(&disk);
}

#[test]
fn a_server_that_discards_lets_the_image_shrink() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let taken = || json(lode(&["info", "--json"]).arg(&disk))["allocated"].as_u64().unwrap();
    assert!(taken() >= 256 << 20, "the image was reserved");
    let (file, socket) = (scratch.file("file", 32 << 20, 3), scratch.socket());
    good(lode(&["import"]).arg(&disk).arg("data").arg(&file));
    Serving::start(&disk, &socket.0, &[]).stop();
    assert!(taken() >= 256 << 20, "nothing is given back unasked");
    let serving = Serving::start(&disk, &socket.0, &["--discard"]);
    let started = std::time::Instant::now();
    let blocks = || std::os::unix::fs::MetadataExt::blocks(&disk.metadata().unwrap()) * 512;
    while blocks() > 96 << 20 {
        assert!(started.elapsed().as_secs() < 60, "{} bytes are still taken", blocks());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let out = scratch.path("out");
    good(tool("nbdcopy", "libnbd-bin").arg(serving.uri("data")).arg(&out));
    same(&file, &out);
    serving.stop();
    assert!((32 << 20..100 << 20).contains(&taken()), "{} bytes are taken", taken());
    assert!(good(lode(&["info"]).arg(&disk)).contains("of the file system"));
    sound(&disk);
}

#[test]
fn a_disk_that_runs_full_is_warned_of_in_the_log_and_by_info() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    for seed in [1, 2] {
        good(lode(&["import"]).arg(&disk).arg("old").arg(scratch.file(&format!("file{seed}"), 8 << 20, seed)));
        if seed == 1 {
            good(lode(&["snapshot", "create"]).arg(&disk).arg("before"));
        }
    }
    good(lode(&["volume", "create"]).arg(&disk).args(["data", "--size", "1GiB"]));
    let info = json(lode(&["info", "--json"]).arg(&disk));
    assert_eq!((&info["space"], &info["held"]), (&"ample".into(), &serde_json::Value::Null));
    assert!(!good(lode(&["info"]).arg(&disk)).contains("WARNING"));
    let (socket, log) = (scratch.socket(), scratch.path("log"));
    let into = std::fs::File::create(&log).unwrap().into();
    let serving = Serving::start_with_log(&disk, &socket.0, &[], into);
    let mut client = Client::connect(&socket.0, "data").unwrap();
    let piece = crate::support::content(1 << 20, 4);
    let full = (0..256).find(|at| client.write(at << 20, &piece, false).is_err());
    assert!(full.is_some(), "the disk never becomes full");
    drop(client);
    // Printed by a thread of its own.
    let started = std::time::Instant::now();
    let said = loop {
        let said = std::fs::read_to_string(&log).unwrap();
        if said.contains("space is critical") {
            break said;
        }
        assert!(started.elapsed().as_secs() < 30, "{said}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    assert!(said.contains("one snapshot holds ") && said.contains("(before "), "{said}");
    assert!(said.lines().count() <= 2, "{said}");
    serving.stop();
    let info = json(lode(&["info", "--json"]).arg(&disk));
    assert_eq!((&info["space"], &info["snapshots"]), (&"critical".into(), &1.into()));
    assert_eq!(info["held"][0]["snapshot"], "before");
    let words = good(lode(&["info"]).arg(&disk));
    assert!(words.contains("WARNING") && words.contains("(before "), "{words}");
}

#[test]
fn nbdcopy_copies_in_and_out() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let (disk, serving) = served(&scratch, &socket.0, "64MiB");
    let (file, out, uri) = (scratch.file("file", 64 << 20, 2), scratch.path("out"), serving.uri("data"));
    good(tool("nbdcopy", "libnbd-bin").arg("--flush").arg(&file).arg(&uri));
    good(tool("nbdcopy", "libnbd-bin").arg(&uri).arg(&out));
    same(&file, &out);
    serving.stop();
    let exported = scratch.path("exported");
    good(lode(&["export"]).arg(&disk).arg("data").arg(&exported));
    same(&file, &exported);
    sound(&disk);
}

#[test]
fn nbdinfo_lists_every_volume() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let disk = scratch.disk("256MiB");
    for (name, size) in [("one", "1MiB"), ("two", "5MiB")] {
        good(lode(&["volume", "create"]).arg(&disk).args([name, "--size", size]));
    }
    let serving = Serving::start(&disk, &socket.0, &[]);
    let listed = json(tool("nbdinfo", "libnbd-bin").args(["--list", "--json"]).arg(serving.uri("")));
    let exports = listed["exports"].as_array().unwrap();
    let size = |name: &str| exports.iter().find(|export| export["export-name"] == name).unwrap()["export-size"].clone();
    assert_eq!((size("one"), size("two")), (serde_json::json!(1 << 20), serde_json::json!(5 << 20)));
    let all = ["flush", "fua", "trim", "zero", "multi_conn"];
    for able in all {
        assert_eq!(exports[0][format!("can_{able}")], true, "{able}: {}", exports[0]);
    }
    serving.stop();
}

#[test]
fn qemu_io_reads_what_it_wrote() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let (disk, serving) = served(&scratch, &socket.0, "16MiB");
    let uri = serving.uri("data");
    let script = [
        "write -P 1 0 1M",
        "write -P 2 512 1000",
        "read -P 1 0 512",
        "read -P 2 512 1000",
        "write -z 64k 64k",
        "read -P 0 64k 64k",
        "discard 256k 128k",
        "read -P 0 256k 128k",
        "write -f -P 3 5M 4k",
        "flush",
        "read -P 3 5M 4k",
    ];
    let mut command = tool("qemu-io", "qemu-utils");
    command.args(["-f", "raw", "-d", "unmap"]);
    for line in script {
        command.args(["-c", line]);
    }
    let output = good(command.arg(&uri));
    assert!(!output.contains("failed") && !output.contains("error"), "{output}");
    serving.stop();
    sound(&disk);
}

#[test]
fn fio_verifies_what_it_wrote() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let (disk, serving) = served(&scratch, &socket.0, "64MiB");
    let mut command = tool("fio", "fio");
    command.args(["--name=verify", "--ioengine=nbd", "--rw=randwrite", "--bsrange=4k-64k", "--iodepth=16"]);
    command.args(["--size=64m", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--fsync=32"]);
    command.current_dir(scratch.path("."));
    good(command.arg(format!("--uri={}", serving.uri("data"))));
    serving.stop();
    sound(&disk);
}

#[test]
fn a_read_only_server_reads_and_refuses_to_write() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let disk = scratch.disk("256MiB");
    let file = scratch.file("file", 4 << 20, 1);
    good(lode(&["import"]).arg(&disk).arg("data").arg(&file));
    let before = std::fs::read(&disk).unwrap();
    let serving = Serving::start(&disk, &socket.0, &["--read-only"]);
    let mut client = Client::connect(&socket.0, "data").unwrap();
    assert_eq!(client.flags & 3, 3, "the export says that it is read-only");
    assert!(client.read(0, 1 << 20).unwrap() == std::fs::read(&file).unwrap()[..1 << 20]);
    assert!(client.write(0, &[1; 4096], false).is_err());
    assert!(client.trim(0, 4096).is_err());
    good(lode(&["info"]).arg(&disk));
    serving.stop();
    assert!(before == std::fs::read(&disk).unwrap(), "the image has changed");
}

#[test]
fn a_clean_end_keeps_everything_and_needs_no_flush() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let (disk, serving) = served(&scratch, &socket.0, "16MiB");
    let mut client = Client::connect(&socket.0, "data").unwrap();
    assert_eq!(client.bytes, 16 << 20);
    client.write(12345, &[9; 54321], false).unwrap();
    client.trim(16384, 8192).unwrap();
    serving.stop();
    assert!(client.read(0, 512).is_err(), "the connection is closed");
    let out = scratch.path("out");
    good(lode(&["export"]).arg(&disk).arg("data").arg(&out));
    let found = std::fs::read(&out).unwrap();
    let expected = |at: usize| if (12345..16384).contains(&at) || (24576..66666).contains(&at) { 9 } else { 0 };
    assert!((0..found.len()).all(|at| found[at] == expected(at)));
}

#[test]
fn tcp_is_served_too() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    good(lode(&["volume", "create"]).arg(&disk).args(["data", "--size", "1MiB"]));
    let mut command = lode(&["serve"]);
    command.arg(&disk).args(["--listen", "127.0.0.1:0"]).stdout(std::process::Stdio::piped());
    let mut child = crate::support::Process(command.spawn().unwrap());
    let out = std::io::BufReader::new(child.0.stdout.take().unwrap());
    let mut lines = std::io::BufRead::lines(out).map_while(Result::ok);
    let uri = lines.find(|line| line.starts_with("nbd://")).expect("a line with the URI");
    assert_eq!(lines.next().unwrap(), "ready");
    let info = json(tool("nbdinfo", "libnbd-bin").arg("--json").arg(&uri));
    assert_eq!(info["exports"][0]["export-size"], 1 << 20);
    let both = run(lode(&["serve"]).arg(&disk).args(["--listen", "127.0.0.1:0", "--socket", "/tmp/x"]));
    assert_eq!(both.status.code(), Some(2));
    bad(lode(&["serve"]).arg(&disk).args(["--listen", "127.0.0.1:0"]), 4);
}
