//! The volumes of a disk as NBD exports, `NAME@SNAPSHOT` as read-only ones, and `NAME?unit=LABEL` as a unit sees them:
//! words are translated here, nothing is decided.
//!
//! A reply to a write means `Process`, one to FUA or FLUSH means `Power`; a ticket is a position of the stream.

mod changed;
mod in_unit;

use crate::shelf::Shelf;
use changed::Changed;
use in_unit::InUnit;
use lode::{Disk, ErrorKind, Lsn, Survive, UnitLabel, Volume};
use lode_fs::is_of_files;
use lode_nbd::{Context, Durability, Export, ExportError, ExportErrorKind, Exports, Ticket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Extents are looked up in windows of this size, so that no client can ask for a list without end.
const WINDOW: u64 = 1 << 30;

/// What stands between a volume and the label of a unit.
const IN_UNIT: &str = "?unit=";

/// Reads of one connection that may wait for the device at once.
const READS: usize = 8;

pub type Outcome<T> = Result<T, ExportError>;

/// All volumes of a disk, now and as snapshots see them.
pub struct Volumes {
    disk: Disk,
    read_only: bool,
    shelf: Arc<Shelf>,
}

/// One of them, open for one connection.
struct Served {
    disk: Disk,
    volume: Volume,
    read_only: bool,
    habit: Habit,
}

/// Whether the client flushes after every single write. Then the device is synced while the reply to the write is on
/// its way, and the flush that follows finds it done. A client who gives the habit up waits for one sync too many.
#[derive(Default)]
struct Habit {
    /// Writes since the last flush.
    writes: AtomicU32,
    /// How many flushes in a row followed a single write.
    streak: AtomicU32,
}

/// So many flushes after single writes make a habit.
const STREAK: u32 = 4;

impl Habit {
    /// A write is about to be replied to.
    fn wrote(&self) {
        if self.writes.fetch_add(1, Ordering::Relaxed) > 0 {
            self.streak.store(0, Ordering::Relaxed);
        }
    }

    /// Whether a flush is likely to be next.
    fn expects_flush(&self) -> bool {
        self.writes.load(Ordering::Relaxed) == 1 && self.streak.load(Ordering::Relaxed) >= STREAK
    }

    fn flushed(&self) {
        if self.writes.swap(0, Ordering::Relaxed) == 1 {
            self.streak.fetch_add(1, Ordering::Relaxed);
        } else {
            self.streak.store(0, Ordering::Relaxed);
        }
    }
}

/// An error of the engine as a client hears it.
pub fn refused(error: lode::Error) -> ExportError {
    let kind = match error.kind() {
        ErrorKind::NotFound => ExportErrorKind::Unknown,
        ErrorKind::ReadOnly => ExportErrorKind::Denied,
        ErrorKind::Full => ExportErrorKind::NoSpace,
        ErrorKind::OutOfRange | ErrorKind::InvalidArgument => ExportErrorKind::Invalid,
        ErrorKind::Unsupported => ExportErrorKind::Unsupported,
        _ => ExportErrorKind::Io,
    };
    ExportError::new(kind, error.to_string()).because(error)
}

fn survive(until: Durability) -> Survive {
    match until {
        Durability::Process => Survive::Process,
        Durability::Power => Survive::Power,
    }
}

impl Volumes {
    /// The volumes of `disk`.
    pub fn new(disk: Disk, read_only: bool, shelf: Arc<Shelf>) -> Self {
        Volumes { disk, read_only, shelf }
    }

    /// A volume and the label of a unit. The name of a volume may look like that, too; then it is meant.
    fn in_unit<'a>(&self, name: &'a str) -> Option<(&'a str, &'a str)> {
        name.split_once(IN_UNIT).filter(|_| self.disk.volume(name).is_err())
    }
}

