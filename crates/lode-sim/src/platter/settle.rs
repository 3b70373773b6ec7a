//! What an image has shown, made the device of the next life; and the reduced class of cuts.

use super::{Cut, NO_SLOT, Platter, PlatterZone, Unsure, fill};
use crate::rng::{index, mix, number};
use crate::trace::NOISE;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What one image of a cut turned out to hold: the choices as far as they were made.
pub(crate) struct Found<'a> {
    /// For each slot the candidate, if one was chosen.
    pub(crate) slots: &'a [Option<u32>],
    /// For each zone the filling of what an unsynced erase left, if it was chosen: old, garbage, zeros.
    pub(crate) zones: &'a [Option<u32>],
}

impl Cut {
    /// The device as that image found it: choices made are facts, choices never made stay open.
    pub(crate) fn settle(&self, found: &Found<'_>, salt: u64) -> Platter {
        let align = self.geometry.append_align;
        let mut zones = Vec::with_capacity(self.zones.len());
        for (number_of_zone, zone) in self.zones.iter().enumerate() {
            let mut bytes = Arc::clone(&zone.bytes);
            let filling = found.zones[number_of_zone];
            if zone.erase_pending && matches!(filling, Some(1 | 2)) {
                Arc::make_mut(&mut bytes).fill(if filling == Some(1) { NOISE } else { 0 });
            }
            let mut unsure = BTreeMap::new();
            for (sector, slot) in zone.slots.iter().enumerate().filter(|(_, slot)| **slot != NO_SLOT) {
                let candidates = &self.slots[index(*slot)].candidates;
                match found.slots[index(*slot)] {
                    Some(pick) => {
                        let into = Arc::make_mut(&mut bytes);
                        let at = number(sector) * align;
                        let old = &zone.bytes[index(at)..index(at + align)];
                        into[index(at)..index(at + align)].copy_from_slice(old);
                        fill(into, at, align, &candidates[index(pick)]);
                    }
                    None if candidates.len() > 1 => {
                        let alternatives = candidates.clone();
                        unsure.insert(number(sector), Unsure { alternatives, ..Unsure::default() });
                    }
                    None => {}
                }
            }
            let last = zone.slots.iter().rposition(|slot| *slot != NO_SLOT);
            let appended = last.map_or(0, |sector| (number(sector) + 1) * align);
            let undefined_from = match (zone.erase_pending, filling) {
                (true, Some(_)) => self.geometry.zone_bytes,
                // What was appended is old or new or torn, and no longer undefined.
                _ => zone.undefined_from.max(appended),
            };
            let (pointer, synced) = (zone.free_from, zone.free_from);
            let erase_pending = false;
            zones.push(PlatterZone { bytes, unsure, erase_pending, undefined_from, pointer, synced, touched: false });
        }
        Platter { geometry: self.geometry, first: self.first, zones, salt, steps: 0, syncs: 0 }
    }

    /// How many ways the reduced class has to cut an append of `sectors`.
    pub(crate) fn group_ways(&self, sectors: u32) -> u32 {
        1 + self.kinds() * (3 * sectors + 1)
    }

    fn kinds(&self) -> u32 {
        if self.class.tear { 3 } else { 1 }
    }

    /// Which candidate the sector at `place` has in one way of the reduced class.
    pub(crate) fn group_candidate(&self, group: usize, way: u32, place: u32, candidates: usize) -> u32 {
        let (sectors, stamp) = self.groups[group];
        if way == 0 {
            return 0;
        }
        let kind = (way - 1) % self.kinds();
        let shape = (way - 1) / self.kinds();
        let new = match shape {
            0 => false,
            one if one <= sectors => place != one - 1,
            one if one <= 2 * sectors => place == one - sectors - 1,
            prefix if prefix < 3 * sectors => place < prefix - 2 * sectors,
            _ => mix(stamp, u64::from(place)) & 1 == 0,
        };
        if new { 0 } else { (1 + kind).min(number(candidates) - 1) }
    }
}
