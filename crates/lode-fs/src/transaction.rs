//! Transactions: a unit with a frozen view, on which the same operations run.
//!
//! ```text
//!              operations              commit
//!   begin ───> open ───────────────────────> committed: all of it counts, at one point
//!               │  │                  └────> conflict: it is still open, to be looked at, tried again or dropped
//!               │  └ keep ───> kept: it has a name, and outlives its user and the opening of the disk
//!               └ abort, drop ───> as if it had never been
//! ```
//! What it changed and read is noted by inode and by name; [`crate::commit`] compares that with what others have done. One
//! within another ([`crate::nested`]) becomes a part of that when it is committed.

use crate::error::{Error, ErrorKind, Result};
use crate::files::{FileSystem, Files};
use crate::format::SMALL_BLOCK;
use crate::op::{Op, Seen};
use crate::types::{Ino, Time, Which};
use crate::view::{Of, View};
use lode::{ListId, Unit, UnitConflicts, UnitLabel, UnitOptions, UnitView};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Units with labels that begin so are transactions.
pub(crate) const PREFIX: &str = "files/";

/// What is a conflict at the commit of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflicts {
    /// What it changed or read: transactions that commit are as if they had run one after the other.
    #[default]
    Read,
    /// Only what it changed.
    Changed,
}

/// A transaction that is open.
pub(crate) struct Txn {
    pub number: u64,
    pub conflicts: Conflicts,
    /// None once it has ended.
    pub unit: RwLock<Option<Unit>>,
    pub state: Mutex<State>,
    /// What it is within.
    pub outer: Option<Outer>,
    /// Something was done half-way in it: it must never count.
    spoiled: AtomicBool,
}

/// What a transaction within another one began from.
pub(crate) struct Outer {
    pub txn: Arc<Txn>,
    /// A copy of the outer one as it was then.
    pub base: RwLock<Option<Unit>>,
}

/// What a transaction has done so far.
#[derive(Default)]
pub(crate) struct State {
    /// Its name, once it is to be kept.
    pub name: Option<String>,
    /// When it began.
    pub begun: Time,
    pub changed: BTreeSet<Ino>,
    /// Names that it gave, took away, or let mean something else.
    pub names: BTreeSet<(Ino, Vec<u8>)>,
    pub made: BTreeSet<Ino>,
    pub freed: BTreeSet<Ino>,
    pub lists: BTreeSet<ListId>,
    pub condemned: BTreeSet<ListId>,
    pub held: HashMap<Ino, u64>,
    pub read: ReadSet,
}

impl State {
    /// Another one's deeds are a part of it from now on.
    pub fn take_over(&mut self, inner: State, conflicts: Conflicts) {
        self.changed.extend(inner.changed);
        self.names.extend(inner.names);
        self.made.extend(inner.made);
        self.freed.extend(inner.freed);
        self.lists.extend(inner.lists);
        self.condemned.extend(inner.condemned);
        if conflicts == Conflicts::Read {
            self.read.inodes.extend(inner.read.inodes);
            self.read.names.extend(inner.read.names);
            self.read.lists.extend(inner.read.lists);
            self.read.places.extend(inner.read.places);
        }
    }
}

/// What a transaction has looked at.
#[derive(Default)]
pub(crate) struct ReadSet {
    pub inodes: BTreeSet<Ino>,
    /// Also names that were not there.
    pub names: BTreeSet<(Ino, Vec<u8>)>,
    /// Directories, as a whole.
    pub lists: BTreeSet<Ino>,
    /// Directories: where they lie.
    pub places: BTreeSet<Ino>,
}

/// A transaction's unit, to look at or to change.
pub(crate) enum Guard<'a> {
    Look(RwLockReadGuard<'a, Option<Unit>>),
    Change(RwLockWriteGuard<'a, Option<Unit>>),
}

pub(crate) fn ended() -> Error {
    Error::new(ErrorKind::Ended, "the transaction has ended")
}

impl Guard<'_> {
    pub fn get(&self) -> Result<&Unit> {
        match self {
            Guard::Look(unit) => unit.as_ref(),
            Guard::Change(unit) => unit.as_ref(),
        }
        .ok_or_else(ended)
    }

    pub fn get_mut(&mut self) -> Result<&mut Unit> {
        match self {
            Guard::Look(_) => None,
            Guard::Change(unit) => unit.as_mut(),
        }
        .ok_or_else(ended)
    }
}