impl Exports for Volumes {
    fn list(&self) -> Outcome<Vec<String>> {
        let mut names = self.disk.volume_names();
        for snapshot in self.disk.snapshots() {
            names.extend(snapshot.volumes.iter().map(|volume| format!("{volume}@{}", snapshot.name)));
        }
        // Units that cannot be read hide no volumes. On a disk that is only read none can be taken up.
        let units = if self.read_only { Vec::new() } else { self.disk.units().unwrap_or_default() };
        for label in units.into_iter().map(|unit| unit.label).filter(|label| !label.is_empty() && !is_of_files(label)) {
            names.extend(self.disk.volume_names().iter().map(|volume| format!("{volume}{IN_UNIT}{label}")));
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> Outcome<Arc<dyn Export>> {
        if let Some((name, label)) = self.in_unit(name) {
            let volume = self.disk.volume(name).map_err(refused)?;
            if is_of_files(label) {
                let words = "expected a unit of volumes, found one of the file system";
                return Err(ExportError::new(ExportErrorKind::Denied, words));
            }
            if self.read_only {
                return Err(ExportError::new(ExportErrorKind::Denied, "units are not taken up for reading only"));
            }
            let label = UnitLabel { label: label.to_owned(), made: crate::now(), ..UnitLabel::default() };
            let shared = self.shelf.resume_or_begin(&self.disk, &label).map_err(refused)?;
            let read_only = volume.is_snapshot();
            return Ok(Arc::new(InUnit { disk: self.disk.clone(), volume, shared, read_only }));
        }
        let volume = self.disk.volume(name).map_err(refused)?;
        let read_only = self.read_only || volume.is_snapshot();
        Ok(Arc::new(Served { disk: self.disk.clone(), volume, read_only, habit: Habit::default() }))
    }

    fn contexts(&self, name: &str) -> Outcome<Vec<String>> {
        if self.in_unit(name).is_some() {
            return Ok(Vec::new());
        }
        let volume = self.disk.volume(name).map_err(refused)?;
        Ok(changed::names(&self.disk, &volume, name))
    }
}

impl Served {
    fn until(&self, position: Lsn, until: Durability) -> Outcome<()> {
        if until == Durability::Process {
            self.habit.wrote();
        }
        self.disk.flush_up_to(position, survive(until)).map_err(refused)
    }

    /// Writes zeros, all of them or none.
    fn write_zeros(&self, offset: u64, bytes: u64) -> lode::Result<Lsn> {
        let mut unit = self.disk.begin()?;
        unit.write_zeros(&self.volume, offset, bytes)?;
        unit.commit()
    }
}

impl Export for Served {
    fn size(&self) -> u64 {
        self.volume.bytes()
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn preferred_block(&self) -> u32 {
        self.volume.block_bytes().max(4096)
    }

    fn at_rest(&self) {
        if self.habit.expects_flush() {
            // If it fails, the flush that follows says so.
            let _ = self.disk.flush(Survive::Power);
        }
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Outcome<()> {
        self.volume.read_at(offset, into).map_err(refused)
    }

    fn concurrent_reads(&self) -> usize {
        READS
    }

    fn write(&self, offset: u64, data: &[u8], until: Durability) -> Outcome<()> {
        let position = self.volume.write_at(offset, data).map_err(refused)?;
        self.until(position, until)
    }

    fn write_unwaited(&self, offset: u64, data: &[u8]) -> Outcome<Ticket> {
        self.volume.write_at(offset, data).map(|position| Ticket(position.0)).map_err(refused)
    }

    fn wait(&self, ticket: Ticket, until: Durability) -> Outcome<()> {
        self.until(Lsn(ticket.0), until)
    }

    fn zero(&self, offset: u64, bytes: u64, may_punch: bool, until: Durability) -> Outcome<()> {
        let zeroed = if may_punch { self.volume.discard(offset, bytes) } else { self.write_zeros(offset, bytes) };
        self.until(zeroed.map_err(refused)?, until)
    }

    fn trim(&self, offset: u64, bytes: u64, until: Durability) -> Outcome<()> {
        let position = self.volume.discard(offset, bytes).map_err(refused)?;
        self.until(position, until)
    }

    fn flush(&self) -> Outcome<()> {
        self.habit.flushed();
        self.disk.flush(Survive::Power).map(drop).map_err(refused)
    }

    fn extents(&self, offset: u64, bytes: u64) -> Outcome<Vec<(u64, bool)>> {
        let extents = self.volume.extents(offset, bytes.min(WINDOW)).map_err(refused)?;
        Ok(extents.into_iter().map(|extent| (extent.bytes, extent.allocated)).collect())
    }

    fn context(&self, name: &str) -> Outcome<Box<dyn Context>> {
        Ok(Box::new(Changed::open(&self.disk, &self.volume, name)?))
    }
}
