//! The part of a run that works in units.

use super::{Run, Step, Stop};
use crate::content::differing;
use crate::model::{Changed, Committed, Model};
use crate::rng::narrow;
use crate::script::{Op, UnitNumber, VolumeNumber, data, unit_options, volume_name};
use lode::{ErrorKind, Survive, Unit, Volume};

impl Run<'_> {
    pub(super) fn begin(&mut self, number: UnitNumber) -> Step {
        let options = unit_options(self.script.id.seed(), number);
        let note = self.begin_call();
        let unit = self.open_disk().begin_with(&options);
        if let Some(unit) = self.changed("begin", unit)? {
            self.units.insert(number, unit);
            self.model.begin_with(number, options);
        }
        self.end_call(note);
        Ok(())
    }

    pub(super) fn in_unit(&mut self, op: &Op, at: usize) -> Step {
        let (Op::UnitWrite(number, which, ..)
        | Op::UnitDiscard(number, which, ..)
        | Op::UnitResize(number, which, _)
        | Op::UnitRead(number, which)) = op
        else {
            return Ok(());
        };
        let (number, name) = (*number, volume_name(*which));
        let Some(volume) = self.volume(*which)? else { return Ok(()) };
        if matches!(op, Op::UnitResize(_, _, bytes) if !bytes.is_multiple_of(u64::from(volume.block_bytes()))) {
            return Ok(()); // Meant for another volume of the name, which a crash took away.
        }
        if !self.units.contains_key(&number) || !self.model.unit_sees(number, &name) {
            return Ok(());
        }
        let Some(mut unit) = self.units.remove(&number) else { return Ok(()) };
        if let Op::UnitResize(_, _, bytes) = op
            && *bytes >= self.model.unit_bytes(number, &name)
            && *bytes < self.model.unit_reach(number, &name)
        {
            // Others have cut the volume shorter still: whether the unit's own cut then heals the conflict is left
            // open.
            self.units.insert(number, unit);
            return Ok(());
        }
        let note = self.begin_call();
        let result = match op {
            Op::UnitWrite(_, _, offset, bytes, fill) => {
                let data = data(self.script.id.seed(), at, *bytes, *fill);
                let result = unit.write_at(&volume, *offset, &data);
                self.unit_change(number, *which, result, *offset, *bytes, |model| {
                    model.unit_write(number, &name, *offset, &data);
                })
            }
            Op::UnitDiscard(_, _, offset, bytes) => {
                let result = unit.discard(&volume, *offset, *bytes);
                self.unit_change(number, *which, result, *offset, *bytes, |model| {
                    model.unit_discard(number, &name, *offset, *bytes);
                })
            }
            Op::UnitResize(_, _, bytes) => {
                let result = unit.resize(&volume, *bytes);
                self.unit_change(number, *which, result, 0, 0, |model| model.unit_resize(number, &name, *bytes))
            }
            _ => self.unit_read(number, &unit, &volume, &name),
        };
        self.units.insert(number, unit);
        self.end_call(note);
        result
    }

    pub(super) fn unit_change(
        &mut self,
        unit: UnitNumber,
        volume: VolumeNumber,
        result: lode::Result<()>,
        offset: u64,
        bytes: u64,
        change: impl FnOnce(&mut Model),
    ) -> Step {
        if self.beyond(volume, Some(unit), offset, bytes) {
            return self.must_be_out_of_range(result);
        }
        if self.changed("a change in a unit", result)?.is_some() {
            change(&mut self.model);
        }
        Ok(())
    }

    pub(super) fn unit_read(&mut self, number: UnitNumber, unit: &Unit, volume: &Volume, name: &str) -> Step {
        let bytes = match self.model.unit_shows_committed(number) {
            true => self.model.volume(name).map_or(0, |volume| volume.bytes),
            false => self.model.unit_bytes(number, name),
        };
        let mut found = vec![0x33; narrow(bytes)];
        unit.read_at(volume, 0, &mut found).map_err(|error| self.refused("a read in a unit", error))?;
        let mut expected = vec![0; found.len()];
        self.model.unit_read(number, name, 0, &mut expected);
        self.counts.compared += bytes;
        differing(name, 0, &found, &expected).map_or(Ok(()), |words| Err(Stop::Finding(format!("in a unit: {words}"))))
    }

    pub(super) fn commit(&mut self, number: UnitNumber, flush: bool) -> Step {
        let Some(unit) = self.units.remove(&number) else { return Ok(()) };
        let note = self.begin_call();
        let result = if flush { unit.commit_and_flush(Survive::Power) } else { unit.commit() };
        if matches!(&result, Err(error) if error.kind() == ErrorKind::Full) {
            return Err(Stop::Finding("a commit was refused because the disk is full".to_owned()));
        }
        let changed = self.model.changed_by_others(number);
        let told = matches!(&result, Err(error) if error.kind() == ErrorKind::Conflict);
        if changed == Changed::Yes && result.is_ok() {
            return Err(Stop::Finding("a commit over what others changed was accepted".to_owned()));
        }
        let committed = match changed {
            Changed::No => self.model.commit(number),
            _ if told => {
                self.model.abort(number);
                Committed::Conflict
            }
            _ => self.model.commit(number),
        };
        match (result, committed) {
            (Ok(position), Committed::Applied) => {
                if flush {
                    self.model.flush(self.model.appended());
                    self.anchor = self.anchor.max(Some(position));
                }
            }
            (Err(error), Committed::Conflict) if error.kind() == ErrorKind::Conflict => {
                self.counts.conflicts += 1;
                self.compare().map_err(|stop| match stop {
                    Stop::Finding(words) => Stop::Finding(format!("a conflict ({error}), and yet: {words}")),
                    refused => refused,
                })?;
            }
            (Ok(_), Committed::Conflict) => {
                return Err(Stop::Finding("a commit with no meaning on the committed state was accepted".to_owned()));
            }
            (Err(error), _) => return Err(self.refused("a commit", error)),
        }
        self.end_call(note);
        Ok(())
    }

    pub(super) fn forget(&mut self, number: UnitNumber, abort: bool) {
        if let Some(unit) = self.units.remove(&number) {
            let note = self.begin_call();
            if abort {
                unit.abort();
            } else {
                drop(unit);
            }
            self.model.abort(number);
            self.end_call(note);
        }
    }
}
