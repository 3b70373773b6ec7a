//! Checkpoints: the tables written in changes, a few at a time (Mime, incremental checkpoints).
//!
//! A section is written when the oldest change it lacks falls out of the window that recovery may have to replay (R22).
//! It is written as a delta, or as an image once its deltas would outweigh one, or become too many. Each object goes to
//! two streams; then the directory pages that name it; then, after a sync of all of it and of every record it includes,
//! a root (R23, R25).
//!
//! One thread at a time: the caller holds `maintaining`.

mod emptied;
mod tables;

use crate::disk::Inner;
use crate::disk::options::Survive;
use crate::error::{Error, Result};
use crate::fold::FOLD_STEP;
use crate::format::object::{DELTA, DIRECTORY, IMAGE, ObjectRef, SectionEntry, encode};
use crate::format::records::ListMeta;
use crate::format::root::{Root, RootImage};
use crate::map::{SectionMeta, Slot, page};
use crate::state::{LeafKey, SectionKey, State};
use crate::types::{Lsn, index, len_u32, len_u64};
use std::collections::{BTreeMap, VecDeque};

/// So many bytes of objects are gathered before they are written.
const GATHER_BYTES: usize = 1 << 20;

/// Writing tables again takes a zone for each copy, and records of that.
pub(crate) const TABLES_NEED: usize = 4;
/// With fewer zones than this left a checkpoint makes some of the garbage that there is: where zones are small, it may need
/// more than the reserve has.
const SHORT: usize = 3 * TABLES_NEED;
/// So often in a row it gains none.
const PATIENCE: u32 = 16;

/// What a section lacked before it was taken to be written: the record it was written at, the first that it lacked.
type Before = (Lsn, Option<Lsn>);

/// Sections that are to be written.
#[derive(Default)]
struct Wanted {
    /// In this order.
    keys: VecDeque<SectionKey>,
    /// As far as they lack a record below this.
    before: Lsn,
    /// All of them as images, since zones are few: a delta leaves what it adds to where it is.
    images: bool,
}

/// What was made of a section, before it is written.
struct Encoded {
    key: SectionKey,
    /// Given back if it cannot be written.
    before: Before,
    image: bool,
    bytes: Vec<u8>,
    checksum: u32,
}

/// The pages of a section, and what it lacked before.
struct Taken {
    key: SectionKey,
    before: Before,
    pages: Pages,
}

/// The kind of an object and its leaves' pages.
type Pages = (u32, Vec<(u32, Vec<u8>)>);

enum Next {
    Taken(Taken),
    Load(LeafKey),
    /// A large commit must be folded first, or the section would not hold what its position says.
    Fold,
    Nothing,
}

impl State {
    /// Bytes of tables in each zone that the sections and the directory refer to now.
    pub fn table_bytes(&self) -> BTreeMap<u32, u64> {
        let mut zones = BTreeMap::new();
        let pages = self.directory.pages.iter().filter(|page| !page.is_none());
        for object in self.metas().flat_map(SectionMeta::objects).chain(pages) {
            for (zone, _) in object.copies() {
                *zones.entry(zone).or_default() += u64::from(object.bytes);
            }
        }
        zones
    }

    /// The zones in which the sections lie that a page of the directory names now.
    pub fn zones_named_by(&self, page: u32) -> Vec<u32> {
        let slots = self.shape.slots_per_page;
        let first = index(page * slots);
        let keys = self.directory.slots.iter().skip(first).take(index(slots)).flatten();
        let objects = keys.filter_map(|key| self.meta(*key)).flat_map(SectionMeta::objects);
        let mut zones: Vec<u32> = objects.flat_map(|object| object.copies().map(|(zone, _)| zone)).collect();
        zones.sort_unstable();
        zones.dedup();
        zones
    }

    /// The sections that lack a record below `before`, by where they lie: those of one zone are written one after the
    /// other, so that it holds nothing then, and can be freed in the middle of a checkpoint.
    fn lacking(&self, before: Lsn) -> Vec<SectionKey> {
        let lacking = self.dirty.iter().take_while(|(dirty, _)| *dirty < before).map(|(_, key)| *key);
        let place = |key: &SectionKey| self.meta(*key).map(|meta| (meta.image.zone_a, meta.image.offset_a));
        let mut lacking: Vec<_> = lacking.map(|key| (place(&key), key)).collect();
        lacking.sort_unstable();
        lacking.into_iter().map(|(_, key)| key).collect()
    }

