//! The part of a run that works in units.

use super::{Run, Step, Stop};
use crate::content::differing;
use crate::model::{Changed, Committed, Model};
use crate::rng::{narrow, wide};
use crate::script::{Op, UnitNumber, VolumeNumber, barriers, data, unit_label, unit_options, volume_name};
use lode::{ErrorKind, Survive, Unit, UnitLabel, Volume};

impl Run<'_> {
    pub(super) fn begin(&mut self, number: UnitNumber) -> Step {
        let options = unit_options(self.script.id.seed(), number);
        let note = self.begin_call();
        let unit = if barriers(self.script.id.seed()) > 0 {
            let label = UnitLabel { label: unit_label(number), ..UnitLabel::default() };
            self.open_disk().begin_labelled(&label, &options)
        } else {
            self.open_disk().begin_with(&options)
        };
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
        if !self.model.has_unit(number) || !self.model.unit_sees(number, &name) {
            return Ok(());
        }
        let Some(mut unit) = self.take_unit(number)? else { return Ok(()) };
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
        let Some(mut unit) = self.take_unit(number)? else { return Ok(()) };
        let note = self.begin_call();
        let mut result = unit.try_commit();
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
            _ if told => Committed::Conflict,
            _ => self.model.commit(number),
        };
        if committed == Committed::Conflict {
            unit.abort();
            self.model.abort(number);
        } else {
            drop(unit);
        }
        if flush && let Ok(position) = result {
            let flushed = self.open_disk().flush_up_to(position, Survive::Power);
            result = flushed.map(|()| position);
        }
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

    pub(super) fn forget(&mut self, number: UnitNumber, abort: bool) -> Step {
        let Some(unit) = self.take_unit(number)? else { return Ok(()) };
        let note = self.begin_call();
        if abort {
            unit.abort();
            self.model.abort(number);
        } else if unit.label().is_some() {
            drop(unit); // It is kept, and taken up again when it is needed.
        } else {
            drop(unit);
            self.model.abort(number);
        }
        self.end_call(note);
        Ok(())
    }

    /// The unit, if it is open: taken up again if nobody has it in hand.
    pub(super) fn take_unit(&mut self, number: UnitNumber) -> Step<Option<Unit>> {
        if let Some(unit) = self.units.remove(&number) {
            return Ok(Some(unit));
        }
        if !self.model.has_unit(number) {
            return Ok(None);
        }
        let unit = self.open_disk().resume(&unit_label(number));
        unit.map(Some).map_err(|error| self.refused("taking up a unit", error))
    }

    pub(super) fn barrier(&mut self, number: UnitNumber, at: usize) -> Step {
        let Some(mut unit) = self.take_unit(number)? else { return Ok(()) };
        let note = self.begin_call();
        let cookie = wide(at);
        let result = unit.barrier(&cookie.to_le_bytes());
        self.tolerable(result, "a barrier", |model| model.barrier(number, cookie))?;
        self.units.insert(number, unit);
        self.end_call(note);
        Ok(())
    }

    /// Before the disk is closed: units that nobody has in hand get a barrier then, which a full disk refuses. Those are
    /// dropped here.
    pub(super) fn keep_units(&mut self, at: usize) -> Step {
        for number in self.model.units() {
            let Some(mut unit) = self.take_unit(number)? else { continue };
            if unit.label().is_none() {
                continue;
            }
            let note = self.begin_call();
            let cookie = wide(at);
            let result = unit.barrier(&cookie.to_le_bytes());
            if self.changed("a barrier", result)?.is_some() {
                self.model.barrier(number, cookie);
            } else {
                unit.abort();
                self.model.abort(number);
            }
            self.end_call(note);
        }
        Ok(())
    }

    /// Compares what open units show, as the last barriers left them.
    pub(super) fn compare_dormant(&mut self) -> Step {
        for number in self.model.units() {
            let Some(mut unit) = self.take_unit(number)? else { continue };
            self.compare_unit(number, &mut unit)?;
            // Some stay in hand; what is dropped is kept.
            if number.is_multiple_of(2) {
                self.units.insert(number, unit);
            }
        }
        Ok(())
    }

    fn compare_unit(&mut self, number: UnitNumber, unit: &mut Unit) -> Step {
        let names: Vec<String> = self.model.now().volumes.keys().cloned().collect();
        for name in names.iter().filter(|name| self.model.unit_sees(number, name)).collect::<Vec<_>>() {
            let volume = self.open_disk().volume(name).map_err(|error| self.refused("opening a volume", error))?;
            self.unit_read(number, unit, &volume, name)?;
        }
        if self.model.unit_lists(number).is_some() { self.compare_unit_lists(number, unit) } else { Ok(()) }
    }
}
