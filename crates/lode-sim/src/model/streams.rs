//! What a stream does: a volume becomes what a snapshot of it elsewhere saw, and has that snapshot too, at one instant.

use super::{Identity, Model, Seen, State, VolumeState, Volumes};
use crate::model::lists::Lists;
use std::sync::Arc;

/// Whether a volume is what one of its snapshots saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Nobody has touched it since.
    Untouched,
    /// It is the same, but may have been changed and changed back.
    Perhaps,
    /// It differs.
    Changed,
}

impl Model {
    /// The newest snapshot of a volume in which it has this identity.
    pub fn base_of(&self, name: &str, base: Identity, far: bool) -> Option<&Arc<Seen>> {
        let now = self.volume(name)?;
        let same = |seen: &&Arc<Seen>| {
            seen.volumes.get(name).is_some_and(|then| then.generation == now.generation)
                && seen.identity(name, far) == Some(base)
        };
        self.now().snapshots.values().filter(same).max_by_key(|seen| seen.number)
    }

    /// What became of a volume since a snapshot of it.
    pub fn since(&self, name: &str, seen: &Seen) -> Since {
        match (self.volume(name), seen.volumes.get(name)) {
            (Some(now), Some(then)) if Arc::ptr_eq(now, then) => Since::Untouched,
            (Some(now), Some(then)) if now.hash(name) == then.hash(name) => Since::Perhaps,
            _ => Since::Changed,
        }
    }

    /// A volume came in a stream, with a snapshot: a new one, or the one of that name has changed.
    pub fn received(&mut self, name: &str, snapshot: &str, content: &VolumeState, origin: Identity, made: u64) {
        let mut state = State::clone(self.now());
        self.generations += 2;
        let number = self.generations;
        let generation = self.volume(name).map_or(number - 1, |old| old.generation);
        let mut volume = content.clone();
        volume.generation = generation;
        let volume = Arc::new(volume);
        state.volumes.insert(name.to_owned(), Arc::clone(&volume));
        let volumes: Volumes = [(name.to_owned(), volume)].into();
        let seen = Seen { volumes, lists: Lists::new(), number, made, origin: Some(origin), schedule: 0 };
        state.snapshots.insert(snapshot.to_owned(), Arc::new(seen));
        self.push(state);
    }
}
