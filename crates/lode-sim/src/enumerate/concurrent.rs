//! Crashes of disks with threads: several clients at once, the engine's own threads beside them.
//!
//! Nothing here happens twice alike, so a seed names only what is tried. What holds is checked all the same: every call
//! gives back a position, and positions order all operations into one stream. After the run the model does them in that
//! order; the disk, still open, must equal its last state. Then the recorded trace is cut at drawn points, and what
//! each image holds must be a state of that one stream (P2): not before what a flush had covered that had returned
//! (P3), not behind the first operation that had not begun.
//!
//! Each client has a volume of its own, so that nobody else's writes explain what it reads there. The volumes `p0` and
//! `p1` belong to all: a unit that writes one writes the same block of the other too, and they must always agree (P1).

use super::afterlife::live_on;
use super::opening::{check_medium, open_and_compare};
use super::{Counts, Finding, Replay, crash_class, guarded};
use crate::chooser::Chooser;
use crate::content::{content_hash, difference};
use crate::crash::CrashImage;
use crate::model::Model;
use crate::platter::Platter;
use crate::recording::{Allowed, History};
use crate::rng::{Rng, mix, narrow, wide};
use crate::run::open_options;
use crate::script::{Fill, Script, ScriptId, data, volume_name};
use crate::trace::{TraceOp, TracingMedium};
use crate::workload::script;
use lode::{Disk, ErrorKind, FormatOptions, Lsn, OpenOptions, SnapshotOptions, Survive, Volume, VolumeOptions};
use lode_media::{Geometry, Medium, Position, ZoneId};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks of a client's volume at most.
const BLOCKS: u64 = 24;
/// Points of a trace at which the power is cut.
const CUTS: u64 = 30;
/// Images of each.
const IMAGES: u64 = 5;

/// A medium that takes its time, so that calls overlap. What it records is the worst that is true: an append when it is
/// done, a sync when it begins.
struct Hesitant {
    recorder: TracingMedium,
    seed: u64,
    calls: AtomicU64,
}

impl Hesitant {
    fn hesitate(&self) {
        let draw = mix(self.seed, self.calls.fetch_add(1, Ordering::Relaxed));
        match draw % 4 {
            0 => std::thread::sleep(std::time::Duration::from_micros(draw % 300)),
            1 => std::thread::yield_now(),
            _ => {}
        }
    }
}

impl Medium for Hesitant {
    fn geometry(&self) -> Geometry {
        self.recorder.geometry()
    }

    fn read(&self, at: Position, into: &mut [u8]) -> lode_media::Result<()> {
        self.recorder.read(at, into)
    }

    fn append(&self, at: Position, pieces: &[&[u8]]) -> lode_media::Result<()> {
        self.hesitate();
        self.recorder.append(at, pieces)
    }

    fn erase(&self, zone: ZoneId) -> lode_media::Result<()> {
        self.recorder.erase(zone)
    }

    fn sync(&self) -> lode_media::Result<()> {
        let done = self.recorder.sync();
        self.hesitate();
        done
    }

    fn discard(&self, zone: ZoneId) -> lode_media::Result<()> {
        self.recorder.discard(zone)
    }
}

/// What an operation did.
enum Change {
    Write(String, u64, Vec<u8>),
    Discard(String, u64, u64),
    Resize(String, u64),
    /// A unit's writes.
    Unit(Vec<(String, u64, Vec<u8>)>),
    TakeSnapshot(String),
    DeleteSnapshot(String),
}

/// An operation that returned.
struct Done {
    /// How long the trace was before the call.
    start: usize,
    /// The position behind it.
    position: Lsn,
    change: Change,
}

/// A flush that returned.
struct Flushed {
    /// How long the trace was then.
    end: usize,
    covered: Lsn,
}

/// What one client did.
#[derive(Default)]
struct Log {
    done: Vec<Done>,
    flushed: Vec<Flushed>,
    full: u64,
}

