//! The reference: what a logical disk is, in the plainest words.
//!
//! A [`State`] is the content of all volumes. Every operation, and every commit of a unit, makes the next state; the
//! history of states is the merged stream (P2). A flush says from which state on a crash may not take away (P3). After
//! a crash the disk must equal one of [`Model::allowed`]. A unit keeps a private shadow that no state shows before its
//! commit (P1, P4).
//!
//! Blocks that are zero and blocks that are not there are the same here, since they read the same.
//! Errors of media are not modelled.

pub mod lists;

use crate::rng::{hash_bytes, mix, narrow, wide};
use lists::{ListOp, Lists, block_mut, lists_hash, with_written};
use lode::{UnitConflicts, UnitOptions, UnitView};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many blocks share one piece of a volume's table: what is copied when a block changes.
const PIECE: u64 = 32;

type Piece = Vec<Option<Arc<[u8]>>>;

/// A volume's content. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct VolumeState {
    /// Tells a volume from another of the same name, made later.
    pub generation: u64,
    /// Bytes of one block.
    pub block_bytes: u32,
    /// Whether the volume was made with compression.
    pub compressed: bool,
    /// The size in bytes.
    pub bytes: u64,
    pieces: BTreeMap<u64, Arc<Piece>>,
    /// The sum over the blocks that are not zero.
    content: u64,
}

impl VolumeState {
    /// A volume that reads as zeros.
    pub fn new(generation: u64, bytes: u64, block_bytes: u32, compressed: bool) -> Self {
        VolumeState { generation, block_bytes, compressed, bytes, pieces: BTreeMap::new(), content: 0 }
    }

    /// How many blocks the volume has, the last one perhaps cut short.
    pub fn blocks(&self) -> u64 {
        self.bytes.div_ceil(self.size())
    }

    /// A block's bytes; `None`: zeros.
    pub fn block(&self, block: u64) -> Option<&Arc<[u8]>> {
        self.pieces.get(&(block / PIECE))?[narrow(block % PIECE)].as_ref()
    }

    /// The numbers of all blocks that are not zero.
    pub fn present(&self) -> impl Iterator<Item = u64> {
        let blocks = self.pieces.iter().flat_map(|(piece, blocks)| {
            blocks.iter().enumerate().filter(|(_, block)| block.is_some()).map(move |(at, _)| piece * PIECE + wide(at))
        });
        blocks.collect::<Vec<u64>>().into_iter()
    }

    /// Fills `into` with what the volume holds from `offset` on.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        view(self.size(), offset, into, |block| self.block(block).cloned());
    }

    /// Gives a block new bytes.
    pub fn put(&mut self, block: u64, bytes: Option<Arc<[u8]>>) {
        let bytes = bytes.filter(|bytes| bytes.iter().any(|byte| *byte != 0));
        if let Some(old) = self.block(block) {
            self.content = self.content.wrapping_sub(block_hash(block, old));
        } else if bytes.is_none() {
            return;
        }
        if let Some(new) = &bytes {
            self.content = self.content.wrapping_add(block_hash(block, new));
        }
        let piece = self.pieces.entry(block / PIECE).or_insert_with(|| Arc::new(vec![None; narrow(PIECE)]));
        Arc::make_mut(piece)[narrow(block % PIECE)] = bytes;
    }

    /// Changes the size; what is cut off is gone, what is added reads as zeros.
    pub fn resize(&mut self, bytes: u64) {
        if bytes <= self.bytes {
            let keep = bytes.div_ceil(self.size());
            let gone: Vec<u64> = self.present().filter(|block| *block >= keep).collect();
            for block in gone {
                self.put(block, None);
            }
            let rest = bytes % self.size();
            if let (true, Some(last)) = (rest != 0, self.block(keep.saturating_sub(1)).cloned()) {
                let mut last = last.to_vec();
                last[narrow(rest)..].fill(0);
                self.put(keep - 1, Some(last.into()));
            }
        }
        self.bytes = bytes;
    }

    /// A hash of all that a client can see of the volume.
    pub fn hash(&self, name: &str) -> u64 {
        let shape = mix(mix(self.bytes, u64::from(self.block_bytes)), u64::from(self.compressed));
        mix(hash_bytes(name.as_bytes()), mix(shape, self.content))
    }

    fn size(&self) -> u64 {
        u64::from(self.block_bytes)
    }
}

/// The hash of one block that is not zero, as it goes into a volume's sum.
pub fn block_hash(block: u64, bytes: &[u8]) -> u64 {
    mix(block, hash_bytes(bytes))
}

