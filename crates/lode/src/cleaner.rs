//! The cleaner, and the keeper that decides when to checkpoint, clean and free.
//!
//! A round: pick victims by benefit and cost; find out from the map which of their blocks are alive (R26: usage counts
//! only pick); read and verify these; write them, in list order, to the stream of moved blocks; sync; then say in the
//! record stream where they are now, unless they were changed meanwhile. A zone whose every block was looked up and is
//! dead is *verified*. It is freed when what killed its blocks is durable and replay does not need it, and it may be
//! erased when that freeing is durable.
//!
//! One thread at a time: whoever holds `maintaining`.

use crate::disk::options::Survive;
use crate::disk::put::{Placed, Run};
use crate::disk::space::{Claim, LOW_ZONES};
use crate::disk::{Core, Effort, Inner};
use crate::error::{Error, Result};
use crate::format::header::BatchKind;
use crate::format::records::{Record, data_bytes, encode_data, put_bytes};
use crate::log::reader::{Batch, Reader, records_of};
use crate::planted::{self, Bug};
use crate::shape::RESERVE_ZONES;
use crate::state::{ColdLeaf, SectionKey};
use crate::types::{ListId, Location, Lsn, Sequence, UnitId, index, len_u32, len_u64};
use crate::zones::Holds;
use std::collections::BTreeMap;
use std::time::Duration;

/// At most so many zones are looked through in one round.
const VICTIMS_MAX: usize = 32;
/// At most so many bytes are moved in one round.
const ROUND_BYTES: u64 = 32 << 20;
/// A batch of moved blocks has at most so many bytes.
const MOVED_BATCH_MAX: u32 = 1 << 20;
/// With less than this left, the zone of moved blocks is left as it is.
const MOVED_MIN: u32 = 16 << 10;

/// So many rounds of cleaning in a row may gain nothing.
const FRUITLESS_MAX: u32 = 32;
/// Writing tables again takes a zone for each copy, and records of that.
const TABLES_NEED: usize = 4;
/// While space is not low, zones of tables may hold this part of the image in garbage.
const GARBAGE_SHARE: u64 = 64;

/// Whose bytes lie at a place, as its batch says.
#[derive(Clone, Copy)]
struct Owner {
    list: ListId,
    block: u64,
    place: Location,
    checksum: u32,
    unit: UnitId,
}

impl Core {
    /// Who owns the place now, if anybody: the committed state, or an open unit.
    fn is_alive(&self, owner: &Owner) -> std::result::Result<bool, ColdLeaf> {
        if let Some((place, _)) = self.state.lookup(owner.list, owner.block)?
            && place == owner.place
        {
            return Ok(true);
        }
        let spilled = self.spilled.get(&owner.unit).and_then(|spilled| spilled.get(&(owner.list, owner.block)));
        Ok(spilled.is_some_and(|(place, _)| *place == owner.place))
    }

    /// The zones to clean next: dead ones to be verified, then the best by benefit and cost.
    fn victims(&self, zone_bytes: u32) -> Vec<u32> {
        let now = self.writer.lsn.0;
        let mut dead = Vec::new();
        let mut scored: Vec<(f64, u32, u64)> = Vec::new();
        for (number, zone) in self.state.zones.all.iter().enumerate() {
            let number = len_u32(number);
            if zone.open || !matches!(zone.holds, Holds::Main | Holds::Moved) || self.verified.contains(&number) {
                continue;
            }
            let live = zone.live + zone.shadow;
            if live == 0 {
                dead.push(number);
                continue;
            }
            let used = f64::from(live) / f64::from(zone_bytes);
            let age = u32::try_from((now - zone.age.0).min(1 << 30)).map_or(1.0, f64::from) + 1.0;
            scored.push(((1.0 - used).max(0.0) * age / (1.0 + used), number, u64::from(live)));
        }
        dead.truncate(VICTIMS_MAX);
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut victims = dead;
        // Survivors need zones before any is gained: never more than half of what there is. A round goes on until it
        // gains two zones, so that it always gains at least one (R28).
        let zone_bytes = u64::from(zone_bytes);
        let most = ROUND_BYTES.max(zone_bytes).min(len_u64(self.available().saturating_sub(2) / 2).max(1) * zone_bytes);
        let (mut survivors, mut gain) = (0, 0);
        for (_, number, live) in scored {
            if victims.len() >= VICTIMS_MAX
                || survivors + live > most
                || gain >= 2 * zone_bytes
                || live > zone_bytes / 64 * 63
            {
                break;
            }
            survivors += live;
            gain += zone_bytes - live;
            victims.push(number);
        }
        victims
    }
}

