//! Leaves whose blocks lie in the order in which they are numbered: stretches, and their checksums apart.

use super::Packed;
use crate::types::Location;
use std::ops::Range;

/// `count` blocks from `start` on, stored one behind the other in equal footprints.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u16,
    count: u16,
    place: Location,
}

/// Stretches in order.
pub(super) struct Runs {
    capacity: u32,
    runs: Vec<Run>,
    /// By block.
    checksums: Vec<u32>,
    /// A bit for each block that has changed; none at all: no block has.
    changed: Vec<u64>,
}

impl Runs {
    pub fn new(capacity: u32) -> Runs {
        Runs { capacity, runs: Vec::new(), checksums: Vec::new(), changed: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.runs.len()
    }

    pub fn memory(&self) -> usize {
        self.runs.capacity() * size_of::<Run>() + self.checksums.capacity() * 4 + self.changed.capacity() * 8
    }

    pub fn get(&self, at: u32) -> Packed {
        let behind = self.runs.partition_point(|run| u32::from(run.start) <= at);
        let run = self.runs[..behind].last().filter(|run| at - u32::from(run.start) < u32::from(run.count));
        run.map_or_else(Packed::default, |run| {
            Packed::new(run.place.step(at - u32::from(run.start)), self.checksums[at as usize])
        })
    }

    /// How many blocks of a range are there.
    pub fn stored_in(&self, blocks: &Range<u32>) -> u32 {
        let within = |run: &Run| {
            let (start, end) = (u32::from(run.start), u32::from(run.start) + u32::from(run.count));
            end.min(blocks.end).saturating_sub(start.max(blocks.start))
        };
        self.runs.iter().map(within).sum()
    }

    /// Gives back where it was.
    pub fn set(&mut self, at: u32, packed: Packed) -> Location {
        let place = packed.place();
        if !place.is_none() {
            let known = self.checksums.len();
            if known <= at as usize {
                let grown = (at as usize + 1).max(known * 2).min(self.capacity as usize);
                self.checksums.reserve_exact(grown - known);
                self.checksums.resize(grown, 0);
            }
            self.checksums[at as usize] = packed.checksum();
        }
        set_in_runs(&mut self.runs, u16::try_from(at).expect("a leaf has at most 1024 blocks"), place)
    }

    pub fn mark(&mut self, at: u32) {
        if self.changed.is_empty() {
            self.changed = vec![0; (self.capacity as usize).div_ceil(64)];
        }
        self.changed[at as usize / 64] |= 1 << (at % 64);
    }

    pub fn is_marked(&self, at: u32) -> bool {
        self.changed.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    pub fn unmark_all(&mut self) {
        self.changed = Vec::new();
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, Packed)> + '_ {
        self.runs.iter().flat_map(|run| {
            (0..u32::from(run.count)).map(|n| {
                let at = u32::from(run.start) + n;
                (at, Packed::new(run.place.step(n), self.checksums[at as usize]))
            })
        })
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
