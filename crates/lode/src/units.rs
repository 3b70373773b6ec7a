//! Units that outlive their handle, or the opening of the disk: by label, and by barriers (*Mime*, barrier and status;
//! architecture, section 7). A writable clone is one that sees a snapshot (section 8).

use crate::disk::open::Disk;
use crate::disk::options::{UnitOptions, UnitView};
use crate::disk::outcomes::UnitStatus;
use crate::disk::units::UnitInfo;
use crate::error::{Error, ErrorKind, Result};
use crate::types::{SnapshotId, UnitId};
use crate::unit::{Barrier, COOKIE_BYTES_MAX, Unit, UnitCopy};
use std::ops::ControlFlow;

/// How a unit is known that outlives its handle.
#[derive(Clone, Debug, Default)]
pub struct UnitLabel {
    /// The name by which it is taken up again.
    pub label: String,
    /// When it begins, in nanoseconds since 1970, for those who look at it later. The disk has no clock.
    pub made: u64,
    /// Until when it is kept if nobody takes it up ([`Disk::end_leases`]); zero: for ever.
    pub until: u64,
    /// The snapshot that it sees: it is a writable clone then. None: what its options say.
    pub snapshot: Option<String>,
}

impl UnitLabel {
    fn barrier(&self) -> Result<Barrier> {
        crate::disk::volumes::check_name("a unit", &self.label)?;
        Ok(Barrier::labelled(self.label.clone(), self.made, self.until))
    }
}

impl Unit {
    /// A unit with a label of its own that sees what this one sees, with everything that this one has changed so far. Cost:
    /// copies it, and takes as much space. `progress` is told how far it is, of how many bytes, and may end it: then nothing
    /// comes of it. `Exists`: an open unit has this label; `Full`; `Conflict`: an operation on ordered lists has no meaning
    /// any more. The snapshot that `label` names is not asked.
    pub fn copy(
        &mut self,
        label: &UnitLabel,
        progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
    ) -> Result<Option<UnitCopy>> {
        self.copy_as(label.barrier()?, progress)
    }
}

impl Disk {
    /// Begins a unit that is kept when its handle is dropped, until it is committed or aborted: [`Disk::resume`] takes it
    /// up again. After a crash it is what it was at its last [`Unit::barrier`], or is gone if it has none. `Exists`: an
    /// open unit has this label. `NotFound`: there is no such snapshot. `Full`.
    pub fn begin_labelled(&self, label: &UnitLabel, options: &UnitOptions) -> Result<Unit> {
        let known = label.barrier()?;
        let mut unit = self.begin()?;
        let inner = self.inner();
        match &label.snapshot {
            None => unit.set_options(options)?,
            Some(name) => {
                let snapshot = SnapshotId(inner.core.lock().state.snapshot_named(name)?.0);
                unit.see(snapshot, UnitOptions { view: UnitView::Frozen, ..*options });
            }
        }
        unit.set_label(known)?;
        Ok(unit)
    }

    /// The open units that have a label or a barrier, oldest first. Cost: reads what they had changed at their barriers.
    pub fn units(&self) -> Result<Vec<UnitInfo>> {
        self.inner().list_units()
    }

    /// Takes up the unit with this label. After a crash it is what it was at its last barrier; [`Unit::cookie`] tells its
    /// user how far that was. `NotFound`; `Exists`: somebody has it in hand; `InvalidArgument`: it receives a stream
    /// ([`Disk::receiver`]).
    pub fn resume(&self, label: &str) -> Result<Unit> {
        self.resume_unit(self.inner().unit_labelled(label)?)
    }

    /// The same, by number.
    pub fn resume_unit(&self, unit: UnitId) -> Result<Unit> {
        if self.inner().options.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the disk is open for reading only"));
        }
        let unit = self.inner().resume_unit(unit)?;
        if unit.cookie().len() <= COOKIE_BYTES_MAX {
            return Ok(unit);
        }
        // It is kept by its label. What it has taken in counts as a whole only, and as more than a unit.
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("unit {} receives a stream: it is gone on with by receiving", unit.label().unwrap_or_default()),
        ))
    }

    /// Ends a unit that nobody has in hand, as if it had never been. `NotFound`; `Exists`: somebody has it in hand.
    pub fn abort_unit(&self, unit: UnitId) -> Result<()> {
        drop(self.inner().writable()?);
        self.inner().abort_unit(unit)
    }

    /// The number of the open unit with a label. `NotFound`.
    pub fn unit_labelled(&self, label: &str) -> Result<UnitId> {
        self.inner().unit_labelled(label)
    }

    /// Ends the units that nobody has in hand and that were to be kept until some time before `now`, in nanoseconds since
    /// 1970. Gives back their numbers.
    pub fn end_leases(&self, now: u64) -> Result<Vec<UnitId>> {
        let mut ended = Vec::new();
        let (over, known) = self.inner().units_until(now);
        for unit in over {
            match self.abort_unit(unit) {
                Ok(()) => ended.push(unit),
                // Somebody took it up, or ended it, meanwhile.
                Err(error) if matches!(error.kind(), ErrorKind::Exists | ErrorKind::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        known.map(|()| ended)
    }

    /// What became of a unit: exact, or `Forgotten`. `NotFound`: there has never been such a unit.
    pub fn unit_status(&self, unit: UnitId) -> Result<UnitStatus> {
        self.inner().unit_status(unit)
    }
}
