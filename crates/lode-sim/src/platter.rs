//! What a device may hold after a cut: for each sector the durable content, and every other that a cut could leave.
//!
//! A [`Platter`] is stepped over a trace. `sync` settles what was pending. At any point [`Platter::cut`] gives the
//! [`Cut`]: the settled bytes, shared with other cuts, and for each *unsure* sector its candidates. Reading chooses
//! among them, see `crash`.
//!
//! * A sector of an unsynced append: the new content, the old, each version between (a zone erased and appended to
//!   twice), and in tear mode garbage and zeros (M3).
//! * An unsynced erase, where nothing was appended since: old, garbage or zeros, chosen by zone.
//! * A synced erase, where nothing was appended since: the same (M4), chosen once for the whole image.
//!
//! Zones that the medium has grown by are there from then on, whatever is cut.

use crate::rng::{index, mix, number};
use crate::trace::{NOISE, TraceOp};
use lode_media::Geometry;
use std::collections::BTreeMap;
use std::sync::Arc;

mod settle;
pub(crate) use settle::Found;

/// Which crashes are made.
#[derive(Clone, Copy, Debug)]
pub struct CrashClass {
    /// A lost sector may also hold garbage or zeros, not only old content.
    pub tear: bool,
    /// What is erased and not appended to reads as old content, garbage or zeros; otherwise as old content.
    pub undefined: bool,
    /// Appends of up to this many sectors are cut sector by sector in every combination. Longer ones, only ever
    /// judged by a checksum, in the reduced class: all old, all new, each single sector old, each single sector new,
    /// each prefix, one random mix.
    pub full_sectors_max: u32,
    /// After a crash a zone may be appended to only behind what is synced, or after an erase. Otherwise anywhere:
    /// for engines that count on a medium that can write again what it has not synced.
    pub ordered: bool,
}

/// Where the bytes of a version are.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// In the settled bytes of the zone.
    Settled,
    /// All zeros.
    Zeros,
    /// All garbage.
    Noise,
    /// In an append's bytes, from an offset on.
    Appended(Arc<[u8]>, usize),
}

/// One content that a sector may have.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) source: Source,
    /// Names the content for counting different images; 0: the settled one.
    pub(crate) stamp: u64,
}

const SETTLED: Version = Version { source: Source::Settled, stamp: 0 };
const ZEROS: Version = Version { source: Source::Zeros, stamp: 1 };
const GARBAGE: Version = Version { source: Source::Noise, stamp: 2 };

#[derive(Clone, Debug, Default)]
struct Unsure {
    /// Contents that the sector may durably have, if not the settled bytes: choices of an earlier crash never read.
    alternatives: Vec<Version>,
    /// What was appended since the last sync, oldest first.
    pending: Vec<Version>,
    /// The last append that wrote here.
    append: u64,
}

#[derive(Clone, Debug)]
struct PlatterZone {
    bytes: Arc<Vec<u8>>,
    unsure: BTreeMap<u32, Unsure>,
    erase_pending: bool,
    /// From here on the durable content is undefined.
    undefined_from: u32,
    /// Where appending goes on, as this zone's erase and appends say.
    pointer: Option<u32>,
    /// Where it went on at the last sync.
    synced: Option<u32>,
    /// Changed since the last sync.
    touched: bool,
}

/// The device, while a trace is stepped over.
#[derive(Clone, Debug)]
pub struct Platter {
    geometry: Geometry,
    /// What zones hold that were never touched.
    first: u8,
    zones: Vec<PlatterZone>,
    /// Tells versions of this platter from those of others.
    salt: u64,
    steps: u64,
    syncs: u64,
}

/// One unsure sector of a [`Cut`].
#[derive(Debug)]
pub(crate) struct Slot {
    /// First the newest, then the durable, then the others.
    pub(crate) candidates: Vec<Version>,
    /// Its zone, and which sector there.
    pub(crate) sector: (u32, u32),
    /// The append it belongs to, if that is cut by the reduced class, and its place there.
    pub(crate) group: Option<(usize, u32)>,
}

