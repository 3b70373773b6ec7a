//! A volume as a unit sees it, `VOLUME?unit=LABEL`: what is written there nobody else sees before the unit commits. On a
//! unit that sees a snapshot it is a writable clone.
//!
//! A reply to a write, a flush or FUA means what it means on a volume, of the unit: after a crash of that kind the unit
//! is still open and has the write. So there is a barrier in front of each (*Mime*, barrier), which many writes share.

use super::{Outcome, WINDOW, refused, survive};
use crate::shelf::Shared;
use lode::{Disk, Lsn, Unit, Volume};
use lode_nbd::{Durability, Export, ExportError, ExportErrorKind, Ticket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A volume in a unit, open for one connection.
pub struct InUnit {
    pub disk: Disk,
    pub volume: Volume,
    pub shared: Arc<Shared>,
    pub read_only: bool,
    /// Writes so far, and how many of them lie before the last barrier: at this position.
    pub wrote: AtomicU64,
    pub covered: AtomicU64,
    pub position: AtomicU64,
}

impl InUnit {
    pub fn new(disk: Disk, volume: Volume, shared: Arc<Shared>, read_only: bool) -> InUnit {
        let zero = AtomicU64::default;
        InUnit { disk, volume, shared, read_only, wrote: zero(), covered: zero(), position: zero() }
    }

    fn within<T>(&self, work: impl FnOnce(&mut Unit) -> lode::Result<T>) -> Outcome<T> {
        let mut unit = self.shared.lock();
        let ended = || ExportError::new(ExportErrorKind::Io, "the unit of this export was committed or aborted");
        work(unit.as_mut().ok_or_else(ended)?).map_err(refused)
    }

    fn change(&self, work: impl FnOnce(&mut Unit) -> lode::Result<()>) -> Outcome<Ticket> {
        self.within(work)?;
        Ok(Ticket(self.wrote.fetch_add(1, Ordering::SeqCst) + 1))
    }

    /// Everything up to a ticket survives such failures.
    fn until(&self, ticket: Ticket, until: Durability) -> Outcome<()> {
        let position = self.within(|unit| {
            if self.covered.load(Ordering::SeqCst) < ticket.0 {
                let wrote = self.wrote.load(Ordering::SeqCst);
                let cookie = unit.cookie().to_vec();
                self.position.store(unit.barrier(&cookie)?.0, Ordering::SeqCst);
                self.covered.store(wrote, Ordering::SeqCst);
            }
            Ok(Lsn(self.position.load(Ordering::SeqCst)))
        })?;
        self.disk.flush_up_to(position, survive(until)).map_err(refused)
    }
}

impl Export for InUnit {
    fn size(&self) -> u64 {
        self.within(|unit| unit.bytes(&self.volume)).unwrap_or(0)
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn preferred_block(&self) -> u32 {
        self.volume.block_bytes().max(4096)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Outcome<()> {
        self.within(|unit| unit.read_at(&self.volume, offset, into))
    }

    fn write(&self, offset: u64, data: &[u8], until: Durability) -> Outcome<()> {
        let ticket = self.write_unwaited(offset, data)?;
        self.until(ticket, until)
    }

    fn write_unwaited(&self, offset: u64, data: &[u8]) -> Outcome<Ticket> {
        self.change(|unit| unit.write_at(&self.volume, offset, data))
    }

    fn wait(&self, ticket: Ticket, until: Durability) -> Outcome<()> {
        self.until(ticket, until)
    }

    fn zero(&self, offset: u64, bytes: u64, may_punch: bool, until: Durability) -> Outcome<()> {
        if may_punch {
            return self.trim(offset, bytes, until);
        }
        let zeros = vec![0; super::ZEROS];
        let (mut at, end) = (offset, offset + bytes);
        let mut ticket = Ticket(0);
        while at < end {
            let piece = usize::try_from(end - at).unwrap_or(usize::MAX).min(zeros.len());
            ticket = self.write_unwaited(at, &zeros[..piece])?;
            at += u64::try_from(piece).expect("a piece is small");
        }
        self.until(ticket, until)
    }

    fn trim(&self, offset: u64, bytes: u64, until: Durability) -> Outcome<()> {
        let ticket = self.change(|unit| unit.discard(&self.volume, offset, bytes))?;
        self.until(ticket, until)
    }

    fn flush(&self) -> Outcome<()> {
        self.until(Ticket(self.wrote.load(Ordering::SeqCst)), Durability::Power)
    }

    fn extents(&self, offset: u64, bytes: u64) -> Outcome<Vec<(u64, bool)>> {
        let extents = self.within(|unit| unit.extents(&self.volume, offset, bytes.min(WINDOW)))?;
        Ok(extents.into_iter().map(|extent| (extent.bytes, extent.allocated)).collect())
    }
}
