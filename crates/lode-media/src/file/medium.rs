//! An image as a medium.
//!
//! States: *good*, and *latched* after the first append or sync that failed in the kernel. There is no way back.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::bounds::total_len;
use crate::{Error, ErrorKind, Geometry, Medium, Position, ReadRequest, Result, ZoneId};

use super::image::Kind;
use super::real::RealZones;
use super::ring::Rings;
use super::{Access, Io, RawImage, batch};

/// Zones in a regular file or on a block device.
///
/// ```no_run
/// use lode_media::file::{CreateOptions, RawImage};
/// use lode_media::{Medium, Position, ZoneId};
///
/// let image = RawImage::create("disk.lode", &CreateOptions { bytes: 1 << 30, force: false })?;
/// let medium = image.into_medium(1 << 20)?;
/// medium.erase(ZoneId(0))?;
/// medium.append(Position { zone: ZoneId(0), offset: 0 }, &[&[7; 4096]])?;
/// medium.sync()?;
/// # Ok::<(), lode_media::Error>(())
/// ```
pub struct FileMedium {
    image: RawImage,
    /// With the number of zones that there were at first.
    first: Geometry,
    zones: AtomicU32,
    growing: Mutex<()>,
    rings: Rings,
    real: RealZones,
    zeroed: AtomicU64,
    /// Syncs that were begun. Two that overlap must not both ask the kernel: it reports a failed write to only one.
    syncs_begun: AtomicU64,
    syncing: Mutex<()>,
    /// The first failure of an append or a sync.
    latch: Mutex<Option<Error>>,
}

impl FileMedium {
    pub(super) fn new(image: RawImage, zone_bytes: u32) -> Result<FileMedium> {
        let name = image.path().display();
        if zone_bytes == 0 || !zone_bytes.is_multiple_of(image.sector) {
            let words =
                format!("expected zones of a multiple of {} bytes for {name}, found {zone_bytes}", image.sector);
            return Err(Error::new(ErrorKind::OutOfBounds, words));
        }
        let zones = image.len() / u64::from(zone_bytes);
        let zones = u32::try_from(zones).ok().filter(|&zones| zones > 0).ok_or_else(|| {
            let words = format!(
                "expected {name} to have between 1 and {} zones of {zone_bytes} bytes, found {} bytes",
                u32::MAX,
                image.len()
            );
            Error::new(ErrorKind::OutOfBounds, words)
        })?;
        let first = Geometry { zones, zone_bytes, append_align: image.sector, devices: 1 };
        Ok(FileMedium {
            real: RealZones::new(zones, image.kind == Kind::Device),
            image,
            first,
            zones: AtomicU32::new(zones),
            growing: Mutex::new(()),
            rings: Rings::default(),
            zeroed: AtomicU64::new(0),
            syncs_begun: AtomicU64::new(0),
            syncing: Mutex::new(()),
            latch: Mutex::new(None),
        })
    }

    /// Whether direct I/O is used.
    pub fn direct(&self) -> bool {
        self.image.direct
    }

    /// Bytes of zeros written by erase to make space real.
    pub fn zeroed_bytes(&self) -> u64 {
        self.zeroed.load(Ordering::Relaxed)
    }

    /// Groups of reads that went through io_uring.
    pub fn ring_batches(&self) -> u64 {
        self.rings.batches()
    }

    /// The image as a row of bytes.
    pub fn image(&self) -> &RawImage {
        &self.image
    }

    fn check_good(&self) -> Result<()> {
        self.latch.lock().clone().map_or(Ok(()), Err)
    }

    fn check_writable(&self) -> Result<()> {
        if self.image.access == Access::ReadWrite {
            return self.check_good();
        }
        let words = format!("expected {} to be open for writing, found it read-only", self.image.path().display());
        Err(Error::new(ErrorKind::Denied, words))
    }

    /// Remembers the first failure for good.
    fn latching(&self, done: Result<()>) -> Result<()> {
        if let Err(error) = &done {
            self.latch.lock().get_or_insert_with(|| error.clone());
        }
        done
    }

