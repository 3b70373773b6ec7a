//! Where operations are done: on what is committed, in a transaction, or (to be looked at) in a snapshot.

use crate::error::{Error, ErrorKind, Result};
use crate::files::Files;
use crate::inodes::Inode;
use crate::op::{Op, Seen};
use crate::planted::{self, Bug};
use crate::snapshots::Snapshot;
use crate::transaction::{Guard, Txn};
use crate::types::{Attributes, Ino, Time};
use std::collections::HashMap;
use std::sync::Arc;

/// What somebody sees of the file system, and changes: what is committed, where each operation is a unit of its own, or a
/// transaction. A snapshot never changes.
#[derive(Clone)]
pub struct View {
    pub(crate) files: Arc<Files>,
    pub(crate) of: Of,
    /// What it hands out is held until it is let go of.
    holding: bool,
}

/// What a view is of.
#[derive(Clone)]
pub(crate) enum Of {
    Now,
    Transaction(Arc<Txn>),
    Snapshot(Arc<Snapshot>),
}

impl View {
    pub(crate) fn new(files: Arc<Files>, of: Of, holding: bool) -> View {
        View { files, of, holding }
    }

    /// Looks at inodes as they are at one instant.
    pub(crate) fn look<T>(&self, inodes: &[Ino], mut look: impl FnMut(&Op<'_>) -> Result<T>) -> Result<T> {
        let seen = match &self.of {
            Of::Now => return self.files.look(inodes, look),
            Of::Transaction(txn) => Seen::Within(txn, Guard::Look(txn.unit.read())),
            Of::Snapshot(snapshot) => snapshot.seen(),
        };
        look(&Op::new(&self.files, seen))
    }

    /// The same for who looks at no inodes but these.
    pub(crate) fn look_only<T>(&self, inodes: &[Ino], look: impl FnMut(&Op<'_>) -> Result<T>) -> Result<T> {
        match &self.of {
            Of::Now => self.files.look_only(inodes, look),
            _ => self.look(inodes, look),
        }
    }

    /// An operation that may change these inodes.
    pub(crate) fn change(&self, inodes: &[Ino]) -> Op<'_> {
        let seen = match &self.of {
            Of::Now => return self.files.change(inodes),
            Of::Transaction(txn) => Seen::Within(txn, Guard::Change(txn.unit.write())),
            // It is told so at its end.
            Of::Snapshot(snapshot) => snapshot.seen(),
        };
        Op::new(&self.files, seen)
    }

    /// What is told about an inode; it is held if this view's user wants that. Called while it is locked.
    pub(crate) fn hand_out(&self, inode: &Inode) -> Attributes {
        if self.holding {
            self.held(|held| *held.entry(inode.ino()).or_default() += 1);
        }
        inode.attributes()
    }

    /// Looks for an inode and hands it out. Where the look is repeated, only what the last one found is held.
    pub(crate) fn look_for(
        &self,
        inodes: &[Ino],
        mut find: impl FnMut(&Op<'_>) -> Result<Inode>,
    ) -> Result<Attributes> {
        let mut given = None;
        self.look(inodes, |op| {
            if let Some(before) = given.take() {
                self.let_go(before, 1);
            }
            let inode = find(op)?;
            given = Some(inode.ino());
            Ok(self.hand_out(&inode))
        })
    }

    /// One that was handed out so often is not any more. Whether nobody else holds it.
    fn let_go(&self, ino: Ino, times: u64) -> bool {
        self.held(|held| {
            let Some(count) = held.get_mut(&ino) else { return false };
            *count = count.saturating_sub(times);
            let last = *count == 0;
            if last {
                held.remove(&ino);
            }
            last
        })
    }

    fn held<T: Default>(&self, with: impl FnOnce(&mut HashMap<Ino, u64>) -> T) -> T {
        match &self.of {
            Of::Now => with(&mut self.files.held.lock()),
            Of::Transaction(txn) => with(&mut txn.state.lock().held),
            // All that it ever had stays.
            Of::Snapshot(_) => T::default(),
        }
    }

    pub(crate) fn is_held(&self, ino: Ino) -> bool {
        self.held(|held| held.contains_key(&ino))
    }

    /// Lets go of an inode that was handed out `times` times. Without a name and held by nobody it is gone.
    pub fn release(&self, ino: Ino, times: u64, now: Time) -> Result<()> {
        if !self.let_go(ino, times) {
            return Ok(());
        }
        let nameless = self.look(&[ino], |op| Ok(op.find_inode(ino)?.is_some_and(|inode| inode.head.links == 0)))?;
        match &self.of {
            _ if !nameless => Ok(()),
            Of::Snapshot(_) => Ok(()),
            Of::Now => self.files.reap(ino, now),
            Of::Transaction(txn) => {
                // What others may see goes once the transaction is committed.
                let made = txn.state.lock().made.contains(&ino);
                let mut op = self.change(&[ino]);
                match op.find_inode(ino)?.filter(|inode| made && inode.head.links == 0) {
                    Some(inode) if !self.is_held(ino) => {
                        op.remove(inode, now)?;
                        op.stage(crate::types::Which::Orphans, ino.0, None);
                        op.finish().map(drop)
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// Whether an inode that loses its last name can go at once: in a transaction only what it made itself.
    pub(crate) fn may_go(&self, ino: Ino) -> bool {
        let own = match &self.of {
            Of::Transaction(txn) => txn.state.lock().made.contains(&ino),
            Of::Now | Of::Snapshot(_) => true,
        };
        own && !self.is_held(ino)
    }

    pub(crate) fn stale(ino: Ino) -> Error {
        Error::new(ErrorKind::NotFound, format!("{ino} has no name any more"))
    }
}

impl Op<'_> {
    /// An inode, its content and its attributes are no more.
    pub fn remove(&mut self, mut inode: Inode, now: Time) -> Result<()> {
        inode.touch(now);
        self.frees = true;
        if inode.is_directory() {
            self.drop_buckets(&mut inode);
        } else {
            self.drop_content(&mut inode)?;
        }
        self.drop_attributes(&mut inode);
        self.remove_inode(inode.ino());
        Ok(())
    }

    /// An inode has lost its last name.
    pub fn unname(&mut self, view: &View, inode: Inode, now: Time) -> Result<()> {
        self.frees = true;
        if view.may_go(inode.ino()) {
            return self.remove(inode, now);
        }
        self.put_inode(&inode);
        if !planted::is(Bug::OrphanNotMarked) {
            self.stage(crate::types::Which::Orphans, inode.ino().0, Some(vec![1]));
        }
        Ok(())
    }
}

/// So many inodes go in one unit.
const REAPED_AT_ONCE: usize = 64;
/// A program runs with the rights of its file's owner, of its file's group, if these are set.
const MODE_SETUID: u32 = 0o4000;
const MODE_GROUP_RUNS: u32 = 0o2010;
/// The attribute that says what a program may beyond who runs it.
const CAPABILITIES: &[u8] = b"security.capability";

impl View {
    /// [`View::release`] of many: those that are gone by that go in a few units instead of one each. Others may work on
    /// them in between. The first error is given back, behind the last of them.
    pub fn release_all(&self, all: &[(Ino, u64)], now: Time) -> Result<()> {
        let mut first = Ok(());
        if !matches!(self.of, Of::Now) {
            for (ino, times) in all {
                first = first.and(self.release(*ino, *times, now));
            }
            return first;
        }
        let mut nameless = Vec::new();
        for (ino, times) in all {
            let links = |op: &Op<'_>| Ok(op.find_inode(*ino)?.map(|inode| inode.head.links));
            match self.let_go(*ino, *times).then(|| self.look(&[*ino], links)) {
                Some(Ok(Some(0))) => nameless.push(*ino),
                Some(Err(error)) => first = first.and(Err(error)),
                _ => {}
            }
        }
        for some in nameless.chunks(REAPED_AT_ONCE) {
            if self.reap_all(some, now).is_err() {
                // One of them is in the way of the others.
                for ino in some {
                    first = first.and(self.files.reap(*ino, now));
                }
            }
        }
        first
    }

    /// Inodes without a name that nobody holds any more go, in one unit.
    fn reap_all(&self, all: &[Ino], now: Time) -> Result<()> {
        let mut op = self.files.change(all);
        op.frees = true;
        for ino in all {
            if self.is_held(*ino) {
                continue; // It goes with who holds it.
            }
            if let Some(inode) = op.find_inode(*ino)?.filter(|inode| inode.head.links == 0) {
                op.remove(inode, now)?;
                op.stage(crate::types::Which::Orphans, ino.0, None);
            }
        }
        op.finish().map(drop)
    }

    /// Before a file is changed: what makes a program of it more than who runs it goes. `rights`: also the bits of the mode
    /// that say so (unless the group may not run it: that bit means something else then). A look where there is nothing to do.
    pub fn drop_privileges(&self, ino: Ino, rights: bool, now: Time) -> Result<()> {
        let lesser = |op: &Op<'_>, inode: &Inode| {
            let mut mode = inode.head.mode;
            if rights && !inode.is_directory() {
                mode &= !MODE_SETUID;
                mode &= !if mode & MODE_GROUP_RUNS == MODE_GROUP_RUNS { crate::types::MODE_SETGID } else { 0 };
            }
            let pairs = if inode.head.attributes == 0 { Vec::new() } else { op.pairs(inode)? };
            let capable = pairs.iter().any(|(name, _)| name == CAPABILITIES);
            Ok((mode != inode.head.mode || capable).then_some((mode, capable.then_some(pairs))))
        };
        let look = |op: &Op<'_>| lesser(op, &op.inode(ino)?);
        let found = match &self.of {
            Of::Now => self.files.look_past(&[ino], || false, look),
            _ => self.look(&[ino], look),
        };
        if found?.is_none() {
            return Ok(());
        }
        let mut op = self.change(&[ino]);
        let mut inode = op.inode(ino)?;
        let Some((mode, pairs)) = lesser(&op, &inode)? else { return Ok(()) };
        inode.head.mode = mode;
        if let Some(mut pairs) = pairs {
            pairs.retain(|(name, _)| name != CAPABILITIES);
            op.set_pairs(&mut inode, &pairs)?;
        }
        inode.touch(now);
        op.put_inode(&inode);
        op.finish().map(drop)
    }
}
