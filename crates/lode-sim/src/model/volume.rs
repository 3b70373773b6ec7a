//! A volume in the plainest words: blocks by number.

use crate::rng::{hash_bytes, mix, narrow, wide};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many blocks share one piece of a volume's table: what is copied when a block changes.
const PIECE: u64 = 32;

type Piece = Vec<Option<Arc<[u8]>>>;

/// A volume's content. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct VolumeState {
    /// Tells a volume from another of the same name, made later.
    pub generation: u64,
    /// Bytes of one block.
    pub block_bytes: u32,
    /// Whether the volume was made with compression.
    pub compressed: bool,
    /// The size in bytes.
    pub bytes: u64,
    pieces: BTreeMap<u64, Arc<Piece>>,
    /// The sum over the blocks that are not zero.
    content: u64,
}

impl VolumeState {
    /// A volume that reads as zeros.
    pub fn new(generation: u64, bytes: u64, block_bytes: u32, compressed: bool) -> Self {
        VolumeState { generation, block_bytes, compressed, bytes, pieces: BTreeMap::new(), content: 0 }
    }

    /// How many blocks the volume has, the last one perhaps cut short.
    pub fn blocks(&self) -> u64 {
        self.bytes.div_ceil(self.size())
    }

    /// A block's bytes; `None`: zeros.
    pub fn block(&self, block: u64) -> Option<&Arc<[u8]>> {
        self.pieces.get(&(block / PIECE))?[narrow(block % PIECE)].as_ref()
    }

    /// The numbers of all blocks that are not zero.
    pub fn present(&self) -> impl Iterator<Item = u64> {
        let blocks = self.pieces.iter().flat_map(|(piece, blocks)| {
            blocks.iter().enumerate().filter(|(_, block)| block.is_some()).map(move |(at, _)| piece * PIECE + wide(at))
        });
        blocks.collect::<Vec<u64>>().into_iter()
    }

    /// Fills `into` with what the volume holds from `offset` on.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        view(self.size(), offset, into, |block| self.block(block).cloned());
    }

    /// Writes bytes at an offset.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (block, bytes) in written(self.size(), offset, data, |block| self.block(block).cloned()) {
            self.put(block, Some(bytes));
        }
    }

    /// Gives a block new bytes.
    pub fn put(&mut self, block: u64, bytes: Option<Arc<[u8]>>) {
        let bytes = bytes.filter(|bytes| bytes.iter().any(|byte| *byte != 0));
        if let Some(old) = self.block(block) {
            self.content = self.content.wrapping_sub(block_hash(block, old));
        } else if bytes.is_none() {
            return;
        }
        if let Some(new) = &bytes {
            self.content = self.content.wrapping_add(block_hash(block, new));
        }
        let piece = self.pieces.entry(block / PIECE).or_insert_with(|| Arc::new(vec![None; narrow(PIECE)]));
        Arc::make_mut(piece)[narrow(block % PIECE)] = bytes;
    }

    /// Changes the size; what is cut off is gone, what is added reads as zeros.
    pub fn resize(&mut self, bytes: u64) {
        if bytes <= self.bytes {
            let keep = bytes.div_ceil(self.size());
            let gone: Vec<u64> = self.present().filter(|block| *block >= keep).collect();
            for block in gone {
                self.put(block, None);
            }
            let rest = bytes % self.size();
            if let (true, Some(last)) = (rest != 0, self.block(keep.saturating_sub(1)).cloned()) {
                let mut last = last.to_vec();
                last[narrow(rest)..].fill(0);
                self.put(keep - 1, Some(last.into()));
            }
        }
        self.bytes = bytes;
    }

    /// A hash of all that a client can see of the volume.
    pub fn hash(&self, name: &str) -> u64 {
        let shape = mix(mix(self.bytes, u64::from(self.block_bytes)), u64::from(self.compressed));
        mix(hash_bytes(name.as_bytes()), mix(shape, self.content))
    }

    pub(super) fn size(&self) -> u64 {
        u64::from(self.block_bytes)
    }
}

/// The hash of one block that is not zero, as it goes into a volume's sum.
pub fn block_hash(block: u64, bytes: &[u8]) -> u64 {
    mix(block, hash_bytes(bytes))
}

/// Fills `into` from blocks of `size` bytes, beginning at the byte `offset`.
pub(super) fn view(size: u64, offset: u64, into: &mut [u8], block: impl Fn(u64) -> Option<Arc<[u8]>>) {
    for (at, from, to) in pieces(size, offset, wide(into.len())) {
        let start = narrow(at * size + from - offset);
        let part = &mut into[start..start + narrow(to - from)];
        match block(at) {
            Some(bytes) => part.copy_from_slice(&bytes[narrow(from)..narrow(to)]),
            None => part.fill(0),
        }
    }
}

/// The blocks that a range of bytes touches, each with the range inside of it.
pub fn pieces(size: u64, offset: u64, bytes: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let end = offset + bytes;
    let blocks = if bytes == 0 { 0..0 } else { offset / size..(end - 1) / size + 1 };
    blocks.map(move |block| {
        let start = block * size;
        (block, offset.max(start) - start, end.min(start + size) - start)
    })
}

/// The blocks as a write of `data` at `offset` leaves them.
pub(super) fn written(
    size: u64,
    offset: u64,
    data: &[u8],
    old: impl Fn(u64) -> Option<Arc<[u8]>>,
) -> Vec<(u64, Arc<[u8]>)> {
    let change = |(block, from, to): (u64, u64, u64)| {
        let mut bytes = old(block).map_or_else(|| vec![0; narrow(size)], |old| old.to_vec());
        let start = narrow(block * size + from - offset);
        bytes[narrow(from)..narrow(to)].copy_from_slice(&data[start..start + narrow(to - from)]);
        (block, bytes.into())
    };
    pieces(size, offset, wide(data.len())).map(change).collect()
}
