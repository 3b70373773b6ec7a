//! A medium in memory that writes down every append, erase and sync in order.
//!
//! The *trace* is what every crash is made from: the first k operations happened, and of those that no sync
//! covers, any part may be lost. The bytes of an append are shared, so a prefix of a trace costs nothing.
//!
//! The medium holds the engine to the contract: appends are aligned, and in a zone each begins where the one before
//! ended, from the erase on (M1). A breach is an error to the engine and is kept in [`TracingMedium::violations`].
//! What an erased zone reads as is undefined (M4), and is chosen with the medium.

use crate::rng::{hash_bytes, index, mix, narrow, number, wide};
use lode_media::{Error, ErrorKind, Geometry, Medium, Position, Result, ZoneId};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One operation on a medium that changes it or promises something about it.
#[derive(Clone, Debug)]
pub enum TraceOp {
    /// Bytes were appended.
    Append {
        /// Where they begin.
        at: Position,
        /// All pieces, one after another.
        bytes: Arc<[u8]>,
    },
    /// A zone was made ready to be appended to from its start.
    Erase(ZoneId),
    /// The engine said that the content of a zone is no longer needed.
    Discard(ZoneId),
    /// The medium has so many zones from now on, for good.
    Grow(u32),
    /// Everything before is durable.
    Sync,
}

impl TraceOp {
    /// A hash of what is done, and where.
    pub fn hash(&self) -> u64 {
        match self {
            TraceOp::Append { at, bytes } => {
                mix(mix(u64::from(at.zone.0), u64::from(at.offset)), mix(1, hash_bytes(bytes)))
            }
            TraceOp::Erase(zone) => mix(2, u64::from(zone.0)),
            TraceOp::Discard(zone) => mix(3, u64::from(zone.0)),
            TraceOp::Sync => 4,
            TraceOp::Grow(zones) => mix(5, u64::from(*zones)),
        }
    }
}

impl std::fmt::Display for TraceOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TraceOp::Append { at, bytes } => {
                write!(
                    f,
                    "append  zone {:>3} from {:>6} to {:>6}",
                    at.zone.0,
                    at.offset,
                    index(at.offset) + bytes.len()
                )
            }
            TraceOp::Erase(zone) => write!(f, "erase   zone {:>3}", zone.0),
            TraceOp::Discard(zone) => write!(f, "discard zone {:>3}", zone.0),
            TraceOp::Sync => write!(f, "sync"),
            TraceOp::Grow(zones) => write!(f, "grow    to {zones} zones"),
        }
    }
}

/// The hash of a list of operations, in their order.
pub fn trace_hash(ops: &[TraceOp]) -> u64 {
    ops.iter().fold(0x7ACE, |hash, op| mix(hash, op.hash()))
}

/// What an erased zone reads as while nothing has been appended to it (M4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Erased {
    /// What was there before.
    Old,
    /// Zeros.
    Zeros,
    /// Bytes of [`NOISE`].
    Noise,
}

/// The byte that stands for garbage.
pub const NOISE: u8 = 0xA5;

struct Live {
    zones: Vec<Vec<u8>>,
    /// Where the next append of each zone goes; `None`: the zone was never erased.
    pointers: Vec<Option<u32>>,
    ops: Vec<TraceOp>,
    violations: Vec<String>,
    /// The sectors of each zone that were appended since it was erased; only kept while appends are not in order.
    sectors: Vec<BTreeSet<u32>>,
}

/// The medium in memory that records. Never fails.
pub struct TracingMedium {
    geometry: Geometry,
    erased: Erased,
    /// Appends are recorded in the order in which they lie: nobody has several in flight.
    in_order: bool,
    live: Mutex<Live>,
}

impl TracingMedium {
    /// A fresh medium: its zones read as `erased` says, and none is ready to be appended to.
    pub fn new(geometry: Geometry, erased: Erased) -> Self {
        let first = if erased == Erased::Zeros { 0 } else { NOISE };
        let zone = vec![first; index(geometry.zone_bytes)];
        let zones = vec![zone; index(geometry.zones)];
        let pointers = vec![None; index(geometry.zones)];
        let sectors = vec![BTreeSet::new(); index(geometry.zones)];
        let live = Mutex::new(Live { zones, pointers, ops: Vec::new(), violations: Vec::new(), sectors });
        TracingMedium { geometry, erased, in_order: true, live }
    }

    /// As [`TracingMedium::new`], for engines with threads: of several appends in flight any may be done first (M1).
    pub fn unordered(geometry: Geometry, erased: Erased) -> Self {
        TracingMedium { in_order: false, ..Self::new(geometry, erased) }
    }

    /// How many operations were recorded.
    pub fn recorded(&self) -> usize {
        self.lock().ops.len()
    }

    /// All operations recorded so far.
    pub fn ops(&self) -> Vec<TraceOp> {
        self.lock().ops.clone()
    }

    /// The bytes that all zones had before the first operation.
    pub fn first_byte(&self) -> u8 {
        if self.erased == Erased::Zeros { 0 } else { NOISE }
    }

