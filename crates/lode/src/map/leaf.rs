//! A leaf of the map in memory: for up to 1024 neighbouring blocks of one list, place and checksum.

use crate::types::{Location, low_u32};

/// `count` blocks from `start` on, stored one behind the other in equal footprints.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u16,
    count: u16,
    place: Location,
}

/// A place and its checksum in twelve bytes: mostly in one line of the processor's cache, so that a block of a large
/// map costs one miss.
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
}

enum Places {
    /// Their checksums are apart.
    Runs(Vec<Run>),
    Dense(Vec<Packed>),
}

/// A leaf. See the file's head.
pub(crate) struct Leaf {
    capacity: u32,
    places: Places,
    checksums: Vec<u32>,
    changed: Vec<u64>,
}

impl Leaf {
    /// A leaf of `capacity` holes.
    pub fn new(capacity: u32) -> Leaf {
        Leaf { capacity, places: Places::Runs(Vec::new()), checksums: Vec::new(), changed: Vec::new() }
    }

    /// More runs than this take more memory than an array.
    fn runs_max(&self) -> usize {
        (self.capacity / 8).max(4) as usize
    }

    /// Where block `at` is stored, and its checksum.
    pub fn get(&self, at: u32) -> Option<(Location, u32)> {
        match &self.places {
            Places::Dense(packed) => {
                let packed = packed[at as usize];
                (!packed.place().is_none()).then(|| (packed.place(), packed.checksum()))
            }
            Places::Runs(runs) => {
                let behind = runs.partition_point(|run| u32::from(run.start) <= at);
                let run = runs[..behind].last()?;
                let step = at - u32::from(run.start);
                if step >= u32::from(run.count) {
                    return None;
                }
                Some((run.place.step(step), self.checksums[at as usize]))
            }
        }
    }

    /// Where block `at` is stored, without touching its checksum; [`Location::NONE`] for a hole.
    pub fn place(&self, at: u32) -> Location {
        match &self.places {
            Places::Dense(packed) => packed[at as usize].place(),
            Places::Runs(_) => self.get(at).map_or(Location::NONE, |(place, _)| place),
        }
    }

    /// Puts block `at` in its new place (or none) and gives back the old one.
    pub fn set(&mut self, at: u32, place: Location, checksum: u32) -> Location {
        if self.changed.is_empty() {
            self.changed = vec![0; (self.capacity as usize).div_ceil(64)];
        }
        self.changed[at as usize / 64] |= 1 << (at % 64);
        self.set_unmarked(at, place, checksum)
    }

    /// As `set`, for what comes from the medium and is no change.
    pub fn set_unmarked(&mut self, at: u32, place: Location, checksum: u32) -> Location {
        if let Places::Dense(packed) = &mut self.places {
            return std::mem::replace(&mut packed[at as usize], Packed::new(place, checksum)).place();
        }
        if !place.is_none() {
            if self.checksums.len() <= at as usize {
                let grown = (at as usize + 1).max(self.checksums.len() * 2).min(self.capacity as usize);
                self.checksums.reserve_exact(grown - self.checksums.len());
                self.checksums.resize(grown, 0);
            }
            self.checksums[at as usize] = checksum;
        }
        let runs_max = self.runs_max();
        let Places::Runs(runs) = &mut self.places else { unreachable!("dense ones are done above") };
        let old = set_in_runs(runs, u16::try_from(at).expect("a leaf has at most 1024 blocks"), place);
        if runs.len() > runs_max {
            self.make_dense();
        }
        old
    }

    fn make_dense(&mut self) {
        let Places::Runs(runs) = &self.places else { return };
        let mut packed = vec![Packed::default(); self.capacity as usize];
        for run in runs {
            for n in 0..u32::from(run.count) {
                let at = usize::from(run.start) + n as usize;
                packed[at] = Packed::new(run.place.step(n), self.checksums[at]);
            }
        }
        self.checksums = Vec::new();
        self.places = Places::Dense(packed);
    }