struct Client<'a> {
    number: u8,
    clients: u8,
    script: &'a Script,
    rng: Rng,
    disk: Disk,
    medium: &'a Hesitant,
    own: Volume,
    block: u64,
    /// What the own volume holds.
    known: Vec<u8>,
    /// Snapshots that the client has taken, and what its own volume held then.
    snapshots: Vec<(String, Vec<u8>)>,
    calls: usize,
    log: Log,
}

/// Runs the clients of a seed, then crashes what they did.
pub(super) fn concurrent(id: ScriptId) -> Result<Counts, Box<Finding>> {
    let script = shaped(script(id));
    let mut counts = Counts { concurrent_runs: 1, ..Counts::default() };
    let result = guarded(|| run_and_crash(&script, &mut counts));
    let replay = Replay { script: id, cut: None, choices: Vec::new(), second: None };
    result.map(|()| counts).map_err(|words| {
        let words = format!("with threads, which may need several tries to happen again: {words}");
        Box::new(Finding { replay, words, counts, story: Vec::new() })
    })
}

fn run_and_crash(script: &Script, counts: &mut Counts) -> Result<(), String> {
    let mut rng = Rng::new(mix(script.id.seed(), 0xC11E));
    let clients = u8::try_from(rng.between(2, 4)).expect("a few");
    let medium = Hesitant {
        recorder: TracingMedium::unordered(script.geometry, script.erased),
        seed: rng.word(),
        calls: AtomicU64::new(0),
    };
    let medium = Arc::new(medium);
    let as_medium = || Arc::clone(&medium) as Arc<dyn Medium>;
    let refused = |what: &str, error: lode::Error| format!("{what} was refused: {error} ({:?})", error.kind());
    let disk_id = u128::from(script.id.seed()) << 64 | 0x10DE;
    Disk::format(as_medium(), &FormatOptions { disk_id }).map_err(|error| refused("format", error))?;
    let options = OpenOptions { background: true, ..open_options(script, None) };
    let disk = Disk::open(as_medium(), &options).map_err(|error| refused("open", error))?;
    let mut model = Model::new();
    let mut create = |name: &str, blocks: u64, block: u32| -> Result<Volume, String> {
        let options =
            VolumeOptions { bytes: blocks * u64::from(block), block_bytes: block, ..VolumeOptions::default() };
        model.create(name, options.bytes, block, false);
        disk.create_volume(name, &options).map_err(|error| refused("making a volume", error))
    };
    let mut own = Vec::new();
    for number in 0..clients {
        own.push(create(&volume_name(number), BLOCKS, *rng.pick(&[64, 256, 512]))?);
    }
    for name in ["p0", "p1"] {
        create(name, u64::from(clients) + 1, 128)?;
    }
    disk.flush(Survive::Power).map_err(|error| refused("a flush", error))?;
    let first = medium.recorder.recorded();
    let logs = at_once(script, &mut rng, &disk, &medium, own)?;
    let end = medium.recorder.recorded();
    if let Some(violation) = medium.recorder.violations().first() {
        return Err(format!("the engine broke the medium's contract: {violation}"));
    }
    let stream = merge(logs, &mut model, counts);
    let hash = content_hash(&disk).map_err(|error| refused("a read", error))?;
    if hash != model.now().hash() {
        return Err(format!("the positions give another order than what is read: {}", difference(&disk, model.now())));
    }
    drop(disk);
    let trace = medium.recorder.ops();
    stream.crash(script, &trace, first..end, &History::of(&model), counts)
}

/// All clients, each in a thread of its own.
fn at_once(
    script: &Script,
    rng: &mut Rng,
    disk: &Disk,
    medium: &Hesitant,
    own: Vec<Volume>,
) -> Result<Vec<Log>, String> {
    let count = u8::try_from(own.len()).expect("a few");
    let mut clients = Vec::new();
    for (number, own) in (0..count).zip(own) {
        let block = u64::from(own.block_bytes());
        let known = vec![0; narrow(BLOCKS * block)];
        let (rng, disk) = (Rng::new(rng.word()), disk.clone());
        let log = Log::default();
        let (calls, snapshots) = (0, Vec::new());
        clients.push(Client {
            number,
            clients: count,
            script,
            rng,
            disk,
            medium,
            own,
            block,
            known,
            snapshots,
            calls,
            log,
        });
    }
    std::thread::scope(|scope| {
        let running: Vec<_> = clients
            .into_iter()
            .map(|mut client| scope.spawn(move || guarded(|| client.live()).map(|()| client.log)))
            .collect();
        running.into_iter().map(|thread| thread.join().map_err(|_| "a client panicked".to_owned())?).collect()
    })
}

