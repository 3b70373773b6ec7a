//! The cleaner: makes zones dead by moving what lives in them.
//!
//! A round: pick victims by benefit and cost; find out from the map which of their blocks are alive (R26: usage counts
//! only pick); read and verify these; write them, in list order, to the stream of moved blocks; sync; then say in the
//! record stream where they are now, unless they were changed meanwhile. A zone whose every block was looked up and is
//! dead is *verified*. It is freed when what killed its blocks is durable and replay does not need it, and it may be
//! erased when that freeing is durable.
//!
//! One thread at a time: whoever holds `maintaining`.

mod order;
mod recluster;

use crate::disk::pace::Payer;
use crate::disk::put::{Placed, Run};
use crate::disk::space::Claim;
use crate::disk::space::Round;
use crate::disk::{Core, Inner};
use crate::error::Result;
use crate::format::crc;
use crate::format::header::BatchKind;
use crate::format::records::{Compression, Record, data_bytes, encode_data, put_bytes};
use crate::log::reader::{Batch, Reader, records_of};
use crate::ordered::{Links, Staged};
use crate::packed::pack_cold;
use crate::planted::{self, Bug};
use crate::state::ColdLeaf;
use crate::types::{Kind, ListId, Location, Sequence, UnitId, index, len_u32, len_u64};
use crate::zones::Holds;
use std::collections::BTreeMap;

/// At most so many zones are looked through in one round.
const VICTIMS_MAX: usize = 32;
/// At most so many bytes are moved in one round.
const ROUND_BYTES: u64 = 32 << 20;
/// A batch of moved blocks has at most so many bytes.
const MOVED_BATCH_MAX: u32 = 1 << 20;
/// With less than this left, the zone of moved blocks is left as it is.
const MOVED_MIN: u32 = 16 << 10;

/// What part of a round's gain is paid out over its steps, in percent.
const READING: u64 = 40;
const WRITING: u64 = 30;
const RECORDS: u64 = 30;

/// A block that is moved, as it will be stored.
struct Survivor {
    owner: Owner,
    stored: Vec<u8>,
    kind: Kind,
    checksum: u32,
}

