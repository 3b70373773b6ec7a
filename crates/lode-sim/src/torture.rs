//! Script after script on several threads, until a time is up or enough was done.

use crate::enumerate::{Counts, Finding, Settings, enumerate};
use crate::rng::mix;
use crate::script::ScriptId;
use crate::workload::short_scripts;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Where the drawn scripts begin.
    pub seed: u64,
    /// Threads.
    pub threads: usize,
    /// Of a hundred scripts so many are short ones.
    pub short_percent: u64,
    /// Of a hundred scripts so many run on media that fail.
    pub faults_percent: u64,
    /// Of a hundred scripts so many have clients in threads.
    pub concurrent_percent: u64,
    /// Of a hundred scripts so many are clients in threads whose history is judged.
    pub histories_percent: u64,
    /// See [`Settings::ordered`].
    pub ordered: bool,
    /// Told before each script.
    pub begins: fn(ScriptId),
}

/// What came out.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The sums.
    pub counts: Counts,
    /// The first findings.
    pub findings: Vec<Finding>,
}

/// The n-th script of a plan.
pub fn nth(plan: &Plan, number: u64) -> ScriptId {
    let draw = mix(plan.seed, number);
    if (draw >> 8) % 100 < plan.faults_percent {
        ScriptId::Faults(draw >> 16)
    } else if (draw >> 24) % 100 < plan.concurrent_percent {
        ScriptId::Concurrent(draw >> 16)
    } else if (draw >> 32) % 100 < plan.histories_percent {
        ScriptId::History(draw >> 16)
    } else if draw % 100 < plan.short_percent {
        // A stride that has no factor in common with the number of scripts visits them all.
        ScriptId::Short((mix(plan.seed, 0).wrapping_add(number).wrapping_mul(7919)) % short_scripts())
    } else {
        ScriptId::Random(draw >> 16)
    }
}

/// Runs until `enough` says so, asked with the sums after each script, or until a finding. One thread is the caller's.
pub fn torture(plan: &Plan, enough: &(dyn Fn(&Counts) -> bool + Sync)) -> Outcome {
    let shared = Shared { next: AtomicU64::new(0), stop: AtomicBool::new(false), outcome: Mutex::default() };
    if plan.threads <= 1 {
        shared.work(plan, enough);
    } else {
        std::thread::scope(|scope| {
            for _ in 0..plan.threads {
                scope.spawn(|| shared.work(plan, enough));
            }
        });
    }
    shared.outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
}

struct Shared {
    next: AtomicU64,
    stop: AtomicBool,
    outcome: Mutex<Outcome>,
}

impl Shared {
    fn work(&self, plan: &Plan, enough: &(dyn Fn(&Counts) -> bool + Sync)) {
        while !self.stop.load(Ordering::Relaxed) {
            let id = nth(plan, self.next.fetch_add(1, Ordering::Relaxed));
            (plan.begins)(id);
            let result = enumerate(id, &Settings { ordered: plan.ordered, ..Settings::of(id) });
            let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(counts) => outcome.counts += counts,
                Err(finding) => {
                    outcome.counts += finding.counts;
                    outcome.findings.push(*finding);
                }
            }
            if !outcome.findings.is_empty() || enough(&outcome.counts) {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }
}
