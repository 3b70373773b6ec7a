//! A script run on the engine and on the model at once, comparing all the way.
//!
//! An operation that has no meaning on the state it meets (its volume is gone, because making it found the disk full)
//! is skipped. One that reaches beyond a volume's end must be refused. `Full` must change nothing.
//!
//! With [`Run::tolerant`], for media that fail, an error of the medium ends the run instead of being a finding; what
//! the failed call would have done is then the last state that may be found.

use crate::content::{content_hash, difference};
use crate::model::Model;
use crate::recording::{History, Note, Recording};
use crate::script::{Op, Script, UnitNumber, VolumeNumber, data, volume_name};
use crate::trace::TracingMedium;
use lode::{Disk, ErrorKind, FormatOptions, Lsn, OpenOptions, Unit, Volume};
use lode_media::Medium;
use std::collections::BTreeMap;
use std::sync::Arc;

mod growth;
mod lists;
mod reservations;
mod schedules;
mod snapshots;
mod streams;
mod swaps;
mod units;
mod upkeep;
mod volumes;

use reservations::Held;
use streams::Far;

/// Why a run ended early.
#[derive(Debug)]
pub enum Stop {
    /// The engine did something wrong.
    Finding(String),
    /// The engine refused, as it may when the medium fails.
    Refused(lode::Error),
}

type Step<T = ()> = Result<T, Stop>;

/// What happened, for the table.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunCounts {
    /// Operations done.
    pub ops: u64,
    /// Operations refused because the disk was full.
    pub full: u64,
    /// Bytes compared.
    pub compared: u64,
    /// Commits refused for a conflict.
    pub conflicts: u64,
    /// Streams received.
    pub received: u64,
}

/// A script while it runs.
pub struct Run<'a> {
    script: &'a Script,
    medium: Arc<dyn Medium>,
    recorder: Option<Arc<TracingMedium>>,
    /// The disk; `None` while closed.
    disk: Option<Disk>,
    volumes: BTreeMap<VolumeNumber, Volume>,
    units: BTreeMap<UnitNumber, Unit>,
    /// What should be.
    pub model: Model,
    positions: Vec<Lsn>,
    kept: usize,
    anchor: Option<Lsn>,
    /// How many zones the disk has; more, if it failed to grow.
    zones: u32,
    zones_most: u32,
    /// Another disk, from which streams come and to which they go.
    far: Option<Far>,
    reservations: BTreeMap<u8, Held>,
    /// What time it is for schedules.
    clock: u64,
    recording: Recording,
    /// Errors of the medium end the run and are no findings.
    pub tolerant: bool,
    /// What happened.
    pub counts: RunCounts,
}

/// The options with which a script opens its disk.
pub fn open_options(script: &Script, anchor: Option<Lsn>) -> OpenOptions {
    OpenOptions {
        background: false,
        cache_bytes: script.options.cache_bytes,
        write_buffer_bytes: script.options.write_buffer_bytes,
        unit_memory_bytes: script.options.unit_memory_bytes,
        checkpoint_window_bytes: script.options.checkpoint_window_bytes,
        expect_at_least: anchor,
        discard: script.options.discard,
        ..OpenOptions::default()
    }
}

/// Runs a whole script on a fresh recording medium.
pub fn record(script: &Script) -> (Result<(), String>, Recording, RunCounts) {
    let recorder = Arc::new(TracingMedium::new(script.geometry, script.erased));
    let medium: Arc<dyn Medium> = Arc::clone(&recorder) as Arc<dyn Medium>;
    let mut run = Run::new(script, medium, Some(Arc::clone(&recorder)));
    let mut result = run.start().and_then(|()| run.all());
    if let Some(violation) = recorder.violations().first() {
        result = Err(Stop::Finding(format!("the engine broke the medium's contract: {violation}")));
    }
    let counts = run.counts;
    let result = result.map_err(|stop| match stop {
        Stop::Finding(words) => words,
        Stop::Refused(error) => format!("the engine refused: {error}"),
    });
    (result, run.finish(), counts)
}

impl<'a> Run<'a> {
    /// A run of `script` on a medium, which is not formatted yet.
    pub fn new(script: &'a Script, medium: Arc<dyn Medium>, recorder: Option<Arc<TracingMedium>>) -> Self {
        Run {
            script,
            medium,
            recorder,
            disk: None,
            volumes: BTreeMap::new(),
            units: BTreeMap::new(),
            model: Model::new(),
            positions: Vec::new(),
            kept: 0,
            anchor: None,
            zones: script.geometry.zones,
            zones_most: script.geometry.zones,
            far: None,
            reservations: BTreeMap::new(),
            clock: 1_000_000_000_000,
            recording: Recording::default(),
            tolerant: false,
            counts: RunCounts::default(),
        }
    }