/// A zone of a [`Cut`].
#[derive(Debug)]
pub(crate) struct CutZone {
    pub(crate) bytes: Arc<Vec<u8>>,
    /// For each sector its slot, or `NO_SLOT`. Empty: no sector of this zone has one.
    pub(crate) slots: Vec<u32>,
    pub(crate) erase_pending: bool,
    /// From here on sectors without a slot hold what the zone's, or the image's, choice says.
    pub(crate) undefined_from: u32,
    /// From where on the zone may be appended to without another erase: never over what is synced (M3).
    pub(crate) free_from: Option<u32>,
}

/// No slot: the sector is sure.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// What a cut at one moment may leave. Images are drawn from it.
#[derive(Debug)]
pub struct Cut {
    pub(crate) geometry: Geometry,
    /// What zones hold that were never touched.
    pub(crate) first: u8,
    pub(crate) class: CrashClass,
    pub(crate) zones: Vec<CutZone>,
    pub(crate) slots: Vec<Slot>,
    /// Sectors in each append that is cut by the reduced class, with its stamp.
    pub(crate) groups: Vec<(u32, u64)>,
    /// How many syncs were before: two cuts with one number have the same settled bytes.
    pub window: u64,
    /// The logarithm (base 10) of how many images there are, counted sector by sector.
    pub images_log10: f64,
}

impl Platter {
    /// A device whose every byte is `first`, with nothing erased.
    pub fn new(geometry: Geometry, first: u8) -> Self {
        let mut platter = Platter { geometry, first, zones: Vec::new(), salt: 0, steps: 0, syncs: 0 };
        platter.grow(geometry.zones);
        platter
    }

    fn grow(&mut self, zones: u32) {
        let zone_bytes = self.geometry.zone_bytes;
        let zone = PlatterZone {
            bytes: Arc::new(vec![self.first; index(zone_bytes)]),
            unsure: BTreeMap::new(),
            erase_pending: false,
            undefined_from: zone_bytes,
            pointer: None,
            synced: None,
            touched: false,
        };
        self.geometry.zones = zones;
        self.zones.resize(index(zones), zone);
    }

    /// Takes the next operation of the trace.
    pub fn step(&mut self, op: &TraceOp) {
        self.steps += 1;
        match op {
            TraceOp::Append { at, bytes } => self.append(index(at.zone.0), at.offset, bytes),
            TraceOp::Erase(zone) => self.erase(index(zone.0), Some(0)),
            TraceOp::Discard(zone) => self.erase(index(zone.0), None),
            TraceOp::Sync => self.sync(),
            TraceOp::Grow(zones) => self.grow(*zones),
        }
    }

    fn append(&mut self, zone: usize, offset: u32, bytes: &Arc<[u8]>) {
        let align = self.geometry.append_align;
        let append = mix(self.salt, self.steps);
        let zone = &mut self.zones[zone];
        zone.touched = true;
        // Of several appends in flight a later one may be recorded first (M1).
        zone.pointer = zone.pointer.max(Some(offset + number(bytes.len())));
        let first = offset / align;
        for place in 0..number(bytes.len()) / align {
            let from = index(place * align);
            let version = Version {
                source: Source::Appended(Arc::clone(bytes), from),
                stamp: mix(append, u64::from(place)).max(3),
            };
            let unsure = zone.unsure.entry(first + place).or_default();
            unsure.pending.push(version);
            unsure.append = append;
        }
    }

    fn erase(&mut self, zone: usize, pointer: Option<u32>) {
        let zone = &mut self.zones[zone];
        zone.touched = true;
        zone.erase_pending = true;
        zone.pointer = pointer;
    }

    fn sync(&mut self) {
        self.syncs += 1;
        let align = self.geometry.append_align;
        for zone in self.zones.iter_mut().filter(|zone| zone.touched) {
            zone.touched = false;
            zone.synced = zone.pointer;
            let bytes = Arc::make_mut(&mut zone.bytes);
            zone.unsure.retain(|sector, unsure| match unsure.pending.last() {
                Some(version) => {
                    fill(bytes, *sector * align, align, version);
                    false
                }
                None => true,
            });
            if zone.erase_pending {
                zone.erase_pending = false;
                zone.undefined_from = zone.pointer.unwrap_or(0);
            } else if let (Some(pointer), true) = (zone.pointer, zone.undefined_from < self.geometry.zone_bytes) {
                zone.undefined_from = pointer;
            }
        }
    }

