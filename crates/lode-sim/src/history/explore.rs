//! Clients at once under a schedule explorer: of few threads with few steps thousands of schedules are tried, each
//! of which happens again from a string.
//!
//! Two ways of choosing: at random at each point, and by priorities that change at a few points drawn beforehand
//! (*A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs*), which finds what needs few switches at the
//! right places. A schedule in which nobody can go on is a deadlock, and a finding.

use super::{Setup, Step, check, run};
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner};

/// Switches that a schedule by priorities has.
const DEPTH: usize = 4;
/// A schedule with more steps than this is taken for one without an end.
const STEPS_MAX: usize = 200_000;
/// Bytes of a thread's stack.
const STACK: usize = 512 << 10;

/// Names a schedule to be tried again, or its seed, as it was printed.
pub const REPLAY: &str = "LODE_SCHEDULE";
/// Names the meeting whose schedule that is; no other is explored then.
pub const MEETING: &str = "LODE_MEETING";

/// What clients do, of which schedules are explored.
#[derive(Clone, Debug)]
pub struct Meeting {
    /// For reports.
    pub name: String,
    /// The disk.
    pub setup: Setup,
    /// What each client does.
    pub clients: Vec<Vec<Step>>,
}

impl Meeting {
    /// One schedule: panics if what the clients were told is not what it should be.
    fn meet(&self) {
        let judged = run(&self.setup, &self.clients)
            .and_then(|history| check(&history).map(drop).map_err(|anomaly| anomaly.to_string()));
        if let Err(words) = judged {
            panic!(
                "{}: {words}\nagain: {MEETING}='{}' {REPLAY}='what is printed as schedule or seed'",
                self.name, self.name
            );
        }
    }

    fn runs(&self, scheduler: impl Scheduler + 'static, print: bool) -> usize {
        let mut config = Config::new();
        config.stack_size = STACK;
        config.max_steps = shuttle::MaxSteps::FailAfter(STEPS_MAX);
        config.silence_warnings = true; // All atomic numbers of the engine are taken as sequentially consistent.
        config.failure_persistence = if print { FailurePersistence::Print } else { FailurePersistence::None };
        let meeting = self.clone();
        Runner::new(scheduler, config).run(move || meeting.meet())
    }

    /// Tries so many schedules in each way, or the one that [`MEETING`] and [`REPLAY`] name; gives back how many. Panics at the first
    /// finding; the schedule, or its seed, is printed before.
    pub fn explore(&self, schedules: usize, seed: u64) -> usize {
        if std::env::var(MEETING).is_ok_and(|wanted| wanted != self.name) {
            return 0;
        }
        // It is printed in several lines.
        let wanted = std::env::var(REPLAY).map(|wanted| wanted.split_whitespace().collect::<String>());
        if let Ok(seed) = wanted.as_deref().unwrap_or_default().parse() {
            return self.runs(RandomScheduler::new_from_seed(seed, 1), true);
        }
        match wanted {
            Ok(schedule) => self.runs(ReplayScheduler::new_from_encoded(&schedule), true),
            Err(_) => {
                self.runs(RandomScheduler::new_from_seed(seed, schedules), true)
                    + self.runs(PctScheduler::new_from_seed(seed, DEPTH, schedules), true)
            }
        }
    }

    /// As [`Meeting::explore`], for bugs that were planted: the words of the finding, if there is one.
    pub fn finding(&self, schedules: usize, seed: u64) -> Option<String> {
        let ways: [&dyn Fn() -> usize; 2] =
            [&|| self.runs(RandomScheduler::new_from_seed(seed, schedules), false), &|| {
                self.runs(PctScheduler::new_from_seed(seed, DEPTH, schedules), false)
            }];
        ways.iter().find_map(|way| {
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(way)).err()?;
            let words = found.downcast_ref::<String>().cloned();
            Some(words.or_else(|| found.downcast_ref::<&str>().map(|words| (*words).to_owned())).unwrap_or_default())
        })
    }
}
