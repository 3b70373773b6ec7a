//! A logical disk: storage that takes any group of writes as one indivisible unit, beneath whatever is put on top.
//!
//! ```
//! use lode::{Disk, FormatOptions, OpenOptions, Survive, VolumeOptions};
//! use lode_media::{Geometry, ram::RamMedium};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let geometry = Geometry { zones: 64, zone_bytes: 1 << 20, append_align: 4096, devices: 1 };
//! let medium = Arc::new(RamMedium::new(geometry));
//! Disk::format(medium.clone(), &FormatOptions { disk_id: 42 })?;
//! let disk = Disk::open(medium, &OpenOptions::default())?;
//! let pages = disk.create_volume("pages", &VolumeOptions { bytes: 1 << 20, ..Default::default() })?;
//!
//! let mut unit = disk.begin()?;
//! unit.write_at(&pages, 0, b"both of these")?;
//! unit.write_at(&pages, 400_000, b"or neither")?;
//! unit.commit_and_flush(Survive::Power)?;
//! # disk.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! * [`Disk`]: open, flush, close; volumes by name.
//! * [`Volume`]: an indexed list of blocks seen as bytes; every call is atomic whatever its length.
//! * [`Unit`]: any number of operations that count together or not at all.
//!
//! What it promises (P1-P8) and how is in `docs/DESIGN.md`; the bytes are in `docs/FORMAT.md`.
#![forbid(unsafe_code)]

// The order of these is their rank: each uses those before it. A test checks it.
mod sync;
mod marks;
pub mod planted;
mod types;
mod error;
#[doc(hidden)]
pub mod record;
mod format;
mod packed;
mod shape;
mod map;
mod zones;
mod log;
mod fold;
mod state;
mod ordered;
mod objects;
mod roots;
mod recovery;
mod disk;
mod checkpoint;
mod cleaner;
mod keeper;
mod unit;
mod volume;
mod lists;
mod file_lists;
mod reservation;
mod together;
mod units;
mod stream;
mod check;
mod inspect;

pub(crate) use marks::mark;
pub use marks::marks;

pub use check::{CheckReport, Damage, ScrubReport};
pub use disk::open::Disk;
pub use disk::options::{
    Counters, DiskInfo, FormatOptions, ListInfo, ListOptions, OpenOptions, SnapshotInfo, SnapshotOptions, Survive,
    UnitConflicts, UnitOptions, UnitView, VolumeInfo, VolumeOptions,
};
pub use disk::outcomes::UnitStatus;
pub use disk::schedules::{Scheduled, SnapshotSchedule};
pub use disk::units::{UnitInfo, UnitState};
pub use disk::warning::{SpaceLevel, SpaceNews};
pub use error::{Error, ErrorKind, Result};
pub use format::{describe, records::Compression};
pub use inspect::{BatchView, DiskMap, SegmentView, ZoneMap};
pub use ordered::Place;
pub use reservation::Reservation;
pub use roots::probe;
pub use shape::{SMALLEST_ZONES, default_zone_bytes};
pub use stream::{
    Piece, ReceiveInfo, ReceiveOptions, Received, Receiver, SendOptions, Sent, SnapshotIdentity, StreamInfo,
    StreamReader,
};
pub use together::Whole;
pub use types::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, BlockId, ListId, Lsn, OrderedId, SnapshotId, UnitId};
pub use unit::{Unit, UnitCopy};
pub use units::UnitLabel;
pub use volume::{Extent, Volume};
