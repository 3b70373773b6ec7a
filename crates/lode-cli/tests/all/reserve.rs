//! Space that a server holds: nobody else gets it, whoever draws on it does, and it ends with the server.

use crate::client::Client;
use crate::support::{Process, Scratch, Serving, bad, good, json, lode, same, sound, wait};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;

/// `lode WORDS DISK MORE`.
fn on(disk: &Path, words: &[&str], more: &[&str]) -> Command {
    let mut command = lode(words);
    command.arg(disk).args(more);
    command
}

fn reserve(disk: &Path, name: &str, size: &str) -> Command {
    on(disk, &["reserve", "create"], &[name, "--size", size])
}

fn info(disk: &Path, what: &str) -> u64 {
    json(&mut on(disk, &["info"], &["--json"]))[what].as_u64().unwrap()
}

/// What is left of each, by name.
fn left(disk: &Path) -> Vec<(String, u64)> {
    let listed = json(&mut on(disk, &["reserve", "list"], &["--json"]));
    let one = |one: &serde_json::Value| (one["name"].as_str().unwrap().into(), one["left_bytes"].as_u64().unwrap());
    listed.as_array().unwrap().iter().map(one).collect()
}

/// A disk that is served, and a volume of 64 MiB in it.
fn served(scratch: &Scratch, socket: &Path) -> (PathBuf, Serving) {
    let disk = scratch.disk("128MiB");
    good(&mut on(&disk, &["volume", "create"], &["data", "--size", "64MiB"]));
    let serving = Serving::start(&disk, socket, &[]);
    (disk, serving)
}

/// Reserves all but about this much of what is free.
fn all_but(disk: &Path, name: &str, spare: u64) {
    let blocks = (info(disk, "free") - spare) / (4096 + 128);
    good(&mut reserve(disk, name, &(blocks * 4096).to_string()));
}

/// Bytes without zeros in them, so that all of them take space.
fn noise(scratch: &Scratch, name: &str, bytes: u64) -> PathBuf {
    let path = scratch.path(name);
    let block = |n: u64| (n + 1).to_le_bytes().repeat(512);
    std::fs::write(&path, (0..bytes / 4096).flat_map(block).collect::<Vec<u8>>()).unwrap();
    path
}

fn import(disk: &Path, volume: &str, file: &Path, more: &[&str]) -> Command {
    let mut command = on(disk, &["import"], &[volume]);
    command.arg(file).args(more);
    command
}

#[test]
fn what_one_client_reserves_is_full_to_others_until_it_is_cancelled() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let (disk, serving) = served(&scratch, &socket.0);
    let (file, free) = (noise(&scratch, "file", 16 * MIB), info(&disk, "free"));
    assert_eq!(info(&disk, "reserved"), 0);
    good(&mut reserve(&disk, "small", "1"));
    all_but(&disk, "large", 4 * MIB);
    let listed = json(&mut on(&disk, &["reserve", "list"], &["--json"]));
    let of = |n: usize, what: &str| listed[n][what].as_u64().unwrap();
    assert_eq!((&listed[0]["name"], &listed[1]["name"]), (&"large".into(), &"small".into()));
    assert_eq!([of(1, "bytes"), of(1, "left_bytes"), of(1, "block_bytes")], [4096; 3], "whole blocks");
    assert_eq!(of(0, "held_bytes") + of(1, "held_bytes"), info(&disk, "reserved"));
    assert_eq!(info(&disk, "free") + info(&disk, "reserved"), free);
    let table = good(&mut on(&disk, &["reserve", "list"], &[]));
    let rows: Vec<String> = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!((&rows[0][..], &rows[2][..]), ("NAME SIZE LEFT HOLDS BLOCK", "small 4 KiB 4 KiB 4.1 KiB 4 KiB"));
    // All kinds of clients: a command, one by NBD, one who reserves.
    let words = bad(&mut import(&disk, "data", &file, &[]), 5);
    assert!(words.contains("expected 16 MiB free"), "{words}");
    let mut piped = on(&disk, &["import"], &["data", "-"]);
    let mut child = Process(piped.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let _ = child.0.stdin.take().unwrap().write_all(&std::fs::read(&file).unwrap());
    assert_eq!(wait(&mut child.0, SOON).unwrap().code(), Some(5));
    let mut client = Client::connect(&socket.0, "data").unwrap();
    let piece = [7; 1 << 20];
    let written = (0..16).take_while(|n| client.write(n * MIB, &piece, false).is_ok()).count();
    assert!((1..=4).contains(&written), "{written}");
    let words = bad(&mut reserve(&disk, "more", "8MiB"), 5);
    assert!(words.contains("the disk is full"), "{words}");
    assert_eq!(left(&disk).len(), 2);
    good(&mut on(&disk, &["reserve", "cancel"], &["large"]));
    assert_eq!(left(&disk), [("small".into(), 4096)]);
    good(&mut import(&disk, "data", &file, &[]));
    assert!(client.read(15 * MIB, 8).unwrap() == (15 * 256_u64 + 1).to_le_bytes());
    good(&mut on(&disk, &["reserve", "cancel"], &["small"]));
    assert_eq!(info(&disk, "reserved"), 0);
    serving.stop();
    sound(&disk);
}

