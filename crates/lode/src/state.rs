//! The state: the tables, and `apply`, the one function that changes them, in life and in replay.
//!
//! The log is the truth and the state is the fold of [`State::apply`] over it. No clock, no thread, no I/O here.
//!
//! Invariants:
//! * I1 a block number below its list's size, and only such, may be stored.
//! * I2 each stored block is referred to from exactly one place (R19).
//! * I3 a section's `dirty` is the first record that its written state does not include.
//! * I4 a zone's usage is the sum of the footprints of the blocks that the map places in it.

mod tables;
mod versions;

use crate::fold::{Entry, Fold, Watch};
use crate::format::object::ObjectRef;
use crate::format::records::{Freed, ListMeta, ListState, Record};
use crate::map::leaf::Leaf;
use crate::map::{MapSection, Pending, SectionMeta, Sections, Slot, sections_of};
use crate::shape::{ROOT_ZONES, Shape};
use crate::types::{ListId, Location, Lsn, index, low_u32};
use crate::zones::{Holds, Zones};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
pub(crate) use tables::{Pool, Tables};
pub(crate) use versions::{Keeper, Kept, Versions};

/// Names a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SectionKey {
    Zones(u32),
    Lists(u32),
    Map(ListId, u32),
}

/// A list with its map.
pub(crate) struct List {
    pub meta: ListMeta,
    pub sections: Sections,
}

/// Where a block of a list lies in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeafKey {
    pub list: ListId,
    pub section: u32,
    pub leaf: u32,
}

/// The leaf must be loaded first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColdLeaf(pub LeafKey);

/// The directory: which slot each section has, and the pages that are written.
#[derive(Default)]
pub(crate) struct Directory {
    pub slots: Vec<Option<SectionKey>>,
    pub free: BTreeSet<u32>,
    pub pages: Vec<ObjectRef>,
    pub dirty: BTreeSet<u32>,
}

/// The tables. See the file's head.
pub(crate) struct State {
    pub shape: Shape,
    pub lists: BTreeMap<ListId, List>,
    pub names: BTreeMap<String, ListId>,
    pub next_list: u32,
    pub zones: Zones,
    pub list_pages: BTreeMap<u32, SectionMeta>,
    pub zone_pages: Vec<SectionMeta>,
    pub dirty: BTreeSet<(Lsn, SectionKey)>,
    /// Sections that are being written: they are not dirty any more, and no root may be written before they are there.
    pub taken: usize,
    pub directory: Directory,
    /// Deleted lists whose blocks are not all freed yet.
    pub draining: BTreeSet<ListId>,
    pub versions: Versions,
    pub tables: Tables,
    keepers: RefCell<Vec<(ListId, Option<Keeper>)>>,
    /// Sections that were read before the record that makes their list.
    pub orphans: BTreeMap<ListId, Sections>,
    /// Leaves that came into memory so far.
    pub leaves_made: u64,
    /// What the newest large commit has still to bring into the tables.
    pub fold: Option<Fold>,
    /// For whoever prepares a large commit.
    pub watch: Option<Watch>,
}

/// A section lacks record `lsn`, and lacked all from `since` on before: the first of them counts.
fn note_lack(dirty: &mut BTreeSet<(Lsn, SectionKey)>, key: SectionKey, lsn: Lsn, since: Option<Lsn>) {
    match since {
        Some(since) if since <= lsn => return,
        Some(since) => {
            crate::mark("state: a section lacks a record older than those it lacked");
            dirty.remove(&(since, key));
        }
        None => {}
    }
    dirty.insert((lsn, key));
}

impl State {
    pub fn new(shape: Shape) -> State {
        State {
            shape,
            lists: BTreeMap::new(),
            names: BTreeMap::new(),
            next_list: 1,
            zones: Zones::new(shape.zones, ROOT_ZONES),
            list_pages: BTreeMap::new(),
            zone_pages: vec![SectionMeta::default(); index(shape.zones.div_ceil(shape.zones_per_page))],
            dirty: BTreeSet::new(),
            taken: 0,
            directory: Directory::default(),
            draining: BTreeSet::new(),
            versions: Versions::default(),
            tables: Tables::default(),
            keepers: RefCell::default(),
            orphans: BTreeMap::new(),
            leaves_made: 0,
            fold: None,
            watch: None,
        }
    }

