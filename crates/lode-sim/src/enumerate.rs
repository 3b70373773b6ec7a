//! For each cut of a script: every image that it may leave is opened and must hold exactly one allowed state.
//!
//! Up to a number of images per cut all are made, one after another; where there are more, the rest of the budget is
//! drawn. Of the images opened some are checked by [`Disk::check`], and some are written on, killed and opened again.
//! What recovery and that life wrote is a trace again, and is crashed at each of its points (depth 2); so is the joint
//! trace of a life that was killed and the one after it, in which what the first had not synced may still be lost.
//!
//! Disks with threads are crashed in [`concurrent`]; what clients at once are told is judged by [`crate::history`].
//!
//! A finding comes with the [`Replay`] that makes it again.

use crate::chooser::Chooser;
use crate::crash::CrashImage;
use crate::history::{check, draw, run};
use crate::platter::{CrashClass, Cut, Platter};
use crate::recording::{Allowed, Recording};
use crate::rng::{Rng, mix, wide};
use crate::run::{RunCounts, open_options, record};
use crate::script::{Script, ScriptId};
use crate::trace::{Erased, TraceOp, trace_hash};
use crate::workload::script;
use lode::{Disk, ErrorKind};
use lode_media::Medium;
use std::collections::HashSet;
use std::sync::Arc;

mod afterlife;
mod concurrent;
mod counts;
mod opening;
mod replay;

use afterlife::{Afterlife, live_on};
pub use counts::Counts;
use opening::{check_medium, open_and_compare};
pub use replay::{Replay, Second};

/// How much is enumerated.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// About how many images of first crashes each script is opened on.
    pub states_per_script: u64,
    /// At most this many at one cut.
    pub states_per_cut: u64,
    /// One in so many opened images is checked.
    pub check_one_in: u64,
    /// One in so many opened images is written on.
    pub live_on_one_in: u64,
    /// At most so many traces of a script are crashed again.
    pub second_traces: u64,
    /// At most so many images at one cut of such a trace.
    pub states_per_second_cut: u64,
    /// See [`CrashClass::ordered`].
    pub ordered: bool,
}

impl Settings {
    /// For scripts drawn from a seed.
    pub fn random() -> Self {
        Settings {
            states_per_script: 3000,
            states_per_cut: 400,
            check_one_in: 16,
            live_on_one_in: 24,
            second_traces: 12,
            states_per_second_cut: 6,
            ordered: true,
        }
    }

    /// For short scripts: nearly everything.
    pub fn short() -> Self {
        Settings {
            states_per_script: 6000,
            states_per_cut: 1500,
            check_one_in: 16,
            live_on_one_in: 16,
            second_traces: 16,
            states_per_second_cut: 16,
            ordered: true,
        }
    }

    /// For the scripts of an id.
    pub fn of(id: ScriptId) -> Self {
        match id {
            ScriptId::Short(_) => Self::short(),
            _ => Self::random(),
        }
    }
}

/// What went wrong, and how to see it again.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Makes it again.
    pub replay: Replay,
    /// What was found and what was expected.
    pub words: String,
    /// What was done before in the same script.
    pub counts: Counts,
    /// For a replay: what happened on the medium, and what of it was lost.
    pub story: Vec<String>,
}

/// Which crashes are made of a script: follows from its id.
pub fn crash_class(id: ScriptId, ordered: bool) -> CrashClass {
    let mut rng = Rng::new(mix(id.seed(), 0xC1A5));
    CrashClass {
        tear: rng.percent(60),
        undefined: rng.percent(50),
        full_sectors_max: *rng.pick(&[3, 4, 6, 12]),
        ordered,
    }
}

/// Runs a script and every crash of it.
pub fn enumerate(id: ScriptId, settings: &Settings) -> Result<Counts, Box<Finding>> {
    if let ScriptId::Faults(seed) = id {
        return crate::faults::fail(seed);
    }
    if let ScriptId::Concurrent(_) = id {
        return concurrent::concurrent(id);
    }
    if let ScriptId::History(seed) = id {
        return history(id, seed);
    }
    let script = script(id);
    let mut walk = Walk::new(&script, settings);
    match walk.all() {
        Ok(()) => Ok(walk.counts),
        Err(mut finding) => {
            finding.counts = walk.counts;
            Err(finding)
        }
    }
}

