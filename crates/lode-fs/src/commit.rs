//! The commit of a transaction: what it changed and read is compared with what others have committed since it began, and
//! what both have changed without a conflict is put together.
//!
//! ```text
//!   base  what was committed when it began       own   what it has made of that
//!   now   what is committed                      merged = now, with what differs between base and own
//! ```
//! An inode counts changes of its content and attributes (`version`) apart from those of its names and entries (`turns`):
//! two that change the version of one inode are in conflict, two that change its turns are not unless they mean one name.

use crate::error::{Error, ErrorKind, Result};
use crate::files::Files;
use crate::format::{BLOCK, FIRST, SHARE};
use crate::inodes::Inode;
use crate::names::Named;
use crate::op::{Op, Seen, Staged, u64_of};
use crate::planted::{self, Bug};
use crate::transaction::{State, Transaction, Txn, ended};
use crate::types::{Ino, Time, Which};
use lode::{ListId, Lsn, Unit};
use parking_lot::RwLockUpgradableReadGuard;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// What a commit has changed, for who has copies of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// A position to flush up to.
    pub position: Lsn,
    /// Inodes whose content or attributes are others now, or that are gone.
    pub inodes: Vec<Ino>,
    /// Names that mean something else.
    pub names: Vec<(Ino, Vec<u8>)>,
    /// The number of the transaction that it has become a part of.
    pub within: Option<u64>,
}

/// The three states that a commit compares.
pub(crate) struct Compared<'a> {
    pub base: Op<'a>,
    pub own: Op<'a>,
    pub now: Op<'a>,
}

/// What both have changed, as it is to be.
#[derive(Default)]
pub(crate) struct Merged {
    /// Blocks.
    pub staged: Vec<Staged>,
    /// Lists that nobody needs.
    pub condemned: Vec<ListId>,
    /// Lists that it needs.
    pub lists: Vec<ListId>,
    /// The directories among it.
    pub directories: BTreeSet<Ino>,
}

impl Transaction {
    /// Everything that the transaction did counts from now on, in one step: for all, or in the transaction that it is within.
    /// `Conflict`: others have changed what it changed or read; the message names the path. `Failed`: something in it was
    /// done half-way. The transaction is still open then. Cost: follows what it changed and read; whoever changes something
    /// waits meanwhile, whoever reads does not.
    pub fn commit(&self, now: Time) -> Result<Committed> {
        match &self.txn.outer {
            None => self.files.commit(&self.txn, now),
            Some(outer) => self.files.commit_within(&self.txn, outer, now),
        }
    }
}

impl Files {
    fn commit(&self, txn: &Txn, time: Time) -> Result<Committed> {
        let gate = self.shut();
        // Nobody changes the transaction from here on.
        let unit = txn.unit.upgradable_read();
        txn.whole()?;
        let merged = {
            let compared = Compared {
                base: Op::new(self, txn.before()),
                own: Op::new(self, Seen::Beside(txn.look())),
                now: self.alone(),
            };
            let state = txn.state.lock();
            compared.ask(&state)?;
            compared.merge(self.alone(), Some(txn), &state, time)?
        };
        let mut unit = RwLockUpgradableReadGuard::upgrade(unit);
        let taken = unit.as_mut().ok_or_else(ended)?;
        let position = self.commit_merged(txn, taken, &merged).inspect_err(|_| self.give_back_lists(&merged.lists))?;
        self.locks.all_changed(position);
        *unit = None;
        drop(unit);
        let state = std::mem::take(&mut *txn.state.lock());
        self.forget(txn);
        self.free_numbers(&state.freed.iter().copied().collect::<Vec<Ino>>());
        drop(gate);
        self.fill_reserve();
        let condemned: Vec<ListId> = state.condemned.iter().chain(&merged.condemned).copied().collect();
        self.condemn(&condemned);
        // What has lost its last name.
        for ino in state.changed.iter().filter(|ino| !state.freed.contains(ino)) {
            let nameless =
                self.look(&[*ino], |op| Ok(op.find_inode(*ino)?.is_some_and(|inode| inode.head.links == 0)))?;
            if nameless {
                self.reap(*ino, time)?;
            }
        }
        Ok(Committed::of(position, &state, None))
    }

    fn commit_merged(&self, txn: &Txn, unit: &mut Unit, merged: &Merged) -> Result<Lsn> {
        if planted::is(Bug::MergedApart) {
            let mut apart = self.disk.begin()?;
            crate::op::write_staged(self, &mut apart, &merged.staged, &mut false)?;
            apart.commit()?;
        } else if !merged.staged.is_empty() {
            self.room_for(unit, u64_of(merged.staged.len()) + 1)?;
            crate::op::write_staged(self, unit, &merged.staged, &mut false).inspect_err(|_| txn.spoil())?;
        }
        self.commits.fetch_add(1, Ordering::AcqRel);
        let done = unit.try_commit();
        self.commits.fetch_add(1, Ordering::AcqRel);
        if done.is_err() && !merged.staged.is_empty() {
            // What was put together belongs to this moment.
            txn.spoil();
        }
        Ok(done?)
    }
}