/// Fills `into` from blocks of `size` bytes, beginning at the byte `offset`.
fn view(size: u64, offset: u64, into: &mut [u8], block: impl Fn(u64) -> Option<Arc<[u8]>>) {
    for (at, from, to) in pieces(size, offset, wide(into.len())) {
        let start = narrow(at * size + from - offset);
        let part = &mut into[start..start + narrow(to - from)];
        match block(at) {
            Some(bytes) => part.copy_from_slice(&bytes[narrow(from)..narrow(to)]),
            None => part.fill(0),
        }
    }
}

/// The blocks that a range of bytes touches, each with the range inside of it.
pub fn pieces(size: u64, offset: u64, bytes: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let end = offset + bytes;
    let blocks = if bytes == 0 { 0..0 } else { offset / size..(end - 1) / size + 1 };
    blocks.map(move |block| {
        let start = block * size;
        (block, offset.max(start) - start, end.min(start + size) - start)
    })
}

/// The blocks as a write of `data` at `offset` leaves them.
fn written(size: u64, offset: u64, data: &[u8], old: impl Fn(u64) -> Option<Arc<[u8]>>) -> Vec<(u64, Arc<[u8]>)> {
    let change = |(block, from, to): (u64, u64, u64)| {
        let mut bytes = old(block).map_or_else(|| vec![0; narrow(size)], |old| old.to_vec());
        let start = narrow(block * size + from - offset);
        bytes[narrow(from)..narrow(to)].copy_from_slice(&data[start..start + narrow(to - from)]);
        (block, bytes.into())
    };
    pieces(size, offset, wide(data.len())).map(change).collect()
}

/// Volumes by name.
pub type Volumes = BTreeMap<String, Arc<VolumeState>>;

/// The content of all volumes at one point of the stream, and of all snapshots. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The volumes by name.
    pub volumes: Volumes,
    /// The ordered lists.
    pub lists: Lists,
    /// The volumes and lists as they were when each snapshot was taken, by its name.
    pub snapshots: BTreeMap<String, Arc<Seen>>,
}

/// What a snapshot sees.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The volumes by name.
    pub volumes: Volumes,
    /// The ordered lists.
    pub lists: Lists,
}

fn seen_hash(volumes: &Volumes, lists: &Lists) -> u64 {
    mix(volumes.iter().fold(0, |hash, (name, volume)| mix(hash, volume.hash(name))), lists_hash(lists))
}

/// The hash of a state with a snapshot more.
pub fn with_snapshot(hash: u64, name: &str, volumes: u64) -> u64 {
    mix(hash, mix(hash_bytes(name.as_bytes()), volumes))
}

impl State {
    /// A hash of all that a client can see.
    pub fn hash(&self) -> u64 {
        let now = seen_hash(&self.volumes, &self.lists);
        let snapshots = self.snapshots.iter();
        snapshots.fold(now, |hash, (name, seen)| with_snapshot(hash, name, seen_hash(&seen.volumes, &seen.lists)))
    }

    fn volume_mut(&mut self, name: &str) -> &mut VolumeState {
        Arc::make_mut(self.volumes.get_mut(name).expect("the model is only asked for volumes it has"))
    }
}

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

/// The disk, its history, and the open units.
#[derive(Clone, Debug)]
pub struct Model {
    history: Vec<Arc<State>>,
    hashes: Vec<u64>,
    flushed: usize,
    units: BTreeMap<u32, UnitState>,
    generations: u64,
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// An empty disk.
    pub fn new() -> Self {
        let state = Arc::new(State::default());
        let hashes = vec![state.hash()];
        Model { history: vec![state], hashes, flushed: 0, units: BTreeMap::new(), generations: 0 }
    }

    /// A disk that has a state already, durably.
    pub fn of(state: &Arc<State>) -> Self {
        let generations = state.volumes.values().map(|volume| volume.generation).max().unwrap_or(0);
        let hashes = vec![state.hash()];
        Model { history: vec![Arc::clone(state)], hashes, flushed: 0, units: BTreeMap::new(), generations }
    }

    /// The committed state.
    pub fn now(&self) -> &Arc<State> {
        self.history.last().expect("there is always a state")
    }

    /// The number of the committed state in the history.
    pub fn appended(&self) -> usize {
        self.history.len() - 1
    }

    /// The number of the last state that a crash cannot take away.
    pub fn flushed(&self) -> usize {
        self.flushed
    }

    /// A state of the history.
    pub fn state(&self, number: usize) -> &Arc<State> {
        &self.history[number]
    }

    /// The hashes of all states of the history.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// The numbers of the states that a crash may leave.
    pub fn allowed(&self) -> std::ops::RangeInclusive<usize> {
        self.flushed..=self.appended()
    }

    /// A flush returned that was asked for when the committed state had this number.
    pub fn flush(&mut self, number: usize) {
        self.flushed = self.flushed.max(number);
    }

