//! What a commit does at its end, in the same step: a volume takes its name, and a snapshot of it is taken. So what
//! comes in a stream is there with its snapshot, or not at all.
//!
//! The records stand behind those of the unit, in the same batch or chain of batches.

use super::Unit;
use crate::disk::put::Again;
use crate::disk::snapshots::ORIGIN_BYTES;
use crate::disk::space::Claim;
use crate::disk::volumes::{LIST_RECORD, check_name};
use crate::disk::{Core, Reserved};
use crate::error::{Error, ErrorKind, Result};
use crate::format::records::Origin;
use crate::planted::{self, Bug};
use crate::shape::BLOCK_CHARGE;
use crate::types::{ListId, SnapshotId};

/// Beyond any block of a list.
const ALL_BLOCKS: u64 = u64::MAX >> 1;

/// See the file's head.
pub(crate) struct Ending {
    /// The volume.
    pub list: ListId,
    /// It must be as this snapshot saw it; none: it must have no bytes.
    pub since: Option<SnapshotId>,
    /// What it is called from then on; the unit must give it a size, too.
    pub name: Option<String>,
    /// The snapshot of it that is taken.
    pub snapshot: String,
    pub made: u64,
    pub origin: Origin,
}

fn taken(what: &str, name: &str) -> Error {
    Error::new(ErrorKind::Exists, format!("there is a {what} named {name} already"))
}

/// The names can be given: of a new volume, if there is one, and of a snapshot.
pub(crate) fn check_names(core: &Core, volume: Option<&str>, snapshot: &str) -> Result<()> {
    if let Some(volume) = volume {
        check_name("a volume", volume)?;
        if core.state.names.contains_key(volume) {
            return Err(taken("volume", volume));
        }
    }
    check_name("a snapshot", snapshot)?;
    if core.state.versions.names.contains_key(snapshot) {
        return Err(taken("snapshot", snapshot));
    }
    Ok(())
}

impl Ending {
    /// Whether the volume is what the unit was made for.
    fn is_as_before(&self, core: &Core) -> std::result::Result<bool, Again> {
        let Ok(meta) = core.check_list(self.list, 0) else { return Ok(false) };
        let bytes = meta.bytes;
        let Some(since) = self.since else { return Ok(bytes == 0) };
        let seen = core.state.meta_at(self.list, since).map(|meta| meta.bytes);
        Ok(seen == Some(bytes) && !core.state.any_changed_since(self.list, since, 0, ALL_BLOCKS)?)
    }
}

impl Ending {
    fn write(&self, core: &mut Core) {
        core.write_snapshot(&self.snapshot, self.made, vec![self.list], Some(self.origin), ListId(0));
    }
}

impl Unit {
    /// Sets what the commit does at its end, also anew. Its space is promised here (P5). `Exists`, `InvalidArgument`,
    /// `Full`. It is not part of a barrier.
    pub(crate) fn end_with(&mut self, ending: Ending) -> Result<()> {
        self.alive()?;
        let disk = std::sync::Arc::clone(&self.disk);
        let mut core = disk.writable()?;
        check_names(&core, ending.name.as_deref(), &ending.snapshot)?;
        let charge = if self.ending.is_some() { 0 } else { disk.shape.list_charge() };
        let space = Reserved { bytes: charge, blocks: 0 };
        if !core.promises(space.bytes) {
            return Err(disk.full(&core, space.bytes));
        }
        core.reserved += space;
        self.reserved += space;
        self.ending = Some(Box::new(ending));
        Ok(())
    }

    /// The frozen view that the unit began with, if it asked for one.
    pub(crate) fn frozen_view(&self) -> Option<SnapshotId> {
        self.frozen
    }

    /// Bytes of records that the ending takes.
    pub(super) fn ending_bytes(&self) -> u32 {
        // The new name stands in a record of the volume that is counted with its size.
        self.ending.as_ref().map_or(0, |_| LIST_RECORD + 4 + ORIGIN_BYTES)
    }

    /// Asked before anything is changed.
    pub(super) fn ask_ending(&self, core: &Core) -> std::result::Result<(), Again> {
        let Some(ending) = &self.ending else { return Ok(()) };
        check_names(core, ending.name.as_deref(), &ending.snapshot)?;
        if !ending.is_as_before(core)? {
            let name = core.state.label(ending.list);
            let changed = format!("{name} was changed by others meanwhile");
            return Err(Again::Never(Error::new(ErrorKind::Conflict, changed)));
        }
        // Holes may be seen from now on where other units write.
        let others = core.reserved.blocks.saturating_sub(self.reserved.blocks);
        let holes = if core.state.versions.is_empty() { others.saturating_mul(BLOCK_CHARGE) } else { 0 };
        if holes > 0 && !core.promises(holes) {
            return Err(Again::Space(holes));
        }
        Ok(())
    }

    /// The name that a volume gets with its size.
    pub(super) fn name_for(&self, list: ListId) -> Option<&String> {
        self.ending.as_ref().filter(|ending| ending.list == list)?.name.as_ref()
    }

    /// Takes the snapshot. Room was made for it.
    pub(super) fn write_ending(&self, core: &mut Core) {
        if let Some(ending) = self.ending.as_ref().filter(|_| !planted::is(Bug::EndingApart)) {
            crate::mark("unit: a snapshot taken by a commit");
            ending.write(core);
        }
    }

    /// For [`Bug::EndingApart`].
    pub(super) fn end_apart(&self) -> Result<()> {
        let Some(ending) = &self.ending else { return Ok(()) };
        self.disk.core.lock().writer.seal(false);
        self.disk.with_room(0, LIST_RECORD + 4 + ORIGIN_BYTES, Claim::Urgent, |core| ending.write(core))
    }
}
