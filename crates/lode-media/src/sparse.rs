//! Zones in a sparse file that keeps only what is not zero, for disks much larger than the device below.
//!
//! Made for benchmarks whose user data is zeros: what the engine itself writes is kept, sectors that are entirely
//! zero stay holes. Erase gives the zone's space back, so space is *not* real (M5 does not hold): an append can
//! fail for want of space. Buffered I/O: what was appended survives the death of the process (M6), and a power
//! cut after `sync`. Not for data that matters.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};

use crate::bounds::{index, total_len, wide};
use crate::file::{Access, Handle, Kernel, lock};
use crate::{Error, ErrorKind, Geometry, Medium, Position, Result, ZoneId};

/// What is stored or not stored, at the most.
const SECTOR: usize = 4096;
static ZEROS: [u8; SECTOR] = [0; SECTOR];

/// A sparse file as a medium.
pub struct SparseMedium {
    handle: Handle,
    geometry: Geometry,
    stored: AtomicU64,
}

impl SparseMedium {
    /// Makes a new file of the geometry's length in which nothing is stored. `NotEmpty` if there is one already.
    pub fn create(path: impl AsRef<Path>, geometry: Geometry) -> Result<SparseMedium> {
        let path = path.as_ref();
        geometry.check()?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|error| match error {
            rustix::io::Errno::EXIST => {
                Error::new(ErrorKind::NotEmpty, format!("expected nothing at {}, found a file", path.display()))
            }
            error => Error::io(format!("creating {}", path.display()), error.into()),
        })?;
        lock(&fd, path, Access::ReadWrite)?;
        let context = || format!("setting the length of {} to {} bytes", path.display(), geometry.total_bytes());
        rustix::fs::ftruncate(&fd, geometry.total_bytes()).map_err(|error| Error::io(context(), error.into()))?;
        rustix::fs::fsync(&fd).map_err(|error| Error::io(context(), error.into()))?;
        crate::file::sync_directory(path)?;
        Ok(Self::over(fd, path, geometry))
    }

    /// Opens a file made with the same geometry.
    pub fn open(path: impl AsRef<Path>, geometry: Geometry) -> Result<SparseMedium> {
        let path = path.as_ref();
        geometry.check()?;
        let context = || format!("opening {}", path.display());
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| Error::io(context(), error.into()))?;
        lock(&fd, path, Access::ReadWrite)?;
        let found = rustix::fs::fstat(&fd).map_err(|error| Error::io(context(), error.into()))?.st_size;
        if u64::try_from(found) != Ok(geometry.total_bytes()) {
            let words = format!(
                "expected {} to have {} zones of {} bytes, {} in all, found {found}",
                path.display(),
                geometry.zones,
                geometry.zone_bytes,
                geometry.total_bytes()
            );
            return Err(Error::new(ErrorKind::OutOfBounds, words));
        }
        Ok(Self::over(fd, path, geometry))
    }

    fn over(fd: std::os::fd::OwnedFd, path: &Path, geometry: Geometry) -> SparseMedium {
        SparseMedium { handle: Handle::buffered(fd, path, Box::new(Kernel)), geometry, stored: AtomicU64::new(0) }
    }

    /// Bytes given to the file since it was opened. What was appended beyond that was zero.
    pub fn stored_bytes(&self) -> u64 {
        self.stored.load(Ordering::Relaxed)
    }

    /// Writes what is not zero of one piece that starts at `offset` of the file.
    fn write_piece(&self, offset: u64, piece: &[u8]) -> Result<()> {
        let unit = SECTOR.min(index(self.geometry.append_align));
        let is_zero = |sector: &[u8]| *sector == ZEROS[..sector.len()];
        let mut sectors = piece.chunks(unit).enumerate().peekable();
        while let Some((first, sector)) = sectors.next() {
            if is_zero(sector) {
                continue;
            }
            let mut end = first * unit + sector.len();
            while let Some((_, sector)) = sectors.next_if(|(_, sector)| !is_zero(sector)) {
                end += sector.len();
            }
            let run = &piece[first * unit..end];
            self.handle.write(offset + wide(first * unit), &[run])?;
            self.stored.fetch_add(wide(run.len()), Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Medium for SparseMedium {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: Position, into: &mut [u8]) -> Result<()> {
        self.geometry.check_range(at, into.len())?;
        self.handle.read(self.geometry.linear(at), into)
    }

    fn append(&self, at: Position, pieces: &[&[u8]]) -> Result<()> {
        self.geometry.check_append(at, total_len(pieces))?;
        let mut offset = self.geometry.linear(at);
        for piece in pieces {
            self.write_piece(offset, piece)?;
            offset += wide(piece.len());
        }
        Ok(())
    }

    fn erase(&self, zone: ZoneId) -> Result<()> {
        self.geometry.check_zone(zone)?;
        let start = self.geometry.linear(Position { zone, offset: 0 });
        self.handle.punch_for_sure(start, u64::from(self.geometry.zone_bytes))
    }

    fn sync(&self) -> Result<()> {
        self.handle.sync()
    }

    fn discard(&self, zone: ZoneId) -> Result<()> {
        self.erase(zone)
    }
}

impl std::fmt::Debug for SparseMedium {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SparseMedium({:?})", self.geometry)
    }
}

#[cfg(test)]
mod tests;
