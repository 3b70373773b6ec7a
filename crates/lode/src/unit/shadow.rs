//! What a unit changed and nobody else sees: blocks, holes, sizes.

use super::blocks::Blocks;
use super::ranges::Ranges;
use crate::types::{Kind, ListId, index, len_u32};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Bytes of a chunk of an [`Arena`]: the largest block fits.
const CHUNK: usize = 64 << 10;

/// Emptied chunks.
pub(crate) type Chunks = SmallVec<[Vec<u8>; 1]>;

/// Bytes of blocks, one behind the other in chunks: a unit of many blocks asks the allocator for few things, and a
/// small one for none, as its first chunk comes from the disk and goes back there.
#[derive(Default)]
pub(crate) struct Arena {
    /// The one that is being filled: number `full.len()`.
    open: Vec<u8>,
    full: Vec<Vec<u8>>,
    /// Emptied ones, to be filled next.
    spare: Chunks,
    /// Bytes in all of them, dead ones included.
    bytes: usize,
}

/// Where in an [`Arena`] bytes lie.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    chunk: u32,
    start: u32,
    len: u32,
}

impl Piece {
    pub fn len(self) -> u32 {
        self.len
    }
}

impl Arena {
    /// How many chunks it could use for so many bytes more.
    pub fn lacks(&self, bytes: u64) -> usize {
        let room = self.open.capacity() - self.open.len() + self.spare.iter().map(Vec::capacity).sum::<usize>();
        usize::try_from(bytes).unwrap_or(usize::MAX).saturating_sub(room).div_ceil(CHUNK)
    }

    /// Takes emptied chunks of other arenas.
    pub fn stock(&mut self, chunks: Chunks) {
        self.spare.extend(chunks);
    }

    /// Takes in a copy.
    pub fn push(&mut self, bytes: &[u8]) -> Piece {
        let filled = self.open.len() + bytes.len();
        if self.open.capacity() < filled && (filled > CHUNK || !self.spare.is_empty()) {
            // One that was not used before grows as it is filled: ten thousand small units take little memory.
            let empty = self.spare.pop().unwrap_or_default();
            let full = std::mem::replace(&mut self.open, empty);
            if !full.is_empty() {
                self.full.push(full);
            }
        }
        self.bytes += bytes.len();
        let start = len_u32(self.open.len());
        self.open.extend_from_slice(bytes);
        Piece { chunk: len_u32(self.full.len()), start, len: len_u32(bytes.len()) }
    }

    /// Puts other bytes of the same length in the place of old ones.
    pub fn replace(&mut self, piece: Piece, bytes: &[u8]) {
        let chunk = self.full.get_mut(index(piece.chunk)).unwrap_or(&mut self.open);
        chunk[index(piece.start)..index(piece.start + piece.len)].copy_from_slice(bytes);
    }

    pub fn get(&self, piece: Piece) -> &[u8] {
        let chunk = self.full.get(index(piece.chunk)).unwrap_or(&self.open);
        &chunk[index(piece.start)..index(piece.start + piece.len)]
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Forgets everything and gives back the chunks, emptied, for other arenas.
    pub fn clear(&mut self) -> impl Iterator<Item = Vec<u8>> + use<> {
        let Arena { open, full, spare, .. } = std::mem::take(self);
        let used = full.into_iter().chain(std::iter::once(open)).map(|mut chunk| {
            chunk.clear();
            chunk
        });
        spare.into_iter().chain(used).filter(|chunk| chunk.capacity() > 0)
    }
}

/// A block of a unit.
#[derive(Clone, Copy)]
pub(crate) enum Shadow {
    /// In memory, as it will be stored.
    Data { piece: Piece, kind: Kind, checksum: u32 },
    /// In the log; the place is in [`crate::disk::Core::spilled`].
    Spilled,
    /// In the unit's shadow of the list since its last barrier; named here only while it is being committed.
    Kept,
}

/// What a unit changed in each list, ordered by list; most units change one or two.
#[derive(Default)]
pub(crate) struct Shadows(SmallVec<[(ListId, ListShadow); 1]>);

impl Shadows {
    fn find(&self, list: ListId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&list, |(list, _)| *list)
    }

    pub fn get(&self, list: ListId) -> Option<&ListShadow> {
        self.find(list).ok().map(|at| &self.0[at].1)
    }

    pub fn get_mut(&mut self, list: ListId) -> Option<&mut ListShadow> {
        self.find(list).ok().map(|at| &mut self.0[at].1)
    }

    /// The list's shadow, made if there is none.
    pub fn of(&mut self, list: ListId) -> &mut ListShadow {
        let at = self.find(list).unwrap_or_else(|at| {
            self.0.insert(at, (list, ListShadow::default()));
            at
        });
        &mut self.0[at].1
    }

    pub fn iter(&self) -> impl Iterator<Item = (ListId, &ListShadow)> {
        self.0.iter().map(|(list, shadow)| (*list, shadow))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ListId, &mut ListShadow)> {
        self.0.iter_mut().map(|(list, shadow)| (*list, shadow))
    }
}

/// What a unit changed in one list.
#[derive(Default)]
pub(crate) struct ListShadow {
    /// Its new size in bytes.
    pub bytes: Option<u64>,
    /// The smallest size it had on the way, in blocks: what lay behind is gone.
    pub floor: Option<u64>,
    pub blocks: Blocks,
    /// The commit that is being made has cut the last block.
    pub trimmed: Option<Box<Trimmed>>,
    /// Discarded stretches; `blocks` counts before them.
    pub holes: Ranges,
    /// Where a new end lay inside of a block that the unit does not hold: what follows in that block is gone.
    pub cuts: BTreeMap<u64, usize>,
    /// The unit's list of what it had changed at its last barrier, and stretches of it that count no more.
    pub kept: Option<ListId>,
    pub fresh: Ranges,
}

/// How a last block was cut.
pub(crate) struct Trimmed {
    /// For this size in bytes.
    pub bytes: u64,
    pub block: u64,
    /// What the unit had behind it.
    pub tail: Vec<u8>,
}

impl ListShadow {
    pub fn is_hole(&self, block: u64) -> bool {
        self.floor.is_some_and(|floor| block >= floor) || self.holes.contains(block)
    }

    /// What the shadow has of a block counts no more.
    pub fn is_fresh(&self, block: u64) -> bool {
        self.fresh.contains(block)
    }

    /// Nothing but blocks.
    pub fn is_plain(&self) -> bool {
        self.holes.is_empty() && self.bytes.is_none() && self.floor.is_none() && self.cuts.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
            && self.holes.is_empty()
            && self.bytes.is_none()
            && self.floor.is_none()
            && self.kept.is_none()
    }
}
