//! Numbers for new blocks and lists: taken at once from one place, so that no two units get the same, and free again
//! after a crash if nothing that was committed names them (architecture, section 7).
//!
//! A number that was freed is given out again only when every unit that was open then has ended (R4): units belong to a
//! generation, and the next one begins when the one before the last has no open unit any more. What was free already
//! when the disk was opened is found again by looking through the table, a section at a time, as new numbers are taken.

use super::Inner;
use crate::error::Result;
use crate::map::Slot;
use crate::state::State;
use crate::sync::{AtomicU64, Ordering};
use crate::types::{ListId, Location, index64, low_u32};
use std::collections::VecDeque;

/// How many units are open of the last two generations.
#[derive(Default)]
pub(crate) struct Generations {
    current: AtomicU64,
    open: [AtomicU64; 2],
}

impl Generations {
    fn of(&self, generation: u64) -> &AtomicU64 {
        &self.open[index64(generation & 1)]
    }

    /// A unit begins. Gives back its generation, to be left again.
    pub fn enter(&self) -> u64 {
        loop {
            let now = self.current.load(Ordering::SeqCst);
            self.of(now).fetch_add(1, Ordering::SeqCst);
            if self.current.load(Ordering::SeqCst) == now {
                return now;
            }
            self.of(now).fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Another unit that means what one of this generation means. The caller holds that one.
    pub fn join(&self, generation: u64) -> u64 {
        self.of(generation).fetch_add(1, Ordering::SeqCst);
        generation
    }

    /// While this is held no number is given out again that is freed meanwhile.
    pub fn guard(&self) -> Guard<'_> {
        Guard(self, self.enter())
    }

    pub fn leave(&self, generation: u64) {
        self.of(generation).fetch_sub(1, Ordering::SeqCst);
    }

    fn now(&self) -> u64 {
        self.current.load(Ordering::SeqCst)
    }

    /// Begins the next generation if the one before the last has ended. The caller holds the lock.
    fn advance(&self) {
        let now = self.now();
        if self.of(now + 1).load(Ordering::SeqCst) == 0 {
            self.current.store(now + 1, Ordering::SeqCst);
        }
    }
}

/// See [`Generations::guard`].
pub(crate) struct Guard<'a>(&'a Generations, u64);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

/// The numbers of one table. See the file's head.
pub(crate) struct Numbers {
    /// Rows of a number.
    stride: u64,
    /// The smallest that was never given out.
    next: u32,
    /// What `next` was when the disk was opened, and up to which section it was looked through for free ones.
    start: u32,
    looked: u32,
    rows_shift: u32,
    ready: Vec<u32>,
    /// Freed, each with the generation in which it was.
    waiting: VecDeque<(u64, u32)>,
    limit: u32,
}

/// No number can be taken before this is done.
pub(crate) enum Lacking {
    /// Look through the table from this section on.
    Look,
    /// There are no more.
    Numbers,
}

impl Numbers {
    fn new(state: &State, table: ListId, kept: &[&(ListId, u32)]) -> Numbers {
        let shape = &state.shape;
        let stride = if table == state.tables.lists { 2 } else { 1 };
        let used =
            state.lists.get(&table).and_then(|list| list.sections.iter().last()).map_or(0, |(number, section)| {
                let leaf =
                    section.slots.iter().rposition(|slot| !matches!(slot, Slot::Absent)).map_or(0, |leaf| leaf + 1);
                (u64::from(number) << shape.section_blocks_shift()) + (crate::types::len_u64(leaf) << shape.leaf_shift)
            });
        let used = used.max(kept.last().map_or(0, |(_, number)| (u64::from(*number) + 1) * stride));
        let limit = (shape.blocks_max() / stride).min(Location::NEIGHBOURS_MAX.into()) - 1;
        let next = low_u32((used / stride).max(1));
        Numbers {
            stride,
            next,
            start: next,
            looked: 0,
            rows_shift: shape.section_blocks_shift(),
            ready: Vec::new(),
            waiting: VecDeque::new(),
            limit: low_u32(limit),
        }
    }

