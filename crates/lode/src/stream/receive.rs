//! Receiving: takes in a stream as one unit, whose commit takes the snapshot.
//!
//! ```text
//!            head                  pieces                 end of the stream            commit
//!  nothing ────────> open at 0 ──────────────> open at N ───────────────────> whole ────────────> there
//!                                  │    ^
//!                             cut  v    │ another stream, from position N or before
//!                               open at N ────> dropped: as if it had never been
//! ```
//! A new volume is made under another name, empty, and gets its name by the commit. Dropped before, it is deleted. A
//! crash leaves it as it is: empty, and deleted by the next receive of the same volume. Its unit has that name as its
//! label, so that one at a time makes it.
//!
//! How far it has come is noted in one place, `Open::reached`, and the unit is begun in one, `Open::begin_unit`: there
//! it can be made to survive a crash.

use super::{Piece, SnapshotIdentity, StreamInfo, StreamReader};
use crate::disk::open::Disk;
use crate::disk::options::{Survive, UnitConflicts, UnitOptions, VolumeOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::format::records::{ListState, NAME_BYTES_MAX};
use crate::types::{Lsn, SnapshotId, len_u64};
use crate::unit::Unit;
use crate::unit::ending::{Ending, check_names};
use crate::units::UnitLabel;
use crate::volume::Volume;
use std::io::Read;
use std::ops::Range;

/// What a volume is called, behind its name, until all of it is there.
const RECEIVING: &str = ".receiving";

/// How a stream is received.
#[derive(Clone, Debug, Default)]
pub struct ReceiveOptions {
    /// The volume; none: of the same name as where it comes from.
    pub volume: Option<String>,
    /// The name of the snapshot that is taken; none: as where it comes from.
    pub snapshot: Option<String>,
    /// Gives up what was changed in the volume since the snapshot that the stream is based on.
    pub force: bool,
}

/// What was received, and is on stable storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The volume.
    pub volume: String,
    /// The snapshot of it that was taken.
    pub snapshot: String,
    /// The size of the volume.
    pub bytes: u64,
    /// Bytes that the stream brought.
    pub data: u64,
    /// The position of the merged stream behind it.
    pub position: Lsn,
}

/// Takes in a stream, or several of which each goes on where the one before was cut. Dropping it undoes everything.
pub struct Receiver {
    disk: Disk,
    options: ReceiveOptions,
    open: Option<Open>,
}

/// A stream that is being received.
struct Open {
    info: StreamInfo,
    unit: Unit,
    volume: Volume,
    /// The name that a new volume has until the commit.
    made: Option<String>,
    names: (String, String),
    base: Option<Volume>,
    /// What differs from the base, to be taken back.
    stale: Vec<Range<u64>>,
    position: u64,
    data: u64,
    whole: bool,
}

impl Disk {
    /// Takes in a stream of [`Volume::send`]: a full one makes a new volume, an incremental one changes a volume that
    /// is still what the snapshot saw that the stream is based on. All of it is committed at once, together with the
    /// snapshot, and on stable storage when this returns; if it fails, nothing has changed. `progress` is told how far
    /// it is, of how many bytes.
    ///
    /// `Exists`: the volume or the snapshot is there already; `NotFound`: there is no such volume, or it has no such
    /// snapshot; `Conflict`: it was changed since; `Ended`: the stream was cut, the words say where; `Corrupt`,
    /// `InvalidArgument`, `NewerFormat`, `Stream`: it is damaged, none, of a newer version, or cannot be read; `Full`.
    pub fn receive(
        &self,
        from: &mut dyn Read,
        options: &ReceiveOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Received> {
        let mut receiver = self.receiver(options)?;
        receiver.take_in(from, progress)?;
        receiver.commit()
    }

    /// As [`Disk::receive`], step by step: so that a stream that was cut can be gone on with.
    pub fn receiver(&self, options: &ReceiveOptions) -> Result<Receiver> {
        drop(self.inner().writable()?);
        Ok(Receiver { disk: self.clone(), options: options.clone(), open: None })
    }

    /// The snapshot of a volume that has this content. `NotFound`.
    fn base_of(&self, volume: &Volume, base: SnapshotIdentity) -> Result<Volume> {
        let inner = self.inner();
        let core = inner.core.lock();
        let named = core.state.versions.names.values().copied();
        let seen = named.filter(|snapshot| core.state.versions.is_of(*snapshot, volume.list()));
        let same = |id: &SnapshotId| SnapshotIdentity::find(&core, inner.disk, volume.list(), *id) == Some(base);
        let found = seen.filter(same).max();
        drop(core);
        found.map(|snapshot| volume.clone().seen_by(snapshot)).ok_or_else(|| {
            let words = format!(
                "{} has no snapshot with the content that the stream is based on, snapshot {} of list {} of disk {:x}",
                volume.label(),
                base.snapshot,
                base.list,
                base.disk
            );
            Error::new(ErrorKind::NotFound, words)
        })
    }
}

impl Receiver {
    /// How much of the volume is taken in: a stream that goes on begins there, or before.
    pub fn position(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.position)
    }

