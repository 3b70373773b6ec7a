//! The protocol's rules, one by one.

use lode_nbd::{
    Durability, ExportErrorKind, Limits,
    memory::{MemoryExport, MemoryExports},
    wire::{Errno, OptionReply, command_flags, commands, export_flags, info, options},
};
use std::sync::Arc;

use crate::support::{Call, House, Reply, Script, context_data, info_data};

const ACK: u32 = 1;

fn two() -> House {
    let other = MemoryExport::new(1 << 16).into_read_only();
    House::new(MemoryExports::with("disk", 1 << 20).and("other", Arc::new(other)), Limits::default())
}

#[test]
fn list_names_all_exports() {
    let house = two();
    let mut client = house.connect();
    client.greet();
    let (replies, end) = client.option(options::LIST, &[]);
    let names: Vec<_> = replies.iter().map(|(_, data)| String::from_utf8_lossy(&data[4..]).into_owned()).collect();
    assert_eq!((names, end), (vec!["disk".to_owned(), "other".to_owned()], ACK));
    assert_eq!(client.option(options::LIST, &[0]).1, OptionReply::ErrInvalid.code());
}

#[test]
fn info_describes_and_go_chooses() {
    let house = two();
    let mut client = house.connect();
    client.greet();
    let (replies, end) = client.option(options::INFO, &info_data("other", &[info::NAME, info::BLOCK_SIZE, 77]));
    assert_eq!(end, ACK);
    let items: Vec<_> = replies.iter().map(|(_, data)| (u16::from_be_bytes([data[0], data[1]]), &data[2..])).collect();
    assert_eq!(items[0].0, info::EXPORT);
    assert_eq!(items[0].1[..8], (1_u64 << 16).to_be_bytes());
    let flags = u16::from_be_bytes([items[0].1[8], items[0].1[9]]);
    assert_ne!(flags & export_flags::READ_ONLY, 0);
    assert_eq!(flags & export_flags::SEND_DF, 0, "structured replies were not agreed");
    assert_eq!(items[1], (info::NAME, &b"other"[..]));
    assert_eq!(items[2].1, [1_u32, 4096, 32 << 20].map(u32::to_be_bytes).concat());
    assert_eq!(client.option(options::GO, &info_data("nothing", &[])).1, OptionReply::ErrUnknown.code());
    client.go("other");
    assert_eq!(client.write(0, &[1]), Errno::NotPermitted.code());
    assert_eq!(client.read(0, 4), Ok(vec![0; 4]), "the refused payload was skipped");
}

#[test]
fn the_empty_name_is_the_only_export_if_there_is_one() {
    let house = House::memory(4096);
    let mut client = house.connect();
    client.greet();
    client.go("");
    assert_eq!(client.read(0, 1), Ok(vec![0]));
    let house = two();
    let mut client = house.connect();
    client.greet();
    assert_eq!(client.option(options::GO, &info_data("", &[])).1, OptionReply::ErrUnknown.code());
}

#[test]
fn export_name_with_and_without_zeroes() {
    let house = two();
    for (client_flags, zeroes) in [(3_u32, 0), (1, 124), (0, 124)] {
        let mut client = house.connect();
        let _: [u8; 18] = client.take();
        client.send(&client_flags.to_be_bytes());
        client.send_option(options::EXPORT_NAME, b"disk");
        assert_eq!(u64::from_be_bytes(client.take()), 1 << 20);
        let _flags: [u8; 2] = client.take();
        assert_eq!(client.take_vec(zeroes), vec![0; usize::try_from(zeroes).expect("small")]);
        assert_eq!(client.write(5, b"x"), 0);
    }
    let mut client = house.connect();
    client.greet();
    client.send_option(options::EXPORT_NAME, b"nothing");
    assert!(client.is_closed());
}

#[test]
fn abort_is_acknowledged() {
    let house = two();
    let mut client = house.connect();
    client.greet();
    assert_eq!(client.option(options::ABORT, &[]).1, ACK);
    assert!(client.is_closed());
}

#[test]
fn contexts_need_structured_replies_and_the_same_export() {
    let house = two();
    let mut client = house.connect();
    client.greet();
    let query = context_data("disk", &["base:allocation", "qemu:dirty-bitmap"]);
    assert_eq!(client.option(options::SET_META_CONTEXT, &query).1, OptionReply::ErrInvalid.code());
    client.agree_on_structured();
    for queries in [&[][..], &["base:"][..], &["base:allocation"][..]] {
        let (replies, end) = client.option(options::LIST_META_CONTEXT, &context_data("disk", queries));
        assert_eq!((replies.len(), end), (1, ACK));
    }
    assert_eq!(client.option(options::SET_META_CONTEXT, &context_data("disk", &[])), (vec![], ACK));
    let (replies, end) = client.option(options::SET_META_CONTEXT, &query);
    assert_eq!((replies.len(), end), (1, ACK));
    assert_eq!(&replies[0].1[4..], b"base:allocation");
    // Chosen for `disk`, so not for `other`.
    client.go("other");
    assert_eq!(client.command(commands::BLOCK_STATUS, 0, 0, 4096), Errno::Invalid.code());
}

