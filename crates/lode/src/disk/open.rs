//! Making a disk, opening one, closing it.
//!
//! Opening for writing: recover (reads only); make three zones ready; sync, so that everything that was read is
//! durable; write the root of the new epoch, which says where the last one ended, in two places; sync again; only then
//! accept work (R9, R10).

use super::options::Survive;
use super::options::{
    Counters, DiskInfo, FormatOptions, OpenOptions, SnapshotInfo, SnapshotOptions, UnitOptions, VolumeInfo,
    VolumeOptions,
};
use super::schedules::{Scheduled, SnapshotSchedule};
use super::space::Claim;
use super::{Core, Effort, Inner, Rooted, read};
use crate::error::{Error, ErrorKind, Result};
use crate::format::VERSION;
use crate::format::header::BatchKind;
use crate::format::root::{Root, RootImage};
use crate::log::side::Side;
use crate::log::writer::Writer;
use crate::recovery::{Recovered, recover};
use crate::roots::RootCursor;
use crate::shape::Shape;
use crate::sync::{AtomicU64, Builder, Condvar, JoinHandle, Mutex};
use crate::types::{Lsn, SegmentId};
use crate::unit::Unit;
use crate::volume::Volume;
use crate::zones::Holds;
use lode_media::Medium;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

/// An open disk. Cheap to clone; the disk stays open until the last clone, volume and unit are gone.
///
/// Dropping it without [`Disk::close`] is what a crash is: what was flushed is there, the rest may be.
#[derive(Clone)]
pub struct Disk {
    inner: Arc<Inner>,
    threads: Arc<Threads>,
}

/// Ends the threads with the last handle.
struct Threads {
    inner: Arc<Inner>,
    running: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
        // Units that nobody has in hand end here, as by a crash.
        let kept = std::mem::take(&mut *self.inner.units.lock());
        drop(kept);
    }
}

impl Threads {
    fn stop(&self) {
        self.inner.core.lock().stop = true;
        self.inner.work.notify_all();
        self.inner.keeper.notify_all();
        for thread in self.running.lock().drain(..) {
            // A thread that panicked has printed why; there is nobody to tell it to here.
            let _ = thread.join();
        }
    }
}

impl Disk {
    /// Makes an empty disk on a medium. What the medium held is lost.
    pub fn format(medium: Arc<dyn Medium>, options: &FormatOptions) -> Result<()> {
        let geometry = medium.geometry();
        let shape = Shape::new(geometry)?;
        // A disk made where one of the same name was goes on counting, so that nothing of that one is taken for its
        // own.
        let (number, epoch) =
            crate::roots::find(&*medium).map_or((0, 0), |old| (old.image.root.number, old.image.root.epoch + 1));
        let root = Root {
            number: number + 1,
            epoch,
            epoch_start: 1,
            durable: 1,
            replay_lsn: 1,
            next_lsn: 1,
            zone_bytes: geometry.zone_bytes,
            zones: geometry.zones,
            append_align: geometry.append_align,
            next_list: 1,
            next_a: u32::MAX,
            next_b: u32::MAX,
            clean: 1,
            next_sequence: 1,
            ..Root::default()
        };
        let image = RootImage { root, segments: Vec::new(), pages: Vec::new() };
        let failed = |e| Error::media("making a disk", e);
        let mut cursor = RootCursor::start();
        // No root of an earlier disk must be newer than ours.
        for zone in 0..crate::shape::ROOT_ZONES {
            medium.erase(lode_media::ZoneId(zone)).map_err(failed)?;
            let blank = lode_media::AlignedBuffer::new(crate::types::index(shape.head));
            medium
                .append(lode_media::Position { zone: lode_media::ZoneId(zone), offset: 0 }, &[&blank])
                .map_err(failed)?;
        }
        medium.sync().map_err(failed)?;
        cursor.write(&*medium, &shape, options.disk_id, &image, SegmentId::new(epoch, 1))?;
        medium.sync().map_err(failed)
    }