/// Clients at once, whose history is judged.
fn history(id: ScriptId, seed: u64) -> Result<Counts, Box<Finding>> {
    let mut counts = Counts { histories: 1, ..Counts::default() };
    let judged = guarded(|| {
        let (setup, steps) = draw(seed);
        let history = run(&setup, &steps)?;
        counts.ops = steps.iter().map(|steps| wide(steps.len())).sum();
        check(&history).map_err(|anomaly| anomaly.to_string())
    });
    match judged {
        Ok(summary) => {
            counts.conflicts = summary.refused;
            Ok(counts)
        }
        Err(words) => {
            let replay = Replay { script: id, cut: None, choices: Vec::new(), second: None };
            let words = format!("with threads, which may need several tries to happen again: {words}");
            Err(Box::new(Finding { replay, words, counts, story: Vec::new() }))
        }
    }
}

/// Makes one crash again. `Ok`: nothing was wrong with it.
pub fn replay(replay: &Replay, settings: &Settings) -> Result<(), Box<Finding>> {
    let Some(cut) = replay.cut else {
        return enumerate(replay.script, settings).map(|_| ());
    };
    let script = script(replay.script);
    let mut walk = Walk::new(&script, settings);
    walk.once(replay, cut)
}

/// The bytes of a fresh medium of this script.
fn first_byte(script: &Script) -> u8 {
    if script.erased == Erased::Zeros { 0 } else { crate::trace::NOISE }
}

/// One image to be opened.
struct Visit<'a> {
    chooser: Chooser,
    cut: usize,
    platter: &'a Platter,
    base: &'a Arc<Cut>,
    allowed: Allowed<'a>,
}

/// What is done with an image beside opening and comparing it.
#[derive(Clone, Copy)]
enum Checks {
    /// Whatever the image's hash draws.
    Sampled,
    /// Everything.
    All,
}

struct Walk<'a> {
    script: &'a Script,
    settings: &'a Settings,
    class: CrashClass,
    counts: Counts,
    images: HashSet<u64>,
    second_traces: HashSet<u64>,
    /// While a crash is replayed: what happened.
    story: Option<Vec<String>>,
}

impl<'a> Walk<'a> {
    fn new(script: &'a Script, settings: &'a Settings) -> Self {
        let class = crash_class(script.id, settings.ordered);
        let counts = Counts::default();
        Walk { script, settings, class, counts, images: HashSet::new(), second_traces: HashSet::new(), story: None }
    }

    fn finding(&self, words: String) -> Box<Finding> {
        Box::new(Finding {
            replay: Replay { script: self.script.id, cut: None, choices: Vec::new(), second: None },
            words,
            counts: Counts::default(),
            story: Vec::new(),
        })
    }

    fn record(&mut self) -> Result<Recording, Box<Finding>> {
        let recorded = guarded(|| Ok(record(self.script)));
        let (result, recording, RunCounts { ops, full, compared, conflicts, received }) =
            recorded.map_err(|words| self.finding(format!("while the script ran: {words}")))?;
        self.counts.ops += ops;
        self.counts.full += full;
        self.counts.compared += compared;
        self.counts.conflicts += conflicts;
        self.counts.received += received;
        result.map_err(|words| self.finding(format!("while the script ran: {words}")))?;
        Ok(recording)
    }

    /// The one image of a replay.
    fn once(&mut self, replay: &Replay, cut: usize) -> Result<(), Box<Finding>> {
        let recording = self.record()?;
        let mut platter = Platter::new(self.script.geometry, first_byte(self.script));
        for op in recording.ops.iter().take(cut) {
            platter.step(op);
        }
        let allowed = recording.allowed(cut);
        let base = Arc::new(platter.cut(self.class));
        let chooser = Chooser::replay(&replay.choices);
        let visit = Visit { chooser, cut, platter: &platter, base: &base, allowed };
        if cut < recording.formatted {
            return self.visit_formatting(&visit).map(|_| ());
        }
        let synced = recording.ops[..cut].iter().rposition(|op| matches!(op, TraceOp::Sync)).unwrap_or(0);
        let before = recording.ops[..synced].iter().rposition(|op| matches!(op, TraceOp::Sync)).unwrap_or(0);
        self.story = Some(recording.ops[before..cut].iter().map(TraceOp::to_string).collect());
        let checks = if replay.second.is_none() { Checks::All } else { Checks::Sampled };
        let result = self.visit(&visit, checks, replay.second.as_ref());
        result.map(|_| ()).map_err(|mut finding| {
            finding.story = self.story.take().unwrap_or_default();
            finding
        })
    }

