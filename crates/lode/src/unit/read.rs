//! What a unit sees: its own shadow over the committed state as it is, or as it was when the unit began.

use super::Unit;
use super::shadow::Shadow;
use crate::disk::Core;
use crate::disk::options::UnitView;
use crate::disk::read::{View, read_bytes, unpack};
use crate::error::{Error, ErrorKind, Result};
use crate::planted::{self, Bug};
use crate::types::{ListId, Location, SnapshotId, index, index64, len_u32, len_u64};
use crate::volume::{Extent, Volume};
use smallvec::SmallVec;

/// So many blocks are looked up in one hold of the lock, for extents.
const STEP: u64 = 1024;

impl Unit {
    /// The size of the volume as this unit sees it.
    pub fn bytes(&self, volume: &Volume) -> Result<u64> {
        if volume.is_snapshot() {
            return volume.size();
        }
        volume.belongs_to(&self.disk)?;
        match self.lists.get(volume.list()).and_then(|list| list.bytes) {
            Some(bytes) => Ok(bytes),
            None => self.bytes_in(&self.disk.core.lock(), volume),
        }
    }

    /// The frozen view that it sees.
    pub(super) fn sees(&self) -> Option<SnapshotId> {
        self.frozen.filter(|_| self.options.view == UnitView::Frozen && !planted::is(Bug::FrozenMoves))
    }

    /// The size that a volume has in the unit's view.
    pub(super) fn bytes_in(&self, core: &Core, volume: &Volume) -> Result<u64> {
        let Some(view) = self.sees() else { return Ok(core.check_list(volume.list(), 0)?.bytes) };
        if core.state.tables.table_of(volume.list()).is_some() {
            return Ok(core.check_list(volume.list(), 0)?.bytes); // A pool has always the same.
        }
        if volume.list().0 > view.0 && core.state.is_file_list(volume.list()) {
            return Ok(core.check_list(volume.list(), 0)?.bytes); // It had nothing then.
        }
        let meta = core.state.meta_at(volume.list(), view);
        let newer = || Error::new(ErrorKind::NotFound, format!("{} is newer than the unit's view", volume.label()));
        Ok(meta.ok_or_else(newer)?.bytes)
    }

    pub(super) fn check_range(&self, volume: &Volume, offset: u64, bytes: u64) -> Result<()> {
        volume.belongs_to(&self.disk)?;
        let size = self.bytes(volume)?;
        crate::volume::check_range(volume.label(), size, offset, bytes)
    }

    /// Reads: the unit's own shadow, else the committed state as it is at one instant.
    pub fn read_at(&self, volume: &Volume, offset: u64, into: &mut [u8]) -> Result<()> {
        if volume.is_snapshot() {
            return volume.read_at(offset, into);
        }
        self.note_read(volume.list(), volume.block_bytes(), offset, len_u64(into.len()));
        if self.options.view == UnitView::Committed {
            volume.belongs_to(&self.disk)?;
            return volume.read_at(offset, into);
        }
        self.check_range(volume, offset, len_u64(into.len()))?;
        read_bytes(volume.block_bytes(), offset, into, |first, into| self.read_blocks(volume, first, into))
    }

    pub(super) fn read_blocks(&self, volume: &Volume, first: u64, into: &mut [u8]) -> Result<()> {
        let (list, block_bytes) = (volume.list(), volume.block_bytes());
        let shadow = self.lists.get(list);
        let kept = self.in_shadow(list, first, into.len() / index(block_bytes))?;
        let is_kept = |block: u64| kept.get(index64(block - first)).is_some_and(|kept| *kept);
        let has = |block| {
            is_kept(block) || shadow.is_some_and(|shadow| shadow.blocks.contains(block) || shadow.is_hole(block))
        };
        self.disk.read_blocks_but(View { at: self.sees(), ..volume.view() }, block_bytes, first, into, has)?;
        let Some(shadow) = shadow else { return Ok(()) };
        if let Some(own) = shadow.kept.filter(|_| !kept.is_empty()) {
            let view = View { list: own, at: None };
            self.disk.read_blocks_but(view, block_bytes, first, into, |block| !is_kept(block))?;
        }
        for (block, into) in (first..).zip(into.chunks_mut(index(block_bytes))) {
            if is_kept(block) {
                continue;
            }
            match shadow.blocks.get(block) {
                Some(Shadow::Data { piece, kind, checksum }) => {
                    let stored = self.arena.get(*piece);
                    let place = Location::new(1, 0, len_u32(stored.len()), *kind);
                    unpack(stored, place, *checksum, into).map_err(|problem| {
                        Error::new(ErrorKind::Corrupt, format!("memory of unit {}: {problem}", self.id.0))
                    })?;
                }
                Some(Shadow::Spilled) => self.read_spilled(list, block, into)?,
                Some(Shadow::Kept) => unreachable!("read above"),
                None if shadow.is_hole(block) => into.fill(0),
                None => {
                    if let Some(cut) = shadow.cuts.get(&block) {
                        into[*cut..].fill(0);
                    }
                }
            }
        }
        Ok(())
    }

    fn read_spilled(&self, list: ListId, block: u64, into: &mut [u8]) -> Result<()> {
        loop {
            let find =
                |core: &Core| core.spilled.get(&self.id).and_then(|spilled| spilled.get(&(list, block))).copied();
            let (place, checksum) = {
                let core = self.disk.core.lock();
                let found = find(&core).expect("a spilled block is listed until its unit ends");
                if let Some(waiting) = core.writer.stored(found.0) {
                    let stored = match waiting {
                        crate::log::writer::Waiting::Open(stored) => stored,
                        crate::log::writer::Waiting::Sealed(sealed) => {
                            sealed.stored(found.0).expect("found in this batch")
                        }
                    };
                    return unpack(stored, found.0, found.1, into)
                        .map_err(|problem| crate::disk::read::damaged(list, block, found.0, &problem));
                }
                found
            };
            let read = self
                .disk
                .read_stored(&[(place, checksum)])
                .remove(0)
                .map_err(|problem| problem.to_string())
                .and_then(|stored| unpack(&stored, place, checksum, into));
            let Err(problem) = read else { return Ok(()) };
            if find(&self.disk.core.lock()) == Some((place, checksum)) {
                return Err(crate::disk::read::damaged(list, block, place, &problem));
            }
        }
    }

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

    pub(super) fn stored(&self, volume: &Volume, first: u64, count: u64) -> Result<Vec<bool>> {
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
