//! Units that are known by more than their handle: those with a label, and those with a barrier.
//!
//! ```text
//!              drop of the handle            resume
//!   in use ─────────────────────────> kept ──────────> in use        (with a label; without one it is aborted)
//!     │ barrier, crash                  │ barrier, crash
//!     └─────────> dormant <─────────────┘     resume ──> in use, as its last barrier left it
//! ```
//! Lock order: the registry before the core.

use super::volumes::LIST_RECORD;
use super::{Core, Inner, Reserved, space::Claim};
use crate::error::{Error, ErrorKind, Result};
use crate::format::records::{ListMeta, ListState, Record};
use crate::shape::BLOCK_CHARGE;
use crate::state::State;
use crate::types::{ListId, SnapshotId, UnitId};
use crate::unit::{Barrier, Unit};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whether somebody has a unit in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitState {
    /// Somebody has.
    InUse,
    /// Nobody has, and it is whole.
    Kept,
    /// It is as its last barrier left it: the disk was opened since, or an operation failed half-way.
    Dormant,
}

/// An open unit that has a label or a barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitInfo {
    /// Its number.
    pub id: UnitId,
    /// The name by which it is taken up again; may be empty.
    pub label: String,
    /// What its user gave to its last barrier.
    pub cookie: Vec<u8>,
    /// When it began, as its user said, in nanoseconds since 1970.
    pub made: u64,
    /// Until when it is kept if nobody takes it up; zero: for ever.
    pub until: u64,
    /// Bytes of the blocks that it had changed at its last barrier.
    pub bytes: u64,
    /// Whether somebody has it in hand.
    pub state: UnitState,
    /// It sees one instant: of this snapshot, unless that has no name.
    pub snapshot: Option<String>,
    /// It has a barrier.
    pub has_barrier: bool,
    /// Why what it was at its last barrier cannot be read: it can only be aborted.
    pub damage: Option<String>,
}

/// What is known of such a unit.
#[derive(Default)]
pub(crate) struct Entry {
    pub label: String,
    pub made: u64,
    pub until: u64,
    /// Its list; zero: it has no barrier.
    pub list: ListId,
    pub cookie: Vec<u8>,
    /// It sees one instant. Of a dormant unit only its image says so.
    pub frozen: bool,
    /// A unit that nobody has in hand.
    pub kept: Option<Box<Unit>>,
    /// It is as its last barrier left it.
    pub dormant: Option<Dormant>,
}

/// What a dormant unit holds.
#[derive(Default)]
pub(crate) struct Dormant {
    pub reserved: Reserved,
    /// Numbers that are freed wait for it.
    pub generation: Option<u64>,
    /// Its image was read.
    pub learned: bool,
    /// Why it cannot be taken up in this opening.
    pub damage: Option<String>,
}

impl Entry {
    pub fn of(barrier: &Barrier) -> Entry {
        Entry {
            label: barrier.label.clone(),
            made: barrier.made,
            until: barrier.until,
            list: barrier.list,
            cookie: barrier.cookie.clone(),
            ..Entry::default()
        }
    }
}

/// Units by number.
pub(crate) type Registry = BTreeMap<UnitId, Entry>;

/// What a disk that is opened finds of the units of before.
pub(crate) struct Found {
    pub registry: Registry,
    /// Lists of units that never had a whole barrier.
    pub stray: Vec<ListId>,
    /// Views that no unit has any more.
    pub views: Vec<SnapshotId>,
    pub reserved: Reserved,
}

/// At most so many blocks are in a shadow. The count comes from the disk.
pub(crate) fn shadow_blocks(own: &ListMeta) -> u64 {
    own.cut.min(own.blocks())
}

/// What the commit of a unit may need beyond what is stored, as of its last barrier.
pub(crate) fn held_by(state: &State, unit: UnitId) -> Reserved {
    let meta = state.versions.units.get(&unit).and_then(|list| state.lists.get(list));
    let rows = meta.map_or(0, |list| u64::from(list.meta.parent.0));
    let shadows = state.versions.shadows_of(unit).filter_map(|(_, own)| state.lists.get(&own));
    let blocks = shadows.fold(0, |sum: u64, own| sum.saturating_add(shadow_blocks(&own.meta)));
    // No more than the disk could hold, so that what a damaged count says adds up.
    let most = state.shape.promisable() / BLOCK_CHARGE;
    Reserved { bytes: rows * BLOCK_CHARGE, blocks: blocks.min(most) + rows }
}

