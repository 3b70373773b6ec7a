//! Leaves of the map from the medium into memory, without holding the lock over the reads, and out of it again when
//! the tables outgrow what they may take (R24).

use super::{Core, Inner};
use crate::error::{Error, Result};
use crate::map::leaf::Leaf;
use crate::map::{MapSection, Slot, page};
use crate::objects;
use crate::state::{ColdLeaf, LeafKey, State};
use crate::types::{ListId, Location, index, len_u64};
use smallvec::SmallVec;
use std::ops::Range;

/// Memory is summed up whenever so many leaves are new.
const LOOK_EVERY: u64 = 256;
/// So many sections are looked at in one hold of the lock.
const SECTIONS_A_STEP: u32 = 64;
/// So many leaves are loaded at once.
const ALONG_MOST: u32 = 8;

impl Inner {
    /// Loads every cold leaf among the blocks `first..end` of a list.
    pub fn load_range(&self, list: ListId, first: u64, end: u64) -> Result<()> {
        loop {
            let cold = self.core.lock().state.cold_leaf(list, first, end);
            match cold {
                None => return Ok(()),
                Some(key) => self.load(key)?,
            }
        }
    }

    /// For which blocks, of `count` from `first` on, something is so: all asked in one hold.
    pub fn which(
        &self,
        first: u64,
        count: usize,
        so: impl Fn(&State, u64) -> std::result::Result<bool, ColdLeaf>,
    ) -> Result<SmallVec<[bool; 8]>> {
        let mut gathering = None;
        loop {
            let found: std::result::Result<SmallVec<[bool; 8]>, ColdLeaf> = {
                let core = self.core.lock();
                (first..first + len_u64(count)).map(|block| so(&core.state, block)).collect()
            };
            match found {
                Ok(found) => return Ok(found),
                Err(ColdLeaf(key)) => {
                    gathering.get_or_insert_with(|| Gathering::new(self));
                    self.load(key)?;
                }
            }
        }
    }

    /// The first section of a list that is there, from this one on.
    pub fn section_from(&self, list: ListId, from: u32) -> Option<u32> {
        let core = self.core.lock();
        let mut sections = core.state.lists.get(&list)?.sections.range(u64::from(from)..u64::MAX);
        Some(sections.next()?.0)
    }

    /// The first leaf, of any of these lists, that is there and ends behind this block: the block that it begins with, or
    /// this one if that is later, and the one behind its last.
    pub fn next_leaf(&self, lists: &[ListId], block: u64) -> Option<(u64, u64)> {
        let core = self.core.lock();
        let shift = self.shape.section_blocks_shift();
        let leaf_blocks = u64::from(self.shape.leaf_blocks());
        let first_of = |list: &ListId| {
            let sections = core.state.lists.get(list)?.sections.range(block >> shift..u64::MAX);
            let leaves = sections.flat_map(|(number, section)| {
                let there = (0u64..).zip(&section.slots).filter(|(_, slot)| !matches!(slot, Slot::Absent));
                there.map(move |(n, _)| (u64::from(number) << shift) + n * leaf_blocks)
            });
            leaves.map(|start| start + leaf_blocks).find(|end| *end > block)
        };
        let end = lists.iter().filter_map(first_of).min()?;
        Some((block.max(end - leaf_blocks), end))
    }

    /// The last leaf, of any of these lists, that is there and begins in front of this block: its blocks.
    pub fn last_leaf(&self, lists: &[ListId], block: u64) -> Option<(u64, u64)> {
        let core = self.core.lock();
        let shift = self.shape.section_blocks_shift();
        let leaf_blocks = u64::from(self.shape.leaf_blocks());
        let last_of = |list: &ListId| {
            let sections = core.state.lists.get(list)?.sections.iter();
            let leaves = sections.flat_map(|(number, section)| {
                let there = (0u64..).zip(&section.slots).filter(|(_, slot)| !matches!(slot, Slot::Absent));
                there.map(move |(n, _)| (u64::from(number) << shift) + n * leaf_blocks)
            });
            leaves.take_while(|start| *start < block).last()
        };
        let start = lists.iter().filter_map(last_of).max()?;
        Some((start, start + leaf_blocks))
    }

    /// The stored blocks of one section of a list.
    pub fn section_blocks(&self, list: ListId, number: u32) -> Result<Vec<(u64, Location, u32)>> {
        let shift = self.shape.section_blocks_shift();
        let first = u64::from(number) << shift;
        self.load_range(list, first, first + (1 << shift))?;
        let core = self.core.lock();
        let mut blocks = Vec::new();
        if let Some(section) = core.state.map_section(list, number) {
            for (n, slot) in section.slots.iter().enumerate() {
                let start = first + len_u64(n) * u64::from(self.shape.leaf_blocks());
                if let Slot::Loaded(leaf) = slot {
                    blocks.extend(leaf.iter().map(|(at, place, checksum)| (start + u64::from(at), place, checksum)));
                }
            }
        }
        Ok(blocks)
    }