impl Inner {
    /// The blocks that a zone's batches name as lying in it. `None`: it cannot be read as a segment.
    fn owners(&self, zone: u32) -> Result<Option<Vec<Owner>>> {
        let (segment, holds) = {
            let core = self.core.lock();
            let zone = core.state.zones.get(zone);
            (zone.segment, zone.holds)
        };
        let reader = Reader { medium: &*self.medium, shape: self.shape, disk: self.disk };
        let mut batches: Option<Vec<Batch>> = None;
        if holds == Holds::Main {
            batches = reader.footer(zone, segment)?.map(|scanned| scanned.batches);
        }
        if batches.is_none() {
            let bytes = reader.zone(zone);
            batches = match reader.header(&bytes, zone, 0) {
                Ok((header, _)) if header.segment == segment.0 => {
                    reader.walk(&bytes, zone, segment, Sequence(header.sequence), 0).ok().map(|scanned| scanned.batches)
                }
                _ => None,
            };
        }
        let Some(batches) = batches else { return Ok(None) };
        let mut owners: BTreeMap<Location, Owner> = BTreeMap::new();
        for batch in batches.iter().filter(|batch| batch.kind != BatchKind::Footer) {
            let Some(records) = records_of(batch) else { return Ok(None) };
            for record in records {
                let (list, first, place, checksums, unit): (_, _, _, Vec<u32>, _) = match record {
                    Record::Put { list, first, place, entries } => {
                        (list, first, place, entries.iter().map(|(_, checksum)| *checksum).collect(), UnitId(0))
                    }
                    Record::Data { list, first, place, checksums, unit } => (list, first, place, checksums, unit),
                    _ => continue,
                };
                if place.zone() != zone {
                    continue;
                }
                let mut at = place;
                for (n, checksum) in checksums.into_iter().enumerate() {
                    let owner = Owner { list, block: first + len_u64(n), place: at, checksum, unit };
                    // A Data of a unit knows more than the Put that made it visible.
                    owners
                        .entry(at)
                        .and_modify(|known| {
                            if known.unit == UnitId(0) {
                                *known = owner
                            }
                        })
                        .or_insert(owner);
                    at = at.step(1);
                }
            }
        }
        Ok(Some(owners.into_values().collect()))
    }

    /// Those of the owners that are alive, and what they take.
    fn alive_of(&self, owners: Vec<Owner>) -> Result<Vec<Owner>> {
        let mut alive = Vec::new();
        for chunk in owners.chunks(1024) {
            let mut at = 0;
            while at < chunk.len() {
                let cold = {
                    let core = self.core.lock();
                    loop {
                        let Some(owner) = chunk.get(at) else { break None };
                        match core.is_alive(owner) {
                            Ok(true) => alive.push(*owner),
                            Ok(false) => {}
                            Err(cold) => break Some(cold),
                        }
                        at += 1;
                    }
                };
                if let Some(cold) = cold {
                    crate::mark("cleaner: cold leaf loaded");
                    self.load(cold.0)?;
                }
            }
        }
        Ok(alive)
    }

    /// Takes a zone out of use since something in it is damaged: never erased, reported.
    fn set_aside(&self, zone: u32) {
        crate::mark("cleaner: zone set aside");
        self.core.lock().state.zones.get_mut(zone).holds = Holds::Aside;
    }

    /// Cleans one round of zones. True: at least one zone is verified to be dead now.
    pub(crate) fn clean_round(&self) -> Result<bool> {
        let _one = self.maintaining.lock();
        self.clean_round_held()
    }

