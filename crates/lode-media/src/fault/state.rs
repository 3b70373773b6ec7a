//! The volatile cache and the damage, and how reads, appends, erases, syncs and cuts change them.
//!
//! A read sees, each over the one before: the medium behind; what is **durably** otherwise there (`durable`: what
//! cuts left, damage); what an erase in the cache left (`erased`); what an append in the cache wrote (`volatile`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::bounds::{index, narrow};
use crate::ram::NOISE;
use crate::{Error, ErrorKind, Geometry, Medium, Position, Result, ZoneId};

use super::cells::{Cell, Cells, Key, of_zone, sectors};
use super::cut::{self, Pending};
use super::plan::Script;
use super::{Backing, FaultPlan, FaultPoint, Rng};

/// Everything that a [`super::FaultMedium`] knows beside the medium behind.
pub(super) struct State {
    pub(super) plan: FaultPlan,
    pub(super) rng: Rng,
    pub(super) script: Script,
    on: bool,
    pending: Vec<Pending>,
    volatile: Cells,
    /// Zones erased in the cache, and what they read as; those that read as before are not here.
    erased: BTreeMap<u32, u8>,
    /// Zones whose erase a failed sync has lost: the medium behind does not expect appends there.
    unerased: BTreeSet<u32>,
    pub(super) durable: Cells,
    pub(super) unreadable: BTreeSet<Key>,
    /// Sectors that were appended and synced since their zone was erased.
    pub(super) synced: BTreeSet<Key>,
    /// Where the next append goes astray: at a place, or anywhere.
    pub(super) misdirect: Option<Option<Position>>,
    pub(super) flips: u64,
}

impl State {
    pub(super) fn new(plan: FaultPlan) -> Self {
        State {
            rng: Rng::new(plan.seed),
            plan,
            script: Script::default(),
            on: true,
            pending: Vec::new(),
            volatile: Cells::default(),
            erased: BTreeMap::new(),
            unerased: BTreeSet::new(),
            durable: Cells::default(),
            unreadable: BTreeSet::new(),
            synced: BTreeSet::new(),
            misdirect: None,
            flips: 0,
        }
    }

    pub(super) fn set_plan(&mut self, plan: FaultPlan) {
        self.rng = Rng::new(plan.seed);
        self.plan = plan;
    }

    pub(super) fn pending_len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    pub(super) fn power_on(&mut self) {
        self.on = true;
    }

    fn check_power(&self) -> Result<()> {
        if self.on { Ok(()) } else { Err(Error::new(ErrorKind::Io, "power is off")) }
    }

    fn check_script(&mut self, point: FaultPoint, what: impl FnOnce() -> String) -> Result<()> {
        let Some(kind) = self.script.fires(point) else { return Ok(()) };
        Err(Error::new(kind, format!("injected: {} failed ({kind:?})", what())))
    }

    pub(super) fn read(&mut self, inner: &dyn Medium, geometry: Geometry, at: Position, into: &mut [u8]) -> Result<()> {
        self.check_power()?;
        self.check_script(FaultPoint::Read, || format!("the read of {} bytes at {}", into.len(), words(at)))?;
        self.check_readable(geometry, at, into.len())?;
        self.read_durable(inner, geometry, at, into)?;
        if let Some(&fill) = self.erased.get(&at.zone.0) {
            into.fill(fill);
        }
        self.volatile.patch(geometry, at, into);
        self.flip(into);
        Ok(())
    }

    pub(super) fn read_durable(
        &self,
        inner: &dyn Medium,
        geometry: Geometry,
        at: Position,
        into: &mut [u8],
    ) -> Result<()> {
        inner.read(at, into)?;
        self.durable.patch(geometry, at, into);
        Ok(())
    }

    pub(super) fn append(&mut self, geometry: Geometry, at: Position, pieces: &[&[u8]]) -> Result<()> {
        self.check_power()?;
        let mut data = pieces.concat();
        let failed = self.check_script(FaultPoint::Append, || format!("the append at {}", words(at)));
        if failed.is_err() {
            // Some of its front may have been written all the same.
            let align = index(geometry.append_align);
            let front = self.rng.index(data.len() / align + 1);
            data.truncate(front * align);
        }
        if !data.is_empty() {
            self.cache_append(geometry, at, data.into());
        }
        failed
    }

    fn cache_append(&mut self, geometry: Geometry, at: Position, data: Arc<[u8]>) {
        let astray = self.place_astray(geometry, data.len());
        let unexpected = astray.is_some() || self.unerased.contains(&at.zone.0);
        let at = astray.unwrap_or(at);
        self.volatile.insert_all(geometry, at, &data);
        self.pending.push(Pending::Append { at, data, astray: unexpected });
    }

    pub(super) fn erase(&mut self, zone: ZoneId) -> Result<()> {
        self.check_power()?;
        self.check_script(FaultPoint::Erase, || format!("the erase of zone {}", zone.0))?;
        self.blank(zone);
        self.pending.push(Pending::Erase(zone));
        Ok(())
    }

    pub(super) fn grow(&mut self, inner: &dyn Medium, zones: Option<u32>) -> Result<()> {
        self.check_power()?;
        self.check_script(FaultPoint::Grow, || format!("growing to {zones:?} zones"))?;
        inner.grow(zones)
    }