    /// Formats the medium and opens the disk.
    pub fn start(&mut self) -> Step {
        let note = self.begin_call();
        let disk_id = u128::from(self.script.id.seed()) << 64 | 0x10DE;
        let formatted = Disk::format(Arc::clone(&self.medium), &FormatOptions { disk_id });
        formatted.map_err(|error| self.refused("format", error))?;
        self.recording.formatted = self.recorded();
        self.end_call(note);
        self.open()
    }

    /// Does all operations.
    pub fn all(&mut self) -> Step {
        for at in 0..self.script.ops.len() {
            if at == self.script.prelude {
                self.recording.prelude = self.recorded();
            }
            self.op(at)?;
        }
        Ok(())
    }

    /// Flushes to stable storage.
    pub fn flush_all(&mut self) -> Step {
        self.flush(&Op::Flush)
    }

    /// Drops all handles.
    fn let_go(&mut self) {
        self.units.clear();
        self.volumes.clear();
        self.reservations.clear();
    }

    /// Drops the disk without closing it.
    pub fn drop_disk(&mut self) {
        self.let_go();
        self.disk = None;
    }

    /// Gives up the disk without closing it, and what the run leaves.
    pub fn finish(mut self) -> Recording {
        self.let_go();
        self.disk = None;
        self.recording.histories.push(History::of(&self.model));
        if let Some(recorder) = &self.recorder {
            self.recording.ops = recorder.ops();
        }
        self.recording
    }

    /// The disk while it is open.
    pub fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    /// The position that the last flush returned.
    pub fn anchor(&self) -> Option<Lsn> {
        self.anchor
    }

    fn recorded(&self) -> usize {
        self.recorder.as_ref().map_or(0, |recorder| recorder.recorded())
    }

    fn open_disk(&self) -> &Disk {
        self.disk.as_ref().expect("the disk is open while operations run")
    }

    fn begin_call(&self) -> usize {
        self.recorded()
    }

    fn end_call(&mut self, start: usize) {
        while self.positions.len() <= self.model.appended() {
            let position = self.disk.as_ref().map_or(Lsn(0), Disk::position);
            self.positions.push(position);
        }
        self.recording.notes.push(Note {
            start,
            history: self.recording.histories.len(),
            flushed: self.model.flushed(),
            kept: self.kept.max(self.model.flushed()),
            appended: self.model.appended(),
            anchor: self.anchor,
            zones: self.zones,
        });
    }

    fn refused(&self, what: &str, error: lode::Error) -> Stop {
        let kinds = [ErrorKind::Media, ErrorKind::Failed, ErrorKind::Corrupt, ErrorKind::NotADisk];
        let of_medium = kinds.contains(&error.kind());
        if self.tolerant && of_medium {
            return Stop::Refused(error);
        }
        Stop::Finding(format!("{what} was refused: {error} ({:?})", error.kind()))
    }

    fn open(&mut self) -> Step {
        let note = self.begin_call();
        let options = open_options(self.script, self.anchor);
        let disk = Disk::open(Arc::clone(&self.medium), &options).map_err(|error| self.refused("open", error))?;
        self.disk = Some(disk);
        self.end_call(note);
        Ok(())
    }

    fn close_handles(&mut self) {
        self.let_go();
        self.model.reopened();
    }

    /// Every other time what is there is not compared, so that the next operations meet tables that are not in memory.
    fn reopen(&mut self, at: usize) -> Step {
        self.keep_units(at)?;
        self.close_handles();
        let note = self.begin_call();
        let disk = self.disk.take().expect("the disk is open while operations run");
        disk.close().map_err(|error| self.refused("close", error))?;
        self.model.flush(self.model.appended());
        self.end_call(note);
        self.open()?;
        if at.is_multiple_of(2) { self.compare() } else { Ok(()) }
    }

    fn kill(&mut self) -> Step {
        // A read that goes wrong at the opening may look like the end of what no flush covers.
        let kept = if self.tolerant { 0 } else { self.kept };
        self.come_back(kept.max(self.model.flushed()))
    }

    /// After a power cut: opens again, and goes on from what is found.
    pub fn after_cut(&mut self) -> Step {
        self.come_back(self.model.flushed())
    }

    /// Forgets the disk as a crash does, opens it again, and finds which state from `first` on it has.
    fn come_back(&mut self, first: usize) -> Step {
        let note = self.begin_call();
        self.let_go();
        self.disk = None;
        let options = open_options(self.script, self.anchor);
        let disk = Disk::open(Arc::clone(&self.medium), &options).map_err(|error| self.refused("open", error))?;
        self.came_back_with(&disk)?;
        let hash = content_hash(&disk).map_err(|error| self.refused("a read", error))?;
        let found = (first..=self.model.appended()).rev().find(|state| self.model.hashes()[*state] == hash);
        let Some(found) = found else {
            let words = difference(&disk, self.model.now());
            let allowed = first..=self.model.appended();
            return Err(Stop::Finding(format!("after a crash none of the states {allowed:?} was found: {words}")));
        };
        self.disk = Some(disk);
        self.end_call(note);
        self.recording.histories.push(History::of(&self.model));
        self.model.crashed(found);
        self.positions.truncate(found + 1);
        // Of equal states in a row the last was taken, whose position may be lost.
        let position = self.disk.as_ref().map_or(Lsn(0), Disk::position);
        for known in &mut self.positions {
            *known = position.min(*known);
        }
        self.kept = self.kept.min(found);
        let note = self.begin_call();
        self.end_call(note);
        self.compare_dormant()
    }

