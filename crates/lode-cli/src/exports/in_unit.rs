//! A volume as a unit sees it, `VOLUME?unit=LABEL`: what is written there nobody else sees before the unit commits. On a
//! unit that sees a snapshot it is a writable clone.
//!
//! A reply to a write, a flush or FUA means what it means on a volume, of the unit: after a crash of that kind the unit
//! is still open and has the write. So there is a barrier in front of each (*Mime*, barrier), which many writes share.

use super::{Outcome, WINDOW, refused, survive};
use crate::shelf::Shared;
use lode::{Disk, Survive, Unit, Volume};
use lode_nbd::{Durability, Export, Ticket};
use std::sync::Arc;

/// A volume in a unit, open for one connection. Its tickets are the numbers of changes.
pub struct InUnit {
    pub disk: Disk,
    pub volume: Volume,
    pub shared: Arc<Shared>,
    pub read_only: bool,
}

impl InUnit {
    fn within<T>(&self, work: impl FnOnce(&mut Unit) -> lode::Result<T>) -> Outcome<T> {
        self.shared.lock().with(work)
    }

    fn change(&self, work: impl FnOnce(&mut Unit) -> lode::Result<()>) -> Outcome<Ticket> {
        self.shared.lock().change(&self.disk, work).map(Ticket)
    }

    /// Everything up to a ticket survives such failures.
    fn until(&self, ticket: Ticket, until: Durability) -> Outcome<()> {
        let position = self.shared.lock().cover(&self.disk, ticket.0)?;
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
        let ticket = self.change(|unit| match may_punch {
            true => unit.discard(&self.volume, offset, bytes),
            // With the unit in hand: nobody commits it in the middle.
            false => unit.write_zeros(&self.volume, offset, bytes),
        })?;
        self.until(ticket, until)
    }

    fn trim(&self, offset: u64, bytes: u64, until: Durability) -> Outcome<()> {
        let ticket = self.change(|unit| unit.discard(&self.volume, offset, bytes))?;
        self.until(ticket, until)
    }

    fn flush(&self) -> Outcome<()> {
        // Also what others changed, and what lies before barriers of earlier connections.
        self.shared.lock().cover_all(&self.disk)?;
        self.disk.flush(Survive::Power).map(drop).map_err(refused)
    }

    fn extents(&self, offset: u64, bytes: u64) -> Outcome<Vec<(u64, bool)>> {
        let extents = self.within(|unit| unit.extents(&self.volume, offset, bytes.min(WINDOW)))?;
        Ok(extents.into_iter().map(|extent| (extent.bytes, extent.allocated)).collect())
    }
}

#[cfg(test)]
mod tests;
