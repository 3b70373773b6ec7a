//! The part of a run that reserves space: what was reserved is never refused, whatever has filled the disk since (P5).

use super::{Run, Step, Stop};
use crate::rng::narrow;
use crate::script::{Fill, Op, data, volume_name};
use lode::{ErrorKind, Reservation};

/// A reservation.
pub(super) struct Held {
    reservation: Reservation,
    blocks: u64,
    block_bytes: u32,
}

impl Run<'_> {
    fn reserved(&self) -> Step<u64> {
        self.open_disk().info().map(|info| info.reserved).map_err(|error| self.refused("asking for space", error))
    }

    pub(super) fn reserve(&mut self, number: u8, blocks: u64, block_bytes: u32) -> Step {
        self.cancel(number)?;
        let before = self.reserved()?;
        let note = self.begin_call();
        let result = self.open_disk().reserve(blocks, block_bytes);
        if let Some(reservation) = self.changed("a reservation", result)? {
            let held = reservation.held_bytes();
            let bytes = blocks * u64::from(block_bytes);
            if reservation.blocks() != blocks || held < bytes || self.reserved()? != before + held {
                return Err(Stop::Finding(format!("{blocks} blocks of {block_bytes} bytes reserved, it holds {held}")));
            }
            self.reservations.insert(number, Held { reservation, blocks, block_bytes });
        }
        self.end_call(note);
        Ok(())
    }

    pub(super) fn cancel(&mut self, number: u8) -> Step {
        let Some(held) = self.reservations.remove(&number) else { return Ok(()) };
        let (before, bytes) = (self.reserved()?, held.reservation.held_bytes());
        drop(held);
        match self.reserved()? {
            after if after + bytes == before => Ok(()),
            after => {
                Err(Stop::Finding(format!("a reservation of {bytes} bytes was given back: {before}, then {after}")))
            }
        }
    }

    /// Draws on it, writes and commits: nothing of that is refused as full.
    pub(super) fn spend(&mut self, op: &Op, at: usize) -> Step {
        let Op::Spend { reservation: number, volume: which, first, blocks, each } = *op else { return Ok(()) };
        let Some(volume) = self.volume(which)? else { return Ok(()) };
        let Some(mut held) = self.reservations.remove(&number) else { return Ok(()) };
        let size = u64::from(volume.block_bytes());
        let there = (volume.bytes() / size).saturating_sub(first);
        let blocks = blocks.min(held.blocks).min(there);
        if size > u64::from(held.block_bytes) || blocks == 0 {
            self.reservations.insert(number, held);
            return Ok(());
        }
        let note = self.begin_call();
        let noise = data(self.script.id.seed(), at, blocks * size, Fill::Noise);
        let spent = self.open_disk().begin().and_then(|mut unit| {
            unit.draw_on(&mut held.reservation, blocks)?;
            for (piece, bytes) in (0..).zip(noise.chunks(narrow(each.max(1) * size))) {
                unit.write_at(&volume, (first + piece * each.max(1)) * size, bytes)?;
            }
            unit.try_commit()
        });
        if let Err(error) = &spent
            && error.kind() == ErrorKind::Full
        {
            let words = format!("{blocks} blocks of {size} bytes were reserved, and refused: {error}");
            return Err(Stop::Finding(format!("{words}; {:?}", self.open_disk().info())));
        }
        let name = volume_name(which);
        self.tolerable(spent, "writing what was reserved", |model| model.write(&name, first * size, &noise))?;
        held.blocks -= blocks;
        if held.reservation.blocks() != held.blocks {
            let left = held.reservation.blocks();
            return Err(Stop::Finding(format!("{left} blocks are left of a reservation, expected {}", held.blocks)));
        }
        self.reservations.insert(number, held);
        self.end_call(note);
        Ok(())
    }
}