    /// The pages of the next section that lacks a record below `before`; or what must be loaded for that, and the section
    /// asked for again.
    fn take_next(&mut self, wanted: &mut Wanted, lsn: Lsn) -> Next {
        if self.fold.is_some() {
            return Next::Fold;
        }
        let before = wanted.before;
        let lacks = |key: &SectionKey| self.meta(*key).and_then(|meta| meta.dirty).is_some_and(|dirty| dirty < before);
        let Some(key) = std::iter::from_fn(|| wanted.keys.pop_front()).find(lacks) else { return Next::Nothing };
        let encoded = match key {
            SectionKey::Lists(number) => Some(self.encode_lists(number)),
            SectionKey::Zones(number) => Some(self.encode_zones(number)),
            SectionKey::Map(list, number) => match self.encode_map(list, number, wanted.images) {
                Ok(encoded) => encoded,
                Err(leaf) => {
                    wanted.keys.push_front(key);
                    return Next::Load(LeafKey { list, section: number, leaf });
                }
            },
        };
        let before = self.meta(key).map_or((Lsn(0), None), |meta| (meta.lsn, meta.dirty));
        self.clean(key);
        let Some(pages) = encoded else { return Next::Nothing };
        if let Some(meta) = self.meta_mut(key) {
            meta.lsn = lsn;
        }
        self.taken += 1;
        Next::Taken(Taken { key, before, pages })
    }

    fn encode_lists(&self, number: u32) -> Pages {
        let first = number * self.shape.lists_per_page;
        let mut bytes = Vec::new();
        let range = crate::types::ListId(first)..crate::types::ListId(first.saturating_add(self.shape.lists_per_page));
        for (_, list) in self.lists.range(range) {
            ListMeta::encode(&list.meta, &mut bytes);
        }
        (IMAGE, vec![(0, bytes)])
    }

    fn encode_zones(&self, number: u32) -> Pages {
        let first = index(number * self.shape.zones_per_page);
        let end = (first + index(self.shape.zones_per_page)).min(self.zones.all.len());
        let mut bytes = Vec::new();
        for zone in &self.zones.all[first..end] {
            zone.encode(&mut bytes);
        }
        (IMAGE, vec![(0, bytes)])
    }

    /// `Err`: this leaf must be loaded first.
    fn encode_map(
        &mut self,
        list: crate::types::ListId,
        number: u32,
        force_image: bool,
    ) -> std::result::Result<Option<Pages>, u32> {
        let deltas_max = self.shape.deltas_max;
        let Some(section) = self.map_section_mut(list, number) else { return Ok(None) };
        if let Some(leaf) = section.pending.keys().next() {
            return Err(*leaf);
        }
        let changed = section.slots.iter().enumerate().filter_map(|(n, slot)| match slot {
            Slot::Loaded(leaf) if leaf.is_changed() => Some((len_u32(n), page::delta(leaf))),
            _ => None,
        });
        let deltas: Vec<(u32, Vec<u8>)> = changed.collect();
        let delta_bytes = 16 + deltas.iter().map(|(_, page)| 16 + page.len() as u64).sum::<u64>();
        let meta = &section.meta;
        let image = force_image
            || meta.whole
            || meta.image.is_none()
            || meta.deltas.len() >= deltas_max
            || meta.delta_bytes() + delta_bytes > u64::from(meta.image.bytes);
        if image && let Some(n) = section.slots.iter().position(|slot| matches!(slot, Slot::Cold)) {
            return Err(len_u32(n));
        }
        let pages = if image {
            let leaves = section.slots.iter().enumerate().filter_map(|(n, slot)| match slot {
                Slot::Loaded(leaf) if !leaf.is_empty() => Some((len_u32(n), page::image(leaf))),
                _ => None,
            });
            leaves.collect()
        } else {
            deltas
        };
        for slot in &mut section.slots {
            if let Slot::Loaded(leaf) = slot {
                leaf.forget_changes();
            }
        }
        Ok(Some((if image { IMAGE } else { DELTA }, pages)))
    }