impl Txn {
    pub fn new(number: u64, conflicts: Conflicts, begun: Time, unit: Unit, outer: Option<Outer>) -> Txn {
        let state = Mutex::new(State { begun, ..State::default() });
        Txn { number, conflicts, unit: RwLock::new(Some(unit)), state, outer, spoiled: AtomicBool::new(false) }
    }

    /// To look at it. Whoever looks at it already may look again while somebody waits to change it.
    pub fn look(&self) -> Guard<'_> {
        Guard::Look(self.unit.read_recursive())
    }

    /// What it began from.
    pub fn before(&self) -> Seen<'_> {
        match &self.outer {
            None => Seen::Before(self.look()),
            Some(outer) => Seen::Beside(Guard::Look(outer.base.read_recursive())),
        }
    }

    /// Something failed in it that had been done in part.
    pub fn spoil(&self) {
        self.spoiled.store(true, Ordering::Release);
    }

    /// Whether all that was done in it was done to its end.
    pub fn whole(&self) -> Result<()> {
        if !self.spoiled.load(Ordering::Acquire) {
            return Ok(());
        }
        let what = "an operation of the transaction failed half-way: it can only be aborted";
        Err(Error::new(ErrorKind::Failed, what))
    }

    pub fn note_read(&self, note: impl FnOnce(&mut ReadSet)) {
        if self.conflicts == Conflicts::Read {
            note(&mut self.state.lock().read);
        }
    }
}

/// The transactions that are open.
#[derive(Default)]
pub(crate) struct Transactions {
    open: RwLock<BTreeMap<u64, Arc<Txn>>>,
    begun: Mutex<u64>,
    labels: Mutex<u64>,
}

impl Transactions {
    pub fn oldest(&self) -> Option<u64> {
        self.open.read().keys().next().copied()
    }

    pub fn newest(&self) -> Option<u64> {
        self.open.read().keys().next_back().copied()
    }

    /// Whether a list is one of theirs.
    pub fn owns(&self, list: ListId) -> bool {
        self.open.read().values().any(|txn| txn.state.lock().lists.contains(&list))
    }

    pub fn next_number(&self) -> u64 {
        let mut begun = self.begun.lock();
        *begun += 1;
        *begun
    }

    /// Those that are within another one.
    fn within(&self, outer: &Txn) -> Vec<Arc<Txn>> {
        let open = self.open.read();
        let is_within = |txn: &&Arc<Txn>| txn.outer.as_ref().is_some_and(|of| std::ptr::eq(&raw const *of.txn, outer));
        open.values().filter(is_within).cloned().collect()
    }

    fn named(&self, name: &str) -> Option<Arc<Txn>> {
        let open = self.open.read();
        open.values().find(|txn| txn.state.lock().name.as_deref() == Some(name)).cloned()
    }
}

/// A handle of a transaction. When the last one is dropped the transaction is aborted, unless it was given a name.
#[derive(Clone)]
pub struct Transaction {
    pub(crate) files: Arc<Files>,
    pub(crate) txn: Arc<Txn>,
    _ends: Arc<Ends>,
}

/// Ends the transaction with the last handle.
struct Ends {
    files: Arc<Files>,
    txn: Arc<Txn>,
}

impl Drop for Ends {
    fn drop(&mut self) {
        if self.txn.state.lock().name.is_none() {
            self.files.abort(&self.txn);
        }
    }
}

/// A transaction as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionInfo {
    /// Its number in this opening of the file system.
    pub number: u64,
    /// Its name, if it is kept.
    pub name: Option<String>,
    /// When it began.
    pub begun: Time,
    /// How many inodes it has changed.
    pub changed: u64,
    /// The number of the one that it is within.
    pub within: Option<u64>,
}

