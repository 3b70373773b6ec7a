//! What of a volume is stored, as a unit sees it.

use super::Unit;
use crate::disk::read::View;
use crate::error::Result;
use crate::types::index64;
use crate::volume::{Extent, Volume};
use smallvec::SmallVec;

/// So many blocks are looked up in one hold of the lock.
const STEP: u64 = 1024;

impl Unit {
    /// What of the range is stored, in order and without gaps, as the unit sees it. Cost: the tables of the range.
    pub fn extents(&self, volume: &Volume, offset: u64, bytes: u64) -> Result<Vec<Extent>> {
        self.check_range(volume, offset, bytes)?;
        let mut extents: Vec<Extent> = Vec::new();
        let block_bytes = u64::from(volume.block_bytes());
        let end = offset + bytes;
        let mut at = offset;
        while at < end {
            let first = at / block_bytes;
            let count = STEP.min(end.div_ceil(block_bytes) - first);
            for (block, allocated) in (first..).zip(self.stored(volume, first, count)?) {
                let next = ((block + 1) * block_bytes).min(end);
                match extents.last_mut() {
                    Some(last) if last.allocated == allocated => last.bytes += next - at,
                    _ => extents.push(Extent { offset: at, bytes: next - at, allocated }),
                }
                at = next;
            }
        }
        Ok(extents)
    }

    fn stored(&self, volume: &Volume, first: u64, count: u64) -> Result<Vec<bool>> {
        let shadow = self.lists.get(volume.list());
        let kept = self.in_shadow(volume.list(), first, index64(count))?;
        let view = View { at: self.sees(), ..volume.view() };
        let base: SmallVec<[bool; 8]> = self.disk.which(first, index64(count), |state, block| {
            // What the unit answers itself need not be looked up.
            let own = shadow.is_some_and(|shadow| shadow.blocks.contains(block) || shadow.is_hole(block));
            Ok(!own && view.lookup(state, block)?.is_some())
        })?;
        let blocks = (first..).zip(base).enumerate();
        Ok(blocks
            .map(|(n, (block, base))| {
                base || kept.get(n).is_some_and(|kept| *kept)
                    || shadow.is_some_and(|shadow| shadow.blocks.contains(block))
            })
            .collect())
    }
}
