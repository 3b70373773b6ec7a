//! How a unit ends, or lives on without its handle: see the picture in [`crate::disk::units`].

use super::{Barrier, Unit};
use crate::disk::options::UnitOptions;
use crate::disk::units::{Dormant, Entry, held_by};
use crate::error::{Error, ErrorKind, Result};
use crate::types::{ListId, SnapshotId};
use std::sync::Arc;

impl Unit {
    /// As if the unit had never been. Its space is free at once; if it has a barrier, once that is durable.
    pub fn abort(mut self) {
        self.aborted = true;
    }

    /// Lets go of it: it is kept for [`crate::Disk::resume_unit`] if it has a label or a barrier, and ends else.
    pub fn keep(mut self) {
        self.kept = true;
    }

    /// Somebody has it again.
    pub(crate) fn in_hand(mut self) -> Unit {
        self.kept = false;
        self
    }

    /// An operation failed half-way: it can only be dropped, and taken up again as its last barrier left it.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether it ends with its handle.
    fn ends(&self) -> bool {
        self.committed || self.aborted || self.broken || !(self.kept || self.label().is_some())
    }

    /// It is known by its label from now on.
    pub(crate) fn set_label(&mut self, barrier: Barrier) -> Result<()> {
        let mut registry = self.disk.units.lock();
        if registry.values().any(|entry| entry.label == barrier.label) {
            return Err(Error::new(
                ErrorKind::Exists,
                format!("there is an open unit with the label {} already", barrier.label),
            ));
        }
        registry.insert(self.id, Entry { frozen: self.sees().is_some(), ..Entry::of(&barrier) });
        drop(registry);
        self.barrier = Some(Box::new(barrier));
        Ok(())
    }

    /// It sees what a snapshot sees.
    pub(crate) fn see(&mut self, snapshot: SnapshotId, options: UnitOptions) {
        self.disk.hold_view(Some(snapshot));
        (self.frozen, self.options) = (Some(snapshot), options);
    }

    /// It cannot be gone on with, and has a label: it is again what it was at its last barrier. False: it has none.
    fn fall_back(&mut self) -> bool {
        if !self.broken || self.committed || self.aborted || !(self.kept || self.label().is_some()) {
            return false;
        }
        let disk = Arc::clone(&self.disk);
        let mut registry = disk.units.lock();
        // One whose first barrier was never whole has nothing to go back to.
        let Some(entry) = registry.get_mut(&self.id).filter(|entry| entry.list != ListId(0)) else { return false };
        crate::mark("unit: back at its last barrier");
        let mut core = disk.core.lock();
        self.release(&mut core);
        let reserved = held_by(&core.state, self.id);
        core.reserved += reserved;
        drop(core);
        // It sees what it saw, and no number that it names is given out.
        entry.dormant = Some(Dormant { reserved, generation: Some(self.generation), learned: true, damage: None });
        drop(registry);
        disk.end_view(self.frozen);
        true
    }

    /// What it was at its last barrier is gone, too.
    fn end_barrier(&mut self) {
        let Some(barrier) = &self.barrier else { return };
        self.disk.units.lock().remove(&self.id);
        // A disk that is not open any more changes no more.
        let open = !self.disk.core.lock().stop;
        if !self.committed && barrier.list != ListId(0) && open {
            self.disk.core.lock().outcomes.note_kept(self.id, None);
            // What fails is remembered there.
            let _ = self.disk.end_lists_of(self.id, barrier.list);
        }
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        if !self.ends() && !self.disk.core.lock().stop {
            let disk = Arc::clone(&self.disk);
            let mut gone = Unit::with_id(Arc::clone(&disk), self.id);
            gone.committed = true;
            let mut registry = disk.units.lock();
            // It lives on as it is; what is dropped is an empty one. One that is not listed has ended.
            if let Some(entry) = registry.get_mut(&self.id) {
                disk.generations.leave(gone.generation);
                entry.kept = Some(Box::new(std::mem::replace(self, gone)));
                return;
            }
        }
        if self.fall_back() {
            return;
        }
        self.end_barrier();
        let is_barrier = self.besides.as_ref().is_some_and(|besides| besides.is_barrier);
        if !self.committed {
            let disk = Arc::clone(&self.disk);
            let mut core = disk.core.lock();
            if !is_barrier {
                core.outcomes.note(self.id, None);
            }
            self.release(&mut core);
            for (table, number) in self.ordered.as_mut().map(|lists| lists.take_all()).unwrap_or_default() {
                core.numbers_of(table).give_back(number);
            }
        }
        self.disk.end_view(self.frozen);
        self.disk.generations.leave(self.generation);
    }
}
