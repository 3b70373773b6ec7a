//! Units that several have in hand at once: connections that are bound to one, and commands that commit or abort it.
//!
//! The disk hands out a unit once. What is on the shelf is shared; when the last one lets go of it, the disk keeps it. One
//! that began here and was not written to ends then: whoever only looks, or mistypes a label, leaves nothing.
//!
//! A *change* has a number. A barrier covers all changes before it, whoever made them. An operation that fails half-way
//! takes the unit back to its last barrier: what was changed since is *lost*, and whoever waits for it is told so.

use crate::exports::{Outcome, refused};
use lode::{Disk, ErrorKind, Lsn, Result, Unit, UnitLabel, UnitOptions};
use lode_nbd::{ExportError, ExportErrorKind};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Whoever just let go of a unit has it this much longer, at most.
const PATIENCE: Duration = Duration::from_secs(2);

/// See the file's head.
#[derive(Default)]
pub struct Shelf(Mutex<BTreeMap<String, Weak<Shared>>>);

/// A unit that is shared.
pub struct Shared(Mutex<Held>);

/// What one has in hand, for one at a time.
#[derive(Default)]
pub struct Held {
    /// The unit; nothing once it has ended.
    pub unit: Option<Unit>,
    began_here: bool,
    /// Changes so far; how many of them lie before the last barrier, which is at this position; how many are lost, or
    /// were covered before others were lost.
    changes: u64,
    covered: u64,
    position: Lsn,
    lost: u64,
}

impl Shared {
    /// The unit, for one at a time.
    pub fn lock(&self) -> MutexGuard<'_, Held> {
        // A panic while it was held has left the unit as its own rules demand.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let held = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        if held.began_here && held.changes == 0 {
            held.unit.take().into_iter().for_each(Unit::abort);
        }
    }
}

impl Held {
    /// Works with the unit, if it is open.
    pub fn with<T>(&mut self, work: impl FnOnce(&mut Unit) -> Result<T>) -> Outcome<T> {
        let words =
            "the unit of this export was committed or aborted, or fell back and could not be read: connect again";
        let ended = || ExportError::new(ExportErrorKind::Io, words);
        work(self.unit.as_mut().ok_or_else(ended)?).map_err(refused)
    }

    /// Changes something. Gives back the number of the change.
    pub fn change(&mut self, disk: &Disk, work: impl FnOnce(&mut Unit) -> Result<()>) -> Outcome<u64> {
        // Counted also if it fails: what was done of it is in front of the next barrier, too.
        self.changes += 1;
        let done = self.with(work);
        done.inspect_err(|_| self.mend(disk)).map(|()| self.changes)
    }

    /// Everything up to a change lies in front of a barrier. Gives back the barrier's position.
    pub fn cover(&mut self, disk: &Disk, change: u64) -> Outcome<Lsn> {
        if change <= self.lost {
            let words = "an operation failed half-way, and took the unit back behind this one";
            return Err(ExportError::new(ExportErrorKind::Io, words));
        }
        if self.covered < change {
            let barrier = self.with(|unit| {
                let cookie = unit.cookie().to_vec();
                unit.barrier(&cookie)
            });
            self.position = barrier.inspect_err(|_| self.mend(disk))?;
            self.covered = self.changes;
        }
        // Also what has a barrier counts for nothing once the unit has ended.
        let position = self.position;
        self.with(|_| Ok(position))
    }

    /// As [`Held::cover`], for all that was changed so far and is not lost.
    pub fn cover_all(&mut self, disk: &Disk) -> Outcome<()> {
        if self.changes > self.lost { self.cover(disk, self.changes).map(drop) } else { self.with(|_| Ok(())) }
    }

    /// After an operation that failed: if that was half-way, the unit is what it was at its last barrier. Without one
    /// it is gone, as after a crash.
    fn mend(&mut self, disk: &Disk) {
        let Some(unit) = &mut self.unit else { return };
        if !unit.is_broken() {
            return;
        }
        let label = unit.label().unwrap_or_default().to_owned();
        self.unit = None; // The disk can give it only once it has it back.
        self.unit = disk.resume(&label).ok();
        (self.lost, self.covered) = (self.changes, self.changes);
    }
}

impl Shelf {
    /// The unit with this label. `NotFound`.
    pub fn resume(&self, disk: &Disk, label: &str) -> Result<Arc<Shared>> {
        self.get(label, || Ok((disk.resume(label)?, false)))
    }

    /// The same; it begins if there is none.
    pub fn resume_or_begin(&self, disk: &Disk, label: &UnitLabel) -> Result<Arc<Shared>> {
        self.get(&label.label, || match disk.resume(&label.label) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Ok((disk.begin_labelled(label, &UnitOptions::default())?, true))
            }
            found => Ok((found?, false)),
        })
    }

    fn get(&self, label: &str, take: impl Fn() -> Result<(Unit, bool)>) -> Result<Arc<Shared>> {
        let entries = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let began = Instant::now();
        loop {
            let found = entries().get(label).and_then(Weak::upgrade);
            // Whoever works with that unit does not hold up those who want another.
            if let Some(shared) = found.filter(|shared| shared.lock().unit.is_some()) {
                return Ok(shared);
            }
            let mut shelf = entries();
            match take() {
                Ok((unit, began_here)) => {
                    let held = Held { unit: Some(unit), began_here, ..Held::default() };
                    let shared = Arc::new(Shared(Mutex::new(held)));
                    shelf.retain(|_, shared| shared.strong_count() > 0);
                    shelf.insert(label.to_owned(), Arc::downgrade(&shared));
                    return Ok(shared);
                }
                Err(error) if error.kind() == ErrorKind::Exists && began.elapsed() < PATIENCE => {}
                Err(error) => return Err(error),
            }
            drop(shelf);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
