//! The file system against a model of one, and every crash of it.
//!
//! After any crash the tree must be what it was after some operation, at least the last one that was flushed: programs
//! see a prefix of what they did, without any `fsync` (P2). And nothing needs mending: a check finds nothing.

mod look;
mod model;
mod run;
mod transactions;

use crate::chooser::Chooser;
use crate::crash::CrashImage;
use crate::enumerate::guarded;
use crate::platter::{CrashClass, Platter};
use crate::rng::{Rng, mix, wide};
use crate::trace::{Erased, NOISE};
use lode::Disk;
use lode_fs::{FileSystem, Time};
use lode_media::Medium;
use run::{Recording, Setup, options};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// How much was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Runs.
    pub runs: u64,
    /// Operations.
    pub ops: u64,
    /// Crashed disks opened.
    pub states: u64,
    /// Different ones among them, by what was read.
    pub images: u64,
    /// Operations refused for want of space.
    pub full: u64,
    /// Crashed disks checked.
    pub checked: u64,
    /// Transactions committed.
    pub committed: u64,
    /// Transactions in conflict.
    pub conflicts: u64,
    /// Transactions committed into another one.
    pub within: u64,
    /// Writes gathered.
    pub gathered: u64,
}

/// Runs a seed and crashes it at every point of its trace, or at as many as `budget` images allow.
pub fn enumerate(seed: u64, budget: u64) -> Result<Counts, String> {
    let setup = Setup::of(seed);
    let told = |words: String| format!("files seed {seed}: {words}");
    let recording = guarded(|| {
        let (result, recording) = run::run(&setup);
        result.map(|()| recording)
    })
    .map_err(told)?;
    let mut counts = Counts {
        runs: 1,
        ops: wide(recording.notes.len()),
        full: recording.full,
        committed: recording.committed,
        conflicts: recording.conflicts,
        within: recording.within,
        gathered: recording.gathered,
        ..Counts::default()
    };
    let mut rng = Rng::new(mix(seed, 0xC2A5));
    let class = CrashClass {
        tear: rng.percent(60),
        undefined: rng.percent(50),
        full_sectors_max: *rng.pick(&[3, 4, 6]),
        ordered: true,
    };
    let first = if setup.erased == Erased::Zeros { 0 } else { NOISE };
    let mut platter = Platter::new(setup.geometry, first);
    let cuts = wide(recording.ops.len() + 1 - recording.made);
    let per_cut = (budget / cuts).max(2);
    let mut images = HashSet::new();
    for cut in 0..=recording.ops.len() {
        if cut > 0 {
            platter.step(&recording.ops[cut - 1]);
        }
        if cut < recording.made || rng.below(cuts * 2) >= budget {
            continue;
        }
        let base = Arc::new(platter.cut(class));
        let mut chooser = Chooser::exhaustive();
        for draw in 0..per_cut {
            let image = Arc::new(CrashImage::new(Arc::clone(&base), chooser));
            let check = mix(seed, mix(wide(cut), draw)).is_multiple_of(8);
            let result = guarded(|| visit(&image, &recording, cut, check));
            let choices = image.chooser();
            result.map_err(|words| told(format!("cut {cut}, choices {:?}: {words}", choices.values())))?;
            counts.states += 1;
            counts.checked += u64::from(check);
            images.insert(image.observed());
            chooser = choices;
            if !chooser.advance() {
                break;
            }
            if draw > per_cut * 2 / 3 {
                chooser = Chooser::drawn(mix(seed, mix(wide(cut), draw)));
            }
        }
    }
    counts.images = wide(images.len());
    Ok(counts)
}

/// Opens what a crash has left.
fn visit(image: &Arc<CrashImage>, recording: &Recording, cut: usize, check: bool) -> Result<(), String> {
    let medium: Arc<dyn Medium> = Arc::clone(image) as Arc<dyn Medium>;
    let disk = Arc::new(Disk::open(medium, &options()).map_err(|error| format!("opening the disk: {error}"))?);
    let fs = FileSystem::open(&disk, Time(0)).map_err(|error| format!("opening the file system: {error}"))?;
    let found = look::hash(&fs.view()).map_err(|error| format!("looking: {error}"))?;
    let (first, last) = recording.allowed(cut);
    if !recording.states[first..=last].contains(&found) {
        let at = recording.states.iter().position(|state| *state == found);
        let words = at.map_or("none", |at| &recording.words[at]);
        return Err(format!(
            "expected a state from {first} ({}) to {last} ({}), found {at:?} ({words}): {:#?}",
            recording.words[first],
            recording.words[last],
            look::words(&fs.view())
        ));
    }
    if check {
        let report = fs.check(&mut |_, _| ControlFlow::Continue(())).map_err(|error| format!("check: {error}"))?;
        let report = report.expect("not ended");
        if !report.problems.is_empty() || report.orphans > 0 {
            return Err(format!("check finds {report:?}"));
        }
    }
    Ok(())
}