    fn clean_round_held(&self) -> Result<bool> {
        self.fold_all();
        let victims = {
            let core = self.core.lock();
            core.alive()?;
            core.victims(self.shape.zone_bytes)
        };
        let mut survivors = Vec::new();
        let mut cleaned = Vec::new();
        for zone in victims {
            let Some(owners) = self.owners(zone)? else {
                self.set_aside(zone);
                continue;
            };
            let alive = self.alive_of(owners)?;
            let found: u32 = alive.iter().map(|owner| owner.place.footprint()).sum();
            let now = {
                let core = self.core.lock();
                if core.state.fold.is_some() {
                    continue; // A large commit came in between: what it freed is not counted as dead yet.
                }
                let zone = core.state.zones.get(zone);
                zone.live + zone.shadow
            };
            if found < now {
                // Blocks live here that no readable batch names.
                self.set_aside(zone);
                continue;
            }
            let places: Vec<(Location, u32)> = alive.iter().map(|owner| (owner.place, owner.checksum)).collect();
            let mut whole = true;
            let mut read = Vec::with_capacity(alive.len());
            for (owner, stored) in alive.iter().zip(self.read_survivors(&places)) {
                match stored {
                    Ok(stored) => read.push((*owner, stored)),
                    Err(_) => whole = false,
                }
            }
            if !whole {
                self.set_aside(zone);
                continue;
            }
            survivors.extend(read);
            cleaned.push(zone);
        }
        survivors.sort_by_key(|(owner, _)| (owner.list, owner.block));
        self.move_survivors(&survivors)?;
        let mut core = self.core.lock();
        let mut gained = false;
        for zone in cleaned {
            let state = core.state.zones.get(zone);
            if state.live == 0 && state.shadow == 0 && !state.open {
                core.verified.insert(zone);
                core.counters.zones_cleaned += 1;
                gained = true;
            }
        }
        Ok(gained)
    }

    /// Reads stored bytes, neighbours in one go, and verifies them: rot must not be copied.
    fn read_survivors(&self, places: &[(Location, u32)]) -> Vec<std::result::Result<Vec<u8>, String>> {
        let mut read = Vec::with_capacity(places.len());
        for chunk in places.chunks(256) {
            read.extend(self.read_stored(chunk));
        }
        read
    }

