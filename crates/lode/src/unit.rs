//! Atomic recovery units: any group of operations as one indivisible step.
//!
//! ```text
//!             write, discard, resize            commit
//!   begin ───> open ────────────────> open ───────────────> committed (at one point of the merged stream)
//!                │                      │ memory full
//!                │ abort, drop          └──> spilled: data in the log, visible to nobody
//!                └──────────────> as if it had never been
//! ```
//! A unit keeps its shadow itself; what it spills lies in the log and is listed in [`Core::spilled`], so that the
//! cleaner can move it. Units do not lock: two that write one block are ordered by their commits (AR-01, AR-04).
//! *Concurrent atomic recovery units*, sections 3 and 4; *Mime*, visibility groups.

use crate::disk::options::Survive;
use crate::disk::put::{Again, NewBlock, Placed};
use crate::disk::read::{pack, unpack};
use crate::disk::space::Claim;
use crate::disk::{Core, Inner, charge};
use crate::error::{Error, ErrorKind, Result};
use crate::format::crc;
use crate::format::records::{Record, put_bytes};
use crate::shape::BLOCK_CHARGE;
use crate::types::{Kind, ListId, Location, Lsn, UnitId, index, index64, len_u32, len_u64};
use crate::volume::Volume;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A unit with more new data in memory than this spills it before its commit, which then copies none under the lock.
const DIRECT_MAX: usize = 256 << 10;

/// A block of a unit.
enum Shadow {
    /// In memory, as it will be stored.
    Data { stored: Vec<u8>, kind: Kind, checksum: u32 },
    /// In the log; the place is in [`Core::spilled`].
    Spilled,
}

/// What a unit changed in one list.
#[derive(Default)]
struct ListShadow {
    /// Its new size in bytes.
    bytes: Option<u64>,
    /// The smallest size it had on the way, in blocks: what lay behind is gone.
    floor: Option<u64>,
    blocks: BTreeMap<u64, Shadow>,
    /// Discarded stretches; `blocks` counts before them.
    holes: Vec<(u64, u64)>,
    /// Where a new end lay inside of a block that the unit does not hold: what follows in that block is gone.
    cuts: BTreeMap<u64, usize>,
}

/// An open unit. Any number may be open at once, each used from any thread. Dropping it aborts it.
pub struct Unit {
    disk: Arc<Inner>,
    id: UnitId,
    lists: BTreeMap<ListId, ListShadow>,
    /// Bytes of `Shadow::Data`.
    memory: usize,
    reserved: u64,
    user_bytes: u64,
    has_spilled: bool,
    /// An operation failed half-way: the unit can only be aborted.
    broken: bool,
    /// Bases of partial blocks of a simple operation that is done by a unit (R5).
    bases: Vec<(ListId, u64, Location)>,
    /// Where the blocks that the commit cuts were committed.
    cut_bases: Vec<(ListId, u64, Location)>,
    /// It is a simple operation that is too long for one batch.
    simple: bool,
}

impl Unit {
    /// A simple operation as a unit of its own.
    pub(crate) fn simple(disk: Arc<Inner>) -> Unit {
        let mut unit = Unit::new(disk);
        unit.simple = true;
        unit
    }

    pub(crate) fn new(disk: Arc<Inner>) -> Unit {
        let id = disk.new_unit();
        Unit {
            simple: false,
            disk,
            id,
            lists: BTreeMap::new(),
            memory: 0,
            reserved: 0,
            user_bytes: 0,
            has_spilled: false,
            broken: false,
            bases: Vec::new(),
            cut_bases: Vec::new(),
        }
    }

    /// The unit's name: never used again, on this disk.
    pub fn id(&self) -> UnitId {
        self.id
    }

    /// The size of the volume as this unit sees it.
    pub fn bytes(&self, volume: &Volume) -> Result<u64> {
        match self.lists.get(&volume.list()).and_then(|list| list.bytes) {
            Some(bytes) => Ok(bytes),
            None => volume.size(),
        }
    }