    fn install(&mut self, encoded: &Encoded, object: ObjectRef) {
        self.taken -= 1;
        let slots_per_page = self.shape.slots_per_page;
        let Some(meta) = self.meta_mut(encoded.key) else { return };
        if encoded.image {
            meta.image = object;
            meta.whole = false;
            meta.deltas.clear();
        } else {
            meta.deltas.push(object);
        }
        let slot = meta.slot;
        let slot = slot.unwrap_or_else(|| self.directory.assign(encoded.key, slots_per_page));
        if let Some(meta) = self.meta_mut(encoded.key) {
            meta.slot = Some(slot);
        }
        self.directory.dirty.insert(slot / slots_per_page);
    }

    /// The section could not be written: it lacks again what it lacked before, and since its leaves have forgotten what
    /// changed, it must be written whole (I3). A root must not pass over it.
    fn give_back(&mut self, key: SectionKey, before: Before) {
        self.taken -= 1;
        let (lsn, Some(since)) = before else { return }; // It lacked nothing.
        let Some(meta) = self.meta_mut(key) else { return };
        meta.lsn = lsn;
        meta.whole = true;
        if let Some(newer) = meta.dirty.replace(since) {
            self.dirty.remove(&(newer, key));
        }
        self.dirty.insert((since, key));
    }

    fn encode_directory_page(&self, number: u32) -> (Vec<u8>, u32) {
        let first = index(number * self.shape.slots_per_page);
        let end = (first + index(self.shape.slots_per_page)).min(self.directory.slots.len());
        let mut bytes = Vec::new();
        for (n, key) in self.directory.slots[first.min(end)..end].iter().enumerate() {
            let Some(key) = key else { continue };
            let Some(meta) = self.meta(*key) else { continue };
            let (table, list, section, leaves) = match key {
                SectionKey::Map(list, number) => {
                    (1, list.0, *number, self.map_section(*list, *number).map_or(0, |section| section.leaf_bits()))
                }
                SectionKey::Lists(number) => (2, 0, *number, 0),
                SectionKey::Zones(number) => (3, 0, *number, 0),
            };
            SectionEntry {
                table,
                list,
                number: section,
                slot: len_u32(first + n),
                lsn: meta.lsn.0,
                leaves,
                zone_a: meta.image.zone_a,
                offset_a: meta.image.offset_a,
                zone_b: meta.image.zone_b,
                offset_b: meta.image.offset_b,
                bytes: meta.image.bytes,
                checksum: meta.image.checksum,
                deltas: len_u32(meta.deltas.len()),
                reserved: 0,
            }
            .push_to(&mut bytes);
            for delta in &meta.deltas {
                delta.push_to(&mut bytes);
            }
        }
        encode(DIRECTORY, &[(0, bytes)])
    }
}

impl Inner {
    /// Writes every section that lacks a record below `before`.
    fn write_sections(&self, before: Lsn) -> Result<()> {
        let (mut patience, mut next) = (PATIENCE, usize::MAX);
        loop {
            let keys = self.core.lock().state.lacking(before).into();
            let mut wanted = Wanted { keys, before, images: false };
            if wanted.keys.is_empty() {
                return Ok(());
            }
            while !wanted.keys.is_empty() {
                let lacking = self.zones_lacking(&wanted);
                wanted.images = lacking > SHORT / 2;
                if lacking > 0 && patience > 0 && self.core.lock().available() < next {
                    patience = if self.gain_zones(lacking)? { PATIENCE } else { patience - 1 };
                    // Again when what is written since fills zones.
                    next = self.core.lock().available().saturating_sub(TABLES_NEED / 2).max(TABLES_NEED + 2);
                }
                self.write_batch(&mut wanted)?;
            }
        }
    }

    /// How many zones more than there are the rest of a checkpoint may take, if there are few.
    fn zones_lacking(&self, wanted: &Wanted) -> usize {
        let core = self.core.lock();
        let available = core.available();
        if available >= SHORT {
            return 0;
        }
        let metas = wanted.keys.iter().filter_map(|key| core.state.meta(*key));
        let sections: u64 = metas.map(|meta| u64::from(meta.image.bytes) + meta.delta_bytes()).sum();
        let directory = &core.state.directory;
        let pages = (wanted.keys.len() + directory.dirty.len()).min(directory.pages.len() + 1);
        let page = directory.pages.iter().map(|page| u64::from(page.bytes)).max().unwrap_or(0);
        let bytes = sections + len_u64(pages) * (page + u64::from(self.shape.head));
        // A third is lost where zones end; two streams.
        let zones = 2 * (bytes / 2 * 3).div_ceil(u64::from(self.shape.zone_bytes)) + 2;
        usize::try_from(zones).unwrap_or(usize::MAX).min(SHORT).saturating_sub(available)
    }

