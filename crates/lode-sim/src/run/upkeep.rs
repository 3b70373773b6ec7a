//! The part of a run that flushes, maintains, and fills the disk up.

use super::{Run, Step, Stop};
use crate::rng::narrow;
use crate::script::{Fill, Op, VolumeNumber, data, volume_name};
use lode::Survive;

impl Run<'_> {
    pub(super) fn flush(&mut self, op: &Op) -> Step {
        let note = self.begin_call();
        let now = self.model.appended();
        let disk = self.open_disk();
        match op {
            Op::FlushProcess => {
                disk.flush(Survive::Process).map_err(|error| self.refused("a flush", error))?;
                self.kept = now;
            }
            Op::FlushUpTo(back) => {
                let state = now.saturating_sub(usize::from(*back));
                let position = self.positions[state];
                disk.flush_up_to(position, Survive::Power).map_err(|error| self.refused("a flush", error))?;
                self.model.flush(state);
                self.anchor = self.anchor.max(Some(position));
            }
            _ => {
                let before = disk.position();
                let covered = disk.flush(Survive::Power).map_err(|error| self.refused("a flush", error))?;
                if covered < before {
                    return Err(Stop::Finding(format!("a flush at {before:?} covers only {covered:?}")));
                }
                self.model.flush(now);
                self.anchor = self.anchor.max(Some(covered));
            }
        }
        self.end_call(note);
        Ok(())
    }

    pub(super) fn maintain(&mut self, op: &Op) -> Step {
        let mut steps = 0;
        loop {
            let note = self.begin_call();
            let disk = self.open_disk();
            let more = match op {
                Op::Checkpoint => disk.checkpoint().map(|()| false),
                _ => disk.maintain(),
            };
            let more = more.map_err(|error| self.refused("maintenance", error))?;
            self.end_call(note);
            steps += 1;
            if !more || matches!(op, Op::Maintain) {
                return Ok(());
            }
            if steps > 20_000 {
                let (info, counters) = (self.open_disk().info(), self.open_disk().counters());
                return Err(Stop::Finding(format!("maintenance does not come to an end: {info:?}, {counters:?}")));
            }
        }
    }

    /// Fills the disk up; then a delete of data must succeed, and so must an overwrite.
    pub(super) fn fill_up(&mut self, number: VolumeNumber, at: usize) -> Step {
        let Some(volume) = self.volume(number)? else { return Ok(()) };
        let block = u64::from(volume.block_bytes());
        let mut next = 0;
        let mut run = (32 << 10) / block;
        for round in 0..3000usize {
            let bytes = self.model.volume(&volume_name(number)).map_or(0, |volume| volume.bytes);
            if next + block > bytes {
                self.resize(number, bytes + (64 << 10).max(32 * block))?;
                continue;
            }
            let length = (block * run).min((bytes - next) / block * block);
            let data = data(self.script.id.seed(), at ^ (round << 20), length, Fill::Noise);
            if self.write(number, next, &data)? {
                next += length;
            } else if run > 1 {
                run /= 2;
            } else {
                return self.while_full(number, next, block);
            }
        }
        Err(Stop::Finding("the disk never becomes full".to_owned()))
    }

    pub(super) fn while_full(&mut self, number: VolumeNumber, written: u64, block: u64) -> Step {
        if written == 0 {
            return Ok(());
        }
        self.flush(&Op::Flush)?;
        let last = written - block;
        let noise = data(self.script.id.seed(), narrow(written), block, Fill::Noise);
        let pinned = !self.units.is_empty() || !self.model.now().snapshots.is_empty();
        if !pinned && !self.write(number, last, &noise)? {
            return Err(Stop::Finding("on a full disk an overwrite was refused".to_owned()));
        }
        self.discard(number, last, block)?;
        self.compare()
    }
}
