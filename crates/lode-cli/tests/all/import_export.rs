//! Files into volumes and back.

use crate::support::{Process, Scratch, bad, good, json, lode, run, same, sound, wait};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn what_is_imported_is_exported() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let (file, out) = (scratch.file("file", 20 << 20, 1), scratch.path("out"));
    good(lode(&["import"]).arg(&disk).arg("data").arg(&file));
    good(lode(&["export"]).arg(&disk).arg("data").arg(&out));
    same(&file, &out);
    assert!(out.metadata().unwrap().blocks() * 512 < 20 << 20, "holes stay holes");
    let stdout = run(lode(&["export"]).arg(&disk).args(["data", "-"]));
    assert!(stdout.status.success() && stdout.stdout == std::fs::read(&file).unwrap());
    sound(&disk);
}

#[test]
fn a_size_that_is_no_multiple_is_rounded_up_with_zeros() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let (file, out) = (scratch.path("file"), scratch.path("out"));
    std::fs::write(&file, vec![7; 5000]).unwrap();
    good(lode(&["import"]).arg(&disk).arg("data").arg(&file));
    good(lode(&["export"]).arg(&disk).arg("data").arg(&out));
    let found = std::fs::read(&out).unwrap();
    assert_eq!(found.len(), 8192);
    assert!(found[..5000].iter().all(|byte| *byte == 7) && found[5000..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_second_import_replaces_all_of_the_first() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let (first, second, out) = (scratch.file("1", 8 << 20, 1), scratch.file("2", 3 << 20, 2), scratch.path("out"));
    good(lode(&["import"]).arg(&disk).arg("data").arg(&first));
    good(lode(&["import"]).arg(&disk).arg("data").arg(&second));
    good(lode(&["export"]).arg(&disk).arg("data").arg(&out));
    let mut expected = std::fs::read(&second).unwrap();
    expected.resize(8 << 20, 0);
    assert!(std::fs::read(&out).unwrap() == expected, "the second content, followed by zeros");
    sound(&disk);
}

#[test]
fn a_stream_is_imported_like_a_file() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let (file, out) = (scratch.file("file", 5 << 20, 3), scratch.path("out"));
    for name in ["absent", "present"] {
        if name == "present" {
            good(lode(&["volume", "create"]).arg(&disk).args([name, "--size", "5MiB"]));
        }
        let mut command = lode(&["import"]);
        command.arg(&disk).args([name, "-"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut import = Process(command.spawn().unwrap());
        import.0.stdin.take().unwrap().write_all(&std::fs::read(&file).unwrap()).unwrap();
        assert!(wait(&mut import.0, Duration::from_secs(30)).unwrap().success());
        good(lode(&["export", "--force"]).arg(&disk).arg(name).arg(&out));
        same(&file, &out);
    }
}

#[test]
fn an_empty_file_makes_an_empty_volume() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let (file, out) = (scratch.path("file"), scratch.path("out"));
    std::fs::write(&file, "").unwrap();
    good(lode(&["import"]).arg(&disk).arg("data").arg(&file));
    good(lode(&["export"]).arg(&disk).arg("data").arg(&out));
    assert_eq!(out.metadata().unwrap().len(), 0);
}

#[test]
fn a_volume_too_small_is_refused_and_stays_as_it_is() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let (small, large, out) = (scratch.file("1", 1 << 20, 1), scratch.file("2", 2 << 20, 2), scratch.path("out"));
    good(lode(&["import"]).arg(&disk).arg("data").arg(&small));
    let error = bad(lode(&["import"]).arg(&disk).arg("data").arg(&large), 2);
    assert!(error.contains("expected") && error.contains("1048576"), "{error}");
    good(lode(&["export"]).arg(&disk).arg("data").arg(&out));
    same(&small, &out);
}