/// Cost: the number of such units.
pub(crate) fn find(state: &State) -> Found {
    let mut found =
        Found { registry: Registry::new(), stray: Vec::new(), views: state.views(), reserved: Reserved::default() };
    for (unit, list) in &state.versions.units {
        let Some(meta) = state.lists.get(list).map(|list| &list.meta) else { continue };
        if meta.bytes == 0 {
            found.stray.extend(std::iter::once(*list).chain(state.versions.shadows_of(*unit).map(|(_, own)| own)));
            continue;
        }
        found.views.retain(|view| *view != meta.snapshot);
        let reserved = held_by(state, *unit);
        found.reserved += reserved;
        let entry = Entry {
            label: meta.name.clone(),
            made: meta.made,
            list: *list,
            dormant: Some(Dormant { reserved, ..Dormant::default() }),
            ..Entry::default()
        };
        found.registry.insert(*unit, entry);
    }
    found.stray.extend(state.versions.stray_shadows());
    found
}

fn none(what: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no open unit {what}"))
}

impl Inner {
    /// Numbers that dormant units name are kept for them, and what is freed from here on waits for them (R4). Reads the
    /// images of those that have changed ordered lists. Of one that cannot be read no number is known: no old one is
    /// given out again then.
    pub(super) fn keep_numbers(&self) {
        for (unit, list) in self.dormant(|core, unit, list| {
            let rows = core.state.lists.get(&list).map_or(0, |list| list.meta.parent.0);
            rows > 0 || core.state.versions.shadows_of(unit).any(|(of, _)| core.state.tables.table_of(of).is_some())
        }) {
            let numbers = self.numbers_in(unit, list);
            let mut registry = self.units.lock();
            let held = registry.get_mut(&unit).and_then(|entry| entry.dormant.as_mut());
            let held = held.expect("nobody can take it up before the disk is open");
            held.generation = Some(self.generations.enter());
            let mut core = self.core.lock();
            match numbers {
                Ok(numbers) => core.kept_numbers.extend(numbers),
                Err(error) => {
                    crate::mark("unit: image that cannot be read");
                    core.keeps_numbers = true;
                    held.damage = Some(error.to_string());
                }
            }
        }
    }

    /// Dormant units of which `asked` is true, each with its list.
    fn dormant(&self, asked: impl Fn(&Core, UnitId, ListId) -> bool) -> Vec<(UnitId, ListId)> {
        let registry = self.units.lock();
        let core = self.core.lock();
        let dormant = registry.iter().filter(|(_, entry)| entry.dormant.is_some());
        let dormant = dormant.map(|(unit, entry)| (*unit, entry.list));
        dormant.filter(|(unit, list)| asked(&core, *unit, *list)).collect()
    }

