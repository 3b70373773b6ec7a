//! Taking up a unit as its last barrier left it.

use super::barrier::Barrier;
use super::image::{self, Image};
use super::shadow::Shadows;
use super::{Reserved, Unit};
use crate::disk::Inner;
use crate::disk::options::UnitView;
use crate::disk::read::View;
use crate::disk::units::{Dormant, shadow_blocks};
use crate::error::{Error, Result};
use crate::format::records::ListMeta;
use crate::shape::BLOCK_CHARGE;
use crate::types::{ListId, SnapshotId, UnitId, index, index64, len_u64, low_u32};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Unit {
    /// The cookie that an image has, until when its unit is kept, and whether it sees one instant.
    pub(crate) fn read_image(id: UnitId, bytes: &[u8]) -> Result<(Vec<u8>, u64, bool)> {
        let image = decoded(id, bytes)?;
        Ok((image.cookie, image.until, image.options.view == UnitView::Frozen))
    }

    /// A unit as its last barrier left it.
    pub(crate) fn revive(disk: &Arc<Inner>, id: UnitId, list: ListId, held: &mut Dormant) -> Result<Unit> {
        let (bytes, meta) = disk.image_of(list)?;
        let Image { cookie, options, until, lists, mut ordered, read } = decoded(id, &bytes)?;
        let counts = disk.shadows_named(id, &lists)?;
        let mut unit = Unit::with_id(Arc::clone(disk), id);
        (unit.options, unit.lists) = (options, lists);
        unit.frozen = Some(meta.snapshot).filter(|snapshot| *snapshot != SnapshotId(0));
        disk.hold_view(unit.frozen);
        *unit.read.lock() = read;
        if !ordered.log.is_empty() || !ordered.taken.is_empty() {
            let rows = u64::from(meta.parent.0);
            ordered.promised = Reserved { bytes: rows * BLOCK_CHARGE, blocks: rows };
            unit.ordered = Some(Box::new(ordered));
        }
        let (label, made, list) = (meta.name, meta.made, meta.list);
        unit.barrier = Some(Box::new(Barrier { label, made, until, list, cookie, image: bytes, counts }));
        unit.reserved = std::mem::take(&mut held.reserved);
        if let Some(generation) = held.generation.take() {
            disk.generations.leave(std::mem::replace(&mut unit.generation, generation));
        }
        Ok(unit)
    }
}

fn decoded(id: UnitId, bytes: &[u8]) -> Result<Image> {
    image::decode(bytes).ok_or_else(|| {
        Error::corrupt(
            format!("unit {}", id.0),
            "an image of the unit at its last barrier",
            format!("{} bytes that are none", bytes.len()),
        )
    })
}

impl Inner {
    /// The shadows that an image names, with how many blocks are in them. A barrier that was never whole may have left
    /// others: they go.
    fn shadows_named(&self, unit: UnitId, lists: &Shadows) -> Result<BTreeMap<ListId, (u64, u64)>> {
        let mut core = self.core.lock();
        let mut there: BTreeMap<ListId, ListId> =
            core.state.versions.shadows_of(unit).map(|(list, own)| (own, list)).collect();
        let mut counts = BTreeMap::new();
        for (list, own) in lists.iter().filter_map(|(list, shadow)| Some((list, shadow.kept?))) {
            if there.remove(&own) != Some(list) {
                return Err(Error::corrupt(
                    format!("unit {}", unit.0),
                    format!("list {} to have what it changed in list {}", own.0, list.0),
                    "another list, or none",
                ));
            }
            let count = core.state.lists.get(&own).map_or(0, |own| shadow_blocks(&own.meta));
            counts.insert(own, (count, count));
        }
        if !there.is_empty() {
            crate::mark("unit: shadow of a barrier that was never whole");
            core.ended_lists.extend(there.into_keys());
            self.keeper.notify_all();
        }
        Ok(counts)
    }

    /// The image of a unit, and its record.
    pub(crate) fn image_of(&self, list: ListId) -> Result<(Vec<u8>, ListMeta)> {
        let meta = self.core.lock().check_list(list, 0)?.clone();
        if meta.bytes > image::BYTES_MAX {
            return Err(Error::corrupt(
                format!("unit {}", meta.cut),
                format!("an image of at most {} bytes", image::BYTES_MAX),
                format!("one of {}", meta.bytes),
            ));
        }
        let mut bytes = vec![0; index64(meta.blocks() * u64::from(meta.block_bytes()))];
        let view = View { list, at: None };
        // Some at a time, as a read takes its places in one hold.
        for (n, chunk) in bytes.chunks_mut(index(64 * meta.block_bytes())).enumerate() {
            self.read_blocks(view, meta.block_bytes(), len_u64(n) * 64, chunk)?;
        }
        bytes.truncate(index64(meta.bytes));
        Ok((bytes, meta))
    }

    /// The numbers of lists and blocks that a unit with a barrier names: not to be given out again (R4).
    pub(crate) fn numbers_in(&self, unit: UnitId, list: ListId) -> Result<Vec<(ListId, u32)>> {
        let image = decoded(unit, &self.image_of(list)?.0)?;
        let mut numbers = image.ordered.taken;
        let (lists, pools) = {
            let core = self.core.lock();
            (core.state.tables.lists, core.state.tables.pools().collect::<Vec<_>>())
        };
        for op in &image.ordered.log {
            let (of, blocks) = op.names();
            numbers.extend(of.into_iter().map(|list| (lists, list)));
            // Which pool it is need not be known: the number is kept in all of them.
            numbers.extend(pools.iter().flat_map(|(_, pool)| blocks.iter().map(move |block| (pool.table, *block))));
        }
        // What it only wrote is named by where it lies.
        for (_, pool) in pools {
            let Some(own) = image.lists.get(pool.blocks).and_then(|shadow| shadow.kept) else { continue };
            let mut from = 0;
            while let Some(section) = self.section_from(own, from) {
                from = section + 1;
                let blocks = self.section_blocks(own, section)?.into_iter();
                numbers.extend(blocks.map(|(block, _, _)| (pool.table, low_u32(block))));
            }
        }
        Ok(numbers)
    }
}