#[test]
fn too_little_space_for_old_and_new_is_said_up_front() {
    let scratch = Scratch::new();
    let disk = scratch.disk("128MiB");
    let content: Vec<u8> = crate::support::content(70 << 20, 1).into_iter().map(|byte| byte | 1).collect();
    let (file, out) = (scratch.path("file"), scratch.path("out"));
    std::fs::write(&file, content).unwrap();
    good(lode(&["import"]).arg(&disk).arg("data").arg(&file));
    let error = bad(lode(&["import"]).arg(&disk).arg("data").arg(&file), 5);
    assert!(error.contains("free") && error.contains("as it was"), "{error}");
    good(lode(&["export"]).arg(&disk).arg("data").arg(&out));
    same(&file, &out);
    assert!(error.contains("70 MiB"), "{error}");
    let absent = bad(lode(&["import"]).arg(&disk).arg("other").arg(&file), 5);
    assert!(absent.contains("free"), "{absent}");
    let volumes = json(lode(&["volume", "list", "--json"]).arg(&disk));
    assert_eq!(volumes.as_array().unwrap().len(), 1, "a volume that was not there is not there");
}

#[test]
fn a_killed_import_leaves_the_old_content() {
    let scratch = Scratch::new();
    let disk = scratch.disk("512MiB");
    let (first, second, out) = (scratch.file("1", 64 << 20, 1), scratch.file("2", 64 << 20, 2), scratch.path("out"));
    good(lode(&["import"]).arg(&disk).arg("data").arg(&first));
    let second = std::fs::read(second).unwrap();
    for part in [0, 1 << 20, 30 << 20, (64 << 20) - 1] {
        let mut command = lode(&["import"]);
        command.arg(&disk).args(["data", "-"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut import = Process(command.spawn().unwrap());
        let mut pipe = import.0.stdin.take().unwrap();
        pipe.write_all(&second[..part]).unwrap();
        // The pipe is still open, so the import waits for more: killed at exactly this point.
        std::thread::sleep(Duration::from_millis(50));
        import.0.kill().unwrap();
        import.0.wait().unwrap();
        drop(pipe);
        good(lode(&["export", "--force"]).arg(&disk).arg("data").arg(&out));
        same(&first, &out);
    }
    sound(&disk);
}

#[test]
fn a_killed_import_into_nothing_can_be_repeated() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let (file, out) = (scratch.file("file", 16 << 20, 1), scratch.path("out"));
    let mut command = lode(&["import"]);
    command.arg(&disk).args(["data", "-"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut import = Process(command.spawn().unwrap());
    let mut pipe = import.0.stdin.take().unwrap();
    pipe.write_all(&std::fs::read(&file).unwrap()[..12 << 20]).unwrap();
    import.0.kill().unwrap();
    import.0.wait().unwrap();
    drop(pipe);
    good(lode(&["import"]).arg(&disk).arg("data").arg(&file));
    good(lode(&["export"]).arg(&disk).arg("data").arg(&out));
    same(&file, &out);
    sound(&disk);
}

#[test]
fn export_keeps_what_is_there_unless_forced() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let (file, out) = (scratch.file("file", 1 << 20, 1), scratch.path("out"));
    good(lode(&["import"]).arg(&disk).arg("data").arg(&file));
    std::fs::write(&out, "precious").unwrap();
    bad(lode(&["export"]).arg(&disk).arg("data").arg(&out), 7);
    assert_eq!(std::fs::read(&out).unwrap(), b"precious");
    good(lode(&["export", "--force"]).arg(&disk).arg("data").arg(&out));
    same(&file, &out);
    bad(lode(&["export", "--force"]).arg(&disk).arg("data").arg(&disk), 2);
    bad(lode(&["export"]).arg(&disk).arg("other").arg(scratch.path("other")), 3);
    bad(lode(&["export"]).arg(&disk).arg("data").arg(scratch.path("no/such/directory")), 3);
    let left: Vec<_> = std::fs::read_dir(scratch.path(".")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("partial")), "{left:?}");
}

#[test]
fn a_full_target_is_an_error() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let file = scratch.file("file", 1 << 20, 1);
    good(lode(&["import"]).arg(&disk).arg("data").arg(&file));
    bad(lode(&["export"]).arg(&disk).arg("data").arg("/dev/full"), 5);
}
