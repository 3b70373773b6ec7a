//! What a large unit has committed and the tables do not hold yet.
//!
//! Its records stand in the log in one piece, so it is committed as a whole; but to apply a hundred thousand of them in
//! one hold of the lock would stall everybody. So they become visible as an overlay, with one store, and are folded
//! into the tables a few at a time (R16). Whoever changes a block that still waits here folds it first, so each block
//! sees its records in their order.

use crate::types::{ListId, Location, Lsn};

/// So many blocks are looked up, or folded, in one hold of the lock.
pub(crate) const FOLD_STEP: usize = 512;

/// One block that is committed and waits to be folded.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub list: ListId,
    pub block: u64,
    pub place: Location,
    pub checksum: u32,
    pub old: Location,
    /// The record that put it there.
    pub lsn: Lsn,
    /// What its unit had reserved for it.
    pub reserved: u64,
    /// It goes into a layer, and lay in a list before: no place of the unit's own.
    pub kept: bool,
    /// It lay in a list of the unit's own before.
    pub taken_over: bool,
    pub folded: bool,
}

/// The overlay: see the file's head. Ordered by list and block.
pub(crate) struct Fold {
    entries: Vec<Entry>,
    /// Everything before it is folded.
    next: usize,
    /// What the blocks that wait have reserved.
    pub reserved: u64,
}

impl Fold {
    /// None if there is nothing to fold.
    pub fn new(entries: Vec<Entry>) -> Option<Fold> {
        let reserved = entries.iter().map(|entry| entry.reserved).sum();
        (!entries.is_empty()).then_some(Fold { entries, next: 0, reserved })
    }

    fn find(&self, list: ListId, block: u64) -> Option<usize> {
        let waiting = &self.entries[self.next..];
        let at = waiting.binary_search_by_key(&(list, block), |entry| (entry.list, entry.block)).ok()?;
        (!waiting[at].folded).then_some(self.next + at)
    }

    /// Where a block that waits lies.
    pub fn get(&self, list: ListId, block: u64) -> Option<(Location, u32)> {
        self.find(list, block).map(|at| (self.entries[at].place, self.entries[at].checksum))
    }

    /// Takes out a block that waits.
    pub fn take(&mut self, list: ListId, block: u64) -> Option<Entry> {
        let at = self.find(list, block)?;
        self.entries[at].folded = true;
        self.reserved -= self.entries[at].reserved;
        Some(self.entries[at])
    }

    /// Takes out the next block that waits, in order.
    pub fn pop(&mut self) -> Option<Entry> {
        loop {
            let entry = self.entries.get_mut(self.next)?;
            self.next += 1;
            if !std::mem::replace(&mut entry.folded, true) {
                self.reserved -= entry.reserved;
                return Some(*entry);
            }
        }
    }
}

/// What others have changed while somebody prepares a commit.
#[derive(Default)]
pub(crate) struct Watch {
    pub blocks: Vec<(ListId, u64)>,
    /// More than single blocks.
    pub much: bool,
}
