//! What the nodes of the kernel belong to: what is committed, and the transactions that are open.

use crate::node::VIEWS_MAX;
use lode_fs::{Conflicts, Error, FileSystem, Time, Transaction, View};
use parking_lot::RwLock;
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

/// See the file's head.
pub(crate) struct Views {
    pub fs: FileSystem,
    now: View,
    open: RwLock<BTreeMap<u64, Arc<Open>>>,
}

impl Views {
    pub fn new(fs: FileSystem) -> Views {
        let now = fs.holding_view();
        Views { fs, now, open: RwLock::default() }
    }

    /// What the nodes of a view see. None: its transaction has ended.
    pub fn view(&self, number: u64) -> Option<View> {
        if number == 0 {
            return Some(self.now.clone());
        }
        self.open.read().get(&number).map(|open| open.view.clone())
    }

    pub fn get(&self, number: u64) -> Option<Arc<Open>> {
        self.open.read().get(&number).cloned()
    }

    pub fn numbers(&self) -> Vec<u64> {
        self.open.read().keys().copied().collect()
    }

    /// The number towards the kernel of a transaction.
    pub fn number_of(&self, transaction: u64) -> Option<u64> {
        let open = self.open.read();
        open.iter().find(|(_, open)| open.transaction.number() == transaction).map(|(number, _)| *number)
    }

    fn insert(&self, transaction: Transaction, uid: u32, pid: u32) -> u64 {
        let mut open = self.open.write();
        // The numbers of the file system go on for ever, those of nodes do not.
        let number =
            (1..VIEWS_MAX).cycle().skip_while(|number| *number != (transaction.number() - 1) % (VIEWS_MAX - 1) + 1);
        let number = number.take(usize::from(u16::MAX)).find(|number| !open.contains_key(number));
        let number = number.expect("fewer transactions are open at once");
        let view = transaction.holding_view();
        open.insert(number, Arc::new(Open { transaction, view, uid, pid }));
        number
    }

    /// Begins a transaction for a process.
    pub fn begin(&self, conflicts: Conflicts, uid: u32, pid: u32, now: Time) -> Result<u64, Error> {
        let transaction = self.fs.begin(conflicts, now)?;
        Ok(self.insert(transaction, uid, pid))
    }

    /// The number of one that is kept, by its name.
    pub fn named(&self, name: &str, uid: u32) -> Result<u64, Error> {
        let transaction = self.fs.transaction(name)?;
        let known = self.number_of(transaction.number());
        Ok(known.unwrap_or_else(|| self.insert(transaction, uid, 0)))
    }

    /// Forgets one that has ended.
    pub fn forget(&self, number: u64) -> Option<Arc<Open>> {
        self.open.write().remove(&number)
    }
}
