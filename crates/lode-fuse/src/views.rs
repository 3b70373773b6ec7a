//! What the nodes of the kernel belong to: what is committed, the transactions that are open, and snapshots.

use crate::node::VIEWS_MAX;
use lode_fs::{Conflicts, Error, ErrorKind, FileSystem, Time, Transaction, View};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A transaction as the mount knows it.
pub(crate) struct Open {
    pub transaction: Transaction,
    pub view: View,
    /// Who may look into it and end it, beside root.
    pub uid: u32,
    /// The process that it ends with, unless it is kept.
    pub pid: u32,
}

/// A view that has a number towards the kernel.
enum Numbered {
    Open(Arc<Open>),
    /// Of a snapshot, by its name.
    Snapshot(String, View),
}

/// See the file's head.
pub(crate) struct Views {
    pub fs: FileSystem,
    now: View,
    numbered: RwLock<BTreeMap<u64, Numbered>>,
    /// The number that was given out last. Held by whoever gives one.
    last: Mutex<u64>,
    snapshots: bool,
}

fn too_many() -> Error {
    Error::new(ErrorKind::Full, format!("{} transactions and snapshots are in use: expected fewer", VIEWS_MAX - 1))
}

impl Views {
    /// `snapshots`: they are shown in the root.
    pub fn new(fs: FileSystem, snapshots: bool) -> Views {
        let now = fs.holding_view();
        Views { fs, now, numbered: RwLock::default(), last: Mutex::default(), snapshots }
    }

    pub fn shows_snapshots(&self) -> bool {
        self.snapshots
    }

    /// What the nodes of a view see. None: its transaction has ended, or its snapshot was deleted.
    pub fn view(&self, number: u64) -> Option<View> {
        if number == 0 {
            return Some(self.now.clone());
        }
        self.numbered.read().get(&number).map(|numbered| match numbered {
            Numbered::Open(open) => open.view.clone(),
            Numbered::Snapshot(_, view) => view.clone(),
        })
    }

    /// A transaction that is open.
    pub fn get(&self, number: u64) -> Option<Arc<Open>> {
        match self.numbered.read().get(&number)? {
            Numbered::Open(open) => Some(Arc::clone(open)),
            Numbered::Snapshot(..) => None,
        }
    }

    /// The numbers of the transactions.
    pub fn numbers(&self) -> Vec<u64> {
        let numbered = self.numbered.read();
        numbered.iter().filter(|(_, of)| matches!(of, Numbered::Open(_))).map(|(number, _)| *number).collect()
    }

    /// The number towards the kernel of a transaction.
    pub fn number_of(&self, transaction: u64) -> Option<u64> {
        let is = |of: &Numbered| matches!(of, Numbered::Open(open) if open.transaction.number() == transaction);
        self.numbered.read().iter().find(|(_, of)| is(of)).map(|(number, _)| *number)
    }

    /// A number is given out again only after all others.
    fn insert(&self, last: &mut u64, of: Numbered) -> Result<u64, Error> {
        let mut numbered = self.numbered.write();
        let next = (*last + 1..VIEWS_MAX).chain(1..=*last).find(|number| !numbered.contains_key(number));
        *last = next.ok_or_else(too_many)?;
        numbered.insert(*last, of);
        Ok(*last)
    }

    fn open(&self, transaction: Transaction, (uid, pid): (u32, u32)) -> Result<u64, Error> {
        let view = transaction.holding_view();
        self.insert(&mut self.last.lock(), Numbered::Open(Arc::new(Open { transaction, view, uid, pid })))
    }

    /// Begins a transaction for a user and a process; `within` another one, if that is not 0.
    pub fn begin(&self, within: u64, conflicts: Conflicts, who: (u32, u32), now: Time) -> Result<u64, Error> {
        let transaction = match (within, self.get(within)) {
            (0, _) => self.fs.begin(conflicts, now)?,
            (_, Some(outer)) => outer.transaction.begin(conflicts, now)?,
            (_, None) => return Err(Error::new(ErrorKind::ReadOnly, "a snapshot: expected files that can be changed")),
        };
        self.open(transaction, who)
    }

    /// The number of one that is kept, by its name.
    pub fn named(&self, name: &str, uid: u32) -> Result<u64, Error> {
        let transaction = self.fs.transaction(name)?;
        self.number_of(transaction.number()).map_or_else(|| self.open(transaction, (uid, 0)), Ok)
    }

    /// What a snapshot shows, and its number. None: there is none of that name.
    pub fn snapshot(&self, name: &str) -> Result<Option<(u64, View)>, Error> {
        // It gets one number.
        let mut last = self.last.lock();
        for (number, of) in &*self.numbered.read() {
            match of {
                Numbered::Snapshot(known, view) if known == name => return Ok(Some((*number, view.clone()))),
                _ => {}
            }
        }
        match self.fs.snapshot_view(name) {
            Ok(view) => Ok(Some((self.insert(&mut last, Numbered::Snapshot(name.to_owned(), view.clone()))?, view))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes a snapshot. Who still uses it is told that it is stale.
    pub fn delete_snapshot(&self, name: &str) -> Result<(), Error> {
        self.fs.delete_snapshot(name)?;
        self.numbered.write().retain(|_, of| !matches!(of, Numbered::Snapshot(known, _) if known == name));
        Ok(())
    }

    /// Forgets a transaction that has ended.
    pub fn forget(&self, number: u64) {
        self.numbered.write().remove(&number);
    }
}
