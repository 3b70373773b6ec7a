//! Where the next stored block is, and the next hole, as a unit sees them; and what it has changed.

use super::Unit;
use crate::error::Result;
use crate::types::{ListId, index64};
use crate::volume::Volume;
use std::ops::Range;

impl Unit {
    /// A volume as the unit's frozen view has it, without what the unit changes. None: it has no such view.
    pub fn before(&self, volume: &Volume) -> Option<Volume> {
        Some(volume.clone().seen_by(self.sees()?))
    }

    /// As [`Volume::next_stored`], as the unit sees it.
    pub fn next_stored(&self, volume: &Volume, within: Range<u64>) -> Result<Option<u64>> {
        self.seek(volume, false, within)
    }

    /// As [`Volume::next_hole`], as the unit sees it.
    pub fn next_hole(&self, volume: &Volume, within: Range<u64>) -> Result<Option<u64>> {
        self.seek(volume, true, within)
    }

    fn seek(&self, volume: &Volume, hole: bool, within: Range<u64>) -> Result<Option<u64>> {
        if volume.is_snapshot() {
            return if hole { volume.next_hole(within) } else { volume.next_stored(within) };
        }
        let block_bytes = u64::from(volume.block_bytes());
        let end = within.end.min(self.bytes(volume)?).div_ceil(block_bytes);
        let first = within.start / block_bytes;
        let mut lists: Vec<ListId> = match self.sees() {
            Some(view) => volume.clone().seen_by(view).lists(),
            None => volume.lists(),
        };
        let shadow = self.lists.get(volume.list());
        lists.extend(shadow.and_then(|shadow| shadow.kept));
        let base = |from: u64, to: u64| {
            self.disk.seek(&lists, hole, (from, to), |first, count| self.stored(volume, first, count))
        };
        // Its own blocks lie in no table: the stretches in front of each are asked first.
        let own = shadow.into_iter().flat_map(|shadow| shadow.blocks.range(first, end).map(|(block, _)| block));
        let mut at = first;
        let found = 'found: {
            for block in own {
                if at < block
                    && let Some(found) = base(at, block)?
                {
                    break 'found Some(found);
                }
                if !hole {
                    break 'found Some(block);
                }
                at = block + 1;
            }
            base(at, end)?
        };
        Ok(found.map(|block| (block * block_bytes).max(within.start)))
    }

    /// The first block from this one on that the unit has changed, written or discarded, as a range of such blocks. None:
    /// there is none. What it did before its last barrier counts too.
    pub fn next_changed(&self, volume: &Volume, block: u64) -> Result<Option<Range<u64>>> {
        let Some(shadow) = self.lists.get(volume.list()) else { return Ok(None) };
        let end = u64::MAX >> 1;
        let own = shadow.blocks.range(block, end).next().map(|(block, _)| block..block + 1);
        let kept = match shadow.kept {
            None => None,
            Some(kept) => {
                let stored =
                    |first: u64, count: u64| Ok(self.in_shadow(volume.list(), first, index64(count))?.to_vec());
                self.disk.seek(&[kept], false, (block, end), stored)?.map(|block| block..block + 1)
            }
        };
        let mut holes = shadow.holes.clone();
        if let Some(floor) = shadow.floor {
            holes.insert(floor, end);
        }
        let hole = holes.iter().find(|(_, end)| *end > block).map(|(first, end)| first.max(block)..end);
        Ok([own, kept, hole].into_iter().flatten().min_by_key(|range| range.start))
    }
}
