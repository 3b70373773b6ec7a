//! Streams from the command line: through pipes and files, cut, damaged, and with the receiver killed.

use crate::support::{Process, Scratch, Serving, bad, good, json, lode, run, same, sound};
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
    assert!(words.starts_with(&format!("lode: kept up to position {position} (")), "{words}");
    good(lode(&["receive"]).arg(&to).args(["data", "--drop"]));
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
    // What came before the damage was kept; the files say the same, so they go on with it.
    assert_eq!(json(lode(&["receive", "--status", "--json"]).arg(&to)).as_array().unwrap().len(), 1);
    good(&mut receive(&[&part, &rest]));
    assert_eq!(good(lode(&["receive", "--status"]).arg(&to)), "nothing is kept of any stream\n");
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

/// What is kept of the one stream that is open.
fn status(disk: &Path) -> serde_json::Value {
    let mut all = json(lode(&["receive", "--status", "--json"]).arg(disk));
    all.get_mut(0).map(serde_json::Value::take).unwrap_or_default()
}

#[test]
fn what_is_kept_of_a_stream_is_shown_gone_on_with_and_dropped() {
    let scratch = Scratch::new();
    let ((from, old, new), to) = (sender(&scratch), receiver(&scratch));
    let (full, part, rest) = (scratch.path("full"), scratch.path("part"), scratch.path("rest"));
    for (name, base, content) in [("data@a", None, &old), ("data@b", Some("a"), &new)] {
        let send = |position: &str, into: &Path| {
            let mut command = lode(&["send", "--force"]);
            command.arg(&from).arg(name).args(base.iter().flat_map(|base| ["--from", base]));
            good(command.args(["--position", position, "-o"]).arg(into));
            std::fs::read(into).unwrap()
        };
        let bytes = send("0", &full);
        std::fs::write(&part, &bytes[..bytes.len() - 200]).unwrap();
        for dropped in ["receive", "unit", "none"] {
            bad(lode(&["receive"]).arg(&to).arg("-i").arg(&part), 6);
            let kept = status(&to);
            assert_eq!((&kept["volume"], &kept["bytes"]), (&"data".into(), &(12 << 20).into()), "{kept}");
            assert_eq!(kept["stream"]["incremental"], base.is_some());
            assert!(kept["begun"].as_str().unwrap().starts_with("20"), "{kept}");
            let position = kept["position"].as_u64().unwrap();
            assert!(position > 1 << 20, "{kept}");
            let table = good(lode(&["receive", "--status"]).arg(&to).arg("data"));
            assert!(table.contains(&format!("{name} ")) && table.contains(&format!(" {position} ")), "{table}");
            assert!(good(lode(&["unit", "list"]).arg(&to)).contains("data.receiving"));
            assert!(bad(lode(&["unit", "commit"]).arg(&to).arg("data.receiving"), 2).contains("receives a stream"));
            assert!(bad(lode(&["receive", "--status"]).arg(&to).arg("other"), 3).contains("to other"));
            assert!(bad(lode(&["receive", "--drop"]).arg(&to).arg("other"), 3).contains("to other"));
            for wrong in [&["--drop"][..], &["data", "--drop", "--force"], &["data", "--drop", "--status"]] {
                let output = run(lode(&["receive"]).arg(&to).args(wrong));
                assert_eq!(output.status.code(), Some(2), "{wrong:?}");
            }
            match dropped {
                "receive" => good(lode(&["receive", "--drop"]).arg(&to).arg("data")),
                "unit" => good(lode(&["unit", "abort"]).arg(&to).arg("data.receiving")),
                _ => continue,
            };
            let volumes = json(lode(&["volume", "list", "--json"]).arg(&to));
            assert_eq!(volumes.as_array().unwrap().len(), usize::from(base.is_some()), "{volumes}");
            assert_eq!(json(lode(&["unit", "list", "--json"]).arg(&to)), serde_json::json!([]));
            sound(&to);
        }
        // Another stream does not go on with it.
        if base.is_none() {
            let other = scratch.path("other");
            good(lode(&["send", "--force"]).arg(&from).arg("data@b").arg("-o").arg(&other));
            assert!(bad(lode(&["receive"]).arg(&to).arg("-i").arg(&other), 7).contains("that of data@a of disk"));
        }
        let position = status(&to)["position"].to_string();
        assert!(send(&position, &rest).len() < bytes.len());
        good(lode(&["receive"]).arg(&to).arg("-i").arg(&rest));
        same(content, &exported(&to, "data", &scratch));
        same(content, &exported(&to, name, &scratch));
        assert_eq!(json(lode(&["unit", "list", "--json"]).arg(&to)), serde_json::json!([]));
        sound(&to);
    }
    // What was changed meanwhile cannot be gone on with.
    good(lode(&["snapshot", "delete"]).arg(&to).arg("b"));
    good(lode(&["snapshot", "rollback"]).arg(&to).args(["a", "--volume", "data"]));
    bad(lode(&["receive", "--force"]).arg(&to).arg("-i").arg(&part), 6);
    good(lode(&["import"]).arg(&to).arg("data").arg(&old));
    let words = bad(lode(&["receive"]).arg(&to).arg("-i").arg(&rest), 10);
    assert!(words.contains("nothing was received") && words.contains("was dropped"), "{words}");
    good(lode(&["receive", "--force"]).arg(&to).arg("-i").arg(&full));
    same(&new, &exported(&to, "data", &scratch));
    sound(&to);
}

