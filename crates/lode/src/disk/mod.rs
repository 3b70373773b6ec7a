//! A disk that is open: the public calls, the lock, the threads.
//!
//! One lock guards [`Core`]; it is held for table updates and for copying short data into the open batch (cheaper than
//! taking it twice), never over device I/O. Threads are made here only: two that append sealed batches, and one, the
//! keeper, that checkpoints and cleans. A disk opened with `background: false` has none: the caller's thread does all
//! work, in an order that depends on nothing but the calls.
//!
//! Lock order: `units`, `large`, `maintaining`, `telling` (of `warning`), `core`, `ahead`. Nothing else is nested.

pub(crate) mod flush;
pub(crate) mod load;
mod mend;
pub(crate) mod numbers;
mod once;
pub(crate) mod open;
pub(crate) mod options;
pub(crate) mod ordered;
pub(crate) mod outcomes;
pub(crate) mod pace;
pub(crate) mod put;
pub(crate) mod read;
mod ahead;
mod along;
mod discard;
mod grow;
mod recount;
pub(crate) mod schedules;
pub(crate) mod space;
mod stored;
pub(crate) mod snapshots;
pub(crate) mod units;
pub(crate) mod volumes;
pub(crate) mod warning;
mod windows;

use crate::error::{Error, ErrorKind, Result};
use crate::log::side::Side;
use crate::log::writer::Writer;
use crate::roots::RootCursor;
use crate::shape::Shape;
use crate::state::{SectionKey, State};
use crate::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use crate::types::{ListId, Location, Lsn, SnapshotId, UnitId};
use lode_media::Medium;
use options::{Counters, OpenOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What units have spilled: for each block its place in the log and its checksum.
pub(crate) type Spilled = BTreeMap<(ListId, u64), (Location, u32)>;

/// What the newest durable root needs to stay where it is.
#[derive(Default)]
pub(crate) struct Rooted {
    /// Zones of the segments that replay begins with.
    pub segments: BTreeSet<u32>,
    /// Replay begins there: zones with records behind it are needed.
    pub replay: Lsn,
    /// Bytes of tables in each zone that it names.
    pub tables: BTreeMap<u32, u64>,
    /// In which zones each page of the directory names sections, as it was last written.
    pub pages: BTreeMap<u32, Vec<u32>>,
}

/// Whether cleaning still gains, so that a pass that gains nothing ends (R28).
#[derive(Default)]
pub(crate) struct Effort {
    /// What users had done when it began: bytes taken in, bytes alive.
    pub since: (u64, u64),
    /// The most zones that were ever available since.
    pub most: usize,
    /// Rounds that gained none.
    pub fruitless: u32,
    /// Bytes that were taken in for users, committed or not.
    pub taken: u64,
}

/// Space that was promised: charged bytes, and how many blocks these are for.
#[derive(Clone, Copy, Default)]
pub(crate) struct Reserved {
    pub bytes: u64,
    pub blocks: u64,
}

impl Reserved {
    /// Whether it is enough for `other`.
    pub fn covers(self, other: Reserved) -> bool {
        self.bytes >= other.bytes && self.blocks >= other.blocks
    }

    /// What both have.
    pub fn least(self, other: Reserved) -> Reserved {
        Reserved { bytes: self.bytes.min(other.bytes), blocks: self.blocks.min(other.blocks) }
    }
}

impl std::ops::AddAssign for Reserved {
    fn add_assign(&mut self, other: Reserved) {
        self.bytes += other.bytes;
        self.blocks += other.blocks;
    }
}

impl std::ops::SubAssign for Reserved {
    fn sub_assign(&mut self, other: Reserved) {
        self.bytes -= other.bytes;
        self.blocks -= other.blocks;
    }
}

/// Everything that changes, under one lock.
pub(crate) struct Core {
    pub state: State,
    pub writer: Writer,
    pub moved: Side,
    pub table_a: Side,
    pub table_b: Side,
    pub spilled: BTreeMap<UnitId, Spilled>,
    /// What open units may still need.
    pub reserved: Reserved,
    /// Set once an append or a sync has failed (P8).
    pub failed: Option<Error>,
    pub syncing: bool,
    pub appending: u32,
    pub idle_writers: u32,
    /// Zones that may be erased and taken.
    pub free: BTreeSet<u32>,
    /// Free zones whose space was given back: erased, and so made real again (R3), before they count as free.
    pub discarded: BTreeSet<u32>,
    /// The number of zones that the next root names, while the disk is made larger.
    pub growing: Option<u32>,
    /// Zones are lacking for what was promised: new data is refused.
    pub hopeless: bool,
    /// A discard has failed: no more of them in this opening.
    pub discard_failed: bool,
    /// Whether anybody writes, as far as discards ask.
    pub discard_rest: discard::Rest,
    /// Dead zones whose every block was looked up (R26).
    pub verified: BTreeSet<u32>,
    pub cursor: RootCursor,
    pub root_number: u64,
    pub epoch_start: u64,
    pub epoch: u64,
    pub rooted: Rooted,
    /// Where the log was when sections were last written for the number of records.
    pub counted: Lsn,
    pub counters: Counters,
    /// Zones that are free as soon as this opening has its root.
    pub withheld: Vec<u32>,
    /// Zones whose freeing is recorded and not yet durable.
    pub freeing: Vec<(Lsn, u32)>,
    /// Deleted lists whose map cannot be read: their space comes back when it can be, in another opening.
    pub undrained: BTreeSet<ListId>,
    /// Sections of tables that cannot be read as a whole: the zones that hold them are not emptied.
    pub unreadable: BTreeSet<SectionKey>,
    /// The newest failure of work in the background, for reports.
    pub keeper_error: Option<Error>,
    pub effort: Effort,
    /// What users may bring in while space is low; `None`: as much as they like.
    pub credit: Option<pace::Credit>,
    /// How often the keeper went through all it does while space was low (bounded waiting, R28).
    pub rounds: u64,
    pub outcomes: outcomes::Outcomes,
    /// Numbers for new blocks and lists, by table.
    pub numbers: BTreeMap<ListId, numbers::Numbers>,
    /// Frozen views whose units have ended.
    pub ended_views: Vec<SnapshotId>,
    /// Lists of units that have ended, of which no record says so yet.
    pub ended_lists: Vec<ListId>,
    /// How many units in hand see a snapshot.
    pub viewed: BTreeMap<SnapshotId, u32>,
    /// Numbers that units of before the opening name.
    pub kept_numbers: BTreeSet<(ListId, u32)>,
    /// Which they are is not known of all.
    pub keeps_numbers: bool,
    /// How often ordered lists were changed.
    pub lists_changed: u64,
    /// Emptied memory of ended units, for new ones.
    pub chunks: Vec<Vec<u8>>,
    /// Operations that gather leaves: none is dropped meanwhile.
    pub loading: u32,
    pub trim: load::Trim,
    pub stop: bool,
}

/// A disk that is open; shared by its handles and threads.
pub(crate) struct Inner {
    pub medium: Arc<dyn Medium>,
    /// As it was at the opening. What follows from the number of zones is asked of the core's: the disk may have grown.
    pub shape: Shape,
    pub disk: u128,
    pub options: OpenOptions,
    pub damaged: Option<String>,
    pub core: Mutex<Core>,
    /// Appended, synced, failed: for those who flush or wait for room in the write buffer.
    pub progress: Condvar,
    /// There is a batch to append.
    pub work: Condvar,
    /// Zones are free again.
    pub space: Condvar,
    /// There is something for the keeper.
    pub keeper: Condvar,
    pub maintaining: Mutex<()>,
    /// Held over the commit of a large unit.
    pub large: Mutex<()>,
    pub cache: Option<read::Cache>,
    /// What of content of files was read a short while ago.
    pub once: once::Once,
    pub windows: Option<Mutex<windows::Windows>>,
    pub ahead: Mutex<ahead::Ahead>,
    pub along: Mutex<along::Along>,
    /// Reads of committed blocks, counted so that somebody can tell whether anybody works.
    pub reads: AtomicU64,
    pub next_unit: AtomicU64,
    pub generations: numbers::Generations,
    /// Units with a label or a barrier.
    pub units: Mutex<units::Registry>,
    pub watchers: warning::Watchers,
    /// The number before that of the first unit of this opening.
    pub first_unit: u64,
}

impl Inner {
    /// The core, if writing is allowed.
    pub fn writable(&self) -> Result<MutexGuard<'_, Core>> {
        if self.options.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the disk is open for reading only"));
        }
        let core = self.core.lock();
        core.alive()?;
        Ok(core)
    }

    /// A name for a new unit.
    pub fn new_unit(&self) -> UnitId {
        UnitId(self.next_unit.fetch_add(1, Ordering::Relaxed))
    }
}

