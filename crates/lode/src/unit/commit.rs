//! The commit: everything that a unit did becomes part of the committed state in one hold of the lock.
//!
//! ```text
//! cut blocks ─> plan ─> (spill what does not fit) ─> look up every old place ─> write records, apply
//!      ^                                                     │ a base changed, a leaf is cold
//!      └─────────────────────────────────────────────────────┘ nothing was changed yet: try again
//! ```

use super::large::{Built, Preparing};
use super::plan::Plan;
use super::shadow::{ListShadow, Shadow, Trimmed};
use super::{SPARE_CHUNKS, Unit};
use crate::disk::load::Gathering;
use crate::disk::ordered::Rows;
use crate::disk::put::{Again, Placed, Run, is_read_again};
use crate::disk::space::Claim;
use crate::disk::volumes::LIST_RECORD;
use crate::disk::{Core, Inner};
use crate::error::{Error, ErrorKind, Result};
use crate::format::records::{Form, ListMeta, Record};
use crate::ordered::{Row, Staged};
use crate::planted::{self, Bug};
use crate::types::{ListId, Location, Lsn, index64, len_u32, len_u64};
use crate::volume::Volume;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A unit with more new data in memory than this spills it before its commit, which then copies none under the lock.
const DIRECT_MAX: usize = 256 << 10;

/// So often a large commit is prepared again without the lock before it is prepared under it.
const PATIENCE: u32 = 4;

impl Unit {
    /// As [`Unit::commit`], but after a `Conflict` the unit is still open: to be changed and tried again, or dropped.
    pub fn try_commit(&mut self) -> Result<Lsn> {
        self.alive()?;
        self.gather_kept()?;
        let committed = self.commit_now().inspect_err(|_| self.as_before())?;
        if planted::is(Bug::EndingApart) {
            self.end_apart()?;
        }
        Ok(committed)
    }

    /// Commits what is named among the unit's blocks.
    pub(super) fn commit_now(&mut self) -> Result<Lsn> {
        let disk = Arc::clone(&self.disk);
        let nothing = self.lists.iter().all(|(_, shadow)| shadow.is_empty()) && self.besides.is_none();
        // What has only read is asked whether it saw one state (R15).
        let nothing = nothing && self.ending.is_none();
        if nothing && self.ordered.as_ref().is_none_or(|lists| lists.is_empty()) && !self.reads_count() {
            let mut core = disk.writable()?;
            return Ok(self.is_committed(&mut core));
        }
        if planted::is(Bug::ConflictsAskedEarly) {
            self.ask_early()?;
        }
        let mut gathering = None;
        let mut tries = 0;
        let mut counted = true;
        loop {
            if self.cut_bases.is_empty() {
                self.cut_blocks()?;
            }
            let plan = self.plan(&disk, counted);
            if !self.arena.is_empty() && (plan.chained || self.arena.bytes() > DIRECT_MAX) {
                self.spill(Claim::Urgent)?;
                continue;
            }
            let made = if plan.chained {
                let _preparing = Preparing::new(&disk);
                let mut built = self.build(&disk)?;
                disk.prepare_zones(plan.zones, Claim::Urgent)?;
                let made = disk.with_room(0, 0, Claim::Urgent, |core| {
                    self.apply_large(core, &plan, &mut built, tries < PATIENCE)
                })?;
                tries += 1;
                if disk.options.background {
                    disk.fold_all();
                }
                made
            } else {
                let records = |core: &Core| core.with_kept(plan.records);
                disk.with_room_for(plan.data, records, Claim::Urgent, |core| self.apply(core, &plan))?
            };
            match made {
                Ok(lsn) => return Ok(lsn),
                Err(Again::Layer(list)) => disk.make_layer(list, Claim::Urgent)?,
                Err(Again::Numbers(table)) => disk.look_for_numbers(table)?,
                Err(Again::Load(key)) => {
                    gathering.get_or_insert_with(|| Gathering::new(&disk));
                    disk.load(key)?;
                    self.load_all(&disk)?;
                }
                Err(Again::Base) => {
                    return Err(Error::new(
                        ErrorKind::Conflict,
                        "a block that was written in part has changed meanwhile",
                    ));
                }
                Err(Again::Never(error)) => return Err(error),
                // Others may write where this one discards, as fast as that is counted.
                Err(Again::Space(0)) => counted = false,
                Err(Again::Cut) => self.uncut_blocks(),
                Err(Again::Trim(list, bytes)) => self.trim(list, bytes)?,
                Err(Again::Space(needed)) => return Err(disk.full(&disk.core.lock(), needed)),
            }
        }
    }

