//! Where a stream is taken in: a unit that begins, or one that was kept.
//!
//! A unit that was kept can be committed only as long as its volume is what it was made for: a new one is empty, another
//! one is what the snapshot saw that the stream is based on (or, if changes are given up, what the unit's frozen view
//! sees, which lives as long as the unit). Both are asked again in the hold of the commit. Once that is not so it never
//! will be again, and the unit is dropped.

use super::kept::{Kept, delete_empty, label_of};
use super::receive::ReceiveOptions;
use super::taking::Open;
use super::{SnapshotIdentity, StreamInfo};
use crate::disk::open::Disk;
use crate::disk::options::{UnitConflicts, UnitOptions, VolumeOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::format::records::ListState;
use crate::types::{SnapshotId, UnitId};
use crate::unit::Unit;
use crate::unit::ending::{Ending, check_names};
use crate::units::UnitLabel;
use crate::volume::Volume;
use std::ops::Range;

/// What a receiver was asked for.
pub(super) struct Asked<'a> {
    pub disk: &'a Disk,
    pub info: &'a StreamInfo,
    pub volume: &'a str,
    pub snapshot: &'a str,
    /// The label of the unit, and the name of a new volume until the commit.
    pub label: String,
    pub force: bool,
    pub made: u64,
}

/// What became of a unit that was kept.
enum Resumed {
    Open(Box<Open>),
    /// It could never be committed, and was dropped.
    Dropped(String),
}

/// What a unit that was kept goes on with.
struct Place {
    volume: Volume,
    /// What the volume has to be as at the commit; none: empty.
    since: Option<SnapshotId>,
    /// What the stream is based on, and where the volume differs from that.
    base: Option<(Volume, Vec<Range<u64>>)>,
}

fn conflict(words: String) -> Error {
    Error::new(ErrorKind::Conflict, words)
}

