//! Open units: each a private shadow that no state shows before its commit (P1, P4).

use super::lists::{ListOp, Lists, block_mut, with_written};
use super::volume::{VolumeState, pieces, view, written};
use super::{Model, State};
use crate::rng::narrow;
use lode::{UnitConflicts, UnitOptions, UnitView};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a unit would do to one volume.
#[derive(Clone, Debug)]
struct Shadow {
    block_bytes: u32,
    /// The size, if the unit changed it, and the smallest it made it: what lay behind that is cut off.
    size: Option<(u64, u64)>,
    /// The blocks the unit changed; `None`: zeros.
    blocks: BTreeMap<u64, Option<Arc<[u8]>>>,
}

/// An open unit.
#[derive(Clone, Debug, Default)]
pub struct UnitState {
    /// By name and generation: a volume made again is another one.
    shadows: BTreeMap<(String, u64), Shadow>,
    /// What it did to lists, to be done again at the commit.
    log: Vec<ListOp>,
    /// Blocks of lists as it wrote them.
    written: BTreeMap<u64, Arc<[u8]>>,
    /// What it sees, and what is a conflict.
    options: UnitOptions,
    /// The state when it began, and its number.
    base: Arc<State>,
    began: usize,
    /// Names its last barrier.
    barrier: u64,
}

impl UnitState {
    /// The lists as the unit would leave them; `None`: what it did has no meaning on these.
    fn lists_on(&self, lists: &Lists) -> Option<Lists> {
        let (mut lists, mut gone) = (lists.clone(), BTreeSet::new());
        for op in &self.log {
            op.apply(&mut lists, &mut gone)?;
        }
        for (block, bytes) in &self.written {
            match block_mut(&mut lists, *block) {
                Some((content, _)) => *content = Some(Arc::clone(bytes)),
                None if gone.contains(block) => {} // It deleted the list itself.
                None => return None,
            }
        }
        Some(lists)
    }

    /// What its user gave to its last barrier.
    pub fn cookie(&self) -> [u8; 8] {
        self.barrier.to_le_bytes()
    }

    /// The same unit in another history.
    pub fn reopened(&self) -> UnitState {
        UnitState { began: usize::MAX, ..self.clone() }
    }

    fn shadow(&self, name: &str, volume: &VolumeState) -> Option<&Shadow> {
        self.shadows.get(&(name.to_owned(), volume.generation))
    }
}

/// Whether others have changed what a unit changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// They have, and it differs.
    Yes,
    /// They may have, with the same content.
    Perhaps,
    /// Nobody has done anything.
    No,
}

/// What a commit comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// It has a meaning on the committed state, and was applied.
    Applied,
    /// A volume is gone, or a block lies beyond its end (R15); nothing was applied.
    Conflict,
}

impl Model {
    /// The lists as a unit sees them; `None`: what it did has no meaning any more.
    pub fn unit_lists(&self, unit: u32) -> Option<Lists> {
        self.units[&unit].lists_on(&self.view(unit).lists)
    }

    /// Does an operation on lists in a unit.
    pub fn unit_list_op(&mut self, unit: u32, op: ListOp) {
        let unit = self.units.get_mut(&unit).expect("the model is only asked for open units");
        if let ListOp::Remove(_, block) = op {
            unit.written.remove(&block);
        }
        unit.log.push(op);
    }

    /// Writes into a block of a list in a unit.
    pub fn unit_list_write(&mut self, unit: u32, block: u64, offset: u32, data: &[u8]) {
        let mut lists = self.unit_lists(unit).expect("the model is only asked for what has a meaning");
        let (content, size) = block_mut(&mut lists, block).expect("the model is only asked for blocks it has");
        let bytes = with_written(content.as_ref(), size, offset, data);
        self.units.get_mut(&unit).expect("it is open").written.insert(block, bytes);
    }

    /// Begins a unit.
    pub fn begin(&mut self, unit: u32) {
        self.begin_with(unit, UnitOptions::default());
    }

    /// Begins a unit that sees one instant, or is told of conflicts.
    pub fn begin_with(&mut self, unit: u32, options: UnitOptions) {
        let (base, began) = (Arc::clone(self.now()), self.appended());
        self.units.insert(unit, UnitState { options, base, began, ..UnitState::default() });
    }

    /// What a unit sees beside its own changes.
    fn view(&self, unit: u32) -> &Arc<State> {
        let unit = &self.units[&unit];
        if unit.options.view == UnitView::Frozen { &unit.base } else { self.now() }
    }