    /// After a commit that failed: the unit is what its user made it, to be changed and tried again.
    fn as_before(&mut self) {
        self.uncut_blocks();
        let lists: Vec<ListId> = self.lists.iter().map(|(list, _)| list).collect();
        for list in lists {
            self.broken |= self.untrim(list).is_err();
        }
        self.scatter_kept();
    }

    /// Loads the leaves of all blocks that the unit changes: one after the other outside of the lock, so that the
    /// commit finds all of them.
    fn load_all(&self, disk: &Inner) -> Result<()> {
        for (list, shadow) in self.lists.iter() {
            let leaf_blocks = u64::from(disk.shape.leaf_blocks());
            let layers = disk.layers_asked(list);
            let mut seen = None;
            for block in shadow.blocks.numbers() {
                let leaf = block / leaf_blocks;
                if seen.replace(leaf) != Some(leaf) {
                    for list in std::iter::once(list).chain(layers.iter().copied()) {
                        disk.load_range(list, block, block + 1)?;
                    }
                }
            }
        }
        for (list, block, _) in self.cut_bases.iter().chain(&self.bases) {
            disk.load_range(*list, *block, *block + 1)?;
        }
        for own in self.emptied() {
            disk.load_range(*own, 0, u64::MAX >> 1)?;
        }
        for (list, first, end) in self.hole_ranges() {
            disk.load_range(list, first, end)?;
            for layer in disk.layers_asked(list) {
                disk.load_range(layer, first, end)?;
            }
        }
        Ok(())
    }

    /// Makes the blocks that were cut inside part of the unit, out of what is committed now: what others wrote in front
    /// of the cut stays. Their places are remembered, and asked for again when the commit is applied.
    fn cut_blocks(&mut self) -> Result<()> {
        self.cut_bases.clear();
        if self.lists.iter().all(|(_, shadow)| shadow.cuts.is_empty()) {
            return Ok(());
        }
        for (volume, block, cut) in self.cut_volumes() {
            let base = volume.place_of(block)?;
            self.cut_bases.push((volume.list(), block, base));
            if base.is_none() {
                continue;
            }
            crate::mark("unit: a block cut at the commit");
            let block_bytes = u64::from(volume.block_bytes());
            let zeros = vec![0; index64(block_bytes) - cut];
            // Out of what is committed now, also if the unit sees something else.
            let view = std::mem::take(&mut self.options.view);
            let done = self.write_blocks(&volume, block * block_bytes + len_u64(cut), &zeros, Claim::Urgent);
            self.options.view = view;
            done?;
        }
        Ok(())
    }

    /// The cuts that count: in blocks that neither the unit itself nor a hole replaces, and that are still there at the
    /// end.
    fn cut_volumes(&self) -> Vec<(Volume, u64, usize)> {
        let core = self.disk.core.lock();
        let mut volumes = Vec::new();
        for (list, shadow) in self.lists.iter() {
            let Some(meta) = core.state.lists.get(&list).map(|list| &list.meta) else { continue };
            let blocks = shadow.bytes.unwrap_or(meta.bytes).div_ceil(u64::from(meta.block_bytes()));
            for (block, cut) in &shadow.cuts {
                if *block < blocks && !shadow.blocks.contains(*block) && !shadow.is_hole(*block) {
                    let volume =
                        Volume::new(Arc::clone(&self.disk), list, &meta.name, meta.block_bytes(), meta.compression);
                    volumes.push((volume, *block, *cut));
                }
            }
        }
        volumes
    }

    /// What lies behind the end in the volume's last block must read as zeros if the volume grows again. The unit holds
    /// that block with what it was before somebody cut the volume inside of it.
    fn trim(&mut self, list: ListId, bytes: u64) -> Result<()> {
        crate::mark("unit: its last block cut at the commit");
        let Some(volume) = self.volume_of(list) else { return Ok(()) }; // The commit will say so.
        self.untrim(list)?;
        let size = u64::from(volume.block_bytes());
        let (block, within) = (bytes / size, index64(bytes % size));
        if within > 0 && self.lists.of(list).blocks.contains(block) {
            let mut old = vec![0; index64(size)];
            self.read_blocks(&volume, block, &mut old)?;
            self.write_blocks(&volume, bytes, &vec![0; old.len() - within], Claim::Urgent)?;
            self.lists.of(list).trimmed = Some(Box::new(Trimmed { bytes, block, tail: old.split_off(within) }));
        }
        Ok(())
    }