impl FileSystem {
    /// Begins a transaction on what is committed now. Cost: one record; what others change from now on is kept until it
    /// ends. `Full`.
    pub fn begin(&self, conflicts: Conflicts, now: Time) -> Result<Transaction> {
        // Nobody is in the middle of an operation: numbers that are freed from now on wait for its end.
        let _gate = self.files.shut();
        let options = UnitOptions { view: UnitView::Frozen, conflicts: UnitConflicts::Allowed };
        let begin = || self.files.disk.begin_labelled(&self.files.new_label(now), &options);
        let unit = self.files.lending(begin)?;
        let number = self.files.transactions.next_number();
        Ok(Transaction::of(&self.files, Arc::new(Txn::new(number, conflicts, now, unit, None))))
    }

    /// Those that are open, oldest first.
    pub fn transactions(&self) -> Vec<TransactionInfo> {
        let open = self.files.transactions.open.read();
        let info = |txn: &Arc<Txn>| {
            let state = txn.state.lock();
            let changed = u64::try_from(state.changed.len()).expect("an address fits in 64 bits");
            let within = txn.outer.as_ref().map(|outer| outer.txn.number);
            TransactionInfo { number: txn.number, name: state.name.clone(), begun: state.begun, changed, within }
        };
        open.values().map(info).collect()
    }

    /// One that is kept, by its name. `NotFound`.
    pub fn transaction(&self, name: &str) -> Result<Transaction> {
        let none = || Error::new(ErrorKind::NotFound, format!("there is no transaction named {name}"));
        let txn = self.files.transactions.named(name).ok_or_else(none)?;
        Ok(Transaction::of(&self.files, txn))
    }
}

impl Transaction {
    /// A handle of one, which is among those that are open from now on.
    pub(crate) fn of(files: &Arc<Files>, txn: Arc<Txn>) -> Transaction {
        files.transactions.open.write().insert(txn.number, Arc::clone(&txn));
        let ends = Arc::new(Ends { files: Arc::clone(files), txn: Arc::clone(&txn) });
        Transaction { files: Arc::clone(files), txn, _ends: ends }
    }

    /// Its number in this opening of the file system.
    pub fn number(&self) -> u64 {
        self.txn.number
    }

    /// What it sees and changes.
    pub fn view(&self) -> View {
        View::new(Arc::clone(&self.files), Of::Transaction(Arc::clone(&self.txn)), false)
    }

    /// See [`FileSystem::holding_view`].
    pub fn holding_view(&self) -> View {
        View::new(Arc::clone(&self.files), Of::Transaction(Arc::clone(&self.txn)), true)
    }

