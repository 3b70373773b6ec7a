//! Numbers of inodes that are free: those freed in this opening, then holes found by looking through the map a piece at a
//! time, then new ones. A number that a transaction may still see is not given out before that has ended.

use crate::error::Result;
use crate::format::INODE_BLOCK;
use crate::types::Ino;
use lode::Volume;
use std::collections::{BTreeSet, VecDeque};

/// So many numbers are looked at in one step.
const STEP: u64 = 1024;
/// 0 is the superblock, 1 the root.
const FIRST: u64 = 2;

/// See the file's head.
pub(crate) struct Numbers {
    free: Vec<u64>,
    /// Freed while transactions were open: the newest of them, and the number.
    seen: VecDeque<(u64, u64)>,
    /// Below this all holes are known.
    looked: u64,
    /// Up to here there may be holes.
    end: u64,
    /// From here on all are free.
    top: u64,
    /// Not in the map, and yet not free: of transactions that an opening found.
    kept: BTreeSet<u64>,
}

impl Numbers {
    pub fn new() -> Numbers {
        Numbers {
            free: Vec::new(),
            seen: VecDeque::new(),
            looked: FIRST,
            end: FIRST,
            top: FIRST,
            kept: BTreeSet::new(),
        }
    }

    /// Which numbers are in use is found in the map of the inodes.
    pub fn begin_at(&mut self, inodes: &Volume) -> Result<()> {
        self.top = inodes.last_stored()?.map_or(FIRST, |last| (last + 1).max(FIRST));
        self.end = self.top;
        Ok(())
    }

    pub fn keep(&mut self, inodes: impl Iterator<Item = Ino>) {
        for Ino(ino) in inodes {
            self.kept.insert(ino);
            self.top = self.top.max(ino + 1);
        }
    }

    /// Looks for holes, if there is nothing better. `alone`: no transaction is open, so that a hole is one for all.
    pub fn look_for_holes(&mut self, inodes: &Volume, alone: bool) -> Result<()> {
        if !alone || !self.free.is_empty() || self.looked >= self.end {
            return Ok(());
        }
        let stop = (self.looked + STEP).min(self.end);
        let block = u64::from(INODE_BLOCK);
        for extent in inodes.extents(self.looked * block, (stop - self.looked) * block)? {
            if !extent.allocated {
                let holes = extent.offset / block..(extent.offset + extent.bytes) / block;
                self.free.extend(holes.rev().filter(|ino| !self.kept.contains(ino)));
            }
        }
        self.free.sort_unstable_by(|a, b| b.cmp(a));
        self.looked = stop;
        Ok(())
    }

    /// `oldest`: of the transactions that are open.
    pub fn take(&mut self, max: u64, oldest: Option<u64>) -> Option<Ino> {
        while let Some((newest, ino)) = self.seen.front().copied()
            && oldest.is_none_or(|oldest| oldest > newest)
        {
            self.seen.pop_front();
            self.free.push(ino);
        }
        if let Some(ino) = self.free.pop() {
            return Some(Ino(ino));
        }
        let ino = self.top;
        if ino >= max {
            return None;
        }
        self.top += 1;
        Some(Ino(ino))
    }

    /// Whether the next look through the map will find it.
    fn is_found_later(&self, ino: u64) -> bool {
        (self.looked..self.end).contains(&ino)
    }

    /// Taken, and not used.
    pub fn give_back(&mut self, inodes: &[Ino]) {
        for Ino(ino) in inodes {
            self.kept.remove(ino);
            if !self.is_found_later(*ino) {
                self.free.push(*ino);
            }
        }
    }

    /// Not used any more. `newest`: of the transactions that are open, and may see them.
    pub fn free(&mut self, inodes: &[Ino], newest: Option<u64>) {
        for Ino(ino) in inodes {
            self.kept.remove(ino);
            if self.is_found_later(*ino) {
                continue;
            }
            match newest {
                None => self.free.push(*ino),
                Some(newest) => self.seen.push_back((newest, *ino)),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_a_transaction_may_see_waits_for_its_end() {
        let mut numbers = Numbers::new();
        let taken: Vec<u64> = (0..4).map(|_| numbers.take(100, None).unwrap().0).collect();
        assert_eq!(taken, [2, 3, 4, 5]);
        numbers.give_back(&[Ino(4)]);
        numbers.free(&[Ino(2)], Some(7));
        numbers.free(&[Ino(3)], Some(8));
        assert_eq!(numbers.take(100, Some(5)), Some(Ino(4)));
        assert_eq!(numbers.take(100, Some(7)), Some(Ino(6)));
        assert_eq!(numbers.take(100, Some(8)), Some(Ino(2)));
        assert_eq!(numbers.take(7, Some(8)), None, "all that there can be");
        assert_eq!(numbers.take(7, None), Some(Ino(3)));
    }
}