    /// Takes that back.
    fn untrim(&mut self, list: ListId) -> Result<()> {
        let Some(trimmed) = self.lists.get_mut(list).and_then(|shadow| shadow.trimmed.take()) else { return Ok(()) };
        let Some(volume) = self.volume_of(list) else { return Ok(()) }; // Nothing of it can be committed.
        self.write_blocks(&volume, trimmed.bytes, &trimmed.tail, Claim::Urgent)
    }

    fn volume_of(&self, list: ListId) -> Option<Volume> {
        let core = self.disk.core.lock();
        let meta = core.check_list(list, 0).ok()?;
        Some(Volume::new(Arc::clone(&self.disk), list, &meta.name, meta.block_bytes(), meta.compression))
    }

    /// Takes back what `cut_blocks` made, since the committed block has changed meanwhile.
    fn uncut_blocks(&mut self) {
        for (list, block, _) in std::mem::take(&mut self.cut_bases) {
            self.drop_blocks(list, block, block + 1);
            let shadow = self.lists.of(list);
            shadow.trimmed = shadow.trimmed.take().filter(|trimmed| trimmed.block != block);
        }
    }

    /// Everything is asked before anything is changed. Gives back what is to be discarded.
    fn ask(&self, core: &mut Core, plan: &Plan) -> std::result::Result<Vec<Record>, Again> {
        self.ask_ending(core)?;
        let conflict = |error: Error| Again::Never(Error::new(ErrorKind::Conflict, error.to_string()));
        for (list, shadow) in self.lists.iter() {
            let meta = core.check_list(list, 0).map_err(conflict)?;
            if shadow.bytes.is_some() && core.state.lacks_layer(list) {
                return Err(Again::Layer(list));
            }
            let (bytes, block_bytes) = (shadow.bytes.unwrap_or(meta.bytes), u64::from(meta.block_bytes()));
            let blocks = bytes.div_ceil(block_bytes);
            let to_trim = match &shadow.trimmed {
                Some(trimmed) => trimmed.bytes != bytes,
                None => !bytes.is_multiple_of(block_bytes) && shadow.blocks.contains(bytes / block_bytes),
            };
            if to_trim {
                return Err(Again::Trim(list, bytes));
            }
            if shadow.blocks.last().is_some_and(|last| last >= blocks) {
                crate::mark("unit: conflict with a volume cut short");
                return Err(conflict(Error::new(
                    ErrorKind::Conflict,
                    format!("{} was cut short to {blocks} blocks meanwhile", meta.name),
                )));
            }
        }
        for (list, block, base) in &self.cut_bases {
            if core.state.place(*list, *block)? != *base {
                crate::mark("unit: cut block changed meanwhile");
                return Err(Again::Cut);
            }
        }
        for (list, block, base) in &self.bases {
            if core.state.place(*list, *block)? != *base {
                crate::mark("unit: base of a partial write changed meanwhile");
                return Err(Again::Base);
            }
        }
        let mut discards = Vec::new();
        for (list, first, end) in self.hole_ranges() {
            discards.extend(core.discards(list, first, end)?);
        }
        for own in self.emptied() {
            discards.extend(core.discards(*own, 0, u64::MAX >> 1)?);
        }
        let mut bytes = 0;
        for record in &discards {
            let mut encoded = Vec::new();
            record.encode(&mut encoded);
            bytes += len_u64(encoded.len());
        }
        if bytes > plan.holes {
            return Err(Again::Space(0)); // More leaves came to hold blocks since the plan was made.
        }
        Ok(discards)
    }

    /// What the unit does to ordered lists, executed on what is committed now; asked before anything is changed.
    fn ask_lists(&mut self, core: &mut Core, plan: &Plan) -> std::result::Result<(Staged, Rows), Again> {
        let staged = match &self.ordered {
            Some(lists) => lists.stage(&core.state)?,
            None => Staged::default(),
        };
        if self.forget_deleted(core, &staged)? {
            return Err(Again::Space(0));
        }
        for (list, shadow) in self.lists.iter() {
            core.check_blocks(list, &staged, shadow.blocks.numbers()).map_err(|again| match again {
                Again::Never(error) => Again::Never(Error::new(ErrorKind::Conflict, error.to_string())),
                other => other,
            })?;
        }
        self.ask_conflicts(core, &staged)?;
        let rows = core.ask_rows(&staged)?;
        if let Some(lists) = &mut self.ordered {
            let bytes = rows.bytes();
            // Twice that is given where there are snapshots.
            if bytes > plan.rows * if plan.snapshots { 2 } else { 1 } {
                lists.records = bytes;
                return Err(Again::Space(0));
            }
        }
        Ok((staged, rows))
    }

