//! Many requests in flight, against a naive model: what is read is what was written, whatever the order of the replies.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lode_nbd::{
    Limits,
    memory::MemoryExports,
    request::{Cookie, Request, encode_request},
    wire::{command_flags, commands},
};

use crate::support::{Client, House, Reply, Script};

/// A small generator: a failure prints its seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    pub fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[5]
    }
}

/// Each request in flight has a place of its own, so that the model needs no order among them.
const PLACE: u64 = 1 << 20;

struct Sent {
    read: Option<(u64, usize)>,
}

fn round(client: &mut Client, random: &mut Random, model: &mut [u8], requests: u64, structured: bool) {
    let mut out = Vec::new();
    let mut sent = BTreeMap::new();
    let mut expected = BTreeMap::new();
    for place in 0..requests {
        let bytes = match random.below(20) {
            0 => random.below(PLACE - 1) + 1,
            1..4 => random.below(100_000) + 1,
            _ => random.below(8192) + 1,
        };
        let offset = place * PLACE + random.below(PLACE - bytes + 1);
        let length = u32::try_from(bytes).expect("below 1 MiB");
        let (from, count) = (usize::try_from(offset).expect("small"), usize::try_from(bytes).expect("small"));
        let cookie = random.next();
        let fua = if random.below(4) == 0 { command_flags::FUA } else { 0 };
        let mut request = Request { flags: fua, command: commands::WRITE, cookie: Cookie(cookie), offset, length };
        let area = &mut model[from..from + count];
        let mut payload = Vec::new();
        let mut read = None;
        match random.below(10) {
            0..4 => {
                payload = (0..count).map(|_| random.byte()).collect();
                area.copy_from_slice(&payload);
            }
            4 => {
                request.command = commands::WRITE_ZEROES;
                area.fill(0);
            }
            5 => {
                request.command = commands::FLUSH;
                (request.offset, request.length) = (0, 0);
            }
            _ => {
                request.command = commands::READ;
                read = Some((offset, count));
                expected.insert(cookie, area.to_vec());
            }
        }
        out.extend_from_slice(&encode_request(&request));
        out.extend_from_slice(&payload);
        sent.insert(cookie, Sent { read });
    }
    // What is sent and what is replied can both be more than the sockets hold.
    let mut writer = client.stream.try_clone().expect("a descriptor is free");
    std::thread::scope(|scope| {
        scope.spawn(move || std::io::Write::write_all(&mut writer, &out).expect("the server takes it"));
        while !sent.is_empty() {
            receive(client, &mut sent, &expected, structured);
        }
    });
}

fn receive(client: &mut Client, sent: &mut BTreeMap<u64, Sent>, expected: &BTreeMap<u64, Vec<u8>>, structured: bool) {
    match client.reply() {
        Reply::Simple { cookie, error } => {
            assert_eq!(error, 0);
            let request = sent.remove(&cookie).expect("each request is answered once");
            if let Some((_, count)) = request.read {
                assert!(!structured, "a read needs a structured reply");
                let data = client.take_vec(u32::try_from(count).expect("small"));
                assert!(data == expected[&cookie], "wrong data");
            }
        }
        Reply::Chunk { cookie, kind, content } => {
            let (offset, count) = sent.remove(&cookie).and_then(|request| request.read).expect("a read, once");
            assert_eq!(content[..8], offset.to_be_bytes());
            match kind {
                1 => assert!(content[8..] == expected[&cookie], "wrong data"),
                2 => assert!(expected[&cookie].iter().all(|&byte| byte == 0) && count >= 512),
                other => panic!("unexpected chunk {other}"),
            }
        }
    }
}

fn run(house: &House, structured: bool, seed: u64, requests_max: u64) {
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let mut client = house.client(structured);
    let mut model = vec![0; usize::try_from(requests_max * PLACE).expect("small")];
    for _ in 0..60 {
        let requests = if random.below(3) == 0 { 1 } else { random.below(requests_max) + 1 };
        round(&mut client, &mut random, &mut model, requests, structured);
    }
}

#[test]
fn batches_are_right() {
    for seed in 0..4 {
        run(&House::memory(48 * PLACE), seed % 2 == 0, seed, 48);
    }
}

#[test]
fn shared_reads_are_right() {
    for seed in 0..2 {
        let script = Script::build(48 * PLACE, 4);
        let exports = MemoryExports::default().and("disk", Arc::new(script));
        run(&House::new(exports, Limits::default()), seed % 2 == 0, seed, 48);
    }
}

#[test]
fn small_buffers_are_right() {
    let mut limits = Limits::default();
    limits.buffer_bytes = 4096;
    limits.requests = 2;
    limits.workers = 1;
    for seed in 0..2 {
        let house = House::new(MemoryExports::with("disk", 16 * PLACE), limits.clone());
        run(&house, seed % 2 == 0, seed, 16);
    }
}

#[test]
fn reads_that_sleep_run_at_once() {
    let script = Arc::new(Script::build(1 << 20, 4));
    let house = House::scripted(&script);
    *script.delay.lock() = Duration::from_millis(20);
    let mut client = house.client(true);
    let read = |cookie| Request { flags: 0, command: commands::READ, cookie: Cookie(cookie), offset: 0, length: 4096 };
    let bytes: Vec<u8> = (0..16).flat_map(|cookie| encode_request(&read(cookie))).collect();
    client.send(&bytes);
    for _ in 0..16 {
        client.reply();
    }
    let most = script.inside_max.load(std::sync::atomic::Ordering::SeqCst);
    assert!((2..=4).contains(&most), "{most} reads at once");
}