    /// Whether a unit sees a volume: a frozen view does not see newer ones.
    pub fn unit_sees(&self, unit: u32, name: &str) -> bool {
        let (Some(seen), Some(now)) = (self.view(unit).volumes.get(name), self.volume(name)) else { return false };
        seen.generation == now.generation
    }

    /// Whether a unit shows only what is committed.
    pub fn unit_shows_committed(&self, unit: u32) -> bool {
        self.units[&unit].options.view == UnitView::Committed
    }

    /// Whether what others changed since must, may, or must not be a conflict: same content may have been written again.
    pub fn changed_by_others(&self, unit: u32) -> Changed {
        let (unit, now) = (&self.units[&unit], self.now());
        if unit.options.conflicts == UnitConflicts::Allowed || unit.began == self.appended() {
            return Changed::No;
        }
        let differs = unit.shadows.iter().any(|((name, _), shadow)| {
            let (Some(then), Some(now)) = (unit.base.volumes.get(name), now.volumes.get(name)) else { return false };
            let same = then.generation == now.generation;
            let resized = shadow.size.is_some() && then.bytes != now.bytes;
            same && (resized || shadow.blocks.keys().any(|block| then.block(*block) != now.block(*block)))
        });
        let block = |lists: &Lists, block: u64| {
            let found = lists.iter().flat_map(|state| &state.blocks).find(|(found, _)| *found == block);
            found.map(|(_, content)| content.clone())
        };
        let written = |number: &u64| match (block(&unit.base.lists, *number), block(&now.lists, *number)) {
            (Some(then), Some(now)) => then != now,
            _ => false,
        };
        let list = |lists: &Lists, list: u32| lists.iter().find(|state| state.list == list).cloned();
        let lost = |op: &ListOp| match op {
            ListOp::Remove(_, block) => written(block),
            ListOp::Delete(number) => match (list(&unit.base.lists, *number), list(&now.lists, *number)) {
                (Some(then), Some(now)) => then != now,
                _ => false,
            },
            _ => false,
        };
        if differs || unit.written.keys().any(written) || unit.log.iter().any(lost) {
            Changed::Yes
        } else {
            Changed::Perhaps
        }
    }

    /// Whether a unit is open.
    pub fn has_unit(&self, unit: u32) -> bool {
        self.units.contains_key(&unit)
    }

    /// The open units.
    pub fn units(&self) -> Vec<u32> {
        self.units.keys().copied().collect()
    }

    /// Whether an open unit has changed something of a volume.
    pub fn shadowed(&self, name: &str) -> bool {
        self.units.values().any(|unit| unit.shadows.keys().any(|(shadowed, _)| shadowed == name))
    }

    /// The size that a unit sees.
    pub fn unit_bytes(&self, unit: u32, name: &str) -> u64 {
        let Some(volume) = self.volume(name) else { return 0 };
        let size = self.units[&unit].shadow(name, volume).and_then(|shadow| shadow.size);
        let seen = self.view(unit).volumes.get(name).map_or(0, |seen| seen.bytes);
        size.map_or(seen, |size| size.0)
    }

    /// Where the last block ends that a unit has changed in a volume.
    pub fn unit_reach(&self, unit: u32, name: &str) -> u64 {
        let Some(volume) = self.volume(name) else { return 0 };
        let last = self.units[&unit].shadow(name, volume).and_then(|shadow| shadow.blocks.last_key_value());
        last.map_or(0, |(block, _)| (block + 1) * volume.size())
    }

    /// Fills `into` with what a unit sees of a volume.
    pub fn unit_read(&self, unit: u32, name: &str, offset: u64, into: &mut [u8]) {
        let volume = &self.view(unit).volumes[name];
        let shadow = self.units[&unit].shadow(name, volume).filter(|_| !self.unit_shows_committed(unit));
        view(volume.size(), offset, into, |block| seen(volume, shadow, block));
    }

    /// Writes in a unit.
    pub fn unit_write(&mut self, unit: u32, name: &str, offset: u64, data: &[u8]) {
        let volume = Arc::clone(&self.view(unit).volumes[name]);
        let shadow = self.shadow(unit, name, &volume);
        let blocks = written(volume.size(), offset, data, |block| seen(&volume, Some(shadow), block));
        shadow.blocks.extend(blocks.into_iter().map(|(block, bytes)| (block, Some(bytes))));
    }