    /// Drops what the unit wrote into blocks of lists that it then deleted. True: there was some.
    fn forget_deleted(&mut self, core: &mut Core, staged: &Staged) -> std::result::Result<bool, Again> {
        let deleted = self.ordered.as_ref().map_or_else(BTreeSet::new, |lists| lists.deleted());
        if deleted.is_empty() {
            return Ok(false);
        }
        let mut gone = Vec::new();
        for (pool, shadow) in self.lists.iter() {
            let Some(table) = core.state.tables.table_of(pool) else { continue };
            for at in shadow.blocks.numbers() {
                if deleted.contains(&staged.get(&core.state, Row { table, at })?.value) {
                    gone.push((pool, at));
                }
            }
        }
        for (pool, at) in &gone {
            let shadow = self.lists.get_mut(*pool).and_then(|shadow| shadow.blocks.remove(*at));
            if let Some(Shadow::Spilled) = shadow {
                core.forget_spilled_of(self.id, *pool, *at);
            }
        }
        Ok(!gone.is_empty())
    }

    /// Writes what was asked for. `room` is made before each record.
    fn commit_lists(&mut self, core: &mut Core, staged: &Staged, rows: &Rows, room: impl FnMut(&mut Core, u32)) {
        let Some(lists) = &mut self.ordered else { return };
        core.write_rows(staged, rows, room);
        core.free_numbers(&self.disk, staged);
        for (table, number) in lists.unused(core, staged) {
            core.numbers_of(table).give_back(number);
        }
    }

    /// The commit of a unit that fits in one batch.
    fn apply(&mut self, core: &mut Core, plan: &Plan) -> std::result::Result<Lsn, Again> {
        let mut olds: SmallVec<[Location; 16]> = SmallVec::new();
        // Where lies what the unit has in its own lists, which are emptied first.
        let mut kept: SmallVec<[(Location, u32); 1]> = SmallVec::new();
        for (list, shadow) in self.lists.iter() {
            for (block, found) in shadow.blocks.iter() {
                olds.push(core.state.place(list, block)?);
                if let (Shadow::Kept, Some(own)) = (found, shadow.kept) {
                    kept.push(core.state.lookup(own, block)?.expect("named because it is there"));
                }
            }
            core.kept(list, shadow.blocks.numbers())?;
        }
        let discards = self.ask(core, plan)?;
        let (staged, rows) = self.ask_lists(core, plan)?;
        self.commit_lists(core, &staged, &rows, |_, _| {});
        for record in &discards {
            core.write_record(record);
        }
        // What the discards have freed is a hole by now.
        if !discards.is_empty() {
            let blocks =
                self.lists.iter().flat_map(|(list, shadow)| shadow.blocks.numbers().map(move |block| (list, block)));
            for (old, (list, block)) in olds.iter_mut().zip(blocks) {
                *old = core.state.place(list, block)?;
            }
        }
        self.note_replaced(&olds);
        let mut olds = olds.into_iter();
        let mut kept = kept.into_iter();
        let mut blocks = 0;
        for (list, shadow) in self.lists.iter() {
            if let Some(bytes) = shadow.bytes {
                core.write_record(&Record::List(self.resized(core, list, bytes)));
            }
            blocks += len_u64(shadow.blocks.len());
            let Ok(seen) = core.kept(list, shadow.blocks.numbers()) else {
                unreachable!("S2: what is to be kept was known before the first record");
            };
            core.keep(&seen);
            self.put(core, list, shadow, &mut olds, &mut kept);
        }
        self.write_metas(core, |_, _| {});
        // In one batch everything stands or falls together anyway.
        if (self.has_spilled || self.besides.is_some()) && !self.is_barrier() {
            core.write_record(&Record::Commit { unit: self.id, blocks });
        }
        self.write_ending(core);
        core.counters.user_bytes += self.user_bytes;
        Ok(self.is_committed(core))
    }

    fn is_committed(&mut self, core: &mut Core) -> Lsn {
        self.release(core);
        self.committed = true;
        if !self.is_barrier() {
            core.outcomes.note(self.id, Some(core.writer.lsn));
            if self.barrier.is_some() {
                core.outcomes.note_kept(self.id, Some(core.writer.lsn));
            }
        }
        core.writer.lsn
    }

    pub(super) fn is_barrier(&self) -> bool {
        self.besides.as_ref().is_some_and(|besides| besides.is_barrier)
    }

    /// A list with its new size.
    pub(super) fn resized(&self, core: &Core, list: ListId, bytes: u64) -> ListMeta {
        let meta = core.check_list(list, 0).expect("checked before").clone();
        let parent = if meta.form == Form::Unit {
            self.besides.as_ref().map_or(meta.parent, |besides| ListId(besides.rows))
        } else {
            meta.parent
        };
        let name = self.name_for(list).unwrap_or(&meta.name).clone();
        ListMeta { bytes, parent, name, ..meta }
    }

