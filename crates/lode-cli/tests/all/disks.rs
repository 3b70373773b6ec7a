//! Making disks and volumes, and looking at them.

use crate::support::{Scratch, bad, good, json, lode, run, sound};

#[test]
fn a_new_disk_is_empty_and_sound() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let info = json(lode(&["info", "--json"]).arg(&disk));
    assert_eq!(info["image"], 256 << 20);
    assert_eq!(info["live"], 0);
    assert_eq!(info["volumes"], 0);
    let (usable, free) = (info["usable"].as_u64().unwrap(), info["free"].as_u64().unwrap());
    assert!(usable > 128 << 20 && usable < 256 << 20 && free <= usable, "{info}");
    assert_eq!(info["disk_id"].as_str().unwrap().len(), 32);
    assert_eq!(json(lode(&["volume", "list", "--json"]).arg(&disk)), serde_json::json!([]));
    sound(&disk);
    assert!(good(lode(&["info"]).arg(&disk)).contains("usable"));
}

#[test]
fn two_disks_have_two_ids() {
    let scratch = Scratch::new();
    let ids: Vec<_> = ["a", "b"]
        .map(|name| {
            let disk = scratch.path(name);
            good(lode(&["create", "--size", "256MiB"]).arg(&disk));
            json(lode(&["info", "--json"]).arg(&disk))["disk_id"].clone()
        })
        .into();
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn volumes_come_and_go_and_change_size() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let create = |name: &str, more: &[&str]| good(lode(&["volume", "create"]).arg(&disk).arg(name).args(more));
    create("data", &["--size", "4GiB"]);
    create("small", &["--size", "1MiB", "--block-size", "512", "--compress", "lz4"]);
    good(lode(&["volume", "resize"]).arg(&disk).args(["data", "--size", "8GiB"]));
    let volumes = json(lode(&["volume", "list", "--json"]).arg(&disk));
    let find = |name: &str| volumes.as_array().unwrap().iter().find(|volume| volume["name"] == name).cloned().unwrap();
    assert_eq!(find("data")["bytes"], 8_u64 << 30);
    assert_eq!(find("data")["block_bytes"], 4096);
    assert_eq!(find("data")["compression"], "none");
    assert_eq!(find("small")["block_bytes"], 512);
    assert_eq!(find("small")["compression"], "lz4");
    good(lode(&["volume", "delete"]).arg(&disk).arg("data"));
    let volumes = json(lode(&["volume", "list", "--json"]).arg(&disk));
    assert_eq!(volumes.as_array().unwrap().len(), 1);
    sound(&disk);
}

#[test]
fn volumes_that_exist_or_do_not_are_told_apart() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let create = ["data", "--size", "1MiB"];
    good(lode(&["volume", "create"]).arg(&disk).args(create));
    bad(lode(&["volume", "create"]).arg(&disk).args(create), 7);
    bad(lode(&["volume", "delete"]).arg(&disk).arg("other"), 3);
    bad(lode(&["volume", "resize"]).arg(&disk).args(["other", "--size", "1MiB"]), 3);
}

