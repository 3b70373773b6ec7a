//! Changing the committed state: every change goes through here, simple or of a unit.
//!
//! A change is made in one hold of the lock, and its records go into one batch; if they do not fit in one, into
//! consecutive batches that count only together. Data is placed first, then the records that make it visible.

use super::load::Gathering;
use super::space::Claim;
use super::{Core, Inner, charge};
use crate::error::{Error, ErrorKind, Result};
use crate::fold::FOLD_STEP;
use crate::format::crc;
use crate::format::records::{
    Form, Freed, ListMeta, ListState, Record, data_bytes, encode_data, encode_one_put, encode_put, put_bytes,
};
use crate::map::sections_of;
use crate::ordered::Staged;
use crate::packed::without_zeros;
use crate::state::{ColdLeaf, Keeper, Kept, LeafKey};
use crate::sync::MutexGuard;
use crate::types::{Kind, ListId, Location, Lsn, UnitId, index, len_u32, len_u64};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Every operation helps to fold so many blocks of a large commit.
const FOLD_ALONG: usize = 8;

/// A block as it will be stored, ready to be placed.
pub(crate) struct NewBlock<'a> {
    pub block: u64,
    pub stored: &'a [u8],
    pub kind: Kind,
    pub checksum: u32,
    /// What the block's new content was derived from (R5): the place it was read from must still be its place.
    pub base: Option<Location>,
}

impl<'a> NewBlock<'a> {
    /// A whole block that is not packed.
    pub fn raw(block: u64, data: &'a [u8]) -> NewBlock<'a> {
        let stored = without_zeros(data);
        NewBlock { block, stored, kind: Kind::Raw, checksum: crc(stored), base: None }
    }
}

/// Blocks of lists of files that take no more than this are in the cache as soon as they are written.
const CACHED_MAX: usize = 1024;

/// Whether a block is read again soon, as inodes and directories are.
pub(crate) fn is_read_again(of_files: bool, kind: Kind, stored: &[u8]) -> bool {
    of_files && kind == Kind::Raw && stored.len() <= CACHED_MAX
}

/// Why a change was not made, and what to do before the next try.
pub(crate) enum Again {
    /// Load this leaf.
    Load(LeafKey),
    /// A snapshot sees the list as it is: make a layer first.
    Layer(ListId),
    /// Look for free numbers of this table.
    Numbers(ListId),
    /// Read the base again.
    Base,
    /// Cut blocks again out of what is committed now.
    Cut,
    /// A unit holds the block in which its volume ends: zeros belong behind that end.
    Trim(ListId, u64),
    /// There is no space: wait for the cleaner, or give up.
    Space(u64),
    /// It cannot be made.
    Never(Error),
}

impl From<ColdLeaf> for Again {
    fn from(cold: ColdLeaf) -> Again {
        Again::Load(cold.0)
    }
}

impl From<Error> for Again {
    fn from(error: Error) -> Again {
        Again::Never(error)
    }
}

/// A block that lies in the log already.
#[derive(Clone, Copy)]
pub(crate) struct Placed {
    pub block: u64,
    pub place: Location,
    pub checksum: u32,
    pub old: Location,
}

impl Inner {
    /// Runs `change` with room for so much data and so many bytes of records in the open batch. Only new data waits for
    /// the throttle (R29).
    pub fn with_room<T>(
        &self,
        data: u32,
        records: u32,
        claim: Claim,
        change: impl FnOnce(&mut Core) -> T,
    ) -> Result<T> {
        self.with_room_for(data, |_| records, claim, change)
    }

    /// As `with_room`; how many bytes of records is asked in the same hold.
    pub fn with_room_for<T>(
        &self,
        data: u32,
        records: impl Fn(&Core) -> u32,
        claim: Claim,
        change: impl FnOnce(&mut Core) -> T,
    ) -> Result<T> {
        let mut core = self.writable()?;
        if claim == Claim::Data {
            core = self.pace(core);
        }
        loop {
            core.alive()?;
            if claim == Claim::Data {
                core = self.throttle(core)?;
            }
            core = self.admit(core, claim)?;
            let ready_min = claim.ready_min(core.available());
            let records = records(&core);
            match core.writer.make_room(data, records, false, ready_min) {
                Ok(()) => {
                    core.note_zones();
                    if claim != Claim::Keeper {
                        self.charge(&mut core, u64::from(data) + u64::from(records));
                    }
                    core.state.fold_some(FOLD_ALONG);
                    let done = change(&mut core);
                    assert!(core.state.zones.broken.is_none(), "I4: {:?}", core.state.zones.broken);
                    self.after_operation(core);
                    return Ok(done);
                }
                Err(crate::log::writer::Lacking::Zone) => {
                    drop(core);
                    self.prepare_zones(3, claim)?;
                    core = self.core.lock();
                }
            }
        }
    }