/// Orders what all clients did by position, and lets the model do it.
fn merge(logs: Vec<Log>, model: &mut Model, counts: &mut Counts) -> Stream {
    let mut done = Vec::new();
    let mut flushed = Vec::new();
    for log in logs {
        counts.full += log.full;
        counts.ops += wide(log.done.len() + log.flushed.len());
        done.extend(log.done);
        flushed.extend(log.flushed);
    }
    done.sort_by_key(|done| done.position);
    flushed.sort_by_key(|flushed| flushed.end);
    let before = model.appended();
    for each in &done {
        match &each.change {
            Change::Write(name, offset, data) => model.write(name, *offset, data),
            Change::Discard(name, offset, bytes) => model.discard(name, *offset, *bytes),
            Change::Resize(name, bytes) => model.resize(name, *bytes),
            Change::Unit(writes) => {
                model.begin(0);
                for (name, offset, data) in writes {
                    model.unit_write(0, name, *offset, data);
                }
                model.commit(0);
            }
            Change::TakeSnapshot(name) => model.take_snapshot(name, &[]),
            Change::DeleteSnapshot(name) => model.delete_snapshot(name),
        }
    }
    let starts = done.iter().map(|done| done.start).collect();
    let positions = done.iter().map(|done| done.position).collect();
    Stream { before, starts, positions, flushed }
}

/// The merged stream.
struct Stream {
    /// The number of the state before its first operation.
    before: usize,
    starts: Vec<usize>,
    positions: Vec<Lsn>,
    flushed: Vec<Flushed>,
}

impl Stream {
    /// What a cut behind the first `cut` operations of the trace may leave.
    fn allowed<'a>(&self, cut: usize, history: &'a History, zones: u32) -> Allowed<'a> {
        let returned = self.flushed.partition_point(|flushed| flushed.end <= cut);
        let anchor = self.flushed[..returned].iter().map(|flushed| flushed.covered).max();
        let covered = anchor.map_or(0, |anchor| self.positions.partition_point(|position| *position <= anchor));
        let begun = self.starts.iter().position(|start| *start >= cut).unwrap_or(self.starts.len());
        let (flushed, appended) = (self.before + covered, self.before + begun);
        Allowed { history, flushed, kept: flushed, appended, anchor, zones: [zones; 3] }
    }

    fn crash(
        &self,
        script: &Script,
        trace: &[TraceOp],
        points: std::ops::Range<usize>,
        history: &History,
        counts: &mut Counts,
    ) -> Result<(), String> {
        let mut rng = Rng::new(mix(script.id.seed(), wide(trace.len())));
        let class = crash_class(script.id, true);
        let mut cuts: Vec<usize> =
            (0..CUTS).map(|_| points.start + narrow(rng.below(wide(points.len()) + 1))).collect();
        cuts.sort_unstable();
        let first = if script.erased == crate::trace::Erased::Zeros { 0 } else { crate::trace::NOISE };
        let mut platter = Platter::new(script.geometry, first);
        let mut stepped = 0;
        let mut images = HashSet::new();
        for cut in cuts {
            for op in &trace[stepped..cut] {
                platter.step(op);
            }
            stepped = cut;
            counts.cuts += 1;
            let base = Arc::new(platter.cut(class));
            counts.raw_images += 10f64.powf(base.images_log10.min(300.0));
            let allowed = self.allowed(cut, history, script.geometry.zones);
            if allowed.flushed > allowed.appended {
                return Err(format!(
                    "cut {cut}: a flush covered what had not begun: {} and {}",
                    allowed.flushed, allowed.appended
                ));
            }
            for n in 0..IMAGES {
                let chooser = if n == 0 { Chooser::exhaustive() } else { Chooser::drawn(rng.word()) };
                let image = Arc::new(CrashImage::new(Arc::clone(&base), chooser));
                let at =
                    |words| format!("cut {cut} of {}, choices {:?}: {words}", trace.len(), image.chooser().values());
                let (disk, state) = open_and_compare(&image, script, &allowed, false).map_err(at)?;
                counts.states += 1;
                image.freeze(rng.word());
                if rng.percent(20) {
                    counts.checked += 1;
                    check_medium(Arc::clone(&image) as Arc<dyn Medium>).map_err(at)?;
                }
                if rng.percent(20) {
                    counts.lived_on += 1;
                    live_on(&image, script, disk, &allowed, state, rng.word()).map_err(at)?;
                }
                images.insert(image.observed());
            }
        }
        counts.images += wide(images.len());
        Ok(())
    }
}