    /// Which leaf holds a block, and which of its blocks it is.
    pub fn leaf_of(&self, list: ListId, block: u64) -> (LeafKey, u32) {
        let section = low_u32(block >> self.shape.section_blocks_shift());
        let leaf = low_u32((block >> self.shape.leaf_shift) & ((1 << self.shape.section_shift) - 1));
        (LeafKey { list, section, leaf }, low_u32(block & ((1 << self.shape.leaf_shift) - 1)))
    }

    fn slot(&self, key: LeafKey) -> Option<&Slot> {
        let section = self.lists.get(&key.list)?.sections.get(key.section)?;
        section.slots.get(index(key.leaf))
    }

    /// Where a block is stored. `Err`: its leaf must be loaded first.
    pub fn lookup(&self, list: ListId, block: u64) -> Result<Option<(Location, u32)>, ColdLeaf> {
        if let Some(fold) = &self.fold
            && let Some(found) = fold.get(list, block)
        {
            return Ok(Some(found));
        }
        let (key, at) = self.leaf_of(list, block);
        match self.slot(key) {
            None | Some(Slot::Absent) => Ok(None),
            Some(Slot::Cold) => Err(ColdLeaf(key)),
            Some(Slot::Loaded(leaf)) => Ok(leaf.get(at)),
        }
    }

    /// Where a block is stored, without its checksum; [`Location::NONE`] for a hole.
    pub fn place(&self, list: ListId, block: u64) -> Result<Location, ColdLeaf> {
        if let Some(fold) = &self.fold
            && let Some((place, _)) = fold.get(list, block)
        {
            return Ok(place);
        }
        let (key, at) = self.leaf_of(list, block);
        match self.slot(key) {
            None | Some(Slot::Absent) => Ok(Location::NONE),
            Some(Slot::Cold) => Err(ColdLeaf(key)),
            Some(Slot::Loaded(leaf)) => Ok(leaf.place(at)),
        }
    }

    /// Whether it is a list of files.
    pub fn is_file_list(&self, list: ListId) -> bool {
        self.lists.get(&list).is_some_and(|list| list.meta.is_file_list())
    }

    /// The first cold leaf among the blocks `first..end` of a list.
    pub fn cold_leaf(&self, list: ListId, first: u64, end: u64) -> Option<LeafKey> {
        let sections = &self.lists.get(&list)?.sections;
        let shift = self.shape.section_blocks_shift();
        let leaf_blocks = u64::from(self.shape.leaf_blocks());
        for (number, section) in sections.range(sections_of(first..end, shift)) {
            for (n, slot) in section.slots.iter().enumerate() {
                let leaf = u32::try_from(n).expect("at most 64 leaves");
                let start = (u64::from(number) << shift) + u64::from(leaf) * leaf_blocks;
                if matches!(slot, Slot::Cold) && start < end && start + leaf_blocks > first {
                    return Some(LeafKey { list, section: number, leaf });
                }
            }
        }
        None
    }

    pub fn map_section(&self, list: ListId, number: u32) -> Option<&MapSection> {
        self.lists.get(&list)?.sections.get(number)
    }

    /// The first section at or after this one, in the order of lists.
    pub fn next_section(&mut self, from: (ListId, u32)) -> Option<((ListId, u32), &mut MapSection)> {
        self.lists.range_mut(from.0..).find_map(|(list, owner)| {
            let first = if *list == from.0 { from.1 } else { 0 };
            let (number, section) = owner.sections.range_mut(u64::from(first)..u64::MAX).next()?;
            Some(((*list, number), section))
        })
    }

    pub fn map_section_mut(&mut self, list: ListId, number: u32) -> Option<&mut MapSection> {
        self.lists.get_mut(&list)?.sections.get_mut(number)
    }

    /// The section's place on the medium and in time.
    pub fn meta_mut(&mut self, key: SectionKey) -> Option<&mut SectionMeta> {
        match key {
            SectionKey::Zones(page) => self.zone_pages.get_mut(index(page)),
            SectionKey::Lists(page) => Some(self.list_pages.entry(page).or_default()),
            SectionKey::Map(list, number) => Some(&mut self.map_section_mut(list, number)?.meta),
        }
    }

    pub fn meta(&self, key: SectionKey) -> Option<&SectionMeta> {
        match key {
            SectionKey::Zones(page) => self.zone_pages.get(index(page)),
            SectionKey::Lists(page) => self.list_pages.get(&page),
            SectionKey::Map(list, number) => self.map_section(list, number).map(|section| &section.meta),
        }
    }

