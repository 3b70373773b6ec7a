//! Receiving: takes in a stream as one unit, whose commit takes the snapshot.
//!
//! ```text
//!            head                  pieces                 end of the stream            commit
//!  nothing ────────> open at 0 ──────────────> open at N ───────────────────> whole ────────────> there
//!                                  │    ^
//!              cut, failed, crash  v    │ the same stream, from position N or before
//!                               kept at N ────> dropped: as if it had never been
//! ```
//! The unit has a label, so that one at a time receives a volume, and a barrier every so often, so that a crash takes it
//! back to that (see `kept`, `taking`). A new volume is made under another name, empty, and gets its name by the
//! commit; if it is dropped, so is that. A crash before the first barrier leaves it as it is: empty, and deleted by the
//! next receive of the same volume.

use super::begin::Asked;
use super::taking::Open;
use super::{SnapshotIdentity, StreamInfo, StreamReader};
use crate::disk::open::Disk;
use crate::disk::options::Survive;
use crate::error::{Error, ErrorKind, Result};
use crate::types::{Lsn, SnapshotId};
use crate::volume::Volume;
use std::io::Read;

/// A barrier each so many bytes: it costs a sync, and another record of some fifty bytes for each block, and a crash
/// costs as much to be sent once more.
const BARRIER_BYTES: u64 = 64 << 20;

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

/// Takes in a stream, or several of which each goes on where the one before was cut. Dropping it keeps what was taken in,
/// as [`Receiver::keep`] does.
pub struct Receiver {
    disk: Disk,
    options: ReceiveOptions,
    barrier_bytes: u64,
    made: u64,
    open: Option<Open>,
}

impl Disk {
    /// Takes in a stream of [`Volume::send`]: a full one makes a new volume, an incremental one changes a volume that
    /// is still what the snapshot saw that the stream is based on. All of it is committed at once, together with the
    /// snapshot, and on stable storage when this returns. `progress` is told how far it is, of how many bytes.
    ///
    /// If it fails nothing has changed that others see. What was taken in is kept ([`Disk::receives`]), after a crash up
    /// to some 64 MiB before it: the same stream, from its beginning or from a position up to which it is there, goes on
    /// with it. [`Disk::drop_receive`] drops it.
    ///
    /// `Exists`: the volume or the snapshot is there already, or another stream is kept for it; `NotFound`: there is no
    /// such volume, or it has no such snapshot; `Conflict`: it was changed since; `Ended`: the stream was cut, the words
    /// say where; `Corrupt`, `InvalidArgument`, `NewerFormat`, `Stream`: it is damaged, none, of a newer version, or
    /// cannot be read; `Full`.
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
        let (disk, options) = (self.clone(), options.clone());
        Ok(Receiver { disk, options, barrier_bytes: BARRIER_BYTES, made: 0, open: None })
    }

    /// The snapshot of a volume that has this content. `NotFound`.
    pub(super) fn base_of(&self, volume: &Volume, base: SnapshotIdentity) -> Result<Volume> {
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
    /// A barrier each so many bytes that are written, instead of 64 MiB.
    pub fn barrier_each(&mut self, bytes: u64) {
        self.barrier_bytes = bytes;
    }

    /// What it is now, in nanoseconds since 1970, for those who look at it later. The disk has no clock.
    pub fn made_at(&mut self, now: u64) {
        self.made = now;
    }

    /// How much of the volume is taken in: a stream that goes on begins there, or before.
    pub fn position(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.position)
    }

    /// What the first stream said, once it was read.
    pub fn info(&self) -> Option<&StreamInfo> {
        self.open.as_ref().map(|open| &open.info)
    }

    /// Takes in a stream to its end, and nothing behind it. What was kept of it before is gone on with, and what is there
    /// already is skipped. After `Ended`, `Stream` or `Corrupt` what came before is there, and another one with the same
    /// content may go on from [`Receiver::position`].
    pub fn take_in(&mut self, from: &mut dyn Read, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let mut reader = StreamReader::new(from)?;
        if self.open.is_none() {
            self.open = Some(Asked::of(&self.disk, &self.options, reader.info(), self.made)?.open()?);
        }
        let open = self.open.as_mut().expect("opened above");
        open.check_goes_on(reader.info())?;
        let bytes = open.info.bytes;
        let mut at = reader.position();
        while let Some(piece) = reader.next_piece()? {
            let length = piece.bytes();
            open.take(&self.disk, at, &piece, self.barrier_bytes)?;
            at += length;
            progress(open.position, bytes);
        }
        open.whole = true;
        Ok(())
    }

    /// Commits what was taken in, and makes it durable. `InvalidArgument`: it is not whole; `Conflict`: the volume was
    /// changed meanwhile, and what was taken in is dropped. After other errors it is kept.
    pub fn commit(mut self) -> Result<Received> {
        let Some(open) = self.open.as_mut().filter(|open| open.whole) else {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("the stream is not whole: it ended at position {}", self.position()),
            ));
        };
        let position = match open.unit.try_commit() {
            Ok(position) => position,
            Err(error) => {
                if error.kind() == ErrorKind::Conflict {
                    self.abort();
                }
                return Err(error);
            }
        };
        let (volume, snapshot) = open.names.clone();
        let (bytes, data) = (open.info.bytes, open.data);
        self.open = None; // It has its name now.
        self.disk.flush_up_to(position, Survive::Power)?;
        Ok(Received { volume, snapshot, bytes, data, position })
    }

    /// Lets go of it: it can be gone on with from the position that is given back. None: nothing is kept.
    pub fn keep(mut self) -> Option<u64> {
        self.open.take().and_then(|open| open.keep(&self.disk))
    }

    /// As if it had never been.
    pub fn abort(mut self) {
        if let Some(open) = self.open.take() {
            open.give_up(&self.disk);
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            open.keep(&self.disk);
        }
    }
}