    /// Gives it a name: it is kept until it is committed or aborted, also when this process ends; after a crash it is as it
    /// was when this was last called. What it read before is then no conflict any more, only what it changed. `Exists`,
    /// `Full`, `Invalid`, `Unsupported`: it is within another one, `Failed`: something in it was done half-way.
    pub fn keep(&self, name: &str) -> Result<()> {
        if self.txn.outer.is_some() {
            let what = "a transaction within another one is not kept by itself: keep the outer one";
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        if name.is_empty() || name.len() > 200 || name.contains(|c: char| c.is_control() || c == '/' || c == '@') {
            let what = "the name of a transaction has 1 to 200 bytes, no slash, no @ and no control characters";
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let other = self.files.transactions.named(name);
        if other.is_some_and(|other| other.number != self.txn.number) {
            return Err(Error::new(ErrorKind::Exists, format!("there is a transaction named {name} already")));
        }
        let mut unit = self.txn.unit.write();
        self.txn.whole()?;
        let unit = unit.as_mut().ok_or_else(ended)?;
        // The name is short enough for it.
        unit.barrier(name.as_bytes())?;
        self.txn.state.lock().name = Some(name.to_owned());
        self.files.disk.flush(lode::Survive::Power)?;
        Ok(())
    }

    /// Ends it: as if it had never been.
    pub fn abort(&self) {
        self.files.abort(&self.txn);
    }
}

impl Files {
    /// A label that no other unit has.
    pub fn new_label(&self, now: Time) -> UnitLabel {
        let mut labels = self.transactions.labels.lock();
        *labels += 1;
        let label = format!("{PREFIX}{}-{labels}", self.disk.position().0);
        UnitLabel { label, made: now.0.max(0).cast_unsigned(), ..UnitLabel::default() }
    }

    pub fn abort(&self, txn: &Txn) {
        let Some(unit) = txn.unit.write().take() else { return };
        unit.abort();
        self.forget(txn);
        let state = std::mem::take(&mut *txn.state.lock());
        self.give_back_numbers(&state.made.into_iter().collect::<Vec<Ino>>());
        self.give_back_lists(&state.lists.into_iter().collect::<Vec<ListId>>());
    }

    /// It has ended, and so have those within it.
    pub fn forget(&self, txn: &Txn) {
        for inner in self.transactions.within(txn) {
            self.abort(&inner);
        }
        if let Some(base) = txn.outer.as_ref().and_then(|outer| outer.base.write().take()) {
            base.abort();
        }
        self.transactions.open.write().remove(&txn.number);
    }

    /// Takes up the transactions that were kept when the disk was last open. Those that were not kept are gone.
    pub fn take_up_transactions(&self) -> Result<()> {
        for info in self.disk.units()? {
            if !info.label.starts_with(PREFIX) {
                continue;
            }
            let label = info.label;
            let unit = self.disk.resume(&label)?;
            let name = String::from_utf8_lossy(unit.cookie()).into_owned();
            if name.is_empty() {
                unit.abort();
                continue;
            }
            let number = self.transactions.next_number();
            let begun = Time(i64::try_from(info.made).unwrap_or(i64::MAX));
            let txn = Txn::new(number, Conflicts::Changed, begun, unit, None);
            match self.rebuild(&txn) {
                // It is kept, and left alone.
                Err(error) if error.kind() == ErrorKind::Damaged => continue,
                rebuilt => rebuilt?,
            }
            let mut state = txn.state.lock();
            state.name = Some(name);
            self.keep_numbers(state.made.iter().copied());
            drop(state);
            self.transactions.open.write().insert(number, Arc::new(txn));
        }
        Ok(())
    }

    /// What a transaction has changed, found in its unit.
    fn rebuild(&self, txn: &Txn) -> Result<()> {
        let changed = changed_blocks(self, txn.look().get()?, Which::Inodes)?;
        let lists = changed_blocks(self, txn.look().get()?, Which::Owners)?;
        let own = Op::new(self, Seen::Beside(txn.look()));
        let base = Op::new(self, txn.before());
        let mut state = State::default();
        for ino in changed.into_iter().map(Ino) {
            let (now, before) = (own.find_inode(ino)?, base.find_inode(ino)?);
            state.changed.insert(ino);
            match (&now, &before) {
                (Some(_), None) => drop(state.made.insert(ino)),
                (None, _) => drop(state.freed.insert(ino)),
                _ => {}
            }
            let names = |op: &Op<'_>, inode: Option<crate::inodes::Inode>| match inode {
                Some(inode) if inode.is_directory() && inode.head.links > 0 => op.all_names(&inode),
                _ => Ok(Vec::new()),
            };
            let (now, before) = (names(&own, now)?, names(&base, before)?);
            let differing = now.iter().filter(|name| !before.contains(name));
            let differing = differing.chain(before.iter().filter(|name| !now.contains(name)));
            state.names.extend(differing.map(|named| (ino, named.name.clone())));
        }
        for list in lists {
            let mut owner = [0; crate::format::Owner::SIZE];
            own.read_at(Which::Owners, list * u64::from(SMALL_BLOCK), &mut owner)?;
            let list = ListId(u32::try_from(list).unwrap_or(u32::MAX));
            if owner == [0; crate::format::Owner::SIZE] {
                state.condemned.insert(list);
            } else {
                state.lists.insert(list);
            }
        }
        drop((own, base));
        let begun = txn.state.lock().begun;
        *txn.state.lock() = State { begun, ..state };
        Ok(())
    }
}

/// The blocks of a list that a unit has changed.
pub(crate) fn changed_blocks(files: &Files, unit: &Unit, which: Which) -> Result<Vec<u64>> {
    let volume = files.volume(which)?;
    let end = volume.bytes() / u64::from(volume.block_bytes());
    let (mut blocks, mut at) = (Vec::new(), 0);
    while let Some(range) = unit.next_changed(&volume, at)?.filter(|range| range.start < end) {
        at = range.end.min(end);
        blocks.extend(range.start..at);
    }
    Ok(blocks)
}