    /// Marks a section as changed by record `lsn` (I3). False: what is written includes that record already (R23).
    fn touch(&mut self, key: SectionKey, lsn: Lsn) -> bool {
        let Some(meta) = self.meta_mut(key) else { return false };
        if lsn < meta.lsn {
            return false;
        }
        let since = meta.lack(lsn);
        note_lack(&mut self.dirty, key, lsn, since);
        true
    }

    /// Marks the whole zones table to be written again.
    pub fn touch_zones(&mut self, lsn: Lsn) {
        for page in 0..self.zone_pages.len() {
            self.touch(SectionKey::Zones(u32::try_from(page).expect("few pages")), lsn);
        }
    }

    fn touch_zone(&mut self, zone: u32, lsn: Lsn) -> bool {
        self.touch(SectionKey::Zones(zone / self.shape.zones_per_page), lsn)
    }

    /// The map's part of a put: block, place, checksum. Gives back the old place if the leaf is loaded.
    /// Creates what is absent. Returns false if the section includes the record already.
    fn map_put(&mut self, list: ListId, block: u64, place: Location, checksum: u32, lsn: Lsn) -> bool {
        let (key, at) = self.leaf_of(list, block);
        let (leaf_blocks, leaves) = (self.shape.leaf_blocks(), self.shape.section_leaves());
        let Some(owner) = self.lists.get_mut(&list) else { return false };
        let section = owner.sections.entry(key.section).get_or_insert_with(|| Box::new(MapSection::new(leaves)));
        if lsn < section.meta.lsn {
            return false;
        }
        match &mut section.slots[index(key.leaf)] {
            Slot::Loaded(leaf) => {
                leaf.set(at, place, checksum);
            }
            Slot::Cold => section.pending.entry(key.leaf).or_default().push(Pending::Put {
                block: u16::try_from(at).expect("a leaf has at most 1024 blocks"),
                place,
                checksum,
            }),
            slot => {
                let mut leaf = Box::new(Leaf::new(leaf_blocks));
                leaf.set(at, place, checksum);
                *slot = Slot::Loaded(leaf);
                self.leaves_made += 1;
            }
        }
        let since = section.meta.lack(lsn);
        note_lack(&mut self.dirty, SectionKey::Map(list, key.section), lsn, since);
        true
    }

    fn map_clear(&mut self, list: ListId, first: u64, end: u64, lsn: Lsn) {
        let shift = self.shape.section_blocks_shift();
        let leaf_blocks = u64::from(self.shape.leaf_blocks());
        let Some(owner) = self.lists.get_mut(&list) else { return };
        for (number, section) in owner.sections.range_mut(sections_of(first..end, shift)) {
            if lsn < section.meta.lsn {
                continue;
            }
            let mut touched = false;
            for n in 0..section.slots.len() {
                let leaf_number = u32::try_from(n).expect("at most 64 leaves");
                let start = (u64::from(number) << shift) + u64::from(leaf_number) * leaf_blocks;
                let from = first.clamp(start, start + leaf_blocks) - start;
                let to = end.clamp(start, start + leaf_blocks) - start;
                if from >= to {
                    continue;
                }
                let (from, to) = (low_u32(from), low_u32(to));
                match &mut section.slots[n] {
                    Slot::Absent => {}
                    Slot::Cold => {
                        section.pending.entry(leaf_number).or_default().push(Pending::Clear { from, end: to });
                        touched = true;
                    }
                    Slot::Loaded(leaf) => {
                        for at in from..to {
                            if leaf.get(at).is_some() {
                                leaf.set(at, Location::NONE, 0);
                                touched = true;
                            }
                        }
                    }
                }
            }
            if touched {
                let since = section.meta.lack(lsn);
                note_lack(&mut self.dirty, SectionKey::Map(list, number), lsn, since);
            }
        }
    }

    /// One put of one block: the hot path, used by [`State::apply`] as well. `old` is where the block lay before.
    pub fn apply_put(&mut self, list: ListId, block: u64, place: Location, checksum: u32, old: Location, lsn: Lsn) {
        if let Some(fold) = &mut self.fold
            && let Some(entry) = fold.take(list, block)
        {
            crate::mark("unit: a block folded since another change follows");
            self.fold_in(&entry);
        }
        if let Some(watch) = &mut self.watch {
            watch.blocks.push((list, block));
        }
        self.put_now(list, block, place, checksum, old, lsn);
    }