    /// Brings all of the newest large commit into the tables, in bounded holds.
    pub(crate) fn fold_all(&self) {
        while self.core.lock().state.fold_some(FOLD_STEP) {}
    }

    /// As new data does, without bringing any.
    pub(crate) fn let_append(&self) -> Result<()> {
        self.throttle(self.core.lock()).map(drop)
    }

    /// Waits while too much waits to be appended.
    fn throttle<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> Result<MutexGuard<'a, Core>> {
        while core.writer.waiting_bytes > len_u64(self.options.write_buffer_bytes) {
            core.alive()?;
            if core.appending == 0 && core.writer.is_queued() {
                core = self.append_one(core);
            } else {
                self.progress.wait(&mut core);
            }
        }
        core.alive()?;
        Ok(core)
    }

    /// Runs a change until it is made, doing what it asks for in between.
    pub fn until_made<T>(
        &self,
        data: u32,
        records: impl Fn(&Core) -> u32,
        claim: Claim,
        mut change: impl FnMut(&mut Core) -> std::result::Result<T, Again>,
        mut rebase: impl FnMut() -> Result<()>,
    ) -> Result<T> {
        let mut gathering = None;
        loop {
            match self.with_room_for(data, &records, claim, &mut change)? {
                Ok(done) => return Ok(done),
                Err(Again::Load(key)) => {
                    gathering.get_or_insert_with(|| Gathering::new(self));
                    self.load(key)?;
                }
                Err(Again::Layer(list)) => self.make_layer(list, claim)?,
                Err(Again::Numbers(table)) => self.look_for_numbers(table)?,
                Err(Again::Base | Again::Cut | Again::Trim(..)) => rebase()?,
                Err(Again::Never(error)) => return Err(error),
                Err(Again::Space(needed)) => return Err(self.full(&self.core.lock(), needed)),
            }
        }
    }

    /// The error for a disk that has no space for `needed` more bytes.
    pub fn full(&self, core: &Core, needed: u64) -> Error {
        let usable = core.state.shape.promisable();
        let free = usable.saturating_sub(core.promised());
        Error::new(
            ErrorKind::Full,
            format!("the disk is full: {needed} bytes are needed (charges included), {free} of {usable} are free"),
        )
    }

