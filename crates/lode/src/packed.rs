//! How blocks are stored: as they are but for the zeros at their end, so that the last block of a file takes what is in
//! it; or compressed, by lz4 in the block format, or as a Zstandard frame.
//!
//! A frame begins with its magic number; what lz4 makes that happens to begin so is not used. So each stored block says
//! itself how it is to be read, and a list can hold both.

use crate::format::records::Compression;
use crate::types::{GRANULE, len_u32};
use std::cell::RefCell;

/// A Zstandard frame begins with these bytes (RFC 8878, section 3.1.1).
const FRAME: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// How hard Zstandard tries: its usual level.
const LEVEL: i32 = 3;
/// Smaller blocks are stored as they are.
const BLOCK_MIN: usize = 128;

thread_local! {
    /// Making one takes longer than unpacking a block.
    static UNPACKER: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// What is stored for a block that is written: packed, if the list is compressed at once, and if that makes it smaller by a
/// granule at least. Gives back how many bytes of `scratch` it is.
pub(crate) fn pack(block: &[u8], compression: Compression, scratch: &mut Vec<u8>) -> Option<usize> {
    if compression.is_hot() { lz4(block, scratch) } else { None }
}

/// The same of a block that the cleaner moves, where the list is compressed then. It is unpacked again and compared: its old
/// bytes were verified, and its new ones get a checksum of their own.
pub(crate) fn pack_cold(block: &[u8], compression: Compression, scratch: &mut Vec<u8>) -> Option<usize> {
    let packed = match compression {
        Compression::None | Compression::Lz4 => return None,
        Compression::ColdLz4 => lz4(block, scratch)?,
        Compression::ColdZstd => zstd(block, scratch)?,
    };
    let mut back = vec![0; block.len()];
    (unpack(&scratch[..packed], &mut back).is_ok() && back == block).then_some(packed)
}

fn is_smaller(packed: usize, block: &[u8]) -> bool {
    len_u32(packed).next_multiple_of(GRANULE) < len_u32(block.len())
}

fn lz4(block: &[u8], scratch: &mut Vec<u8>) -> Option<usize> {
    if block.len() < BLOCK_MIN {
        return None;
    }
    scratch.resize(lz4_flex::block::get_maximum_output_size(block.len()), 0);
    let packed = lz4_flex::block::compress_into(block, scratch).ok()?;
    (is_smaller(packed, block) && !scratch.starts_with(&FRAME)).then_some(packed)
}

fn zstd(block: &[u8], scratch: &mut Vec<u8>) -> Option<usize> {
    if block.len() < BLOCK_MIN {
        return None;
    }
    scratch.resize(zstd::zstd_safe::compress_bound(block.len()), 0);
    let packed = zstd::bulk::compress_to_buffer(block, &mut scratch[..], LEVEL).ok()?;
    (is_smaller(packed, block) && scratch.starts_with(&FRAME)).then_some(packed)
}

/// What is stored of a block that is not packed: the zeros at its end are not, if they fill a granule. A block of nothing
/// else is stored whole: who writes that wants the space.
pub(crate) fn without_zeros(block: &[u8]) -> &[u8] {
    // Granule by granule: that is what counts, and a word of the processor.
    let (granules, rest) = block.as_chunks::<{ size_of::<u128>() }>();
    let last = granules.iter().rposition(|granule| u128::from_ne_bytes(*granule) != 0);
    match last.filter(|_| rest.iter().all(|byte| *byte == 0)) {
        Some(last) => granules[..=last].as_flattened(),
        None => block,
    }
}

const _: () = assert!(GRANULE == 16, "a granule is a word of 128 bits");

/// Fills `into` with the block that was packed. Zeros are behind what was packed, if that is less than the block.
pub(crate) fn unpack(stored: &[u8], into: &mut [u8]) -> Result<(), String> {
    let made = if stored.starts_with(&FRAME) {
        UNPACKER.with_borrow_mut(|unpacker| {
            if unpacker.is_none() {
                *unpacker = Some(zstd::bulk::Decompressor::new().map_err(|error| error.to_string())?);
            }
            let unpacker = unpacker.as_mut().expect("made above");
            unpacker.decompress_to_buffer(stored, into).map_err(|error| error.to_string())
        })
    } else {
        lz4_flex::block::decompress_into(stored, into).map_err(|error| error.to_string())
    };
    match made {
        Ok(len) => {
            into[len..].fill(0);
            Ok(())
        }
        Err(error) => Err(format!("it cannot be unpacked: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::index;

    /// Against looking at each byte.
    #[test]
    fn what_is_stored_ends_with_the_granule_of_the_last_byte_that_is_not_zero() {
        let by_bytes = |block: &[u8]| match block.iter().rposition(|byte| *byte != 0) {
            Some(last) => (last + 1).next_multiple_of(index(GRANULE)).min(block.len()),
            None => block.len(),
        };
        for len in [1, 15, 16, 17, 64, 100, 512, 4096] {
            for last in (0..len).step_by(if len > 600 { 7 } else { 1 }) {
                let mut block = vec![0; len];
                assert_eq!(without_zeros(&block), block, "nothing but zeros");
                block[last] = 1;
                assert_eq!(without_zeros(&block), &block[..by_bytes(&block)], "byte {last} of {len}");
                block[last / 2] = 0x80;
                assert_eq!(without_zeros(&block), &block[..by_bytes(&block)], "two bytes to {last} of {len}");
            }
        }
    }

    #[test]
    fn each_way_gives_back_what_was_packed_and_refuses_what_is_none() {
        let block: Vec<u8> = (0..4096u32).map(|n| n.to_le_bytes()[0] / 16).collect();
        let mut scratch = Vec::new();
        assert_eq!(pack(&block, Compression::ColdZstd, &mut scratch), None, "not when it is written");
        let mut sizes = Vec::new();
        for compression in [Compression::ColdLz4, Compression::ColdZstd] {
            let packed = pack_cold(&block, compression, &mut scratch).expect("it gets smaller");
            let mut back = vec![0; block.len()];
            unpack(&scratch[..packed], &mut back).expect("it was packed so");
            assert_eq!(back, block);
            assert!(unpack(&scratch[..packed - 1], &mut back).is_err(), "cut short");
            assert!(unpack(&scratch[..packed], &mut back[1..]).is_err(), "too large");
            sizes.push(scratch[..packed].starts_with(&FRAME));
        }
        assert_eq!(sizes, [false, true]);
        let noise: Vec<u8> = (0..4096u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
        for (compression, small) in [(Compression::None, &block), (Compression::ColdZstd, &noise)] {
            let packed = pack_cold(small, compression, &mut scratch);
            assert!(packed.is_none_or(|packed| packed < small.len()));
        }
        assert_eq!(pack_cold(&block, Compression::None, &mut scratch), None);
        assert_eq!(pack_cold(&block[..64], Compression::ColdZstd, &mut scratch), None);
    }
}