    /// Adds what an image lost, and what was done on it, to the story of a replay.
    fn tell(&mut self, what: &str, image: &CrashImage, done: usize) {
        if let Some(story) = &mut self.story {
            story.push(format!("-- {what}; lost:"));
            story.extend(image.lost());
            story.push("-- then:".to_owned());
            story.extend(image.ops().iter().take(done).map(TraceOp::to_string));
        }
    }

    fn all(&mut self) -> Result<(), Box<Finding>> {
        let recording = self.record()?;
        self.counts.scripts += 1;
        if self.script.id.seed().is_multiple_of(8) {
            let again = self.record()?;
            if trace_hash(&again.ops) != trace_hash(&recording.ops) {
                return Err(self.finding("the same script writes something else the second time".to_owned()));
            }
        }
        let first = recording.formatted.max(recording.prelude);
        let cuts = wide(recording.ops.len() + 1 - first);
        let budget = self.settings.states_per_script;
        let per_cut = (budget / cuts).clamp(3, self.settings.states_per_cut);
        let mut rng = Rng::new(mix(self.script.id.seed(), 0xC075));
        let format_too = self.script.id.seed() % 16 == 1;
        let mut platter = Platter::new(self.script.geometry, first_byte(self.script));
        for cut in 0..=recording.ops.len() {
            if cut > 0 {
                platter.step(&recording.ops[cut - 1]);
            }
            let wanted =
                if cut < first { format_too && cut <= recording.formatted } else { rng.below(cuts * 3) < budget };
            if wanted {
                self.cut(&recording, &platter, cut, per_cut)?;
            }
        }
        self.counts.images += wide(self.images.len());
        Ok(())
    }

    /// All images of one cut, or as many as the budget allows.
    fn cut(&mut self, recording: &Recording, platter: &Platter, cut: usize, budget: u64) -> Result<(), Box<Finding>> {
        let base = Arc::new(platter.cut(self.class));
        self.counts.cuts += 1;
        self.counts.raw_images += 10f64.powf(base.images_log10.min(300.0));
        let allowed = recording.allowed(cut);
        let formatting = cut < recording.formatted;
        let mut visit = Visit { chooser: Chooser::exhaustive(), cut, platter, base: &base, allowed };
        let in_order = budget * 2 / 3 + 1;
        let mut done = 0;
        loop {
            if formatting {
                visit.chooser = self.visit_formatting(&visit)?;
            } else {
                visit.chooser = self.visit(&visit, Checks::Sampled, None)?;
            }
            done += 1;
            if !visit.chooser.advance() {
                self.counts.complete_cuts += 1;
                return Ok(());
            }
            if done >= in_order {
                break;
            }
        }
        for draw in done..budget.max(done) {
            visit.chooser = Chooser::drawn(mix(self.script.id.seed(), mix(wide(cut), draw)));
            if formatting {
                self.visit_formatting(&visit)?;
            } else {
                self.visit(&visit, Checks::Sampled, None)?;
            }
        }
        Ok(())
    }

    /// A disk whose formatting was cut short is no disk, or an empty one.
    fn visit_formatting(&mut self, visit: &Visit<'_>) -> Result<Chooser, Box<Finding>> {
        let image = Arc::new(CrashImage::new(Arc::clone(visit.base), visit.chooser.clone()));
        let medium: Arc<dyn Medium> = Arc::clone(&image) as Arc<dyn Medium>;
        let opened = guarded(|| match Disk::open(medium, &open_options(self.script, None)) {
            Ok(disk) => match disk.volumes() {
                Ok(volumes) if volumes.is_empty() => Ok(()),
                Ok(volumes) => Err(format!("a disk half formatted has volumes: {volumes:?}")),
                Err(error) => Err(format!("the volumes of a disk half formatted cannot be listed: {error}")),
            },
            Err(error) if matches!(error.kind(), ErrorKind::NotADisk | ErrorKind::Corrupt) => Ok(()),
            Err(error) => Err(format!("a disk half formatted: {error} ({:?})", error.kind())),
        });
        self.counts.states += 1;
        self.images.insert(image.observed());
        let chooser = image.chooser();
        opened.map_err(|words| self.crash_finding(visit.cut, &chooser, None, words))?;
        Ok(chooser)
    }

    fn crash_finding(&self, cut: usize, chooser: &Chooser, second: Option<Second>, words: String) -> Box<Finding> {
        let replay = Replay { script: self.script.id, cut: Some(cut), choices: chooser.values(), second };
        Box::new(Finding { replay, words, counts: Counts::default(), story: Vec::new() })
    }