    fn check_range(&self, volume: &Volume, offset: u64, bytes: u64) -> Result<()> {
        volume.belongs_to(&self.disk)?;
        let size = self.bytes(volume)?;
        crate::volume::check_range(&volume.name(), size, offset, bytes)
    }

    /// Reads: the unit's own shadow, else the committed state.
    pub fn read_at(&self, volume: &Volume, offset: u64, into: &mut [u8]) -> Result<()> {
        self.check_range(volume, offset, len_u64(into.len()))?;
        let block_bytes = volume.block_bytes();
        let mut block_buffer = vec![0; index(block_bytes)];
        let mut rest = into;
        let mut at = offset;
        while !rest.is_empty() {
            let block = at / u64::from(block_bytes);
            let within = index64(at % u64::from(block_bytes));
            let len = rest.len().min(index(block_bytes) - within);
            let (head, tail) = rest.split_at_mut(len);
            self.read_block(volume.list(), block_bytes, block, &mut block_buffer)?;
            head.copy_from_slice(&block_buffer[within..within + len]);
            at += len_u64(len);
            rest = tail;
        }
        Ok(())
    }

    fn read_block(&self, list: ListId, block_bytes: u32, block: u64, into: &mut [u8]) -> Result<()> {
        let shadow = self.lists.get(&list);
        match shadow.and_then(|shadow| shadow.blocks.get(&block)) {
            Some(Shadow::Data { stored, kind, checksum }) => {
                let place = Location::new(1, 0, len_u32(stored.len()), *kind);
                unpack(stored, place, *checksum, into).map_err(|problem| {
                    Error::new(ErrorKind::Corrupt, format!("memory of unit {}: {problem}", self.id.0))
                })
            }
            Some(Shadow::Spilled) => self.read_spilled(list, block, into),
            None if shadow.is_some_and(|shadow| shadow.is_hole(block)) => {
                into.fill(0);
                Ok(())
            }
            None => {
                self.disk.read_blocks(list, block_bytes, block, into)?;
                if let Some(cut) = shadow.and_then(|shadow| shadow.cuts.get(&block)) {
                    into[*cut..].fill(0);
                }
                Ok(())
            }
        }
    }

    fn read_spilled(&self, list: ListId, block: u64, into: &mut [u8]) -> Result<()> {
        loop {
            let find =
                |core: &Core| core.spilled.get(&self.id).and_then(|spilled| spilled.get(&(list, block))).copied();
            let (place, checksum) = {
                let core = self.disk.core.lock();
                let found = find(&core).expect("a spilled block is listed until its unit ends");
                if let Some(waiting) = core.writer.stored(found.0) {
                    let stored = match waiting {
                        crate::log::writer::Waiting::Open(stored) => stored,
                        crate::log::writer::Waiting::Sealed(sealed) => {
                            sealed.stored(found.0).expect("found in this batch")
                        }
                    };
                    return unpack(stored, found.0, found.1, into)
                        .map_err(|problem| crate::disk::read::damaged(list, block, found.0, &problem));
                }
                found
            };
            let read = self
                .disk
                .read_stored(&[(place, checksum)])
                .remove(0)
                .and_then(|stored| unpack(&stored, place, checksum, into));
            let Err(problem) = read else { return Ok(()) };
            if find(&self.disk.core.lock()) == Some((place, checksum)) {
                return Err(crate::disk::read::damaged(list, block, place, &problem));
            }
        }
    }

    /// Writes into the unit's shadow. `Full`: there is no space for it (P5); the unit stays as it was.
    pub fn write_at(&mut self, volume: &Volume, offset: u64, data: &[u8]) -> Result<()> {
        self.alive()?;
        self.check_range(volume, offset, len_u64(data.len()))?;
        if data.is_empty() {
            return Ok(());
        }
        let block_bytes = u64::from(volume.block_bytes());
        let first = offset / block_bytes;
        let end = (offset + len_u64(data.len())).div_ceil(block_bytes);
        self.reserve(volume.list(), volume.block_bytes(), first, end)?;
        let done = self.write_blocks(volume, offset, data);
        self.broken |= done.is_err();
        done
    }

