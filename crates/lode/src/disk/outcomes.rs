//! How units ended (*Mime*, status of a visibility group): for the newest some thousand; of older ones it is forgotten.
//! An opening learns from the log that it replays how those ended that had a barrier, or were large.

use super::Inner;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Ordering;
use crate::types::{Lsn, UnitId, index64, len_u64};
use std::collections::BTreeMap;

/// So many units are remembered: of two whose numbers differ by this, the older is forgotten when the newer has ended.
const REMEMBERED: u64 = 1024;

/// What became of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitStatus {
    /// It has neither been committed nor dropped.
    Open,
    /// It is part of the committed state; durable once a flush covers this position.
    Committed(Lsn),
    /// It was dropped, or its commit failed: nothing of it counts.
    Aborted,
    /// It began too long ago to be known: before a thousand others that have ended; or it ended before the disk was opened,
    /// without a barrier, or before what the opening had to read of the log.
    Forgotten,
}

/// The ends of units, each at its number modulo [`REMEMBERED`]; and of those that had a label or a barrier by
/// themselves, since they may be as old as they like.
pub(crate) struct Outcomes {
    ends: Vec<(UnitId, Option<Lsn>)>,
    kept: BTreeMap<UnitId, Option<Lsn>>,
}

impl Outcomes {
    pub fn new() -> Outcomes {
        Outcomes { ends: vec![(UnitId(0), None); index64(REMEMBERED)], kept: BTreeMap::new() }
    }

    /// `committed`: where, unless it was aborted.
    pub fn note(&mut self, unit: UnitId, committed: Option<Lsn>) {
        let slot = &mut self.ends[index64(unit.0 % REMEMBERED)];
        if slot.0 < unit {
            *slot = (unit, committed);
        }
    }

    /// The same, of one that had a label or a barrier.
    pub fn note_kept(&mut self, unit: UnitId, committed: Option<Lsn>) {
        self.kept.insert(unit, committed);
        if len_u64(self.kept.len()) > REMEMBERED {
            self.kept.pop_first();
        }
    }
}

impl Inner {
    /// See [`crate::Disk::unit_status`].
    pub fn unit_status(&self, unit: UnitId) -> Result<UnitStatus> {
        if unit.0 >= self.next_unit.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::NotFound, format!("unit {} has never begun", unit.0)));
        }
        let is_open = self.units.lock().contains_key(&unit);
        let core = self.core.lock();
        if let Some(committed) = core.outcomes.kept.get(&unit) {
            return Ok(committed.map_or(UnitStatus::Aborted, UnitStatus::Committed));
        }
        if is_open {
            return Ok(UnitStatus::Open);
        }
        if unit.0 <= self.first_unit {
            return Ok(UnitStatus::Forgotten);
        }
        let (known, committed) = core.outcomes.ends[index64(unit.0 % REMEMBERED)];
        Ok(match committed {
            _ if known > unit => UnitStatus::Forgotten,
            _ if known < unit => UnitStatus::Open,
            Some(position) => UnitStatus::Committed(position),
            None => UnitStatus::Aborted,
        })
    }
}
