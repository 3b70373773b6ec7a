//! Sending: reads a volume as a snapshot saw it, and writes a stream.

use super::writer::StreamWriter;
use super::{SnapshotIdentity, StreamInfo};
use crate::disk::options::Survive;
use crate::error::{Error, ErrorKind, Result};
use crate::format::records::Compression;
use crate::format::stream::PIECE_BYTES_MAX;
use crate::planted::{self, Bug};
use crate::types::{ListId, SnapshotId, index64};
use crate::volume::Volume;
use std::io::Write;
use std::ops::Range;

/// So much of a volume is looked at for holes at once.
const WINDOW: u64 = 1 << 30;

/// How a volume is sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendOptions {
    /// Where in the volume to begin: to go on with a stream that was cut there.
    pub position: u64,
    /// How the stream is compressed, whatever the volume is.
    pub compression: Compression,
}

/// What was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of the volume that the stream brings; the rest are holes, or were there before.
    pub data: u64,
    /// Bytes of the stream.
    pub stream: u64,
}

impl Volume {
    /// Writes this volume, as the snapshot saw it that it was opened at, as a stream for [`crate::Disk::receive`]; with
    /// `from`, an older snapshot of it, only what changed since, found from the tables alone. `progress` is told how
    /// far it is, of how many bytes. Others go on meanwhile. `InvalidArgument`: this is no snapshot, `from` no older
    /// one, or there is no such position; `NotFound`: the snapshot was deleted meanwhile; `Stream`: writing failed.
    /// Cost: reads what is sent, and flushes the disk first.
    pub fn send(
        &self,
        from: Option<&Volume>,
        options: &SendOptions,
        into: &mut dyn Write,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Sent> {
        let info = self.stream_info(from, options.position)?;
        let end = info.bytes;
        let changes = match from {
            Some(from) => self.changes_since(from)?,
            None => std::iter::once(0..end).collect(),
        };
        // A number that a crash takes back may be given again: what is sent must stay what it is.
        if !planted::is(Bug::SentNotDurable) {
            self.make_durable()?;
        }
        let mut writer = StreamWriter::begin(into, &info, options.compression)?;
        for range in changes {
            // Whole blocks: a part of a hole would be written as zeros over there.
            let start = range.start - range.start % u64::from(self.block_bytes());
            let range = start.max(writer.position)..range.end.min(end);
            if !range.is_empty() {
                writer.same(range.start - writer.position)?;
                self.send_range(range, &mut writer, &mut |done| progress(done, end))?;
            }
        }
        writer.same(end - writer.position)?;
        progress(end, end);
        writer.end()?;
        Ok(Sent { data: writer.data, stream: writer.written })
    }

    fn stream_info(&self, from: Option<&Volume>, position: u64) -> Result<StreamInfo> {
        let bytes = self.size()?;
        if position > bytes {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("position {position}: expected at most {bytes}, the size of {}", self.label()),
            ));
        }
        let (identity, snapshot) = self.identity()?;
        Ok(StreamInfo {
            volume: self.name(),
            snapshot,
            bytes,
            block_bytes: self.block_bytes(),
            compression: self.compression(),
            identity,
            base: from.map(|from| from.identity()).transpose()?.map(|(identity, _)| identity),
            position,
        })
    }

    /// What this content is called everywhere, and the name of the snapshot.
    fn identity(&self) -> Result<(SnapshotIdentity, String)> {
        let Some(snapshot) = self.snapshot() else {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{} changes: expected the volume in a snapshot", self.label()),
            ));
        };
        let disk = self.disk();
        let core = disk.core.lock();
        let meta = core.state.lists.get(&ListId(snapshot.0)).map(|list| &list.meta);
        let identity = SnapshotIdentity::find(&core, disk.disk, self.list(), snapshot);
        identity.zip(meta.map(|meta| meta.name.clone())).ok_or_else(|| self.gone(snapshot))
    }

    fn gone(&self, snapshot: SnapshotId) -> Error {
        Error::new(ErrorKind::NotFound, format!("snapshot {} of {} was deleted", snapshot.0, self.label()))
    }

    fn make_durable(&self) -> Result<()> {
        if self.disk().options.read_only { Ok(()) } else { self.disk().flush(Survive::Power).map(drop) }
    }

    fn send_range(&self, range: Range<u64>, writer: &mut StreamWriter<'_>, done: &mut dyn FnMut(u64)) -> Result<()> {
        let most = u64::from(PIECE_BYTES_MAX);
        let mut piece = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let window = WINDOW.min(range.end - at);
            for extent in self.extents(at, window)? {
                if !extent.allocated {
                    writer.hole(extent.bytes)?;
                    continue;
                }
                let (mut from, end) = (extent.offset, extent.offset + extent.bytes);
                while from < end {
                    // Pieces end at multiples of their size, so that they begin at those of blocks.
                    let bytes = (most - from % most).min(end - from);
                    piece.resize(index64(bytes), 0);
                    self.read_at(from, &mut piece)?;
                    // The snapshot may have been deleted while it was read.
                    self.size()?;
                    writer.data(&piece)?;
                    from += bytes;
                    done(from);
                }
            }
            at += window;
            self.size()?;
        }
        Ok(())
    }
}
