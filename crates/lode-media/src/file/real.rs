//! Which zones of a file are known to be written throughout, and writing out those that are not (M5).
//!
//! An extent that is only allocated ("unwritten") is turned into a written one at the first write, which changes
//! metadata and can fail for want of space or when the file is synced. So erase writes zeros over such extents
//! once; from then on the zone is rewritten in place.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::bounds::{index, narrow, wide};
use crate::{AlignedBuffer, Error, Result, ZoneId};

use super::handle::{Handle, uninterrupted};

/// Zeros are written in pieces of this length.
const ZEROS: usize = 1 << 20;
/// Makes a hole and keeps the length of the file.
const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// One bit for each zone: set when all of it is known to be written.
pub(super) struct RealZones {
    words: RwLock<Vec<AtomicU64>>,
    all: bool,
}

impl RealZones {
    /// No zone is known to be real, or all are.
    pub(super) fn new(zones: u32, all: bool) -> Self {
        let real = RealZones { words: RwLock::default(), all };
        real.grow(zones);
        real
    }

    /// There are so many zones now; what is known of the others stays.
    pub(super) fn grow(&self, zones: u32) {
        let word = if self.all { u64::MAX } else { 0 };
        let mut words = self.words.write();
        let wanted = index(zones.div_ceil(64)).max(words.len());
        words.resize_with(wanted, || AtomicU64::new(word));
    }

    fn with<T>(&self, zone: ZoneId, look: impl FnOnce(&AtomicU64, u64) -> T) -> T {
        look(&self.words.read()[index(zone.0 / 64)], 1 << (zone.0 % 64))
    }

    pub(super) fn contains(&self, zone: ZoneId) -> bool {
        self.with(zone, |word, bit| word.load(Ordering::Acquire) & bit != 0)
    }

    pub(super) fn insert(&self, zone: ZoneId) {
        self.with(zone, |word, bit| word.fetch_or(bit, Ordering::AcqRel));
    }

    pub(super) fn remove(&self, zone: ZoneId) {
        self.with(zone, |word, bit| word.fetch_and(!bit, Ordering::AcqRel));
    }
}

impl Handle {
    /// Writes zeros over every part of the range that is a hole or unwritten. Returns how many bytes.
    /// `sector` divides both ends; the parts are widened to it, so the content of the range must be of no use.
    pub(super) fn make_real(&self, start: u64, end: u64, sector: u32) -> Result<u64> {
        // All are looked for before the first call that allocates: some file systems (tmpfs) say that what is
        // allocated again is data.
        let holes = self.holes(start, end, u64::from(sector))?;
        if holes.is_empty() {
            return Ok(0);
        }
        self.reserve(start, end - start)?;
        for &(hole, data) in &holes {
            self.write_zeros(hole, data)?;
        }
        Ok(holes.iter().map(|(hole, data)| data - hole).sum())
    }

    /// The holes of a range, widened to whole sectors.
    fn holes(&self, start: u64, end: u64, sector: u64) -> Result<Vec<(u64, u64)>> {
        let mut holes = Vec::new();
        let mut from = start;
        while let Some((hole, data)) = self.next_hole(from, end)? {
            let data = data.next_multiple_of(sector).min(end);
            holes.push((hole - hole % sector, data));
            from = data;
        }
        Ok(holes)
    }

    /// The first hole at or behind `from` and before `end`, clipped to them.
    fn next_hole(&self, from: u64, end: u64) -> Result<Option<(u64, u64)>> {
        if from >= end {
            return Ok(None);
        }
        let context = || format!("looking for holes from offset {from} of {}", self.name());
        let hole = match self.calls.seek(self.fd(), SeekFrom::Hole(from)) {
            Ok(hole) => hole,
            // The file system cannot tell, or the file ends before: all of it counts as a hole.
            Err(error) if is(&error, Errno::INVAL) || is(&error, Errno::NXIO) => return Ok(Some((from, end))),
            Err(error) => return Err(Error::io(context(), error)),
        };
        if hole >= end {
            return Ok(None);
        }
        match self.calls.seek(self.fd(), SeekFrom::Data(hole)) {
            // At least a byte, so that an odd answer cannot stop the progress.
            Ok(data) => Ok(Some((hole, data.max(hole + 1).min(end)))),
            Err(error) if is(&error, Errno::NXIO) => Ok(Some((hole, end))),
            Err(error) => Err(Error::io(context(), error)),
        }
    }

    /// Reserves a range in one go, so that want of space shows before anything is written.
    pub(super) fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        let reserve = || self.calls.fallocate(self.fd(), FallocateFlags::empty(), offset, len);
        match uninterrupted(reserve) {
            Err(error) if error.kind() != io::ErrorKind::Unsupported => {
                Err(Error::io(format!("reserving {len} bytes at offset {offset} of {}", self.name()), error))
            }
            _ => Ok(()),
        }
    }

    fn write_zeros(&self, from: u64, end: u64) -> Result<()> {
        let zeros = AlignedBuffer::new(ZEROS.min(narrow(end - from)));
        let mut at = from;
        while at < end {
            let len = narrow((end - at).min(wide(zeros.len())));
            self.write(at, &[&zeros[..len]])?;
            at += wide(len);
        }
        Ok(())
    }

    /// Gives the space of a range of a file back if the file system can.
    pub(super) fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.hint("giving back", offset, len, || self.calls.fallocate(self.fd(), PUNCH, offset, len))
    }

    /// Gives the space of a range of a file back, so that it reads as zeros.
    pub(crate) fn punch_for_sure(&self, offset: u64, len: u64) -> Result<()> {
        uninterrupted(|| self.calls.fallocate(self.fd(), PUNCH, offset, len)).map_err(|error| {
            Error::io(format!("making {len} bytes at offset {offset} of {} a hole", self.name()), error)
        })
    }

    /// Tells a device that the content of a range is no longer needed.
    pub(super) fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.hint("discarding", offset, len, || self.calls.discard(self.fd(), offset, len))
    }

    /// A call that need not be possible.
    fn hint(&self, verb: &str, offset: u64, len: u64, call: impl FnMut() -> io::Result<()>) -> Result<()> {
        match uninterrupted(call) {
            Err(error) if error.kind() != io::ErrorKind::Unsupported => {
                Err(Error::io(format!("{verb} {len} bytes at offset {offset} of {}", self.name()), error))
            }
            _ => Ok(()),
        }
    }
}

fn is(error: &io::Error, number: Errno) -> bool {
    error.raw_os_error() == Some(number.raw_os_error())
}
