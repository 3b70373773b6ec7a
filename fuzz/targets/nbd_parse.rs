//! Every pure decoder of the NBD door, given any bytes: no panic, and nothing that is larger than the input.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lode_nbd::memory::MemoryExport;
use lode_nbd::option::{decode_client_flags, decode_contexts, decode_info, decode_name, decode_option};
use lode_nbd::request::{Cookie, decode_request, encode_request};
use lode_nbd::wire::{REQUEST_BYTES, REQUEST_MAGIC};
use lode_nbd::{Terms, Work, admit, reply};

fuzz_target!(|bytes: &[u8]| {
    if let Some(first) = bytes.first_chunk() {
        let _ = decode_client_flags(*first);
    }
    let _ = decode_option(bytes);
    for string_bytes_max in [0, 16, 4096, u32::MAX] {
        let _ = decode_name(bytes, string_bytes_max);
        if let Ok(info) = decode_info(bytes, string_bytes_max) {
            assert!(info.name.len() <= bytes.len());
            let _ = info.wants(3);
        }
        if let Ok(contexts) = decode_contexts(bytes, string_bytes_max) {
            assert!(contexts.queries.iter().map(|query| query.len() + 4).sum::<usize>() <= bytes.len());
        }
    }
    requests(bytes);
    statuses(bytes);
});

/// A request, with its magic made right so that the fuzzer need not find it.
fn requests(bytes: &[u8]) {
    let _ = decode_request(bytes);
    let mut whole = [0; REQUEST_BYTES];
    let len = bytes.len().min(REQUEST_BYTES - 4);
    whole[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    whole[4..4 + len].copy_from_slice(&bytes[..len]);
    let request = decode_request(&whole).expect("the magic is right").expect("all bytes are there");
    assert_eq!(encode_request(&request), whole);
    for (structured, read_only) in [(false, false), (true, false), (true, true)] {
        let export = MemoryExport::new(1 << 16);
        let export = if read_only { export.into_read_only() } else { export };
        let terms = Terms::of(&export, 1 << 20, structured, true);
        match admit(&request, &terms) {
            Ok(Work::Disconnect) | Err(_) => {}
            Ok(_) => assert!(request.length == 0 || request.offset + u64::from(request.length) <= terms.size),
        }
    }
}

/// Extents as an export might tell them.
fn statuses(bytes: &[u8]) {
    let extents: Vec<(u64, u32)> = bytes
        .chunks_exact(9)
        .map(|chunk| (u64::from_be_bytes(*chunk.first_chunk().expect("nine bytes")), u32::from(chunk[8] & 1)))
        .collect();
    let asked = extents.iter().fold(1, |sum, extent| extent.0 ^ sum);
    if let Some(told) = reply::Told::of(1, asked, 1 + bytes.len() % 100, &extents) {
        let mut sent = Vec::new();
        reply::block_status(&mut sent, Cookie(1), &[told.clone(), told]);
        assert!(sent.len() <= 2 * (24 + 8 * 100));
    }
}
