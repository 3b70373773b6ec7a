//! Streams from the command line: through pipes and files, cut, damaged, and with the receiver killed.

use crate::support::{Process, Scratch, bad, good, json, lode, same, sound};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A disk with `data@a`, and `data@b` that differs in a few places.
fn sender(scratch: &Scratch) -> (PathBuf, PathBuf, PathBuf) {
    let disk = scratch.path("from.lode");
    good(lode(&["create"]).arg(&disk).args(["--size", "256MiB"]));
    let old = scratch.file("old", 12 << 20, 1);
    good(lode(&["import"]).arg(&disk).arg("data").arg(&old));
    good(lode(&["snapshot", "create"]).arg(&disk).arg("a"));
    let new = scratch.path("new");
    let mut content = std::fs::read(&old).unwrap();
    content[3 << 20..][..10_000].fill(7);
    content[9 << 20..][..1 << 20].fill(0);
    std::fs::write(&new, content).unwrap();
    good(lode(&["import"]).arg(&disk).arg("data").arg(&new));
    good(lode(&["snapshot", "create"]).arg(&disk).arg("b"));
    (disk, old, new)
}

fn receiver(scratch: &Scratch) -> PathBuf {
    let disk = scratch.path("to.lode");
    good(lode(&["create"]).arg(&disk).args(["--size", "256MiB"]));
    disk
}

/// `lode send ... | lode receive ...`
fn piped(send: &mut Command, receive: &mut Command) -> std::process::Output {
    let mut sending = Process(send.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
    let stream = sending.0.stdout.take().unwrap();
    let output = receive.stdin(Stdio::from(stream)).output().unwrap();
    assert!(sending.0.wait().unwrap().success());
    output
}

fn exported(disk: &Path, name: &str, scratch: &Scratch) -> PathBuf {
    let path = scratch.path("exported");
    good(lode(&["export", "--force"]).arg(disk).arg(name).arg(&path));
    path
}

#[test]
fn a_volume_and_then_what_changed_go_through_a_pipe() {
    let scratch = Scratch::new();
    let ((from, old, new), to) = (sender(&scratch), receiver(&scratch));
    let output = piped(lode(&["send"]).arg(&from).arg("data@a"), lode(&["receive"]).arg(&to));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("data@a: "), "{output:?}");
    same(&old, &exported(&to, "data", &scratch));
    let send = &mut lode(&["send", "--compress", "lz4"]);
    let output = piped(send.arg(&from).args(["data@b", "--from", "a"]), lode(&["receive", "--json"]).arg(&to));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["volume"], &report["snapshot"]), (&"data".into(), &"b".into()));
    assert_eq!(report["bytes"], 12 << 20);
    same(&new, &exported(&to, "data", &scratch));
    same(&old, &exported(&to, "data@a", &scratch));
    same(&new, &exported(&to, "data@b", &scratch));
    // And on to the disk where it began, under other names.
    let output = piped(lode(&["send"]).arg(&to).arg("data@b"), lode(&["receive"]).arg(&from).arg("copy@c"));
    assert!(output.status.success(), "{output:?}");
    same(&new, &exported(&from, "copy@c", &scratch));
    sound(&from);
    sound(&to);
}