    /// Writes sections, as many in one batch as are worth it. What finds no room is given back, and lacks again what it
    /// lacked.
    fn write_batch(&self, wanted: &mut Wanted) -> Result<()> {
        let gather = GATHER_BYTES.min(index(self.shape.zone_bytes / 8));
        self.table_room(len_u32(gather))?;
        let mut gathered: Vec<Encoded> = Vec::new();
        while gathered.iter().map(|encoded| encoded.bytes.len()).sum::<usize>() < gather {
            match self.next_section(wanted) {
                Ok(Some(encoded)) => gathered.push(encoded),
                Ok(None) => break,
                Err(error) => {
                    let mut core = self.core.lock();
                    for encoded in &gathered {
                        core.state.give_back(encoded.key, encoded.before);
                    }
                    return Err(error);
                }
            }
        }
        if let Some(room) = self.write_encoded(&gathered)? {
            self.table_room(room)?;
        }
        Ok(())
    }

    fn next_section(&self, wanted: &mut Wanted) -> Result<Option<Encoded>> {
        loop {
            let mut core = self.core.lock();
            let lsn = core.writer.lsn;
            match core.state.take_next(wanted, lsn) {
                Next::Taken(Taken { key, before, pages: (kind, leaves) }) => {
                    drop(core);
                    let (bytes, checksum) = encode(kind, &leaves);
                    return Ok(Some(Encoded { key, before, image: kind == IMAGE, bytes, checksum }));
                }
                Next::Nothing => return Ok(None),
                Next::Fold => {
                    core.state.fold_some(FOLD_STEP);
                }
                Next::Load(key) => {
                    drop(core);
                    self.load(key)?;
                }
            }
        }
    }

    /// Writes sections. What finds no room is given back; then it says how much room that lacks.
    fn write_encoded(&self, gathered: &[Encoded]) -> Result<Option<u32>> {
        // One batch for all, unless a single one is nearly a zone.
        let mut start = 0;
        while start < gathered.len() {
            let mut end = start + 1;
            let mut bytes = gathered[start].bytes.len();
            while end < gathered.len() && bytes + gathered[end].bytes.len() < index(self.shape.zone_bytes / 4) {
                bytes += gathered[end].bytes.len() + 16;
                end += 1;
            }
            let objects: Vec<(&[u8], u32)> =
                gathered[start..end].iter().map(|encoded| (&encoded.bytes[..], encoded.checksum)).collect();
            let written = self.write_objects(&objects);
            let mut core = self.core.lock();
            let Ok(Ok(refs)) = written else {
                crate::mark("checkpoint: sections given back");
                for encoded in &gathered[start..] {
                    core.state.give_back(encoded.key, encoded.before);
                }
                return written.map(std::result::Result::err);
            };
            for (encoded, object) in gathered[start..end].iter().zip(refs) {
                core.state.install(encoded, object);
            }
            start = end;
        }
        Ok(None)
    }

    /// Writes the pages of the directory that have changed; `within`: only as far as there is room, or a zone to spare for
    /// each stream. A page that is not written holds on to all that it names.
    fn write_directory(&self, within: bool) -> Result<()> {
        loop {
            let (number, (bytes, checksum), named) = {
                let mut core = self.core.lock();
                let Some(number) = core.state.directory.dirty.pop_first() else { return Ok(()) };
                (number, core.state.encode_directory_page(number), core.state.zones_named_by(number))
            };
            let written = self.write_objects(&[(&bytes, checksum)]);
            let mut core = self.core.lock();
            let Ok(Ok(mut refs)) = written else {
                core.state.directory.dirty.insert(number);
                drop(core);
                match written? {
                    Err(_) if within && self.core.lock().spare_zones() < 2 => return Ok(()),
                    Err(room) => self.table_room(room)?,
                    Ok(_) => {}
                }
                continue;
            };
            let pages = &mut core.state.directory.pages;
            if pages.len() <= index(number) {
                pages.resize(index(number) + 1, ObjectRef::default());
            }
            pages[index(number)] = refs.remove(0);
            core.rooted.pages.insert(number, named);
        }
    }

