//! Schedules in the plainest words: when they are run, each takes a snapshot if it is time, and deletes the oldest of its
//! own that are too many. Each of these is a state.

use super::{Model, Seen, State};
use crate::rng::{hash_bytes, mix, narrow, wide};
use std::collections::BTreeMap;
use std::sync::Arc;

/// When snapshots are taken, and how many are kept.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Tells a schedule from others, older ones before newer ones.
    pub number: u64,
    /// From one snapshot to the next.
    pub every: u64,
    /// So many are kept.
    pub keep: u64,
    /// Of these volumes, by name and generation; none: of all.
    pub volumes: Vec<(String, u64)>,
}

/// What one run of the schedules comes to.
#[derive(Clone, Debug, Default)]
pub struct Stepped {
    /// Snapshots that were taken.
    pub taken: Vec<String>,
    /// Snapshots that were deleted.
    pub deleted: Vec<String>,
    /// Snapshots that could not be taken, since somebody else has taken one of that name.
    pub exist: Vec<String>,
    /// Snapshots that were not taken for want of space.
    pub lacking: Vec<String>,
}

/// The hash of a state with a schedule more.
pub fn with_schedule(hash: u64, name: &str, every: u64, keep: u64, volumes: &[String]) -> u64 {
    let volumes = volumes.iter().fold(wide(volumes.len()), |hash, name| mix(hash, hash_bytes(name.as_bytes())));
    mix(hash, mix(hash_bytes(name.as_bytes()), mix(mix(every, keep), volumes)))
}

impl Schedule {
    /// Those of its volumes that are still there.
    pub fn volumes_in(&self, state: &State) -> Vec<String> {
        let there = |(name, generation): &&(String, u64)| {
            state.volumes.get(name).is_some_and(|volume| volume.generation == *generation)
        };
        self.volumes.iter().filter(there).map(|(name, _)| name.clone()).collect()
    }

    /// The snapshots that it has taken, oldest first.
    fn own(&self, snapshots: &BTreeMap<String, Arc<Seen>>) -> Vec<(String, u64)> {
        let mut own: Vec<_> = snapshots.iter().filter(|(_, seen)| seen.schedule == self.number).collect();
        own.sort_by_key(|(_, seen)| seen.number);
        own.into_iter().map(|(name, seen)| (name.clone(), seen.made)).collect()
    }
}

impl Model {
    /// Makes a schedule, or changes it.
    pub fn set_schedule(&mut self, name: &str, every: u64, keep: u64, volumes: &[String]) {
        let mut state = State::clone(self.now());
        self.generations += 1;
        let number = state.schedules.get(name).map_or(self.generations, |old| old.number);
        let member = |name: &String| Some((name.clone(), state.volumes.get(name)?.generation));
        let volumes = volumes.iter().filter_map(member).collect();
        state.schedules.insert(name.to_owned(), Arc::new(Schedule { number, every, keep, volumes }));
        self.push(state);
    }

    /// Forgets a schedule; its snapshots stay.
    pub fn remove_schedule(&mut self, name: &str) {
        let mut state = State::clone(self.now());
        state.schedules.remove(name);
        self.push(state);
    }

    /// Does what is due. `has_space`: whether the snapshot of this name found some.
    pub fn run_schedules(&mut self, now: u64, has_space: impl Fn(&str) -> bool) -> Stepped {
        let mut stepped = Stepped::default();
        let mut schedules: Vec<(String, Arc<Schedule>)> =
            self.now().schedules.iter().map(|(name, schedule)| (name.clone(), Arc::clone(schedule))).collect();
        schedules.sort_by_key(|(_, schedule)| schedule.number);
        for (name, schedule) in schedules {
            self.run_schedule(&name, &schedule, now, &has_space, &mut stepped);
        }
        stepped
    }

    fn run_schedule(
        &mut self,
        name: &str,
        schedule: &Schedule,
        now: u64,
        has_space: &impl Fn(&str) -> bool,
        stepped: &mut Stepped,
    ) {
        let volumes = schedule.volumes_in(self.now());
        if volumes.is_empty() && !schedule.volumes.is_empty() {
            return;
        }
        let last = schedule.own(&self.now().snapshots).pop();
        if last.is_none_or(|(_, made)| now.abs_diff(made) >= schedule.every) {
            let snapshot = format!("{name}-{now}");
            if self.now().snapshots.contains_key(&snapshot) {
                return stepped.exist.push(snapshot);
            }
            if !has_space(&snapshot) {
                return stepped.lacking.push(snapshot);
            }
            self.take_snapshot_by(&snapshot, &volumes, now, schedule.number);
            stepped.taken.push(snapshot);
        }
        let own = schedule.own(&self.now().snapshots);
        let many = own.len().saturating_sub(narrow(schedule.keep));
        for (snapshot, _) in own.into_iter().take(many) {
            self.delete_snapshot(&snapshot);
            stepped.deleted.push(snapshot);
        }
    }
}