    /// Reads what is known of a dormant unit only by its image. An error: it may be readable the next time.
    fn learn(&self, unit: UnitId) -> Result<()> {
        let list = match self.units.lock().get(&unit) {
            Some(Entry { dormant: Some(held), list, .. }) if !held.learned => *list,
            _ => return Ok(()),
        };
        let image = self.image_of(list).and_then(|(bytes, _)| Unit::read_image(unit, &bytes));
        let mut registry = self.units.lock();
        let Some(entry) = registry.get_mut(&unit) else { return Ok(()) };
        let Some(held) = &mut entry.dormant else { return Ok(()) };
        match image {
            Ok(told) => ((entry.cookie, entry.until, entry.frozen), held.learned) = (told, true),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Why dormant units cannot be taken up.
    pub(crate) fn damaged_units(&self) -> Vec<String> {
        let dormant = self.dormant(|_, _, _| true).into_iter();
        let told = dormant.filter_map(|(unit, _)| {
            let error = self.learn(unit).err()?;
            let label = self.units.lock().get(&unit).map_or_else(String::new, |entry| entry.label.clone());
            Some(format!("unit {} can only be aborted: {error}", Name(unit, &label)))
        });
        told.collect()
    }

    /// Units that nobody has in hand and that were to be kept until some time before `now`; and why that is not known of
    /// all.
    pub(crate) fn units_until(&self, now: u64) -> (Vec<UnitId>, Result<()>) {
        let mut known = Ok(());
        for (unit, _) in self.dormant(|_, _, _| true) {
            known = known.and(self.learn(unit));
        }
        let registry = self.units.lock();
        let ended = registry
            .iter()
            .filter(|(_, entry)| (1..now).contains(&entry.until) && (entry.kept.is_some() || entry.dormant.is_some()));
        (ended.map(|(unit, _)| *unit).collect(), known)
    }

    /// Gives units that nobody has in hand a barrier, so that an opening finds them as they are. The first error, with
    /// the others done.
    pub(crate) fn keep_units(self: &Arc<Self>) -> Result<()> {
        let registry = self.units.lock();
        let kept: Vec<UnitId> =
            registry.iter().filter(|(_, entry)| entry.kept.is_some()).map(|(unit, _)| *unit).collect();
        drop(registry);
        let mut done = Ok(());
        for unit in kept {
            let Ok(mut unit) = self.resume_unit(unit) else { continue };
            let cookie = unit.cookie().to_vec();
            let barrier = unit.barrier_as(&cookie);
            unit.keep();
            done = done.and(barrier.map(|_| ()));
        }
        done
    }

    /// The number of the unit with a label.
    pub(crate) fn unit_labelled(&self, label: &str) -> Result<UnitId> {
        let registry = self.units.lock();
        let found = registry.iter().find(|(_, entry)| entry.label == label);
        found.map(|(unit, _)| *unit).ok_or_else(|| none(&format!("with the label {label}")))
    }

    /// All that the registry has.
    pub(crate) fn list_units(&self) -> Result<Vec<UnitInfo>> {
        let mut units = Vec::new();
        let known: Vec<_> = self.units.lock().iter().map(|(unit, entry)| (*unit, entry.list)).collect();
        for (unit, list) in known {
            let unread = self.learn(unit).err().map(|error| error.to_string());
            let registry = self.units.lock();
            let Some(entry) = registry.get(&unit) else { continue };
            let state = match (&entry.kept, &entry.dormant) {
                (Some(_), _) => UnitState::Kept,
                (None, Some(_)) => UnitState::Dormant,
                (None, None) => UnitState::InUse,
            };
            let mut info = UnitInfo {
                id: unit,
                label: entry.label.clone(),
                cookie: entry.cookie.clone(),
                made: entry.made,
                until: entry.until,
                bytes: 0,
                state,
                snapshot: None,
                has_barrier: list != ListId(0),
                damage: entry.dormant.as_ref().and_then(|held| held.damage.clone()).or(unread),
            };
            let frozen = entry.frozen;
            drop(registry);
            let shadows: Vec<(ListId, u32)> = {
                let core = self.core.lock();
                let snapshot = core.state.lists.get(&list).map(|list| ListId(list.meta.snapshot.0));
                let snapshot = snapshot.and_then(|snapshot| core.state.lists.get(&snapshot));
                // Else it is there for conflicts alone.
                info.snapshot = snapshot.filter(|_| frozen).map(|snapshot| snapshot.meta.name.clone());
                let shadows = core.state.versions.shadows_of(unit);
                shadows.filter_map(|(_, own)| Some((own, core.state.lists.get(&own)?.meta.block_bytes()))).collect()
            };
            for (own, block_bytes) in shadows {
                match self.mapped_blocks(own) {
                    Ok(blocks) => info.bytes += blocks * u64::from(block_bytes),
                    Err(error) => info.damage = info.damage.or(Some(error.to_string())),
                }
            }
            units.push(info);
        }
        Ok(units)
    }

    /// Takes up a unit that nobody has in hand.
    pub(crate) fn resume_unit(self: &Arc<Self>, unit: UnitId) -> Result<Unit> {
        let mut registry = self.units.lock();
        let entry = registry.get_mut(&unit).ok_or_else(|| none(&unit.0.to_string()))?;
        if let Some(kept) = entry.kept.take() {
            return Ok(kept.in_hand());
        }
        if let Some(damage) = entry.dormant.as_ref().and_then(|held| held.damage.as_ref()) {
            let name = Name(unit, &entry.label);
            return Err(Error::new(ErrorKind::Corrupt, format!("unit {name} can only be aborted: {damage}")));
        }
        let mut held = entry.dormant.take().ok_or_else(|| {
            let name = Name(unit, &entry.label);
            Error::new(ErrorKind::Exists, format!("unit {name} is in use: somebody else has it in hand"))
        })?;
        let list = entry.list;
        drop(registry); // It is in use by now.
        let revived = Unit::revive(self, unit, list, &mut held);
        if let Some(entry) = self.units.lock().get_mut(&unit) {
            match &revived {
                Ok(unit) => (entry.cookie, entry.until, entry.frozen) = unit.told(),
                Err(_) => entry.dormant = Some(held),
            }
        }
        revived
    }

    /// Ends a unit that nobody has in hand, as if it had never been.
    pub(crate) fn abort_unit(self: &Arc<Self>, unit: UnitId) -> Result<()> {
        let mut registry = self.units.lock();
        let entry = registry.get_mut(&unit).ok_or_else(|| none(&unit.0.to_string()))?;
        if let Some(kept) = entry.kept.take() {
            drop(registry);
            kept.abort();
            return Ok(());
        }
        let held = entry.dormant.take().ok_or_else(|| {
            let name = Name(unit, &entry.label);
            Error::new(ErrorKind::Exists, format!("unit {name} is in use: whoever has it in hand ends it"))
        })?;
        let list = entry.list;
        registry.remove(&unit);
        drop(registry);
        if let Some(generation) = held.generation {
            self.generations.leave(generation);
        }
        let view = {
            let mut core = self.core.lock();
            core.reserved -= held.reserved;
            core.outcomes.note_kept(unit, None);
            core.state.lists.get(&list).map(|list| list.meta.snapshot)
        };
        self.end_lists_of(unit, list)?;
        if let Some(view) = view.filter(|view| *view != SnapshotId(0)) {
            self.retire_view(view);
        }
        Ok(())
    }

    /// A unit in hand sees a snapshot.
    pub(crate) fn hold_view(&self, view: Option<SnapshotId>) {
        if let Some(view) = view {
            *self.core.lock().viewed.entry(view).or_default() += 1;
        }
    }

    /// It does not any more.
    pub(crate) fn end_view(&self, view: Option<SnapshotId>) {
        let Some(view) = view else { return };
        let mut core = self.core.lock();
        if let Some(count) = core.viewed.get_mut(&view) {
            *count -= 1;
            if *count == 0 {
                core.viewed.remove(&view);
            }
        }
        drop(core);
        self.retire_view(view);
    }

    /// A snapshot goes if it has no name and nobody sees it.
    fn retire_view(&self, view: SnapshotId) {
        let mut core = self.core.lock();
        let named = core.state.lists.get(&ListId(view.0)).is_some_and(|list| !list.meta.name.is_empty());
        if !named && !core.is_viewed(view) {
            core.ended_views.push(view);
            drop(core);
            self.keeper.notify_all();
        }
    }

    /// The lists of a unit's own go: first the one that says that it is there.
    pub(crate) fn end_lists_of(&self, unit: UnitId, list: ListId) -> Result<()> {
        let mut own: Vec<ListId> = vec![list];
        own.extend(self.core.lock().state.versions.shadows_of(unit).map(|(_, own)| own));
        self.drop_own(&own)?;
        self.keeper.notify_all();
        Ok(())
    }

    /// What cannot be done now is done later, or by the next opening.
    fn drop_own(&self, own: &[ListId]) -> Result<()> {
        for (n, list) in own.iter().enumerate() {
            let done = self.with_room(0, LIST_RECORD, Claim::Urgent, |core| core.end_own(*list));
            if let Err(error) = done {
                self.core.lock().ended_lists.extend(&own[n..]);
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Core {
    /// Whether an open unit sees a snapshot.
    pub fn is_viewed(&self, view: SnapshotId) -> bool {
        let units = self.state.versions.units.values().filter_map(|list| self.state.lists.get(list));
        self.viewed.contains_key(&view) || units.into_iter().any(|unit| unit.meta.snapshot == view)
    }

    /// A list of a unit's own is drained from here on.
    pub fn end_own(&mut self, list: ListId) {
        let meta = self.state.lists.get(&list).map(|list| list.meta.clone());
        if let Some(meta) = meta.filter(|meta| meta.state == ListState::There && meta.form.is_private()) {
            self.write_record(&Record::List(ListMeta { state: ListState::Draining, ..meta }));
        }
    }
}

/// A unit towards people.
struct Name<'a>(UnitId, &'a str);

impl std::fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.1.is_empty() { write!(f, "{}", self.0.0) } else { f.write_str(self.1) }
    }
}
