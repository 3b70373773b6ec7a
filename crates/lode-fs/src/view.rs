//! Where operations are done: on what is committed, or in a transaction.

use crate::error::{Error, ErrorKind, Result};
use crate::files::Files;
use crate::inodes::Inode;
use crate::op::{Op, Seen};
use crate::transaction::{Guard, Txn};
use crate::types::{Attributes, Ino, Time};
use std::sync::Arc;

/// What somebody sees of the file system, and changes: what is committed, where each operation is a unit of its own, or a
/// transaction.
#[derive(Clone)]
pub struct View {
    pub(crate) files: Arc<Files>,
    pub(crate) txn: Option<Arc<Txn>>,
    /// What it hands out is held until it is let go of.
    holding: bool,
}

impl View {
    pub(crate) fn now(files: Arc<Files>, holding: bool) -> View {
        View { files, txn: None, holding }
    }

    pub(crate) fn within(files: Arc<Files>, txn: Arc<Txn>, holding: bool) -> View {
        View { files, txn: Some(txn), holding }
    }

    /// Looks at inodes as they are at one instant.
    pub(crate) fn look<T>(&self, inodes: &[Ino], mut look: impl FnMut(&Op<'_>) -> Result<T>) -> Result<T> {
        match &self.txn {
            None => self.files.look(inodes, look),
            Some(txn) => look(&Op::new(&self.files, Seen::Within(txn, Guard::Look(txn.unit.read())))),
        }
    }

    /// An operation that may change these inodes.
    pub(crate) fn change(&self, inodes: &[Ino]) -> Op<'_> {
        match &self.txn {
            None => self.files.change(inodes),
            Some(txn) => Op::new(&self.files, Seen::Within(txn, Guard::Change(txn.unit.write()))),
        }
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

    fn held<T>(&self, with: impl FnOnce(&mut std::collections::HashMap<Ino, u64>) -> T) -> T {
        match &self.txn {
            None => with(&mut self.files.held.lock()),
            Some(txn) => with(&mut txn.state.lock().held),
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
        match &self.txn {
            _ if !nameless => Ok(()),
            None => self.files.reap(ino, now),
            Some(txn) => {
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
        let own = self.txn.as_ref().is_none_or(|txn| txn.state.lock().made.contains(&ino));
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
        self.stage(crate::types::Which::Orphans, inode.ino().0, Some(vec![1]));
        Ok(())
    }
}
