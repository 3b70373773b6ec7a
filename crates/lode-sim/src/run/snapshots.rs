//! The part of a run that takes snapshots and deletes them.

use super::{Run, Step, Stop};
use crate::script::{VolumeNumber, snapshot_name, volume_name};
use lode::{ErrorKind, SnapshotOptions};

impl Run<'_> {
    pub(super) fn take_snapshot(&mut self, number: u8, of: Option<VolumeNumber>) -> Step {
        let name = snapshot_name(number);
        let volumes: Vec<String> = of.map(volume_name).into_iter().collect();
        if volumes.iter().any(|volume| self.model.volume(volume).is_none()) {
            return Ok(());
        }
        let note = self.begin_call();
        let options = SnapshotOptions { volumes: volumes.clone(), ..SnapshotOptions::default() };
        let result = self.open_disk().take_snapshot(&name, &options);
        if self.model.now().snapshots.contains_key(&name) {
            return match result {
                Err(error) if error.kind() == ErrorKind::Exists => Ok(()),
                Err(error) => Err(self.refused("taking a snapshot again", error)),
                Ok(_) => Err(Stop::Finding(format!("snapshot {name} was taken twice"))),
            };
        }
        self.tolerable(result, "taking a snapshot", |model| model.take_snapshot(&name, &volumes))?;
        self.end_call(note);
        Ok(())
    }

    pub(super) fn roll_back(&mut self, number: u8, volume: VolumeNumber) -> Step {
        let (snapshot, name) = (snapshot_name(number), volume_name(volume));
        let Some(then) = self.model.volume_at(&snapshot, &name).cloned() else { return Ok(()) };
        if self.model.shadowed(&name) {
            return Ok(()); // What a unit holds of a block that is cut inside is not modelled.
        }
        let (Some(volume), Some(now)) = (self.volume(volume)?, self.model.volume(&name).cloned()) else {
            return Ok(());
        };
        let note = self.begin_call();
        let seen = self.open_disk().volume_at(&snapshot, &name);
        let seen = seen.map_err(|error| self.refused("finding a volume in a snapshot", error))?;
        let changes = volume.changes_since(&seen).map_err(|error| self.refused("asking for changes", error))?;
        let size = u64::from(now.block_bytes);
        let differs = |block: &u64| now.block(*block) != then.block(*block);
        for block in (0..now.blocks().max(then.blocks())).filter(differs) {
            if !changes.iter().any(|range| range.contains(&(block * size))) {
                return Err(Stop::Finding(format!("{name} block {block} changed since {snapshot}, found {changes:?}")));
            }
        }
        let result = volume.roll_back(&seen);
        self.tolerable(result, "rolling back", |model| model.roll_back(&snapshot, &name))?;
        self.end_call(note);
        Ok(())
    }

    pub(super) fn delete_snapshot(&mut self, number: u8) -> Step {
        self.delete_snapshot_named(&snapshot_name(number))
    }

    pub(super) fn delete_snapshot_named(&mut self, name: &str) -> Step {
        if !self.model.now().snapshots.contains_key(name) {
            return Ok(());
        }
        let note = self.begin_call();
        let result = self.open_disk().delete_snapshot(name);
        if matches!(&result, Err(error) if error.kind() == ErrorKind::Full) {
            let words = "deleting a snapshot was refused because the disk is full";
            return Err(Stop::Finding(format!("{words}: {:?}", self.open_disk().info())));
        }
        self.tolerable(result, "deleting a snapshot", |model| model.delete_snapshot(name))?;
        self.end_call(note);
        Ok(())
    }
}