    /// Brings up to `count` blocks of the large commit into the tables. False: none waits any more.
    pub fn fold_some(&mut self, count: usize) -> bool {
        for _ in 0..count {
            let Some(entry) = self.fold.as_mut().and_then(Fold::pop) else {
                self.fold = None;
                return false;
            };
            self.fold_in(&entry);
        }
        self.fold.is_some()
    }

    fn fold_in(&mut self, entry: &Entry) {
        if !entry.kept
            && let Some(zone) = self.zones.all.get_mut(index(entry.place.zone()))
        {
            zone.shadow -= entry.place.footprint();
        }
        self.put_now(entry.list, entry.block, entry.place, entry.checksum, entry.old, entry.lsn);
    }

    fn put_now(&mut self, list: ListId, block: u64, place: Location, checksum: u32, old: Location, lsn: Lsn) {
        self.map_put(list, block, place, checksum, lsn);
        if !place.is_none() && self.touch_zone(place.zone(), lsn) {
            self.zones.add(place);
        }
        if !old.is_none() && self.touch_zone(old.zone(), lsn) {
            self.zones.free(old, lsn);
        }
    }

    /// Applies one record. The only way in which the state changes.
    pub fn apply(&mut self, record: &Record, lsn: Lsn) {
        if let (Record::Discard { .. } | Record::List(_) | Record::ListGone { .. }, Some(watch)) =
            (record, &mut self.watch)
        {
            watch.much = true;
        }
        match record {
            Record::Put { list, first, place, entries } => {
                let mut at = *place;
                for (n, (old, checksum)) in entries.iter().enumerate() {
                    self.apply_put(*list, first + u64::try_from(n).expect("small"), at, *checksum, *old, lsn);
                    at = at.step(1);
                }
            }
            Record::Discard { list, first, end, freed } => {
                self.map_clear(*list, *first, *end, lsn);
                for Freed { zone, blocks, bytes } in freed {
                    if self.touch_zone(*zone, lsn) {
                        self.zones.free_many(*zone, *blocks, *bytes, lsn);
                    }
                }
            }
            Record::List(meta) => self.apply_list(meta, lsn),
            Record::ListGone { list } => {
                if self.touch(self.list_page(*list), lsn) {
                    self.remove_list(*list);
                }
            }
            Record::Data { .. } | Record::Commit { .. } => {}
            Record::ZoneOpened { zone, stream, segment } => {
                if let Some(holds) = Holds::from_stream(*stream) {
                    self.zone_opened(*zone, holds, crate::types::SegmentId(*segment), lsn);
                }
            }
            Record::ZoneFreed { zone, .. } => {
                if self.touch_zone(*zone, lsn)
                    && let Some(zone) = self.zones.all.get_mut(index(*zone))
                {
                    zone.holds = Holds::Nothing;
                    zone.open = false;
                }
            }
        }
    }

    /// A zone is filled from here on; for the record stream its first batch says so.
    pub fn zone_opened(&mut self, zone: u32, holds: Holds, segment: crate::types::SegmentId, lsn: Lsn) {
        if self.touch_zone(zone, lsn) {
            let number = zone;
            let Some(zone) =
                self.zones.all.get_mut(index(zone)).filter(|zone| zone.live == 0 && zone.holds != Holds::Roots)
            else {
                self.zones.broken.get_or_insert(format!("record {} fills zone {number}, which is not free", lsn.0));
                return;
            };
            zone.holds = holds;
            zone.segment = segment;
            zone.age = lsn;
        }
    }

    fn apply_list(&mut self, meta: &ListMeta, lsn: Lsn) {
        if !self.touch(self.list_page(meta.list), lsn) {
            return;
        }
        self.install_list(meta.clone());
    }

    /// Puts a list into the tables, new or changed.
    pub fn install_list(&mut self, meta: ListMeta) {
        self.next_list = self.next_list.max(meta.list.0 + 1);
        self.keepers.get_mut().clear();
        if let Some(old) = self.lists.get(&meta.list) {
            self.versions.note(&old.meta, false);
            if old.meta.is_volume() {
                self.names.remove(&old.meta.name);
            }
        }
        self.versions.note(&meta, true);
        self.tables.note(&meta);
        if meta.is_volume() {
            self.names.insert(meta.name.clone(), meta.list);
        }
        if meta.state == ListState::Draining {
            self.draining.insert(meta.list);
        }
        match self.lists.get_mut(&meta.list) {
            Some(list) => list.meta = meta,
            None => {
                let sections = self.orphans.remove(&meta.list).unwrap_or_default();
                self.lists.insert(meta.list, List { meta, sections });
            }
        }
    }

