//! The keeper: decides when to checkpoint, clean and free, and does so a bounded step at a time.
//!
//! ```text
//! log longer than the window ──> checkpoint      zone verified dead ──> ZoneFreed ──> durable ──> free
//! few zones left ──────────────> clean           list deleted ────────> its blocks discarded, then ListGone
//! tables mostly garbage ───────> written again   few zones ready ─────> erased beforehand
//! ```
//! A thread of its own where the disk has one; else, and when space is short, whoever waits for space. One at a time:
//! who holds `maintaining`.

use crate::checkpoint::TABLES_NEED;
use crate::disk::options::Survive;
use crate::disk::space::{Claim, LOW_ZONES, Round};
use crate::disk::{Core, Effort, Inner};
use crate::error::{Error, ErrorKind, Result};
use crate::fold::FOLD_STEP;
use crate::format::records::Record;
use crate::planted::{self, Bug};
use crate::shape::{RESERVE_ZONES, Shape};
use crate::types::{Lsn, index, len_u32, len_u64};
use crate::zones::Holds;
use std::time::Duration;

/// So many rounds of cleaning in a row may gain nothing.
const FRUITLESS_MAX: u32 = 32;
/// At most so many zones of tables are emptied at once.
const TABLES_AT_ONCE: usize = 8;
/// Draining lists and snapshots leaves so many zones to the cleaner, who makes more out of what is drained.
const DRAIN_LEAVES: usize = 6;
/// When so many dead zones wait for a root, one is written although there are others to be freed.
const ROOTED_MANY: usize = 16;
/// While space is not low, zones of tables may hold this part of the image in garbage.
const GARBAGE_SHARE: u64 = 64;

impl Core {
    /// Recovery may read this zone of records, until a root says that it need not.
    pub(crate) fn needs_root(&self, number: u32) -> bool {
        let zone = self.state.zones.get(number);
        self.rooted.segments.contains(&number) || (zone.holds == Holds::Main && zone.records_end > self.rooted.replay)
    }

    /// Up to where sections are to be written since recovery would have to apply almost `most` records: so that it need
    /// not apply three quarters of that. Asked for again only after an eighth more, whatever came of it.
    fn many_records(&mut self, most: u64) -> Option<Lsn> {
        let (now, part) = (self.writer.lsn.0, (most / 8).max(1));
        let many = now.saturating_sub(self.rooted.replay.0) > most.saturating_sub(part);
        if !many || now - self.counted.0 < part {
            return None;
        }
        crate::mark("checkpoint: many records");
        self.counted = Lsn(now);
        Some(Lsn(now.saturating_sub(most.saturating_sub(2 * part))))
    }
}