    /// Makes a file longer for good.
    fn lengthen(&self, bytes: u64, wanted: u64) -> Result<()> {
        let (handle, name) = (&self.image.handle, self.image.path().display());
        if self.image.kind == Kind::Device {
            let words = format!(
                "expected {name} to have at least {wanted} bytes, found {bytes}: a device that cannot be made longer"
            );
            return Err(Error::new(ErrorKind::OutOfBounds, words));
        }
        let length = |bytes| {
            rustix::fs::ftruncate(handle.fd(), bytes)
                .map_err(|error| Error::io(format!("setting the length of {name} to {bytes} bytes"), error.into()))
        };
        if let Err(error) = handle.reserve(bytes, wanted - bytes).and_then(|()| length(wanted)) {
            // The part that was reserved is given back; the first error is the one that counts.
            let _ = length(bytes);
            return Err(error);
        }
        // A failed sync may be about what was appended, and is told only once.
        let synced = rustix::fs::fsync(handle.fd());
        self.latching(synced.map_err(|error| Error::io(format!("syncing the new length of {name}"), error.into())))
    }

    fn start(&self, zone: ZoneId) -> u64 {
        self.first.linear(Position { zone, offset: 0 })
    }
}

impl Medium for FileMedium {
    fn geometry(&self) -> Geometry {
        Geometry { zones: self.zones.load(Ordering::Acquire), ..self.first }
    }

    fn read(&self, at: Position, into: &mut [u8]) -> Result<()> {
        self.geometry().check_range(at, into.len())?;
        self.image.handle.read(self.first.linear(at), into)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        if requests.len() > 1 && self.image.io == Io::Auto && self.rings.usable() {
            return batch::read(&self.image.handle, &self.rings, &self.geometry(), requests);
        }
        for request in requests {
            request.result = self.read(request.at, request.into);
        }
    }

    fn append(&self, at: Position, pieces: &[&[u8]]) -> Result<()> {
        self.check_writable()?;
        self.geometry().check_append(at, total_len(pieces))?;
        self.latching(self.image.handle.write(self.first.linear(at), pieces))
    }

    fn erase(&self, zone: ZoneId) -> Result<()> {
        self.check_writable()?;
        self.geometry().check_zone(zone)?;
        if self.real.contains(zone) {
            return Ok(());
        }
        // Not latched: nothing that anyone relies on was being written. The zone just is not usable.
        let start = self.start(zone);
        let end = start + u64::from(self.first.zone_bytes);
        let written = self.image.handle.make_real(start, end, self.first.append_align)?;
        self.zeroed.fetch_add(written, Ordering::Relaxed);
        self.real.insert(zone);
        Ok(())
    }

    /// A medium that is open read-only has nothing to sync.
    fn sync(&self) -> Result<()> {
        if self.image.access == Access::ReadOnly {
            return Ok(());
        }
        let seen = self.syncs_begun.load(Ordering::Acquire);
        let _one = self.syncing.lock();
        self.check_good()?;
        if self.syncs_begun.load(Ordering::Acquire) > seen {
            // One that began after this call has succeeded meanwhile: it covers what this one had to (M2).
            return Ok(());
        }
        self.syncs_begun.fetch_add(1, Ordering::AcqRel);
        self.latching(self.image.handle.sync())
    }

    /// A file is made longer, with the space reserved if the file system can; a device has to be long enough already.
    fn grow(&self, zones: Option<u32>) -> Result<()> {
        self.check_writable()?;
        let _one = self.growing.lock();
        let zone_bytes = u64::from(self.first.zone_bytes);
        let mut bytes = self.image.measure()?;
        if let Some(zones) = zones {
            let wanted = u64::from(zones) * zone_bytes;
            if wanted > bytes {
                self.lengthen(bytes, wanted)?;
                bytes = wanted;
            }
        }
        let there = u32::try_from(bytes / zone_bytes).unwrap_or(u32::MAX);
        // A device may have room for more than was asked for.
        let zones = zones.unwrap_or(there).max(self.geometry().zones);
        self.real.grow(zones);
        self.image.len.fetch_max(bytes, Ordering::AcqRel);
        self.zones.store(zones, Ordering::Release);
        Ok(())
    }

    /// Gives the space back to the file system or the device, if it takes it. The next erase writes the zone out anew,
    /// and on a full file system it cannot.
    fn discard(&self, zone: ZoneId) -> Result<()> {
        self.check_writable()?;
        self.geometry().check_zone(zone)?;
        let (start, len) = (self.start(zone), u64::from(self.first.zone_bytes));
        match self.image.kind {
            Kind::Device => self.image.handle.discard(start, len),
            Kind::Regular => {
                self.real.remove(zone);
                self.image.handle.punch(start, len)
            }
        }
    }
}

impl std::fmt::Debug for FileMedium {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileMedium({:?}, {:?})", self.image, self.geometry())
    }
}

#[cfg(test)]
mod tests;