    /// Opens one image and compares. Gives back the path of its choices.
    fn visit(&mut self, visit: &Visit<'_>, checks: Checks, only: Option<&Second>) -> Result<Chooser, Box<Finding>> {
        let image = Arc::new(CrashImage::new(Arc::clone(visit.base), visit.chooser.clone()));
        let mut path = None;
        let sample = |one_in: u64, salt: u64| match checks {
            Checks::All => true,
            Checks::Sampled => mix(image.observed(), salt).is_multiple_of(one_in),
        };
        let mut life = None;
        let result = guarded(|| {
            let (disk, state) = open_and_compare(&image, self.script, &visit.allowed, true)?;
            let settled = image.chooser();
            image.freeze(mix(image.observed(), 0xF0));
            path = Some(settled);
            let check = sample(self.settings.check_one_in, wide(visit.cut));
            let live = sample(self.settings.live_on_one_in, !wide(visit.cut)) || only.is_some();
            if check {
                check_medium(Arc::clone(&image) as Arc<dyn Medium>)?;
            }
            if live {
                life = Some(live_on(&image, self.script, disk, &visit.allowed, state, wide(visit.cut))?);
            }
            Ok((check, live))
        });
        let chooser = path.unwrap_or_else(|| image.chooser());
        self.tell("the first cut", &image, only.map_or(usize::MAX, |second| second.cut));
        self.counts.states += 1;
        self.images.insert(image.observed());
        let (checked, lived) = result.map_err(|words| self.crash_finding(visit.cut, &chooser, None, words))?;
        self.counts.checked += u64::from(checked);
        self.counts.lived_on += u64::from(lived);
        if let Some(life) = life {
            self.crash_again(visit, &image, &chooser, &life, only)?;
        }
        Ok(chooser)
    }

    /// Crashes the life after a crash at each of its points.
    fn crash_again(
        &mut self,
        visit: &Visit<'_>,
        image: &CrashImage,
        chooser: &Chooser,
        life: &Afterlife,
        only: Option<&Second>,
    ) -> Result<(), Box<Finding>> {
        let kill = chooser.values().iter().all(|value| *value == 0);
        if let Some(second) = only {
            let platter = if second.kill { visit.platter.clone() } else { image.platter(1) };
            return self.second(visit, chooser, platter, life, second.kill, Some(second));
        }
        if wide(self.second_traces.len()) >= self.settings.second_traces {
            return Ok(());
        }
        let trace = mix(visit.base.window, mix(trace_hash(&life.ops), wide(life.state)));
        if self.second_traces.insert(trace) {
            self.counts.second_traces += 1;
            self.second(visit, chooser, image.platter(1), life, false, None)?;
            if kill {
                self.second(visit, chooser, visit.platter.clone(), life, true, None)?;
            }
        }
        Ok(())
    }

    fn second(
        &mut self,
        visit: &Visit<'_>,
        first: &Chooser,
        mut platter: Platter,
        life: &Afterlife,
        kill: bool,
        only: Option<&Second>,
    ) -> Result<(), Box<Finding>> {
        for cut in 0..=life.ops.len() {
            if cut > 0 {
                platter.step(&life.ops[cut - 1]);
            }
            if only.is_some_and(|second| second.cut != cut) {
                continue;
            }
            let base = Arc::new(platter.cut(self.class));
            self.counts.raw_images += 10f64.powf(base.images_log10.min(300.0));
            let allowed = life.allowed(cut, &visit.allowed);
            let mut chooser = only.map_or_else(Chooser::exhaustive, |second| Chooser::replay(&second.choices));
            for draw in 0..self.settings.states_per_second_cut {
                let image = Arc::new(CrashImage::new(Arc::clone(&base), chooser));
                let result = guarded(|| open_and_compare(&image, self.script, &allowed.borrowed(), false).map(|_| ()));
                chooser = image.chooser();
                self.tell("the second cut", &image, usize::MAX);
                self.counts.second_states += 1;
                self.images.insert(mix(image.observed(), mix(wide(visit.cut), self.counts.second_traces)));
                let second = Second { kill, cut, choices: chooser.values() };
                result.map_err(|words| self.crash_finding(visit.cut, first, Some(second), words))?;
                if only.is_some() || !chooser.advance() {
                    break;
                }
                if draw * 2 > self.settings.states_per_second_cut {
                    chooser = Chooser::drawn(mix(mix(self.script.id.seed(), wide(cut)), draw));
                }
            }
        }
        Ok(())
    }
}

/// Runs `work`; a panic in it becomes words.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    caught.unwrap_or_else(|payload| {
        let words = payload.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("something");
        Err(format!("panicked: {words}"))
    })
}
