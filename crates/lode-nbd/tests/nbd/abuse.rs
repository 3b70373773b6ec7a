//! Hostile, slow and broken peers: each may end its own connection, and nothing else (N5, N6). Every fault that other
//! servers had is named where it is tried.

use std::{
    io::Write,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use lode_nbd::{
    Export, Limits, ProtocolError,
    memory::MemoryExports,
    request::{Cookie, Request, encode_request},
    wire::{Errno, OptionReply, command_flags, commands, info, options},
};

use crate::support::{Client, House, Script, context_data, info_data, option_bytes};

fn with(change: impl FnOnce(&mut Limits)) -> House {
    let mut limits = Limits::default();
    change(&mut limits);
    House::new(MemoryExports::with("disk", 64 << 20), limits)
}

#[test]
fn half_open_connections_do_not_keep_others_out() {
    let house = with(|limits| {
        limits.handshakes_pending = 8;
        limits.handshake_grace = Duration::from_millis(20);
    });
    let mut held: Vec<Client> = (0..100).map(|_| house.connect()).collect();
    house.assert_serves();
    house.until("all but the youngest are evicted", |stats| stats.handshakes_pending <= 8 && stats.evicted > 80);
    assert!(held[0].is_closed());
}

#[test]
fn connections_beyond_the_limit_are_closed() {
    let house = with(|limits| limits.connections = 3);
    let mut held: Vec<Client> = (0..3).map(|_| house.client(true)).collect();
    assert!(house.connect().is_closed());
    held.pop();
    house.until("one left", |stats| stats.connections == 2);
    house.assert_serves();
    assert!(house.stats().refused >= 1);
}

#[test]
fn a_handshake_has_one_deadline_however_busy_it_is() {
    let house = with(|limits| limits.handshake_time = Duration::from_millis(400));
    let mut silent = house.connect();
    // One byte at a time, each in time, all together not. (CVE-2024-7409 and CVE-2017-7539: handshakes that hang.)
    let mut slow = house.connect();
    let started = Instant::now();
    for byte in option_bytes(options::LIST, &[]).iter().cycle() {
        if slow.stream.write_all(&[*byte]).is_err() {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(5), "a slow handshake lives on");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(silent.is_closed());
    house.until("both were ended", |stats| stats.connections == 0 && stats.timeouts + stats.protocol_errors >= 2);
    // A chosen export has no such deadline.
    let mut chosen = house.client(true);
    thread::sleep(Duration::from_millis(900));
    assert_eq!(chosen.read(0, 1), Ok(vec![0]));
}

#[test]
fn huge_options_are_refused() {
    let house = with(|_| {});
    // CVE-2017-15119: a client made the server read 4 GB. CVE-2022-26495: length 0xffffffff + 1 overflowed.
    for code in [options::EXPORT_NAME, options::GO, options::INFO, options::LIST, options::STARTTLS, 12345] {
        let mut client = house.connect();
        client.greet();
        let mut bytes = option_bytes(code, &[]);
        bytes[12..].copy_from_slice(&u32::MAX.to_be_bytes());
        client.send(&bytes);
        assert!(client.is_closed());
    }
    let last = house.server.as_ref().and_then(|server| server.last_protocol_error());
    assert_eq!(last, Some(ProtocolError::OptionLength(u32::MAX)));
    // Too long, but not absurd: refused, and the handshake goes on.
    let mut client = house.connect();
    client.greet();
    assert_eq!(client.option(options::GO, &vec![0; 100_000]).1, OptionReply::ErrTooBig.code());
    client.go("disk");
    assert!(house.stats().budget_bytes_used_max < 1 << 20);
}

#[test]
fn long_names_are_refused_or_unknown() {
    let house = with(|_| {});
    let mut client = house.connect();
    client.greet();
    client.agree_on_structured();
    // CVE-2017-15118: a name of more than 256 bytes overflowed the stack. CVE-2020-10761: one of the longest length,
    // echoed in an error, tripped an assertion. CVE-2022-26496: INFO and GO overflowed the stack.
    for (length, expected) in [
        (257, OptionReply::ErrUnknown),
        (4096, OptionReply::ErrUnknown),
        (4097, OptionReply::ErrTooBig),
        (8000, OptionReply::ErrTooBig),
    ] {
        let name = "x".repeat(length);
        for code in [options::INFO, options::GO] {
            assert_eq!(client.option(code, &info_data(&name, &[info::NAME])).1, expected.code());
        }
    }
    for length in [5_u32, 1 << 16, u32::MAX - 6, u32::MAX] {
        let mut data = info_data("disk", &[]);
        data[..4].copy_from_slice(&length.to_be_bytes());
        assert_eq!(client.option(options::INFO, &data).1, OptionReply::ErrInvalid.code());
        assert_eq!(client.option(options::SET_META_CONTEXT, &data).1, OptionReply::ErrInvalid.code());
    }
    let many = vec!["base:allocation"; 400];
    assert_eq!(client.option(options::SET_META_CONTEXT, &context_data("disk", &many)).1, 1);
    client.go("disk");
}

#[test]
fn options_without_end_are_ended() {
    let house = with(|_| {});
    let mut client = house.connect();
    client.greet();
    for _ in 0..32 {
        assert_eq!(client.option(9999, b"what?").1, OptionReply::ErrUnsup.code());
    }
    assert!(client.is_closed());
    // All at once, without reading: the server must not gather the replies.
    let mut client = house.connect();
    client.greet();
    let storm: Vec<u8> = (0..10_000).flat_map(|_| option_bytes(options::LIST, &[])).collect();
    let _ = client.stream.write_all(&storm);
    assert!(client.is_closed());
    house.until("they left", |stats| stats.connections == 0);
    house.assert_serves();
}

#[test]
fn starttls_twice_changes_nothing() {
    // CVE-2021-3716, CVE-2019-14842: state from before TLS. There is no TLS: it is refused as often as it is asked for.
    let house = with(|_| {});
    let mut client = house.connect();
    client.greet();
    client.agree_on_structured();
    for data in [&b""[..], b"", b"\x16\x03\x01"] {
        assert_eq!(client.option(options::STARTTLS, data).1, OptionReply::ErrUnsup.code());
    }
    client.go("disk");
    assert_eq!(client.read(0, 1), Ok(vec![0]));
}

#[test]
fn leaving_at_each_byte_leaves_nothing_behind() {
    let house = with(|_| {});
    // CVE-2015-0847 and CVE-2017-9524: clients that leave early took the server with them.
    let mut script = 3_u32.to_be_bytes().to_vec();
    script.extend(option_bytes(options::STRUCTURED_REPLY, &[]));
    script.extend(option_bytes(options::SET_META_CONTEXT, &context_data("disk", &["base:allocation"])));
    script.extend(option_bytes(options::GO, &info_data("disk", &[info::NAME])));
    for (command, length) in [(commands::READ, 4096), (commands::WRITE, 64), (commands::FLUSH, 0)] {
        let request = Request { flags: 0, command, cookie: Cookie(1), offset: 0, length };
        script.extend_from_slice(&encode_request(&request));
        if command == commands::WRITE {
            script.extend_from_slice(&[7; 64]);
        }
    }
    for cut in 0..=script.len() {
        let mut client = house.connect();
        // The server may have hung up already.
        let _ = client.stream.write_all(&script[..cut]);
    }
    house.until("all left", |stats| stats.connections == 0);
    assert_eq!(house.stats().panics, 0);
    assert_eq!(house.stats().budget_bytes_used, 0);
    house.assert_serves();
}

#[test]
fn unknown_client_flags_end_the_connection() {
    let house = with(|_| {});
    for flags in [4_u32, 0x8000_0003, u32::MAX] {
        let mut client = house.connect();
        let _: [u8; 18] = client.take();
        client.send(&flags.to_be_bytes());
        assert!(client.is_closed());
    }
}

#[test]
fn unknown_commands_and_flags_are_refused_and_the_connection_goes_on() {
    let house = with(|_| {});
    let mut client = house.client(true);
    // CVE-2019-14851: commands in an order that tripped assertions, such as a status without a context.
    for command in [commands::BLOCK_STATUS, 8, 9, 77, u16::MAX] {
        assert_eq!(client.command(command, 0, 0, 0), Errno::Invalid.code());
        assert_eq!(client.command(command, u16::MAX, u64::MAX, u32::MAX), Errno::Invalid.code());
    }
    assert_eq!(client.command(commands::READ, 1 << 15, 0, 1), Errno::Invalid.code());
    assert_eq!(client.write_with(command_flags::REQ_ONE, 0, &[1; 100]), Errno::Invalid.code());
    assert_eq!(client.read(0, 1), Ok(vec![0]));
    let mut broken = house.client(true);
    broken.send(&[9; 28]);
    assert!(broken.is_closed());
}

#[test]
fn ranges_that_overflow_are_refused() {
    let house = with(|_| {});
    let mut client = house.client(false);
    let size = 64 << 20;
    for (offset, length) in [(size, 1), (size - 1, 2), (u64::MAX, 1), (u64::MAX, u32::MAX), (1 << 63, 4096)] {
        assert_eq!(client.read(offset, length), Err(Errno::Invalid.code()));
        assert_eq!(client.command(commands::TRIM, 0, offset, length), Errno::Invalid.code());
        assert_eq!(client.command(commands::WRITE_ZEROES, 0, offset, length), Errno::NoSpace.code());
    }
    assert_eq!(client.write(size - 1, &[1, 2]), Errno::NoSpace.code());
    assert_eq!(client.read(0, 0), Err(Errno::Invalid.code()));
    assert_eq!(client.read(size - 1, 1), Ok(vec![0]));
}

#[test]
fn payloads_beyond_the_limit_are_skipped_or_end_the_connection() {
    let house = with(|limits| limits.payload_bytes = 1 << 20);
    let mut client = house.client(true);
    assert_eq!(client.write(0, &vec![1; (1 << 20) + 1]), Errno::Invalid.code());
    assert_eq!(client.read(0, (1 << 20) + 1), Err(Errno::Overflow.code()));
    assert_eq!(client.read(0, 1 << 20), Ok(vec![0; 1 << 20]));
    client.request(commands::WRITE, 0, 0, u32::MAX);
    assert!(client.is_closed());
}

#[test]
fn a_payload_that_stalls_ends_the_connection() {
    let house = with(|limits| {
        limits.stall_time = Duration::from_millis(300);
        limits.rate_bytes_per_second_min = 1 << 20;
    });
    for (sent, length) in [(10, 100), (100_000, 1 << 20), (1, 32 << 20)] {
        let mut client = house.client(true);
        client.request(commands::WRITE, 0, 0, length);
        client.send(&vec![1; sent]);
        assert!(client.is_closed());
    }
    let mut header = house.client(true);
    header.send(&[0x25, 0x60]);
    assert!(header.is_closed());
    // Always something, but too little.
    let mut drip = house.client(true);
    drip.request(commands::WRITE, 0, 0, 1 << 20);
    let started = Instant::now();
    while drip.stream.write_all(&[1; 10]).is_ok() {
        assert!(started.elapsed() < Duration::from_secs(8), "a payload may not take for ever");
        thread::sleep(Duration::from_millis(20));
    }
    house.until("nothing is held", |stats| stats.budget_bytes_used == 0);
    assert_eq!(house.stats().timeouts, 5);
    house.assert_serves();
}

#[test]
fn a_client_that_does_not_read_is_ended_and_holds_nobody_up() {
    let house = with(|limits| limits.stall_time = Duration::from_millis(500));
    let mut client = house.client(true);
    assert_eq!(client.write(0, &vec![7; 4 << 20]), 0);
    for at in 0..50 {
        // Data, as a hole would need no bytes.
        client.request(commands::READ, 0, at, 2 << 20);
    }
    house.assert_serves();
    house.until("it was ended", |stats| stats.timeouts == 1 && stats.budget_bytes_used == 0);
    assert!(client.is_closed());
}

#[test]
fn memory_stays_within_the_budget() {
    let house = with(|limits| {
        limits.budget_bytes = 64 << 20;
        limits.connections = 32;
        limits.budget_time = Duration::from_millis(200);
        limits.stall_time = Duration::from_secs(2);
    });
    let mut held: Vec<Client> = (0..16).map(|_| house.client(true)).collect();
    for client in &mut held {
        client.request(commands::WRITE, 0, 0, 30 << 20);
        client.send(&[1; 5000]);
    }
    house.until("most could not get what they asked for", |stats| stats.budget_refusals >= 10);
    // Small requests need none of it.
    house.assert_serves();
    assert!(house.stats().budget_bytes_used_max <= 64 << 20);
    drop(held);
    house.until("all is given back", |stats| stats.budget_bytes_used == 0);
}

#[test]
fn leaving_with_requests_in_flight_leaves_nothing_behind() {
    let script = Script::new(16 << 20);
    let house = House::scripted(&script);
    *script.delay.lock() = Duration::from_millis(20);
    for round in 0..8 {
        let mut client = house.client(round % 2 == 0);
        for at in 0..16 {
            let cookie = client.request(commands::WRITE, at % 2, 0, 4096);
            client.send(&[1; 4096]);
            assert!(cookie > 0);
            client.request(commands::READ, 0, 0, 1 << 20);
            client.request(commands::FLUSH, 0, 0, 0);
            client.request(commands::WRITE_ZEROES, 0, 0, 8 << 20);
        }
        if round % 4 < 2 {
            client.request(commands::DISC, 0, 0, 0);
        }
    }
    house.until("all left", |stats| stats.connections == 0 && stats.budget_bytes_used == 0);
    assert_eq!(script.inside.load(SeqCst), 0);
    assert_eq!(house.stats().panics, 0);
    house.assert_serves();
}

#[test]
fn disconnect_finishes_what_is_in_flight() {
    let script = Script::new(1 << 20);
    let house = House::scripted(&script);
    *script.delay.lock() = Duration::from_millis(30);
    let mut client = house.client(true);
    let mut bytes = Vec::new();
    for cookie in 1..=5 {
        let request = Request { flags: 0, command: commands::FLUSH, cookie: Cookie(cookie), offset: 0, length: 0 };
        bytes.extend_from_slice(&encode_request(&request));
    }
    let over = Request { flags: 0, command: commands::DISC, cookie: Cookie(6), offset: 0, length: 0 };
    bytes.extend_from_slice(&encode_request(&over));
    client.send(&bytes);
    for cookie in 1..=5 {
        assert_eq!(client.error(cookie), 0);
    }
    assert!(client.is_closed());
}

#[test]
fn a_panic_ends_its_connection_only() {
    let script = Script::new(4 << 20);
    let house = House::scripted(&script);
    let mut bystander = house.client(true);
    assert_eq!(bystander.read(0, 1), Ok(vec![0]));
    script.panics.store(true, SeqCst);
    // In the reader.
    let mut client = house.client(true);
    client.request(commands::READ, 0, 0, 1);
    assert!(client.is_closed());
    // In a worker, with others queued behind it.
    let mut client = house.client(true);
    let flush = |cookie| Request { flags: 0, command: commands::FLUSH, cookie: Cookie(cookie), offset: 0, length: 0 };
    let bytes: Vec<u8> = (1..40).flat_map(|cookie| encode_request(&flush(cookie))).collect();
    client.send(&bytes);
    assert!(client.is_closed());
    house.until("both are gone", |stats| stats.connections == 1 && stats.panics >= 2);
    script.panics.store(false, SeqCst);
    assert_eq!(bystander.read(0, 1), Ok(vec![0]));
    house.assert_serves();
}

#[test]
fn random_bytes_end_connections_and_nothing_else() {
    let house = with(|limits| limits.stall_time = Duration::from_millis(100));
    let mut random = crate::load::Random::new(7);
    for round in 0..200_u64 {
        let mut client = if round % 3 == 0 { house.connect() } else { house.client(round % 2 == 0) };
        let mut bytes: Vec<u8> = (0..random.below(400)).map(|_| random.byte()).collect();
        if round % 3 != 0 && bytes.len() > 4 {
            // Beyond the magic number, with small commands.
            bytes[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
            bytes.iter_mut().skip(4).take(3).for_each(|byte| *byte %= 8);
        }
        let _ = client.stream.write_all(&bytes);
    }
    house.until("all left", |stats| stats.connections == 0 && stats.budget_bytes_used == 0);
    assert_eq!(house.stats().panics, 0);
    house.assert_serves();
}

#[test]
fn many_flushes_are_settled_by_few() {
    let script = Script::new(1 << 20);
    let house = House::scripted(&script);
    *script.delay.lock() = Duration::from_millis(20);
    let mut client = house.client(true);
    let mut bytes = Vec::new();
    for cookie in 1..=50 {
        let request = Request { flags: 1, command: commands::WRITE, cookie: Cookie(cookie), offset: 0, length: 0 };
        let flush = Request { command: commands::FLUSH, flags: 0, ..request };
        bytes.extend_from_slice(&encode_request(&flush));
    }
    client.send(&bytes);
    for _ in 1..=50 {
        client.reply();
    }
    assert!(script.calls.lock().len() <= 10, "{} flushes for 50 requests", script.calls.lock().len());
    let export: Arc<dyn Export> = script;
    assert_eq!(export.size(), 1 << 20);
}
