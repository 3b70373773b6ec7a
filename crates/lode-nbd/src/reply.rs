//! A reply's bytes: pure encoders.

use crate::{
    request::Cookie,
    wire::{CHUNK_BYTES, Errno, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunks},
};

/// Bytes of the chunk that tells a hole.
pub const HOLE_BYTES: usize = CHUNK_BYTES + 12;
/// Bytes before the data of a chunk of data.
pub const DATA_HEADER_BYTES: usize = CHUNK_BYTES + 8;
/// Bytes of the chunk that tells an error without words.
pub const ERROR_BYTES: usize = CHUNK_BYTES + 6;

/// A simple reply; without an error it says "done".
pub fn simple(cookie: Cookie, error: Option<Errno>) -> [u8; SIMPLE_REPLY_BYTES] {
    let mut bytes = [0; SIMPLE_REPLY_BYTES];
    bytes[..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.map_or(0, Errno::code).to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.0.to_be_bytes());
    bytes
}

/// What begins a structured reply's last chunk.
pub fn chunk(kind: u16, cookie: Cookie, content_bytes: u32) -> [u8; CHUNK_BYTES] {
    let mut bytes = [0; CHUNK_BYTES];
    bytes[..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&chunks::FLAG_DONE.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.0.to_be_bytes());
    bytes[16..].copy_from_slice(&content_bytes.to_be_bytes());
    bytes
}

/// What comes before the data of a read's only chunk.
pub fn data_header(cookie: Cookie, offset: u64, data_bytes: u32) -> [u8; DATA_HEADER_BYTES] {
    let mut bytes = [0; DATA_HEADER_BYTES];
    bytes[..CHUNK_BYTES].copy_from_slice(&chunk(chunks::OFFSET_DATA, cookie, data_bytes.saturating_add(8)));
    bytes[CHUNK_BYTES..].copy_from_slice(&offset.to_be_bytes());
    bytes
}

/// A read's only chunk if all that it reads are zeroes.
pub fn hole(cookie: Cookie, offset: u64, hole_bytes: u32) -> [u8; HOLE_BYTES] {
    let mut bytes = [0; HOLE_BYTES];
    bytes[..CHUNK_BYTES].copy_from_slice(&chunk(chunks::OFFSET_HOLE, cookie, 12));
    bytes[CHUNK_BYTES..CHUNK_BYTES + 8].copy_from_slice(&offset.to_be_bytes());
    bytes[CHUNK_BYTES + 8..].copy_from_slice(&hole_bytes.to_be_bytes());
    bytes
}

/// An error as a structured reply's only chunk.
pub fn structured_error(cookie: Cookie, error: Errno) -> [u8; ERROR_BYTES] {
    let mut bytes = [0; ERROR_BYTES];
    bytes[..CHUNK_BYTES].copy_from_slice(&chunk(chunks::ERROR, cookie, 6));
    bytes[CHUNK_BYTES..CHUNK_BYTES + 4].copy_from_slice(&error.code().to_be_bytes());
    bytes
}

/// The most extents that one reply tells, of all its contexts together; a client asks again for the rest.
pub const EXTENTS_MAX: usize = 2048;

/// What a reply tells of one metadata context: lengths and flags, neighbours with the same flags merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    id: u32,
    extents: Vec<(u32, u32)>,
}

impl Told {
    /// What to tell of the context with this number: extents merged, cut to `bytes`, and at most `count_max` of them.
    /// `None` if they do not begin with one that is not empty.
    pub fn of(id: u32, bytes: u64, count_max: usize, extents: &[(u64, u32)]) -> Option<Told> {
        let extents = merge(bytes, count_max, extents);
        (!extents.is_empty()).then_some(Told { id, extents })
    }
}

/// Appends the reply to BLOCK_STATUS, a chunk for each context. There is at least one.
pub fn block_status(to: &mut Vec<u8>, cookie: Cookie, contexts: &[Told]) {
    let start = to.len();
    let mut last = start;
    for Told { id, extents } in contexts {
        last = to.len();
        let content = 4 + 8 * u32::try_from(extents.len()).expect("a reply tells few extents");
        to.extend_from_slice(&chunk(chunks::BLOCK_STATUS, cookie, content));
        // Of several chunks only the last says that it is the last.
        to[last + 4..last + 6].copy_from_slice(&0_u16.to_be_bytes());
        to.extend_from_slice(&id.to_be_bytes());
        for (length, flags) in extents {
            to.extend_from_slice(&length.to_be_bytes());
            to.extend_from_slice(&flags.to_be_bytes());
        }
    }
    if to.len() > start {
        to[last + 4..last + 6].copy_from_slice(&chunks::FLAG_DONE.to_be_bytes());
    }
}

fn merge(bytes: u64, count_max: usize, extents: &[(u64, u32)]) -> Vec<(u32, u32)> {
    // A request's length has 32 bits, so the sum of all that is told fits.
    let mut left = u32::try_from(bytes).unwrap_or(u32::MAX);
    let mut merged: Vec<(u32, u32)> = Vec::new();
    for &(length, flags) in extents {
        let length = u32::try_from(length).unwrap_or(u32::MAX).min(left);
        if length == 0 {
            break;
        }
        left -= length;
        let full = merged.len() == count_max;
        match merged.last_mut() {
            Some(last) if last.1 == flags => last.0 += length,
            _ if full => break,
            _ => merged.push((length, flags)),
        }
    }
    merged
}

#[cfg(test)]
mod tests;