    /// The records of lists that go with this commit.
    pub(super) fn write_metas(&self, core: &mut Core, mut room: impl FnMut(&mut Core, u32)) {
        for meta in self.besides.iter().flat_map(|besides| &besides.metas) {
            room(core, LIST_RECORD);
            core.write_record(&Record::List(meta.clone()));
        }
    }

    /// Counts the blocks of each list that were there before: by their places, in order.
    fn note_replaced(&mut self, olds: &[Location]) {
        let Some(besides) = self.besides.as_mut().filter(|besides| besides.is_barrier) else { return };
        let blocks = self.lists.iter().flat_map(|(list, shadow)| shadow.blocks.numbers().map(move |_| list));
        for (list, _) in blocks.zip(olds).filter(|(_, old)| !old.is_none()) {
            *besides.replaced.entry(list).or_default() += 1;
        }
    }

    /// The commit of one that does not: see [`super::large`].
    fn apply_large(
        &mut self,
        core: &mut Core,
        plan: &Plan,
        built: &mut Built,
        patient: bool,
    ) -> std::result::Result<Lsn, Again> {
        let discards = self.ask(core, plan)?;
        let (staged, rows) = self.ask_lists(core, plan)?;
        self.refresh(core, built, patient)?;
        let more = !core.state.versions.is_empty() && !plan.snapshots;
        if more || core.writer.ready.len() < plan.zones {
            return Err(Again::Space(0));
        }
        crate::mark("unit: committed in a chain of batches");
        core.writer.seal(false);
        self.commit_lists(core, &staged, &rows, |core, bytes| {
            core.writer.make_room(0, bytes, true, 1).expect("zones were made ready for the whole commit");
            core.note_zones();
        });
        for record in &discards {
            let mut encoded = Vec::new();
            record.encode(&mut encoded);
            core.writer
                .make_room(0, len_u32(encoded.len()), true, 1)
                .expect("zones were made ready for the whole commit");
            core.note_zones();
            core.write_record(record);
        }
        self.commit_built(core, plan, std::mem::take(built));
        Ok(self.is_committed(core))
    }

    /// Places what is in memory and writes the Puts of all blocks of a list, in order. `olds` are their places till
    /// now, `kept` the places of what the unit has in lists of its own.
    fn put(
        &self,
        core: &mut Core,
        list: ListId,
        shadow: &ListShadow,
        olds: &mut impl Iterator<Item = Location>,
        kept: &mut impl Iterator<Item = (Location, u32)>,
    ) {
        let small = core.state.is_file_list(list);
        let mut run = Run::default();
        for ((block, shadow), old) in shadow.blocks.iter().zip(olds) {
            let (place, checksum) = match shadow {
                Shadow::Data { piece, kind, checksum } => {
                    let stored = self.arena.get(*piece);
                    let place = core.writer.place(stored, *kind);
                    if is_read_again(small, *kind, stored) {
                        self.disk.remember(place, *checksum, stored);
                    }
                    (place, *checksum)
                }
                Shadow::Spilled => core.spilled[&self.id][&(self.spilled_for(list), block)],
                Shadow::Kept => kept.next().expect("looked up before"),
            };
            run.push(core, list, Placed { block, place, checksum, old });
        }
        run.end(core, list);
    }

    /// The list under which a spilled block is listed.
    pub(super) fn spilled_for(&self, list: ListId) -> ListId {
        self.besides.as_ref().map_or(list, |besides| besides.spilled_for(list))
    }

    /// Gives back what the unit held: its reservation and its listed places.
    pub(super) fn release(&mut self, core: &mut Core) {
        core.reserved -= std::mem::take(&mut self.reserved);
        core.reserved -= std::mem::take(&mut self.prepaid);
        let room = SPARE_CHUNKS.saturating_sub(core.chunks.len());
        core.chunks.extend(self.arena.clear().take(room));
        if std::mem::take(&mut self.has_spilled)
            && let Some(spilled) = core.spilled.remove(&self.id)
        {
            for (place, _) in spilled.values() {
                core.state.zones.get_mut(place.zone()).shadow -= place.footprint();
            }
        }
    }
}

impl Inner {
    /// The layers that are asked whether they keep a block already.
    fn layers_asked(&self, list: ListId) -> Vec<ListId> {
        let core = self.core.lock();
        let Some((snapshot, _)) = core.state.keeper_of(list) else { return Vec::new() };
        core.state.versions.layers(list, snapshot).collect()
    }
}
