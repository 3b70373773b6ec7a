//! What every zone holds of every list, for a drawing of the disk.

use super::holds;
use crate::disk::open::Disk;
use crate::error::Result;
use crate::format::records::{Form, ListState};
use crate::types::{ListId, index};
use std::collections::BTreeMap;

/// A disk, zone by zone.
#[derive(Clone, Debug)]
pub struct DiskMap {
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// The lists that store something, as people call them: volumes, blocks of ordered lists.
    pub lists: Vec<String>,
    /// The zones, by number.
    pub zones: Vec<ZoneMap>,
}

/// What one zone holds.
#[derive(Clone, Debug)]
pub struct ZoneMap {
    /// What it is for: roots, free, main, moved, tables-a, tables-b, aside.
    pub holds: &'static str,
    /// It is being filled.
    pub filling: bool,
    /// Records written since about the time when it was filled.
    pub age: u64,
    /// Live bytes of each list, which is a number in [`DiskMap::lists`].
    pub lists: Vec<(usize, u64)>,
    /// Bytes that only snapshots see.
    pub snapshots: u64,
    /// Bytes of open units.
    pub shadow: u64,
    /// Bytes of tables that the newest root names.
    pub tables: u64,
}

impl Disk {
    /// Where everything lies. What changes meanwhile may be told of at its old place or its new one. Cost: reads all
    /// tables.
    pub fn map(&self) -> Result<DiskMap> {
        let inner = self.inner();
        inner.fold_all();
        let mut map = self.map_of_zones();
        let mut lists: BTreeMap<String, usize> = BTreeMap::new();
        for list in inner.all_lists() {
            let Some((name, of_snapshot)) = self.stores(list) else { continue };
            let mut from = 0;
            while let Some(number) = inner.section_from(list, from) {
                from = number + 1;
                for (_, place, _) in inner.section_blocks(list, number)? {
                    let bytes = u64::from(place.footprint());
                    let Some(zone) = map.zones.get_mut(index(place.zone())).filter(|_| bytes > 0) else { continue };
                    if of_snapshot {
                        zone.snapshots += bytes;
                        continue;
                    }
                    let next = lists.len();
                    let list = *lists.entry(name.clone()).or_insert(next);
                    match zone.lists.iter_mut().find(|(known, _)| *known == list) {
                        Some((_, sum)) => *sum += bytes,
                        None => zone.lists.push((list, bytes)),
                    }
                }
            }
        }
        map.lists = vec![String::new(); lists.len()];
        for (name, number) in lists {
            map.lists[number] = name;
        }
        Ok(map)
    }

    fn map_of_zones(&self) -> DiskMap {
        let core = self.inner().core.lock();
        let now = core.writer.lsn.0;
        let zones = core.state.zones.all.iter().zip(0..).map(|(zone, number)| ZoneMap {
            holds: holds(zone.holds),
            filling: zone.open,
            age: now.saturating_sub(zone.age.0),
            lists: Vec::new(),
            snapshots: 0,
            shadow: u64::from(zone.shadow),
            tables: core.rooted.tables.get(&number).copied().unwrap_or(0),
        });
        DiskMap { zone_bytes: self.inner().shape.zone_bytes.into(), lists: Vec::new(), zones: zones.collect() }
    }

    /// The name of a list that stores blocks somebody can see, and whether only snapshots do.
    fn stores(&self, list: ListId) -> Option<(String, bool)> {
        let core = self.inner().core.lock();
        let meta = &core.state.lists.get(&list)?.meta;
        match (meta.state, meta.form) {
            (ListState::There, Form::Indexed | Form::File | Form::Pool) => Some((core.state.label(list), false)),
            (ListState::Layer | ListState::Hidden, _) => Some((String::new(), true)),
            _ => None,
        }
    }
}
