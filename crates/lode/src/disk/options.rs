//! What callers choose and what they are told: plain data.

use super::warning::SpaceLevel;
use crate::error::{Error, ErrorKind, Result};
use crate::format::records::Compression;
use crate::ordered::Attributes;
use crate::shape::{Shape, WINDOW_BYTES_MAX, WINDOW_PART};
use crate::types::{ListId, Lsn, OrderedId, SnapshotId};

/// Which failures a flush protects from (P3). Cost: `Process` an append, `Power` an append and a device sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survive {
    /// The end of this process, however it comes.
    Process,
    /// Loss of power: on stable storage. What a person means by flush.
    Power,
    /// Loss of a device. This disk lies on one: an error.
    Device,
    /// Loss of the site: an error.
    Site,
}

/// How a disk is made.
#[derive(Clone, Copy, Debug)]
pub struct FormatOptions {
    /// Names the disk, so that remnants of another one never count. Draw it at random.
    pub disk_id: u128,
}

/// Recovery applies so many records in less than a second.
const RECORDS_MAX: u64 = 1_500_000;

/// How a disk is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Never write, not even to recover.
    pub read_only: bool,
    /// Go on from the last sound prefix of a damaged log (R8). Everything behind it is given up.
    pub repair: bool,
    /// Append, checkpoint and clean in threads. Otherwise all is done in the caller's, deterministically.
    pub background: bool,
    /// Bytes of the block cache; 0 for none.
    pub cache_bytes: usize,
    /// Bytes of tables that are kept in memory if the rest can be read back. What has changed since it was written
    /// to the medium stays in memory in any case.
    pub tables_bytes: usize,
    /// Bytes that may wait to be appended before writers wait.
    pub write_buffer_bytes: usize,
    /// Bytes of new data that a unit keeps in memory before it spills into the log.
    pub unit_memory_bytes: usize,
    /// Bytes of log that recovery may have to read; a sixteenth of the disk, at most 1 GiB, if not given.
    pub checkpoint_window_bytes: Option<u64>,
    /// Records that recovery may have to apply, if they take fewer bytes than that. One unit may bring more.
    pub checkpoint_window_records: u64,
    /// A position that an earlier flush covered: the disk must have at least that (P3).
    pub expect_at_least: Option<Lsn>,
    /// Give the space of free zones back to the file system or the device below, all but a few. They are made real again
    /// before they are used; if somebody else has taken the space by then, new data is refused.
    pub discard: bool,
    /// With less than this part of the usable space left, space is low: see [`crate::Disk::watch_space`]. 0: never.
    pub low_percent: u8,
    /// ... and with less than this it is critical.
    pub critical_percent: u8,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            read_only: false,
            repair: false,
            background: true,
            cache_bytes: 64 << 20,
            tables_bytes: 1 << 30,
            write_buffer_bytes: 16 << 20,
            unit_memory_bytes: 8 << 20,
            checkpoint_window_bytes: None,
            checkpoint_window_records: RECORDS_MAX,
            expect_at_least: None,
            discard: false,
            low_percent: 10,
            critical_percent: 3,
        }
    }
}

impl OpenOptions {
    /// Bytes of log that recovery may have to read.
    pub(crate) fn window_bytes(&self, shape: &Shape) -> u64 {
        self.checkpoint_window_bytes.unwrap_or((shape.image_bytes() / u64::from(WINDOW_PART)).min(WINDOW_BYTES_MAX))
    }
}

/// How a volume is made.
#[derive(Clone, Copy, Debug)]
pub struct VolumeOptions {
    /// Its size. Volumes are thin: only what is written takes space.
    pub bytes: u64,
    /// A power of two from 64 to 65536.
    pub block_bytes: u32,
    /// How blocks are stored.
    pub compression: Compression,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        VolumeOptions { bytes: 0, block_bytes: 4096, compression: Compression::None }
    }
}

/// A volume as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its name.
    pub name: String,
    /// The list that holds it.
    pub list: ListId,
    /// Its size.
    pub bytes: u64,
    /// Its block size.
    pub block_bytes: u32,
    /// How its blocks are stored.
    pub compression: Compression,
    /// Blocks that are stored.
    pub mapped_blocks: u64,
}

/// The disk as a whole, in bytes unless named otherwise.
#[derive(Clone, Debug)]
pub struct DiskInfo {
    /// Its name.
    pub disk_id: u128,
    /// Version of its format.
    pub format: u16,
    /// The image.
    pub image: u64,
    /// A zone.
    pub zone: u64,
    /// How many zones.
    pub zones: u32,
    /// Zones that hold nothing.
    pub free_zones: u32,
    /// What users may be promised, each stored block charged with a little more than its bytes.
    pub usable: u64,
    /// What is stored, charged alike.
    pub live: u64,
    /// Bytes of stored blocks, without the charge.
    pub stored: u64,
    /// Stored blocks.
    pub blocks: u64,
    /// Reserved by open units and by reservations.
    pub reserved: u64,
    /// What can still be promised.
    pub free: u64,
    /// Whether that is enough.
    pub space: SpaceLevel,
    /// How many snapshots there are.
    pub snapshots: usize,
    /// Open for reading only.
    pub read_only: bool,
    /// How often the disk was opened for writing.
    pub epoch: u64,
    /// Records that opening had to replay.
    pub replayed: u64,
    /// What is missing of a damaged log.
    pub damaged: Option<String>,
    /// Zones set aside since they hold damage.
    pub zones_aside: u32,
    /// The newest failure of work in the background that did not stop the disk.
    pub trouble: Option<String>,
    /// How many volumes there are.
    pub volumes: usize,
}

