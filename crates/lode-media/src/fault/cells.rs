//! Sectors that lie over what a medium holds: what was written and not synced, and what was damaged.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::bounds::{index, narrow, wide};
use crate::{Geometry, Position, ZoneId};

/// A sector: its zone, and its number in the zone. Sectors are as long as appends are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) zone: u32,
    pub(super) sector: u32,
}

/// The keys that sectors of a zone can have.
pub(super) fn of_zone(zone: ZoneId) -> std::ops::RangeInclusive<Key> {
    Key { zone: zone.0, sector: 0 }..=Key { zone: zone.0, sector: u32::MAX }
}

/// What a sector holds.
#[derive(Clone, Debug)]
pub(super) enum Cell {
    /// A part of an append.
    Part { of: Arc<[u8]>, from: usize },
    /// One byte, repeated.
    Fill(u8),
}

impl Cell {
    pub(super) fn bytes(bytes: Vec<u8>) -> Cell {
        Cell::Part { of: bytes.into(), from: 0 }
    }
}

/// The sectors of a range, with where each starts in it.
pub(super) fn sectors(geometry: Geometry, at: Position, len: usize) -> impl Iterator<Item = (Key, usize)> {
    let align = index(geometry.append_align);
    let first = at.offset / geometry.append_align;
    (first..).zip((0..len).step_by(align)).map(move |(sector, from)| (Key { zone: at.zone.0, sector }, from))
}

/// Sectors by place.
#[derive(Clone, Debug, Default)]
pub(super) struct Cells(BTreeMap<Key, Cell>);

impl Cells {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn insert(&mut self, key: Key, cell: Cell) {
        self.0.insert(key, cell);
    }

    /// Puts an append there. `at` and the length are aligned.
    pub(super) fn insert_all(&mut self, geometry: Geometry, at: Position, data: &Arc<[u8]>) {
        for (key, from) in sectors(geometry, at, data.len()) {
            self.insert(key, Cell::Part { of: Arc::clone(data), from });
        }
    }

    pub(super) fn remove_all(&mut self, geometry: Geometry, at: Position, len: usize) {
        for (key, _) in sectors(geometry, at, len) {
            self.0.remove(&key);
        }
    }

    pub(super) fn remove_zone(&mut self, zone: ZoneId) {
        let here: Vec<Key> = self.0.range(of_zone(zone)).map(|(key, _)| *key).collect();
        for key in here {
            self.0.remove(&key);
        }
    }

    /// The sectors of `later` win.
    pub(super) fn cover_with(&mut self, later: Cells) {
        self.0.extend(later.0);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Cell)> {
        self.0.iter()
    }

    /// Puts what lies here over what was read from `at`, of any alignment.
    pub(super) fn patch(&self, geometry: Geometry, at: Position, into: &mut [u8]) {
        if self.0.is_empty() || into.is_empty() {
            return;
        }
        let align = u64::from(geometry.append_align);
        let (start, end) = (u64::from(at.offset), u64::from(at.offset) + wide(into.len()));
        let key = |sector: u64| Key { zone: at.zone.0, sector: u32::try_from(sector).unwrap_or(u32::MAX) };
        for (place, cell) in self.0.range(key(start / align)..key(end.div_ceil(align))) {
            let sector_start = u64::from(place.sector) * align;
            let (from, to) = (start.max(sector_start), end.min(sector_start + align));
            let target = &mut into[narrow(from - start)..narrow(to - start)];
            match cell {
                Cell::Fill(byte) => target.fill(*byte),
                Cell::Part { of, from: base } => {
                    let skip = base + narrow(from - sector_start);
                    target.copy_from_slice(&of[skip..skip + target.len()]);
                }
            }
        }
    }
}