    /// Makes a range read as zeros, in a unit. Whole blocks become holes; one that lies beyond the end at the commit is
    /// no conflict: it is not there.
    pub fn unit_discard(&mut self, unit: u32, name: &str, offset: u64, bytes: u64) {
        let volume = Arc::clone(&self.view(unit).volumes[name]);
        let shadow = self.shadow(unit, name, &volume);
        for (block, from, to) in pieces(volume.size(), offset, bytes) {
            if to - from == volume.size() {
                shadow.blocks.insert(block, None);
            } else {
                let old = seen(&volume, Some(shadow), block);
                let mut left = old.map_or_else(|| vec![0; narrow(volume.size())], |old| old.to_vec());
                left[narrow(from)..narrow(to)].fill(0);
                shadow.blocks.insert(block, Some(left.into()));
            }
        }
    }

    /// Changes a volume's size to a multiple of its block, in a unit.
    pub fn unit_resize(&mut self, unit: u32, name: &str, bytes: u64) {
        let volume = Arc::clone(&self.view(unit).volumes[name]);
        let shadow = self.shadow(unit, name, &volume);
        let least = shadow.size.map_or(bytes, |size| size.1);
        shadow.size = Some((bytes, least.min(bytes)));
        shadow.blocks.retain(|block, _| *block * volume.size() < bytes);
    }

    fn shadow(&mut self, unit: u32, name: &str, volume: &VolumeState) -> &mut Shadow {
        let unit = self.units.get_mut(&unit).expect("the model is only asked for open units");
        let fresh = || Shadow { block_bytes: volume.block_bytes, size: None, blocks: BTreeMap::new() };
        unit.shadows.entry((name.to_owned(), volume.generation)).or_insert_with(fresh)
    }

    /// What a unit did so far outlives a crash.
    pub fn barrier(&mut self, number: u32, cookie: u64) {
        let unit = self.units.get_mut(&number).expect("the model is only asked for open units");
        unit.barrier = cookie;
        let unit = Arc::new(unit.clone());
        let mut state = State::clone(self.now());
        state.dormant.insert(number, unit);
        self.push(state);
    }

    /// Commits a unit: all of it becomes the next state; or nothing, and it is still open.
    pub fn commit(&mut self, number: u32) -> Committed {
        let unit = self.units[&number].clone();
        let mut state = State::clone(self.now());
        state.dormant.remove(&number);
        match unit.lists_on(&state.lists) {
            Some(lists) => state.lists = lists,
            None => return Committed::Conflict,
        }
        for ((name, generation), shadow) in unit.shadows {
            match state.volumes.get_mut(&name) {
                Some(volume) if volume.generation == generation => {
                    if !apply(Arc::make_mut(volume), &shadow) {
                        return Committed::Conflict;
                    }
                }
                _ => return Committed::Conflict,
            }
        }
        self.units.remove(&number);
        self.push(state);
        Committed::Applied
    }

    /// Forgets a unit.
    pub fn abort(&mut self, unit: u32) {
        self.units.remove(&unit);
        if self.now().dormant.contains_key(&unit) {
            let mut state = State::clone(self.now());
            state.dormant.remove(&unit);
            self.push(state);
        }
    }
}

/// A block as a unit sees it.
fn seen(volume: &VolumeState, shadow: Option<&Shadow>, block: u64) -> Option<Arc<[u8]>> {
    if let Some(shadow) = shadow {
        if let Some(own) = shadow.blocks.get(&block) {
            return own.clone();
        }
        if let Some((_, least)) = shadow.size {
            if block * volume.size() >= least {
                return None;
            }
            let cut = least - block * volume.size();
            if cut < volume.size() {
                let mut bytes = volume.block(block)?.to_vec();
                bytes[narrow(cut)..].fill(0);
                return Some(bytes.into());
            }
        }
    }
    volume.block(block).cloned()
}

/// Applies a unit's shadow to a volume. False: a block lies beyond the end.
fn apply(volume: &mut VolumeState, shadow: &Shadow) -> bool {
    if let Some((bytes, least)) = shadow.size {
        volume.resize(least.min(volume.bytes));
        volume.resize(bytes);
    }
    for (block, bytes) in &shadow.blocks {
        if *block * u64::from(shadow.block_bytes) < volume.bytes {
            volume.put(*block, bytes.clone());
        } else if bytes.is_some() {
            return false;
        }
    }
    // A block that the unit holds may be the last by now, and end inside.
    volume.resize(volume.bytes);
    true
}