impl Survivor {
    /// As it was.
    fn new(owner: Owner, stored: Vec<u8>) -> Survivor {
        Survivor { owner, stored, kind: owner.place.kind().expect("it was read"), checksum: owner.checksum }
    }
}

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
    /// How the list of a block wants it to be stored. An ordered list says so itself, not the pool in which its blocks are;
    /// if that is not in memory it is not worth loading for this.
    fn compression_of(&self, owner: &Owner) -> Compression {
        let Some(table) = self.state.tables.table_of(owner.list) else {
            return self.state.lists.get(&owner.list).map(|list| list.meta.compression).unwrap_or_default();
        };
        let links = Links::new(self.state.lookup(table, owner.block).ok().flatten().unwrap_or_default());
        let attributes = Staged::default().alive(&self.state, links.value);
        attributes.map(|attributes| attributes.compression).unwrap_or_default()
    }

    /// Who owns the place now, if anybody: the committed state, what snapshots see of it, or an open unit.
    fn is_alive(&self, owner: &Owner) -> std::result::Result<bool, ColdLeaf> {
        if self.state.holder(owner.list, owner.block, owner.place, owner.unit)?.is_some() {
            return Ok(true);
        }
        let spilled = self.spilled.get(&owner.unit).and_then(|spilled| spilled.get(&(owner.list, owner.block)));
        Ok(spilled.is_some_and(|(place, _)| *place == owner.place))
    }

    /// The zones to clean next: dead ones to be verified, then the best by benefit and cost.
    fn victims(&self, zone_bytes: u32, round: Round) -> Vec<u32> {
        let now = self.writer.lsn.0;
        let mut dead = Vec::new();
        let mut scored: Vec<(f64, u32, u64)> = Vec::new();
        for (number, zone) in self.state.zones.all.iter().enumerate() {
            let number = len_u32(number);
            if zone.open || !matches!(zone.holds, Holds::Main | Holds::Moved) || self.verified.contains(&number) {
                continue;
            }
            if zone.holds == Holds::Main && zone.records_end > self.writer.appended_lsn {
                continue; // Sealed, and not all of it is on the medium yet.
            }
            if round == Round::WithoutRoot && self.needs_root(number) {
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
                    let scanned = reader.walk(&bytes, zone, segment, Sequence(header.sequence), 0);
                    scanned.unreadable.is_none().then_some(scanned.batches)
                }
                // A crash came between its opening and its first append.
                _ if reader.is_without(&bytes, zone, segment) => {
                    crate::mark("cleaner: zone never written to");
                    Some(Vec::new())
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
                    // What is written first knows most: the unit, and the list itself instead of a layer of it.
                    owners.entry(at).or_insert(owner);
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
        self.clean_round_held(Round::Any)
    }

    pub(crate) fn clean_round_held(&self, round: Round) -> Result<bool> {
        self.fold_all();
        let (victims, gain, available) = {
            let core = self.core.lock();
            core.alive()?;
            let victims = core.victims(self.shape.zone_bytes, round);
            // What a root must be written for is no gain yet, but takes what its survivors take.
            let gain = |zone: &u32| match core.needs_root(*zone) {
                true => -i64::from(core.state.zones.get(*zone).live),
                false => i64::from(self.shape.zone_bytes) - i64::from(core.state.zones.get(*zone).live),
            };
            let gain = u64::try_from(victims.iter().map(gain).sum::<i64>()).unwrap_or(0);
            (victims, gain, core.available())
        };
        let mut payer = Payer::new(self, gain, available);
        let mut survivors = Vec::new();
        let mut cleaned = Vec::new();
        for zone in &victims {
            let zone = *zone;
            payer.done(1, victims.len(), READING);
            let Some(alive) = self.alive_in(zone)? else { continue };
            let places: Vec<(Location, u32)> = alive.iter().map(|owner| (owner.place, owner.checksum)).collect();
            let mut whole = true;
            let mut read = Vec::with_capacity(alive.len());
            // Verified: rot must not be copied.
            for (owner, stored) in alive.iter().zip(self.read_stored(&places)) {
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
        let survivors = self.in_list_order(survivors);
        let survivors = survivors.into_iter().map(|(owner, stored)| Survivor::new(owner, stored)).collect();
        self.move_survivors(survivors, &mut payer)?;
        Ok(self.note_dead(cleaned))
    }

    /// What is alive in a zone, by what its batches name. `None`: it cannot be cleaned now, or is set aside.
    fn alive_in(&self, zone: u32) -> Result<Option<Vec<Owner>>> {
        let Some(owners) = self.owners(zone)? else {
            self.set_aside(zone);
            return Ok(None);
        };
        let Ok(alive) = self.alive_of(owners) else {
            self.set_aside(zone); // The map of one of its blocks cannot be read.
            return Ok(None);
        };
        let found: u32 = alive.iter().map(|owner| owner.place.footprint()).sum();
        let now = {
            let core = self.core.lock();
            if core.state.fold.is_some() {
                return Ok(None); // A large commit came in between: what it freed is not counted as dead yet.
            }
            let zone = core.state.zones.get(zone);
            zone.live + zone.shadow
        };
        if found < now {
            // Blocks live here that no readable batch names.
            self.set_aside(zone);
            return Ok(None);
        }
        Ok(Some(alive))
    }

    /// Looks up the blocks of zones that are dead by their counts: a round of cleaning that takes no zone.
    pub(crate) fn verify_dead(&self) -> Result<bool> {
        self.fold_all();
        let mut dead = {
            let core = self.core.lock();
            let mut victims = core.victims(self.shape.zone_bytes, Round::Any);
            victims.retain(|zone| core.state.zones.get(*zone).live + core.state.zones.get(*zone).shadow == 0);
            victims
        };
        let mut failed = None;
        dead.retain(|zone| match self.alive_in(*zone) {
            Ok(alive) => alive.is_some_and(|alive| alive.is_empty()),
            Err(error) => {
                failed = Some(error);
                false
            }
        });
        failed.map_or_else(|| Ok(self.note_dead(dead)), Err)
    }

    /// Every block in these zones was looked up, or moved elsewhere. True: some are dead now.
    fn note_dead(&self, zones: Vec<u32>) -> bool {
        let mut core = self.core.lock();
        let mut gained = false;
        for zone in zones {
            let state = core.state.zones.get(zone);
            if state.live == 0 && state.shadow == 0 && !state.open {
                core.verified.insert(zone);
                core.counters.zones_cleaned += 1;
                gained = true;
            }
        }
        gained
    }

    /// What stays is cold: where its list wants that, it is compressed now (*The Logical Disk*, compression).
    fn pack_cold(&self, survivors: &mut [Survivor]) {
        let mut scratch = Vec::new();
        for some in survivors.chunks_mut(1024) {
            let core = self.core.lock();
            let wanted: Vec<Compression> = some.iter().map(|survivor| core.compression_of(&survivor.owner)).collect();
            drop(core);
            let raw = some.iter_mut().zip(wanted).filter(|(survivor, _)| survivor.kind == Kind::Raw);
            for (survivor, compression) in raw {
                let Some(packed) = pack_cold(&survivor.stored, compression, &mut scratch) else { continue };
                crate::mark("cleaner: cold block compressed");
                survivor.stored = scratch[..packed].to_vec();
                (survivor.kind, survivor.checksum) = (Kind::Packed, crc(&survivor.stored));
            }
        }
    }

    fn move_survivors(&self, mut survivors: Vec<Survivor>, payer: &mut Payer<'_>) -> Result<()> {
        self.pack_cold(&mut survivors);
        let shape = self.shape;
        // Larger than a batch of the record stream may be where zones are small: less is lost on heads.
        let batch_most = shape.zone_bytes.min(MOVED_BATCH_MAX);
        let mut moved: Vec<(Owner, Location, u32)> = Vec::with_capacity(survivors.len());
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
                let bytes = len_u32(survivors[end].stored.len()).next_multiple_of(crate::types::GRANULE);
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
                for Survivor { owner, stored, kind, checksum } in &survivors[start..end] {
                    let place = Location::new(zone, offset, len_u32(stored.len()), *kind);
                    encode_data(owner.list, owner.block, place, &[*checksum], owner.unit, &mut records);
                    moved.push((*owner, place, *checksum));
                    offset += len_u32(stored.len()).next_multiple_of(crate::types::GRANULE);
                }
                core.moved.begin(&shape, self.disk, data, records, len_u32(end - start))
            };
            let body = batch.body(survivors[start..end].iter().map(|survivor| &survivor.stored[..]));
            let written = self.append_side(batch.at(), &[&batch.head(), &body])?;
            self.core.lock().counters.cleaned_bytes += written;
            payer.done(end - start, survivors.len(), WRITING);
            start = end;
        }
        if moved.is_empty() {
            return Ok(());
        }
        // The data is durable before a record says that it is there.
        if !planted::is(Bug::MovedNotSynced) {
            self.sync_all()?;
        }
        for chunk in moved.chunks(64.min(index(shape.batch_bytes - shape.head) / 2 / 48).max(1)) {
            self.with_room(0, put_bytes(1) * len_u32(chunk.len()), Claim::Keeper, |core| {
                let mut run = Run::default();
                let mut list = ListId(0);
                for (owner, place, checksum) in chunk {
                    if let Ok(Some(holder)) = core.state.holder(owner.list, owner.block, owner.place, owner.unit) {
                        if holder != list {
                            run.end(core, list);
                            list = holder;
                        }
                        run.push(
                            core,
                            list,
                            Placed { block: owner.block, place: *place, checksum: *checksum, old: owner.place },
                        );
                    } else if let Some(spilled) = core
                        .spilled
                        .get_mut(&owner.unit)
                        .and_then(|spilled| spilled.get_mut(&(owner.list, owner.block)))
                        && spilled.0 == owner.place
                    {
                        crate::mark("cleaner: spilled block moved");
                        *spilled = (*place, *checksum);
                        if let Some(watch) = &mut core.state.watch {
                            watch.blocks.push((owner.list, owner.block));
                        }
                        core.state.zones.get_mut(owner.place.zone()).shadow -= owner.place.footprint();
                        core.state.zones.get_mut(place.zone()).shadow += place.footprint();
                    }
                }
                run.end(core, list);
            })?;
            payer.done(chunk.len(), moved.len(), RECORDS);
        }
        Ok(())
    }
}