#[test]
fn block_status_tells_what_is_allocated() {
    let house = House::memory(1 << 20);
    let mut client = house.connect();
    client.greet();
    client.agree_on_structured();
    client.option(options::SET_META_CONTEXT, &context_data("disk", &["base:allocation"]));
    client.go("disk");
    assert_eq!(client.write(128 << 10, &[1; 4096]), 0);
    for (flags, expected) in [
        (0, &[1_u32, 128 << 10, 3, 64 << 10, 0, (1 << 20) - (192 << 10), 3][..]),
        (command_flags::REQ_ONE, &[1, 128 << 10, 3][..]),
    ] {
        let cookie = client.request(commands::BLOCK_STATUS, flags, 0, 1 << 20);
        let Reply::Chunk { cookie: found, kind: 5, content } = client.reply() else { panic!("no status") };
        assert_eq!(found, cookie);
        assert_eq!(content, expected.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>());
    }
}

#[test]
fn reads_writes_zeroes_and_trims_mean_what_they_say() {
    for structured in [false, true] {
        let house = House::memory(4 << 20);
        let mut client = house.client(structured);
        let data: Vec<u8> = (0..=250).cycle().take(3 << 20).collect();
        assert_eq!(client.write(1000, &data), 0, "longer than every fixed buffer");
        assert_eq!(client.read(1000, 3 << 20), Ok(data.clone()));
        assert_eq!(client.read(999, 2), Ok(vec![0, data[0]]));
        assert_eq!(client.command(commands::WRITE_ZEROES, 0, 1000, 100), 0);
        assert_eq!(client.command(commands::WRITE_ZEROES, command_flags::NO_HOLE, 1100, 100), 0);
        assert_eq!(client.read(1000, 201), Ok([vec![0; 200], vec![data[200]]].concat()));
        assert_eq!(client.command(commands::TRIM, command_flags::FUA, 0, 4 << 20), 0);
        assert_eq!(client.command(commands::CACHE, 0, 0, 4 << 20), 0);
        assert_eq!(client.command(commands::FLUSH, 0, 0, 0), 0);
        assert_eq!(client.read(0, 4 << 20), Ok(vec![0; 4 << 20]));
    }
}

#[test]
fn df_gets_data_even_for_a_hole() {
    let house = House::memory(1 << 20);
    let mut client = house.client(true);
    for (flags, kind, bytes) in [(0, 2, 12), (command_flags::DF, 1, 8 + 4096)] {
        client.request(commands::READ, flags, 0, 4096);
        let Reply::Chunk { kind: found, content, .. } = client.reply() else { panic!("structured") };
        assert_eq!((found, content.len()), (kind, bytes));
    }
}

#[test]
fn fast_zero_fails_rather_than_to_be_slow() {
    let house = House::memory(1 << 20);
    let mut client = house.client(true);
    let fast = command_flags::FAST_ZERO;
    assert_eq!(client.command(commands::WRITE_ZEROES, fast, 0, 4096), 0);
    let slow = client.command(commands::WRITE_ZEROES, fast | command_flags::NO_HOLE, 0, 4096);
    assert_eq!(slow, Errno::NotSupported.code());
}

#[test]
fn errors_of_an_export_have_their_numbers() {
    let script = Script::new(4 << 20);
    let house = House::scripted(&script);
    for structured in [false, true] {
        let mut client = house.client(structured);
        for (kind, errno) in [
            (ExportErrorKind::Denied, Errno::NotPermitted),
            (ExportErrorKind::Io, Errno::Io),
            (ExportErrorKind::NoMemory, Errno::NoMemory),
            (ExportErrorKind::Invalid, Errno::Invalid),
            (ExportErrorKind::NoSpace, Errno::NoSpace),
            (ExportErrorKind::TooLarge, Errno::Overflow),
            (ExportErrorKind::Unsupported, Errno::NotSupported),
            (ExportErrorKind::ShuttingDown, Errno::Shutdown),
        ] {
            *script.fail.lock() = Some(kind);
            assert_eq!(client.read(0, 512), Err(errno.code()));
            assert_eq!(client.read(0, 2 << 20), Err(errno.code()));
            assert_eq!(client.write(0, &[1; 512]), errno.code());
            assert_eq!(client.write(0, &vec![1; 2 << 20]), errno.code());
            assert_eq!(client.command(commands::FLUSH, 0, 0, 0), errno.code());
            assert_eq!(client.command(commands::TRIM, 0, 0, 512), errno.code());
        }
        *script.fail.lock() = None;
        assert_eq!(client.write(0, &[1; 512]), 0);
    }
}

#[test]
fn fua_asks_for_power_and_plain_writes_for_the_process() {
    let script = Script::new(4 << 20);
    let house = House::scripted(&script);
    let mut client = house.client(true);
    let fua = command_flags::FUA;
    for (bytes, flags, until) in [
        (512, 0, Durability::Process),
        (512, fua, Durability::Power),
        (1 << 20, 0, Durability::Process),
        (1 << 20, fua, Durability::Power),
    ] {
        script.calls.lock().clear();
        assert_eq!(client.write_with(flags, 0, &vec![1; bytes]), 0);
        assert_eq!(*script.calls.lock(), [Call::Write(until)]);
    }
    script.calls.lock().clear();
    assert_eq!(client.command(commands::WRITE_ZEROES, fua, 0, 4096), 0);
    assert_eq!(client.command(commands::FLUSH, 0, 0, 0), 0);
    assert_eq!(*script.calls.lock(), [Call::Zero(Durability::Power), Call::Flush]);
}
