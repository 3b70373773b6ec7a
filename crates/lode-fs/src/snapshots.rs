//! Snapshots: the file system as it was, to be looked at. Each is a unit that has a frozen view and changes nothing; its
//! barrier keeps it over a crash.

use crate::error::{Error, ErrorKind, Result};
use crate::files::{FileSystem, Files};
use crate::op::Seen;
use crate::transaction::Guard;
use crate::types::Time;
use crate::view::{Of, View};
use lode::{Survive, Unit, UnitConflicts, UnitLabel, UnitOptions, UnitView};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Units with labels that begin so are snapshots.
pub(crate) const PREFIX: &str = "snapshots/";
/// A name has at most so many bytes.
const NAME_MAX: usize = 200;

/// A snapshot.
pub(crate) struct Snapshot {
    made: Time,
    /// None once it is deleted.
    unit: RwLock<Option<Unit>>,
}

impl Snapshot {
    pub fn seen(&self) -> Seen<'_> {
        Seen::Before(Guard::Look(self.unit.read_recursive()))
    }
}

/// Those that there are.
#[derive(Default)]
pub(crate) struct Snapshots {
    all: RwLock<BTreeMap<String, Arc<Snapshot>>>,
    /// Made and deleted so far.
    turns: AtomicU64,
}

impl Snapshots {
    fn add(&self, name: &str, snapshot: Snapshot) {
        self.all.write().insert(name.to_owned(), Arc::new(snapshot));
        self.turns.fetch_add(1, Ordering::Release);
    }

    fn remove(&self, name: &str) -> Option<Arc<Snapshot>> {
        let gone = self.all.write().remove(name);
        self.turns.fetch_add(1, Ordering::Release);
        gone
    }
}

/// A snapshot as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its name.
    pub name: String,
    /// When it was made.
    pub made: Time,
}

/// Snapshots that are made now and then, of which the last ones are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// What their names begin with: `NAME-WHEN`.
    pub name: String,
    /// Nanoseconds from one to the next.
    pub every: u64,
    /// So many are kept.
    pub keep: usize,
}

fn none(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no snapshot of the files named {name}"))
}

impl FileSystem {
    /// Keeps what is committed now, under a name, durably. Cost: two records and a flush, whatever there is; what is changed
    /// later takes space until the snapshot is deleted. `Exists`, `Full`, `Invalid`.
    pub fn snapshot(&self, name: &str, now: Time) -> Result<()> {
        let strange = |c: char| c.is_control() || c == '/' || c == '@';
        if name.is_empty() || name.len() > NAME_MAX || name.contains(strange) || name == "." || name == ".." {
            let what = "the name of a snapshot has 1 to 200 bytes, no slash, no @ and no control characters";
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let label = format!("{PREFIX}{name}");
        let label = UnitLabel { label, made: now.0.max(0).cast_unsigned(), ..UnitLabel::default() };
        let options = UnitOptions { view: UnitView::Frozen, conflicts: UnitConflicts::Allowed };
        self.files.settle();
        // The label is the disk's to give once.
        let begin = || self.files.disk.begin_labelled(&label, &options);
        let mut unit = self.files.lending(begin).map_err(|error| match error.kind() {
            lode::ErrorKind::Exists => {
                Error::new(ErrorKind::Exists, format!("there is a snapshot of the files named {name} already"))
            }
            _ => error.into(),
        })?;
        let kept = unit.barrier(PREFIX.as_bytes()).and_then(|_| self.files.disk.flush(Survive::Power));
        if let Err(error) = kept {
            unit.abort();
            return Err(error.into());
        }
        let snapshot = Snapshot { made: now, unit: RwLock::new(Some(unit)) };
        self.files.snapshots.add(name, snapshot);
        Ok(())
    }

    /// Makes the snapshot that is due, and deletes those that are more than shall be kept, the oldest first. Only those count
    /// that have the name which it would have given them: `when` says how it names a time. Cost: as `snapshot`, if one is due.
    pub fn retain(&self, retention: &Retention, now: Time, when: &dyn Fn(Time) -> String) -> Result<()> {
        let name = |made: Time| format!("{}-{}", retention.name, when(made));
        let mut made: Vec<Time> =
            self.snapshots().iter().filter(|found| found.name == name(found.made)).map(|found| found.made).collect();
        // Of a clock that was put back: what is of later than now is of before.
        made.sort_unstable_by_key(|made| (*made <= now, *made));
        let is_new = |last: &Time| *last <= now && last.0.abs_diff(now.0) < retention.every;
        if !made.last().is_some_and(is_new) {
            self.snapshot(&name(now), now)?;
            made.push(now);
        }
        let more = made.len().saturating_sub(retention.keep);
        made[..more].iter().try_for_each(|made| self.delete_snapshot(&name(*made)))
    }

    /// Those that there are, by name.
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        let all = self.files.snapshots.all.read();
        all.iter().map(|(name, snapshot)| SnapshotInfo { name: name.clone(), made: snapshot.made }).collect()
    }

    /// How often there were others than before: for who keeps a copy of what there is.
    pub fn snapshot_turns(&self) -> u64 {
        self.files.snapshots.turns.load(Ordering::Acquire)
    }

    /// What a snapshot keeps. What would change it says `ReadOnly`; `Ended` once it is deleted. `NotFound`.
    pub fn snapshot_view(&self, name: &str) -> Result<View> {
        let snapshot = self.files.snapshots.all.read().get(name).cloned().ok_or_else(|| none(name))?;
        Ok(View::new(Arc::clone(&self.files), Of::Snapshot(snapshot), false))
    }

    /// Deletes one, durably. What only it had is free then. Cost: a record and a flush. `NotFound`.
    pub fn delete_snapshot(&self, name: &str) -> Result<()> {
        let snapshot = self.files.snapshots.remove(name).ok_or_else(|| none(name))?;
        if let Some(unit) = snapshot.unit.write().take() {
            unit.abort();
        }
        self.files.disk.flush(Survive::Power)?;
        Ok(())
    }
}

impl Files {
    /// Takes up the snapshots that the disk has. One that a crash kept from being made is not there.
    pub fn take_up_snapshots(&self) -> Result<()> {
        for info in self.disk.units()? {
            let Some(name) = info.label.strip_prefix(PREFIX) else { continue };
            let unit = self.disk.resume(&info.label)?;
            if unit.cookie().is_empty() {
                unit.abort();
                continue;
            }
            let made = Time(i64::try_from(info.made).unwrap_or(i64::MAX));
            let snapshot = Snapshot { made, unit: RwLock::new(Some(unit)) };
            self.snapshots.add(name, snapshot);
        }
        Ok(())
    }
}