/// A volume of more than goes between two barriers, and its stream.
fn long(scratch: &Scratch) -> (PathBuf, PathBuf, PathBuf, Vec<u8>) {
    let (from, content, full) = (scratch.path("from.lode"), scratch.path("content"), scratch.path("full"));
    good(lode(&["create"]).arg(&from).args(["--size", "512MiB"]));
    std::fs::write(&content, (0..140 << 17_u64).flat_map(|n: u64| (n / 500).to_le_bytes()).collect::<Vec<u8>>())
        .unwrap();
    good(lode(&["import"]).arg(&from).arg("data").arg(&content));
    good(lode(&["snapshot", "create"]).arg(&from).arg("a"));
    good(lode(&["send"]).arg(&from).arg("data@a").arg("-o").arg(&full));
    let bytes = std::fs::read(&full).unwrap();
    (from, content, full, bytes)
}

#[test]
fn a_receiver_killed_far_on_goes_on_from_there() {
    let scratch = Scratch::new();
    let (from, content, full, bytes) = long(&scratch);
    let to = scratch.path("to.lode");
    good(lode(&["create"]).arg(&to).args(["--size", "512MiB"]));
    let mut receive = lode(&["receive"]);
    let mut child = Process(receive.arg(&to).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    child.0.stdin.as_mut().unwrap().write_all(&bytes[..bytes.len() * 2 / 3]).unwrap();
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    // All but what a pipe holds was taken, so there was a barrier.
    let kept = status(&to);
    let position = kept["position"].as_u64().unwrap();
    assert!((64 << 20..96 << 20).contains(&position), "{kept}");
    sound(&to);
    let rest = scratch.path("rest");
    good(lode(&["send"]).arg(&from).args(["data@a", "--position", &position.to_string(), "-o"]).arg(&rest));
    let half = std::fs::read(&rest).unwrap();
    std::fs::write(&rest, &half[..half.len() / 2]).unwrap();
    bad(lode(&["receive"]).arg(&to).arg("-i").arg(&rest), 6);
    assert!(status(&to)["position"].as_u64().unwrap() > position);
    // The same once more, from its beginning.
    let report = json(lode(&["receive", "--json"]).arg(&to).arg("-i").arg(&full));
    assert_eq!(report["data_bytes"], 140 << 20);
    same(&content, &exported(&to, "data@a", &scratch));
    sound(&to);
}

#[test]
fn a_receive_outlives_its_client_and_its_server() {
    let scratch = Scratch::new();
    let ((from, old, _), to, socket) = (sender(&scratch), receiver(&scratch), scratch.socket());
    let full = scratch.path("full");
    good(lode(&["send"]).arg(&from).arg("data@a").arg("-o").arg(&full));
    let bytes = std::fs::read(&full).unwrap();
    let started = |part: usize| {
        let mut receive = lode(&["receive"]);
        let mut child = Process(receive.arg(&to).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        child.0.stdin.as_mut().unwrap().write_all(&bytes[..part]).unwrap();
        child
    };
    let serving = Serving::start(&to, &socket.0, &[]);
    let mut child = started(bytes.len() / 2);
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    let since = std::time::Instant::now();
    // The server notices at its next step.
    while status(&to)["state"] != "kept" {
        assert!(since.elapsed() < Duration::from_secs(20), "{}", status(&to));
        std::thread::sleep(Duration::from_millis(20));
    }
    let first = status(&to)["position"].as_u64().unwrap();
    assert!(first > 1 << 20);
    assert!(bad(lode(&["unit", "commit"]).arg(&to).arg("data.receiving"), 2).contains("receives a stream"));
    let mut child = started(bytes.len() * 3 / 4);
    serving.stop();
    assert!(!child.0.wait().unwrap().success());
    let second = status(&to)["position"].as_u64().unwrap();
    assert!(second > first, "{second} of {first}");
    good(lode(&["receive"]).arg(&to).arg("-i").arg(&full));
    same(&old, &exported(&to, "data", &scratch));
    sound(&to);
}