#[test]
fn a_disk_grows_and_keeps_what_it_has() {
    let scratch = Scratch::new();
    let disk = scratch.disk("64MiB");
    let file = scratch.file("file", 30 << 20, 1);
    good(lode(&["import"]).arg(&disk).arg("data").arg(&file));
    bad(lode(&["import"]).arg(&disk).arg("more").arg(&file), 5);
    let grown = json(lode(&["grow", "--json"]).arg(&disk).arg("200MiB"));
    assert_eq!((&grown["before"], &grown["image"]), (&(64 << 20).into(), &(200 << 20).into()));
    assert!(grown["usable"].as_u64().unwrap() > 100 << 20, "{grown}");
    good(lode(&["import"]).arg(&disk).arg("more").arg(&file));
    assert_eq!(json(lode(&["info", "--json"]).arg(&disk))["image"], 200 << 20);
    assert!(good(lode(&["grow"]).arg(&disk)).contains("as before"));
    // A file that has become longer by other means.
    std::fs::File::options().write(true).open(&disk).unwrap().set_len(210 << 20).unwrap();
    sound(&disk);
    assert!(good(lode(&["grow"]).arg(&disk)).contains("210 MiB instead of 200 MiB"));
    for volume in ["data", "more"] {
        let out = scratch.path(volume);
        good(lode(&["export"]).arg(&disk).arg(volume).arg(&out));
        crate::support::same(&file, &out);
    }
    sound(&disk);
    for senseless in ["100MiB", "0", "15000000TiB", "1TiB"] {
        bad(lode(&["grow"]).arg(&disk).arg(senseless), 2);
    }
    assert_eq!(disk.metadata().unwrap().len(), 210 << 20, "what is refused changes nothing");
    bad(lode(&["grow"]).arg(scratch.path("none")).arg("1GiB"), 3);
    bad(lode(&["grow"]).arg(&file).arg("1GiB"), 8);
    sound(&disk);
}

#[test]
fn a_target_that_is_not_empty_is_refused_without_force() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    good(lode(&["volume", "create"]).arg(&disk).args(["data", "--size", "1MiB"]));
    bad(lode(&["create", "--size", "256MiB"]).arg(&disk), 7);
    assert_eq!(json(lode(&["info", "--json"]).arg(&disk))["volumes"], 1, "nothing is changed");
    good(lode(&["create", "--size", "256MiB", "--force"]).arg(&disk));
    assert_eq!(json(lode(&["info", "--json"]).arg(&disk))["volumes"], 0);
    let other = scratch.path("other");
    std::fs::write(&other, "precious").unwrap();
    bad(lode(&["create", "--size", "256MiB"]).arg(&other), 7);
    assert_eq!(std::fs::read(&other).unwrap(), b"precious");
}

#[test]
fn looking_never_writes() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let file = scratch.file("file", 1 << 20, 1);
    good(lode(&["import"]).arg(&disk).arg("data").arg(&file));
    let before = std::fs::read(&disk).unwrap();
    for command in ["info", "check", "scrub", "inspect"] {
        good(lode(&[command]).arg(&disk));
        good(lode(&[command, "--json"]).arg(&disk));
    }
    for what in ["segments", "batches", "records", "lists"] {
        good(lode(&["inspect"]).arg(&disk).arg(what));
    }
    good(lode(&["volume", "list"]).arg(&disk));
    good(lode(&["export"]).arg(&disk).arg("data").arg(scratch.path("out")));
    assert!(before == std::fs::read(&disk).unwrap(), "the image has changed");
}

#[test]
fn a_sound_disk_is_repaired_by_doing_nothing() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    assert!(good(lode(&["repair"]).arg(&disk)).contains("sound"));
    sound(&disk);
}

#[test]
fn help_tells_exit_codes_and_examples() {
    let help = good(&mut lode(&["--help"]));
    for word in ["Exit codes:", "Examples:", "busy", "1.5GiB"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    let commands =
        ["create", "info", "check", "scrub", "repair", "inspect", "import", "export", "serve", "bench", "volume"];
    for command in commands {
        assert!(good(&mut lode(&[command, "--help"])).contains("Examples:"), "{command}");
    }
    assert_eq!(run(&mut lode(&[])).status.code(), Some(2));
}

#[test]
fn names_cannot_speak_to_the_terminal() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    let name = "a\u{1b}[2Jb\u{202e}";
    let created = run(lode(&["volume", "create"]).arg(&disk).args([name, "--size", "1MiB"]));
    // Whether such a name is taken is the engine's rule; what is printed never has the characters.
    for output in
        [created, run(lode(&["volume", "list"]).arg(&disk)), run(lode(&["export"]).arg(&disk).args([name, "-"]))]
    {
        for bytes in [output.stdout, output.stderr] {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text:?}");
        }
    }
}