impl Committed {
    pub(crate) fn of(position: Lsn, state: &State, within: Option<u64>) -> Committed {
        Committed {
            position,
            inodes: state.changed.iter().filter(|ino| !state.made.contains(ino)).copied().collect(),
            names: state.names.iter().cloned().collect(),
            within,
        }
    }
}

impl Compared<'_> {
    fn conflict(&self, what: impl FnOnce(&Op<'_>) -> String) -> Error {
        Error::new(ErrorKind::Conflict, format!("{} was changed by others meanwhile", what(&self.own)))
    }

    /// Whether what the transaction did has a meaning on what is committed now.
    pub fn ask(&self, state: &State) -> Result<()> {
        for ino in state.changed.iter().chain(&state.read.inodes).filter(|ino| !state.made.contains(ino)) {
            let (base, now) = (self.base.find_inode(*ino)?, self.now.find_inode(*ino)?);
            let own = self.own.find_inode(*ino)?;
            let (Some(base), Some(now)) = (&base, &now) else {
                if base.is_some() != now.is_some() {
                    return Err(self.conflict(|own| self.path(own, *ino)));
                }
                continue;
            };
            let touched = own.as_ref().is_none_or(|own| own.head.version != base.head.version);
            let matters = touched || state.read.inodes.contains(ino);
            let other = base.head.generation != now.head.generation;
            let matters = matters && !planted::is(Bug::VersionsNotAsked);
            if other || (matters && base.head.version != now.head.version) {
                return Err(self.conflict(|own| self.path(own, *ino)));
            }
            // One that loses its last name here, and got another one there, keeps that. A directory must be empty.
            let gone = own.is_none_or(|own| own.head.links == 0);
            if gone && base.is_directory() && base.head.turns != now.head.turns {
                return Err(self.conflict(|own| self.path(own, *ino)));
            }
        }
        for (directory, name) in state.names.iter().chain(&state.read.names) {
            if !state.made.contains(directory) && !self.same_name(*directory, name)? {
                return Err(self.conflict(|own| self.path_of_name(own, *directory, name)));
            }
        }
        for directory in state.read.lists.iter().filter(|ino| !state.made.contains(ino)) {
            let turns = |op: &Op<'_>| -> Result<_> { Ok(op.find_inode(*directory)?.map(|inode| inode.head.turns)) };
            if turns(&self.base)? != turns(&self.now)? {
                return Err(self.conflict(|own| self.path(own, *directory)));
            }
        }
        for directory in state.read.places.iter().filter(|ino| !state.made.contains(ino)) {
            let place = |op: &Op<'_>| -> Result<_> { Ok(op.find_inode(*directory)?.map(|inode| inode.head.parent)) };
            if place(&self.base)? != place(&self.now)? {
                return Err(self.conflict(|own| self.path(own, *directory)));
            }
        }
        Ok(())
    }

    fn named(op: &Op<'_>, directory: Ino, name: &[u8]) -> Result<Option<Named>> {
        match op.find_inode(directory)? {
            Some(inode) if inode.is_directory() && inode.head.links > 0 => op.find_name(&inode, name),
            _ => Ok(None),
        }
    }

    fn same_name(&self, directory: Ino, name: &[u8]) -> Result<bool> {
        if planted::is(Bug::NamesNotAsked) {
            return Ok(true);
        }
        let there =
            |op: &Op<'_>| -> Result<_> { Ok(op.find_inode(directory)?.is_some_and(|inode| inode.head.links > 0)) };
        if there(&self.base)? != there(&self.now)? {
            return Ok(false);
        }
        let meaning = |op: &Op<'_>| -> Result<_> { Ok(Self::named(op, directory, name)?.map(|named| named.ino)) };
        Ok(meaning(&self.base)? == meaning(&self.now)?)
    }

    /// What both have changed, as it is to be. `merged`: an operation on what is now. `txn`: its own blocks of such
    /// directories are in the unit that is committed.
    pub fn merge(&self, mut merged: Op<'_>, txn: Option<&Txn>, state: &State, time: Time) -> Result<Merged> {
        let mut found = Merged::default();
        for ino in state.changed.iter().filter(|ino| !state.made.contains(ino) && !state.freed.contains(ino)) {
            let (Some(base), Some(own), Some(now)) =
                (self.base.find_inode(*ino)?, self.own.find_inode(*ino)?, self.now.find_inode(*ino)?)
            else {
                continue;
            };
            let same = |a: &Inode, b: &Inode| a.head == b.head && a.behind == b.behind;
            if same(&base, &now) {
                continue;
            }
            if own.is_directory() && own.head.links > 0 {
                found.directories.insert(*ino);
                if let Some(txn) = txn.filter(|_| !planted::is(Bug::BucketsNotTakenBack)) {
                    self.take_back_buckets(&mut merged, txn, &own)?;
                }
                self.merge_directory(&mut merged, state, (&base, &own, now), &mut found.condemned)?;
            } else {
                self.merge_file(&mut merged, (&base, &own, &now), time)?;
            }
        }
        (found.staged, found.lists) = merged.into_staged();
        Ok(found)
    }

    /// Content and attributes are of the one who changed them; names of both count.
    fn merge_file(&self, merged: &mut Op<'_>, (base, own, now): (&Inode, &Inode, &Inode), time: Time) -> Result<()> {
        let touched = own.head.version != base.head.version;
        let mut inode = if touched { own.clone() } else { now.clone() };
        inode.head.links = (now.head.links + own.head.links).saturating_sub(base.head.links);
        inode.head.turns = now.head.turns + 1;
        inode.head.changed = now.head.changed.max(own.head.changed);
        if own.head.turns == base.head.turns {
            inode.head.parent = now.head.parent;
        }
        let orphan = (inode.head.links == 0).then(|| vec![1]);
        if inode.head.links == 0 {
            inode.touch(time);
        }
        merged.stage(Which::Orphans, inode.head.number, orphan);
        merged.put_inode(&inode);
        Ok(())
    }

    fn merge_directory(
        &self,
        merged: &mut Op<'_>,
        state: &State,
        (base, own, now): (&Inode, &Inode, Inode),
        condemned: &mut Vec<ListId>,
    ) -> Result<()> {
        let ino = now.ino();
        let mut inode = now.clone();
        if inode.head.list == 0 {
            inode.head.list = own.head.list;
        } else if own.head.list != 0 && own.head.list != inode.head.list {
            merged.stage(Which::Owners, u64::from(own.head.list), None);
            condemned.push(ListId(own.head.list));
        }
        // Its buckets are as they are now, with the names that the transaction changed.
        let names: BTreeSet<&Vec<u8>> =
            state.names.range((ino, Vec::new())..(Ino(ino.0 + 1), Vec::new())).map(|(_, name)| name).collect();
        for name in names {
            let (wanted, there) = (self.own.find_name(own, name)?, merged.find_name(&inode, name)?);
            match (wanted, there) {
                (Some(wanted), Some(there)) if wanted.ino == there.ino => {}
                (Some(wanted), Some(_)) => merged.replace_name(&mut inode, name, wanted.ino, wanted.kind)?,
                (Some(wanted), None) => merged.insert_name(&mut inode, name, wanted.ino, wanted.kind)?,
                (None, Some(_)) => drop(merged.remove_name(&mut inode, name)?),
                (None, None) => {}
            }
        }
        let touched = own.head.version != base.head.version;
        if touched {
            let of = own.head;
            (inode.head.mode, inode.head.uid, inode.head.gid) = (of.mode, of.uid, of.gid);
            (inode.head.accessed, inode.head.version) = (of.accessed, of.version);
            (inode.head.attributes, inode.behind) = (of.attributes, own.behind.clone());
        }
        if own.head.parent != base.head.parent {
            inode.head.parent = own.head.parent;
        }
        inode.head.links = (now.head.links + own.head.links).saturating_sub(base.head.links);
        inode.head.turns = now.head.turns + 1;
        inode.head.modified = now.head.modified.max(own.head.modified);
        inode.head.changed = now.head.changed.max(own.head.changed);
        merged.put_inode(&inode);
        Ok(())
    }

    /// The buckets of a directory that the transaction has changed are to be as they are now.
    fn take_back_buckets(&self, merged: &mut Op<'_>, txn: &Txn, own: &Inode) -> Result<()> {
        for (which, block) in self.buckets_changed(txn, own)? {
            let mut bytes = vec![0; usize::try_from(BLOCK).expect("small")];
            merged.block(which, block, &mut bytes)?;
            let there = bytes.iter().any(|byte| *byte != 0);
            merged.stage(which, block, there.then_some(bytes));
        }
        Ok(())
    }

    /// The blocks of a directory's buckets that the transaction has changed.
    fn buckets_changed(&self, txn: &Txn, own: &Inode) -> Result<Vec<(Which, u64)>> {
        let unit = txn.look();
        let share = own.head.number * SHARE;
        let mut blocks = self.changed_in(unit.get()?, Which::Content, share..share + FIRST)?;
        if own.head.list != 0 {
            blocks.extend(self.changed_in(unit.get()?, Which::Own(ListId(own.head.list)), 0..u64::MAX)?);
        }
        Ok(blocks)
    }

    fn changed_in(&self, unit: &Unit, which: Which, range: Range<u64>) -> Result<Vec<(Which, u64)>> {
        let volume = self.own.files.volume(which)?;
        let end = range.end.min(self.own.files.blocks_max(which));
        let (mut blocks, mut at) = (Vec::new(), range.start);
        while let Some(found) = unit.next_changed(&volume, at)?.filter(|found| found.start < end) {
            at = found.end.min(end);
            blocks.extend((found.start..at).map(|block| (which, block)));
        }
        Ok(blocks)
    }

    fn path(&self, op: &Op<'_>, ino: Ino) -> String {
        let found = op.path(ino).or_else(|| self.base.path(ino)).or_else(|| self.now.path(ino));
        found.unwrap_or_else(|| ino.to_string())
    }

    fn path_of_name(&self, op: &Op<'_>, directory: Ino, name: &[u8]) -> String {
        let directory = self.path(op, directory);
        format!("{}/{}", directory.trim_end_matches('/'), String::from_utf8_lossy(name))
    }
}
