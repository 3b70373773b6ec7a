//! Kill -9 under load: what was acknowledged is there.

use crate::client::Client;
use crate::support::{Process, Random, Scratch, Serving, bad, good, lode, same, sound, tool, wait};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Each request of the load writes this much, all of it with one stamp.
const PIECE: usize = 16384;
const THREADS: u64 = 4;
/// Pieces that each thread writes to.
const PIECES: u64 = 256;

/// What one thread knows of one piece: the last stamp acknowledged, and the last one sent.
#[derive(Clone, Copy, Default)]
struct Known {
    acknowledged: u64,
    sent: u64,
}

fn stamped(piece: u64, stamp: u64) -> Vec<u8> {
    if stamp == 0 {
        return vec![0; PIECE];
    }
    let mut random = Random(piece << 32 | stamp);
    (0..PIECE / 8).flat_map(|_| random.draw().to_le_bytes()).collect()
}

/// Writes until the connection ends.
fn load(socket: &Path, first: u64, seed: u64, known: &mut [Known]) -> u64 {
    let Ok(mut client) = Client::connect(socket, "data") else { return 0 };
    let mut random = Random(seed);
    let mut writes = 0;
    loop {
        let piece = random.draw() % PIECES;
        let at = &mut known[piece as usize];
        at.sent += 1;
        let (fua, flush) = (random.draw().is_multiple_of(8), random.draw().is_multiple_of(16));
        let data = stamped(first + piece, at.sent);
        if client.write((first + piece) * PIECE as u64, &data, fua).is_err() {
            return writes;
        }
        at.acknowledged = at.sent;
        writes += 1;
        if flush && client.flush().is_err() {
            return writes;
        }
    }
}

/// Each piece has a stamp that was sent, no older than the last acknowledged, and is of one write only.
fn verify(socket: &Path, first: u64, known: &mut [Known]) {
    let mut client = Client::connect(socket, "data").unwrap();
    for (piece, at) in (first..).zip(known) {
        let found = client.read(piece * PIECE as u64, PIECE).unwrap();
        let stamp = (at.acknowledged..=at.sent).find(|stamp| found == stamped(piece, *stamp));
        let stamp = stamp.unwrap_or_else(|| {
            panic!("piece {piece}: expected stamp {} to {}, found neither, nor a whole one", at.acknowledged, at.sent)
        });
        *at = Known { acknowledged: stamp, sent: stamp };
    }
}

#[test]
fn every_acknowledged_write_survives_kill_9() {
    let scratch = Scratch::new();
    let (disk, socket) = (scratch.disk("512MiB"), scratch.socket());
    good(lode(&["volume", "create"]).arg(&disk).args(["data", "--size", "16MiB"]));
    let mut known = vec![Known::default(); (THREADS * PIECES) as usize];
    let mut writes = 0;
    for round in 0..6 {
        let serving = Serving::start(&disk, &socket.0, &[]);
        std::thread::scope(|scope| {
            let loads: Vec<_> = known
                .chunks_mut(PIECES as usize)
                .zip(0..)
                .map(|(known, thread)| {
                    let socket = &socket.0;
                    scope.spawn(move || load(socket, thread * PIECES, round * 100 + thread + 1, known))
                })
                .collect();
            std::thread::sleep(Duration::from_millis(200 + round * 150));
            serving.kill();
            writes += loads.into_iter().map(|load| load.join().unwrap()).sum::<u64>();
        });
        let serving = Serving::start(&disk, &socket.0, &[]);
        for (known, thread) in known.chunks_mut(PIECES as usize).zip(0..) {
            verify(&socket.0, thread * PIECES, known);
        }
        // Every other time the disk is closed cleanly in between.
        if round % 2 == 0 { serving.stop() } else { serving.kill() }
    }
    assert!(writes > 200, "expected a load, found {writes} writes");
    sound(&disk);
}

#[test]
fn qemu_reconnects_and_finds_all_that_was_acknowledged() {
    const WRITES: usize = 600;
    const BYTES: usize = 65536;
    let scratch = Scratch::new();
    let (disk, socket) = (scratch.disk("512MiB"), scratch.socket());
    good(lode(&["volume", "create"]).arg(&disk).args(["data", "--size", "16MiB"]));
    let mut serving = Serving::start(&disk, &socket.0, &[]);
    let options =
        format!("driver=nbd,server.type=unix,server.path={},export=data,reconnect-delay=60", socket.0.display());
    let mut command = tool("qemu-io", "qemu-utils");
    command.args(["--image-opts", &options]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut qemu = Process(command.spawn().unwrap());
    let (mut stdin, stdout) = (qemu.0.stdin.take().unwrap(), qemu.0.stdout.take().unwrap());
    let mut expected = vec![0; 16 << 20];
    let mut random = Random(11);
    let mut script = String::new();
    for write in 0..WRITES {
        let (at, pattern) = (random.draw() as usize % (expected.len() / BYTES) * BYTES, write % 255 + 1);
        script.push_str(&format!("write -P {pattern} {at} {BYTES}\n"));
        expected[at..at + BYTES].fill(pattern as u8);
    }
    script.push_str("quit\n");
    let writer = std::thread::spawn(move || stdin.write_all(script.as_bytes()));
    let mut acknowledged = 0;
    let start = Instant::now();
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        assert!(!line.contains("failed") && start.elapsed() < Duration::from_secs(90), "{acknowledged}: {line}");
        if !line.contains(&format!("wrote {BYTES}/{BYTES} bytes")) {
            continue;
        }
        acknowledged += 1;
        if [100, 250, 400].contains(&acknowledged) {
            serving.kill();
            serving = Serving::start(&disk, &socket.0, &[]);
        }
    }
    writer.join().unwrap().unwrap();
    assert!(wait(&mut qemu.0, Duration::from_secs(30)).unwrap().success());
    assert_eq!(acknowledged, WRITES, "qemu-io heard of every write");
    serving.kill();
    let (out, wanted) = (scratch.path("out"), scratch.path("wanted"));
    std::fs::write(&wanted, expected).unwrap();
    good(lode(&["export"]).arg(&disk).arg("data").arg(&out));
    same(&wanted, &out);
    sound(&disk);
}

#[test]
fn a_stale_socket_does_not_hinder_the_next_server() {
    let scratch = Scratch::new();
    let (disk, socket) = (scratch.disk("256MiB"), scratch.socket());
    Serving::start(&disk, &socket.0, &[]).kill();
    assert!(socket.0.exists(), "kill -9 leaves the socket");
    let serving = Serving::start(&disk, &socket.0, &[]);
    // A socket that somebody listens on is not taken away from him.
    let other = scratch.path("other.lode");
    good(lode(&["create", "--size", "256MiB"]).arg(&other));
    bad(lode(&["serve"]).arg(&other).arg("--socket").arg(&socket.0), 4);
    // And what is not a socket is not removed.
    let file = scratch.path("file");
    std::fs::write(&file, "precious").unwrap();
    bad(lode(&["serve"]).arg(&other).arg("--socket").arg(&file), 7);
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    serving.stop();
    assert!(!socket.0.exists(), "a clean end removes it");
}