    fn section_of(&self, number: u32) -> u32 {
        low_u32((u64::from(number) * self.stride) >> self.rows_shift)
    }

    /// Takes a number; [`Numbers::give_back`] if it was not used.
    pub fn take(&mut self, generations: &Generations) -> std::result::Result<u32, Lacking> {
        if let Some(number) = self.ready.pop() {
            return Ok(number);
        }
        if let Some((generation, _)) = self.waiting.front() {
            for _ in generations.now()..generation + 2 {
                generations.advance();
            }
            if let Some((generation, number)) = self.waiting.pop_front() {
                if generation + 2 <= generations.now() {
                    return Ok(number);
                }
                self.waiting.push_front((generation, number));
            }
        }
        // Old ones are looked for as new ones are taken, so that each section is paid for by as many.
        let taken = (u64::from(self.next - self.start) * self.stride) >> self.rows_shift;
        if self.looked <= self.section_of(self.start - 1) && self.start > 1 && taken >= u64::from(self.looked) {
            return Err(Lacking::Look);
        }
        if self.next > self.limit {
            return Err(Lacking::Numbers);
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Nobody has seen it.
    pub fn give_back(&mut self, number: u32) {
        self.ready.push(number);
    }

    /// It is free from here on.
    pub fn free(&mut self, number: u32, generations: &Generations) {
        if number < self.start && self.section_of(number) >= self.looked {
            return; // It will be found.
        }
        self.waiting.push_back((generations.now(), number));
    }
}

impl super::Core {
    /// The numbers of a table.
    pub fn numbers_of(&mut self, table: ListId) -> &mut Numbers {
        self.numbers.entry(table).or_insert_with(|| {
            let kept = self.kept_numbers.range((table, 0)..=(table, u32::MAX)).collect::<Vec<_>>();
            Numbers::new(&self.state, table, &kept)
        })
    }
}

impl Inner {
    /// Looks through the next section of a table for numbers that are free.
    pub fn look_for_numbers(&self, table: ListId) -> Result<()> {
        let (section, shift) = {
            let mut core = self.core.lock();
            (core.numbers_of(table).looked, self.shape.section_blocks_shift())
        };
        let (first, end) = (u64::from(section) << shift, (u64::from(section) + 1) << shift);
        loop {
            self.load_range(table, first, end)?;
            let mut core = self.core.lock();
            while core.state.fold_some(crate::fold::FOLD_STEP) {}
            if core.state.cold_leaf(table, first, end).is_some() {
                continue;
            }
            let mut used = std::collections::HashSet::new();
            if let Some(found) = core.state.map_section(table, section) {
                for (n, slot) in (0..).zip(&found.slots) {
                    if let Slot::Loaded(leaf) = slot {
                        used.extend(leaf.iter().map(|(at, _, _)| first + (n << self.shape.leaf_shift) + u64::from(at)));
                    }
                }
            }
            crate::mark("lists: looked for free numbers");
            let kept: Vec<u32> =
                core.kept_numbers.range((table, 0)..=(table, u32::MAX)).map(|(_, number)| *number).collect();
            let (now, keeps) = (self.generations.now(), core.keeps_numbers);
            let numbers = core.numbers_of(table);
            if numbers.looked != section {
                return Ok(());
            }
            numbers.looked += 1;
            let (stride, start) = (numbers.stride, numbers.start);
            let most = if keeps { 0 } else { start.into() };
            let all = (first / stride).max(1)..(end / stride).min(most);
            let free = all.filter(|number| !used.contains(&(number * stride + (stride - 1))));
            let free = free.filter(|number| kept.binary_search(&low_u32(*number)).is_err());
            numbers.waiting.extend(free.map(|number| (now, low_u32(number))));
            return Ok(());
        }
    }
}
