//! The disk under measurement, and a medium that counts what is written to it.

use super::place::Place;
use super::{narrow, wide};
use crate::failure::{Failure, Result};
use crate::random::{self, Random};
use lode::{Compression, Disk, FormatOptions, OpenOptions, Survive, Volume, VolumeOptions};
use lode_media::file::{Access, Io, RawImage};
use lode_media::{Geometry, Medium, Position, ReadRequest, ZoneId};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A medium of which only the first zones are used, with its appends counted.
pub struct Counted {
    below: Box<dyn Medium>,
    zones: u32,
    appended: AtomicU64,
}

impl Counted {
    /// All of `below`.
    pub fn new(below: impl Medium + 'static) -> Self {
        let zones = below.geometry().zones;
        Counted { below: Box::new(below), zones, appended: AtomicU64::new(0) }
    }

    /// Bytes appended so far.
    pub fn appended(&self) -> u64 {
        self.appended.load(Ordering::Relaxed)
    }
}

impl Medium for Counted {
    fn geometry(&self) -> Geometry {
        Geometry { zones: self.zones, ..self.below.geometry() }
    }

    fn read(&self, at: Position, into: &mut [u8]) -> lode_media::Result<()> {
        self.below.read(at, into)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        self.below.read_many(requests);
    }

    fn append(&self, at: Position, pieces: &[&[u8]]) -> lode_media::Result<()> {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.appended.fetch_add(wide(bytes), Ordering::Relaxed);
        self.below.append(at, pieces)
    }

    fn erase(&self, zone: ZoneId) -> lode_media::Result<()> {
        self.below.erase(zone)
    }

    fn sync(&self) -> lode_media::Result<()> {
        self.below.sync()
    }

    fn discard(&self, zone: ZoneId) -> lode_media::Result<()> {
        self.below.discard(zone)
    }
}

/// An open disk with one volume.
pub struct Subject {
    /// The disk.
    pub disk: Disk,
    /// Its volume.
    pub volume: Volume,
    /// What lies below.
    pub medium: Arc<Counted>,
}

/// A medium in `place`, the whole of it and no more.
pub fn medium(place: &Place) -> Result<Counted> {
    if place.start != 0 {
        return Err(Failure::usage("bench: expected the disk in the first place taken"));
    }
    let raw = RawImage::open(&place.path, Access::ReadWrite, Io::Auto)?;
    let zone = lode::default_zone_bytes(place.bytes);
    let mut counted = Counted::new(raw.into_medium(zone)?);
    counted.zones = u32::try_from(place.bytes / u64::from(zone)).unwrap_or(u32::MAX).min(counted.zones);
    Ok(counted)
}

impl Subject {
    /// Makes a disk on `medium`, with a volume of `bytes` in it.
    pub fn new(medium: Counted, bytes: u64, options: &OpenOptions) -> Result<Subject> {
        let medium = Arc::new(medium);
        Disk::format(medium.clone(), &FormatOptions { disk_id: random::identity()? })?;
        let disk = Disk::open(medium.clone(), options)?;
        let volume = VolumeOptions { bytes, block_bytes: 4096, compression: Compression::None };
        let volume = disk.create_volume("bench", &volume)?;
        disk.flush(Survive::Power)?;
        Ok(Subject { disk, volume, medium })
    }

    /// Makes a disk in `place`, with a volume of `bytes` in it.
    pub fn in_place(place: &Place, bytes: u64) -> Result<Subject> {
        Subject::new(medium(place)?, bytes, &OpenOptions::default())
    }

    /// Writes all of the volume in order.
    pub fn write_in_order(&self, data: &Data) -> Result<()> {
        const PIECE: usize = 1 << 20;
        let mut at = 0;
        while at < self.volume.bytes() {
            let piece = narrow(wide(PIECE).min(self.volume.bytes() - at));
            self.volume.write_at(at, data.piece(at, piece))?;
            at += wide(piece);
        }
        self.disk.flush(Survive::Power)?;
        Ok(())
    }

    /// Closes the disk.
    pub fn close(self) -> Result<()> {
        drop(self.volume);
        Ok(self.disk.close()?)
    }
}

/// Content to write that does not compress and costs nothing to make.
pub struct Data(Vec<u8>);

impl Data {
    /// Little more than the mebibyte from which the raw peers write, so that both sides' sources are equally near.
    pub fn new() -> Data {
        let mut bytes = vec![0; (1 << 20) + (64 << 10)];
        Random::new(3).fill(&mut bytes);
        Data(bytes)
    }

    /// Some of it, another piece for another `turn`.
    pub fn piece(&self, turn: u64, bytes: usize) -> &[u8] {
        let room = wide((self.0.len() - bytes) / 64 + 1);
        let at = narrow(turn.wrapping_mul(0x9e37_79b9) % room) * 64;
        &self.0[at..at + bytes]
    }
}
