//! The life after a crash: two writes with a flush between, a kill, another opening. Every other such life begins with
//! a kill, so that its writes meet tables that are not in memory.

use super::opening::must_have_zones;
use crate::content::{content_hash, difference, remnants};
use crate::crash::CrashImage;
use crate::model::{Changed, Committed, Identity, Model, VolumeState};
use crate::recording::{Allowed, History};
use crate::rng::mix;
use crate::run::open_options;
use crate::script::{Fill, Script, data, unit_label};
use crate::trace::TraceOp;
use lode::{Disk, ErrorKind, FormatOptions, Lsn, OpenOptions, ReceiveOptions, SendOptions, SnapshotOptions, Survive};
use lode_media::ram::RamMedium;
use lode_media::{Geometry, Medium};
use std::sync::{Arc, OnceLock};

/// What that life did.
pub(super) struct Afterlife {
    /// The state that the first crash left.
    pub(super) state: usize,
    /// What was written, by recovery and after it.
    pub(super) ops: Vec<TraceOp>,
    /// Where recovery ended.
    opened: usize,
    /// Where the flush had returned, and what it returned.
    flushed: usize,
    anchor: Lsn,
    /// How many zones it had then, where it had more, and how many.
    zones: u32,
    grown: (usize, u32),
    /// After the opening, after the first write, after the second.
    history: History,
}

/// What a second crash may leave.
pub(super) struct AllowedAgain {
    history: History,
    flushed: usize,
    anchor: Option<Lsn>,
    zones: [u32; 3],
}

impl AllowedAgain {
    pub(super) fn borrowed(&self) -> Allowed<'_> {
        let appended = self.history.states.len() - 1;
        Allowed {
            history: &self.history,
            flushed: self.flushed,
            kept: self.flushed,
            appended,
            anchor: self.anchor,
            zones: self.zones,
        }
    }
}

impl Afterlife {
    /// What a crash behind the first `cut` operations may leave, `before` being allowed at the first crash.
    pub(super) fn allowed(&self, cut: usize, before: &Allowed<'_>) -> AllowedAgain {
        let zones = match (cut >= self.opened, cut >= self.grown.0) {
            (_, true) => [self.grown.1; 3],
            (true, false) => [self.zones, self.grown.1, self.grown.1],
            (false, false) => before.zones,
        };
        if cut >= self.flushed {
            return AllowedAgain { history: self.history.clone(), flushed: 1, anchor: Some(self.anchor), zones };
        }
        let last = if cut < self.opened { before.appended } else { self.state };
        let mut states = before.history.states[before.flushed..=last].to_vec();
        let mut hashes = before.history.hashes[before.flushed..=last].to_vec();
        if cut >= self.opened {
            states.extend(self.history.states[1..].iter().cloned());
            hashes.extend(&self.history.hashes[1..]);
        }
        AllowedAgain { history: History { states, hashes }, flushed: 0, anchor: before.anchor, zones }
    }
}

/// Writes, flushes, writes, drops the disk and opens it again.
pub(super) fn live_on(
    image: &Arc<CrashImage>,
    script: &Script,
    disk: Disk,
    allowed: &Allowed<'_>,
    state: usize,
    salt: u64,
) -> Result<Afterlife, String> {
    let medium = || Arc::clone(image) as Arc<dyn Medium>;
    let failed = |what: &str, error: lode::Error| format!("after recovery {what}: {error} ({:?})", error.kind());
    let disk = if salt.is_multiple_of(2) {
        disk
    } else {
        drop(disk);
        Disk::open(medium(), &open_options(script, allowed.anchor)).map_err(|error| failed("opening blindly", error))?
    };
    let opened = image.recorded();
    let zones = disk.info().map_err(|error| failed("asking for the size", error))?.zones;
    let mut model = Model::of(&allowed.history.states[state]);
    change(&disk, &mut model, script, mix(salt, 1)).map_err(|error| failed("a write", error))?;
    let grown = if salt.is_multiple_of(3) && script.grows() { grow(&disk) } else { Ok(zones) };
    let grown = (image.recorded(), grown.map_err(|error| failed("growing", error))?);
    let anchor = disk.flush(Survive::Power).map_err(|error| failed("a flush", error))?;
    let flushed = image.recorded();
    change(&disk, &mut model, script, mix(salt, 2)).map_err(|error| failed("a write", error))?;
    disk.flush(Survive::Process).map_err(|error| failed("a flush to the process", error))?;
    let ops = image.ops();
    drop(disk);
    let disk =
        Disk::open(medium(), &open_options(script, Some(anchor))).map_err(|error| failed("opening again", error))?;
    must_have_zones(&disk, &[grown.1])?;
    let hash = content_hash(&disk).map_err(|error| failed("a read", error))?;
    if Some(&hash) != model.hashes().last() {
        return Err(format!("after recovery, two writes and a kill: {}", difference(&disk, model.now())));
    }
    if let Some(violation) = image.violations().first() {
        return Err(format!("the engine broke the medium's contract after recovery: {violation}"));
    }
    Ok(Afterlife { state, ops, opened, flushed, anchor, zones, grown, history: History::of(&model) })
}