impl Inner {
    /// Frees zones that are dead for good. `push`: flushes and checkpoints for it. True: zones became free.
    pub(crate) fn free_dead(&self, push: bool) -> Result<bool> {
        let mut gained = false;
        for round in 0..2 {
            let (freed, waiting_flush, waiting_root) = self.free_dead_once()?;
            gained |= freed;
            if push {
                self.flush_freed()?;
            }
            gained |= self.collect_freed();
            let many = waiting_root >= ROOTED_MANY;
            if gained && !many || !push || round == 1 {
                break;
            }
            if waiting_root > 0 {
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

    /// As far as a flush makes it so. True: zones became free.
    pub(crate) fn free_dead_by_flush(&self) -> Result<bool> {
        self.free_dead_once()?;
        self.flush_freed()?;
        Ok(self.collect_freed())
    }

    /// What was freed is so durably.
    fn flush_freed(&self) -> Result<()> {
        let (target, waiting) = {
            let core = self.core.lock();
            (core.writer.lsn, !core.freeing.is_empty())
        };
        if waiting { self.flush_to(target, Survive::Power) } else { Ok(()) }
    }

    /// Writes ZoneFreed for what may be freed now. Tells whether there was some, and what the rest waits for.
    fn free_dead_once(&self) -> Result<(bool, bool, usize)> {
        let mut ready = Vec::new();
        let (mut waiting_flush, mut waiting_root) = (false, 0);
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
                        } else if core.needs_root(number) && !early {
                            waiting_root += 1;
                        } else {
                            ready.push((number, zone.segment));
                        }
                    }
                    Holds::TableA | Holds::TableB if !tables.contains_key(&number) => {
                        if core.rooted.tables.contains_key(&number) {
                            waiting_root += 1;
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
        if self.reclaim_discarded().unwrap_or_else(|error| self.note_trouble(error)) || self.free_dead(true)? {
            return Ok(true);
        }
        if self.drain_step()? {
            return Ok(true);
        }
        let cleaned = self.clean_round_held(Round::Any)?;
        let tables = self.clean_tables(false)?;
        Ok(self.free_dead(true)? || cleaned || tables)
    }

    /// One bounded step of whatever is due. False: nothing is.
    pub(crate) fn maintain(&self, background: bool) -> Result<bool> {
        if self.options.read_only {
            return Ok(false);
        }
        drop(self.tell_space(self.core.lock()));
        let _one = self.maintaining.lock();
        let mut did = self.reclaim_discarded().unwrap_or_else(|error| self.note_trouble(error));
        let (available, waiting, long) = {
            let mut core = self.core.lock();
            core.alive()?;
            let many = core.many_records(self.options.checkpoint_window_records);
            let window = self.window_zones(&core.state.shape);
            let segments = &core.writer.segments;
            let long = (segments.len() > window + (window / 8).max(1))
                .then(|| Lsn(segments[segments.len() - window].first_lsn));
            (core.available(), core.freeing.len() + core.verified.len(), long.max(many))
        };
        let low = available < index(RESERVE_ZONES) + LOW_ZONES;
        if let Some(before) = long {
            self.checkpoint_to(before, false)?;
            did = true;
        }
        did |= self.drain_step()?;
        if waiting > 0 || low {
            did |= self.free_dead(false)?;
        }
        let clean = low && self.is_worth_it();
        if !clean {
            self.rest_pacing(low);
        }
        if clean {
            // What only a root is lacking for takes fewer zones than a round of cleaning, and gives more.
            self.free_dead(true)?;
            self.clean_round_held(Round::Any)?;
            self.free_dead(true)?;
            did = true;
        }
        did |= self.clean_tables(false)?;
        did |= self.unload_some();
        did |= self.free_for_discard()?;
        did |= self.discard_some().unwrap_or_else(|error| self.note_trouble(error));
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

    /// What fails without harm is told in reports, and gains nothing.
    pub(crate) fn note_trouble(&self, error: Error) -> bool {
        self.core.lock().keeper_error = Some(error);
        false
    }

    /// Whether cleaning has gained lately, or users have changed something since it did not.
    fn is_worth_it(&self) -> bool {
        let mut core = self.core.lock();
        let taken = core.effort.taken;
        let now = (taken, core.state.zones.live);
        let available = core.available();
        if core.effort.since != now {
            core.effort = Effort { since: now, most: available, fruitless: 0, taken };
        } else if available > core.effort.most {
            core.effort.most = available;
            core.effort.fruitless = 0;
        } else {
            core.effort.fruitless += 1;
        }
        core.effort.fruitless < FRUITLESS_MAX
    }

    /// How many zones of log recovery may have to read.
    fn window_zones(&self, shape: &Shape) -> usize {
        let window = self.options.window_bytes(shape);
        usize::try_from(window / u64::from(self.shape.zone_bytes))
            .expect("fewer than there are zones")
            .min(shape.window_most())
            .max(2)
    }

    /// Table zones that are mostly dead are emptied by moving what lives in them. `within`: in the middle of a
    /// checkpoint that needs them.
    pub(crate) fn clean_tables(&self, within: bool) -> Result<bool> {
        let zones = {
            let core = self.core.lock();
            let tables = core.state.table_bytes();
            let zones: Vec<u32> = (0..len_u32(core.state.zones.all.len()))
                .filter(|zone| {
                    let zone = core.state.zones.get(*zone);
                    !zone.open && matches!(zone.holds, Holds::TableA | Holds::TableB)
                })
                .filter(|zone| tables.contains_key(zone))
                .collect();
            let live: u64 = tables.values().sum();
            let held = len_u64(zones.len()) * u64::from(self.shape.zone_bytes);
            // Garbage mostly dies zone by zone, as the oldest objects are written again in turn; until space is low it
            // may wait.
            let low = core.available() < index(RESERVE_ZONES) + LOW_ZONES;
            if core.available() < TABLES_NEED {
                return Ok(false); // It would take the last zones, which a round of cleaning makes more of.
            }
            let enough = if low { 0 } else { core.state.shape.image_bytes() / GARBAGE_SHARE };
            if zones.len() <= 4 || held < (if within { live / 2 * 3 } else { live * 2 }).max(enough) {
                return Ok(false);
            }
            // The emptiest, several at once if all that lives in them fits in half a zone.
            let mut zones: Vec<(u64, u32)> = zones.into_iter().map(|zone| (tables[&zone], zone)).collect();
            zones.sort_unstable();
            if !core.unreadable.is_empty() {
                zones
                    .retain(|(_, zone)| !core.state.sections_in(*zone).iter().any(|key| core.unreadable.contains(key)));
            }
            let mut moved = 0;
            let few = zones.iter().enumerate().take(TABLES_AT_ONCE).take_while(|(n, (live, _))| {
                moved += live;
                *n == 0 || moved <= u64::from(self.shape.zone_bytes / 2)
            });
            let few: Vec<u32> = few.map(|(_, (_, zone))| *zone).collect();
            if few.is_empty() {
                return Ok(false);
            }
            few
        };
        crate::mark("tables: cleaned");
        self.empty_tables(&zones)?;
        self.checkpoint_to(Lsn(0), false)?;
        Ok(true)
    }

    /// Frees a part of a deleted list or snapshot. False: there is none, or no zone for the records of that.
    pub(crate) fn drain_step(&self) -> Result<bool> {
        if self.core.lock().available() <= DRAIN_LEAVES {
            crate::mark("space: draining waits for the cleaner");
            return Ok(false);
        }
        match self.drain_some() {
            Err(error) if error.kind() == ErrorKind::Full => Ok(false),
            done => done,
        }
    }

    fn drain_some(&self) -> Result<bool> {
        let (list, section) = {
            let mut core = self.core.lock();
            // What a large commit put into the list just before it was deleted must be in the map to be found there.
            // Once it is deleted nothing more comes.
            while core.state.fold_some(FOLD_STEP) {
                crate::sync::MutexGuard::bump(&mut core);
            }
            let next = core.state.draining.difference(&core.undrained).next();
            let Some(list) = next.copied() else {
                drop(core);
                return Ok(self.leave_step()? || self.drain_list()?);
            };
            let sections = core.state.lists.get(&list).into_iter().flat_map(|list| list.sections.iter());
            let occupied = sections.filter(|(_, section)| !section.is_empty()).map(|(number, _)| number).next();
            (list, occupied)
        };
        let Some(section) = section else {
            crate::mark("space: deleted list gone");
            self.with_room(0, 32, Claim::Keeper, |core| core.write_record(&Record::ListGone { list }))?;
            return Ok(true);
        };
        let shift = self.shape.section_blocks_shift();
        let (first, end) = (u64::from(section) << shift, (u64::from(section) + 1) << shift);
        if let Err(error) = self.load_range(list, first, end) {
            crate::mark("space: deleted list with a damaged map left as it is");
            let mut core = self.core.lock();
            core.undrained.insert(list);
            core.keeper_error = Some(error);
            return Ok(true);
        }
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
