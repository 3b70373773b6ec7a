//! Space that is promised before anything is written (*The Logical Disk*, section 2.2): a write that draws on it is never
//! refused as full, whatever others do meanwhile.

use crate::disk::open::Disk;
use crate::disk::{Inner, Reserved};
use crate::error::{Error, ErrorKind, Result};
use crate::shape::BLOCK_CHARGE;
use crate::unit::Unit;
use std::sync::Arc;

/// Space for so many blocks. Dropping it gives back what was not used; so does the end of the process.
pub struct Reservation {
    disk: Arc<Inner>,
    space: Reserved,
    block_bytes: u32,
}

fn space_of(blocks: u64, block_bytes: u32) -> Reserved {
    Reserved { bytes: blocks.saturating_mul(u64::from(block_bytes) + BLOCK_CHARGE), blocks }
}

impl Disk {
    /// Reserves space for so many blocks of this size, as if none of them could be compressed. `Full`.
    pub fn reserve(&self, blocks: u64, block_bytes: u32) -> Result<Reservation> {
        let mut none = Reservation { disk: Arc::clone(self.inner()), space: Reserved::default(), block_bytes };
        none.grow(blocks)?;
        Ok(none)
    }
}

impl Reservation {
    /// Reserves space for so many blocks more. `Full`: it has what it had.
    pub fn grow(&mut self, blocks: u64) -> Result<()> {
        let space = space_of(blocks, self.block_bytes);
        let mut core = self.disk.tell_space(self.disk.writable()?);
        if !core.promises(core.reserves(space)) {
            return Err(self.disk.full(&core, core.reserves(space)));
        }
        core.reserved += space;
        self.space += space;
        Ok(())
    }

    /// Gives back all but so many blocks.
    pub fn shrink(&mut self, blocks: u64) {
        let mut over = self.space;
        let kept = space_of(blocks.min(over.blocks), self.block_bytes);
        over -= kept;
        self.space = kept;
        self.disk.core.lock().reserved -= over;
    }

    /// How many blocks it is still good for.
    pub fn blocks(&self) -> u64 {
        self.space.blocks
    }

    /// What it takes of the disk now, charges included: its part of what [`Disk::info`] calls reserved.
    pub fn held_bytes(&self) -> u64 {
        self.disk.core.lock().reserves(self.space)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.disk.core.lock().reserved -= self.space;
    }
}

impl Unit {
    /// Takes over space for `blocks` blocks from a reservation: writes of this unit draw on it first. What it does not use
    /// is given back at its end. `InvalidArgument`: the reservation has less, or is of another disk.
    pub fn draw_on(&mut self, reservation: &mut Reservation, blocks: u64) -> Result<()> {
        self.alive()?;
        let space = space_of(blocks, reservation.block_bytes);
        if !reservation.space.covers(space) || !self.is_of(&reservation.disk) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{blocks} blocks of a reservation of this disk: it has {} left", reservation.space.blocks),
            ));
        }
        reservation.space -= space;
        self.prepay(space);
        Ok(())
    }

    /// Puts what it has drawn and not used into a reservation; what makes no whole block there goes back to the disk. So a
    /// unit that lives long holds no more than it has written. `InvalidArgument`: the reservation is of another disk.
    pub fn put_back(&mut self, reservation: &mut Reservation) -> Result<()> {
        if !self.is_of(&reservation.disk) {
            return Err(Error::new(ErrorKind::InvalidArgument, "a reservation of another disk than the unit's"));
        }
        let mut core = reservation.disk.core.lock();
        let mut space = reservation.space;
        space += self.take_prepaid();
        let blocks = space.blocks.min(space.bytes / space_of(1, reservation.block_bytes).bytes);
        reservation.space = space_of(blocks, reservation.block_bytes);
        space -= reservation.space;
        core.reserved -= space;
        Ok(())
    }
}
