//! Streams: a volume as a snapshot saw it, or what changed of it since an older one, as bytes for another disk.
//!
//! ```text
//!  sender                          stream                        receiver
//!  data@monday ── Volume::send ──> full ─────────> Disk::receive ──> data, data@monday     a new volume
//!  data@tuesday, since monday ───> incremental ──> Disk::receive ──> data@tuesday          one commit
//! ```
//! What changed is found from the tables alone. A receiver writes everything in one unit, whose commit takes the
//! snapshot, too: all of it is there or nothing. `format/stream.rs` has the bytes.
//!
//! Which snapshots have the same content is told by their [`SnapshotIdentity`]: where and when they were taken. A
//! snapshot that came in a stream keeps the identity that it came with, so it does not matter on which way it came.

mod begin;
mod kept;
mod reader;
mod receive;
mod taking;
mod send;
mod writer;

pub use kept::ReceiveInfo;
pub use reader::{Piece, StreamReader};
pub use receive::{ReceiveOptions, Received, Receiver};
pub use send::{SendOptions, Sent};

use crate::disk::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::format::records::{Compression, Origin};
use crate::format::stream::StreamIdentity;
use crate::types::{ListId, SnapshotId};

/// Names the content of a volume in a snapshot: two with the same identity are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotIdentity {
    /// The id of the disk where the snapshot was taken.
    pub disk: u128,
    /// The number of the volume's list there.
    pub list: u32,
    /// The number of the snapshot there.
    pub snapshot: u32,
    /// When it was taken, in nanoseconds since 1970, as whoever took it said.
    pub made: u64,
}

/// What the head of a stream says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// The name of the volume.
    pub volume: String,
    /// The name of the snapshot.
    pub snapshot: String,
    /// The size of the volume in the snapshot.
    pub bytes: u64,
    /// Its block size.
    pub block_bytes: u32,
    /// How its blocks are stored.
    pub compression: Compression,
    /// The snapshot that is sent.
    pub identity: SnapshotIdentity,
    /// The snapshot that the receiver must have; none: a full stream.
    pub base: Option<SnapshotIdentity>,
    /// Where in the volume the stream begins.
    pub position: u64,
}

impl StreamInfo {
    /// Whether both bring the same: the names may have changed on the way, and one may begin where the other was cut.
    fn is_same(&self, other: &StreamInfo) -> bool {
        let content = |of: &StreamInfo| (of.identity, of.base, of.bytes, of.block_bytes, of.compression);
        content(self) == content(other)
    }

    /// What it is called towards people.
    fn words(&self) -> String {
        format!("{}@{} of disk {:x}", self.volume, self.snapshot, self.identity.disk)
    }
}

impl SnapshotIdentity {
    fn of(record: StreamIdentity) -> SnapshotIdentity {
        let StreamIdentity { disk, list, snapshot, made } = record;
        SnapshotIdentity { disk, list, snapshot, made }
    }

    fn record(self) -> StreamIdentity {
        let SnapshotIdentity { disk, list, snapshot, made } = self;
        StreamIdentity { disk, list, snapshot, made }
    }

    fn origin(self) -> Origin {
        Origin { disk: self.disk, list: ListId(self.list), snapshot: SnapshotId(self.snapshot) }
    }

    /// What a list is in a snapshot of this disk. None: there is no such snapshot.
    fn find(core: &Core, disk: u128, list: ListId, snapshot: SnapshotId) -> Option<SnapshotIdentity> {
        let meta = &core.state.lists.get(&ListId(snapshot.0))?.meta;
        let here = Origin { disk, list, snapshot };
        let Origin { disk, list, snapshot } = meta.origin.unwrap_or(here);
        Some(SnapshotIdentity { disk, list: list.0, snapshot: snapshot.0, made: meta.made })
    }
}

/// The other end of a stream failed.
fn failed(doing: &str, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Stream, format!("{doing} the stream: {error}"))
}

fn corrupt<T>(
    place: impl std::fmt::Display,
    expected: impl std::fmt::Display,
    found: impl std::fmt::Display,
) -> Result<T> {
    Err(Error::corrupt(place, expected, found))
}
