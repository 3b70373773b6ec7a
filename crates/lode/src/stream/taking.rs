//! A stream that is being taken in: its pieces go into a unit, which gets a barrier every so often.
//!
//! Everything before `position` is in the unit; everything before the position that the last barrier says is in it after
//! a crash, too. It may hold more than that: what is taken in once more is the same.

use super::begin::Asked;
use super::kept::{Kept, delete_empty};
use super::{Piece, StreamInfo};
use crate::disk::open::Disk;
use crate::disk::options::Survive;
use crate::error::{Error, ErrorKind, Result};
use crate::types::len_u64;
use crate::unit::Unit;
use crate::volume::Volume;
use std::ops::Range;

/// A stream that is being received.
pub(super) struct Open {
    pub info: StreamInfo,
    pub unit: Unit,
    volume: Volume,
    /// The volume and the snapshot.
    pub names: (String, String),
    label: String,
    /// What an incremental stream is based on.
    base: Option<Volume>,
    /// What differs from the base, to be taken back.
    stale: Vec<Range<u64>>,
    pub position: u64,
    pub data: u64,
    pub whole: bool,
    /// Where it is at its last barrier.
    kept: Option<u64>,
    /// Bytes written since.
    behind: u64,
}

impl Open {
    pub fn new(asked: &Asked<'_>, unit: Unit, volume: Volume) -> Open {
        let info = StreamInfo { position: 0, ..asked.info.clone() };
        let names = (asked.volume.to_owned(), asked.snapshot.to_owned());
        let (base, stale, kept) = Default::default();
        let label = asked.label.clone();
        let (position, data, behind, whole) = (0, 0, 0, false);
        Open { info, unit, volume, names, label, base, stale, position, data, whole, kept, behind }
    }

    /// It is what its last barrier left.
    pub fn at_barrier(self, kept: &Kept) -> Open {
        Open { position: kept.position, data: kept.data, kept: Some(kept.position), ..self }
    }

    /// The stream says only what differs from `base`; the volume differs from it in `stale`.
    pub fn based_on(self, base: Volume, stale: Vec<Range<u64>>) -> Open {
        Open { base: Some(base), stale, ..self }
    }

    /// Another stream may go on here: the same one, from no later position.
    pub fn check_goes_on(&self, info: &StreamInfo) -> Result<()> {
        let wrong = |expected: String, found: String| {
            let words = format!("a stream that goes on: expected {expected}, found {found}");
            Err(Error::new(ErrorKind::InvalidArgument, words))
        };
        if !info.is_same(&self.info) {
            return wrong(
                format!("the stream of {} that was cut", self.info.words()),
                format!("one of {}", info.words()),
            );
        }
        if self.whole {
            return wrong("none, since the one before was whole".to_owned(), "one".to_owned());
        }
        if info.position > self.position {
            return wrong(format!("one from position {} on", self.position), format!("one from {}", info.position));
        }
        Ok(())
    }

    /// Takes in what of a piece is not there yet, and makes a barrier once so many bytes were written since the last.
    pub fn take(&mut self, disk: &Disk, at: u64, piece: &Piece<'_>, each: u64) -> Result<()> {
        let there = self.position.saturating_sub(at);
        let Some(piece) = piece.behind(there) else { return Ok(()) };
        let at = at + there;
        self.apply(at, &piece)?;
        self.position = at + piece.bytes();
        if self.behind >= each {
            self.barrier(disk)?;
        }
        Ok(())
    }

    fn apply(&mut self, at: u64, piece: &Piece<'_>) -> Result<()> {
        match piece {
            Piece::Data(data) => {
                self.unit.write_at(&self.volume, at, data)?;
                self.data += len_u64(data.len());
                self.behind += len_u64(data.len());
            }
            // A new volume is a hole already.
            Piece::Hole(_) if self.base.is_none() => {}
            Piece::Hole(bytes) => self.unit.discard(&self.volume, at, *bytes)?,
            Piece::Same(bytes) => self.keep_range(at..at + bytes)?,
        }
        Ok(())
    }

    /// What is as in the base: it is there already, but for what was changed since.
    fn keep_range(&mut self, range: Range<u64>) -> Result<()> {
        let Some(base) = &self.base else { return Ok(()) };
        let size = base.size()?;
        if range.end > size {
            let found = format!("a stream that has its bytes up to {}", range.end);
            return Err(Error::corrupt("the older snapshot", format!("{size} bytes"), found));
        }
        let first = self.stale.partition_point(|stale| stale.end <= range.start);
        for stale in self.stale[first..].iter().take_while(|stale| stale.start < range.end) {
            let both = stale.start.max(range.start)..stale.end.min(range.end);
            self.behind += both.end - both.start;
            self.volume.take_back(base, both, &mut self.unit)?;
        }
        Ok(())
    }

    /// What was taken in so far outlives a crash. Without room for that it goes on as it is.
    fn barrier(&mut self, disk: &Disk) -> Result<()> {
        let kept = Kept {
            info: self.info.clone(),
            position: self.position,
            data: self.data,
            list: self.volume.list(),
            snapshot: self.names.1.clone(),
        };
        self.behind = 0;
        match self.unit.barrier_as(&kept.encode()) {
            Ok(position) => {
                disk.flush_up_to(position, Survive::Power)?;
                self.kept = Some(self.position);
                Ok(())
            }
            Err(error)
                if !self.unit.is_broken() && matches!(error.kind(), ErrorKind::Full | ErrorKind::Unsupported) =>
            {
                crate::mark("receive: no room for a barrier");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Lets go of it: it can be gone on with from the position that is given back. None: nothing is kept, as if it had
    /// never been.
    pub fn keep(mut self, disk: &Disk) -> Option<u64> {
        if self.position > 0 && !self.unit.is_broken() {
            // What fails here has failed before, or leaves it at the barrier before.
            let _ = self.barrier(disk);
        }
        if self.kept.is_none() {
            self.give_up(disk);
            return None;
        }
        self.kept // Its unit is kept by its label.
    }

    /// As if it had never been. Its unit ends last: until then nobody else makes a volume of that name.
    pub fn give_up(self, disk: &Disk) {
        if self.info.base.is_none() {
            // If it cannot be deleted it stays as after a crash. What failed before is told, not this.
            let _ = delete_empty(disk, &self.label);
        }
        self.unit.abort();
    }
}