#[test]
fn an_import_draws_on_a_reservation_however_full_the_disk_is() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let (disk, serving) = served(&scratch, &socket.0);
    let (file, other) = (noise(&scratch, "file", 8 * MIB), noise(&scratch, "other", 5 * MIB + 4096));
    good(&mut reserve(&disk, "job", "12MiB"));
    all_but(&disk, "rest", 0);
    bad(&mut import(&disk, "data", &file, &[]), 5);
    assert_eq!(left(&disk)[0], ("job".into(), 12 * MIB), "who did not name it did not draw on it");
    good(&mut import(&disk, "data", &file, &["--reservation", "job"]));
    assert_eq!(left(&disk)[0], ("job".into(), 4 * MIB));
    // What is left of it is too little, and then there is nothing else.
    let words = bad(&mut import(&disk, "data", &other, &["--reservation", "job"]), 5);
    assert!(words.contains("free or reserved") && words.contains("as it was"), "{words}");
    assert_eq!(left(&disk)[0], ("job".into(), 4 * MIB), "it was not begun");
    // It lasts as long as it does; the rest is asked for as by everybody.
    good(&mut on(&disk, &["reserve", "cancel"], &["rest"]));
    good(&mut import(&disk, "data", &other, &["--reservation", "job"]));
    assert_eq!(left(&disk), [("job".into(), 0)]);
    let out = scratch.path("out");
    good(on(&disk, &["export"], &["data"]).arg(&out));
    let mut expected = std::fs::read(&other).unwrap();
    expected.resize(64 << 20, 0);
    std::fs::write(&other, expected).unwrap();
    same(&other, &out);
    // Others while it runs: cancelled under its hands, it goes on as everybody does; killed, it leaves nothing reserved.
    let begin = || {
        good(&mut reserve(&disk, "next", "4MiB"));
        let mut command = on(&disk, &["import"], &["data", "-", "--reservation", "next"]);
        let mut child = Process(command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        child.0.stdin.as_mut().unwrap().write_all(&[1; 1_500_000]).unwrap();
        let start = Instant::now();
        while left(&disk)[1].1 == 4 * MIB {
            assert!(start.elapsed() < SOON, "expected it to draw");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(left(&disk)[1].1, 3 * MIB);
        good(&mut on(&disk, &["reserve", "cancel"], &["next"]));
        assert!(info(&disk, "reserved") >= MIB, "what was drawn is the unit's");
        child
    };
    let mut child = begin();
    let mut pipe = child.0.stdin.take().unwrap();
    pipe.write_all(&[2; 1_500_000]).unwrap();
    drop(pipe);
    assert!(wait(&mut child.0, SOON).unwrap().success());
    let mut child = begin();
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    let start = Instant::now();
    while info(&disk, "reserved") > 0 {
        assert!(start.elapsed() < SOON, "expected the unit to end");
        std::thread::sleep(Duration::from_millis(20));
    }
    serving.stop();
    sound(&disk);
}

#[test]
fn a_reservation_is_for_blocks_of_one_size() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let (disk, serving) = served(&scratch, &socket.0);
    good(&mut on(&disk, &["volume", "create"], &["logs", "--size", "8MiB", "--block-size", "8KiB"]));
    let file = noise(&scratch, "file", 3 * MIB + 4096);
    good(&mut reserve(&disk, "small", "4MiB"));
    good(reserve(&disk, "large", "4MiB").args(["--block-size", "8KiB"]));
    let words = bad(&mut import(&disk, "logs", &file, &["--reservation", "small"]), 2);
    assert!(words.contains("blocks of 8 KiB, as the volume has, found one for blocks of 4 KiB"), "{words}");
    good(&mut import(&disk, "logs", &file, &["--reservation", "large"]));
    assert_eq!(left(&disk), [("large".into(), MIB - 8192), ("small".into(), 4 * MIB)], "whole blocks of 8 KiB");
    let words = bad(&mut import(&disk, "new", &file, &["--reservation", "absent"]), 3);
    assert!(words.contains("no reservation absent"), "{words}");
    bad(&mut import(&disk, "new", &file, &["--reservation", "large"]), 2);
    assert_eq!(json(&mut on(&disk, &["volume", "list"], &["--json"])).as_array().map(Vec::len), Some(2));
    serving.stop();
    sound(&disk);
}

