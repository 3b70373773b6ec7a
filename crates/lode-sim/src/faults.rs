//! Scripts on media that fail: every read gives right data or an error that names the damage, and nothing is lost that
//! a flush covered, unless an error says so.
//!
//! * [`Kind::Cuts`]: the power is cut again and again in one long life.
//! * [`Kind::Failing`]: an append, erase, sync or read fails, once or for ever. After a failed append or sync the disk
//!   reports no later flush as done (P8). After a power cut it opens with a legal prefix.
//! * [`Kind::Rot`]: bits flip and sectors become unreadable where they durably lie, also all the roots from one on.
//!   Damage of one sector never keeps the disk from opening (R25). Scrub names exactly the live blocks that cannot be
//!   read. What refuses to open shows a prefix when opened read-only, and can be written on after a repair.
//! * [`Kind::Misdirected`]: appends land at a wrong place.
//! * [`Kind::Flips`]: reads go wrong once; the next read of the same place is right, and nothing wrong was copied.

mod judge;

use crate::enumerate::{Counts, Finding, Replay, guarded};
use crate::model::Model;
use crate::rng::{Rng, index, narrow};
use crate::run::{Run, Stop, open_options};
use crate::script::{Fill, Script, ScriptId, data};
use crate::workload::script;
use judge::{judge, may_refuse, prefix, scrubbed};
use lode::{Disk, ErrorKind, OpenOptions, Survive};
use lode_media::fault::{FaultMedium, FaultPlan, FaultPoint, Lasting};
use lode_media::ram::RamMedium;
use lode_media::{Medium, Position, ZoneId};
use std::ops::RangeInclusive;
use std::sync::Arc;

type Faulty = Arc<FaultMedium<RamMedium>>;

/// What goes wrong in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Power cuts.
    Cuts,
    /// Calls that fail.
    Failing,
    /// Bits that rot, sectors that become unreadable.
    Rot,
    /// Appends written elsewhere.
    Misdirected,
    /// Reads that go wrong once.
    Flips,
}

/// The kind that a seed stands for.
pub fn kind(seed: u64) -> Kind {
    let kinds = [Kind::Cuts, Kind::Failing, Kind::Rot, Kind::Misdirected, Kind::Flips];
    *Rng::new(ScriptId::Faults(seed).seed() ^ 0xFA).pick(&kinds)
}

/// Runs the script of a seed on its failing medium.
pub fn fail(seed: u64) -> Result<Counts, Box<Finding>> {
    let id = ScriptId::Faults(seed);
    let mut script = script(id);
    // What a cache holds hides what the medium does.
    script.options.cache_bytes = 0;
    let rng = Rng::new(id.seed() ^ 0xFAFA);
    let mut counts = Counts { fault_runs: 1, ..Counts::default() };
    let done = guarded(|| {
        let mut failing = Failing { script: &script, rng, faults: 0, repairs: 0 };
        let result = match kind(seed) {
            Kind::Cuts => failing.cuts(),
            Kind::Failing => failing.failing(),
            Kind::Rot => failing.rot(),
            Kind::Misdirected => failing.misdirected(),
            Kind::Flips => failing.flips(),
        };
        counts.faults = failing.faults;
        counts.repairs = failing.repairs;
        result
    });
    counts.ops = script.ops.len().try_into().unwrap_or(0);
    let replay = Replay { script: id, cut: None, choices: Vec::new(), second: None };
    let finding = |words| Finding { replay, words: format!("{:?}: {words}", kind(seed)), counts, story: Vec::new() };
    done.map(|()| counts).map_err(|words| Box::new(finding(words)))
}

struct Failing<'a> {
    script: &'a Script,
    rng: Rng,
    faults: u64,
    repairs: u64,
}

/// In words, why a run stopped.
fn words(stop: Stop) -> String {
    match stop {
        Stop::Finding(words) => words,
        Stop::Refused(error) => format!("refused: {error} ({:?})", error.kind()),
    }
}

