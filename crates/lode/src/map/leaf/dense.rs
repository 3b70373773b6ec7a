//! Leaves with many blocks: an array.

use super::Packed;
use crate::types::Location;

/// Blocks in one line of the processor's cache.
const PER_LINE: u32 = 5;

/// Five blocks, and a bit for each that has changed: a line of the processor's cache.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line {
    packed: [Packed; PER_LINE as usize],
    changed: u32,
}

/// An array of blocks.
pub(super) struct Dense(Box<[Line]>);

impl Dense {
    pub fn new(capacity: u32) -> Dense {
        Dense(vec![Line::default(); capacity.div_ceil(PER_LINE) as usize].into())
    }

    pub fn memory(&self) -> usize {
        size_of_val(&*self.0)
    }

    pub fn get(&self, at: u32) -> Packed {
        self.0[(at / PER_LINE) as usize].packed[(at % PER_LINE) as usize]
    }

    /// Gives back where it was.
    pub fn set(&mut self, at: u32, packed: Packed) -> Location {
        let line = &mut self.0[(at / PER_LINE) as usize];
        std::mem::replace(&mut line.packed[(at % PER_LINE) as usize], packed).place()
    }

    pub fn mark(&mut self, at: u32) {
        self.0[(at / PER_LINE) as usize].changed |= 1 << (at % PER_LINE);
    }

    pub fn is_marked(&self, at: u32) -> bool {
        self.0[(at / PER_LINE) as usize].changed >> (at % PER_LINE) & 1 == 1
    }

    pub fn unmark_all(&mut self) {
        self.0.iter_mut().for_each(|line| line.changed = 0);
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, Packed)> + '_ {
        (0..).zip(self.0.iter().flat_map(|line| line.packed)).filter(|(_, packed)| !packed.place().is_none())
    }
}