    /// Compares all volumes with the model.
    pub fn compare(&mut self) -> Step {
        let disk = self.open_disk();
        let hash = content_hash(disk).map_err(|error| self.refused("a read", error))?;
        let state = self.model.now();
        if hash != state.hash() {
            return Err(Stop::Finding(format!("the content is wrong: {}", difference(disk, state))));
        }
        self.counts.compared += state.volumes.values().map(|volume| volume.bytes).sum::<u64>();
        Ok(())
    }

    /// Looks at the result of a change: true if it was made, false if the disk was full and nothing changed.
    fn changed<T>(&mut self, what: &str, result: lode::Result<T>) -> Step<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == ErrorKind::Full => {
                self.counts.full += 1;
                self.compare().map_err(|stop| match stop {
                    Stop::Finding(words) => Stop::Finding(format!("{what} was refused ({error}), and yet: {words}")),
                    refused => refused,
                })?;
                Ok(None)
            }
            Err(error) => Err(self.refused(what, error)),
        }
    }

    fn volume(&mut self, number: VolumeNumber) -> Step<Option<Volume>> {
        let name = volume_name(number);
        if self.model.volume(&name).is_none() {
            return Ok(None);
        }
        if let Some(volume) = self.volumes.get(&number) {
            return Ok(Some(volume.clone()));
        }
        let volume = self.open_disk().volume(&name).map_err(|error| self.refused("opening a volume", error))?;
        self.volumes.insert(number, volume.clone());
        Ok(Some(volume))
    }

    /// Does one operation.
    pub fn op(&mut self, at: usize) -> Step {
        self.counts.ops += 1;
        self.do_op(at).map_err(|stop| match stop {
            Stop::Finding(words) => Stop::Finding(format!("operation {at}, {:?}: {words}", self.script.ops[at])),
            Stop::Refused(error) => Stop::Refused(error),
        })
    }

    fn do_op(&mut self, at: usize) -> Step {
        let script = self.script;
        match &script.ops[at] {
            Op::Create { volume, bytes, block_bytes, compressed } => {
                self.create(*volume, *bytes, *block_bytes, *compressed)
            }
            Op::Delete(volume) => self.delete(*volume),
            Op::Resize(volume, bytes) => self.resize(*volume, *bytes),
            Op::Write(volume, offset, bytes, fill) => {
                let data = data(script.id.seed(), at, *bytes, *fill);
                self.write(*volume, *offset, &data).map(|_| ())
            }
            Op::Discard(volume, offset, bytes) => self.discard(*volume, *offset, *bytes),
            Op::Read(volume, offset, bytes) => self.read(*volume, *offset, *bytes),
            Op::Begin(unit) => self.begin(*unit),
            Op::Commit(unit) | Op::CommitAndFlush(unit) => {
                self.commit(*unit, matches!(script.ops[at], Op::CommitAndFlush(_)))
            }
            Op::Abort(unit) | Op::Drop(unit) => self.forget(*unit, matches!(script.ops[at], Op::Abort(_))),
            Op::Flush | Op::FlushProcess | Op::FlushUpTo(_) => self.flush(&script.ops[at]),
            Op::Maintain | Op::MaintainAll | Op::Checkpoint => self.maintain(&script.ops[at]),
            Op::Reopen => self.reopen(at),
            Op::Kill => self.kill(),
            Op::ReadAll => self.compare(),
            Op::FillUp(volume) => self.fill_up(*volume, at),
            Op::TakeSnapshot(snapshot, of) => self.take_snapshot(*snapshot, *of),
            Op::DeleteSnapshot(snapshot) => self.delete_snapshot(*snapshot),
            Op::RollBack(snapshot, volume) => self.roll_back(*snapshot, *volume),
            Op::Lists(draw) => self.in_lists(draw, at),
            Op::Barrier(unit) => self.barrier(*unit, at),
            Op::Grow(more) => self.grow(*more),
            Op::Stream(draw) => self.in_streams(draw, at),
            Op::Swap(one, other, bytes) => self.swap(*one, *other, *bytes),
            Op::Recluster(volume, pieces) => self.recluster(*volume, *pieces),
            Op::Reserve(number, blocks, block_bytes) => self.reserve(*number, *blocks, *block_bytes),
            Op::Spend { .. } => self.spend(&script.ops[at], at),
            Op::CancelReservation(number) => self.cancel(*number),
            Op::Schedules(draw) => self.in_schedules(draw),
            unit_op => self.in_unit(unit_op, at),
        }
    }
}
