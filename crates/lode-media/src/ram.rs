//! A medium in memory, for tests, simulation and benchmarks.
//!
//! It is lean: a sector whose words are all equal takes no memory of its own, so a large disk of zeros is small.
//! It is strict: an append over something appended since the zone was erased (M1) is a bug of the caller, and
//! panics, and so is one into a zone that was discarded and not erased since. It is durable only as far as the process is.
//!
//! One lock for each zone: threads that work in different zones never wait for each other.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};

use crate::bounds::{index, total_len, wide};
use crate::{Geometry, Medium, Position, Result, ZoneId};

mod zone;

use zone::{Content, Zone};

/// What an erased zone of a noisy medium reads as.
pub const NOISE: u8 = 0xA5;

/// A medium in memory.
///
/// ```
/// use lode_media::{Geometry, Medium, Position, ZoneId, ram::RamMedium};
///
/// let medium = RamMedium::new(Geometry { zones: 8, zone_bytes: 1 << 20, append_align: 4096, devices: 1 });
/// let start = Position { zone: ZoneId(5), offset: 0 };
/// medium.append(start, &[&[1; 4000], &[2; 96]])?;
/// let mut found = [0; 2];
/// medium.read(Position { offset: 3999, ..start }, &mut found)?;
/// assert_eq!(found, [1, 2]);
/// # Ok::<(), lode_media::Error>(())
/// ```
pub struct RamMedium {
    /// With the number of zones that there were at first.
    geometry: Geometry,
    fill: u8,
    zones: RwLock<Vec<RwLock<Zone>>>,
    appends: AtomicU64,
    appended_bytes: AtomicU64,
    reads: AtomicU64,
    erases: AtomicU64,
    syncs: AtomicU64,
    discards: AtomicU64,
}

/// What a medium in memory has been asked to do so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Appends.
    pub appends: u64,
    /// Bytes of all appends.
    pub appended_bytes: u64,
    /// Reads, each of a group by itself.
    pub reads: u64,
    /// Erases.
    pub erases: u64,
    /// Syncs.
    pub syncs: u64,
    /// Discards.
    pub discards: u64,
}

impl RamMedium {
    /// A medium whose zones read as zeros where nothing has been appended since they were erased.
    ///
    /// Panics if the geometry has no zones, or zones that are not whole multiples of the alignment.
    pub fn new(geometry: Geometry) -> Self {
        Self::filled(geometry, 0)
    }

    /// A medium whose zones read as noise ([`NOISE`]) where nothing has been appended since they were erased.
    pub fn noisy(geometry: Geometry) -> Self {
        Self::filled(geometry, NOISE)
    }

    fn filled(geometry: Geometry, fill: u8) -> Self {
        if let Err(error) = geometry.check() {
            panic!("{error}");
        }
        let zone = || RwLock::new(Zone::new(geometry, fill));
        RamMedium {
            geometry,
            fill,
            zones: RwLock::new((0..geometry.zones).map(|_| zone()).collect()),
            appends: AtomicU64::new(0),
            appended_bytes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            erases: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            discards: AtomicU64::new(0),
        }
    }

    /// Bytes of memory that the content takes, without the table of the sectors.
    pub fn stored_bytes(&self) -> u64 {
        self.zones.read().iter().map(|zone| zone.read().stored_bytes()).sum()
    }

    /// What has been asked of it so far.
    pub fn counts(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            appends: load(&self.appends),
            appended_bytes: load(&self.appended_bytes),
            reads: load(&self.reads),
            erases: load(&self.erases),
            syncs: load(&self.syncs),
            discards: load(&self.discards),
        }
    }

    /// Puts bytes in place behind the contract's back, whatever was appended: for damage and for power cuts.
    /// Any offset and length inside one zone.
    pub fn overwrite(&self, at: Position, bytes: &[u8]) -> Result<()> {
        self.geometry().check_range(at, bytes.len())?;
        self.zone(at.zone).write().overwrite(at.offset, bytes);
        Ok(())
    }

    fn zone(&self, zone: ZoneId) -> MappedRwLockReadGuard<'_, RwLock<Zone>> {
        RwLockReadGuard::map(self.zones.read(), |zones| &zones[index(zone.0)])
    }
}

impl Medium for RamMedium {
    fn geometry(&self) -> Geometry {
        let zones = u32::try_from(self.zones.read().len()).expect("counted by 32 bits");
        Geometry { zones, ..self.geometry }
    }

    fn read(&self, at: Position, into: &mut [u8]) -> Result<()> {
        self.geometry().check_range(at, into.len())?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.zone(at.zone).read().read(at.offset, into);
        Ok(())
    }

    fn append(&self, at: Position, pieces: &[&[u8]]) -> Result<()> {
        let len = total_len(pieces);
        self.geometry().check_append(at, len)?;
        self.appends.fetch_add(1, Ordering::Relaxed);
        self.appended_bytes.fetch_add(wide(len), Ordering::Relaxed);
        // Copied before the lock is taken, so that appends to one zone copy side by side.
        let content = Content::of(pieces, self.geometry);
        if let Err(words) = self.zone(at.zone).write().append(at.offset, len, content) {
            panic!("M1: an append of {len} bytes at offset {} of zone {} {words}", at.offset, at.zone.0);
        }
        Ok(())
    }

    fn erase(&self, zone: ZoneId) -> Result<()> {
        self.geometry().check_zone(zone)?;
        self.erases.fetch_add(1, Ordering::Relaxed);
        self.zone(zone).write().erase();
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn grow(&self, zones: Option<u32>) -> Result<()> {
        let mut all = self.zones.write();
        let wanted = zones.map_or(0, index).max(all.len());
        all.resize_with(wanted, || RwLock::new(Zone::new(self.geometry, self.fill)));
        Ok(())
    }

    fn discard(&self, zone: ZoneId) -> Result<()> {
        self.geometry().check_zone(zone)?;
        self.discards.fetch_add(1, Ordering::Relaxed);
        self.zone(zone).write().discard();
        Ok(())
    }
}

impl std::fmt::Debug for RamMedium {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RamMedium({:?}, {:?})", self.geometry(), self.counts())
    }
}

#[cfg(test)]
mod tests;
