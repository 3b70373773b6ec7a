//! Recovery: from a medium to a state. Reads and decides; writes nothing.
//!
//! First the newest root (R25). Then the directory and the small tables; map sections stay on the medium (R24). Then
//! the segments of the record stream since the replay start, and where the stream ends. Last the records since,
//! applied.
//!
//! ```text
//! segment before the witness ── footer valid ─────────────> its records count, unread data and all
//!                            └─ footer lost ── walk ──────> the same, batch by batch; a gap is damage
//! segment behind the witness ── walk, verify every block ─> up to the first batch that is not whole
//! end of the stream: in front of the first gap, less an operation that goes on behind it
//! ```
//! A [`Recovered`] is a half-made disk: it has no writer, and only `open` turns it into one.

mod directory;
mod stream;

use crate::error::{Error, ErrorKind, Result};
use crate::format::header::BatchKind;
use crate::format::records::{Form, ListState, Record, run_fits};
use crate::format::root::{RootImage, RootSegment};
use crate::log::reader::{Batch, Reader, records_of};
use crate::roots::{self, RootCursor};
use crate::shape::Shape;
use crate::state::State;
use crate::types::{Lsn, NUMBERS_MAX, SegmentId, Sequence, UnitId};
use directory::read_directory;
use lode_media::{Geometry, Medium};
use stream::read_log;

/// A state and where the log goes on. See the file's head.
pub(crate) struct Recovered {
    pub shape: Shape,
    pub disk: u128,
    pub root: RootImage,
    pub cursor: RootCursor,
    pub state: State,
    /// The sequence and the record that come next.
    pub sequence: Sequence,
    pub lsn: Lsn,
    /// The segments that replay may need.
    pub segments: Vec<RootSegment>,
    /// The log ends before what was durable: what is missing.
    pub damage: Option<String>,
    /// How many records were read.
    pub replayed: u64,
    /// Zones whose batches do not count, but witness what the newest root relies on: not to be erased before the next
    /// one.
    pub dropped: Vec<u32>,
    /// Units that have ended since the replay start, and where those were committed.
    pub ended: Vec<(UnitId, Option<Lsn>)>,
}

/// Recovers what a medium holds.
pub(crate) fn recover(medium: &dyn Medium) -> Result<Recovered> {
    let found = roots::find(medium)?;
    // The medium may be larger than the disk on it.
    let shape = Shape::new(Geometry { zones: found.image.root.zones, ..medium.geometry() })?;
    let mut state = State::new(shape);
    read_directory(medium, &shape, &found.image, &mut state)?;
    state.next_list = state.next_list.max(found.image.root.next_list);
    let reader = Reader { medium, shape, disk: found.disk };
    let log = read_log(&reader, &found.image)?;
    let mut recovered = Recovered {
        shape,
        disk: found.disk,
        cursor: found.cursor,
        state,
        sequence: log.end,
        lsn: Lsn(found.image.root.replay_lsn),
        segments: log.segments,
        damage: log.damage,
        root: found.image,
        replayed: 0,
        dropped: log.dropped,
        ended: Vec::new(),
    };
    recovered.replay(&log.batches)?;
    Ok(recovered)
}

impl Recovered {
    fn replay(&mut self, batches: &[(u32, SegmentId, Batch)]) -> Result<()> {
        let mut expected: Option<Lsn> = None;
        let mut epoch = 0;
        for (zone, segment, batch) in batches {
            if batch.kind == BatchKind::Footer {
                continue;
            }
            let place = format!("zone {zone} offset {}", batch.offset);
            // A repair leaves out the numbers of what it gave up (see `number_on`).
            let goes_on =
                |expected: Lsn| expected == batch.first_lsn || (segment.epoch() > epoch && expected < batch.first_lsn);
            if let Some(expected) = expected
                && !goes_on(expected)
            {
                return Err(Error::corrupt(
                    place,
                    format!("record {}", expected.0),
                    format!("record {}", batch.first_lsn.0),
                ));
            }
            epoch = segment.epoch();
            if batch.first_lsn.0 >= NUMBERS_MAX {
                return Err(Error::corrupt(place, "a record number that a disk can reach", batch.first_lsn.0));
            }
            if batch.offset == 0 {
                self.state.zone_opened(*zone, crate::zones::Holds::Main, *segment, batch.first_lsn);
            }
            let records = records_of(batch)
                .ok_or_else(|| Error::corrupt(&place, "records of this version", "bytes that are none"))?;
            let mut lsn = batch.first_lsn;
            for record in &records {
                self.validate(record).map_err(|what| Error::corrupt(&place, "a record that has a meaning", what))?;
                if lsn.0 >= self.root.root.replay_lsn {
                    self.state.apply(record, lsn);
                    self.replayed += 1;
                }
                lsn = Lsn(lsn.0 + 1);
                match record {
                    Record::Commit { unit, .. } => self.ended.push((*unit, Some(lsn))),
                    Record::List(meta) if meta.form == Form::Unit && meta.state == ListState::Draining => {
                        self.ended.push((UnitId(meta.cut), None));
                    }
                    _ => {}
                }
            }
            expected = Some(lsn);
            self.state.zones.get_mut(*zone).records_end = lsn;
        }
        self.state.name_lists();
        if let Some(lsn) = expected {
            self.lsn = lsn;
        } else {
            crate::mark("recovery: nothing to replay");
            self.lsn = self.lsn.max(Lsn(self.root.root.replay_lsn));
        }
        if let Some(broken) = self.state.zones.broken.take() {
            return Err(Error::new(ErrorKind::Corrupt, format!("the tables and the log disagree: {broken}")));
        }
        if let Some(list) = self.state.orphans.keys().next() {
            return Err(Error::corrupt(
                "the directory",
                "sections of lists that exist",
                format!("a section of list {}", list.0),
            ));
        }
        Ok(())
    }

    /// Before a damaged log is gone on with: sections may hold records that the log has lost, so the next record gets a
    /// number that all of them take for new (R23).
    pub fn number_on(&mut self) -> Result<()> {
        let newest = self.state.metas().map(|meta| meta.lsn).max().unwrap_or_default();
        if newest.0 >= NUMBERS_MAX {
            return Err(Error::corrupt("the directory", "a record number that a disk can reach", newest.0));
        }
        self.lsn = self.lsn.max(newest).max(Lsn(self.root.root.next_lsn));
        Ok(())
    }

    /// What `apply` relies on, asked of records that come from outside.
    fn validate(&self, record: &Record) -> std::result::Result<(), String> {
        let (zones, zone_bytes) = (self.shape.zones, self.shape.zone_bytes);
        let fits = |place, count: usize| run_fits(place, count, zones, zone_bytes);
        match record {
            Record::Put { place, entries, first, list } => {
                if !(place.is_none() && entries.len() == 1 || place.is_bare() || fits(*place, entries.len()))
                    || entries.iter().any(|(old, _)| !old.is_none() && !old.is_bare() && !fits(*old, 1))
                {
                    return Err(format!("list {} block {first}: a place outside of the disk", list.0));
                }
                let end = first.saturating_add(u64::try_from(entries.len()).unwrap_or(u64::MAX));
                if end > self.shape.blocks_max() {
                    return Err(format!("list {} block {first}: beyond the largest list", list.0));
                }
                Ok(())
            }
            Record::ZoneOpened { zone, .. } | Record::ZoneFreed { zone, .. }
                if *zone >= zones || *zone < crate::shape::ROOT_ZONES =>
            {
                Err(format!("zone {zone} is none that may be used"))
            }
            _ => Ok(()),
        }
    }
}
