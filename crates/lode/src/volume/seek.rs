//! Where the next stored block is, and the next hole: found from the tables, passing over what is not there.

use super::Volume;
use crate::disk::Inner;
use crate::error::Result;
use crate::types::{ListId, index64, len_u64};
use std::ops::Range;

/// So many blocks are asked in one hold.
const STEP: u64 = 1024;

impl Inner {
    /// The first block from `from` on, in front of `end`, that is stored (or is not, if `hole`). `lists`: where it may be
    /// stored. `stored` says of some blocks, from one on, which are.
    pub(crate) fn seek(
        &self,
        lists: &[ListId],
        hole: bool,
        (from, end): (u64, u64),
        stored: impl Fn(u64, u64) -> Result<Vec<bool>>,
    ) -> Result<Option<u64>> {
        self.fold_all();
        let mut at = from;
        while at < end {
            let Some((start, leaf_end)) = self.next_leaf(lists, at) else { break };
            if hole && start > at {
                return Ok(Some(at));
            }
            let stop = leaf_end.min(end).min(start.saturating_add(STEP));
            if start >= stop {
                break;
            }
            let found = stored(start, stop - start)?.into_iter().position(|stored| stored != hole);
            if let Some(found) = found {
                return Ok(Some(start + len_u64(found)));
            }
            at = stop;
        }
        Ok(Some(at.max(from)).filter(|at| hole && *at < end))
    }
}

impl Volume {
    /// The lists in which its blocks may be stored.
    pub(crate) fn lists(&self) -> Vec<ListId> {
        let core = self.disk.core.lock();
        let layers = self.at.into_iter().flat_map(|at| core.state.versions.layers(self.list, at));
        layers.chain([self.list]).collect()
    }

    fn seek(&self, hole: bool, within: Range<u64>) -> Result<Option<u64>> {
        let block_bytes = u64::from(self.block_bytes);
        let end = within.end.min(self.size()?);
        let range = (within.start / block_bytes, end.div_ceil(block_bytes));
        let found = self.disk.seek(&self.lists(), hole, range, |first, count| {
            let view = self.view();
            Ok(self
                .disk
                .which(first, index64(count), |state, block| Ok(view.lookup(state, block)?.is_some()))?
                .to_vec())
        })?;
        Ok(found.map(|block| (block * block_bytes).max(within.start)))
    }

    /// The first byte of a stretch that lies in a stored block. None: there is none. Cost: the tables up to there, but
    /// nothing for stretches in which nothing is stored.
    pub fn next_stored(&self, within: Range<u64>) -> Result<Option<u64>> {
        self.seek(false, within)
    }

    /// The block that is stored with the largest number. Cost: the tables of one leaf, more if the last ones are empty.
    pub fn last_stored(&self) -> Result<Option<u64>> {
        self.disk.fold_all();
        let mut end = u64::MAX;
        while let Some((start, stop)) = self.disk.last_leaf(&self.lists(), end) {
            let view = self.view();
            let count = index64(stop - start);
            let stored = self.disk.which(start, count, |state, block| Ok(view.lookup(state, block)?.is_some()))?;
            if let Some(last) = stored.iter().rposition(|stored| *stored) {
                return Ok(Some(start + len_u64(last)));
            }
            end = start;
        }
        Ok(None)
    }

    /// The first byte of a stretch that lies in a hole. None: there is none before the end.
    pub fn next_hole(&self, within: Range<u64>) -> Result<Option<u64>> {
        self.seek(true, within)
    }
}