impl Failing<'_> {
    fn medium(&mut self) -> Faulty {
        let mut plan = FaultPlan::new(self.rng.word());
        plan.drop_per_mille = *self.rng.pick(&[0, 250, 900]);
        plan.tear_per_mille = *self.rng.pick(&[0, 500, 1000]);
        plan.sync_loss_per_mille = *self.rng.pick(&[0, 500, 1000]);
        Arc::new(FaultMedium::new(RamMedium::new(self.script.geometry), plan))
    }

    fn cuts(&mut self) -> Result<(), String> {
        let medium = self.medium();
        let mut run = Run::new(self.script, Arc::clone(&medium) as Arc<dyn Medium>, None);
        run.start().map_err(words)?;
        for at in 0..self.script.ops.len() {
            run.op(at).map_err(words)?;
            if self.rng.percent(6) {
                medium.crash_now();
                run.drop_disk();
                medium.power_on();
                run.after_cut().map_err(words)?;
                self.faults += 1;
            }
        }
        Ok(())
    }

    fn failing(&mut self) -> Result<(), String> {
        let medium = self.medium();
        let mut run = Run::new(self.script, Arc::clone(&medium) as Arc<dyn Medium>, None);
        run.start().map_err(words)?;
        run.tolerant = true;
        let mut point = *self.rng.pick(&[FaultPoint::Append, FaultPoint::Sync, FaultPoint::Erase, FaultPoint::Read]);
        if self.script.options.discard && self.rng.percent(40) {
            point = FaultPoint::Discard;
        }
        if self.script.grows() && self.rng.percent(30) {
            point = FaultPoint::Grow;
        }
        let lasting = *self.rng.pick(&[Lasting::Once, Lasting::Forever]);
        let kind = *self.rng.pick(&[lode_media::ErrorKind::Io, lode_media::ErrorKind::NoSpace]);
        let most = if point == FaultPoint::Grow { 4 } else { 60 };
        let nth = self.rng.between(1, most);
        medium.fail(point, nth, lasting, kind);
        for at in 0..self.script.ops.len() {
            match run.op(at) {
                Ok(()) => {}
                Err(Stop::Finding(words)) => {
                    return Err(format!("{point:?} number {nth} failing {lasting:?}: {words}"));
                }
                Err(Stop::Refused(_)) => {
                    self.faults += 1;
                    break;
                }
            }
        }
        if self.faults > 0 && matches!(point, FaultPoint::Append | FaultPoint::Sync) {
            self.must_be_latched(&run, &medium, point, lasting)?;
        }
        medium.heal();
        run.drop_disk();
        medium.crash_now();
        medium.power_on();
        run.tolerant = false;
        run.after_cut().map_err(|stop| format!("after {point:?} number {nth} failed {lasting:?}: {}", words(stop)))
    }

    /// P8: what was lost is not reported as flushed later; reads go on.
    fn must_be_latched(
        &self,
        run: &Run<'_>,
        medium: &Faulty,
        point: FaultPoint,
        lasting: Lasting,
    ) -> Result<(), String> {
        let Some(disk) = run.disk() else { return Ok(()) };
        medium.heal();
        if let Ok(position) = disk.flush(Survive::Power) {
            return Err(format!(
                "after a failed {point:?} ({lasting:?}) a flush was reported as done up to {position:?}"
            ));
        }
        for info in disk.volumes().map_err(|error| format!("after a failed {point:?}: {error}"))? {
            let volume = disk.volume(&info.name).map_err(|error| format!("after a failed {point:?}: {error}"))?;
            let mut bytes = vec![0; narrow(info.bytes.min(u64::from(info.block_bytes)))];
            match volume.read_at(0, &mut bytes) {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), ErrorKind::Failed | ErrorKind::Media | ErrorKind::Corrupt) => {}
                Err(error) => return Err(format!("after a failed {point:?} a read: {error} ({:?})", error.kind())),
            }
            if !bytes.is_empty() && volume.write_at(0, &bytes).is_ok() {
                return Err(format!("after a failed {point:?} ({lasting:?}) a write was accepted"));
            }
        }
        Ok(())
    }

    fn rot(&mut self) -> Result<(), String> {
        let medium = self.medium();
        let mut run = Run::new(self.script, Arc::clone(&medium) as Arc<dyn Medium>, None);
        run.start().and_then(|()| run.all()).map_err(words)?;
        run.flush_all().map_err(words)?;
        let now = run.model.appended();
        let places = *self.rng.pick(&[1, 1, 1, 3, 20]);
        // With nothing to replay every single damage leaves a disk that opens (R25); the end of the log is not stored
        // twice.
        let settled = self.rng.percent(60);
        if settled {
            let disk = run.disk().ok_or("the script left the disk closed")?;
            disk.checkpoint().map_err(|error| format!("the last checkpoint: {error}"))?;
        } else if self.rng.percent(60) {
            // Killed and opened again, so that replay begins with segments of an epoch that has ended.
            run.after_cut().map_err(|stop| format!("killed before the damage: {}", words(stop)))?;
        }
        let mut hit = Vec::new();
        for _ in 0..places {
            hit.extend(self.damage(&medium));
        }
        if places > 1 && self.rng.percent(50) {
            hit.extend(self.damage_roots(&medium));
        }
        let at = format!("{hit:?}");
        let disk = run.disk().ok_or("the script left the disk closed")?;
        let state = &Arc::clone(run.model.state(now));
        let bad = judge(disk, state).map_err(|words| format!("damaged at {at}, still open: {words}"))?;
        scrubbed(disk, &bad).map_err(|words| format!("damaged at {at}, still open: {words}"))?;
        run.drop_disk();
        let options = open_options(self.script, run.anchor());
        match Disk::open(Arc::clone(&medium) as Arc<dyn Medium>, &options) {
            Ok(disk) => {
                let bad = judge(&disk, state).map_err(|words| format!("damaged at {at}, opened again: {words}"))?;
                scrubbed(&disk, &bad).map_err(|words| format!("damaged at {at}, opened again: {words}"))
            }
            // A sector that cannot be read where the next batch would be: nobody knows whether there is one.
            Err(error) if places == 1 && settled && !error.to_string().contains("what cannot be read") => {
                Err(format!("with nothing to replay, damaged at {at} alone, the disk does not open: {error}"))
            }
            Err(error) => {
                may_refuse(&error)?;
                self.rescued(&medium, &run).map_err(|words| format!("damaged at {at}, refused ({error}): {words}"))
            }
        }
    }

    /// A disk that refuses to open: read-only it shows a prefix, and writes nothing; or, if tables were written behind
    /// the place where the log is lost now, parts of later states with it. After a repair it has what it showed
    /// still, has no other problem than the damage itself, takes writes, and opens again like any other.
    fn rescued(&mut self, medium: &Faulty, run: &Run<'_>) -> Result<(), String> {
        let open = |options: OpenOptions| Disk::open(Arc::clone(medium) as Arc<dyn Medium>, &options);
        let options = open_options(self.script, None);
        let shown = match open(OpenOptions { read_only: true, ..options.clone() }) {
            Ok(disk) => Some(prefix(&disk, run).map_err(|words| format!("opened read-only: {words}"))?),
            Err(error) => {
                may_refuse(&error).map_err(|words| format!("opened read-only: {words}"))?;
                None
            }
        };
        let disk = match open(OpenOptions { repair: true, ..options.clone() }) {
            Ok(disk) => disk,
            Err(error) if shown.is_none() => return may_refuse(&error),
            Err(error) => return Err(format!("it opens read-only, but cannot be repaired: {error}")),
        };
        self.repairs += 1;
        let (state, bad) = prefix(&disk, run).map_err(|words| format!("repaired: {words}"))?;
        if shown.is_some_and(|shown| shown != (state, bad.clone())) {
            return Err("the repaired disk has not what it showed read-only".to_owned());
        }
        // What no single state explains cannot be gone on from here, but it must be sound.
        let whole = state.is_some();
        let mut model = Model::of(run.model.state(state.unwrap_or(0)));
        let anchor = match self.write_after_repair(&disk, &mut model) {
            Ok(anchor) => anchor,
            Err(error) if error.kind() == ErrorKind::Full => return Ok(()),
            Err(error) => return may_refuse(&error).map_err(|words| format!("a write after the repair: {words}")),
        };
        drop(disk);
        self.sound_but_for_damage(medium).map_err(|words| format!("repaired and written on: {words}"))?;
        if !whole {
            return Ok(());
        }
        let disk = open(OpenOptions { expect_at_least: Some(anchor), ..options })
            .map_err(|error| format!("opened again after the repair: {error}"))?;
        let still_bad = judge(&disk, model.now()).map_err(|words| format!("opened again after the repair: {words}"))?;
        match still_bad.difference(&bad).next() {
            None => Ok(()),
            Some((volume, block)) => Err(format!("{volume} block {block} cannot be read any more after the repair")),
        }
    }

    fn write_after_repair(&self, disk: &Disk, model: &mut Model) -> lode::Result<lode::Lsn> {
        let options = lode::VolumeOptions { bytes: 4 << 10, block_bytes: 512, ..lode::VolumeOptions::default() };
        let data = data(self.script.id.seed(), usize::MAX, options.bytes, Fill::Noise);
        let volume = disk.create_volume("rescued", &options)?;
        volume.write_at(0, &data)?;
        model.create("rescued", options.bytes, options.block_bytes, false);
        model.write("rescued", 0, &data);
        disk.flush(Survive::Power)
    }

    /// A check names damage, but no invariant that is broken: unless a part of the map is lost, of which it cannot
    /// know.
    fn sound_but_for_damage(&self, medium: &Faulty) -> Result<(), String> {
        let report = Disk::check(Arc::clone(medium) as Arc<dyn Medium>).map_err(|error| format!("check: {error}"))?;
        if report.problems.iter().any(|problem| problem.contains("one good copy of two")) {
            return Ok(());
        }
        let of_damage = |problem: &&String| {
            let copy = problem.starts_with("tables in zone") && problem.contains("copy ");
            // The image of a unit has one copy, like all data.
            copy || problem.contains("is set aside") || problem.contains("can only be aborted")
        };
        match report.problems.iter().find(|problem| !of_damage(problem)) {
            None => Ok(()),
            Some(problem) => Err(format!("check: {problem} ({} problems)", report.problems.len())),
        }
    }

    fn damage(&mut self, medium: &Faulty) -> Option<Position> {
        self.faults += 1;
        if self.rng.percent(70) {
            return medium.rot_somewhere();
        }
        let geometry = self.script.geometry;
        let zone = ZoneId(u32::try_from(self.rng.below(u64::from(geometry.zones))).expect("a number of zones"));
        let sectors = u64::from(geometry.zone_bytes / geometry.append_align);
        let sector = u32::try_from(self.rng.below(sectors)).expect("a number of sectors");
        let at = Position { zone, offset: sector * geometry.append_align };
        medium.make_unreadable(at, index(geometry.append_align)).ok().map(|()| at)
    }

    /// All the roots from one on become unreadable, in both zones of a pair: an older one is the newest then.
    fn damage_roots(&mut self, medium: &Faulty) -> Option<Position> {
        self.faults += 1;
        let geometry = self.script.geometry;
        let pair = u32::try_from(self.rng.below(2)).expect("a pair") * 2;
        let sectors = u64::from(geometry.zone_bytes / geometry.append_align);
        let near = self.rng.between(1, sectors);
        let offset = u32::try_from(self.rng.below(near)).expect("a number of sectors") * geometry.append_align;
        for zone in [pair, pair + 1] {
            for sector in (offset..geometry.zone_bytes).step_by(index(geometry.append_align)) {
                medium.rot(Position { zone: ZoneId(zone), offset: sector + 8 }, 0x5A).ok()?;
            }
        }
        Some(Position { zone: ZoneId(pair), offset })
    }

    fn misdirected(&mut self) -> Result<(), String> {
        let medium = self.medium();
        let mut run = Run::new(self.script, Arc::clone(&medium) as Arc<dyn Medium>, None);
        run.start().map_err(words)?;
        run.tolerant = true;
        let when = narrow(self.rng.below(self.script.ops.len().try_into().unwrap_or(1)));
        for at in 0..self.script.ops.len() {
            if at == when {
                medium.misdirect_next(None);
                self.faults += 1;
            }
            match run.op(at) {
                Ok(()) => {}
                Err(Stop::Finding(words)) => return Err(format!("an append went elsewhere: {words}")),
                Err(Stop::Refused(_)) => break,
            }
        }
        run.drop_disk();
        self.some_state(&medium, &run, run.model.allowed())
    }

    /// Opens, if the disk does; some allowed state must then explain all blocks that can be read.
    fn some_state(&self, medium: &Faulty, run: &Run<'_>, states: RangeInclusive<usize>) -> Result<(), String> {
        let options = open_options(self.script, run.anchor());
        let disk = match Disk::open(Arc::clone(medium) as Arc<dyn Medium>, &options) {
            Ok(disk) => disk,
            Err(error) => return may_refuse(&error),
        };
        let mut last = String::new();
        for state in states.rev() {
            match judge(&disk, run.model.state(state)) {
                Ok(_) => return Ok(()),
                Err(words) if last.is_empty() => last = words,
                Err(_) => {}
            }
        }
        Err(format!("no allowed state explains what is read; from the last one: {last}"))
    }

    fn flips(&mut self) -> Result<(), String> {
        let medium = self.medium();
        let mut run = Run::new(self.script, Arc::clone(&medium) as Arc<dyn Medium>, None);
        run.start().map_err(words)?;
        run.tolerant = true;
        let mut refused = false;
        for at in 0..self.script.ops.len() {
            if self.rng.percent(10) {
                medium.flip_reads(self.rng.between(1, 3));
                self.faults += 1;
            }
            match run.op(at) {
                Ok(()) => {}
                Err(Stop::Finding(words)) => return Err(format!("reads went wrong once: {words}")),
                Err(Stop::Refused(_)) => {
                    refused = true;
                    break;
                }
            }
        }
        medium.heal();
        run.tolerant = false;
        if refused {
            run.drop_disk();
            return run.after_cut().map_err(|stop| format!("after reads that went wrong once: {}", words(stop)));
        }
        run.compare().map_err(|stop| format!("after reads that went wrong once: {}", words(stop)))
    }
}