/// What a new ordered list is like.
#[derive(Clone, Copy, Debug)]
pub struct ListOptions {
    /// Bytes of its blocks: a power of two.
    pub block_bytes: u32,
    /// How its blocks are stored.
    pub compression: Compression,
    /// The cleaner brings its blocks together in their order, and reads in this order are read ahead (LD, section 2.2).
    pub cluster: bool,
    /// The cleaner puts its blocks behind those of the list before it in the order of lists, whichever that is by then;
    /// who has read that one to its end has the beginning of this one in memory.
    pub near: bool,
}

impl Default for ListOptions {
    fn default() -> Self {
        ListOptions { block_bytes: 4096, compression: Compression::None, cluster: true, near: false }
    }
}

impl ListOptions {
    pub(crate) fn of(attributes: Attributes) -> ListOptions {
        let Attributes { shift, compression, cluster, near, .. } = attributes;
        ListOptions { block_bytes: 1 << shift, compression, cluster, near }
    }

    pub(crate) fn attributes(&self) -> Result<Attributes> {
        if !self.block_bytes.is_power_of_two() {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("a block size of {} bytes: expected a power of two", self.block_bytes),
            ));
        }
        let shift = u8::try_from(self.block_bytes.ilog2()).expect("at most 31");
        let ListOptions { compression, cluster, near, .. } = *self;
        Ok(Attributes { shift, compression, dead: false, cluster, near })
    }
}

/// What there is to say about an ordered list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListInfo {
    /// Its name.
    pub list: OrderedId,
    /// Bytes of its blocks.
    pub block_bytes: u32,
    /// How they are stored.
    pub compression: Compression,
    /// Whether they are brought together in their order.
    pub cluster: bool,
    /// Whether they are put behind those of the list before it.
    pub near: bool,
}

impl ListInfo {
    pub(crate) fn new(list: OrderedId, attributes: Attributes) -> ListInfo {
        let Attributes { shift, compression, cluster, near, .. } = attributes;
        ListInfo { list, block_bytes: 1 << shift, compression, cluster, near }
    }
}

/// What a unit sees beside its own changes (*Atomic Recovery Units*, section 3; *Mime*, the snapshot flag).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnitView {
    /// What is committed at each moment.
    #[default]
    Moving,
    /// What was committed when the unit began, whatever others commit.
    Frozen,
    /// Only what is committed, its own changes not: they count when it commits.
    Committed,
}

/// Which changes of others, made since the unit began, are a conflict at its commit (R15). Beside these it is always
/// one if an operation has no meaning any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnitConflicts {
    /// None: of two that write the same, the last to commit counts.
    #[default]
    Allowed,
    /// Of what it changed: the first to commit counts. A list that it deletes it has changed with all its blocks; to ask
    /// for that costs what others changed in all lists with blocks of the size since the unit began.
    Written,
    /// Of what it changed or read: units that commit are as if they had run one after the other.
    Read,
}

/// How a unit begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnitOptions {
    /// What it sees.
    pub view: UnitView,
    /// What is a conflict.
    pub conflicts: UnitConflicts,
}

/// How a snapshot is taken.
#[derive(Clone, Debug, Default)]
pub struct SnapshotOptions {
    /// Of these volumes; none, and `lists` is not set: of all that there is.
    pub volumes: Vec<String>,
    /// Of the ordered lists: of all of them, since they are one address space (architecture, R20).
    pub lists: bool,
    /// When it is taken, in nanoseconds since 1970, for those who look at it later. The disk has no clock.
    pub made: u64,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its name.
    pub name: String,
    /// Its number: a later one has a larger one.
    pub id: SnapshotId,
    /// When it was taken, as whoever took it said.
    pub made: u64,
    /// The volumes that it is of, as they were named then.
    pub volumes: Vec<String>,
    /// Whether it is of the ordered lists.
    pub lists: bool,
}

/// What happened since the disk was opened. All but `tables_bytes` only grow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Bytes that users wrote.
    pub user_bytes: u64,
    /// Reads of committed blocks.
    pub reads: u64,
    /// Bytes appended to the record stream.
    pub log_bytes: u64,
    /// Bytes appended by the cleaner.
    pub cleaned_bytes: u64,
    /// Bytes of tables and roots, all copies.
    pub checkpoint_bytes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Batches of the record stream.
    pub batches: u64,
    /// Zones cleaned.
    pub zones_cleaned: u64,
    /// Zones whose space was given back.
    pub zones_discarded: u64,
    /// Roots written.
    pub roots: u64,
    /// Memory that the tables take now.
    pub tables_bytes: u64,
    /// Records replayed when opening.
    pub replayed: u64,
}
