//! The part of a run that exchanges what volumes hold, and brings their blocks together.

use super::{Run, Step, Stop};
use crate::script::{VolumeNumber, volume_name};
use lode::ErrorKind;
use std::ops::ControlFlow;

impl Run<'_> {
    /// At one instant: no state has one half of it.
    pub(super) fn swap(&mut self, one: (VolumeNumber, u64), other: (VolumeNumber, u64), bytes: u64) -> Step {
        let (Some(here), Some(there)) = (self.volume(one.0)?, self.volume(other.0)?) else { return Ok(()) };
        let note = self.begin_call();
        let result = here.swap(one.1, &there, other.1, bytes);
        if one.0 == other.0 && one.1.abs_diff(other.1) < bytes {
            return match result {
                Err(error) if error.kind() == ErrorKind::InvalidArgument => Ok(()),
                Err(error) => Err(self.refused("exchanging what overlaps", error)),
                Ok(_) => Err(Stop::Finding("stretches that overlap were exchanged".to_owned())),
            };
        }
        if [one, other].into_iter().any(|(volume, offset)| self.beyond(volume, None, offset, bytes)) {
            return self.must_be_out_of_range(result);
        }
        let names = [one.0, other.0].map(volume_name);
        self.tolerable(result, "an exchange", |model| model.swap((&names[0], one.1), (&names[1], other.1), bytes))?;
        self.end_call(note);
        Ok(())
    }

    /// Changes nothing that anybody sees; what it does may be refused for want of free zones.
    pub(super) fn recluster(&mut self, number: VolumeNumber, mut pieces: u8) -> Step {
        let name = volume_name(number);
        if self.model.volume(&name).is_none() {
            return Ok(());
        }
        let note = self.begin_call();
        let (mut far, mut whole) = (0, 0);
        let moved = self.open_disk().recluster(&name, &mut |done, all| {
            (far, whole) = (far.max(done), all);
            pieces = pieces.saturating_sub(1);
            if pieces == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let moved = self.changed("bringing blocks together", moved)?;
        self.end_call(note);
        if far > whole {
            return Err(Stop::Finding(format!("{far} bytes of {whole} were brought together")));
        }
        if moved.is_some_and(|moved| moved > 0) { self.compare() } else { Ok(()) }
    }
}
