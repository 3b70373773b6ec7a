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

/// Whether somebody has a unit in hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitState {
    /// Somebody has.
    InUse,
    /// Nobody has, and it is whole.
    Kept,
    /// The disk was opened since: it is as its last barrier left it.
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
    /// A unit that nobody has in hand.
    pub kept: Option<Box<Unit>>,
    pub dormant: bool,
    /// Of a dormant one: what it holds.
    pub reserved: Reserved,
    pub generation: Option<u64>,
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

/// What the commit of a unit may need beyond what is stored, as of its last barrier.
pub(crate) fn held_by(state: &State, unit: UnitId) -> Reserved {
    let meta = state.versions.units.get(&unit).and_then(|list| state.lists.get(list));
    let rows = meta.map_or(0, |list| u64::from(list.meta.parent.0));
    let shadows = state.versions.shadows_of(unit).filter_map(|(_, own)| state.lists.get(&own));
    let blocks: u64 = shadows.map(|own| own.meta.cut).sum();
    Reserved { bytes: rows * BLOCK_CHARGE, blocks: blocks.saturating_add(rows) }
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
            dormant: true,
            reserved,
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
    /// images of those that have changed ordered lists.
    pub(super) fn keep_numbers(&self) -> Result<()> {
        let mut registry = self.units.lock();
        for entry in registry.values_mut().filter(|entry| entry.reserved.bytes > 0) {
            entry.generation = Some(self.generations.enter());
            let numbers = self.numbers_in(entry.list)?;
            self.core.lock().kept_numbers.extend(numbers);
        }
        Ok(())
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
        let known: Vec<_> = self.units.lock().iter().map(|(unit, entry)| (*unit, entry.list, entry.dormant)).collect();
        for (unit, list, dormant) in known {
            let image = dormant.then(|| self.image_of(list).and_then(|(bytes, _)| Unit::read_image(unit, &bytes)));
            let mut registry = self.units.lock();
            let Some(entry) = registry.get_mut(&unit) else { continue };
            let mut damage = None;
            match image {
                Some(Ok((cookie, until))) if entry.dormant => (entry.cookie, entry.until) = (cookie, until),
                Some(Err(error)) => damage = Some(error.to_string()),
                _ => {}
            }
            let state = match (&entry.kept, entry.dormant) {
                (Some(_), _) => UnitState::Kept,
                (None, true) => UnitState::Dormant,
                (None, false) => UnitState::InUse,
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
                damage,
            };
            drop(registry);
            let shadows: Vec<(ListId, u32)> = {
                let core = self.core.lock();
                let snapshot = core.state.lists.get(&list).map(|list| ListId(list.meta.snapshot.0));
                let snapshot = snapshot.and_then(|snapshot| core.state.lists.get(&snapshot));
                info.snapshot = snapshot.map(|snapshot| snapshot.meta.name.clone());
                let shadows = core.state.versions.shadows_of(unit);
                shadows.filter_map(|(_, own)| Some((own, core.state.lists.get(&own)?.meta.block_bytes()))).collect()
            };
            for (own, block_bytes) in shadows {
                info.bytes += self.mapped_blocks(own)? * u64::from(block_bytes);
            }
            units.push(info);
        }
        Ok(units)
    }

    /// Takes up a unit that nobody has in hand.
    pub(crate) fn resume_unit(self: &std::sync::Arc<Self>, unit: UnitId) -> Result<Unit> {
        let mut registry = self.units.lock();
        let entry = registry.get_mut(&unit).ok_or_else(|| none(&unit.0.to_string()))?;
        if let Some(kept) = entry.kept.take() {
            return Ok(*kept);
        }
        if !entry.dormant {
            return Err(Error::new(
                ErrorKind::Exists,
                format!("unit {} is in use: somebody else has it in hand", Name(unit, &entry.label)),
            ));
        }
        let revived = Unit::revive(std::sync::Arc::clone(self), unit, entry)?;
        entry.dormant = false;
        Ok(revived)
    }

    /// Ends a unit that nobody has in hand, as if it had never been.
    pub(crate) fn abort_unit(self: &std::sync::Arc<Self>, unit: UnitId) -> Result<()> {
        let mut registry = self.units.lock();
        let entry = registry.get_mut(&unit).ok_or_else(|| none(&unit.0.to_string()))?;
        if let Some(kept) = entry.kept.take() {
            drop(registry);
            kept.abort();
            return Ok(());
        }
        if !entry.dormant {
            return Err(Error::new(
                ErrorKind::Exists,
                format!("unit {} is in use: whoever has it in hand ends it", Name(unit, &entry.label)),
            ));
        }
        let entry = registry.remove(&unit).expect("found above");
        drop(registry);
        if let Some(generation) = entry.generation {
            self.generations.leave(generation);
        }
        let view = {
            let mut core = self.core.lock();
            core.reserved -= entry.reserved;
            core.outcomes.note_kept(unit, None);
            core.state.lists.get(&entry.list).map(|list| list.meta.snapshot)
        };
        self.end_lists_of(unit, entry.list)?;
        self.end_view(view.filter(|view| *view != SnapshotId(0)));
        Ok(())
    }

    /// A frozen view that a unit had: it goes if it has no name.
    pub(crate) fn end_view(&self, view: Option<SnapshotId>) {
        let Some(view) = view else { return };
        let mut core = self.core.lock();
        if let Some(count) = core.viewed.get_mut(&view) {
            *count -= 1;
            if *count == 0 {
                core.viewed.remove(&view);
            }
        }
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