    /// Finds the names anew. While a log is replayed an older list, not yet deleted again, may bear the name of a newer
    /// one whose page was written later.
    pub fn name_lists(&mut self) {
        let there = self.lists.iter().filter(|(_, list)| list.meta.is_volume());
        self.names = there.map(|(id, list)| (list.meta.name.clone(), *id)).collect();
        self.keepers.get_mut().clear();
        self.versions = Versions::default();
        self.tables = Tables::default();
        for list in self.lists.values() {
            self.versions.note(&list.meta, true);
            self.tables.note(&list.meta);
        }
    }

    /// Takes in a section that was read from the directory.
    pub fn adopt_section(&mut self, list: ListId, number: u32, section: MapSection) {
        let sections = match self.lists.get_mut(&list) {
            Some(list) => &mut list.sections,
            None => self.orphans.entry(list).or_default(),
        };
        *sections.entry(number) = Some(Box::new(section));
    }

    fn remove_list(&mut self, list: ListId) {
        self.draining.remove(&list);
        self.keepers.get_mut().clear();
        let Some(gone) = self.lists.remove(&list) else { return };
        self.versions.note(&gone.meta, false);
        if gone.meta.is_volume() {
            self.names.remove(&gone.meta.name);
        }
        for (number, section) in gone.sections.iter() {
            let key = SectionKey::Map(list, number);
            if let Some(dirty) = section.meta.dirty {
                self.dirty.remove(&(dirty, key));
            }
            if let Some(slot) = section.meta.slot {
                self.directory.release(slot, self.shape.slots_per_page);
            }
        }
    }

    /// What all sections have, of whatever table.
    pub fn metas(&self) -> impl Iterator<Item = &SectionMeta> {
        let maps = self.lists.values().flat_map(|list| list.sections.iter().map(|(_, section)| &section.meta));
        maps.chain(self.list_pages.values()).chain(&self.zone_pages)
    }

    /// The page of the lists table that holds a list.
    pub fn list_page(&self, list: ListId) -> SectionKey {
        SectionKey::Lists(list.0 / self.shape.lists_per_page)
    }

    /// The sections that have an object in a zone.
    pub fn sections_in(&self, zone: u32) -> Vec<SectionKey> {
        let inside =
            |meta: &SectionMeta| meta.objects().any(|object| object.copies().iter().any(|(at, _)| *at == zone));
        let keys = self.directory.slots.iter().flatten();
        keys.filter(|key| self.meta(**key).is_some_and(inside)).copied().collect()
    }

    /// Marks the directory pages that lie in a zone to be written again.
    pub fn touch_pages_in(&mut self, zone: u32) {
        for (number, page) in self.directory.pages.iter().enumerate() {
            if page.copies().iter().any(|(at, _)| *at == zone) {
                self.directory.dirty.insert(u32::try_from(number).expect("fewer pages than 2^32"));
            }
        }
    }

    /// Memory that the tables take, about.
    pub fn memory(&self) -> u64 {
        let sections: usize = self.lists.values().map(|list| list.sections.memory()).sum();
        let zones = self.zones.all.capacity() * size_of::<crate::zones::Zone>();
        u64::try_from(sections + zones).expect("memory fits in 64 bits")
    }

    /// The first record that the written sections do not include: replay begins there.
    pub fn replay_from(&self) -> Option<Lsn> {
        self.dirty.first().map(|(lsn, _)| *lsn)
    }

    /// A section is written as of `lsn`; it is no longer dirty.
    pub fn clean(&mut self, key: SectionKey) {
        if let Some(meta) = self.meta_mut(key)
            && let Some(dirty) = meta.dirty.take()
        {
            self.dirty.remove(&(dirty, key));
        }
    }
}

impl Directory {
    /// A slot for a section that is written for the first time.
    pub fn assign(&mut self, key: SectionKey, slots_per_page: u32) -> u32 {
        let slot = self.free.pop_first().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer sections than 2^32")
        });
        self.slots[index(slot)] = Some(key);
        self.dirty.insert(slot / slots_per_page);
        slot
    }

    fn release(&mut self, slot: u32, slots_per_page: u32) {
        self.slots[index(slot)] = None;
        self.free.insert(slot);
        self.dirty.insert(slot / slots_per_page);
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
pub(crate) mod tests;