    /// What the engine did against the contract, in words.
    pub fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }

    fn shape(&self, live: &Live) -> Geometry {
        Geometry { zones: number(live.zones.len()), ..self.geometry }
    }

    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Medium for TracingMedium {
    fn geometry(&self) -> Geometry {
        self.shape(&self.lock())
    }

    fn read(&self, at: Position, into: &mut [u8]) -> Result<()> {
        let live = self.lock();
        inside(&self.shape(&live), at, wide(into.len()))?;
        let from = index(at.offset);
        into.copy_from_slice(&live.zones[index(at.zone.0)][from..from + into.len()]);
        Ok(())
    }

    fn append(&self, at: Position, pieces: &[&[u8]]) -> Result<()> {
        let bytes: Arc<[u8]> = pieces.concat().into();
        let mut live = self.lock();
        let shape = self.shape(&live);
        let pointer = match inside(&shape, at, 0) {
            Ok(()) => live.pointers[index(at.zone.0)],
            Err(error) => return Err(error),
        };
        let allowed = if self.in_order {
            may_append(&shape, at, bytes.len(), pointer)
        } else {
            let first = at.offset / self.geometry.append_align;
            let sectors = first..first + number(bytes.len()) / self.geometry.append_align;
            let again = sectors.clone().any(|sector| live.sectors[index(at.zone.0)].contains(&sector));
            live.sectors[index(at.zone.0)].extend(sectors);
            // An append over an append is as one that does not begin where the zone goes on.
            let goes_on = if again { Some(u32::MAX) } else { pointer.map(|_| at.offset) };
            may_append(&shape, at, bytes.len(), goes_on)
        };
        if let Err(error) = allowed {
            live.violations.push(error.to_string());
            return Err(error);
        }
        let from = index(at.offset);
        live.zones[index(at.zone.0)][from..from + bytes.len()].copy_from_slice(&bytes);
        live.pointers[index(at.zone.0)] = Some(at.offset + number(bytes.len()));
        live.ops.push(TraceOp::Append { at, bytes });
        Ok(())
    }

    fn erase(&self, zone: ZoneId) -> Result<()> {
        let mut live = self.lock();
        inside(&self.shape(&live), Position { zone, offset: 0 }, 0)?;
        match self.erased {
            Erased::Old => {}
            Erased::Zeros => live.zones[index(zone.0)].fill(0),
            Erased::Noise => live.zones[index(zone.0)].fill(NOISE),
        }
        live.pointers[index(zone.0)] = Some(0);
        live.sectors[index(zone.0)].clear();
        live.ops.push(TraceOp::Erase(zone));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.lock().ops.push(TraceOp::Sync);
        Ok(())
    }

    fn grow(&self, zones: Option<u32>) -> Result<()> {
        let mut live = self.lock();
        let Some(zones) = zones.filter(|zones| index(*zones) > live.zones.len()) else { return Ok(()) };
        live.zones.resize(index(zones), vec![self.first_byte(); index(self.geometry.zone_bytes)]);
        live.pointers.resize(index(zones), None);
        live.sectors.resize(index(zones), BTreeSet::new());
        live.ops.push(TraceOp::Grow(zones));
        Ok(())
    }

    fn discard(&self, zone: ZoneId) -> Result<()> {
        let mut live = self.lock();
        inside(&self.shape(&live), Position { zone, offset: 0 }, 0)?;
        match self.erased {
            Erased::Old => {}
            Erased::Zeros => live.zones[index(zone.0)].fill(0),
            Erased::Noise => live.zones[index(zone.0)].fill(NOISE),
        }
        live.pointers[index(zone.0)] = None;
        live.ops.push(TraceOp::Discard(zone));
        Ok(())
    }
}

/// Checks that a range lies inside of a zone.
pub(crate) fn inside(geometry: &Geometry, at: Position, bytes: u64) -> Result<()> {
    let end = u64::from(at.offset) + bytes;
    if at.zone.0 < geometry.zones && end <= u64::from(geometry.zone_bytes) {
        return Ok(());
    }
    let words = format!("{bytes} bytes at zone {} offset {} lie outside of the medium", at.zone.0, at.offset);
    Err(Error::new(ErrorKind::OutOfBounds, words))
}

/// Checks an append against the contract: aligned, inside, and at the zone's pointer.
pub(crate) fn may_append(geometry: &Geometry, at: Position, bytes: usize, pointer: Option<u32>) -> Result<()> {
    inside(geometry, at, wide(bytes))?;
    let align = geometry.append_align;
    if !at.offset.is_multiple_of(align) || !bytes.is_multiple_of(narrow(u64::from(align))) {
        let words = format!("an append of {bytes} bytes at offset {} is not aligned to {align}", at.offset);
        return Err(Error::new(ErrorKind::OutOfBounds, words));
    }
    if pointer != Some(at.offset) {
        let words =
            format!("an append at zone {} offset {}, but the zone goes on at {pointer:?}", at.zone.0, at.offset);
        return Err(Error::new(ErrorKind::OutOfBounds, words));
    }
    Ok(())
}
