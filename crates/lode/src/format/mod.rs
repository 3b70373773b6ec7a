//! Records as bytes, and nothing else: no I/O, no state.
//!
//! A format is written once, as [`record!`] structs. `docs/FORMAT.md` is printed from these declarations by [`describe`].

mod describe;
mod kinds;
pub(crate) mod header;
pub(crate) mod object;
pub(crate) mod records;
pub(crate) mod root;
pub(crate) mod stream;
pub(crate) mod unit;

pub(crate) use crate::record;
pub(crate) use crate::record::Cursor;
pub use describe::describe;

/// The version of the format that this code writes.
pub(crate) const VERSION: u16 = 1;

/// The checksum of everything on the medium: CRC-32C (Castagnoli).
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    u32::try_from(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes)).expect("a 32-bit checksum")
}

/// The checksum of several pieces as if they were one.
pub(crate) fn crc_of(pieces: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for piece in pieces {
        digest.update(piece);
    }
    u32::try_from(digest.finalize()).expect("a 32-bit checksum")
}
