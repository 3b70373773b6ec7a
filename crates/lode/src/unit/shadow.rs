//! What a unit changed and nobody else sees: blocks, holes, sizes.

use crate::types::{Kind, ListId, index, len_u32};
use std::collections::BTreeMap;

/// Bytes of a chunk of an [`Arena`]: the largest block fits.
const CHUNK: usize = 64 << 10;

/// Bytes of blocks, one behind the other in chunks that are given back together: a unit of many blocks asks the allocator
/// for few things.
#[derive(Default)]
pub(crate) struct Arena {
    chunks: Vec<Vec<u8>>,
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
    /// Takes in a copy. `fresh` gives an empty chunk.
    pub fn push(&mut self, bytes: &[u8], fresh: impl FnOnce() -> Vec<u8>) -> Piece {
        if self.chunks.last().is_none_or(|chunk| chunk.capacity() - chunk.len() < bytes.len()) {
            let mut chunk = fresh();
            chunk.reserve_exact(CHUNK.max(bytes.len()));
            self.chunks.push(chunk);
        }
        let chunk = self.chunks.last_mut().expect("just made");
        let start = len_u32(chunk.len());
        chunk.extend_from_slice(bytes);
        Piece { chunk: len_u32(self.chunks.len() - 1), start, len: len_u32(bytes.len()) }
    }

    /// Puts other bytes of the same length in the place of old ones.
    pub fn replace(&mut self, piece: Piece, bytes: &[u8]) {
        self.chunks[index(piece.chunk)][index(piece.start)..index(piece.start + piece.len)].copy_from_slice(bytes);
    }

    pub fn get(&self, piece: Piece) -> &[u8] {
        &self.chunks[index(piece.chunk)][index(piece.start)..index(piece.start + piece.len)]
    }

    /// Bytes that it holds, dead ones included.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Forgets everything and gives back the chunks, emptied.
    pub fn clear(&mut self) -> impl Iterator<Item = Vec<u8>> {
        std::mem::take(&mut self.chunks).into_iter().map(|mut chunk| {
            chunk.clear();
            chunk
        })
    }
}

/// A block of a unit.
#[derive(Clone, Copy)]
pub(crate) enum Shadow {
    /// In memory, as it will be stored.
    Data { piece: Piece, kind: Kind, checksum: u32 },
    /// In the log; the place is in [`crate::disk::Core::spilled`].
    Spilled,
}

/// What a unit changed in each list, ordered by list; most units change one or two.
#[derive(Default)]
pub(crate) struct Shadows(Vec<(ListId, ListShadow)>);

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
    pub blocks: BTreeMap<u64, Shadow>,
    /// Discarded stretches; `blocks` counts before them.
    pub holes: Vec<(u64, u64)>,
    /// Where a new end lay inside of a block that the unit does not hold: what follows in that block is gone.
    pub cuts: BTreeMap<u64, usize>,
}

impl ListShadow {
    pub fn is_hole(&self, block: u64) -> bool {
        self.floor.is_some_and(|floor| block >= floor)
            || self.holes.iter().any(|(first, end)| (*first..*end).contains(&block))
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.holes.is_empty() && self.bytes.is_none() && self.floor.is_none()
    }
}
