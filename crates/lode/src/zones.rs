//! The zones: what each holds and how many bytes of it are alive.
//!
//! Usage is changed by records alone, so that replay computes the same numbers. It picks victims; whether a block is
//! alive is always asked of the map (R26). Bytes of open units (*shadow*) are counted apart and never written.

use crate::format::Cursor;
use crate::format::object::ZoneEntry;
use crate::types::{Location, Lsn, SegmentId, index};

/// What a zone holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    Roots,
    Nothing,
    Main,
    Moved,
    TableA,
    TableB,
    /// Damaged: never erased, reported.
    Aside,
}

impl Holds {
    fn code(self) -> u8 {
        match self {
            Holds::Roots => 0,
            Holds::Nothing => 1,
            Holds::Main => 2,
            Holds::Moved => 3,
            Holds::TableA => 4,
            Holds::TableB => 5,
            Holds::Aside => 6,
        }
    }

    fn from_code(code: u8) -> Option<Holds> {
        Some(match code {
            0 => Holds::Roots,
            1 => Holds::Nothing,
            2 => Holds::Main,
            3 => Holds::Moved,
            4 => Holds::TableA,
            5 => Holds::TableB,
            6 => Holds::Aside,
            _ => return None,
        })
    }

    /// What a ZoneOpened of this stream number makes of a zone.
    pub fn from_stream(stream: u32) -> Option<Holds> {
        Some(match stream {
            1 => Holds::Moved,
            2 => Holds::TableA,
            3 => Holds::TableB,
            _ => return None,
        })
    }

    pub fn stream(self) -> u32 {
        match self {
            Holds::Moved => 1,
            Holds::TableA => 2,
            Holds::TableB => 3,
            _ => 0,
        }
    }
}

/// One zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zone {
    pub holds: Holds,
    pub live: u32,
    pub blocks: u32,
    pub segment: SegmentId,
    /// A record of about the time when it was filled: the younger, the sooner its blocks die.
    pub age: Lsn,
    /// Bytes of open units. Not written.
    pub shadow: u32,
    /// The newest record that freed something in it. Not written: after a restart everything read is durable.
    pub last_freed: Lsn,
    /// Main: the end of its records. Not written; replay needs the zone until it begins behind this.
    pub records_end: Lsn,
    /// It is being filled.
    pub open: bool,
}

impl Zone {
    pub fn new(holds: Holds) -> Zone {
        Zone {
            holds,
            live: 0,
            blocks: 0,
            segment: SegmentId(0),
            age: Lsn(0),
            shadow: 0,
            last_freed: Lsn(0),
            records_end: Lsn(0),
            open: false,
        }
    }

    pub fn encode(&self, into: &mut Vec<u8>) {
        ZoneEntry {
            state: self.holds.code(),
            live: self.live,
            blocks: self.blocks,
            segment: self.segment.0,
            age: self.age.0,
            ..ZoneEntry::default()
        }
        .push_to(into);
    }

    pub fn decode(cursor: &mut Cursor<'_>) -> Option<Zone> {
        let entry = ZoneEntry::decode(cursor.take(ZoneEntry::SIZE)?);
        let mut zone = Zone::new(Holds::from_code(entry.state)?);
        zone.live = entry.live;
        zone.blocks = entry.blocks;
        zone.segment = SegmentId(entry.segment);
        zone.age = Lsn(entry.age);
        Some(zone)
    }
}

/// The zones and their sums.
pub(crate) struct Zones {
    pub all: Vec<Zone>,
    /// Live bytes of all zones.
    pub live: u64,
    /// Live blocks of all zones.
    pub blocks: u64,
    /// The first record that does not fit the usage (I4). In replay that is damage; in life it is a bug.
    pub broken: Option<String>,
}

impl Zones {
    pub fn new(zones: u32, roots: u32) -> Zones {
        let all = (0..zones).map(|zone| Zone::new(if zone < roots { Holds::Roots } else { Holds::Nothing })).collect();
        Zones { all, live: 0, blocks: 0, broken: None }
    }

    pub fn get(&self, zone: u32) -> &Zone {
        &self.all[index(zone)]
    }

    pub fn get_mut(&mut self, zone: u32) -> &mut Zone {
        &mut self.all[index(zone)]
    }

    /// Sums up again, after zones were read from the medium.
    pub fn sum_up(&mut self) {
        self.live = self.all.iter().map(|zone| u64::from(zone.live)).sum();
        self.blocks = self.all.iter().map(|zone| u64::from(zone.blocks)).sum();
    }

    /// A block lives at `place` now.
    pub fn add(&mut self, place: Location) {
        let Some(zone) = self.all.get_mut(index(place.zone())) else {
            return self.note(format!("a block is put into zone {}, which does not exist", place.zone()));
        };
        let (Some(live), Some(blocks)) = (zone.live.checked_add(place.footprint()), zone.blocks.checked_add(1)) else {
            return self.note(format!("more blocks are put into zone {} than fit", place.zone()));
        };
        zone.live = live;
        zone.blocks = blocks;
        self.live += u64::from(place.footprint());
        self.blocks += 1;
    }

    fn note(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    /// The block at `place` is dead as of record `lsn`.
    pub fn free(&mut self, place: Location, lsn: Lsn) {
        self.free_many(place.zone(), 1, place.footprint(), lsn);
    }

    /// Several blocks of one zone are dead.
    pub fn free_many(&mut self, zone: u32, blocks: u32, bytes: u32, lsn: Lsn) {
        let number = zone;
        let zone = self.all.get_mut(index(zone)).filter(|zone| zone.live >= bytes && zone.blocks >= blocks);
        let Some(zone) = zone else {
            return self.note(format!(
                "record {} frees {blocks} blocks of {bytes} bytes in zone {number}, where fewer live",
                lsn.0
            ));
        };
        zone.live -= bytes;
        zone.blocks -= blocks;
        zone.last_freed = zone.last_freed.max(lsn);
        self.live -= u64::from(bytes);
        self.blocks -= u64::from(blocks);
    }
}
