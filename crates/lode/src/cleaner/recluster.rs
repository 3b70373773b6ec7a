//! Puts the blocks of a list next to each other again, in their order (*The Logical Disk*, section 3.5: the cleaner uses
//! lists to reorder what lives).
//!
//! A round of cleaning brings into order only what its few zones hold. This goes through a whole list instead, and moves
//! those stretches that lie scattered, as the cleaner moves survivors: what changes meanwhile stays as it is.

use super::Owner;
use crate::disk::pace::Payer;
use crate::disk::space::LOW_ZONES;
use crate::disk::{Core, Inner};
use crate::error::{Error, ErrorKind, Result};
use crate::shape::RESERVE_ZONES;
use crate::types::{ListId, Location, UnitId, index, len_u32, len_u64};
use std::ops::ControlFlow;

/// So many bytes are moved at a time, in order.
const PIECE: u64 = 16 << 20;
/// Stretches of this length read as fast as longer ones.
const LONG: u64 = 512 << 10;
/// So often in a row no zone more may come free.
const FRUITLESS_MAX: u32 = 8;
/// A piece may have this many stretches more than it need have.
const SLACK: usize = 4;

/// Blocks in their order: number, place, checksum.
type Blocks = [(u64, Location, u32)];

/// How many stretches on the medium these blocks are.
fn stretches(blocks: &Blocks) -> usize {
    let apart = |pair: &&[(u64, Location, u32)]| pair[0].1.step(1) != pair[1].1;
    usize::from(!blocks.is_empty()) + blocks.windows(2).filter(apart).count()
}

impl Inner {
    /// Moves what of a list lies scattered. Gives back how many bytes were moved. `progress` is told how far in the
    /// list it has come, in bytes, and how long that is; it may break off.
    pub(crate) fn recluster(&self, list: ListId, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<u64> {
        drop(self.writable()?);
        self.fold_all();
        let shape =
            |core: &Core| core.state.lists.get(&list).map_or((0, 4096), |l| (l.meta.bytes, l.meta.block_bytes()));
        let (bytes, block_bytes) = shape(&self.core.lock());
        let (mut moved, mut from) = (0, 0);
        while let Some(number) = self.section_from(list, from) {
            from = number + 1;
            let blocks = self.section_blocks(list, number)?;
            let piece = index(len_u32(crate::types::index64(PIECE / u64::from(block_bytes)))).max(1);
            for piece in blocks.chunks(piece) {
                moved += self.bring_together(list, piece)?;
                let done = piece.last().map_or(0, |(block, ..)| block + 1);
                if progress(done.saturating_mul(block_bytes.into()).min(bytes), bytes).is_break() {
                    return Ok(moved);
                }
            }
        }
        Ok(moved)
    }

    fn bring_together(&self, list: ListId, blocks: &Blocks) -> Result<u64> {
        let bytes: u64 = blocks.iter().map(|(_, place, _)| u64::from(place.footprint())).sum();
        let long = LONG.min(u64::from(self.shape.zone_bytes) / 16);
        let enough = crate::types::index64(bytes / long) + SLACK;
        if stretches(blocks) <= enough {
            return Ok(0);
        }
        // What moves leaves zones that are dead, which somebody has to make free.
        let wanted = index(RESERVE_ZONES) + LOW_ZONES;
        let zones = crate::types::index64(bytes / u64::from(self.shape.zone_bytes)) + 2;
        let (mut most, mut fruitless) = (0, 0);
        loop {
            let available = self.core.lock().available();
            if available >= wanted + zones {
                break;
            }
            fruitless = if available > most { 0 } else { fruitless + 1 };
            most = most.max(available);
            self.maintain_for_space()?;
            if fruitless > FRUITLESS_MAX {
                return Err(Error::new(
                    ErrorKind::Full,
                    format!("bringing blocks together needs {zones} free zones beside the reserve of {wanted}"),
                ));
            }
        }
        let _one = self.maintaining.lock();
        let places: Vec<(Location, u32)> = blocks.iter().map(|(_, place, checksum)| (*place, *checksum)).collect();
        let mut survivors = Vec::with_capacity(blocks.len());
        for ((block, place, checksum), stored) in blocks.iter().zip(self.read_stored(&places)) {
            // What cannot be read stays where it is: a scrub tells of it.
            let Ok(stored) = stored else { continue };
            let owner = Owner { list, block: *block, place: *place, checksum: *checksum, unit: UnitId(0) };
            survivors.push(super::Survivor::new(owner, stored));
        }
        self.move_survivors(survivors, &mut Payer::new(self, 0, 0))?;
        crate::mark("cleaner: scattered blocks brought together");
        Ok(bytes)
    }

    /// How many stretches on the medium a list is, as far as it is stored.
    pub(crate) fn stretches_of(&self, list: ListId) -> Result<u64> {
        self.fold_all();
        let (mut count, mut from) = (0, 0);
        while let Some(number) = self.section_from(list, from) {
            from = number + 1;
            count += len_u64(stretches(&self.section_blocks(list, number)?));
        }
        Ok(count)
    }
}
