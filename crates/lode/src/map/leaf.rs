//! A leaf of the map in memory: for up to 1024 neighbouring blocks of one list, place and checksum, and whether they
//! have changed since they were written to the medium.
//!
//! It has whichever of three forms fits what is in it: few blocks, blocks in order, or an array. What is asked of one
//! block lies in few lines of the processor's cache, since a block of a large map is in none of them.

mod dense;
mod runs;
mod sparse;

use crate::types::{Location, len_u32, low_u32};
use dense::Dense;
use runs::Runs;
use sparse::Sparse;
use std::ops::Range;

/// A place and its checksum in twelve bytes.
#[derive(Clone, Copy, Default)]
struct Packed([u32; 3]);

impl Packed {
    fn new(place: Location, checksum: u32) -> Packed {
        Packed([low_u32(place.0), low_u32(place.0 >> 32), checksum])
    }

    fn place(self) -> Location {
        Location(u64::from(self.0[0]) | u64::from(self.0[1]) << 32)
    }

    fn checksum(self) -> u32 {
        self.0[2]
    }

    /// None: it is a hole.
    fn stored(self) -> Option<(Location, u32)> {
        (!self.place().is_none()).then(|| (self.place(), self.checksum()))
    }
}

enum Places {
    Sparse(Sparse),
    Runs(Runs),
    Dense(Dense),
}

/// Calls the same of whichever form it is.
macro_rules! of_any {
    ($places:expr, $form:ident => $what:expr) => {
        match $places {
            Places::Sparse($form) => $what,
            Places::Runs($form) => $what,
            Places::Dense($form) => $what,
        }
    };
}

/// So many blocks are looked at one by one.
const COUNTED: u32 = 64;

/// So many blocks tell whether they lie in order.
const FEW: usize = 16;

/// A leaf. See the file's head.
pub(crate) struct Leaf {
    capacity: u32,
    /// A bit for each 32 blocks of which some have changed.
    changed: u32,
    places: Places,
}

impl Leaf {
    /// A leaf of `capacity` holes.
    pub fn new(capacity: u32) -> Leaf {
        Leaf { capacity, changed: 0, places: Places::Sparse(Sparse::new(capacity)) }
    }

    /// More runs than this take more memory than an array.
    fn runs_max(&self) -> usize {
        (self.capacity / 8).max(4) as usize
    }

    /// More blocks than this are moved about too much when one comes between them.
    fn sparse_max(&self) -> usize {
        (self.capacity / 4) as usize
    }

    /// Where block `at` is stored, and its checksum.
    pub fn get(&self, at: u32) -> Option<(Location, u32)> {
        of_any!(&self.places, form => form.get(at)).stored()
    }

    /// Where block `at` is stored; [`Location::NONE`] for a hole.
    pub fn place(&self, at: u32) -> Location {
        of_any!(&self.places, form => form.get(at)).place()
    }

    /// Puts block `at` in its new place (or none) and gives back the old one.
    pub fn set(&mut self, at: u32, place: Location, checksum: u32) -> Location {
        self.changed |= 1 << (at / 32);
        of_any!(&mut self.places, form => form.mark(at));
        self.set_unmarked(at, place, checksum)
    }

    /// As `set`, for what comes from the medium and is no change.
    pub fn set_unmarked(&mut self, at: u32, place: Location, checksum: u32) -> Location {
        let packed = Packed::new(place, checksum);
        let old = of_any!(&mut self.places, form => form.set(at, packed));
        match &self.places {
            Places::Sparse(sparse) if old.is_none() && (sparse.len() == FEW || sparse.len() > self.sparse_max()) => {
                self.change_form();
            }
            Places::Runs(runs) if runs.len() > self.runs_max() => {
                self.take_form(Places::Dense(Dense::new(self.capacity)));
            }
            _ => {}
        }
        old
    }

    /// Blocks in order take the form for that; too many that are not, an array.
    fn change_form(&mut self) {
        let (mut count, mut breaks, mut next) = (0, 0, None);
        self.for_each(|at, place, _| {
            count += 1;
            breaks += usize::from(next != Some((at, place)));
            next = Some((at + 1, place.step(1)));
        });
        if breaks * 4 <= count {
            self.take_form(Places::Runs(Runs::new(self.capacity)));
        } else if count > self.sparse_max() {
            self.take_form(Places::Dense(Dense::new(self.capacity)));
        }
    }

    fn take_form(&mut self, mut form: Places) {
        self.for_each(|at, place, checksum| {
            of_any!(&mut form, form => form.set(at, Packed::new(place, checksum)));
        });
        self.changes().for_each(|(at, ..)| of_any!(&mut form, form => form.mark(at)));
        self.places = form;
    }

    /// The blocks that are there, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Location, u32)> + '_ {
        let (sparse, runs, dense) = match &self.places {
            Places::Sparse(sparse) => (Some(sparse.iter()), None, None),
            Places::Runs(runs) => (None, Some(runs.iter()), None),
            Places::Dense(dense) => (None, None, Some(dense.iter())),
        };
        let all = sparse.into_iter().flatten().chain(runs.into_iter().flatten()).chain(dense.into_iter().flatten());
        all.map(|(at, packed)| (at, packed.place(), packed.checksum()))
    }

    /// Calls `each` for the blocks that are there, in order: for whole leaves, at which speed counts.
    pub fn for_each(&self, mut each: impl FnMut(u32, Location, u32)) {
        of_any!(&self.places, form => form.iter().for_each(|(at, packed)| each(at, packed.place(), packed.checksum())));
    }

    /// The blocks that changed since the last [`Leaf::forget_changes`], in order.
    pub fn changes(&self) -> impl Iterator<Item = (u32, Location, u32)> + '_ {
        let groups = (0..32).filter(|group| self.changed >> group & 1 == 1);
        let blocks = groups.flat_map(|group| group * 32..(group * 32 + 32).min(self.capacity));
        blocks.filter(|at| of_any!(&self.places, form => form.is_marked(*at))).map(|at| {
            let (place, checksum) = self.get(at).unwrap_or_default();
            (at, place, checksum)
        })
    }

    /// Whether anything changed.
    pub fn is_changed(&self) -> bool {
        self.changed != 0
    }

    /// Called when the changes have been written.
    pub fn forget_changes(&mut self) {
        if self.changed != 0 {
            of_any!(&mut self.places, form => form.unmark_all());
        }
        self.changed = 0;
    }

    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// How many blocks of a range are stored; in an array, of a longer range than [`COUNTED`], perhaps fewer than that.
    pub fn stored_in(&self, blocks: Range<u32>) -> u32 {
        let len = blocks.end.saturating_sub(blocks.start);
        match &self.places {
            _ if len <= COUNTED => len_u32(blocks.filter(|at| !self.place(*at).is_none()).count()),
            Places::Sparse(sparse) => sparse.stored_in(blocks),
            Places::Runs(runs) => runs.stored_in(&blocks),
            Places::Dense(_) => len,
        }
    }

    /// How many blocks a leaf has.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Memory that it takes, about.
    pub fn memory(&self) -> usize {
        size_of::<Leaf>() + of_any!(&self.places, form => form.memory())
    }
}

#[cfg(test)]
#[path = "leaf_tests.rs"]
mod tests;
