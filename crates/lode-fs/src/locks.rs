//! Locks on inodes: so many stripes, always taken in their order. Each knows up to where the log is to be flushed so that
//! what was done to its inodes is durable.

use crate::planted::{self, Bug};
use crate::types::Ino;
use lode::Lsn;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};

const STRIPES: u64 = 1024;

#[derive(Default)]
struct Stripe {
    lock: RwLock<()>,
    /// The position behind the last change.
    changed: AtomicU64,
}

/// See the file's head.
pub(crate) struct Locks {
    stripes: Vec<Stripe>,
    /// The position behind the last change of nobody knows which inodes.
    changed: AtomicU64,
}

#[allow(dead_code)] // Held, and looked at by nobody.
enum Guard<'a> {
    Read(RwLockReadGuard<'a, ()>),
    Write(RwLockWriteGuard<'a, ()>, &'a AtomicU64),
}

/// Some inodes, locked until this is dropped.
pub(crate) struct Locked<'a> {
    guards: SmallVec<[Guard<'a>; 4]>,
}

impl Locked<'_> {
    /// Those that are locked for a change are changed up to here.
    pub fn changed(&self, at: Lsn) {
        for guard in &self.guards {
            if let Guard::Write(_, changed) = guard {
                changed.fetch_max(at.0, Ordering::AcqRel);
            }
        }
    }
}

impl Locks {
    /// Whatever was done up to here was done to any inode.
    pub fn new(at: Lsn) -> Locks {
        let stripes = (0..STRIPES).map(|_| Stripe::default()).collect();
        Locks { stripes, changed: AtomicU64::new(at.0) }
    }

    /// These were changed up to here.
    pub fn changed(&self, inodes: &[Ino], at: Lsn) {
        if planted::is(Bug::NewNotFlushed) {
            return;
        }
        for stripe in Self::stripes(inodes) {
            self.stripes[stripe].changed.fetch_max(at.0, Ordering::AcqRel);
        }
    }

    /// Any may have been changed up to here.
    pub fn all_changed(&self, at: Lsn) {
        self.changed.fetch_max(at.0, Ordering::AcqRel);
    }

    /// What was done to this one is durable once the log is up to here.
    pub fn position(&self, ino: Ino) -> Lsn {
        let all = self.changed.load(Ordering::Acquire);
        let own = |n: &usize| self.stripes[*n].changed.load(Ordering::Acquire);
        Lsn(Self::stripes(&[ino]).iter().map(own).fold(all, u64::max))
    }

    fn stripes(inodes: &[Ino]) -> SmallVec<[usize; 4]> {
        let mut stripes: SmallVec<[usize; 4]> =
            inodes.iter().map(|ino| usize::try_from(ino.0 % STRIPES).expect("few")).collect();
        stripes.sort_unstable();
        stripes.dedup();
        stripes
    }

    /// For who looks at them.
    pub fn read(&self, inodes: &[Ino]) -> Locked<'_> {
        Locked { guards: Self::stripes(inodes).into_iter().map(|n| Guard::Read(self.stripes[n].lock.read())).collect() }
    }

    /// For who changes them.
    pub fn write(&self, inodes: &[Ino]) -> Locked<'_> {
        let write = |n: usize| Guard::Write(self.stripes[n].lock.write(), &self.stripes[n].changed);
        Locked { guards: Self::stripes(inodes).into_iter().map(write).collect() }
    }
}