#[test]
fn a_stream_in_a_file_is_refused_unless_it_is_whole_and_fits() {
    let scratch = Scratch::new();
    let ((from, old, new), to) = (sender(&scratch), receiver(&scratch));
    let (full, more) = (scratch.path("full"), scratch.path("more"));
    good(lode(&["send"]).arg(&from).arg("data@a").arg("-o").arg(&full));
    let sent = json(lode(&["send", "--json"]).arg(&from).args(["data@b", "--from", "a", "-o"]).arg(&more));
    assert_eq!(sent["stream_bytes"], std::fs::metadata(&more).unwrap().len());
    assert!(sent["data_bytes"].as_u64().unwrap() < 12 << 20);
    assert!(bad(lode(&["send"]).arg(&from).arg("data@a").arg("-o").arg(&full), 7).contains("exists"));
    assert!(bad(lode(&["send"]).arg(&from).arg("data").arg("-o").arg(scratch.path("x")), 2).contains("snapshot"));
    assert!(bad(lode(&["send", "--json"]).arg(&from).arg("data@a"), 2).contains("--output"));
    assert!(!scratch.path("x").exists());

    let receive = |inputs: &[&Path]| {
        let mut command = lode(&["receive"]);
        command.arg(&to);
        for input in inputs {
            command.arg("-i").arg(input);
        }
        command
    };
    assert!(bad(&mut receive(&[&more]), 3).contains("no volume named data"));
    // Cut: the words say where, and a stream from there on completes it.
    let bytes = std::fs::read(&full).unwrap();
    let (part, rest, damaged) = (scratch.path("part"), scratch.path("rest"), scratch.path("damaged"));
    std::fs::write(&part, &bytes[..bytes.len() / 2]).unwrap();
    let words = bad(&mut receive(&[&part]), 6);
    let position = words.split("position ").nth(1).and_then(|words| words.split(' ').next()).unwrap().to_owned();
    assert!(position.parse::<u64>().unwrap() > 1 << 20, "{words}");
    assert_eq!(json(lode(&["volume", "list", "--json"]).arg(&to)), serde_json::json!([]));
    good(lode(&["send"]).arg(&from).args(["data@a", "--position", &position, "-o"]).arg(&rest));
    assert!(bad(&mut receive(&[&rest]), 2).contains("expected its beginning before"));
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 3] ^= 1;
    std::fs::write(&damaged, &flipped).unwrap();
    assert!(bad(&mut receive(&[&damaged]), 1).contains("checksum"));
    std::fs::write(&damaged, [&bytes[..], b"x"].concat()).unwrap();
    assert!(bad(&mut receive(&[&damaged]), 2).contains("more behind it"));
    std::fs::write(&damaged, std::fs::read(&old).unwrap()).unwrap();
    assert!(bad(&mut receive(&[&damaged]), 2).contains("LODESEND"));
    assert!(bad(&mut receive(&[&scratch.path("absent")]), 3).contains("absent"));
    good(&mut receive(&[&part, &rest]));
    same(&old, &exported(&to, "data", &scratch));
    assert!(bad(&mut receive(&[&full]), 7).contains("a volume named data"));

    // Changed over there.
    good(lode(&["import"]).arg(&to).arg("data").arg(&new));
    assert!(bad(&mut receive(&[&more]), 10).contains("was changed since"));
    same(&new, &exported(&to, "data", &scratch));
    good(receive(&[&more]).arg("--force"));
    same(&new, &exported(&to, "data@b", &scratch));
    sound(&to);
}

#[test]
fn a_receiver_killed_leaves_what_was_there_before() {
    let scratch = Scratch::new();
    let ((from, old, _), to) = (sender(&scratch), receiver(&scratch));
    let full = scratch.path("full");
    good(lode(&["send"]).arg(&from).arg("data@a").arg("-o").arg(&full));
    let bytes = std::fs::read(&full).unwrap();
    for part in [0, 200, bytes.len() / 2, bytes.len() - 1] {
        let mut receive = lode(&["receive"]);
        let mut child = Process(receive.arg(&to).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        child.0.stdin.as_mut().unwrap().write_all(&bytes[..part]).unwrap();
        // More than a pipe holds was taken by a receiver that is at work; of less, time must tell.
        std::thread::sleep(Duration::from_millis(300));
        child.0.kill().unwrap();
        child.0.wait().unwrap();
        let volumes = json(lode(&["volume", "list", "--json"]).arg(&to));
        for volume in volumes.as_array().unwrap() {
            assert_eq!((&volume["name"], &volume["bytes"]), (&"data.receiving".into(), &0.into()), "{volumes}");
        }
        assert_eq!(json(lode(&["snapshot", "list", "--json"]).arg(&to)), serde_json::json!([]));
        sound(&to);
    }
    good(lode(&["receive"]).arg(&to).arg("-i").arg(&full));
    assert_eq!(json(lode(&["volume", "list", "--json"]).arg(&to)).as_array().unwrap().len(), 1);
    same(&old, &exported(&to, "data", &scratch));
    sound(&to);
}
