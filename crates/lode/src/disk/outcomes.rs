//! How units ended (*Mime*, status of a visibility group): for the newest some thousand; of older ones it is forgotten.

use super::Inner;
use crate::error::{Error, ErrorKind, Result};
use crate::types::{Lsn, UnitId, index64};
use std::sync::atomic::Ordering;

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
    /// It began too long ago to be known: before the disk was opened, or before a thousand others that have ended.
    Forgotten,
}

/// The ends of units, each at its number modulo [`REMEMBERED`].
pub(crate) struct Outcomes(Vec<(UnitId, Option<Lsn>)>);

impl Outcomes {
    pub fn new() -> Outcomes {
        Outcomes(vec![(UnitId(0), None); index64(REMEMBERED)])
    }

    /// `committed`: where, unless it was aborted.
    pub fn note(&mut self, unit: UnitId, committed: Option<Lsn>) {
        let slot = &mut self.0[index64(unit.0 % REMEMBERED)];
        if slot.0 < unit {
            *slot = (unit, committed);
        }
    }
}

impl Inner {
    /// See [`crate::Disk::unit_status`].
    pub fn unit_status(&self, unit: UnitId) -> Result<UnitStatus> {
        if unit.0 >= self.next_unit.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::NotFound, format!("unit {} has never begun", unit.0)));
        }
        if unit.0 <= self.first_unit {
            return Ok(UnitStatus::Forgotten);
        }
        let (known, committed) = self.core.lock().outcomes.0[index64(unit.0 % REMEMBERED)];
        Ok(match committed {
            _ if known > unit => UnitStatus::Forgotten,
            _ if known < unit => UnitStatus::Open,
            Some(position) => UnitStatus::Committed(position),
            None => UnitStatus::Aborted,
        })
    }
}