    pub(super) fn discard(&mut self, zone: ZoneId) -> Result<()> {
        self.check_power()?;
        self.check_script(FaultPoint::Discard, || format!("the discard of zone {}", zone.0))?;
        self.blank(zone);
        self.pending.push(Pending::Discard(zone));
        Ok(())
    }

    /// The zone reads as it did, as zeros or as noise from now on (M4).
    fn blank(&mut self, zone: ZoneId) {
        self.volatile.remove_zone(zone);
        self.unerased.remove(&zone.0);
        match [None, Some(0), Some(NOISE)][self.rng.index(3)] {
            Some(fill) => self.erased.insert(zone.0, fill),
            None => self.erased.remove(&zone.0),
        };
    }

    pub(super) fn sync(&mut self, inner: &dyn Medium, geometry: Geometry) -> Result<()> {
        self.check_power()?;
        let scripted = self.check_script(FaultPoint::Sync, || "the sync".to_owned());
        if scripted.is_err() {
            self.lose();
            return scripted;
        }
        for one in std::mem::take(&mut self.pending) {
            self.make_durable(inner, geometry, one)?;
        }
        self.volatile.clear();
        self.erased.clear();
        inner.sync()
    }

    /// A sync failed. What is lost stays visible, as pages marked clean do, and is durable never.
    fn lose(&mut self) {
        for one in std::mem::take(&mut self.pending) {
            let lost = self.rng.chance(self.plan.sync_loss_per_mille);
            match one {
                Pending::Erase(zone) if lost => drop(self.unerased.insert(zone.0)),
                Pending::Erase(zone) => drop(self.unerased.remove(&zone.0)),
                Pending::Append { .. } | Pending::Discard(_) => {}
            }
            if lost {
                continue;
            }
            self.pending.push(match one {
                Pending::Append { at, data, astray } => {
                    let astray = astray || self.unerased.contains(&at.zone.0);
                    Pending::Append { at, data, astray }
                }
                other => other,
            });
        }
    }

    fn make_durable(&mut self, inner: &dyn Medium, geometry: Geometry, one: Pending) -> Result<()> {
        match one {
            Pending::Erase(zone) | Pending::Discard(zone) => {
                match one {
                    Pending::Discard(_) => inner.discard(zone)?,
                    _ => inner.erase(zone)?,
                }
                self.durable.remove_zone(zone);
                remove_zone(&mut self.unreadable, zone);
                remove_zone(&mut self.synced, zone);
            }
            Pending::Append { at, data, astray } => {
                if astray {
                    self.durable.insert_all(geometry, at, &data);
                } else {
                    inner.append(at, &[&data])?;
                    self.durable.remove_all(geometry, at, data.len());
                }
                for (key, _) in sectors(geometry, at, data.len()) {
                    self.unreadable.remove(&key);
                    self.synced.insert(key);
                }
            }
        }
        Ok(())
    }

    pub(super) fn cut_by_chance(&mut self, inner: &dyn Medium, geometry: Geometry) {
        let mut rng = self.rng.clone();
        let old = |key: Key| {
            let mut bytes = vec![0; index(geometry.append_align)];
            let at = place(geometry, key);
            // A sector that cannot be read is left as zeros: the cut makes garbage of it anyway.
            let _ = self.read_durable(inner, geometry, at, &mut bytes);
            bytes
        };
        let after = cut::by_chance(&self.pending, geometry, &self.plan, &mut rng, &old);
        self.rng = rng;
        self.cut(after);
    }

    pub(super) fn cut_by_choice(&mut self, geometry: Geometry, choose: &mut dyn FnMut(u32) -> u32) {
        let after = cut::by_choice(&self.pending, geometry, choose);
        self.cut(after);
    }

    fn cut(&mut self, after: Cells) {
        self.durable.cover_with(after);
        self.pending.clear();
        self.volatile.clear();
        self.erased.clear();
        self.on = false;
    }

    /// Puts everything that is durably otherwise into the medium behind.
    pub(super) fn settle(self, inner: &dyn Backing, geometry: Geometry) {
        for (key, cell) in self.durable.iter() {
            let align = index(geometry.append_align);
            let bytes = match cell {
                Cell::Part { of, from } => of[*from..from + align].to_vec(),
                Cell::Fill(byte) => vec![*byte; align],
            };
            inner.overwrite(place(geometry, *key), &bytes).expect("a sector of the geometry can be put in place");
        }
    }
}

fn remove_zone(keys: &mut BTreeSet<Key>, zone: ZoneId) {
    let here: Vec<Key> = keys.range(of_zone(zone)).copied().collect();
    for key in here {
        keys.remove(&key);
    }
}

/// Where a sector starts.
pub(super) fn place(geometry: Geometry, key: Key) -> Position {
    Position { zone: ZoneId(key.zone), offset: key.sector * geometry.append_align }
}

/// A position in words.
pub(super) fn words(at: Position) -> String {
    format!("offset {} of zone {}", at.offset, at.zone.0)
}

/// The sectors that a range of any alignment touches.
pub(super) fn touched(geometry: Geometry, at: Position, len: usize) -> impl Iterator<Item = (Key, usize)> {
    let skip = at.offset % geometry.append_align;
    let start = Position { zone: at.zone, offset: at.offset - skip };
    let len = if len == 0 { 0 } else { len + narrow(u64::from(skip)) };
    sectors(geometry, start, len)
}
