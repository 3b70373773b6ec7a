//! What of a volume changed since a snapshot: found in the layers of old versions alone, no data is read.

use super::{Volume, check_range};
use crate::error::{Error, ErrorKind, Result};
use crate::types::SnapshotId;
use std::ops::Range;

impl Volume {
    /// What may differ from an older snapshot of the same volume: ranges of bytes in order, none touching another. Found
    /// from the tables alone: the cost follows what changed, not the volume's size. What was written again with the same
    /// bytes is among it. `InvalidArgument`: no older snapshot of this volume. Architecture, R18.
    pub fn changes_since(&self, snapshot: &Volume) -> Result<Vec<Range<u64>>> {
        let from = self.older(snapshot)?;
        self.changes_between(snapshot, from, None)
    }

    /// The same of a part of the volume: the ranges are cut to it. Time follows the sections of the tables that the part
    /// touches, memory the blocks of the part and of one section, whatever has changed elsewhere. Of no bytes it says only
    /// whether the snapshot is one to ask about. `OutOfRange`: beyond the end of both. `InvalidArgument`.
    pub fn changes_within(&self, snapshot: &Volume, offset: u64, bytes: u64) -> Result<Vec<Range<u64>>> {
        let from = self.older(snapshot)?;
        check_range(&self.name, self.size()?.max(snapshot.size()?), offset, bytes)?;
        if bytes == 0 {
            return Ok(Vec::new());
        }
        self.changes_between(snapshot, from, Some(offset..offset + bytes))
    }

    fn older(&self, snapshot: &Volume) -> Result<SnapshotId> {
        let older = snapshot.at.filter(|from| self.at.is_none_or(|to| *from <= to));
        match older {
            Some(from) if self.list == snapshot.list && std::sync::Arc::ptr_eq(&self.disk, &snapshot.disk) => Ok(from),
            _ => Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("changes of {} since {}: expected an older snapshot of it", self.name, snapshot.name),
            )),
        }
    }

    fn changes_between(
        &self,
        snapshot: &Volume,
        from: SnapshotId,
        part: Option<Range<u64>>,
    ) -> Result<Vec<Range<u64>>> {
        let (new, old) = (self.size()?, snapshot.size()?);
        self.disk.fold_all();
        let (layers, cut) = self.disk.core.lock().state.layers_between(self.list, from, self.at);
        let block_bytes = u64::from(self.block_bytes);
        let end = new.max(old);
        let part = part.map_or(0..end, |part| part.start..part.end.min(end));
        let wanted = part.start / block_bytes..part.end.div_ceil(block_bytes);
        let mut blocks = Vec::new();
        // The newest first: what is merged meanwhile goes into older ones.
        for layer in layers.into_iter().rev() {
            let shift = self.disk.shape.section_blocks_shift();
            // A list has no section with a larger number.
            let mut next = u32::try_from(wanted.start >> shift).unwrap_or(u32::MAX);
            while let Some(number) = self.disk.section_from(layer, next)
                && u64::from(number) << shift < wanted.end
            {
                next = number + 1;
                let found = self.disk.section_blocks(layer, number)?.into_iter().map(|(block, _, _)| block);
                blocks.extend(found.filter(|block| wanted.contains(block)));
            }
            // After each, so that many layers take no more than one.
            blocks.sort_unstable();
            blocks.dedup();
        }
        let cut = cut.saturating_mul(block_bytes).min(if new == old { u64::MAX } else { new.min(old) });
        let changed = blocks.into_iter().map(|block| block * block_bytes..((block + 1) * block_bytes).min(end));
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for range in changed.take_while(|range| range.start < cut).chain((cut < end).then_some(cut..end)) {
            let range = range.start.max(part.start)..range.end.min(part.end);
            match ranges.last_mut() {
                _ if range.is_empty() => {}
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => ranges.push(range),
            }
        }
        // The snapshot may have been deleted meanwhile, and its layer merged away.
        snapshot.size()?;
        Ok(ranges)
    }
}