/// Makes the disk a little larger, if it can become so. Gives back its zones.
fn grow(disk: &Disk) -> lode::Result<u32> {
    let info = disk.info()?;
    match disk.grow(Some(info.image + 2 * info.zone)) {
        Err(error) if error.kind() != ErrorKind::InvalidArgument => Err(error),
        _ => disk.info().map(|info| info.zones),
    }
}

/// Something with a unit that the crash has left open.
fn change_unit(disk: &Disk, model: &mut Model, unit: u32, salt: u64) -> lode::Result<()> {
    let mut open = disk.resume(&unit_label(unit))?;
    match salt % 3 {
        0 => {
            let done = open.barrier(&salt.to_le_bytes());
            if done.is_ok() {
                model.barrier(unit, salt);
            }
            return done.map(|_| ());
        }
        1 => match open.try_commit() {
            Ok(_) => {
                assert!(model.commit(unit) == Committed::Applied, "a commit without a meaning was accepted");
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                let told = model.changed_by_others(unit) != Changed::No;
                assert!(told || model.clone().commit(unit) == Committed::Conflict, "a commit was refused: {error}");
            }
            Err(error) => return Err(error),
        },
        _ => {}
    }
    open.abort();
    model.abort(unit);
    Ok(())
}

/// Receives a volume whose stream a crash has cut. What comes now is another one, so what was kept must go.
fn receive(disk: &Disk, model: &mut Model, name: &str) -> lode::Result<()> {
    if disk.receives()?.iter().any(|kept| kept.volume == name) {
        disk.drop_receive(name)?;
    }
    let (stream, content) = small_stream();
    let snapshot = format!("again{}", model.now().snapshots.len());
    let options = ReceiveOptions { volume: Some(name.to_owned()), snapshot: Some(snapshot.clone()), force: false };
    disk.receive(&mut stream.as_slice(), &options, &mut |_, _| ())?;
    let origin = Identity { far: true, generation: 0, number: 0 };
    model.received(name, &snapshot, content, origin, 0);
    Ok(())
}

/// A stream of a tiny volume, and what it holds.
fn small_stream() -> &'static (Vec<u8>, VolumeState) {
    static STREAM: OnceLock<(Vec<u8>, VolumeState)> = OnceLock::new();
    STREAM.get_or_init(|| {
        let geometry = Geometry { zones: lode::SMALLEST_ZONES, zone_bytes: 8192, append_align: 512, devices: 1 };
        let sent = || -> lode::Result<(Vec<u8>, VolumeState)> {
            let medium = Arc::new(RamMedium::new(geometry));
            Disk::format(medium.clone(), &FormatOptions { disk_id: 0x57 })?;
            let disk = Disk::open(medium, &OpenOptions { background: false, ..OpenOptions::default() })?;
            let (bytes, block_bytes, compression) = (200, 64, lode::Compression::None);
            let volume = disk.create_volume("small", &lode::VolumeOptions { bytes, block_bytes, compression })?;
            volume.write_at(70, &[0x57; 100])?;
            disk.take_snapshot("s", &SnapshotOptions::default())?;
            let mut stream = Vec::new();
            disk.volume_at("s", "small")?.send(None, &SendOptions::default(), &mut stream, &mut |_, _| ())?;
            let mut model = Model::new();
            model.create("small", bytes, block_bytes, false);
            model.write("small", 70, &[0x57; 100]);
            let state = model.now().volumes.get("small").map(|state| VolumeState::clone(state));
            Ok((stream, state.unwrap_or_else(|| VolumeState::new(0, bytes, block_bytes, false))))
        };
        sent().unwrap_or_else(|error| panic!("a sound disk does not send: {error}"))
    })
}

/// Goes on with an open unit, or writes over the start of the first volume that is large enough, or makes a volume.
fn change(disk: &Disk, model: &mut Model, script: &Script, salt: u64) -> lode::Result<()> {
    if let Some(unit) = model.units().first().filter(|_| salt.is_multiple_of(2)) {
        return match change_unit(disk, model, *unit, salt / 2) {
            Err(error) if error.kind() == ErrorKind::Full => {
                model.stay();
                Ok(())
            }
            result => result,
        };
    }
    if let Some(name) = remnants(disk).into_iter().find(|name| model.volume(name).is_none()) {
        return match receive(disk, model, &name) {
            Err(error) if error.kind() == ErrorKind::Full => {
                model.stay();
                Ok(())
            }
            result => result,
        };
    }
    let found = model.now().volumes.iter().find(|(_, volume)| volume.bytes > 0);
    let found = found.map(|(name, volume)| (name.clone(), volume.bytes.min(u64::from(volume.block_bytes) + 5)));
    let result = match &found {
        Some((name, bytes)) => {
            let data = data(mix(script.id.seed(), salt), 0, *bytes, Fill::Noise);
            let result = disk.volume(name)?.write_at(0, &data);
            if result.is_ok() {
                model.write(name, 0, &data);
            }
            result.map(|_| ())
        }
        None => {
            let name = format!("after{}", model.now().volumes.len());
            let compression = lode::Compression::None;
            let result = disk.create_volume(&name, &lode::VolumeOptions { bytes: 640, block_bytes: 64, compression });
            if result.is_ok() {
                model.create(&name, 640, 64, false);
            }
            result.map(|_| ())
        }
    };
    match result {
        Err(error) if error.kind() == ErrorKind::Full => {
            model.stay();
            Ok(())
        }
        result => result,
    }
}
