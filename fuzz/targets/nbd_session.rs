//! A whole connection, byte for byte, against exports in memory: handshake, then requests. The server ends the
//! connection when the client has said all, it never panics, and it serves the next one.
//!
//! The first byte chooses what is said before the rest, so that the fuzzer need not find the magic numbers:
//! nothing, the client's flags, or a handshake that has chosen an export, with or without structured replies.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lode_nbd::memory::{MemoryExport, MemoryExports};
use lode_nbd::wire::{OPTION_MAGIC, REQUEST_MAGIC, options};
use lode_nbd::{Address, Limits, Listener, Server};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Longer than any answer takes; beyond, the server hangs.
const PATIENCE: Duration = Duration::from_secs(20);

static SERVER: LazyLock<(Server, PathBuf)> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("lode-fuzz-{}.sock", std::process::id()));
    let exports = MemoryExports::default()
        .and("disk", Arc::new(MemoryExport::new(1 << 16)))
        .and("fixed", Arc::new(MemoryExport::new(5000).into_read_only()));
    let mut limits = Limits::default();
    limits.payload_bytes = 64 << 10;
    let listener = Listener::unix(&path).expect("the temporary directory is writable");
    let server = Server::start(listener, Arc::new(exports), limits).expect("the limits are sound");
    let Address::Unix(path) = server.address().clone() else { unreachable!("it listens on a unix socket") };
    (server, path)
});

fn option(to: &mut Vec<u8>, code: u32, data: &[u8]) {
    to.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    to.extend_from_slice(&code.to_be_bytes());
    to.extend_from_slice(&u32::try_from(data.len()).expect("inputs are short").to_be_bytes());
    to.extend_from_slice(data);
}

fn go(to: &mut Vec<u8>, name: &str) {
    let mut data = u32::try_from(name.len()).expect("short").to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&[0, 0]);
    option(to, options::GO, &data);
}

/// What a client says that says `rest` after a beginning of this kind.
fn speech(kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut said = Vec::new();
    if kind % 8 > 0 {
        said.extend_from_slice(&[0, 0, 0, 3]);
    }
    match kind % 8 {
        // Options, each of a code, a length and its data.
        2 | 3 => {
            let mut rest = rest;
            while let Some(([code, len], more)) = rest.split_first_chunk() {
                let (data, more) = more.split_at(usize::from(*len).min(more.len()));
                option(&mut said, u32::from(*code), data);
                rest = more;
            }
            return said;
        }
        4 => go(&mut said, "disk"),
        5 | 6 => {
            option(&mut said, options::STRUCTURED_REPLY, &[]);
            go(&mut said, if kind % 8 == 5 { "disk" } else { "fixed" });
        }
        _ => {}
    }
    if kind % 8 >= 4 && kind & 8 != 0 {
        // Requests of flags, command, short offsets and lengths; 24 bytes of payload each.
        for (number, chunk) in rest.chunks(32).enumerate() {
            let Some(([flags, command, offset @ .., length], payload)) = chunk.split_first_chunk::<5>() else { break };
            said.extend_from_slice(&REQUEST_MAGIC.to_be_bytes());
            said.extend_from_slice(&[0, *flags, 0, *command]);
            said.extend_from_slice(&u64::try_from(number).expect("small").to_be_bytes());
            said.extend_from_slice(&u64::from(u16::from_be_bytes(*offset)).to_be_bytes());
            said.extend_from_slice(&u32::from(*length).to_be_bytes());
            said.extend_from_slice(payload);
        }
        return said;
    }
    said.extend_from_slice(rest);
    said
}

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let said = speech(*kind, rest);
    let mut stream = UnixStream::connect(&SERVER.1).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    let mut writer = stream.try_clone().expect("there are descriptors");
    let talker = std::thread::spawn(move || {
        // The server may have hung up long before.
        let _ = writer.write_all(&said);
        let _ = writer.shutdown(Shutdown::Write);
    });
    let mut heard = [0; 4096];
    loop {
        match stream.read(&mut heard) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("the server neither answers nor hangs up")
            }
            Err(_) => break,
        }
    }
    drop(stream);
    talker.join().expect("it does not panic");
});
