//! A transaction within another one: it sees that as it was when it began, and becomes a part of it when it is committed.
//!
//! ```text
//!   outer  ───begin──────────── operations of others in it ──────────────commit of the inner one──>
//!              │ two copies                                                    ↑ now
//!              ├──> base  stays as it is                                       │ what differs between base and own,
//!              └──> own   operations of the inner one ──────────────────────> own   asked and merged as at any commit
//! ```
//! Two copies of the outer unit, since each stored block is referred to once (see `lode::Unit::copy`). *Rejected: a list of
//! what each operation replaces, to be undone*: others may go on in the outer one meanwhile, and would see it all.
//! The outer one ends those within it with itself, so whatever keeps numbers for the outer one keeps them for these, too.

use crate::commit::{Committed, Compared};
use crate::error::Result;
use crate::files::Files;
use crate::format::{FIRST, SHARE};
use crate::op::{Op, Seen, block_bytes, u64_of, usize_of, write_staged};
use crate::planted::{self, Bug};
use crate::transaction::{Conflicts, Outer, State, Transaction, Txn, ended};
use crate::types::{Ino, Time, Which};
use lode::{ListId, Unit};
use parking_lot::{RwLock, RwLockUpgradableReadGuard};
use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// So much is compared, and copied, at once.
const PIECE: u64 = 1 << 20;

/// A stretch of a list, in bytes, that is other than it was.
enum Differing {
    Stored(Which, Range<u64>),
    Hole(Which, Range<u64>),
}

impl Transaction {
    /// Begins a transaction within this one, which may go on meanwhile. Cost: copies what this one has changed twice; whoever
    /// uses this one waits for that. `Full`, `Ended`.
    pub fn begin(&self, conflicts: Conflicts, now: Time) -> Result<Transaction> {
        let files = &self.files;
        let mut outer = self.txn.unit.write();
        self.txn.whole()?;
        let unit = outer.as_mut().ok_or_else(ended)?;
        let own = files.copy_of(unit, now)?;
        let base = match files.copy_of(unit, now) {
            Ok(base) => RwLock::new(Some(base)),
            Err(error) => {
                own.abort();
                return Err(error);
            }
        };
        let number = files.transactions.next_number();
        let within = Outer { txn: Arc::clone(&self.txn), base };
        // While the outer one is held: whoever ends that finds this one.
        Ok(Transaction::of(files, Arc::new(Txn::new(number, conflicts, now, own, Some(within)))))
    }
}

impl Files {
    fn copy_of(&self, unit: &mut Unit, now: Time) -> Result<Unit> {
        let copy = unit.copy(&self.new_label(now), &mut |_, _| ControlFlow::Continue(()))?;
        Ok(copy.expect("nobody has ended it").unit)
    }

    /// See the file's head. An outer one in which this fails half-way can only be aborted.
    pub fn commit_within(&self, txn: &Txn, outer: &Outer, time: Time) -> Result<Committed> {
        // Nobody changes either from here on; the inner one first, as whoever ends one does.
        let own = txn.unit.upgradable_read();
        let now = outer.txn.unit.upgradable_read();
        let from = own.as_ref().ok_or_else(ended)?;
        txn.whole()?;
        outer.txn.whole()?;
        let (differing, merged) = {
            let compared = Compared {
                base: Op::new(self, txn.before()),
                own: Op::new(self, Seen::Beside(txn.look())),
                now: Op::new(self, Seen::Beside(outer.txn.look())),
            };
            let state = txn.state.lock();
            if !planted::is(Bug::WithinNotAsked) {
                compared.ask(&state)?;
            }
            let merged = compared.merge(Op::new(self, Seen::Beside(outer.txn.look())), None, &state, time)?;
            let mut differing = Vec::new();
            compared.differing(txn, &state, &merged.directories, &mut differing)?;
            (differing, merged)
        };
        let mut now = RwLockUpgradableReadGuard::upgrade(now);
        let unit = now.as_mut().ok_or_else(ended)?;
        let blocks = u64_of(merged.staged.len()) + differing.iter().map(Differing::blocks).sum::<u64>();
        let mut begun = false;
        let done = self.room_for(unit, blocks).and_then(|()| {
            begun = true;
            self.copy_differing(from, unit, &differing)?;
            write_staged(self, unit, &merged.staged, &mut begun)
        });
        if let Err(error) = done {
            if begun {
                outer.txn.spoil();
            }
            self.give_back_lists(&merged.lists);
            return Err(error);
        }
        let mut state = std::mem::take(&mut *txn.state.lock());
        let told = Committed::of(self.disk.position(), &state, Some(outer.txn.number));
        state.condemned.extend(merged.condemned);
        state.lists.extend(merged.lists);
        outer.txn.state.lock().take_over(state, outer.txn.conflicts);
        drop(now);
        let mut own = RwLockUpgradableReadGuard::upgrade(own);
        if let Some(unit) = own.take() {
            unit.abort();
        }
        drop(own);
        self.forget(txn);
        Ok(told)
    }