    /// What the first stream said, once it was read.
    pub fn info(&self) -> Option<&StreamInfo> {
        self.open.as_ref().map(|open| &open.info)
    }

    /// Takes in a stream to its end, and nothing behind it. After `Ended`, `Stream` or `Corrupt` what came before is
    /// kept, and another one with the same head may go on from [`Receiver::position`].
    pub fn take_in(&mut self, from: &mut dyn Read, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let mut reader = StreamReader::new(from)?;
        match &self.open {
            None => self.open = Some(Open::begin(&self.disk, &self.options, reader.info())?),
            Some(open) => open.check_goes_on(reader.info())?,
        }
        let open = self.open.as_mut().expect("opened above");
        let bytes = open.info.bytes;
        let mut at = reader.position();
        while let Some(piece) = reader.next_piece()? {
            open.apply(at, &piece)?;
            at += piece.bytes();
            open.reached(at);
            progress(open.position, bytes);
        }
        open.whole = true;
        Ok(())
    }

    /// Commits what was taken in, and makes it durable. `InvalidArgument`: it is not whole.
    pub fn commit(mut self) -> Result<Received> {
        let Some(open) = self.open.as_mut().filter(|open| open.whole) else {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("the stream is not whole: it ended at position {}", self.position()),
            ));
        };
        let position = open.unit.try_commit()?;
        open.made = None; // It has its name now.
        let (volume, snapshot) = open.names.clone();
        let (bytes, data) = (open.info.bytes, open.data);
        self.disk.flush_up_to(position, Survive::Power)?;
        Ok(Received { volume, snapshot, bytes, data, position })
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(open) = self.open.take()
            && let Some(name) = open.made
        {
            give_up(&self.disk, &name, open.unit);
        }
    }
}