impl Asked<'_> {
    pub fn of<'a>(disk: &'a Disk, options: &'a ReceiveOptions, info: &'a StreamInfo, made: u64) -> Result<Asked<'a>> {
        let volume = options.volume.as_ref().unwrap_or(&info.volume);
        let snapshot = options.snapshot.as_ref().unwrap_or(&info.snapshot);
        Ok(Asked { disk, info, volume, snapshot, label: label_of(volume)?, force: options.force, made })
    }

    /// Goes on with what was kept, or begins.
    pub fn open(&self) -> Result<Open> {
        let Ok(unit) = self.disk.unit_labelled(&self.label) else { return self.begin() };
        match self.resume(unit)? {
            Resumed::Open(open) => Ok(*open),
            Resumed::Dropped(why) if self.info.position > 0 => Err(conflict(why)),
            Resumed::Dropped(why) => {
                self.begin().map_err(|error| Error::new(error.kind(), format!("{error} (before that: {why})")))
            }
        }
    }

    fn begin(&self) -> Result<Open> {
        if self.info.position > 0 {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("the stream begins at position {}: expected its beginning before", self.info.position),
            ));
        }
        match self.info.base {
            None => self.new_volume(),
            Some(base) => self.old_volume(base),
        }
    }

    fn begin_unit(&self, watchful: bool) -> Result<Unit> {
        let conflicts = if watchful { UnitConflicts::Written } else { UnitConflicts::Allowed };
        let options = UnitOptions { conflicts, ..UnitOptions::default() };
        let label = UnitLabel { label: self.label.clone(), made: self.made, ..UnitLabel::default() };
        self.disk.begin_labelled(&label, &options).map_err(|error| self.in_use(error))
    }

    fn in_use(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::Exists => Error::new(ErrorKind::Exists, format!("it is being received already: {error}")),
            _ => error,
        }
    }

    fn new_volume(&self) -> Result<Open> {
        let disk = self.disk;
        // Before anything is made.
        check_names(&disk.inner().core.lock(), Some(self.volume), self.snapshot)?;
        let mut unit = self.begin_unit(false)?;
        let info = self.info;
        let options = VolumeOptions { bytes: 0, block_bytes: info.block_bytes, compression: info.compression };
        let made = remove_remnant(disk, &self.label).and_then(|()| disk.create_volume(&self.label, &options));
        let volume = match made {
            Ok(volume) => volume,
            Err(error) => {
                unit.abort();
                return Err(error);
            }
        };
        let begun = unit.end_with(self.ending(&volume, None)).and_then(|()| unit.resize(&volume, info.bytes));
        let open = Open::new(self, unit, volume);
        match begun {
            Ok(()) => Ok(open),
            Err(error) => {
                open.give_up(disk);
                Err(error)
            }
        }
    }

    fn old_volume(&self, base: SnapshotIdentity) -> Result<Open> {
        let volume = self.disk.volume(self.volume)?;
        if volume.is_snapshot() {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("{}: expected a volume", self.volume)));
        }
        let base = self.disk.base_of(&volume, base)?;
        check_names(&self.disk.inner().core.lock(), None, self.snapshot)?;
        // Who gives up changes must know all of them: what changes later is a conflict.
        let mut unit = self.begin_unit(self.force)?;
        let begun = self.prepare(&mut unit, &volume, &base);
        let open = Open::new(self, unit, volume);
        match begun {
            Ok(stale) => Ok(open.based_on(base, stale)),
            Err(error) => {
                open.give_up(self.disk);
                Err(error)
            }
        }
    }

    /// Asks whether the volume is what the stream is based on. Gives back what is to be taken back of it.
    fn prepare(&self, unit: &mut Unit, volume: &Volume, base: &Volume) -> Result<Vec<Range<u64>>> {
        let since = unit.frozen_view().or(base.snapshot());
        let stale = volume.changes_since(base)?;
        let changed = !stale.is_empty() || volume.size()? != base.size()?;
        if changed && !self.force {
            let words = format!("{} was changed since the snapshot that the stream is based on", self.volume);
            return Err(conflict(words));
        }
        unit.end_with(self.ending(volume, since))?;
        if volume.size()? != self.info.bytes {
            unit.resize(volume, self.info.bytes)?;
        }
        Ok(stale)
    }

    /// `since`: what the volume has to be as; none: empty, and it gets its name.
    fn ending(&self, volume: &Volume, since: Option<SnapshotId>) -> Ending {
        Ending {
            list: volume.list(),
            since,
            name: since.is_none().then(|| self.volume.to_owned()),
            snapshot: self.snapshot.to_owned(),
            made: self.info.identity.made,
            origin: self.info.identity.origin(),
        }
    }

    /// Takes up a unit. After an error it is kept as it was.
    fn resume(&self, unit: UnitId) -> Result<Resumed> {
        let mut unit = self.disk.inner().resume_unit(unit).map_err(|error| self.in_use(error))?;
        let Some(kept) = Kept::decode(&self.label, unit.cookie())? else {
            let words = format!("there is an open unit named {}, which receives no stream", self.label);
            return Err(Error::new(ErrorKind::Exists, words));
        };
        if !kept.info.is_same(self.info) {
            let words = format!(
                "{} has received another stream up to position {} of {}: that of {}; expected that one, or that what was \
                 received of it is dropped before",
                self.volume,
                kept.position,
                kept.info.bytes,
                kept.info.words()
            );
            return Err(Error::new(ErrorKind::Exists, words));
        }
        match self.place(&kept, unit.frozen_view())? {
            Ok(place) => {
                unit.end_with(self.ending(&place.volume, place.since))?;
                crate::mark("receive: gone on with what was kept");
                let open = Open::new(self, unit, place.volume).at_barrier(&kept);
                Ok(Resumed::Open(Box::new(match place.base {
                    Some((base, stale)) => open.based_on(base, stale),
                    None => open,
                })))
            }
            Err(why) => {
                crate::mark("receive: what can never count dropped");
                if kept.info.base.is_none() {
                    delete_empty(self.disk, &self.label)?;
                }
                unit.abort();
                let position = kept.position;
                let words = format!("{why}, so what was received before, up to position {position}, was dropped");
                Ok(Resumed::Dropped(words))
            }
        }
    }

    /// Where a unit goes on that was kept; or why it never can be committed.
    fn place(&self, kept: &Kept, view: Option<SnapshotId>) -> Result<std::result::Result<Place, String>> {
        let name = if self.info.base.is_some() { self.volume } else { &self.label };
        let Some(volume) = self.listed(name, kept)? else { return Ok(Err(format!("the volume {name} is gone"))) };
        let Some(base) = self.info.base else {
            let bytes = volume.size()?;
            let place = Place { volume, since: None, base: None };
            return Ok(if bytes == 0 { Ok(place) } else { Err(format!("the volume {name} has {bytes} bytes")) });
        };
        let base = match self.disk.base_of(&volume, base) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Err(error.to_string())),
            base => base?,
        };
        let since = view.or(base.snapshot()).expect("the base is a snapshot");
        let before = volume.clone().seen_by(since);
        if volume.size()? != before.size()? || !volume.changes_since(&before)?.is_empty() {
            let when = match view {
                Some(_) => "it began to be received",
                None => "the snapshot that the stream is based on",
            };
            return Ok(Err(format!("{name} was changed since {when}")));
        }
        let stale = before.changes_since(&base)?;
        Ok(Ok(Place { volume, since: Some(since), base: Some((base, stale)) }))
    }

    /// The volume of this name, if it is the one that the unit writes into.
    fn listed(&self, name: &str, kept: &Kept) -> Result<Option<Volume>> {
        match self.disk.volume(name) {
            Ok(volume) => Ok(Some(volume).filter(|volume| volume.list() == kept.list && !volume.is_snapshot())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What a crash left of an earlier receive: a volume without a byte.
fn remove_remnant(disk: &Disk, name: &str) -> Result<()> {
    if delete_empty(disk, name)? {
        crate::mark("receive: what a crash left removed");
        return Ok(());
    }
    let found = {
        let core = disk.inner().core.lock();
        let list = core.state.names.get(name).and_then(|list| core.state.lists.get(list));
        list.filter(|list| list.meta.state == ListState::There).map(|list| list.meta.bytes)
    };
    found.map_or(Ok(()), |bytes| {
        Err(Error::new(
            ErrorKind::Exists,
            format!("there is a volume named {name}, of {bytes} bytes, where the new one is to be made"),
        ))
    })
}