    fn alive(&self) -> Result<()> {
        if self.disk.options.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the disk is open for reading only"));
        }
        if self.broken {
            return Err(Error::new(
                ErrorKind::Failed,
                "an operation of this unit failed half-way: it can only be aborted",
            ));
        }
        Ok(())
    }

    /// Promises space for blocks that the unit does not hold yet, uncompressed (R27).
    fn reserve(&mut self, list: ListId, block_bytes: u32, first: u64, end: u64) -> Result<()> {
        let held = self.lists.get(&list).map_or(0, |shadow| shadow.blocks.range(first..end).count());
        let wanted = (end - first - len_u64(held)).saturating_mul(u64::from(block_bytes) + BLOCK_CHARGE);
        let promisable = self.disk.shape.promisable();
        let mut core = self.disk.admit(self.disk.writable()?, Claim::Data)?;
        if core.promised().saturating_add(wanted) > promisable {
            // A simple operation gives back what it overwrites; only what it needs beyond that must be free.
            let mut freed = 0;
            if self.simple {
                drop(core);
                self.disk.load_range(list, first, end)?;
                core = self.disk.writable()?;
                for block in first..end {
                    if let Ok(Some((place, _))) = core.state.lookup(list, block) {
                        freed += charge(place);
                    }
                }
            }
            if core.promised().saturating_add(wanted) > promisable + freed.min(promisable / 32) {
                return Err(self.disk.full(&core, wanted));
            }
        }
        core.reserved += wanted;
        self.reserved += wanted;
        Ok(())
    }

    fn write_blocks(&mut self, volume: &Volume, offset: u64, data: &[u8]) -> Result<()> {
        let (list, block_bytes) = (volume.list(), volume.block_bytes());
        let mut scratch = Vec::new();
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let block = at / u64::from(block_bytes);
            let within = index64(at % u64::from(block_bytes));
            let len = rest.len().min(index(block_bytes) - within);
            let (head, tail) = rest.split_at(len);
            let base;
            let whole: &[u8] = if len == index(block_bytes) {
                head
            } else {
                let mut buffer = vec![0; index(block_bytes)];
                self.read_block(list, block_bytes, block, &mut buffer)?;
                buffer[within..within + len].copy_from_slice(head);
                base = buffer;
                &base
            };
            let (stored, kind) = match pack(whole, volume.compression(), &mut scratch) {
                Some(len) => (scratch[..len].to_vec(), Kind::Lz4),
                None => (whole.to_vec(), Kind::Raw),
            };
            let checksum = crc(&stored);
            self.memory += stored.len();
            let shadow = self.lists.entry(list).or_default();
            match shadow.blocks.insert(block, Shadow::Data { stored, kind, checksum }) {
                Some(Shadow::Data { stored, .. }) => self.memory -= stored.len(),
                Some(Shadow::Spilled) => self.forget_spilled(list, block),
                _ => {}
            }
            at += len_u64(len);
            rest = tail;
            if self.memory > self.disk.options.unit_memory_bytes {
                self.spill()?;
            }
        }
        self.user_bytes += len_u64(data.len());
        Ok(())
    }

    fn forget_spilled(&self, list: ListId, block: u64) {
        let mut core = self.disk.core.lock();
        if let Some((place, _)) = core.spilled.get_mut(&self.id).and_then(|spilled| spilled.remove(&(list, block))) {
            core.state.zones.get_mut(place.zone()).shadow -= place.footprint();
        }
    }

    /// Moves all data from memory into the log.
    fn spill(&mut self) -> Result<()> {
        let most = self.disk.shape.direct_bytes;
        let blocks_max = index(self.disk.shape.direct_blocks);
        self.has_spilled = true;
        for (list, shadow) in &mut self.lists {
            let mut waiting: Vec<(u64, &mut Shadow)> = shadow
                .blocks
                .iter_mut()
                .filter(|(_, shadow)| matches!(shadow, Shadow::Data { .. }))
                .map(|(block, shadow)| (*block, shadow))
                .collect();
            let mut start = 0;
            while start < waiting.len() {
                let mut chunk = Vec::new();
                let mut bytes = 0;
                for (block, shadow) in &waiting[start..] {
                    let Shadow::Data { stored, kind, checksum } = &**shadow else { continue };
                    let footprint = len_u32(stored.len()).next_multiple_of(crate::types::GRANULE);
                    if chunk.len() == blocks_max || (!chunk.is_empty() && bytes + footprint > most) {
                        break;
                    }
                    bytes += footprint;
                    chunk.push(NewBlock { block: *block, stored, kind: *kind, checksum: *checksum, base: None });
                }
                let count = chunk.len();
                self.disk.spill(self.id, *list, &chunk)?;
                drop(chunk);
                for (_, shadow) in &mut waiting[start..start + count] {
                    if let Shadow::Data { stored, .. } = &**shadow {
                        self.memory -= stored.len();
                    }
                    **shadow = Shadow::Spilled;
                }
                start += count;
            }
        }
        Ok(())
    }

    /// Turns whole blocks into holes and zeroes the edges. Reads as zeros.
    pub fn discard(&mut self, volume: &Volume, offset: u64, bytes: u64) -> Result<()> {
        self.alive()?;
        self.check_range(volume, offset, bytes)?;
        let block_bytes = u64::from(volume.block_bytes());
        let size = self.bytes(volume)?;
        let end = offset + bytes;
        // The last block of the volume counts as whole if all of it that there is is discarded.
        let last = if end == size { end.div_ceil(block_bytes) } else { end / block_bytes };
        let first = offset.div_ceil(block_bytes);
        if first >= last {
            return if bytes == 0 { Ok(()) } else { self.write_at(volume, offset, &vec![0; index64(bytes)]) };
        }
        // Both edges are promised before either is written: `Full` leaves the unit as it was.
        let (head, tail) = (first * block_bytes - offset, end.saturating_sub(last * block_bytes));
        for (bytes, block) in [(head, first.wrapping_sub(1)), (tail, last)] {
            if bytes > 0 {
                self.reserve(volume.list(), volume.block_bytes(), block, block + 1)?;
            }
        }
        for (bytes, at) in [(head, offset), (tail, last * block_bytes)] {
            if bytes > 0 {
                let done = self.write_blocks(volume, at, &vec![0; index64(bytes)]);
                self.broken |= done.is_err();
                done?;
            }
        }
        self.drop_blocks(volume.list(), first, last);
        let shadow = self.lists.entry(volume.list()).or_default();
        shadow.holes.push((first, last));
        Ok(())
    }

    fn drop_blocks(&mut self, list: ListId, first: u64, end: u64) {
        let Some(shadow) = self.lists.get_mut(&list) else { return };
        let dropped: Vec<u64> = shadow.blocks.range(first..end).map(|(block, _)| *block).collect();
        let mut spilled = Vec::new();
        for block in dropped {
            match shadow.blocks.remove(&block) {
                Some(Shadow::Data { stored, .. }) => self.memory -= stored.len(),
                Some(Shadow::Spilled) => spilled.push(block),
                _ => {}
            }
        }
        for block in spilled {
            self.forget_spilled(list, block);
        }
    }

    /// Gives the volume another size. What lies behind the new end is gone; new space reads as zeros.
    pub fn resize(&mut self, volume: &Volume, bytes: u64) -> Result<()> {
        self.alive()?;
        volume.belongs_to(&self.disk)?;
        crate::disk::volumes::check_size(&self.disk.shape, bytes, volume.block_bytes())?;
        let size = self.bytes(volume)?;
        let block_bytes = u64::from(volume.block_bytes());
        let (last, within) = (bytes / block_bytes, bytes % block_bytes);
        if within > 0 {
            // What is cut off the last block must read as zeros if the volume grows again.
            let shadow = self.lists.entry(volume.list()).or_default();
            if !shadow.blocks.contains_key(&last) {
                let cut = shadow.cuts.entry(last).or_insert(usize::MAX);
                *cut = (*cut).min(index64(within));
            } else if bytes < size {
                let end = size.min(bytes.next_multiple_of(block_bytes));
                self.write_at(volume, bytes, &vec![0; index64(end - bytes)])?;
            }
        }
        let blocks = bytes.div_ceil(block_bytes);
        if bytes < size {
            self.drop_blocks(volume.list(), blocks, u64::MAX);
        }
        let shadow = self.lists.entry(volume.list()).or_default();
        shadow.bytes = Some(bytes);
        // Also when the volume grows: others may have made it longer still by the time of the commit.
        shadow.floor = Some(shadow.floor.map_or(blocks, |floor| floor.min(blocks)));
        Ok(())
    }

    /// Remembers what a simple operation's partial block was derived from.
    pub(crate) fn set_base(&mut self, list: ListId, block: u64, base: Location) {
        self.bases.push((list, block, base));
    }

    /// Everything the unit did becomes part of the committed state at one point of the merged stream. Never waits for
    /// the device. `Conflict`: an operation has no meaning any more (the volume was deleted or cut short); nothing is applied.
    pub fn commit(mut self) -> Result<Lsn> {
        self.commit_in_place()
    }

    /// As `commit`, then a flush up to it.
    pub fn commit_and_flush(mut self, survive: Survive) -> Result<Lsn> {
        let lsn = self.commit_in_place()?;
        self.disk.flush_to(lsn, survive)?;
        Ok(lsn)
    }

    /// As if the unit had never been. Its space is free at once.
    pub fn abort(self) {}

    pub(crate) fn commit_in_place(&mut self) -> Result<Lsn> {
        self.alive()?;
        if self.lists.values().all(ListShadow::is_empty) {
            return Ok(self.disk.writable()?.writer.lsn);
        }
        let disk = Arc::clone(&self.disk);
        loop {
            if self.cut_bases.is_empty() {
                self.cut_blocks()?;
            }
            let plan = self.plan(&disk);
            if self.memory > 0 && (plan.chained || self.memory > DIRECT_MAX) {
                self.spill()?;
                continue;
            }
            if plan.chained {
                disk.prepare_zones(plan.zones, Claim::Urgent)?;
            }
            let made = disk.with_room(plan.data, plan.records, Claim::Urgent, |core| self.apply(core, &plan))?;
            match made {
                Ok(lsn) => return Ok(lsn),
                Err(Again::Load(key)) => disk.load(key)?,
                Err(Again::Base) => {
                    return Err(Error::new(
                        ErrorKind::Conflict,
                        "a block that was written in part has changed meanwhile",
                    ));
                }
                Err(Again::Never(error)) => return Err(error),
                Err(Again::Space(0)) => {}
                Err(Again::Cut) => self.uncut_blocks(),
                Err(Again::Space(needed)) => return Err(disk.full(&disk.core.lock(), needed)),
            }
        }
    }

    /// Makes the blocks that were cut inside part of the unit, out of what is committed now: what others wrote in front of
    /// the cut stays. Their places are remembered, and asked for again when the commit is applied.
    fn cut_blocks(&mut self) -> Result<()> {
        self.cut_bases.clear();
        if self.lists.values().all(|shadow| shadow.cuts.is_empty()) {
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
            self.reserve(volume.list(), volume.block_bytes(), block, block + 1)?;
            let zeros = vec![0; index64(block_bytes) - cut];
            self.write_blocks(&volume, block * block_bytes + len_u64(cut), &zeros)?;
        }
        Ok(())
    }

    /// The cuts that count: in blocks that neither the unit itself nor a hole replaces, and that are still there at the end.
    fn cut_volumes(&self) -> Vec<(Volume, u64, usize)> {
        let core = self.disk.core.lock();
        let mut volumes = Vec::new();
        for (list, shadow) in &self.lists {
            let Some(meta) = core.state.lists.get(list).map(|list| &list.meta) else { continue };
            let blocks = shadow.bytes.unwrap_or(meta.bytes).div_ceil(u64::from(meta.block_bytes()));
            for (block, cut) in &shadow.cuts {
                if *block < blocks && !shadow.blocks.contains_key(block) && !shadow.is_hole(*block) {
                    let volume =
                        Volume::new(Arc::clone(&self.disk), *list, &meta.name, meta.block_bytes(), meta.compression);
                    volumes.push((volume, *block, *cut));
                }
            }
        }
        volumes
    }

    /// Takes back what `cut_blocks` made, since the committed block has changed meanwhile.
    fn uncut_blocks(&mut self) {
        for (list, block, _) in std::mem::take(&mut self.cut_bases) {
            self.drop_blocks(list, block, block + 1);
        }
    }

    /// How much room the commit needs: in one batch if it is small, else as a chain of them.
    fn plan(&self, disk: &Inner) -> Plan {
        let shape = &disk.shape;
        let mut data = 0;
        let mut records = len_u64(24);
        for shadow in self.lists.values() {
            records += 24 + 8 + 256 + 64;
            for block in shadow.blocks.values() {
                if let Shadow::Data { stored, .. } = block {
                    data += len_u32(stored.len()).next_multiple_of(crate::types::GRANULE);
                }
                records += u64::from(put_bytes(1));
            }
        }
        let holes: u64 =
            self.hole_ranges().into_iter().map(|(list, first, end)| disk.discard_bytes(list, first, end)).sum();
        records += holes;
        let most = u64::from(shape.batch_bytes - shape.head) / 2;
        if records + u64::from(data) <= most {
            Plan { data, records: u32::try_from(records).expect("less than a batch"), chained: false, zones: 3, holes }
        } else {
            // The records are written twice, and the end of each zone is lost.
            let per_zone = u64::from(shape.zone_bytes - shape.batch_bytes) / 2 - u64::from(shape.head);
            let zones = 4 + usize::try_from(records / per_zone.max(1)).expect("fewer than there are zones");
            Plan { data, records: 0, chained: true, zones, holes }
        }
    }

    /// What turns into holes: stretches in order, none touching another, so that each block is freed once.
    fn hole_ranges(&self) -> Vec<(ListId, u64, u64)> {
        let mut merged: Vec<(ListId, u64, u64)> = Vec::new();
        for (list, shadow) in &self.lists {
            let mut holes = shadow.holes.clone();
            holes.extend(shadow.floor.map(|floor| (floor, u64::MAX >> 1)));
            holes.sort_unstable();
            for (first, end) in holes {
                match merged.last_mut() {
                    Some(last) if last.0 == *list && last.2 >= first => last.2 = last.2.max(end),
                    _ => merged.push((*list, first, end)),
                }
            }
        }
        merged
    }

    fn apply(&mut self, core: &mut Core, plan: &Plan) -> std::result::Result<Lsn, Again> {
        let conflict = |error: Error| Again::Never(Error::new(ErrorKind::Conflict, error.to_string()));
        // Everything is asked before anything is changed.
        for (list, shadow) in &self.lists {
            let meta = core.check_list(*list, 0).map_err(conflict)?;
            let blocks = shadow.bytes.map_or(meta.blocks(), |bytes| bytes.div_ceil(u64::from(meta.block_bytes())));
            if shadow.blocks.last_key_value().is_some_and(|(last, _)| *last >= blocks) {
                return Err(conflict(Error::new(
                    ErrorKind::Conflict,
                    format!("{} was cut short to {blocks} blocks meanwhile", meta.name),
                )));
            }
            for block in shadow.blocks.keys() {
                core.state.lookup(*list, *block)?;
            }
        }
        for (list, block, base) in &self.cut_bases {
            if core.state.place(*list, *block)? != *base {
                return Err(Again::Cut);
            }
        }
        for (list, block, base) in &self.bases {
            if core.state.lookup(*list, *block)?.map_or(Location::NONE, |(place, _)| place) != *base {
                return Err(Again::Base);
            }
        }
        let mut discards = Vec::new();
        for (list, first, end) in self.hole_ranges() {
            discards.extend(core.discards(list, first, end)?);
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
        if plan.chained {
            if core.writer.ready.len() < plan.zones {
                return Err(Again::Space(0));
            }
            core.writer.seal(false);
        }
        let chained = plan.chained;
        let room = |core: &mut Core, bytes: u32| {
            if chained {
                core.writer.make_room(0, bytes, true, 1).expect("zones were made ready for the whole commit");
                core.note_zones();
            }
        };
        for record in &discards {
            let mut encoded = Vec::new();
            record.encode(&mut encoded);
            room(core, len_u32(encoded.len()));
            core.write_record(record);
        }
        let mut blocks = 0;
        for (list, shadow) in &self.lists {
            if let Some(bytes) = shadow.bytes {
                let mut meta = core.check_list(*list, 0).expect("checked above").clone();
                meta.bytes = bytes;
                room(core, 512);
                core.write_record(&Record::List(meta));
            }
            blocks += len_u64(shadow.blocks.len());
            self.put(core, *list, shadow, room);
        }
        room(core, 24);
        core.write_record(&Record::Commit { unit: self.id, blocks });
        core.counters.user_bytes += self.user_bytes;
        self.release(core);
        Ok(core.writer.lsn)
    }

    fn put(&self, core: &mut Core, list: ListId, shadow: &ListShadow, room: impl FnMut(&mut Core, u32)) {
        let mut placed = Vec::with_capacity(shadow.blocks.len());
        for (block, shadow) in &shadow.blocks {
            let (place, checksum) = match shadow {
                Shadow::Data { stored, kind, checksum } => (core.writer.place(stored, *kind), *checksum),
                Shadow::Spilled => core.spilled[&self.id][&(list, *block)],
            };
            let old = core.state.place(list, *block).expect("looked up before anything was changed");
            placed.push(Placed { block: *block, place, checksum, old });
        }
        core.put_placed(list, placed.into_iter(), room);
    }

    /// Gives back what the unit held: its reservation and its listed places.
    fn release(&mut self, core: &mut Core) {
        core.reserved -= std::mem::take(&mut self.reserved);
        if let Some(spilled) = core.spilled.remove(&self.id) {
            for (place, _) in spilled.values() {
                core.state.zones.get_mut(place.zone()).shadow -= place.footprint();
            }
        }
        self.lists.clear();
        self.has_spilled = false;
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        if self.reserved > 0 || self.has_spilled {
            let disk = Arc::clone(&self.disk);
            self.release(&mut disk.core.lock());
        }
    }
}