    /// The blocks that are there, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Location, u32)> + '_ {
        let (runs, dense): (&[Run], &[Packed]) = match &self.places {
            Places::Runs(runs) => (runs, &[]),
            Places::Dense(packed) => (&[], packed),
        };
        let of_run = move |run: &Run| {
            let run = *run;
            (0..u32::from(run.count)).map(move |n| {
                let at = u32::from(run.start) + n;
                (at, run.place.step(n), self.checksums[at as usize])
            })
        };
        let dense = (0..).zip(dense).filter(|(_, packed)| !packed.place().is_none());
        runs.iter().flat_map(of_run).chain(dense.map(|(at, packed)| (at, packed.place(), packed.checksum())))
    }

    /// Calls `each` for the blocks that are there, in order: for whole leaves, at which speed counts.
    pub fn for_each(&self, mut each: impl FnMut(u32, Location, u32)) {
        match &self.places {
            Places::Runs(_) => self.iter().for_each(|(at, place, checksum)| each(at, place, checksum)),
            Places::Dense(packed) => {
                for (at, packed) in (0..).zip(packed) {
                    if !packed.place().is_none() {
                        each(at, packed.place(), packed.checksum());
                    }
                }
            }
        }
    }

    /// The blocks that changed since the last [`Leaf::forget_changes`], in order.
    pub fn changes(&self) -> impl Iterator<Item = (u32, Location, u32)> + '_ {
        let bits = (0u32..).zip(&self.changed).flat_map(|(n, word)| {
            let mut word = *word;
            std::iter::from_fn(move || {
                let bit = word.trailing_zeros();
                word &= word.wrapping_sub(1);
                (bit < 64).then_some(n * 64 + bit)
            })
        });
        bits.map(|at| {
            let (place, checksum) = self.get(at).unwrap_or_default();
            (at, place, checksum)
        })
    }

    /// Whether anything changed.
    pub fn is_changed(&self) -> bool {
        self.changed.iter().any(|word| *word != 0)
    }

    /// Called when the changes have been written.
    pub fn forget_changes(&mut self) {
        self.changed = Vec::new();
    }

    pub fn is_empty(&self) -> bool {
        match &self.places {
            Places::Runs(runs) => runs.is_empty(),
            Places::Dense(packed) => packed.iter().all(|packed| packed.place().is_none()),
        }
    }

    /// How many blocks a leaf has.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Memory that it takes, about.
    pub fn memory(&self) -> usize {
        let places = match &self.places {
            Places::Runs(runs) => runs.capacity() * size_of::<Run>(),
            Places::Dense(packed) => packed.capacity() * size_of::<Packed>(),
        };
        size_of::<Leaf>() + places + self.checksums.capacity() * 4 + self.changed.capacity() * 8
    }
}

fn set_in_runs(runs: &mut Vec<Run>, at: u16, place: Location) -> Location {
    // The common case: the block behind the last run, stored right behind it.
    if let Some(last) = runs.last_mut()
        && at == last.start + last.count
        && !place.is_none()
        && last.place.step(u32::from(last.count)) == place
    {
        last.count += 1;
        return Location::NONE;
    }
    let behind = runs.partition_point(|run| run.start <= at);
    let mut insert_at = behind;
    let mut old = Location::NONE;
    if behind > 0 {
        let run = runs[behind - 1];
        let step = at - run.start;
        if step < run.count {
            old = run.place.step(u32::from(step));
            let tail = Run { start: at + 1, count: run.count - step - 1, place: run.place.step(u32::from(step) + 1) };
            if step == 0 {
                runs.remove(behind - 1);
                insert_at = behind - 1;
            } else {
                runs[behind - 1].count = step;
            }
            if tail.count > 0 {
                runs.insert(insert_at, tail);
            }
        }
    }
    if place.is_none() {
        return old;
    }
    if insert_at > 0 {
        let before = &mut runs[insert_at - 1];
        if before.start + before.count == at && before.place.step(u32::from(before.count)) == place {
            before.count += 1;
            return old;
        }
    }
    runs.insert(insert_at, Run { start: at, count: 1, place });
    old
}

#[cfg(test)]
#[path = "leaf_tests.rs"]
mod tests;
