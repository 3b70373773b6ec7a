//! What is not a disk, not allowed, not possible: one line that says so, and the exit code for it.

use crate::support::{Scratch, Serving, bad, good, json, lode, run};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

/// Every command that takes a disk, with arguments that would do for a good one.
fn commands(disk: &Path) -> Vec<std::process::Command> {
    let with = |words: &[&str], more: &[&str]| {
        let mut command = lode(words);
        command.arg(disk).args(more);
        command
    };
    vec![
        with(&["info"], &[]),
        with(&["check"], &[]),
        with(&["scrub"], &[]),
        with(&["repair"], &[]),
        with(&["inspect"], &[]),
        with(&["volume", "list"], &[]),
        with(&["volume", "create"], &["v", "--size", "1MiB"]),
        with(&["import"], &["v", "/dev/null"]),
        with(&["export"], &["v", "-"]),
        with(&["serve"], &["--socket", "/tmp/lode-test-never.sock"]),
    ]
}

#[test]
fn what_is_absent_is_told() {
    let scratch = Scratch::new();
    for mut command in commands(&scratch.path("absent")) {
        let error = bad(&mut command, 3);
        assert!(error.contains("absent"), "{error}");
    }
}

#[test]
fn what_is_not_a_disk_is_told() {
    let scratch = Scratch::new();
    for (name, content) in [("text", b"Hello".repeat(100_000)), ("zeros", vec![0; 1 << 20]), ("empty", Vec::new())] {
        let path = scratch.path(name);
        std::fs::write(&path, &content).unwrap();
        for mut command in commands(&path) {
            bad(&mut command, 8);
        }
        assert!(std::fs::read(&path).unwrap() == content, "{name} has changed");
    }
    for mut command in commands(&scratch.path(".")) {
        bad(&mut command, 2);
    }
}

#[test]
fn a_truncated_image_is_damage() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let file = scratch.file("file", 8 << 20, 1);
    good(lode(&["import"]).arg(&disk).arg("data").arg(&file));
    let image = std::fs::File::options().write(true).open(&disk).unwrap();
    for len in [200 << 20, 64 << 20, 3 << 20] {
        image.set_len(len).unwrap();
        let error = bad(lode(&["info"]).arg(&disk), 1);
        assert!(error.contains("expected") && error.contains("found"), "{error}");
        assert_eq!(run(lode(&["check"]).arg(&disk)).status.code(), Some(1));
        assert_eq!(json(lode(&["check", "--json"]).arg(&disk))["sound"], false);
        bad(lode(&["export"]).arg(&disk).args(["data", "-"]), 1);
    }
}

#[test]
fn a_flipped_byte_is_an_error_or_harmless() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let file = scratch.file("file", 4 << 20, 1);
    good(lode(&["import"]).arg(&disk).arg("data").arg(&file));
    let sound = std::fs::read(&disk).unwrap();
    let expected = std::fs::read(&file).unwrap();
    let image = std::fs::File::options().write(true).open(&disk).unwrap();
    // Only where something is written does a byte matter.
    let written: Vec<usize> = (0..sound.len()).step_by(512).filter(|at| sound[*at..at + 512] != [0; 512]).collect();
    for turn in 0..24 {
        let at = written[written.len() * turn / 24] + turn * 21;
        image.write_all_at(&[sound[at] ^ 0x10], at as u64).unwrap();
        let output = run(lode(&["export"]).arg(&disk).args(["data", "-"]));
        let fine = output.status.success() && output.stdout == expected;
        let told = matches!(output.status.code(), Some(1 | 3 | 8));
        assert!(fine || told, "flipped byte {at}: {:?}: {:?}", output.status, String::from_utf8_lossy(&output.stderr));
        for command in ["check", "scrub"] {
            let code = run(lode(&[command]).arg(&disk)).status.code();
            assert!(matches!(code, Some(0 | 1 | 8)), "flipped byte {at}: {command}: {code:?}");
        }
        image.write_all_at(&[sound[at]], at as u64).unwrap();
    }
}

#[test]
fn an_image_open_elsewhere_is_busy() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let socket = scratch.socket();
    let serving = Serving::start(&disk, &socket.0, &[]);
    for command in ["check", "repair"] {
        let error = bad(lode(&[command]).arg(&disk), 4);
        assert!(error.contains(&serving.id().to_string()), "names the holder: {error}");
    }
    bad(lode(&["create", "--force", "--size", "256MiB"]).arg(&disk), 4);
    serving.stop();
    good(lode(&["info"]).arg(&disk));
}

#[test]
fn a_read_only_file_is_read_and_not_written() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    std::fs::set_permissions(&disk, std::fs::Permissions::from_mode(0o444)).unwrap();
    good(lode(&["info"]).arg(&disk));
    good(lode(&["check"]).arg(&disk));
    if std::fs::File::options().write(true).open(&disk).is_err() {
        bad(lode(&["volume", "create"]).arg(&disk).args(["v", "--size", "1MiB"]), 9);
    }
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    let scratch = Scratch::new();
    let disk = scratch.path("disk.lode");
    for size in ["16777216TiB", "18446744073709551616", "-1", "ten", "", "1.3"] {
        let output = run(lode(&["create"]).arg(&disk).arg(format!("--size={size}")));
        assert_eq!(output.status.code(), Some(2), "{size}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("expected"), "{size}");
        assert!(!disk.exists());
    }
    let error = bad(lode(&["create", "--size", "64KiB"]).arg(&disk), 2);
    assert!(error.contains("at least") && !disk.exists(), "{error}");
    assert_ne!(run(lode(&["create", "--size", "8000000TiB"]).arg(&disk)).status.code(), Some(0));
    assert!(!disk.exists(), "what could not be made is not left behind");
    let disk = scratch.disk("256MiB");
    let create = |size: &str| run(lode(&["volume", "create"]).arg(&disk).args(["v", "--size", size]));
    assert_eq!(create("16777216TiB").status.code(), Some(2));
    let block =
        |size: &str| run(lode(&["volume", "create"]).arg(&disk).args(["v", "--size=1MiB", "--block-size", size]));
    for size in ["0", "32", "100", "128KiB"] {
        assert_eq!(block(size).status.code(), Some(2), "{size}");
    }
    // The largest volume there can be is either made or refused, and the disk stays sound.
    let code = create("18446744073709551615").status.code();
    assert!(matches!(code, Some(0 | 2)), "{code:?}");
    good(lode(&["check"]).arg(&disk));
}

#[test]
fn a_closed_pipe_is_an_error_and_not_a_panic() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let file = scratch.file("file", 8 << 20, 1);
    good(lode(&["import"]).arg(&disk).arg("data").arg(&file));
    let mut command = std::process::Command::new("sh");
    command
        .arg("-c")
        .arg("\"$0\" export \"$1\" data - | head -c 10 >/dev/null; \"$0\" info \"$1\" >/dev/full; echo $?");
    let out = good(command.arg(env!("CARGO_BIN_EXE_lode")).arg(&disk));
    assert_eq!(out.trim(), "5");
}