    /// A simple write of a few blocks: one batch, one hold.
    pub fn put_blocks(
        &self,
        list: ListId,
        blocks: &mut [NewBlock<'_>],
        user_bytes: usize,
        rebase: impl FnMut() -> Result<()>,
    ) -> Result<Lsn> {
        let data: u32 =
            blocks.iter().map(|block| len_u32(block.stored.len()).next_multiple_of(crate::types::GRANULE)).sum();
        let records = put_bytes(1) * len_u32(blocks.len());
        self.until_made(
            data,
            |core| core.with_kept(records),
            Claim::Data,
            |core| {
                let form = core.check_list(list, blocks.last().map_or(0, |last| last.block + 1))?.form;
                if form == Form::Pool {
                    core.check_blocks(list, &Staged::default(), blocks.iter().map(|new| new.block))?;
                }
                let Before { olds, kept } = core.before(list, blocks)?;
                let freed: u64 = olds.iter().map(|old| charge(*old)).sum();
                let mut needed = u64::from(data) + len_u64(blocks.len()) * crate::shape::BLOCK_CHARGE;
                needed += kept.iter().map(|kept| charge(kept.place)).sum::<u64>();
                if needed > freed && core.promised() + needed - freed > core.state.shape.promisable() {
                    return Err(Again::Space(needed - freed));
                }
                core.keep(&kept);
                if let ([new], [old]) = (&*blocks, &olds[..]) {
                    let place = core.writer.place(new.stored, new.kind);
                    let lsn =
                        core.writer.record(|into| encode_one_put(list, new.block, place, *old, new.checksum, into));
                    core.state.apply_put(list, new.block, place, new.checksum, *old, lsn);
                    core.counters.user_bytes += len_u64(user_bytes);
                    return Ok(core.writer.lsn);
                }
                let mut run = Run::default();
                for (new, old) in blocks.iter().zip(olds.iter()) {
                    let place = core.writer.place(new.stored, new.kind);
                    let placed = Placed { block: new.block, place, checksum: new.checksum, old: *old };
                    run.push(core, list, placed);
                }
                run.end(core, list);
                core.counters.user_bytes += len_u64(user_bytes);
                Ok(core.writer.lsn)
            },
            rebase,
        )
    }

    /// The same for blocks of several lists: those of each list in one group.
    pub fn put_groups<'a, G>(&self, groups: &[(ListId, G)], user_bytes: usize) -> Result<Lsn>
    where
        G: AsRef<[NewBlock<'a>]>,
    {
        let blocks = || groups.iter().flat_map(|(_, blocks)| blocks.as_ref());
        let data: u32 = blocks().map(|block| len_u32(block.stored.len()).next_multiple_of(crate::types::GRANULE)).sum();
        let count = blocks().count();
        let records = put_bytes(1) * len_u32(count);
        self.until_made(
            data,
            |core| core.with_kept(records),
            Claim::Data,
            |core| {
                // All of it is asked before any of it is changed.
                let mut befores: SmallVec<[Before; 4]> = SmallVec::new();
                let (mut freed, mut needed) = (0, u64::from(data) + len_u64(count) * crate::shape::BLOCK_CHARGE);
                for (list, blocks) in groups {
                    let end = blocks.as_ref().iter().map(|new| new.block.saturating_add(1)).max();
                    core.check_list(*list, end.unwrap_or(0))?;
                    let before = core.before(*list, blocks.as_ref())?;
                    freed += before.olds.iter().map(|old| charge(*old)).sum::<u64>();
                    needed += before.kept.iter().map(|kept| charge(kept.place)).sum::<u64>();
                    befores.push(before);
                }
                if needed > freed && core.promised() + needed - freed > core.state.shape.promisable() {
                    return Err(Again::Space(needed - freed));
                }
                for ((list, blocks), before) in groups.iter().zip(&befores) {
                    core.keep(&before.kept);
                    let of_files = core.state.is_file_list(*list);
                    let mut run = Run::default();
                    for (new, old) in blocks.as_ref().iter().zip(&before.olds) {
                        let place = core.writer.place(new.stored, new.kind);
                        if is_read_again(of_files, new.kind, new.stored) {
                            self.remember(place, new.checksum, new.stored);
                        }
                        run.push(core, *list, Placed { block: new.block, place, checksum: new.checksum, old: *old });
                    }
                    run.end(core, *list);
                }
                core.counters.user_bytes += len_u64(user_bytes);
                Ok(core.writer.lsn)
            },
            || Ok(()),
        )
    }

    /// Places data of a unit in the log, visible to nobody but the unit. At most `direct_bytes` at once.
    pub fn spill(&self, unit: UnitId, list: ListId, blocks: &[NewBlock<'_>], claim: Claim) -> Result<()> {
        let data: u32 =
            blocks.iter().map(|block| len_u32(block.stored.len()).next_multiple_of(crate::types::GRANULE)).sum();
        let records = data_bytes(1) * len_u32(blocks.len());
        self.with_room(data, records, claim, |core| {
            let mut run: Vec<(u64, Location, u32)> = Vec::with_capacity(blocks.len());
            for new in blocks {
                let place = core.writer.place(new.stored, new.kind);
                core.state.zones.get_mut(place.zone()).shadow += place.footprint();
                if let Some((old, _)) =
                    core.spilled.entry(unit).or_default().insert((list, new.block), (place, new.checksum))
                {
                    core.state.zones.get_mut(old.zone()).shadow -= old.footprint();
                }
                let joins = run.last().is_some_and(|(block, last, _)| *block + 1 == new.block && last.step(1) == place);
                if !joins && !run.is_empty() {
                    write_data(core, unit, list, &run);
                    run.clear();
                }
                run.push((new.block, place, new.checksum));
            }
            write_data(core, unit, list, &run);
        })
    }
}

fn write_data(core: &mut Core, unit: UnitId, list: ListId, run: &[(u64, Location, u32)]) {
    if let Some((first, place, _)) = run.first() {
        let checksums: Vec<u32> = run.iter().map(|(_, _, checksum)| *checksum).collect();
        core.writer.record(|into| encode_data(list, *first, *place, &checksums, unit, into));
    }
}

/// Puts of what is to be kept, each of at most `most` blocks.
fn puts_of(kept: &[Kept], most: usize) -> Vec<Record> {
    let mut puts: Vec<Record> = Vec::new();
    for kept in kept {
        let into = kept.layer.expect("asked for before");
        if let Some(Record::Put { list, first, place, entries }) = puts.last_mut() {
            let count = len_u32(entries.len());
            let joins = *first + u64::from(count) == kept.block && place.step(count) == kept.place;
            if *list == into && joins && entries.len() < most {
                entries.push((Location::NONE, kept.checksum));
                continue;
            }
        }
        let entries = vec![(Location::NONE, kept.checksum)];
        puts.push(Record::Put { list: into, first: kept.block, place: kept.place, entries });
    }
    puts
}

/// What is where new blocks are to be: their places, and what of them snapshots see.
#[derive(Default)]
struct Before {
    olds: SmallVec<[Location; 16]>,
    kept: SmallVec<[Kept; 1]>,
}

/// Gathers neighbouring blocks into one Put record, and applies them.
#[derive(Default)]
pub(crate) struct Run {
    first: u64,
    place: Location,
    entries: SmallVec<[(Location, u32); 4]>,
}

impl Run {
    /// Takes one more block; what does not join the run ends it first.
    pub fn push(&mut self, core: &mut Core, list: ListId, placed: Placed) {
        if !self.joins(&placed) {
            self.end(core, list);
        }
        if self.entries.is_empty() {
            self.first = placed.block;
            self.place = placed.place;
        }
        self.entries.push((placed.old, placed.checksum));
    }

    /// Whether the block goes on where the run ends, or begins one.
    fn joins(&self, placed: &Placed) -> bool {
        let count = len_u32(self.entries.len());
        count == 0 || (self.first + u64::from(count) == placed.block && self.place.step(count) == placed.place)
    }

    /// Writes and applies what was gathered. Room was made for it.
    pub fn end(&mut self, core: &mut Core, list: ListId) {
        if self.entries.is_empty() {
            return;
        }
        let lsn = core.writer.record(|into| match self.entries[..] {
            [(old, checksum)] => encode_one_put(list, self.first, self.place, old, checksum, into),
            _ => encode_put(list, self.first, self.place, &self.entries, into),
        });
        let mut at = self.place;
        for (n, (old, checksum)) in self.entries.iter().enumerate() {
            core.state.apply_put(list, self.first + len_u64(n), at, *checksum, *old, lsn);
            at = at.step(1);
        }
        self.entries.clear();
    }
}

impl Core {
    /// The list is there, and `end` blocks are within it.
    pub fn check_list(&self, list: ListId, end: u64) -> Result<&ListMeta> {
        let meta = self.state.lists.get(&list).map(|list| &list.meta).filter(|meta| meta.state == ListState::There);
        let meta = meta.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("list {} was deleted", list.0)))?;
        if end > meta.blocks() {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                format!("block {} lies beyond the end of {}, which has {} blocks", end - 1, meta.name, meta.blocks()),
            ));
        }
        Ok(meta)
    }

    /// Writes one record and applies it. Room was made for it.
    pub fn write_record(&mut self, record: &Record) -> Lsn {
        let lsn = self.writer.record(|into| record.encode(into));
        self.state.apply(record, lsn);
        lsn
    }

    /// Bytes of the records of puts, with those of what snapshots see of the same blocks.
    pub fn with_kept(&self, records: u32) -> u32 {
        if self.state.versions.is_empty() { records } else { 2 * records }
    }

    /// What is to be kept for snapshots of blocks that are about to change.
    pub fn kept(
        &self,
        list: ListId,
        blocks: impl Iterator<Item = u64>,
    ) -> std::result::Result<SmallVec<[Kept; 1]>, Again> {
        let mut all = SmallVec::new();
        let Some(keeper) = self.state.keeper(list) else { return Ok(all) };
        for block in blocks {
            all.extend(self.keep_by(&keeper, list, block, self.state.lookup(list, block)?)?);
        }
        Ok(all)
    }

    fn keep_by(
        &self,
        keeper: &Keeper,
        list: ListId,
        block: u64,
        stored: Option<(Location, u32)>,
    ) -> std::result::Result<Option<Kept>, Again> {
        let kept = self.state.keep_by(keeper, block, stored)?;
        if kept.is_some_and(|kept| kept.layer.is_none()) {
            return Err(Again::Layer(list));
        }
        Ok(kept)
    }

    /// What is now where new blocks are to be. Refused if one was derived from what is there no more.
    fn before(&self, list: ListId, blocks: &[NewBlock<'_>]) -> std::result::Result<Before, Again> {
        let mut before = Before::default();
        let keeper = self.state.keeper(list);
        for new in blocks {
            let old = match &keeper {
                Some(keeper) => {
                    let stored = self.state.lookup(list, new.block)?;
                    before.kept.extend(self.keep_by(keeper, list, new.block, stored)?);
                    stored.map_or(Location::NONE, |(place, _)| place)
                }
                None => self.state.place(list, new.block)?,
            };
            if new.base.is_some_and(|base| base != old) {
                return Err(Again::Base);
            }
            before.olds.push(old);
        }
        Ok(before)
    }

    /// Puts into their layers what is about to change. Room was made for it.
    pub fn keep(&mut self, kept: &[Kept]) {
        if let [Kept { layer, block, place, checksum }] = *kept {
            let layer = layer.expect("asked for before");
            let lsn = self.writer.record(|into| encode_one_put(layer, block, place, Location::NONE, checksum, into));
            return self.state.apply_put(layer, block, place, checksum, Location::NONE, lsn);
        }
        let mut run = Run::default();
        let mut layer = ListId(0);
        for Kept { layer: into, block, place, checksum } in kept {
            let into = into.expect("asked for before");
            if into != layer {
                run.end(self, layer);
                layer = into;
            }
            run.push(self, layer, Placed { block: *block, place: *place, checksum: *checksum, old: Location::NONE });
        }
        run.end(self, layer);
    }

    /// The records that turn the blocks `first..end` of a list into holes: a discard for each stretch of leaves with
    /// blocks in it, and in front of it what snapshots see of these.
    pub fn discards(&mut self, list: ListId, first: u64, end: u64) -> std::result::Result<Vec<Record>, Again> {
        self.state.fold_some(usize::MAX);
        let mut records = Vec::new();
        if let Some(key) = self.state.cold_leaf(list, first, end) {
            return Err(Again::Load(key));
        }
        let seen = self.state.keeper_of(list).is_some();
        let Some(owner) = self.state.lists.get(&list) else { return Ok(records) };
        let (shift, leaf_blocks) = (self.state.shape.section_blocks_shift(), u64::from(self.state.shape.leaf_blocks()));
        for (number, section) in owner.sections.range(sections_of(first..end, shift)) {
            for (n, slot) in section.slots.iter().enumerate() {
                let start = (u64::from(number) << shift) + len_u64(n) * leaf_blocks;
                let (from, to) = (first.clamp(start, start + leaf_blocks), end.clamp(start, start + leaf_blocks));
                let crate::map::Slot::Loaded(leaf) = slot else { continue };
                if from >= to || leaf.is_empty() {
                    continue;
                }
                let mut freed: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
                for at in (from - start)..(to - start) {
                    if let Some((place, _)) = leaf.get(crate::types::low_u32(at)) {
                        let zone = freed.entry(place.zone()).or_default();
                        *zone = (zone.0 + 1, zone.1 + place.footprint());
                    }
                }
                if !freed.is_empty() {
                    if seen {
                        let stored = leaf.iter().map(|(at, _, _)| start + u64::from(at));
                        let kept = self.kept(list, stored.filter(|block| (from..to).contains(block)))?;
                        records.extend(puts_of(&kept, self.entries_max()));
                    }
                    let freed =
                        freed.into_iter().map(|(zone, (blocks, bytes))| Freed { zone, blocks, bytes }).collect();
                    records.push(Record::Discard { list, first: from, end: to, freed });
                }
            }
        }
        Ok(records)
    }

    /// The most entries of one Put, so that its record always fits in an empty batch.
    pub fn entries_max(&self) -> usize {
        let shape = &self.state.shape;
        (index(shape.batch_bytes - shape.head) / 4 / 12).clamp(1, 1024)
    }
}