    /// Loads one leaf, and a few behind it if the one before it is loaded: somebody comes along. Returns also if it is loaded
    /// already, or gone.
    pub fn load(&self, key: LeafKey) -> Result<()> {
        let what = format!("the map of list {}, section {} leaf {}", key.list.0, key.section, key.leaf);
        loop {
            let (objects, leaves) = {
                let core = self.core.lock();
                let Some(section) = core.state.map_section(key.list, key.section) else { return Ok(()) };
                let leaves = cold_from(section, key.leaf);
                if leaves.is_empty() {
                    return Ok(());
                }
                (section.meta.objects().copied().collect::<Vec<_>>(), leaves)
            };
            let read = objects::read_leaves(&*self.medium, &objects, leaves, &what);
            let mut leaves: Vec<(u32, Result<Box<Leaf>>)> = (key.leaf..)
                .zip(read)
                .map(|(leaf, pages)| (leaf, pages.and_then(|pages| applied(&pages, self.shape.leaf_blocks(), &what))))
                .collect();
            let mut core = self.core.lock();
            let Some(section) = core.state.map_section_mut(key.list, key.section) else { return Ok(()) };
            if !section.meta.objects().eq(objects.iter()) {
                crate::mark("load: section written again meanwhile");
                continue; // It was written again meanwhile: what was read may be erased already.
            }
            let wanted = leaves.remove(0);
            let mut made = u64::from(section.warm(wanted.0, wanted.1?));
            // What is wrong with another one is told to who wants it.
            for (number, leaf) in leaves {
                made += u64::from(leaf.is_ok_and(|leaf| section.warm(number, leaf)));
            }
            core.state.leaves_made += made;
            return Ok(());
        }
    }

    /// Drops leaves that are on the medium as they are, if the tables have grown beyond their limit. The caller holds
    /// `maintaining`, so no section is half-written. True: some were dropped.
    pub fn unload_some(&self) -> bool {
        let limit = len_u64(self.options.tables_bytes);
        let mut core = self.core.lock();
        let Core { state, trim, loading, .. } = &mut *core;
        // Summing up costs a look at every section, so it is done only when many leaves are new.
        let due = state.leaves_made - trim.made >= LOOK_EVERY || trim.bytes > limit;
        if !due || *loading > 0 {
            return false;
        }
        trim.made = state.leaves_made;
        trim.bytes = state.memory();
        let before = trim.bytes;
        let mut left = SECTIONS_A_STEP;
        while trim.bytes > limit && left > 0 {
            let Some((at, section)) = state.next_section(trim.hand) else {
                if trim.hand == (ListId(0), 0) {
                    break;
                }
                trim.hand = (ListId(0), 0);
                left -= 1;
                continue;
            };
            trim.bytes -= section.unload().min(trim.bytes);
            trim.hand = (at.0, at.1 + 1);
            left -= 1;
        }
        let dropped = trim.bytes < before;
        if dropped {
            crate::mark("map: leaves dropped from memory");
        }
        dropped
    }
}

/// The leaves to load when this one is wanted; none: it is not cold.
fn cold_from(section: &MapSection, leaf: u32) -> Range<u32> {
    let slot = |leaf: u32| section.slots.get(index(leaf));
    let is_cold = |leaf: &u32| matches!(slot(*leaf), Some(Slot::Cold));
    let comes_along = leaf.checked_sub(1).is_some_and(|before| matches!(slot(before), Some(Slot::Loaded(_))));
    let most = if comes_along { ALONG_MOST } else { 1 };
    leaf..(leaf..leaf + most).take_while(is_cold).last().map_or(leaf, |last| last + 1)
}

/// The leaf that pages make, the oldest first.
fn applied(pages: &[Vec<u8>], blocks: u32, what: &str) -> Result<Box<Leaf>> {
    let mut leaf = Box::new(Leaf::new(blocks));
    match pages.iter().all(|page| page::apply(page, &mut leaf).is_some()) {
        true => Ok(leaf),
        false => Err(Error::corrupt(what, "a page of the map", "bytes that are none")),
    }
}

/// How far the dropping of leaves has come: a hand that goes round over the sections.
pub(crate) struct Trim {
    hand: (ListId, u32),
    /// How many leaves had been made when memory was last summed up, and what the sum was.
    made: u64,
    bytes: u64,
}

impl Trim {
    pub fn new() -> Trim {
        Trim { hand: (ListId(0), 0), made: 0, bytes: 0 }
    }
}

/// Keeps loaded leaves in memory while an operation gathers all that it needs.
pub(crate) struct Gathering<'a>(&'a Inner);

impl<'a> Gathering<'a> {
    pub fn new(disk: &'a Inner) -> Gathering<'a> {
        disk.core.lock().loading += 1;
        Gathering(disk)
    }
}

impl Drop for Gathering<'_> {
    fn drop(&mut self) {
        self.0.core.lock().loading -= 1;
    }
}
