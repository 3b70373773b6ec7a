//! Locks on inodes: so many stripes, always taken in their order.

use crate::types::Ino;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

const STRIPES: u64 = 256;

/// See the file's head.
pub(crate) struct Locks(Vec<RwLock<()>>);

#[allow(dead_code)] // Held, and looked at by nobody.
enum Guard<'a> {
    Read(RwLockReadGuard<'a, ()>),
    Write(RwLockWriteGuard<'a, ()>),
}

/// Some inodes, locked until this is dropped.
pub(crate) struct Locked<'a> {
    _guards: SmallVec<[Guard<'a>; 4]>,
}

impl Locks {
    pub fn new() -> Locks {
        Locks((0..STRIPES).map(|_| RwLock::new(())).collect())
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
        Locked { _guards: Self::stripes(inodes).into_iter().map(|n| Guard::Read(self.0[n].read())).collect() }
    }

    /// For who changes them.
    pub fn write(&self, inodes: &[Ino]) -> Locked<'_> {
        Locked { _guards: Self::stripes(inodes).into_iter().map(|n| Guard::Write(self.0[n].write())).collect() }
    }
}