    /// Writes a root that names what is written now. Everything that it names is durable first (R23), and so is the
    /// root itself when this returns.
    pub(crate) fn write_root(&self, clean: bool) -> Result<()> {
        let image = {
            let mut core = self.core.lock();
            // What is not folded yet must not be passed over by the replay start.
            while core.state.fold_some(FOLD_STEP) {
                crate::sync::MutexGuard::bump(&mut core);
            }
            let core = &mut *core;
            assert!(
                core.state.taken == 0,
                "I3: a root passes over {} sections that are being written",
                core.state.taken
            );
            let (durable, durable_lsn) = (core.writer.durable, core.writer.durable_lsn);
            let replay = core.state.replay_from().map_or(durable_lsn, |dirty| dirty.min(durable_lsn));
            if core.state.dirty.is_empty() {
                core.writer.begin_replay_here();
            }
            core.writer.release_segments(replay);
            let next = |n: usize| core.writer.ready.get(n).copied().unwrap_or(u32::MAX);
            let root = Root {
                number: core.root_number + 1,
                epoch: core.epoch,
                epoch_start: core.epoch_start,
                durable: durable.0,
                replay_lsn: replay.0,
                next_lsn: durable_lsn.0,
                zone_bytes: self.shape.zone_bytes,
                zones: core.growing.unwrap_or(core.state.shape.zones),
                append_align: self.shape.align,
                next_list: core.state.next_list,
                next_a: next(0),
                next_b: next(1),
                clean: u32::from(clean),
                next_sequence: core.writer.sequence.0,
                ..Root::default()
            };
            RootImage {
                root,
                segments: core.writer.segments.iter().copied().collect(),
                pages: core.state.directory.pages.clone(),
            }
        };
        let (mut cursor, fresh, tables) = {
            let mut core = self.core.lock();
            let mut tables = core.state.table_bytes();
            // A page that found no room is named as it was, with sections where they were.
            for zone in core.state.directory.dirty.iter().filter_map(|page| core.rooted.pages.get(page)).flatten() {
                tables.entry(*zone).or_default();
            }
            (core.cursor, core.writer.next_segment(), tables)
        };
        let latch = |error: Error| {
            self.core.lock().latch(&error);
            error
        };
        let bytes = cursor.write(&*self.medium, &self.shape, self.disk, &image, fresh).map_err(latch)?;
        self.sync_all()?;
        let mut core = self.core.lock();
        core.cursor = cursor;
        core.root_number += 1;
        core.counters.checkpoint_bytes += bytes;
        core.counters.roots += 1;
        core.rooted.segments = image.segments.iter().map(|span| span.zone).collect();
        core.rooted.replay = Lsn(image.root.replay_lsn);
        core.rooted.tables = tables;
        self.space.notify_all();
        Ok(())
    }

    /// A sync that begins after this call does: what had been appended by anybody is durable afterwards.
    pub(crate) fn sync_all(&self) -> Result<()> {
        let mut core = self.core.lock();
        while core.syncing {
            self.progress.wait(&mut core);
        }
        core.alive()?;
        let core = self.sync_now(core);
        core.alive()
    }

    /// Writes sections, directory and root, so that replay begins no earlier than `before`.
    pub(crate) fn checkpoint_to(&self, before: Lsn, clean: bool) -> Result<()> {
        self.write_sections(before)?;
        self.write_directory(false)?;
        self.sync_and_root(clean)
    }

    pub(super) fn sync_and_root(&self, clean: bool) -> Result<()> {
        let target = self.core.lock().writer.lsn;
        self.flush_to(target, Survive::Process)?;
        self.sync_all()?;
        self.write_root(clean)
    }

    /// Writes everything. `clean`: nothing more will be written.
    pub(crate) fn checkpoint_all(&self, clean: bool) -> Result<()> {
        drop(self.writable()?);
        let _one = self.maintaining.lock();
        self.fold_all();
        // Writing tables opens zones, which changes tables again: a few rounds, the last of them small.
        for _ in 0..8 {
            if self.core.lock().state.dirty.is_empty() {
                break;
            }
            self.write_sections(Lsn(u64::MAX))?;
            self.write_directory(false)?;
        }
        self.checkpoint_to(Lsn(0), clean)
    }
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;