impl Client<'_> {
    fn live(&mut self) -> Result<(), String> {
        for _ in 0..self.rng.between(20, 80) {
            self.calls += 1;
            let start = self.medium.recorder.recorded();
            let done = match self.rng.below(22) {
                0..=8 => self.write(),
                9 => self.discard(),
                10 => self.resize(),
                11..=14 => self.unit(),
                15..=16 => self.disk.flush(Survive::Power).map(|covered| self.flushed(covered)).map(|()| None),
                17 => self.read()?,
                18 => self.disk.maintain().map(|_| None),
                19..=20 => self.snapshot(),
                _ => self.disk.flush(Survive::Process).map(|_| None),
            };
            match done {
                Ok(Some((position, change))) => self.done(start, position, change)?,
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::Full => self.log.full += 1,
                Err(error) => return Err(format!("client {}: {error} ({:?})", self.number, error.kind())),
            }
        }
        Ok(())
    }
}

type Called = lode::Result<Option<(Lsn, Change)>>;

impl Client<'_> {
    fn name(&self) -> String {
        volume_name(self.number)
    }

    fn data(&self, bytes: u64) -> Vec<u8> {
        let seed = mix(self.script.id.seed(), u64::from(self.number));
        data(seed, self.calls, bytes, if self.calls.is_multiple_of(3) { Fill::Mixed } else { Fill::Noise })
    }

    fn range(&mut self) -> (u64, u64) {
        let bytes = wide(self.known.len());
        let offset = self.rng.below(bytes);
        let (from, length) = match self.rng.below(3) {
            0 => (offset, self.rng.between(1, self.block * 2)),
            1 => (offset / self.block * self.block, self.block),
            _ => (offset / self.block * self.block, self.block * self.rng.between(1, 12)),
        };
        (from, length.min(bytes - from))
    }

    fn done(&mut self, start: usize, position: Lsn, change: Change) -> Result<(), String> {
        if self.log.done.last().is_some_and(|last| last.position >= position) {
            return Err(format!("client {}: positions go backwards at {position:?}", self.number));
        }
        match &change {
            Change::Write(_, offset, data) => self.learn(*offset, data),
            Change::Discard(_, offset, bytes) => self.known[narrow(*offset)..narrow(offset + bytes)].fill(0),
            Change::Resize(_, bytes) => self.known.resize(narrow(*bytes), 0),
            Change::Unit(writes) => {
                let name = self.name();
                for (_, offset, data) in writes.iter().filter(|(volume, ..)| *volume == name) {
                    self.learn(*offset, data);
                }
            }
            Change::TakeSnapshot(name) => self.snapshots.push((name.clone(), self.known.clone())),
            Change::DeleteSnapshot(name) => self.snapshots.retain(|(taken, _)| taken != name),
        }
        self.log.done.push(Done { start, position, change });
        Ok(())
    }

    fn learn(&mut self, offset: u64, data: &[u8]) {
        self.known[narrow(offset)..narrow(offset) + data.len()].copy_from_slice(data);
    }

    fn flushed(&mut self, covered: Lsn) {
        self.log.flushed.push(Flushed { end: self.medium.recorder.recorded(), covered });
    }

    fn write(&mut self) -> Called {
        let (offset, bytes) = self.range();
        let data = self.data(bytes);
        let position = self.own.write_at(offset, &data)?;
        Ok(Some((position, Change::Write(self.name(), offset, data))))
    }

    fn discard(&mut self) -> Called {
        let (offset, bytes) = self.range();
        if !self.own.extents(offset, bytes)?.iter().any(|extent| extent.allocated) {
            return Ok(None); // It would write nothing, and so have no position of its own.
        }
        let position = self.own.discard(offset, bytes)?;
        Ok(Some((position, Change::Discard(self.name(), offset, bytes))))
    }

    fn resize(&mut self) -> Called {
        let bytes = self.rng.between(BLOCKS / 2, BLOCKS) * self.block;
        let position = self.disk.resize_volume(&self.name(), bytes)?;
        Ok(Some((position, Change::Resize(self.name(), bytes))))
    }

    /// Takes a snapshot of everything, or deletes one that this client has taken.
    fn snapshot(&mut self) -> Called {
        if self.snapshots.len() > 1 {
            let name = self.snapshots[narrow(self.rng.below(2))].0.clone();
            let position = self.disk.delete_snapshot(&name)?;
            return Ok(Some((position, Change::DeleteSnapshot(name))));
        }
        let name = format!("c{}-{}", self.number, self.calls);
        let position = self.disk.take_snapshot(&name, &SnapshotOptions::default())?;
        Ok(Some((position, Change::TakeSnapshot(name))))
    }

    /// Own blocks, and one block in both of the volumes that belong to all: the client's own there, or everybody's.
    fn unit(&mut self) -> Called {
        let mut unit = self.disk.begin()?;
        let mut writes = Vec::new();
        for n in 0..self.rng.below(3) {
            let (offset, bytes) = self.range();
            let mut data = self.data(bytes);
            data.rotate_left(narrow(n % bytes));
            unit.write_at(&self.own, offset, &data)?;
            writes.push((self.name(), offset, data));
        }
        let block = if self.rng.percent(40) { self.clients } else { self.number };
        let stamp = self.data(128);
        for name in ["p0", "p1"] {
            let offset = u64::from(block) * 128;
            unit.write_at(&self.disk.volume(name)?, offset, &stamp)?;
            writes.push((name.to_owned(), offset, stamp.clone()));
        }
        let position = match self.rng.below(10) {
            0 => {
                unit.abort();
                return Ok(None);
            }
            1..=3 => {
                let position = unit.commit_and_flush(Survive::Power)?;
                self.flushed(position);
                position
            }
            _ => unit.commit()?,
        };
        Ok(Some((position, Change::Unit(writes))))
    }

    fn read(&mut self) -> Result<Called, String> {
        let mut found = vec![0x55; self.known.len()];
        if let Err(error) = self.own.read_at(0, &mut found) {
            return Ok(Err(error));
        }
        if let Some(words) = crate::content::differing(&self.name(), 0, &found, &self.known) {
            return Err(words);
        }
        for (snapshot, known) in &self.snapshots {
            let mut found = vec![0x55; known.len()];
            if let Err(error) = self.disk.volume_at(snapshot, &self.name()).and_then(|seen| seen.read_at(0, &mut found))
            {
                return Ok(Err(error));
            }
            if let Some(words) = crate::content::differing(&self.name(), 0, &found, known) {
                return Err(format!("snapshot {snapshot}: {words}"));
            }
        }
        Ok(Ok(None))
    }
}

/// The script of a seed, of which only the geometry and the options count: room enough that space rarely runs out.
fn shaped(mut script: Script) -> Script {
    script.ops.clear();
    script.geometry.zones += 24;
    script.geometry.zone_bytes = script.geometry.zone_bytes.max(16 << 10);
    script
}
