//! Leaves with few blocks, wherever they lie: which are there, and these one behind the other.

use super::Packed;
use crate::types::{Location, len_u32};
use std::ops::Range;

/// Which of 64 blocks are there, how many are before them, and which have changed.
#[derive(Clone, Copy, Default)]
struct Word {
    bits: u64,
    changed: u64,
    before: u16,
}

/// A bit for each block; where those that are there lie, in order. Looking for one that is not there costs a bit.
pub(super) struct Sparse {
    words: Box<[Word]>,
    packed: Vec<Packed>,
}

impl Sparse {
    pub fn new(capacity: u32) -> Sparse {
        Sparse { words: vec![Word::default(); (capacity as usize).div_ceil(64)].into(), packed: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.packed.len()
    }

    pub fn memory(&self) -> usize {
        self.words.len() * size_of::<Word>() + self.packed.capacity() * size_of::<Packed>()
    }

    /// Where in `packed` the block is, or would be.
    fn rank(&self, at: u32) -> (usize, bool) {
        let (word, bit) = (self.words[at as usize / 64], 1 << (at % 64));
        let before = usize::from(word.before) + (word.bits & (bit - 1)).count_ones() as usize;
        (before, word.bits & bit != 0)
    }

    pub fn get(&self, at: u32) -> Packed {
        let (rank, there) = self.rank(at);
        if there { self.packed[rank] } else { Packed::default() }
    }

    /// How many blocks of a range are there.
    pub fn stored_in(&self, blocks: Range<u32>) -> u32 {
        let before = |at: u32| match self.words.get(at as usize / 64) {
            Some(_) => self.rank(at).0,
            None => self.packed.len(),
        };
        len_u32(before(blocks.end) - before(blocks.start))
    }

    /// Gives back where it was.
    pub fn set(&mut self, at: u32, packed: Packed) -> Location {
        let (rank, there) = self.rank(at);
        let is_hole = packed.place().is_none();
        match (there, is_hole) {
            (true, false) => return std::mem::replace(&mut self.packed[rank], packed).place(),
            (false, true) => return Location::NONE,
            _ => {}
        }
        self.words[at as usize / 64].bits ^= 1 << (at % 64);
        for word in &mut self.words[at as usize / 64 + 1..] {
            word.before = if is_hole { word.before - 1 } else { word.before + 1 };
        }
        if is_hole {
            return self.packed.remove(rank).place();
        }
        self.packed.insert(rank, packed);
        Location::NONE
    }

    pub fn mark(&mut self, at: u32) {
        self.words[at as usize / 64].changed |= 1 << (at % 64);
    }

    pub fn is_marked(&self, at: u32) -> bool {
        self.words[at as usize / 64].changed >> (at % 64) & 1 == 1
    }

    pub fn unmark_all(&mut self) {
        self.words.iter_mut().for_each(|word| word.changed = 0);
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, Packed)> + '_ {
        let there = (0..).zip(&self.words).flat_map(|(n, word)| {
            let mut bits = word.bits;
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros();
                bits &= bits.wrapping_sub(1);
                (bit < 64).then_some(n * 64 + bit)
            })
        });
        there.zip(self.packed.iter().copied())
    }
}