struct Plan {
    data: u32,
    records: u32,
    chained: bool,
    zones: usize,
    /// Bytes that the records of discards may take.
    holes: u64,
}

impl ListShadow {
    fn is_hole(&self, block: u64) -> bool {
        self.floor.is_some_and(|floor| block >= floor)
            || self.holes.iter().any(|(first, end)| (*first..*end).contains(&block))
    }

    fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.holes.is_empty() && self.bytes.is_none() && self.floor.is_none()
    }
}

impl Inner {
    /// About how many bytes of records a discard takes, at most.
    fn discard_bytes(&self, list: ListId, first: u64, end: u64) -> u64 {
        let core = self.core.lock();
        let Some(owner) = core.state.lists.get(&list) else { return 0 };
        let shift = self.shape.section_blocks_shift();
        let mut bytes = 0;
        for (number, section) in owner.sections.iter().enumerate().skip(index64((first >> shift).min(1 << 24))) {
            let number = len_u64(number);
            if (number << shift) >= end {
                break;
            }
            let Some(section) = section else { continue };
            let leaves = section.slots.iter().filter(|slot| !matches!(slot, crate::map::Slot::Absent)).count();
            let zones = u64::from(self.shape.leaf_blocks().min(self.shape.zones));
            bytes += len_u64(leaves) * (40 + 12 * zones);
        }
        bytes
    }
}