    fn copy_differing(&self, from: &Unit, into: &mut Unit, differing: &[Differing]) -> Result<()> {
        let mut bytes = Vec::new();
        for stretch in differing {
            match stretch {
                Differing::Hole(which, stretch) => {
                    into.discard(&*self.volume(*which)?, stretch.start, stretch.end - stretch.start)?;
                }
                Differing::Stored(which, stretch) => {
                    let volume = self.volume(*which)?;
                    for at in stretch.clone().step_by(usize_of(PIECE)) {
                        bytes.resize(usize_of(PIECE.min(stretch.end - at)), 0);
                        from.read_at(&volume, at, &mut bytes)?;
                        into.write_at(&volume, at, &bytes)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Differing {
    fn blocks(&self) -> u64 {
        match self {
            Differing::Hole(..) => 0,
            Differing::Stored(which, stretch) => (stretch.end - stretch.start) / u64::from(block_bytes(*which)),
        }
    }
}

impl Compared<'_> {
    /// Where what the inner one has made is other than what it began from. `merged`: directories that are put together by
    /// names.
    fn differing(&self, txn: &Txn, state: &State, merged: &BTreeSet<Ino>, into: &mut Vec<Differing>) -> Result<()> {
        let unit = txn.look();
        let unit = unit.get()?;
        for ino in &state.changed {
            let share = ino.0 * SHARE;
            let first = if merged.contains(ino) { share + FIRST } else { share };
            self.differing_in(unit, Which::Inodes, ino.0..ino.0 + 1, into)?;
            self.differing_in(unit, Which::Content, first..share + SHARE, into)?;
            self.differing_in(unit, Which::Orphans, ino.0..ino.0 + 1, into)?;
            let list = self.own.find_inode(*ino)?.map_or(0, |inode| inode.head.list);
            if list != 0 && !merged.contains(ino) {
                self.differing_in(unit, Which::Own(ListId(list)), 0..u64::MAX, into)?;
            }
        }
        for list in state.lists.union(&state.condemned) {
            let list = u64::from(list.0);
            self.differing_in(unit, Which::Owners, list..list + 1, into)?;
        }
        Ok(())
    }

    /// The same for some blocks of a list.
    fn differing_in(&self, unit: &Unit, which: Which, blocks: Range<u64>, into: &mut Vec<Differing>) -> Result<()> {
        let volume = self.own.files.volume(which)?;
        let size = u64::from(block_bytes(which));
        let end = blocks.end.min(self.own.files.blocks_max(which));
        let mut at = blocks.start;
        while let Some(found) = unit.next_changed(&volume, at)?.filter(|found| found.start < end) {
            at = found.end.min(end);
            // Neighbours are looked at together.
            while at < end && (at - found.start) * size < PIECE {
                match unit.next_changed(&volume, at)? {
                    Some(next) if next.start == at => at = next.end.min(end),
                    _ => break,
                }
            }
            self.compare(which, found.start * size..at * size, into)?;
        }
        Ok(())
    }

    fn compare(&self, which: Which, stretch: Range<u64>, into: &mut Vec<Differing>) -> Result<()> {
        let mut at = stretch.start;
        while at < stretch.end {
            let stored = self.own.seek(which, false, at..stretch.end)?.unwrap_or(stretch.end);
            if at < stored && self.base.seek(which, false, at..stored)?.is_some() {
                into.push(Differing::Hole(which, at..stored));
            }
            at = stored;
            if at < stretch.end {
                let hole = self.own.seek(which, true, at..stretch.end)?.unwrap_or(stretch.end);
                self.compare_stored(which, at..hole, into)?;
                at = hole;
            }
        }
        Ok(())
    }

    /// The same where all of it is stored.
    fn compare_stored(&self, which: Which, stretch: Range<u64>, into: &mut Vec<Differing>) -> Result<()> {
        let size = usize_of(block_bytes(which).into());
        let (mut own, mut base) = (Vec::new(), Vec::new());
        for start in stretch.clone().step_by(usize_of(PIECE)) {
            let len = usize_of(PIECE.min(stretch.end - start));
            own.resize(len, 0);
            base.resize(len, 0);
            self.own.read_at(which, start, &mut own)?;
            self.base.read_at(which, start, &mut base)?;
            for (n, (own, base)) in own.chunks(size).zip(base.chunks(size)).enumerate() {
                let at = start + u64_of(n * size);
                let end = at + u64_of(size);
                if own == base && self.base.seek(which, false, at..end)?.is_some() {
                    continue;
                }
                match into.last_mut() {
                    Some(Differing::Stored(list, last)) if *list == which && last.end == at => last.end = end,
                    _ => into.push(Differing::Stored(which, at..end)),
                }
            }
        }
        Ok(())
    }
}
