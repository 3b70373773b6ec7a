//! What goes wrong: by chance ([`FaultPlan`]) and on demand ([`Script`]).

use crate::ErrorKind;

/// What goes wrong by chance. All chances are in a thousand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// Decides everything: the same plan and the same calls from one thread give the same faults.
    pub seed: u64,
    /// At a power cut: an append that was not synced is gone as a whole.
    pub drop_per_mille: u32,
    /// At a power cut: an append that was not synced and is not gone is torn. Those that are neither are whole.
    pub tear_per_mille: u32,
    /// At a power cut: a sector of a torn append is garbage; else it is old or new.
    pub garbage_per_mille: u32,
    /// At a power cut: an erase that was not synced has happened, at least in part.
    pub erase_happens_per_mille: u32,
    /// When a sync fails: an append or erase that it had to make durable never will be, though reads still see it
    /// until the power is cut. 1000 is what Linux does.
    pub sync_loss_per_mille: u32,
    /// An append is written at another place, and reported as done.
    pub misdirect_per_mille: u32,
    /// A read gives one flipped bit; the next read of the same place is right.
    pub read_flip_per_mille: u32,
}

impl FaultPlan {
    /// Power cuts at their worst, and a medium that is otherwise sound.
    pub fn new(seed: u64) -> Self {
        FaultPlan {
            seed,
            drop_per_mille: 250,
            tear_per_mille: 500,
            garbage_per_mille: 250,
            erase_happens_per_mille: 500,
            sync_loss_per_mille: 1000,
            misdirect_per_mille: 0,
            read_flip_per_mille: 0,
        }
    }
}

/// A call that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultPoint {
    /// Reads; those of a group count one by one.
    Read,
    /// Appends. One that fails may have written any of its front.
    Append,
    /// Erases. One that fails has done nothing.
    Erase,
    /// Discards. One that fails has done nothing.
    Discard,
    /// Growing. It has done nothing.
    Grow,
    /// Syncs. One that fails loses what it had to make durable (see [`FaultPlan::sync_loss_per_mille`]).
    Sync,
}

/// How long a failure lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// One call fails, the next is sound.
    Once,
    /// All calls from then on fail.
    Forever,
}

/// Failures that were asked for.
#[derive(Debug, Default)]
pub(super) struct Script(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    point: FaultPoint,
    /// Calls until it fires, this one included.
    left: u64,
    lasting: Lasting,
    kind: ErrorKind,
}

impl Script {
    pub(super) fn add(&mut self, point: FaultPoint, nth: u64, lasting: Lasting, kind: ErrorKind) {
        self.0.push(Rule { point, left: nth.max(1), lasting, kind });
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Counts a call, and says whether it has to fail.
    pub(super) fn fires(&mut self, point: FaultPoint) -> Option<ErrorKind> {
        let mut fired = None;
        self.0.retain_mut(|rule| {
            if rule.point != point {
                return true;
            }
            if rule.left > 1 {
                rule.left -= 1;
                return true;
            }
            fired = fired.or(Some(rule.kind));
            rule.lasting == Lasting::Forever
        });
        fired
    }
}