    fn move_survivors(&self, survivors: &[(Owner, Vec<u8>)]) -> Result<()> {
        let shape = self.shape;
        // Larger than a batch of the record stream may be where zones are small: less is lost on heads.
        let batch_most = shape.zone_bytes.min(MOVED_BATCH_MAX);
        let mut moved: Vec<(Owner, Location)> = Vec::with_capacity(survivors.len());
        let mut start = 0;
        while start < survivors.len() {
            let mut data = 0;
            let mut end = start;
            // A batch is cut to what is left of the zone; when that is little, the next zone is opened.
            let left = self.core.lock().moved.left(&shape);
            let room = if left < shape.head + (shape.zone_bytes / 128).max(MOVED_MIN.min(shape.zone_bytes / 4)) {
                self.open_side(Holds::Moved)?;
                batch_most - shape.head
            } else {
                left.min(batch_most) - shape.head
            };
            while end < survivors.len() {
                let bytes = len_u32(survivors[end].1.len()).next_multiple_of(crate::types::GRANULE);
                let records = data_bytes(1) * len_u32(end - start + 1);
                if data + bytes + records > room {
                    break;
                }
                data += bytes;
                end += 1;
            }
            if end == start {
                self.open_side(Holds::Moved)?; // Not even one block fits in what is left.
                continue;
            }
            let batch = {
                let mut core = self.core.lock();
                let zone = core.moved.zone.expect("opened above");
                let mut offset = core.moved.data_offset(&shape);
                let mut records = Vec::new();
                for (owner, stored) in &survivors[start..end] {
                    let place =
                        Location::new(zone, offset, owner.place.stored(), owner.place.kind().expect("it was read"));
                    encode_data(owner.list, owner.block, place, &[owner.checksum], owner.unit, &mut records);
                    moved.push((*owner, place));
                    offset += len_u32(stored.len()).next_multiple_of(crate::types::GRANULE);
                }
                core.moved.begin(&shape, self.disk, data, records, len_u32(end - start))
            };
            let body = batch.body(survivors[start..end].iter().map(|(_, stored)| &stored[..]));
            let written = self.append_side(batch.at(), &[&batch.head(), &body])?;
            self.core.lock().counters.cleaned_bytes += written;
            start = end;
        }
        if moved.is_empty() {
            return Ok(());
        }
        // The data is durable before a record says that it is there.
        self.sync_all()?;
        for chunk in moved.chunks(64.min(index(shape.batch_bytes - shape.head) / 2 / 48).max(1)) {
            self.with_room(0, put_bytes(1) * len_u32(chunk.len()), Claim::Keeper, |core| {
                let mut run = Run::default();
                let mut list = ListId(0);
                for (owner, place) in chunk {
                    if owner.list != list {
                        run.end(core, list);
                        list = owner.list;
                    }
                    let now = core.state.lookup(owner.list, owner.block);
                    if matches!(now, Ok(Some((now, _))) if now == owner.place) {
                        run.push(
                            core,
                            list,
                            Placed { block: owner.block, place: *place, checksum: owner.checksum, old: owner.place },
                        );
                    } else if let Some(spilled) = core
                        .spilled
                        .get_mut(&owner.unit)
                        .and_then(|spilled| spilled.get_mut(&(owner.list, owner.block)))
                        && spilled.0 == owner.place
                    {
                        crate::mark("cleaner: spilled block moved");
                        spilled.0 = *place;
                        if let Some(watch) = &mut core.state.watch {
                            watch.blocks.push((owner.list, owner.block));
                        }
                        core.state.zones.get_mut(owner.place.zone()).shadow -= owner.place.footprint();
                        core.state.zones.get_mut(place.zone()).shadow += place.footprint();
                    }
                }
                run.end(core, list);
            })?;
        }
        Ok(())
    }

    /// Frees zones that are dead for good. `push`: flushes and checkpoints for it. True: zones became free.
    pub(crate) fn free_dead(&self, push: bool) -> Result<bool> {
        let mut gained = false;
        for round in 0..2 {
            let (freed, waiting_flush, waiting_root) = self.free_dead_once()?;
            gained |= freed;
            let (target, waiting) = {
                let core = self.core.lock();
                (core.writer.lsn, !core.freeing.is_empty())
            };
            if push && waiting {
                self.flush_to(target, Survive::Power)?;
            }
            gained |= self.collect_freed();
            if gained || !push || round == 1 {
                break;
            }
            if waiting_root {
                crate::mark("space: checkpoint forced");
                let before = self.core.lock().writer.lsn;
                self.checkpoint_to(before, false)?;
            } else if waiting_flush {
                crate::mark("space: flush forced");
                self.flush(Survive::Power)?;
            } else {
                break;
            }
        }
        Ok(gained)
    }

    /// Writes ZoneFreed for what may be freed now. Tells whether there was some, and what the rest waits for.
    fn free_dead_once(&self) -> Result<(bool, bool, bool)> {
        let mut ready = Vec::new();
        let (mut waiting_flush, mut waiting_root) = (false, false);
        {
            let core = self.core.lock();
            core.alive()?;
            let tables = core.state.table_bytes();
            for (number, zone) in core.state.zones.all.iter().enumerate() {
                let number = len_u32(number);
                if zone.open {
                    continue;
                }
                match zone.holds {
                    Holds::Main | Holds::Moved if core.verified.contains(&number) => {
                        let early = planted::is(Bug::EraseTooEarly);
                        if zone.last_freed >= core.writer.durable_lsn && !early {
                            waiting_flush = true;
                        } else if (core.rooted.segments.contains(&number)
                            || (zone.holds == Holds::Main && zone.records_end > core.rooted.replay))
                            && !early
                        {
                            waiting_root = true;
                        } else {
                            ready.push((number, zone.segment));
                        }
                    }
                    Holds::TableA | Holds::TableB if !tables.contains_key(&number) => {
                        if core.rooted.tables.contains_key(&number) {
                            waiting_root = true;
                        } else {
                            ready.push((number, zone.segment));
                        }
                    }
                    _ => {}
                }
            }
        }
        for (zone, segment) in &ready {
            self.with_room(0, 64, Claim::Keeper, |core| {
                let lsn = core.write_record(&Record::ZoneFreed { zone: *zone, segment: segment.0 });
                core.verified.remove(zone);
                core.freeing.push((lsn, *zone));
            })?;
        }
        Ok((!ready.is_empty(), waiting_flush, waiting_root))
    }

