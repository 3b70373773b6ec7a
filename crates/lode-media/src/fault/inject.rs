//! Damage: what goes wrong beside cuts and failing calls.

use crate::bounds::{index, narrow, wide};
use crate::{Error, ErrorKind, Geometry, Medium, Position, Result, ZoneId};

use super::cells::Cell;
use super::state::{State, place, touched, words};

impl State {
    pub(super) fn heal(&mut self) {
        self.script.clear();
        self.misdirect = None;
        self.flips = 0;
    }

    pub(super) fn misdirect_next(&mut self, to: Option<Position>) {
        self.misdirect = Some(to);
    }

    pub(super) fn flip_reads(&mut self, reads: u64) {
        self.flips = reads;
    }

    /// Where an append of `len` bytes goes if it goes astray.
    pub(super) fn place_astray(&mut self, geometry: Geometry, len: usize) -> Option<Position> {
        let asked = self.misdirect.take();
        if asked.is_none() && !self.rng.chance(self.plan.misdirect_per_mille) {
            return None;
        }
        let align = geometry.append_align;
        let last = geometry.zone_bytes - u32::try_from(len).expect("an append fits its zone");
        Some(match asked.flatten() {
            Some(to) => Position {
                zone: ZoneId(to.zone.0.min(geometry.zones - 1)),
                offset: (to.offset - to.offset % align).min(last),
            },
            None => Position {
                zone: ZoneId(self.number_below(geometry.zones)),
                offset: self.number_below(last / align + 1) * align,
            },
        })
    }

    fn number_below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.rng.below(u64::from(bound))).expect("a number below one of 32 bits")
    }

    /// Flips one bit of what was read, if it is time for that.
    pub(super) fn flip(&mut self, into: &mut [u8]) {
        let due = self.flips > 0 || self.rng.chance(self.plan.read_flip_per_mille);
        if !due || into.is_empty() {
            return;
        }
        self.flips = self.flips.saturating_sub(1);
        let byte = self.rng.index(into.len());
        into[byte] ^= 1 << self.rng.below(8);
    }

    pub(super) fn rot(&mut self, inner: &dyn Medium, geometry: Geometry, at: Position, mask: u8) -> Result<()> {
        let Some((key, _)) = touched(geometry, at, 1).next() else { return Ok(()) };
        let start = place(geometry, key);
        let mut bytes = vec![0; index(geometry.append_align)];
        self.read_durable(inner, geometry, start, &mut bytes)?;
        bytes[index(at.offset - start.offset)] ^= mask;
        self.durable.insert(key, Cell::bytes(bytes));
        Ok(())
    }

    pub(super) fn rot_somewhere(&mut self, inner: &dyn Medium, geometry: Geometry) -> Option<Position> {
        let count = wide(self.synced.len());
        if count == 0 {
            return None;
        }
        let key = *self.synced.iter().nth(narrow(self.rng.below(count)))?;
        let mut at = place(geometry, key);
        at.offset += self.number_below(geometry.append_align);
        let mask = 1 << self.rng.below(8);
        self.rot(inner, geometry, at, mask).ok().map(|()| at)
    }

    pub(super) fn make_unreadable(&mut self, geometry: Geometry, at: Position, len: usize) {
        self.unreadable.extend(touched(geometry, at, len).map(|(key, _)| key));
    }

    pub(super) fn check_readable(&self, geometry: Geometry, at: Position, len: usize) -> Result<()> {
        if self.unreadable.is_empty() {
            return Ok(());
        }
        match touched(geometry, at, len).find(|(key, _)| self.unreadable.contains(key)) {
            Some((key, _)) => {
                let found = words(place(geometry, key));
                Err(Error::new(ErrorKind::Io, format!("injected: the sector at {found} cannot be read")))
            }
            None => Ok(()),
        }
    }
}
