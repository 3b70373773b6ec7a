//! What a repair has to do beyond recovery: the usage of the zones is counted anew.
//!
//! Sections are written one by one, so some hold records of the part of the log that is lost and others do not. What
//! the zones table says may then not be what the map says, and a zone taken for empty may hold blocks. So before
//! anything is erased the map is read as a whole, and believed.

use super::Inner;
use crate::map::Slot;
use crate::types::{SegmentId, index};
use crate::zones::Holds;
use std::collections::BTreeMap;

impl Inner {
    /// Counts what the map places in each zone, and makes the zones table say so. Cost: reads all of the map.
    pub(super) fn recount(&self) {
        let mut counted: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        let mut lost = false;
        let zone_bytes = self.shape.zone_bytes;
        let lists: Vec<_> = self.core.lock().state.lists.keys().copied().collect();
        for list in lists {
            let mut from = 0;
            // A leaf that cannot be read leaves its blocks uncounted: then nothing is taken for less than it was.
            loop {
                let cold = self.core.lock().state.cold_leaf(list, from, u64::MAX >> 1);
                let Some(key) = cold else { break };
                lost |= self.load(key).is_err();
                let (shift, leaf_shift) = (self.shape.section_blocks_shift(), self.shape.leaf_shift);
                from = (u64::from(key.section) << shift) + ((u64::from(key.leaf) + 1) << leaf_shift);
            }
            let core = self.core.lock();
            let Some(owner) = core.state.lists.get(&list) else { continue };
            for slot in owner.sections.iter().flat_map(|(_, section)| &section.slots) {
                let Slot::Loaded(leaf) = slot else { continue };
                leaf.for_each(|_, place, _| {
                    let zone = counted.entry(place.zone()).or_default();
                    *zone = (zone.0.saturating_add(place.footprint()).min(zone_bytes), zone.1.saturating_add(1));
                });
            }
        }
        crate::mark("repair: usage counted anew");
        let mut core = self.core.lock();
        let core = &mut *core;
        let tables = core.state.table_bytes();
        for number in crate::shape::ROOT_ZONES..self.shape.zones {
            let (live, blocks) = counted.get(&number).copied().unwrap_or_default();
            let zone = &mut core.state.zones.all[index(number)];
            (zone.live, zone.blocks) =
                if lost { (zone.live.max(live), zone.blocks.max(blocks)) } else { (live, blocks) };
            if zone.holds == Holds::Nothing && (blocks > 0 || tables.contains_key(&number)) {
                zone.holds = if blocks > 0 { Holds::Main } else { Holds::TableA };
                zone.segment = SegmentId(0);
                core.free.remove(&number);
                core.withheld.retain(|withheld| *withheld != number);
            }
        }
        // Zone 0 stands for the holes that snapshots see.
        core.state.zones.all[0].blocks = counted.get(&0).map_or(0, |(_, blocks)| *blocks);
        core.state.zones.sum_up();
        let now = core.writer.lsn;
        core.state.touch_zones(now);
    }
}