    /// Zones whose freeing is durable may be erased and taken.
    pub(crate) fn collect_freed(&self) -> bool {
        let mut core = self.core.lock();
        let durable = core.writer.durable_lsn;
        let early = planted::is(Bug::EraseTooEarly);
        let (ready, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut core.freeing).into_iter().partition(|(lsn, _)| *lsn < durable || early);
        core.freeing = rest;
        for (_, zone) in &ready {
            core.free.insert(*zone);
        }
        if !ready.is_empty() {
            self.space.notify_all();
        }
        !ready.is_empty()
    }

    /// One step for writers who wait for space. True: something was gained.
    pub(crate) fn maintain_for_space(&self) -> Result<bool> {
        let _one = self.maintaining.lock();
        if self.free_dead(true)? {
            return Ok(true);
        }
        if self.drain_step()? {
            return Ok(true);
        }
        let cleaned = self.clean_round_held()?;
        let tables = self.clean_tables()?;
        Ok(self.free_dead(true)? || cleaned || tables)
    }

    /// One bounded step of whatever is due. False: nothing is.
    pub(crate) fn maintain(&self, background: bool) -> Result<bool> {
        if self.options.read_only {
            return Ok(false);
        }
        let _one = self.maintaining.lock();
        let (available, waiting, long) = {
            let core = self.core.lock();
            core.alive()?;
            let window = self.window_zones();
            let segments = &core.writer.segments;
            let long = (segments.len() > window + (window / 8).max(1))
                .then(|| Lsn(segments[segments.len() - window].first_lsn));
            (core.available(), core.freeing.len() + core.verified.len(), long)
        };
        let low = available < index(RESERVE_ZONES) + LOW_ZONES;
        let mut did = false;
        if let Some(before) = long {
            self.checkpoint_to(before, false)?;
            did = true;
        }
        did |= self.drain_step()?;
        if waiting > 0 || low {
            did |= self.free_dead(false)?;
        }
        if low && self.is_worth_it() {
            self.clean_round_held()?;
            self.free_dead(true)?;
            did = true;
        }
        did |= self.clean_tables()?;
        did |= self.unload_some();
        if background {
            let mut core = self.core.lock();
            core.rounds += u64::from(low);
            let short = core.writer.ready.len() < 4 && core.available() > index(RESERVE_ZONES);
            drop(core);
            if short {
                self.prepare_zones(4, Claim::Keeper)?;
                self.space.notify_all();
            }
        }
        Ok(did)
    }

    /// Whether cleaning has gained lately, or users have changed something since it did not.
    fn is_worth_it(&self) -> bool {
        let mut core = self.core.lock();
        let spilled = core.effort.spilled;
        let now = (core.counters.user_bytes + spilled, core.state.zones.live);
        let available = core.available();
        if core.effort.since != now {
            core.effort = Effort { since: now, most: available, fruitless: 0, spilled };
        } else if available > core.effort.most {
            core.effort.most = available;
            core.effort.fruitless = 0;
        } else {
            core.effort.fruitless += 1;
        }
        core.effort.fruitless < FRUITLESS_MAX
    }

    /// How many zones of log recovery may have to read.
    fn window_zones(&self) -> usize {
        let window = self.options.window_bytes(&self.shape);
        usize::try_from(window / u64::from(self.shape.zone_bytes)).expect("fewer than there are zones").max(2)
    }

