//! Pacing: while space is low, users bring in what the cleaner gains, while it gains it.
//!
//! Whoever writes faster than zones are cleaned would else take at once all that a round of cleaning has gained, and
//! then wait for the whole of the next one. So a round pays out its gain step by step, and new data waits for the next
//! step.

use super::space::LOW_ZONES;
use super::{Core, Inner};
use crate::shape::RESERVE_ZONES;
use crate::sync::MutexGuard;
use crate::types::{index, len_u64};
use std::time::{Duration, Instant};

/// Nobody waits longer for payments, which pause while the keeper does something else: then only zones count.
const PATIENCE: Duration = Duration::from_millis(4);

/// What users may bring in, in bytes; below zero it is owed.
#[derive(Clone, Copy)]
pub(crate) struct Credit(i64);

/// Pacing begins before cleaning does, and ends when so many zones are available again.
pub(super) const PACED_ZONES: usize = RESERVE_ZONES as usize + 2 * LOW_ZONES;

impl Core {
    fn owes(&self) -> bool {
        self.credit.is_some_and(|credit| credit.0 <= 0)
    }
}

impl Inner {
    /// Users have brought in so much.
    pub fn charge(&self, core: &mut Core, bytes: u64) {
        core.effort.taken += bytes;
        if let Some(credit) = &mut core.credit {
            credit.0 = credit.0.saturating_sub_unsigned(bytes);
        } else if self.options.background && core.available() < PACED_ZONES {
            core.credit = Some(Credit(i64::from(self.shape.zone_bytes / 4)));
            self.keeper.notify_all();
        }
    }

    /// Nothing is cleaned now: there is space, or no more is to be gained. Near to where cleaning begins again, users
    /// get a zone at a time.
    pub fn rest_pacing(&self, low: bool) {
        let mut core = self.core.lock();
        if low || core.available() >= PACED_ZONES {
            core.credit = None;
            self.space.notify_all();
        } else {
            drop(core);
            self.pay(u64::from(self.shape.zone_bytes));
        }
    }

    /// Users may bring in so much more. What nobody takes is not saved up without end.
    pub fn pay(&self, bytes: u64) {
        let mut core = self.core.lock();
        if let Some(credit) = &mut core.credit {
            credit.0 = credit.0.saturating_add_unsigned(bytes).min(i64::from(self.shape.zone_bytes / 2));
            self.space.notify_all();
        }
    }

    /// Before new data is taken in: waits while it would outrun the cleaner.
    pub fn pace<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        if core.owes() {
            let until = Instant::now() + PATIENCE;
            while core.owes() && !core.stop && core.failed.is_none() {
                self.keeper.notify_all();
                if self.space.wait_until(&mut core, until).timed_out() {
                    break;
                }
            }
        }
        core
    }
}

/// The gain of a round of cleaning, paid out as its work is done.
pub(crate) struct Payer<'a> {
    disk: &'a Inner,
    gain: u64,
    paid: u64,
}

impl<'a> Payer<'a> {
    /// `available`: with few zones left less is paid, with more of them more, so that they stay half-way.
    pub fn new(disk: &'a Inner, gain: u64, available: usize) -> Payer<'a> {
        let percent = 100 * (available.saturating_sub(index(RESERVE_ZONES)) + 2) / LOW_ZONES;
        Payer { disk, gain: gain * len_u64(percent) / 100, paid: 0 }
    }

    /// So much of the work is done: `done` of `all`, which is `percent` of the round.
    pub fn done(&mut self, done: usize, all: usize, percent: u64) {
        let part = self.gain * percent / 100;
        let bytes = (part * len_u64(done) / len_u64(all).max(1)).min(self.gain - self.paid);
        self.paid += bytes;
        self.disk.pay(bytes);
    }
}