    /// Opens a disk. Cost: bounded by the checkpoint window, whatever the disk's size (P7).
    ///
    /// Errors: `NotADisk`, `NewerFormat`; `Corrupt` if something that was durable is missing, which names it; then
    /// `read_only` shows what is left, and `repair` goes on from there.
    pub fn open(medium: Arc<dyn Medium>, options: &OpenOptions) -> Result<Disk> {
        let mut recovered = recover(&*medium)?;
        if let Some(damage) = &recovered.damage
            && !options.read_only
            && !options.repair
        {
            crate::mark("open: refused, since the log is damaged");
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("{damage}; open it read-only to see what is left, or repair it"),
            ));
        }
        if let Some(expected) = options.expect_at_least
            && recovered.lsn < expected
            && !options.repair
        {
            crate::mark("open: refused, since a demanded position is missing");
            return Err(Error::corrupt(
                "the disk",
                format!("everything before position {}", expected.0),
                format!("only what is before {}", recovered.lsn.0),
            ));
        }
        let repairing = options.repair && !options.read_only && recovered.damage.is_some();
        if repairing {
            recovered.number_on()?;
        }
        let inner = Arc::new(build(medium, options.clone(), recovered));
        if repairing {
            inner.recount();
        }
        if !options.read_only {
            inner.begin_epoch()?;
            inner.keep_numbers();
        }
        if repairing {
            inner.mend_lists()?;
            inner.checkpoint_all(false)?;
        }
        let mut threads = Vec::new();
        if options.background && !options.read_only {
            for name in ["lode-append-1", "lode-append-2", "lode-keeper"] {
                let inner = Arc::clone(&inner);
                let run = move || if name == "lode-keeper" { inner.run_keeper() } else { inner.run_writer() };
                let thread = Builder::new().name(name.to_owned()).spawn(run);
                threads
                    .push(thread.map_err(|e| Error::new(ErrorKind::Unsupported, format!("starting a thread: {e}")))?);
            }
        }
        let threads = Arc::new(Threads { inner: Arc::clone(&inner), running: Mutex::new(threads) });
        Ok(Disk { inner, threads })
    }

    /// Makes a volume. `Exists`, `InvalidArgument`.
    pub fn create_volume(&self, name: &str, options: &VolumeOptions) -> Result<Volume> {
        self.inner.create_volume(name, options)?;
        self.volume(name)
    }

    /// Finds a volume; `NAME@SNAPSHOT`: as that snapshot sees it. `NotFound`.
    pub fn volume(&self, name: &str) -> Result<Volume> {
        match name.split_once('@') {
            Some((name, snapshot)) => self.inner.find_volume_at(snapshot, name),
            None => self.inner.find_volume(name),
        }
    }

    /// The names of all volumes. Cost: their number.
    pub fn volume_names(&self) -> Vec<String> {
        self.inner.core.lock().state.names.keys().cloned().collect()
    }

    /// All volumes, by name. Cost: reads the map of each to count what is stored.
    pub fn volumes(&self) -> Result<Vec<VolumeInfo>> {
        self.inner.list_volumes()
    }

    /// Gives a volume another size. What lies behind the new end is gone.
    pub fn resize_volume(&self, name: &str, bytes: u64) -> Result<Lsn> {
        self.inner.resize_volume(name, bytes)
    }

    /// Deletes a volume. One record; its space comes back in the background. Works on a full disk.
    pub fn delete_volume(&self, name: &str) -> Result<Lsn> {
        self.inner.delete_volume(name)
    }

    /// Takes a snapshot: all volumes, or those named, as they are at this point of the merged stream, read-only from
    /// then on. One record, whatever is on the disk. Gives back a position to flush up to. `Exists`, `NotFound`,
    /// `InvalidArgument`, `Full`. Architecture, section 8; *Mime*, snapshots.
    pub fn take_snapshot(&self, name: &str, options: &SnapshotOptions) -> Result<Lsn> {
        self.inner.take_snapshot(name, options)
    }

    /// Deletes a snapshot. One record; what only it held comes back in the background. Works on a full disk. `NotFound`.
    pub fn delete_snapshot(&self, name: &str) -> Result<Lsn> {
        self.inner.delete_snapshot(name)
    }

    /// All snapshots, oldest first.
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        self.inner.list_snapshots()
    }

    /// Bytes that only this snapshot holds: they come back when it is deleted. Cost: reads what it keeps. `NotFound`.
    pub fn snapshot_space(&self, name: &str) -> Result<u64> {
        self.inner.space_of(name)
    }

    /// Makes a schedule of snapshots, or changes the one of this name. `NotFound`, `InvalidArgument`, `Full`.
    pub fn set_schedule(&self, schedule: &SnapshotSchedule) -> Result<Lsn> {
        self.inner.set_schedule(schedule)
    }

    /// All schedules, by name.
    pub fn schedules(&self) -> Vec<SnapshotSchedule> {
        self.inner.list_schedules()
    }

    /// Forgets a schedule. Its snapshots stay. `NotFound`.
    pub fn remove_schedule(&self, name: &str) -> Result<Lsn> {
        self.inner.remove_schedule(name)
    }

    /// Takes the snapshots that are due at `now`, in nanoseconds since 1970, and deletes those that are too many. A
    /// snapshot is named after its schedule and what `when` calls its time. The disk has no clock: whoever has it open
    /// calls this now and then. Cost: the number of snapshots. `Full`.
    pub fn run_schedules(&self, now: u64, when: &dyn Fn(u64) -> String) -> Result<Scheduled> {
        self.inner.run_schedules(now, when)
    }

    /// A volume as a snapshot sees it, by the name that it had then. Read-only. `NotFound`.
    pub fn volume_at(&self, snapshot: &str, volume: &str) -> Result<Volume> {
        self.inner.find_volume_at(snapshot, volume)
    }

    /// Begins a unit. Cost: a counter.
    pub fn begin(&self) -> Result<Unit> {
        if self.inner.options.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the disk is open for reading only"));
        }
        Ok(Unit::new(Arc::clone(&self.inner)))
    }

    /// As [`Disk::begin`]; a view that is frozen, or conflicts that are looked for, cost a snapshot without a name.
    /// `Full`.
    pub fn begin_with(&self, options: &UnitOptions) -> Result<Unit> {
        let mut unit = self.begin()?;
        unit.set_options(options)?;
        Ok(unit)
    }

    /// The position behind the last change.
    pub fn position(&self) -> Lsn {
        super::position(&self.inner.core.lock())
    }

    /// Everything before this call survives such failures when it returns. Gives back the position covered, which a
    /// client may keep and demand at the next open (P3).
    pub fn flush(&self, survive: Survive) -> Result<Lsn> {
        self.inner.flush(survive)
    }

    /// As `flush`, up to a position; at once if that is durable already.
    pub fn flush_up_to(&self, position: Lsn, survive: Survive) -> Result<()> {
        self.inner.flush_to(position, survive)
    }

    /// Sizes and state.
    pub fn info(&self) -> Result<DiskInfo> {
        let inner = &self.inner;
        let core = inner.core.lock();
        let shape = core.state.shape;
        let usable = shape.promisable();
        let aside = core.state.zones.all.iter().filter(|zone| zone.holds == Holds::Aside).count();
        Ok(DiskInfo {
            disk_id: inner.disk,
            format: VERSION,
            image: shape.image_bytes(),
            zone: u64::from(shape.zone_bytes),
            zones: shape.zones,
            free_zones: u32::try_from(core.available() + core.discarded.len()).expect("fewer than there are zones"),
            usable,
            live: core.promised() - core.reserves(core.reserved),
            stored: core.state.zones.live,
            blocks: core.state.zones.blocks,
            reserved: core.reserves(core.reserved),
            free: usable.saturating_sub(core.promised()),
            space: core.space_level(super::warning::SpaceLevel::Ample, &inner.options),
            snapshots: core.state.versions.names.len(),
            read_only: inner.options.read_only,
            epoch: core.epoch,
            replayed: core.counters.replayed,
            damaged: inner.damaged.clone(),
            volumes: core.state.names.len(),
            trouble: core.keeper_error.as_ref().map(ToString::to_string),
            zones_aside: u32::try_from(aside).expect("fewer than there are zones"),
        })
    }

    /// What happened since the disk was opened.
    pub fn counters(&self) -> Counters {
        let reads = self.inner.reads.load(crate::sync::Ordering::Relaxed);
        let core = self.inner.core.lock();
        Counters { tables_bytes: core.state.memory(), reads, ..core.counters }
    }

    /// One bounded step of checkpointing, freeing or cleaning, for disks without threads. False: nothing to do.
    pub fn maintain(&self) -> Result<bool> {
        self.inner.maintain(false)
    }

    /// Writes all tables, so that replay after a crash is empty up to here.
    pub fn checkpoint(&self) -> Result<()> {
        self.inner.checkpoint_all(false)
    }

    /// Cleans one round of zones, whether or not space is low. False: nothing was gained.
    pub fn clean(&self) -> Result<bool> {
        self.inner.clean_round()
    }

    /// Puts the blocks of a volume next to each other again, in their order, as far as they lie scattered, so that reading
    /// in order is fast. Gives back how many bytes were moved; `progress` is told how much is done, of how much, and may
    /// break off. Cost: reads and writes what lies scattered. Others go on meanwhile. `NotFound`, `Full`: it needs some
    /// free zones.
    pub fn recluster(&self, volume: &str, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<u64> {
        let list = self.inner.find_volume(volume)?.list();
        self.inner.recluster(list, progress)
    }

    /// How many stretches on the medium a volume is: one for each mebibyte or so where it was written in order.
    pub fn stretches(&self, volume: &str) -> Result<u64> {
        self.inner.stretches_of(self.inner.find_volume(volume)?.list())
    }

    /// Gives units that nobody has in hand a barrier, flushes, checkpoints and stops the threads. Other handles get
    /// `Failed` for writes from here on. An error of a barrier leaves that unit as its last one left it.
    pub fn close(self) -> Result<()> {
        if self.inner.options.read_only {
            return Ok(());
        }
        let kept = self.inner.keep_units();
        let done = self.inner.flush(Survive::Power).and_then(|_| self.inner.checkpoint_all(true)).and(kept);
        self.threads.stop();
        self.inner.core.lock().failed.get_or_insert_with(|| Error::new(ErrorKind::Failed, "the disk was closed"));
        done
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

/// An open disk out of a recovered one, before its epoch begins.
fn build(medium: Arc<dyn Medium>, options: OpenOptions, recovered: Recovered) -> Inner {
    let Recovered { shape, disk, root, cursor, state, sequence, lsn, segments, damage, replayed, dropped, ended } =
        recovered;
    let epoch = root.root.epoch + 1;
    let found = super::units::find(&state);
    // Also behind units of an epoch that a damaged disk may have lost.
    let last_unit = found.registry.keys().next_back().map_or(0, |unit| unit.0.min(1 << 63)).max(epoch << 40);
    let mut spans = segments;
    // What belongs to an ended epoch ends for good where the next segment begins, or here (R9).
    for n in 0..spans.len() {
        let end = spans.get(n + 1).map_or(sequence.0, |next| next.first);
        spans[n].end = spans[n].end.min(end);
    }
    let writer = Writer::new(shape, disk, epoch, sequence, lsn, spans.into(), options.window_bytes(&shape));
    let mut core = Core {
        writer,
        moved: Side::new(BatchKind::Moved),
        table_a: Side::new(BatchKind::Table),
        table_b: Side::new(BatchKind::Table),
        spilled: BTreeMap::new(),
        reserved: found.reserved,
        failed: None,
        syncing: false,
        appending: 0,
        idle_writers: 0,
        free: BTreeSet::new(),
        discarded: BTreeSet::new(),
        hopeless: false,
        discard_failed: false,
        discard_rest: super::discard::Rest::default(),
        growing: None,
        verified: BTreeSet::new(),
        cursor,
        root_number: root.root.number,
        epoch_start: sequence.0,
        epoch,
        rooted: Rooted::default(),
        counted: Lsn(0),
        counters: Counters { replayed, ..Counters::default() },
        effort: Effort::default(),
        credit: None,
        withheld: Vec::new(),
        rounds: 0,
        freeing: Vec::new(),
        undrained: BTreeSet::new(),
        unreadable: BTreeSet::new(),
        keeper_error: None,
        loading: 0,
        trim: crate::disk::load::Trim::new(),
        outcomes: crate::disk::outcomes::Outcomes::new(),
        numbers: BTreeMap::new(),
        // No unit of before is open any more.
        ended_views: found.views,
        ended_lists: found.stray,
        viewed: BTreeMap::new(),
        kept_numbers: BTreeSet::new(),
        keeps_numbers: false,
        lists_changed: 0,
        chunks: Vec::new(),
        stop: false,
        state,
    };
    for (unit, committed) in ended {
        core.outcomes.note_kept(unit, committed);
    }
    core.free = (crate::shape::ROOT_ZONES..shape.zones)
        .filter(|zone| core.state.zones.get(*zone).holds == Holds::Nothing)
        .collect();
    core.rooted = Rooted {
        segments: root.segments.iter().map(|span| span.zone).collect(),
        replay: Lsn(root.root.replay_lsn),
        tables: core.state.table_bytes(),
        pages: (0..crate::types::len_u32(core.state.directory.pages.len()))
            .map(|number| (number, core.state.zones_named_by(number)))
            .collect(),
    };
    for (zone, _) in core.rooted.tables.clone() {
        core.free.remove(&zone);
    }
    let (windows, cache_bytes) = super::windows::windows(&shape, options.cache_bytes);
    core.withheld = dropped.into_iter().filter(|zone| core.free.remove(zone)).collect();
    Inner {
        medium,
        shape,
        disk,
        cache: read::cache(cache_bytes),
        once: super::once::Once::new(),
        windows,
        ahead: crate::sync::Mutex::default(),
        along: crate::sync::Mutex::new(super::along::Along::new(options.cache_bytes)),
        reads: crate::sync::AtomicU64::new(0),
        damaged: damage,
        core: Mutex::new(core),
        progress: Condvar::new(),
        work: Condvar::new(),
        space: Condvar::new(),
        keeper: Condvar::new(),
        maintaining: Mutex::new(()),
        large: Mutex::new(()),
        next_unit: AtomicU64::new(last_unit + 1),
        first_unit: last_unit,
        generations: super::numbers::Generations::default(),
        units: Mutex::new(found.registry),
        watchers: super::warning::Watchers::default(),
        options,
    }
}

impl Inner {
    fn begin_epoch(&self) -> Result<()> {
        // Zones that the last root or epoch may still refer to are not among the free ones.
        self.prepare_zones(3, Claim::Keeper)?;
        self.medium.sync().map_err(|e| Error::media("syncing what was recovered", e))?;
        self.write_root(false)?;
        let mut core = self.core.lock();
        for zone in std::mem::take(&mut core.withheld) {
            crate::mark("open: zone of a dropped operation withheld");
            core.free.insert(zone);
        }
        Ok(())
    }
}
