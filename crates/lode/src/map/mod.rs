//! The map: for each block of a list, where it is stored and what its bytes sum up to.
//!
//! A list's blocks are divided into *leaves* (the unit of loading) and leaves into *sections* (the unit of
//! checkpointing). Runs of neighbours are kept as runs; a leaf in which they are many becomes an array.
//!
//! A slot of a section is *absent* (all holes), *cold* (on the medium only; changes since its section was written wait
//! as pending) or *loaded*.

pub(crate) mod leaf;
pub(crate) mod page;
mod sections;

use crate::format::object::ObjectRef;
use crate::types::{Location, Lsn, index};
use leaf::Leaf;
pub(crate) use sections::{Sections, sections_of};
use std::collections::BTreeMap;
use std::ops::Range;

/// A change that waits until its leaf is loaded. Blocks are counted from the start of the leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pending {
    Put { block: u16, place: Location, checksum: u32 },
    Clear { from: u32, end: u32 },
}

/// One leaf of a section.
#[derive(Default)]
pub(crate) enum Slot {
    /// All holes, nothing on the medium.
    #[default]
    Absent,
    /// On the medium only.
    Cold,
    /// In memory.
    Loaded(Box<Leaf>),
}

/// What every section has, of whatever table: where its newest state lies on the medium, and since when that is old.
#[derive(Clone, Debug, Default)]
pub(crate) struct SectionMeta {
    /// Its slot in the directory, once it has been written.
    pub slot: Option<u32>,
    /// Every record below this is included in what is on the medium.
    pub lsn: Lsn,
    /// The first record that is not.
    pub dirty: Option<Lsn>,
    /// It must be written as an image next, since its leaves do not know any more what changed.
    pub whole: bool,
    /// The newest image.
    pub image: ObjectRef,
    /// Changes since the image, oldest first.
    pub deltas: Vec<ObjectRef>,
}

impl SectionMeta {
    /// What is written lacks record `lsn`. Records of a large commit come late (R16): the first one counts.
    /// Gives back from where on it lacked them before.
    pub fn lack(&mut self, lsn: Lsn) -> Option<Lsn> {
        let since = self.dirty;
        self.dirty = Some(since.map_or(lsn, |since| since.min(lsn)));
        since
    }

    /// Bytes of the deltas.
    pub fn delta_bytes(&self) -> u64 {
        self.deltas.iter().map(|delta| u64::from(delta.bytes)).sum()
    }

    /// Everything it refers to on the medium.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectRef> {
        std::iter::once(&self.image).filter(|image| !image.is_none()).chain(&self.deltas)
    }
}

/// A section of the map: a range of leaves of one list.
#[derive(Default)]
pub(crate) struct MapSection {
    pub meta: SectionMeta,
    pub slots: Vec<Slot>,
    pub pending: BTreeMap<u32, Vec<Pending>>,
}

impl MapSection {
    /// Puts a leaf that was cold into memory, with what waits for it. False: it was there already.
    pub fn warm(&mut self, number: u32, mut leaf: Box<Leaf>) -> bool {
        let slot = &mut self.slots[index(number)];
        if !matches!(slot, Slot::Cold) {
            return false;
        }
        for pending in self.pending.remove(&number).unwrap_or_default() {
            match pending {
                Pending::Put { block, place, checksum } => {
                    leaf.set(u32::from(block), place, checksum);
                }
                Pending::Clear { from, end } => {
                    crate::mark("load: replayed discard on a cold leaf");
                    for at in from..end {
                        if leaf.get(at).is_some() {
                            leaf.set(at, Location::NONE, 0);
                        }
                    }
                }
            }
        }
        *slot = Slot::Loaded(leaf);
        true
    }

    pub fn new(leaves: usize) -> MapSection {
        MapSection { slots: std::iter::repeat_with(Slot::default).take(leaves).collect(), ..MapSection::default() }
    }

    /// Whether no block is stored, as far as that is known.
    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| match slot {
            Slot::Absent => true,
            Slot::Cold => false,
            Slot::Loaded(leaf) => leaf.is_empty(),
        })
    }

    /// How many blocks of a range, counted from the start of the section, are stored at most: of each leaf of the range
    /// that has some. `count`: those of leaves in memory are counted. Cost: at most some hundred steps a leaf.
    pub fn stored_in(&self, blocks: Range<u32>, leaf_blocks: u32, count: bool) -> impl Iterator<Item = u32> {
        let leaves = (0..).zip(&self.slots).map(move |(n, slot)| {
            let start = n * leaf_blocks;
            let within = |end: u32| end.clamp(start, start + leaf_blocks) - start;
            let range = within(blocks.start)..within(blocks.end);
            match slot {
                Slot::Absent => 0,
                Slot::Loaded(leaf) if count => leaf.stored_in(range),
                Slot::Loaded(_) | Slot::Cold => range.end - range.start,
            }
        });
        leaves.filter(|stored| *stored > 0)
    }

    /// Which leaves are there, as bits.
    pub fn leaf_bits(&self) -> u64 {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| !matches!(slot, Slot::Absent))
            .fold(0, |bits, (n, _)| bits | (1 << n))
    }

    /// Drops the leaves that are on the medium as they are. Gives back how many bytes that was.
    pub fn unload(&mut self) -> u64 {
        if self.meta.whole || self.meta.image.is_none() {
            return 0; // What is on the medium is not all.
        }
        let mut bytes = 0;
        for slot in &mut self.slots {
            if let Slot::Loaded(leaf) = slot
                && !leaf.is_changed()
                && !leaf.is_empty()
            {
                bytes += u64::try_from(leaf.memory()).expect("small");
                *slot = Slot::Cold;
            }
        }
        bytes
    }

    /// Memory that it takes, about.
    pub fn memory(&self) -> usize {
        let leaves: usize =
            self.slots.iter().map(|slot| if let Slot::Loaded(leaf) = slot { leaf.memory() } else { 0 }).sum();
        let pending: usize = self.pending.values().map(|changes| changes.capacity() * size_of::<Pending>() + 48).sum();
        size_of::<MapSection>()
            + self.slots.capacity() * size_of::<Slot>()
            + leaves
            + pending
            + self.meta.deltas.capacity() * size_of::<ObjectRef>()
    }
}