impl Open {
    fn begin(disk: &Disk, options: &ReceiveOptions, info: &StreamInfo) -> Result<Open> {
        if info.position > 0 {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("the stream begins at position {}: expected its beginning before", info.position),
            ));
        }
        let name = options.volume.as_ref().unwrap_or(&info.volume);
        let snapshot = options.snapshot.as_ref().unwrap_or(&info.snapshot);
        let names = (name.clone(), snapshot.clone());
        match info.base {
            None => Open::new_volume(disk, info, names),
            Some(base) => Open::old_volume(disk, info, names, base, options.force),
        }
    }

    /// `made`: the name that a new volume has until the commit.
    fn begin_unit(disk: &Disk, watchful: bool, made: Option<&str>) -> Result<Unit> {
        let conflicts = if watchful { UnitConflicts::Written } else { UnitConflicts::Allowed };
        let options = UnitOptions { conflicts, ..UnitOptions::default() };
        let Some(made) = made else { return disk.begin_with(&options) };
        let label = UnitLabel { label: made.to_owned(), ..UnitLabel::default() };
        disk.begin_labelled(&label, &options).map_err(|error| match error.kind() {
            ErrorKind::Exists => Error::new(ErrorKind::Exists, format!("it is being received already: {error}")),
            _ => error,
        })
    }

    fn new_volume(disk: &Disk, info: &StreamInfo, names: (String, String)) -> Result<Open> {
        let temporary = format!("{}{RECEIVING}", names.0);
        let ending = |volume: &Volume| Ending {
            list: volume.list(),
            since: None,
            name: Some(names.0.clone()),
            snapshot: names.1.clone(),
            made: info.identity.made,
            origin: info.identity.origin(),
        };
        if temporary.len() > NAME_BYTES_MAX {
            let most = NAME_BYTES_MAX - RECEIVING.len();
            let words = format!("a name of {} bytes: expected at most {most} to receive a volume", names.0.len());
            return Err(Error::new(ErrorKind::InvalidArgument, words));
        }
        // Before anything is made.
        check_names(&disk.inner().core.lock(), Some(&names.0), &names.1)?;
        let mut unit = Open::begin_unit(disk, false, Some(&temporary))?;
        let options = VolumeOptions { bytes: 0, block_bytes: info.block_bytes, compression: info.compression };
        let made = remove_remnant(disk, &temporary).and_then(|()| disk.create_volume(&temporary, &options));
        let volume = match made {
            Ok(volume) => volume,
            Err(error) => {
                unit.abort();
                return Err(error);
            }
        };
        let begun = unit.end_with(ending(&volume)).and_then(|()| unit.resize(&volume, info.bytes));
        if let Err(error) = begun {
            give_up(disk, &temporary, unit);
            return Err(error);
        }
        Ok(Open { made: Some(temporary), ..Open::new(info, unit, volume, names) })
    }

    fn old_volume(
        disk: &Disk,
        info: &StreamInfo,
        names: (String, String),
        base: SnapshotIdentity,
        force: bool,
    ) -> Result<Open> {
        let volume = disk.volume(&names.0)?;
        if volume.is_snapshot() {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("{}: expected a volume", names.0)));
        }
        let base = disk.base_of(&volume, base)?;
        check_names(&disk.inner().core.lock(), None, &names.1)?;
        // Who gives up changes must know all of them: what changes later is a conflict.
        let mut unit = Open::begin_unit(disk, force, None)?;
        let stale = volume.changes_since(&base)?;
        let changed = !stale.is_empty() || volume.size()? != base.size()?;
        if changed && !force {
            let words = format!("{} was changed since the snapshot that the stream is based on", names.0);
            return Err(Error::new(ErrorKind::Conflict, words));
        }
        unit.end_with(Ending {
            list: volume.list(),
            since: unit.frozen_view().or(base.snapshot()),
            name: None,
            snapshot: names.1.clone(),
            made: info.identity.made,
            origin: info.identity.origin(),
        })?;
        if volume.size()? != info.bytes {
            unit.resize(&volume, info.bytes)?;
        }
        Ok(Open { base: Some(base), stale, ..Open::new(info, unit, volume, names) })
    }

    fn new(info: &StreamInfo, unit: Unit, volume: Volume, names: (String, String)) -> Open {
        let info = info.clone();
        let (made, base, stale) = Default::default();
        Open { info, unit, volume, made, names, base, stale, position: 0, data: 0, whole: false }
    }

    /// The same stream, from no later position.
    fn check_goes_on(&self, info: &StreamInfo) -> Result<()> {
        let wrong = |expected: String, found: String| {
            let words = format!("a stream that goes on: expected {expected}, found {found}");
            Err(Error::new(ErrorKind::InvalidArgument, words))
        };
        if (StreamInfo { position: 0, ..info.clone() }) != self.info {
            let name = |info: &StreamInfo| format!("{}@{}", info.volume, info.snapshot);
            return wrong(format!("the stream of {} that was cut", name(&self.info)), format!("one of {}", name(info)));
        }
        if self.whole {
            return wrong("none, since the one before was whole".to_owned(), "one".to_owned());
        }
        if info.position > self.position {
            return wrong(format!("one from position {} on", self.position), format!("one from {}", info.position));
        }
        Ok(())
    }

    fn apply(&mut self, at: u64, piece: &Piece<'_>) -> Result<()> {
        match piece {
            Piece::Data(data) => {
                self.unit.write_at(&self.volume, at, data)?;
                self.data += len_u64(data.len());
            }
            // A new volume is a hole already.
            Piece::Hole(_) if self.base.is_none() => {}
            Piece::Hole(bytes) => self.unit.discard(&self.volume, at, *bytes)?,
            Piece::Same(bytes) => self.keep(at..at + bytes)?,
        }
        Ok(())
    }

    /// What is as in the base: it is there already, but for what was changed since.
    fn keep(&mut self, range: Range<u64>) -> Result<()> {
        let Some(base) = &self.base else { return Ok(()) };
        let size = base.size()?;
        if range.end > size {
            let found = format!("a stream that has its bytes up to {}", range.end);
            return Err(Error::corrupt("the older snapshot", format!("{size} bytes"), found));
        }
        let first = self.stale.partition_point(|stale| stale.end <= range.start);
        for stale in self.stale[first..].iter().take_while(|stale| stale.start < range.end) {
            let both = stale.start.max(range.start)..stale.end.min(range.end);
            self.volume.take_back(base, both, &mut self.unit)?;
        }
        Ok(())
    }

    /// Everything before `position` is in the unit.
    fn reached(&mut self, position: u64) {
        self.position = self.position.max(position);
    }
}

/// As if the new volume had never been. Its unit ends last: until then nobody else makes one of that name.
fn give_up(disk: &Disk, name: &str, unit: Unit) {
    // If it cannot be deleted it stays as after a crash. What failed before is told, not this.
    let _ = disk.delete_volume(name);
    unit.abort();
}

/// What a crash left of an earlier receive: a volume without a byte.
fn remove_remnant(disk: &Disk, name: &str) -> Result<()> {
    let bytes = {
        let core = disk.inner().core.lock();
        let list = core.state.names.get(name).and_then(|list| core.state.lists.get(list));
        list.filter(|list| list.meta.state == ListState::There).map(|list| list.meta.bytes)
    };
    match bytes {
        None => Ok(()),
        Some(0) => {
            crate::mark("receive: what a crash left removed");
            disk.delete_volume(name).map(drop)
        }
        Some(bytes) => Err(Error::new(
            ErrorKind::Exists,
            format!("there is a volume named {name}, of {bytes} bytes, where the new one is to be made"),
        )),
    }
}
