//! Windows on the log, for small blocks that nobody has in memory: whoever reads the inodes, directories and small files
//! that were written together reads them from the medium in pieces of 64 KiB, and not one by one.
//!
//! ```text
//!   a block is missed ──> remembered ──another is missed in the same region──> the region is read, and kept
//! ```
//! So reads here and there read nothing besides. A window is of one filling of its zone, and only of what had been appended
//! before it was read; every block that is cut out of it is verified as if it had been read by itself, and one that is not
//! right there is looked for on the medium.

use super::read::unpack;
use super::{Core, Inner};
use crate::shape::Shape;
use crate::sync::Mutex;
use crate::types::{Location, SegmentId, index};
use crate::zones::Holds;
use lode_media::{AlignedBuffer, Position, ZoneId};
use std::sync::Arc;

/// Bytes of a region. Regions begin at multiples of it.
const REGION: u32 = 64 << 10;
/// Larger blocks have no use for windows. A window is longer than its region by so much, for the block that begins there.
const BLOCK_MAX: u32 = 4096;
/// Windows take at most so many bytes ...
const WINDOWS_MAX: usize = 4 << 20;
/// ... and at most this part of what the cache may take.
const CACHE_PART: usize = 16;
/// So many regions are remembered in which a block was missed.
const MISSES: usize = 32;

/// A piece of the log.
struct Window {
    zone: u32,
    start: u32,
    segment: SegmentId,
    bytes: AlignedBuffer,
}

impl Window {
    /// The stored bytes of a place, if all of it lies in this window.
    fn stored(&self, place: Location) -> Option<&[u8]> {
        let from = index(place.offset().checked_sub(self.start).filter(|_| place.zone() == self.zone)?);
        self.bytes.get(from..from + index(place.stored()))
    }
}

/// What there is for a place.
enum Found {
    Window(Arc<Window>),
    /// It is worth reading one.
    Worth,
    Nothing,
}

/// See the file's head.
pub(crate) struct Windows {
    region: u32,
    /// Bytes of a whole window.
    bytes: u32,
    most: usize,
    /// With when each was last used.
    held: Vec<(Arc<Window>, u64)>,
    uses: u64,
    /// Zones and regions in which a block was missed.
    missed: [Option<(u32, u32)>; MISSES],
    hand: usize,
}

/// Windows out of what the cache may take, and what is left of that.
pub(crate) fn windows(shape: &Shape, cache_bytes: usize) -> (Option<Mutex<Windows>>, usize) {
    let region = REGION.min(shape.zone_bytes).next_multiple_of(shape.align);
    let bytes = region + BLOCK_MAX.next_multiple_of(shape.align);
    let most = (cache_bytes / CACHE_PART).min(WINDOWS_MAX) / index(bytes);
    if most == 0 {
        return (None, cache_bytes);
    }
    let windows = Windows { region, bytes, most, held: Vec::new(), uses: 0, missed: [None; MISSES], hand: 0 };
    (Some(Mutex::new(windows)), cache_bytes - most * index(bytes))
}

impl Windows {
    fn start(&self, place: Location) -> u32 {
        place.offset() / self.region * self.region
    }

    /// `miss`: that it is missed counts.
    fn find(&mut self, place: Location, miss: bool) -> Found {
        self.uses += 1;
        let of = (place.zone(), self.start(place));
        let held = self.held.iter_mut().find(|(window, _)| (window.zone, window.start) == of);
        if let Some((window, used)) = held.filter(|(window, _)| window.stored(place).is_some()) {
            *used = self.uses;
            return Found::Window(Arc::clone(window));
        }
        if !miss {
            return Found::Nothing;
        }
        if let Some(missed) = self.missed.iter_mut().find(|missed| **missed == Some(of)) {
            *missed = None;
            return Found::Worth;
        }
        self.missed[self.hand] = Some(of);
        self.hand = (self.hand + 1) % MISSES;
        Found::Nothing
    }

    fn keep(&mut self, window: Arc<Window>) {
        self.held.retain(|(held, _)| (held.zone, held.start) != (window.zone, window.start));
        if self.held.len() == self.most
            && let Some(oldest) = (0..self.held.len()).min_by_key(|at| self.held[*at].1)
        {
            self.held.swap_remove(oldest);
        }
        self.held.push((window, self.uses));
    }
}

impl Core {
    /// Which filling of a zone this is, and up to where all of it has been appended, of those in which blocks lie.
    fn filled(&self, zone: u32) -> Option<(SegmentId, u32)> {
        let found = self.state.zones.all.get(index(zone))?;
        let end = match found.holds {
            Holds::Main => self.writer.appended_end(zone),
            Holds::Moved if !found.open => self.state.shape.zone_bytes,
            _ => return None,
        };
        Some((found.segment, end))
    }
}