#[test]
fn the_end_of_the_server_forgets_what_it_held() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let (disk, serving) = served(&scratch, &socket.0);
    let ends: [fn(Serving); 2] = [Serving::stop, Serving::kill];
    let mut serving = Some(serving);
    for end in ends {
        all_but(&disk, "job", MIB);
        bad(&mut reserve(&disk, "more", "8MiB"), 5);
        end(serving.take().unwrap());
        assert_eq!(info(&disk, "reserved"), 0);
        serving = Some(Serving::start(&disk, &socket.0, &[]));
        assert_eq!(good(&mut on(&disk, &["reserve", "list"], &[])).trim(), "no reservations");
        assert_eq!(json(&mut on(&disk, &["reserve", "list"], &["--json"])), serde_json::json!([]));
        assert_eq!(info(&disk, "reserved"), 0);
        bad(&mut on(&disk, &["reserve", "cancel"], &["job"]), 3);
    }
    serving.take().unwrap().stop();
    sound(&disk);
}

#[test]
fn without_a_server_nothing_is_reserved_and_it_says_why() {
    let scratch = Scratch::new();
    let disk = scratch.disk("128MiB");
    let file = scratch.file("file", 8192, 1);
    let commands = [
        reserve(&disk, "job", "1MiB"),
        on(&disk, &["reserve", "list"], &[]),
        on(&disk, &["reserve", "list"], &["--json"]),
        on(&disk, &["reserve", "cancel"], &["job"]),
        import(&disk, "data", &file, &["--reservation", "job"]),
    ];
    for mut command in commands {
        let words = bad(&mut command, 2);
        let said = ["disk.lode: nobody serves it", "nobody could hold", "`lode serve`"];
        assert!(said.iter().all(|said| words.contains(said)), "{words}");
    }
    assert_eq!(json(&mut on(&disk, &["volume", "list"], &["--json"])), serde_json::json!([]));
    bad(&mut reserve(&scratch.path("absent"), "job", "1MiB"), 3);
    bad(&mut reserve(&file, "job", "1MiB"), 8);
    // One that is served, and whose server takes no commands.
    let socket = scratch.socket();
    std::fs::write(scratch.path("disk.lode.control"), "precious").unwrap();
    let serving = Serving::start(&disk, &socket.0, &[]);
    let words = bad(&mut reserve(&disk, "job", "1MiB"), 4);
    assert!(words.contains(&format!("process {} (lode)", serving.id())), "{words}");
    serving.stop();
}

#[test]
fn senseless_reservations_are_refused() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let (disk, serving) = served(&scratch, &socket.0);
    let refused = |command: &mut Command, code: i32, expected: &str| {
        let words = bad(command, code);
        assert!(words.contains(expected), "{words}");
    };
    refused(&mut reserve(&disk, "", "1MiB"), 2, "1 to 255 bytes");
    refused(&mut reserve(&disk, &"n".repeat(256), "1MiB"), 2, "1 to 255 bytes");
    refused(&mut reserve(&disk, "a\u{1b}[2J", "1MiB"), 2, "control character");
    refused(&mut reserve(&disk, "huge", "18446744073709551615"), 5, "the disk is full");
    refused(&mut on(&disk, &["reserve", "cancel"], &["absent"]), 3, "no reservation absent is held");
    for more in [&["--size", "0"][..], &["--size", "1MiB", "--block-size", "100"], &["--size", "much"]] {
        let output = on(&disk, &["reserve", "create"], &[&["job"], more].concat()).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && words.contains("expected a"), "{words}");
    }
    // Of many who want one name, one gets it.
    let many: Vec<_> = (0..8)
        .map(|_| Process(reserve(&disk, "job", "1MiB").stderr(Stdio::null()).spawn().unwrap()))
        .map(|mut child| move || wait(&mut child.0, SOON).unwrap().code().unwrap())
        .collect();
    let mut codes: Vec<i32> = many.into_iter().map(|mut wait| wait()).collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 7, 7, 7, 7, 7, 7, 7]);
    refused(&mut reserve(&disk, "job", "1MiB"), 7, "a reservation job is held already, with 1 MiB left");
    assert_eq!(left(&disk), [("job".into(), MIB)]);
    serving.stop();
    let serving = Serving::start(&disk, &socket.0, &["--read-only"]);
    refused(&mut reserve(&disk, "job", "1MiB"), 9, "for reading only");
    serving.stop();
    sound(&disk);
}
