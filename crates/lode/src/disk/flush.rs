//! Appending, syncing, flushing: the way of a batch to the medium.
//!
//! Whoever flushes does the work itself if nobody else is at it: seal, append, sync, without handing over to a thread.
//! While one sync is on its way the next batch fills, and every waiter that the next sync covers wakes with it: group
//! commit without a timer.

use super::options::Survive;
use super::{Core, Inner};
use crate::error::{Error, ErrorKind, Result};
use crate::planted::{self, Bug};
use crate::sync::MutexGuard;
use crate::types::Lsn;

/// So many appends may be in flight.
const APPENDS_MAX: u32 = 4;

impl Inner {
    /// Appends one batch that is queued. The lock is given up meanwhile.
    pub fn append_one<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        let Some(sealed) = core.writer.take_batch() else { return core };
        core.appending += 1;
        drop(core);
        let appended = self.medium.append(sealed.at(), &[sealed.bytes()]);
        let mut core = self.core.lock();
        core.appending -= 1;
        core.counters.batches += 1;
        core.counters.log_bytes += u64::from(sealed.total);
        match appended {
            Ok(()) => core.writer.finish_batch(sealed),
            Err(error) => core
                .latch(&Error::media(format!("appending to zone {} at offset {}", sealed.zone, sealed.offset), error)),
        }
        self.progress.notify_all();
        core
    }

    /// Syncs the medium. What was appended before is durable afterwards.
    pub fn sync_now<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        core.syncing = true;
        let through = core.writer.begin_sync();
        drop(core);
        let synced = if planted::is(Bug::SkipSync) { Ok(()) } else { self.medium.sync() };
        let mut core = self.core.lock();
        core.syncing = false;
        core.counters.syncs += 1;
        match synced {
            Ok(()) if core.failed.is_none() => core.writer.synced(through),
            Ok(()) => {}
            Err(error) => core.latch(&Error::media("syncing the medium", error)),
        }
        if !planted::is(Bug::SyncWakesNobody) {
            self.progress.notify_all();
        }
        core
    }

    /// Everything before `target` survives such failures when this returns.
    pub fn flush_to(&self, target: Lsn, survive: Survive) -> Result<()> {
        if matches!(survive, Survive::Device | Survive::Site) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("this disk lies on one device: a flush cannot protect from the loss of it ({survive:?})"),
            ));
        }
        if self.options.read_only {
            return Ok(());
        }
        let mut core = self.core.lock();
        if target > core.writer.lsn {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("position {} lies ahead of the disk, which is at {}", target.0, core.writer.lsn.0),
            ));
        }
        loop {
            core.alive()?;
            let reached = if survive == Survive::Process { core.writer.appended_lsn } else { core.writer.durable_lsn };
            if reached >= target {
                return Ok(());
            }
            let to_append = core.writer.appended_lsn < target;
            if to_append && core.writer.is_queued() && core.appending < APPENDS_MAX {
                core = self.append_one(core);
            } else if to_append && core.appending == 0 && !core.writer.is_queued() {
                core.writer.seal(false);
                core.note_zones();
                assert!(core.writer.is_queued(), "what is not appended is queued, in flight, or in the open batch");
            } else if !to_append && !core.syncing {
                core = self.sync_now(core);
            } else {
                self.progress.wait(&mut core);
            }
        }
    }

    /// Everything before this call is durable when it returns. Gives back the position it covers.
    pub fn flush(&self, survive: Survive) -> Result<Lsn> {
        let target = self.core.lock().writer.lsn;
        self.flush_to(target, survive)?;
        Ok(target)
    }

    /// What follows an operation: a disk without threads appends what was sealed, and syncs once a segment (R13).
    pub fn after_operation<'a>(&'a self, core: MutexGuard<'a, Core>) {
        if self.options.background && !core.stop {
            let wake = core.writer.is_queued() && core.idle_writers > 0;
            drop(core);
            if wake {
                self.work.notify_one();
            }
            return;
        }
        let mut core = core;
        while core.writer.is_queued() && core.failed.is_none() {
            core = self.append_one(core);
        }
        if core.writer.wants_sync && core.failed.is_none() {
            drop(self.sync_now(core));
        }
    }

    /// A thread that appends what is sealed.
    pub fn run_writer(&self) {
        let mut core = self.core.lock();
        loop {
            if core.stop {
                return;
            }
            // The sync of a sealed segment comes first, or a stream that never pauses would put it off for ever (R13).
            if core.failed.is_none() && core.writer.wants_sync && !core.syncing {
                core = self.sync_now(core);
            } else if core.failed.is_none() && core.writer.is_queued() && core.appending < APPENDS_MAX {
                core = self.append_one(core);
            } else {
                core.idle_writers += 1;
                self.work.wait(&mut core);
                core.idle_writers -= 1;
            }
        }
    }
}