impl Inner {
    /// Fills `into` with a small block out of a window. False: there is none for it, and it is not worth reading one.
    /// `miss`: that it is missed counts.
    pub(super) fn read_from_window(&self, place: Location, checksum: u32, into: &mut [u8], miss: bool) -> bool {
        let Some(windows) = self.windows.as_ref().filter(|_| place.stored() <= BLOCK_MAX) else { return false };
        let found = windows.lock().find(place, miss);
        let window = match found {
            Found::Window(window) => window,
            Found::Worth => match self.read_window(windows, place) {
                Some(window) => window,
                None => return false,
            },
            Found::Nothing => return false,
        };
        let is_now = self.core.lock().filled(window.zone).is_some_and(|(segment, _)| segment == window.segment);
        let stored = window.stored(place).filter(|_| is_now);
        if stored.is_some_and(|stored| unpack(stored, place, checksum, into).is_ok()) {
            return true;
        }
        windows.lock().held.retain(|(held, _)| !Arc::ptr_eq(held, &window));
        false
    }

    /// Reads the region in which a place lies, if all of it is on the medium. What goes wrong is left to the read itself.
    fn read_window(&self, windows: &Mutex<Windows>, place: Location) -> Option<Arc<Window>> {
        let (start, region, bytes) = {
            let windows = windows.lock();
            (windows.start(place), windows.region, windows.bytes)
        };
        // Asked before it is read: all of this is there then.
        let (segment, end) = self.core.lock().filled(place.zone())?;
        let zone_end = self.shape.zone_bytes;
        if end < (start + region).min(zone_end) {
            return None; // It would have to be read again soon.
        }
        let len = (start + bytes).min(end) - start;
        let mut window = Window { zone: place.zone(), start, segment, bytes: AlignedBuffer::new(index(len)) };
        self.medium.read(Position { zone: ZoneId(window.zone), offset: start }, &mut window.bytes).ok()?;
        crate::mark("read: window on the log");
        let window = Arc::new(window);
        windows.lock().keep(Arc::clone(&window));
        Some(window)
    }

    /// A zone is to be erased: what windows hold of it is nobody's any more.
    pub(super) fn forget_windows(&self, zone: u32) {
        if let Some(windows) = &self.windows {
            windows.lock().held.retain(|(window, _)| window.zone != zone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Kind, len_u32};

    fn place(zone: u32, offset: u32) -> Location {
        Location::new(zone, offset, 512, Kind::Raw)
    }

    fn window(zone: u32, start: u32, len: usize) -> Arc<Window> {
        Arc::new(Window { zone, start, segment: SegmentId(u64::from(zone)), bytes: AlignedBuffer::new(len) })
    }

    fn some(most: usize) -> Windows {
        Windows { region: REGION, bytes: REGION, most, held: Vec::new(), uses: 0, missed: [None; MISSES], hand: 0 }
    }

    #[test]
    fn the_second_miss_in_a_region_is_worth_a_window() {
        let mut windows = some(2);
        assert!(matches!(windows.find(place(5, 0), true), Found::Nothing));
        assert!(matches!(windows.find(place(5, 70_000), true), Found::Nothing), "another region");
        assert!(matches!(windows.find(place(6, 512), true), Found::Nothing), "another zone");
        assert!(matches!(windows.find(place(5, 512), false), Found::Nothing), "it does not count");
        assert!(matches!(windows.find(place(5, 1024), true), Found::Worth));
        assert!(matches!(windows.find(place(5, 1024), true), Found::Nothing), "nobody has read it");
        // So many others, and it is forgotten.
        for zone in 10..10 + len_u32(MISSES) {
            windows.find(place(zone, 0), true);
        }
        assert!(matches!(windows.find(place(5, 0), true), Found::Nothing));
    }

    #[test]
    fn of_many_windows_those_used_last_are_kept() {
        let mut windows = some(2);
        windows.keep(window(5, 0, 65536));
        windows.keep(window(6, 0, 65536));
        assert!(matches!(windows.find(place(5, 65536 - 512), true), Found::Window(_)));
        assert!(matches!(windows.find(place(5, 65536 - 496), true), Found::Nothing), "it ends behind it");
        windows.keep(window(7, 0, 65536));
        let zones = |windows: &Windows| windows.held.iter().map(|(window, _)| window.zone).collect::<Vec<_>>();
        assert_eq!(zones(&windows), [5, 7]);
        windows.keep(window(5, 0, 65536));
        assert_eq!(zones(&windows), [7, 5], "one for each region");
    }

    #[test]
    fn windows_are_taken_out_of_what_the_cache_may_take() {
        let geometry = lode_media::Geometry { zones: 64, zone_bytes: 4 << 20, append_align: 4096, devices: 1 };
        let shape = Shape::new(geometry).expect("a geometry like others");
        let (none, left) = windows(&shape, 1 << 20);
        assert!(none.is_none() && left == 1 << 20);
        let (some, left) = windows(&shape, 64 << 20);
        assert_eq!(some.map(|windows| windows.lock().most), Some(60));
        assert_eq!(left, (64 << 20) - 60 * (68 << 10));
    }
}