    /// Table zones that are mostly dead are emptied by writing what lives in them again.
    fn clean_tables(&self) -> Result<bool> {
        let keys: Vec<SectionKey> = {
            let mut core = self.core.lock();
            let tables = core.state.table_bytes();
            let zones: Vec<u32> = (0..self.shape.zones)
                .filter(|zone| {
                    let zone = core.state.zones.get(*zone);
                    !zone.open && matches!(zone.holds, Holds::TableA | Holds::TableB)
                })
                .filter(|zone| tables.contains_key(zone))
                .collect();
            let live: u64 = tables.values().sum();
            let held = len_u64(zones.len()) * u64::from(self.shape.zone_bytes);
            // Garbage mostly dies zone by zone, as the oldest objects are written again in turn; until space is low it may wait.
            let low = core.available() < index(RESERVE_ZONES) + LOW_ZONES;
            if core.available() < TABLES_NEED {
                return Ok(false); // It would take the last zones, which a round of cleaning makes more of.
            }
            let enough = if low { 0 } else { self.shape.image_bytes() / GARBAGE_SHARE };
            if zones.len() <= 4 || held < (live * 2).max(enough) {
                return Ok(false);
            }
            let emptiest = zones.iter().min_by_key(|zone| tables[zone]);
            let Some(zone) = emptiest else { return Ok(false) };
            core.state.touch_pages_in(*zone);
            core.state.sections_in(*zone)
        };
        crate::mark("tables: cleaned");
        for key in keys {
            self.rewrite_section(key)?;
        }
        self.checkpoint_to(Lsn(0), false)?;
        Ok(true)
    }

    /// Frees a part of a deleted list. False: there is none.
    pub(crate) fn drain_step(&self) -> Result<bool> {
        let next = {
            let core = self.core.lock();
            let Some(list) = core.state.draining.first().copied() else { return Ok(false) };
            let end = core.state.lists.get(&list).map_or(0, |list| len_u64(list.sections.len()));
            let occupied = (0..end).find(|number| {
                core.state
                    .map_section(list, crate::types::low_u32(*number))
                    .is_some_and(|section| section.leaf_bits() != 0 && !section.is_empty())
            });
            (list, occupied)
        };
        let (list, Some(section)) = next else {
            crate::mark("space: deleted list gone");
            self.with_room(0, 32, Claim::Keeper, |core| core.write_record(&Record::ListGone { list: next.0 }))?;
            return Ok(true);
        };
        let shift = self.shape.section_blocks_shift();
        let (first, end) = (section << shift, (section + 1) << shift);
        self.load_range(list, first, end)?;
        let records = self.core.lock().discards(list, first, end);
        let Ok(records) = records else { return Ok(true) };
        for record in records {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            // What lies there may have been moved since: made again under the lock.
            let Record::Discard { first, end, .. } = record else { continue };
            self.with_room(0, len_u32(bytes.len()) + 1024.min(self.shape.batch_bytes / 4), Claim::Keeper, |core| {
                for record in core.discards(list, first, end).unwrap_or_default() {
                    core.write_record(&record);
                }
            })?;
        }
        Ok(true)
    }

    /// The thread that keeps the disk in shape.
    pub(crate) fn run_keeper(&self) {
        loop {
            if self.core.lock().stop {
                return;
            }
            match self.maintain(true) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => self.keeper_failed(&error),
            }
            let mut core = self.core.lock();
            if core.stop {
                return;
            }
            let wait = if core.available() < index(RESERVE_ZONES) + LOW_ZONES { 5 } else { 50 };
            self.keeper.wait_for(&mut core, Duration::from_millis(wait));
        }
    }

    /// Reads that fail while cleaning do not stop the disk; failed appends and syncs have latched it already.
    fn keeper_failed(&self, error: &Error) {
        let mut core = self.core.lock();
        core.rounds += 1;
        core.keeper_error = Some(error.clone());
        self.space.notify_all();
        self.keeper.wait_for(&mut core, Duration::from_millis(100));
    }
}
