//! The medium as a cut left it: every sector is decided when recovery first reads it, and stays as decided.
//!
//! What recovery writes goes to an overlay and is a trace of its own, so that a second crash can be made from it.

use crate::chooser::Chooser;
use crate::platter::{Cut, Found, NO_SLOT, Platter, Source};
use crate::rng::{index, mix, number, wide};
use crate::trace::{NOISE, TraceOp, inside, may_append};
use lode_media::{Geometry, Medium, Position, Result, ZoneId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A zone that recovery has written to.
struct Overlay {
    /// Where its bytes begin.
    start: usize,
    bytes: Vec<u8>,
    /// Erased by recovery: nothing of what the cut left shows through.
    erased: bool,
}

/// Where a zone may be appended to.
#[derive(Clone, Copy)]
enum Tail {
    /// Nowhere before it is erased.
    Closed,
    /// Behind what is synced: how much of the rest a cut has left is not known.
    From(u32),
    /// Here.
    At(u32),
}

struct Image {
    chooser: Chooser,
    slots: Vec<Option<u32>>,
    groups: Vec<Option<u32>>,
    zones: Vec<Option<u32>>,
    undefined: Option<u32>,
    overlays: Vec<Option<Overlay>>,
    pointers: Vec<Tail>,
    ops: Vec<TraceOp>,
    observed: u64,
    violations: Vec<String>,
}

/// One image out of a [`Cut`], decided as it is read.
pub struct CrashImage {
    cut: Arc<Cut>,
    image: Mutex<Image>,
}

impl CrashImage {
    /// An image of `cut`, decided by `chooser`.
    pub fn new(cut: Arc<Cut>, chooser: Chooser) -> Self {
        let zones = cut.zones.len();
        let image = Image {
            chooser,
            slots: vec![None; cut.slots.len()],
            groups: vec![None; cut.groups.len()],
            zones: vec![None; zones],
            undefined: None,
            overlays: (0..zones).map(|_| None).collect(),
            pointers: cut.zones.iter().map(|zone| tail(&cut, zone.free_from)).collect(),
            ops: Vec::new(),
            observed: mix(cut.window, 0),
            violations: Vec::new(),
        };
        CrashImage { cut, image: Mutex::new(image) }
    }

    /// The path of choices as it is now.
    pub fn chooser(&self) -> Chooser {
        self.lock().chooser.clone()
    }

    /// From now on decides what is read by a draw that the path does not name.
    pub fn freeze(&self, seed: u64) {
        self.lock().chooser.freeze(seed);
    }

    /// A hash of all that was read and is not as it was at the last sync: equal for equal images.
    pub fn observed(&self) -> u64 {
        self.lock().observed
    }

    /// What was written since the crash.
    pub fn ops(&self) -> Vec<TraceOp> {
        self.lock().ops.clone()
    }

    /// How many operations were recorded since the crash.
    pub fn recorded(&self) -> usize {
        self.lock().ops.len()
    }

    /// What the engine did against the contract, in words.
    pub fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }

    /// In words, what was decided so far and is not the newest content.
    pub fn lost(&self) -> Vec<String> {
        let image = self.lock();
        let mut words = Vec::new();
        for (slot, pick) in self.cut.slots.iter().zip(&image.slots) {
            let (Some(pick), (zone, sector)) = (pick, slot.sector) else { continue };
            if *pick != 0 {
                let kind = match slot.candidates[index(*pick)].source {
                    Source::Settled => "old",
                    Source::Zeros => "zeros",
                    Source::Noise => "garbage",
                    Source::Appended(..) => "another version",
                };
                words.push(format!("zone {zone} offset {}: {kind}", sector * self.cut.geometry.append_align));
            }
        }
        let filling = |pick: &u32| if *pick == 1 { "garbage" } else { "zeros" };
        for (zone, pick) in image.zones.iter().enumerate().filter_map(|(zone, pick)| Some((zone, pick.as_ref()?))) {
            if *pick != 0 {
                words.push(format!("zone {zone}, erased: {}", filling(pick)));
            }
        }
        if let Some(pick) = image.undefined.filter(|pick| *pick != 0) {
            words.push(format!("all that is erased: {}", filling(&pick)));
        }
        words
    }

    /// The device as this image found it, before anything was written after the crash.
    pub fn platter(&self, salt: u64) -> Platter {
        let mut image = self.lock();
        let image = &mut *image;
        for (slot, pick) in self.cut.slots.iter().zip(&mut image.slots) {
            if let (Some((group, place)), None) = (slot.group, &pick)
                && let Some(way) = image.groups[group]
            {
                *pick = Some(self.cut.group_candidate(group, way, place, slot.candidates.len()));
            }
        }
        self.cut.settle(&Found { slots: &image.slots, zones: &image.zones }, salt)
    }

    fn shape(&self, image: &Image) -> Geometry {
        Geometry { zones: number(image.overlays.len()), ..self.cut.geometry }
    }

    fn lock(&self) -> MutexGuard<'_, Image> {
        self.image.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tail(cut: &Cut, free_from: Option<u32>) -> Tail {
    match free_from {
        Some(synced) => Tail::From(synced),
        None if cut.class.ordered => Tail::Closed,
        None => Tail::From(0),
    }
}

impl Image {
    fn read(&mut self, cut: &Cut, at: Position, into: &mut [u8]) {
        let zone = index(at.zone.0);
        let mut from = index(at.offset);
        let mut into = into;
        if let Some(overlay) = &self.overlays[zone] {
            let before = overlay.start.saturating_sub(from).min(into.len());
            let (first, rest) = into.split_at_mut(before);
            if overlay.erased {
                first.fill(NOISE);
            } else {
                self.read_cut(cut, zone, from, first);
            }
            from += before;
            let overlay = self.overlays[zone].as_ref().expect("it was there");
            let at = from.saturating_sub(overlay.start);
            let known = overlay.bytes.len().saturating_sub(at).min(rest.len());
            let (middle, rest) = rest.split_at_mut(known);
            middle.copy_from_slice(overlay.bytes.get(at..at + known).unwrap_or_default());
            if overlay.erased {
                rest.fill(NOISE);
                return;
            }
            into = rest;
            from += known;
        }
        self.read_cut(cut, zone, from, into);
    }

    /// Reads what the cut left.
    fn read_cut(&mut self, cut: &Cut, zone: usize, from: usize, into: &mut [u8]) {
        let (mut from, mut into) = (from, into);
        let place = &cut.zones[zone];
        let sure = place.slots.is_empty() && from + into.len() <= index(place.undefined_from);
        if sure {
            into.copy_from_slice(&place.bytes[from..from + into.len()]);
            return;
        }
        let align = index(cut.geometry.append_align);
        while !into.is_empty() {
            let sector = from / align;
            let length = into.len().min((sector + 1) * align - from);
            let (piece, rest) = into.split_at_mut(length);
            self.read_sector(cut, zone, sector, from, piece);
            from += length;
            into = rest;
        }
    }

    fn read_sector(&mut self, cut: &Cut, zone: usize, sector: usize, from: usize, into: &mut [u8]) {
        let place = &cut.zones[zone];
        let align = index(cut.geometry.append_align);
        let settled = &place.bytes[from..from + into.len()];
        match place.slots.get(sector) {
            Some(slot) if *slot != NO_SLOT => {
                let version = &cut.slots[index(*slot)].candidates[self.decide(cut, *slot)];
                match &version.source {
                    Source::Settled => into.copy_from_slice(settled),
                    Source::Zeros => into.fill(0),
                    Source::Noise => into.fill(NOISE),
                    Source::Appended(bytes, start) => {
                        let start = start + from - sector * align;
                        into.copy_from_slice(&bytes[start..start + into.len()]);
                    }
                }
            }
            _ if from < index(place.undefined_from) || !cut.class.undefined => into.copy_from_slice(settled),
            _ => match self.decide_erased(place.erase_pending, zone) {
                0 => into.copy_from_slice(settled),
                1 => into.fill(NOISE),
                _ => into.fill(0),
            },
        }
    }

    fn decide(&mut self, cut: &Cut, slot: u32) -> usize {
        let at = index(slot);
        if let Some(pick) = self.slots[at] {
            return index(pick);
        }
        let Image { chooser, groups, .. } = self;
        let slot = &cut.slots[at];
        let pick = match slot.group {
            None => {
                chooser.choose(number(slot.candidates.len()), mix(u64::from(slot.sector.0), u64::from(slot.sector.1)))
            }
            Some((group, place)) => {
                let way = *groups[group]
                    .get_or_insert_with(|| chooser.choose(cut.group_ways(cut.groups[group].0), cut.groups[group].1));
                cut.group_candidate(group, way, place, slot.candidates.len())
            }
        };
        self.slots[at] = Some(pick);
        let stamp = slot.candidates[index(pick)].stamp;
        if stamp != 0 {
            self.observed =
                self.observed.wrapping_add(mix(mix(u64::from(slot.sector.0), u64::from(slot.sector.1)), stamp));
        }
        index(pick)
    }

    fn decide_erased(&mut self, pending: bool, zone: usize) -> u32 {
        let Image { chooser, zones, undefined, observed, .. } = self;
        let (known, name) = if pending { (&mut zones[zone], wide(zone)) } else { (undefined, u64::MAX) };
        *known.get_or_insert_with(|| {
            let pick = chooser.choose(3, name);
            if pick != 0 {
                *observed = observed.wrapping_add(mix(name, u64::from(pick)));
            }
            pick
        })
    }
}

impl Medium for CrashImage {
    fn geometry(&self) -> Geometry {
        self.shape(&self.lock())
    }

    fn read(&self, at: Position, into: &mut [u8]) -> Result<()> {
        let mut image = self.lock();
        inside(&self.shape(&image), at, wide(into.len()))?;
        image.read(&self.cut, at, into);
        Ok(())
    }

    fn append(&self, at: Position, pieces: &[&[u8]]) -> Result<()> {
        let bytes: Arc<[u8]> = pieces.concat().into();
        let mut image = self.lock();
        let shape = self.shape(&image);
        inside(&shape, at, 0)?;
        let zone = index(at.zone.0);
        let pointer = match image.pointers[zone] {
            Tail::Closed => None,
            Tail::From(synced) => Some(at.offset.max(synced)),
            Tail::At(pointer) => Some(pointer),
        };
        if let Err(error) = may_append(&shape, at, bytes.len(), pointer) {
            image.violations.push(error.to_string());
            return Err(error);
        }
        image.pointers[zone] = Tail::At(at.offset + number(bytes.len()));
        let fresh = Overlay { start: index(at.offset), bytes: Vec::new(), erased: false };
        let overlay = image.overlays[zone].get_or_insert(fresh);
        overlay.bytes.extend_from_slice(&bytes);
        image.ops.push(TraceOp::Append { at, bytes });
        Ok(())
    }

    fn erase(&self, zone: ZoneId) -> Result<()> {
        let mut image = self.lock();
        inside(&self.shape(&image), Position { zone, offset: 0 }, 0)?;
        image.overlays[index(zone.0)] = Some(Overlay { start: 0, bytes: Vec::new(), erased: true });
        image.pointers[index(zone.0)] = Tail::At(0);
        image.ops.push(TraceOp::Erase(zone));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.lock().ops.push(TraceOp::Sync);
        Ok(())
    }

    fn grow(&self, zones: Option<u32>) -> Result<()> {
        let mut image = self.lock();
        let Some(zones) = zones.filter(|zones| index(*zones) > image.overlays.len()) else { return Ok(()) };
        let fresh = || Some(Overlay { start: 0, bytes: Vec::new(), erased: true });
        image.overlays.resize_with(index(zones), fresh);
        image.pointers.resize(index(zones), Tail::Closed);
        image.ops.push(TraceOp::Grow(zones));
        Ok(())
    }

    fn discard(&self, zone: ZoneId) -> Result<()> {
        let mut image = self.lock();
        inside(&self.shape(&image), Position { zone, offset: 0 }, 0)?;
        image.overlays[index(zone.0)] = Some(Overlay { start: 0, bytes: Vec::new(), erased: true });
        image.pointers[index(zone.0)] = Tail::Closed;
        image.ops.push(TraceOp::Discard(zone));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
