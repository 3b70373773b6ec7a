//! The part of a run that has snapshots taken by schedules. What a person took under a name like theirs stays.

use super::{Run, Step, Stop};
use crate::model::Stepped;
use crate::script::{ScheduleDraw, volume_name};
use lode::{ErrorKind, Scheduled, SnapshotOptions, SnapshotSchedule};

const SECOND: u64 = 1_000_000_000;

fn schedule_name(pick: u16) -> String {
    format!("q{}", pick % 3)
}

impl Run<'_> {
    pub(super) fn in_schedules(&mut self, draw: &ScheduleDraw) -> Step {
        match draw.kind {
            0 | 1 => self.set_schedule(draw.picks),
            2 => self.remove_schedule(draw.picks[0]),
            3 => self.take_like_a_schedule(draw.picks),
            4 => self.delete_scheduled(draw.picks[0]),
            _ => {
                // Now and then the clock is set back.
                let seconds = u64::from(draw.picks[0] % 8) * SECOND;
                let back = draw.picks[1].is_multiple_of(16);
                self.clock = if back { self.clock.saturating_sub(seconds) } else { self.clock + seconds };
                self.run_schedules()
            }
        }
    }

    fn set_schedule(&mut self, picks: [u16; 4]) -> Step {
        let name = schedule_name(picks[0]);
        let there: Vec<String> = (0..4).map(volume_name).filter(|name| self.model.volume(name).is_some()).collect();
        let few = usize::from(picks[3] % 3);
        let volumes: Vec<String> = if few < there.len() { there[..few].to_vec() } else { Vec::new() };
        let (every, keep) = (SECOND * u64::from(1 + picks[1] % 5), u64::from(1 + picks[2] % 3));
        let note = self.begin_call();
        let schedule = SnapshotSchedule { name: name.clone(), every, keep, volumes: volumes.clone(), lists: false };
        let result = self.open_disk().set_schedule(&schedule);
        self.tolerable(result, "making a schedule", |model| model.set_schedule(&name, every, keep, &volumes))?;
        self.end_call(note);
        Ok(())
    }

    fn remove_schedule(&mut self, pick: u16) -> Step {
        let name = schedule_name(pick);
        let note = self.begin_call();
        let result = self.open_disk().remove_schedule(&name);
        if !self.model.now().schedules.contains_key(&name) {
            return match result {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                Err(error) => Err(self.refused("removing a schedule again", error)),
                Ok(_) => Err(Stop::Finding(format!("schedule {name} was removed twice"))),
            };
        }
        if matches!(&result, Err(error) if error.kind() == ErrorKind::Full) {
            return Err(Stop::Finding("removing a schedule was refused because the disk is full".to_owned()));
        }
        self.tolerable(result, "removing a schedule", |model| model.remove_schedule(&name))?;
        self.end_call(note);
        Ok(())
    }

    /// A person takes a snapshot whose name a schedule may come to use.
    fn take_like_a_schedule(&mut self, picks: [u16; 4]) -> Step {
        let made = self.clock + u64::from(picks[1] % 4) * SECOND;
        let name = format!("{}-{made}", schedule_name(picks[0]));
        if self.model.now().snapshots.contains_key(&name) {
            return Ok(());
        }
        let note = self.begin_call();
        let result = self.open_disk().take_snapshot(&name, &SnapshotOptions { made, ..SnapshotOptions::default() });
        self.tolerable(result, "taking a snapshot", |model| model.take_snapshot_at(&name, &[], made))?;
        self.end_call(note);
        Ok(())
    }

    /// A person deletes a snapshot that a schedule took, or that is called so.
    fn delete_scheduled(&mut self, pick: u16) -> Step {
        let names: Vec<String> =
            self.model.now().snapshots.keys().filter(|name| name.starts_with('q')).cloned().collect();
        let Some(at) = usize::from(pick).checked_rem(names.len()) else { return Ok(()) };
        self.delete_snapshot_named(&names[at])
    }

    fn run_schedules(&mut self) -> Step {
        let note = self.begin_call();
        let result = self.open_disk().run_schedules(self.clock, &|now| now.to_string());
        let told = match result {
            Ok(done) => Ok(done),
            Err(error) if matches!(error.kind(), ErrorKind::Full | ErrorKind::Exists) => Err(error.kind()),
            Err(error) => {
                // Where it broke off is not known: any of the states may be there.
                let refused = self.refused("running schedules", error);
                self.model.run_schedules(self.clock, |_| true);
                return Err(refused);
            }
        };
        let there: Vec<String> = self.open_disk().snapshots().into_iter().map(|snapshot| snapshot.name).collect();
        let stepped = self.model.run_schedules(self.clock, |name| told.is_ok() || there.iter().any(|had| had == name));
        self.counts.full += u64::from(!stepped.lacking.is_empty());
        right(&told, &stepped).map_err(Stop::Finding)?;
        self.end_call(note);
        self.compare()
    }
}

/// What was told is what was done.
fn right(told: &Result<Scheduled, ErrorKind>, stepped: &Stepped) -> Result<(), String> {
    let done = Scheduled { taken: stepped.taken.clone(), deleted: stepped.deleted.clone() };
    let fits = match told {
        Ok(told) => *told == done && stepped.exist.is_empty(),
        Err(ErrorKind::Exists) => !stepped.exist.is_empty(),
        Err(_) => !stepped.lacking.is_empty(),
    };
    if fits { Ok(()) } else { Err(format!("schedules told {told:?}, expected {stepped:?}")) }
}