    /// What a cut at this moment may leave.
    pub fn cut(&self, class: CrashClass) -> Cut {
        let mut cut = Cut {
            geometry: self.geometry,
            first: self.first,
            class,
            zones: Vec::with_capacity(self.zones.len()),
            slots: Vec::new(),
            groups: Vec::new(),
            window: self.syncs,
            images_log10: 0.0,
        };
        for zone in &self.zones {
            let cut_zone = self.cut_zone(zone, &mut cut);
            cut.zones.push(cut_zone);
        }
        cut
    }

    fn cut_zone(&self, zone: &PlatterZone, cut: &mut Cut) -> CutZone {
        let align = self.geometry.append_align;
        let mut slots = Vec::new();
        let mut members: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        if !zone.unsure.is_empty() {
            slots = vec![NO_SLOT; index(self.geometry.zone_bytes / align)];
        }
        for (sector, unsure) in &zone.unsure {
            let blank = zone.erase_pending || *sector * align >= zone.undefined_from;
            let bytes = &zone.bytes[index(*sector * align)..index((*sector + 1) * align)];
            let candidates = candidates(unsure, blank, cut.class, bytes);
            cut.images_log10 += f64::from(number(candidates.len())).log10();
            slots[index(*sector)] = number(cut.slots.len());
            if !unsure.pending.is_empty() {
                members.entry(unsure.append).or_default().push(cut.slots.len());
            }
            let name = (number(cut.zones.len()), *sector);
            cut.slots.push(Slot { candidates, sector: name, group: None });
        }
        for (append, sectors) in members {
            if sectors.len() > index(cut.class.full_sectors_max) {
                for (place, slot) in sectors.iter().enumerate() {
                    cut.slots[*slot].group = Some((cut.groups.len(), number(place)));
                }
                cut.groups.push((number(sectors.len()), append));
            }
        }
        let undefined_from = if zone.erase_pending { 0 } else { zone.undefined_from };
        let free_from = if zone.erase_pending { None } else { zone.synced };
        let bytes = Arc::clone(&zone.bytes);
        CutZone { bytes, slots, erase_pending: zone.erase_pending, undefined_from, free_from }
    }
}

/// All that a sector may hold after a cut, without repetition.
fn candidates(unsure: &Unsure, blank: bool, class: CrashClass, settled: &[u8]) -> Vec<Version> {
    let mut all: Vec<Version> = unsure.pending.last().into_iter().cloned().collect();
    if unsure.alternatives.is_empty() {
        all.push(SETTLED);
    } else {
        all.extend(unsure.alternatives.iter().cloned());
    }
    let lost = !unsure.pending.is_empty();
    if lost && (class.tear || (blank && class.undefined)) {
        all.push(GARBAGE);
        all.push(ZEROS);
    }
    let older = unsure.pending.len().saturating_sub(1);
    all.extend(unsure.pending[..older].iter().rev().cloned());
    let mut kept: Vec<Version> = Vec::with_capacity(all.len());
    for version in all {
        if !kept.iter().any(|other| same(other, &version, settled)) {
            kept.push(version);
        }
    }
    kept
}

fn same(a: &Version, b: &Version, settled: &[u8]) -> bool {
    match (content(a, settled), content(b, settled)) {
        (Ok(a), Ok(b)) => a == b,
        (Err(a), Err(b)) => a == b,
        (Ok(bytes), Err(byte)) | (Err(byte), Ok(bytes)) => bytes.iter().all(|each| *each == byte),
    }
}

/// The bytes of a version, or the byte that fills it.
fn content<'a>(version: &'a Version, settled: &'a [u8]) -> Result<&'a [u8], u8> {
    match &version.source {
        Source::Settled => Ok(settled),
        Source::Zeros => Err(0),
        Source::Noise => Err(NOISE),
        Source::Appended(bytes, from) => Ok(&bytes[*from..*from + settled.len()]),
    }
}

/// Makes a version the content of a sector that lies at `at`.
fn fill(zone: &mut [u8], at: u32, align: u32, version: &Version) {
    let into = &mut zone[index(at)..index(at + align)];
    match &version.source {
        Source::Settled => {}
        Source::Zeros => into.fill(0),
        Source::Noise => into.fill(NOISE),
        Source::Appended(bytes, from) => into.copy_from_slice(&bytes[*from..*from + into.len()]),
    }
}
