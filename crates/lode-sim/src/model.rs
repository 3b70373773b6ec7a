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
mod schedules;
mod streams;
mod units;
mod volume;

use crate::rng::{hash_bytes, mix, narrow};
use crate::script::unit_label;
use lists::{ListOp, Lists, block_mut, lists_hash, with_written};
pub use schedules::{Schedule, Stepped, with_schedule};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
pub use streams::Since;
pub use units::{Changed, Committed, UnitState};
pub use volume::{VolumeState, block_hash, pieces};

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
    /// Open units as of their last barriers.
    pub dormant: BTreeMap<u32, Arc<UnitState>>,
    /// Schedules of snapshots.
    pub schedules: BTreeMap<String, Arc<Schedule>>,
}

/// What a snapshot sees.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The volumes by name.
    pub volumes: Volumes,
    /// The ordered lists.
    pub lists: Lists,
    /// Tells a snapshot from others, older ones before newer ones.
    pub number: u64,
    /// When it was taken, as whoever took it said.
    pub made: u64,
    /// What its volume is called everywhere, if it came in a stream.
    pub origin: Option<Identity>,
    /// Which schedule took it; 0: none.
    pub schedule: u64,
}

/// Two volumes in snapshots with the same identity have the same content, wherever they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Taken on another disk.
    pub far: bool,
    /// The volume there.
    pub generation: u64,
    /// The snapshot there.
    pub number: u64,
}

impl Seen {
    /// What a volume is called everywhere as this snapshot has it.
    pub fn identity(&self, name: &str, far: bool) -> Option<Identity> {
        let generation = self.volumes.get(name)?.generation;
        Some(self.origin.unwrap_or(Identity { far, generation, number: self.number }))
    }
}

fn seen_hash(volumes: &Volumes, lists: &Lists) -> u64 {
    mix(volumes.iter().fold(0, |hash, (name, volume)| mix(hash, volume.hash(name))), lists_hash(lists))
}

/// The hash of a state with a snapshot more, of what it sees, made at a time.
pub fn with_snapshot(hash: u64, name: &str, seen: u64, made: u64) -> u64 {
    mix(hash, mix(hash_bytes(name.as_bytes()), mix(seen, made)))
}

/// The hash of a state with a unit with a barrier more.
pub fn with_unit(hash: u64, label: &str, cookie: &[u8]) -> u64 {
    mix(hash, mix(hash_bytes(label.as_bytes()), hash_bytes(cookie)))
}

impl State {
    /// A hash of all that a client can see.
    pub fn hash(&self) -> u64 {
        let now = seen_hash(&self.volumes, &self.lists);
        let snapshots = self.snapshots.iter();
        let hash = snapshots.fold(now, |hash, (name, seen)| {
            with_snapshot(hash, name, seen_hash(&seen.volumes, &seen.lists), seen.made)
        });
        let hash =
            self.dormant.iter().fold(hash, |hash, (unit, state)| with_unit(hash, &unit_label(*unit), &state.cookie()));
        self.schedules.iter().fold(hash, |hash, (name, schedule)| {
            with_schedule(hash, name, schedule.every, schedule.keep, &schedule.volumes_in(self))
        })
    }

    fn volume_mut(&mut self, name: &str) -> &mut VolumeState {
        Arc::make_mut(self.volumes.get_mut(name).expect("the model is only asked for volumes it has"))
    }
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

/// The units of a state, open again.
fn dormant_of(state: &State) -> BTreeMap<u32, UnitState> {
    state.dormant.iter().map(|(unit, state)| (*unit, state.reopened())).collect()
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
        let generations = state.volumes.values().map(|volume| volume.generation);
        let numbers = state.snapshots.values().map(|seen| seen.number);
        let numbers = numbers.chain(state.schedules.values().map(|schedule| schedule.number));
        let generations = generations.chain(numbers).max().unwrap_or(0);
        let hashes = vec![state.hash()];
        let units = dormant_of(state);
        Model { history: vec![Arc::clone(state)], hashes, flushed: 0, units, generations }
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

    /// The disk was closed and opened again: open units are what they were at their last barriers.
    pub fn reopened(&mut self) {
        self.units = dormant_of(&Arc::clone(self.now()));
    }

    /// Goes back to a state: the disk crashed and came back with it, and open units to their last barriers.
    pub fn crashed(&mut self, number: usize) {
        self.history.truncate(number + 1);
        self.hashes.truncate(number + 1);
        self.flushed = self.flushed.min(number);
        self.reopened();
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
        self.take_snapshot_at(name, of, 0);
    }

    /// The same, at a time.
    pub fn take_snapshot_at(&mut self, name: &str, of: &[String], made: u64) {
        self.take_snapshot_by(name, of, made, 0);
    }

    fn take_snapshot_by(&mut self, name: &str, of: &[String], made: u64, schedule: u64) {
        let mut state = State::clone(self.now());
        let mut volumes = state.volumes.clone();
        volumes.retain(|volume, _| of.is_empty() || of.contains(volume));
        let lists = if of.is_empty() { state.lists.clone() } else { Lists::new() };
        self.generations += 1;
        let seen = Seen { volumes, lists, number: self.generations, made, origin: None, schedule };
        state.snapshots.insert(name.to_owned(), Arc::new(seen));
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
        // Not shared: that it is as the snapshot has it again is no proof that nobody changed it.
        state.volumes.insert(name.to_owned(), Arc::new(VolumeState::clone(&then)));
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
        state.volume_mut(name).write(offset, data);
        self.push(state);
    }

    /// Exchanges two stretches that do not overlap.
    pub fn swap(&mut self, one: (&str, u64), other: (&str, u64), bytes: u64) {
        let mut state = State::clone(self.now());
        let [here, there] = [one, other].map(|(name, offset)| {
            let mut held = vec![0; narrow(bytes)];
            state.volumes[name].read(offset, &mut held);
            held
        });
        for ((name, offset), data) in [(one, there), (other, here)] {
            state.volume_mut(name).write(offset, &data);
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
}

#[cfg(test)]
mod tests;