impl Core {
    /// Nothing was lost so far (P8).
    pub fn alive(&self) -> Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(error) => {
                Err(Error::new(ErrorKind::Failed, format!("the disk stopped taking writes; open it again ({error})")))
            }
        }
    }

    /// Remembers the first failure of the medium. Every later write is refused.
    pub fn latch(&mut self, error: &Error) {
        crate::mark("latched after a failed append or sync");
        self.failed.get_or_insert_with(|| error.clone());
    }

    /// Tells the zones what the writer opened and sealed.
    pub fn note_zones(&mut self) {
        for (zone, segment) in std::mem::take(&mut self.writer.opened_zones) {
            let lsn = self.writer.lsn;
            self.state.zone_opened(zone, crate::zones::Holds::Main, segment, lsn);
            self.state.zones.get_mut(zone).open = true;
        }
        for (zone, end) in std::mem::take(&mut self.writer.sealed_zones) {
            let zone = self.state.zones.get_mut(zone);
            zone.open = false;
            zone.records_end = end;
        }
    }

    /// Charged bytes that are promised: live, or reserved by units.
    pub fn promised(&self) -> u64 {
        let folding = self.state.fold.as_ref().map_or(0, |fold| fold.reserved);
        let stored = self.state.zones.live + self.state.zones.blocks * crate::shape::BLOCK_CHARGE;
        let lists = crate::types::len_u64(self.state.lists.len()) * self.state.shape.list_charge();
        stored + lists + self.reserves(self.reserved) + folding
    }

    /// Whether so many charged bytes more can be promised.
    pub fn promises(&self, more: u64) -> bool {
        self.promised().saturating_add(more) <= self.state.shape.promisable()
    }

    /// What a reservation takes: while there are snapshots, also a charge for each hole that they may see where a unit
    /// writes.
    pub fn reserves(&self, space: Reserved) -> u64 {
        let holes = if self.state.versions.is_empty() { 0 } else { space.blocks };
        space.bytes.saturating_add(holes.saturating_mul(crate::shape::BLOCK_CHARGE))
    }
}

/// The charge of a stored block (R27).
pub(crate) fn charge(place: Location) -> u64 {
    if place.is_none() { 0 } else { u64::from(place.footprint()) + crate::shape::BLOCK_CHARGE }
}

/// A position that covers everything before the next record.
pub(crate) fn position(core: &Core) -> Lsn {
    core.writer.lsn
}