    /// Goes back to a state: the disk crashed and came back with it. Open units are gone.
    pub fn crashed(&mut self, number: usize) {
        self.history.truncate(number + 1);
        self.hashes.truncate(number + 1);
        self.flushed = self.flushed.min(number);
        self.units.clear();
    }

    fn push(&mut self, state: State) {
        self.hashes.push(state.hash());
        self.history.push(Arc::new(state));
    }

    /// Nothing happened, and the history has it once more.
    pub fn stay(&mut self) {
        self.push(State::clone(self.now()));
    }

    /// A volume as committed.
    pub fn volume(&self, name: &str) -> Option<&Arc<VolumeState>> {
        self.now().volumes.get(name)
    }

    /// Makes a volume.
    pub fn create(&mut self, name: &str, bytes: u64, block_bytes: u32, compressed: bool) {
        let mut state = State::clone(self.now());
        self.generations += 1;
        let volume = VolumeState::new(self.generations, bytes, block_bytes, compressed);
        state.volumes.insert(name.to_owned(), Arc::new(volume));
        self.push(state);
    }

    /// Deletes a volume.
    pub fn delete(&mut self, name: &str) {
        let mut state = State::clone(self.now());
        state.volumes.remove(name);
        self.push(state);
    }

    /// Takes a snapshot: of the volumes named, or of all.
    pub fn take_snapshot(&mut self, name: &str, of: &[String]) {
        let mut state = State::clone(self.now());
        let mut volumes = state.volumes.clone();
        volumes.retain(|volume, _| of.is_empty() || of.contains(volume));
        let lists = if of.is_empty() { state.lists.clone() } else { Lists::new() };
        state.snapshots.insert(name.to_owned(), Arc::new(Seen { volumes, lists }));
        self.push(state);
    }

    /// The volume as a snapshot has it, if it is the same volume still.
    pub fn volume_at(&self, snapshot: &str, name: &str) -> Option<&Arc<VolumeState>> {
        let then = self.now().snapshots.get(snapshot)?.volumes.get(name)?;
        self.volume(name).filter(|now| now.generation == then.generation).map(|_| then)
    }

    /// Makes a volume what a snapshot has.
    pub fn roll_back(&mut self, snapshot: &str, name: &str) {
        let then = Arc::clone(self.volume_at(snapshot, name).expect("the model is only asked for what it has"));
        let mut state = State::clone(self.now());
        state.volumes.insert(name.to_owned(), then);
        self.push(state);
    }

    /// Deletes a snapshot.
    pub fn delete_snapshot(&mut self, name: &str) {
        let mut state = State::clone(self.now());
        state.snapshots.remove(name);
        self.push(state);
    }

    /// Changes a volume's size.
    pub fn resize(&mut self, name: &str, bytes: u64) {
        let mut state = State::clone(self.now());
        state.volume_mut(name).resize(bytes);
        self.push(state);
    }

    /// Writes, as one operation.
    pub fn write(&mut self, name: &str, offset: u64, data: &[u8]) {
        let mut state = State::clone(self.now());
        let volume = state.volume_mut(name);
        for (block, bytes) in written(volume.size(), offset, data, |block| volume.block(block).cloned()) {
            volume.put(block, Some(bytes));
        }
        self.push(state);
    }

    /// Makes a range read as zeros.
    pub fn discard(&mut self, name: &str, offset: u64, bytes: u64) {
        self.write(name, offset, &vec![0; narrow(bytes)]);
    }

    /// Does an operation on lists that has a meaning.
    pub fn list_op(&mut self, op: &ListOp) {
        let mut state = State::clone(self.now());
        op.apply(&mut state.lists, &mut BTreeSet::new()).expect("the model is only asked for what has a meaning");
        self.push(state);
    }

    /// Writes into a block of a list.
    pub fn list_write(&mut self, block: u64, offset: u32, data: &[u8]) {
        let mut state = State::clone(self.now());
        let (content, size) = block_mut(&mut state.lists, block).expect("the model is only asked for blocks it has");
        *content = Some(with_written(content.as_ref(), size, offset, data));
        self.push(state);
    }

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
        if differs || unit.written.keys().any(written) { Changed::Yes } else { Changed::Perhaps }
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

    /// Commits a unit: all of it becomes the next state, or nothing.
    pub fn commit(&mut self, unit: u32) -> Committed {
        let unit = self.units.remove(&unit).expect("the model is only asked for open units");
        let mut state = State::clone(self.now());
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
        self.push(state);
        Committed::Applied
    }

    /// Forgets a unit.
    pub fn abort(&mut self, unit: u32) {
        self.units.remove(&unit);
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

#[cfg(test)]
mod tests;
