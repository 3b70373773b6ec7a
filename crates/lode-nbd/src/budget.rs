//! The bytes that all peers together may occupy: a semaphore that is fair and gives up after a time.
//!
//! A *permit* is taken before memory is allocated and given back when it is dropped (N1). Waiters are served in the
//! order of their coming, so that a large request is not starved by small ones.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

#[derive(Debug)]
pub(crate) struct Budget {
    bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    used: u64,
    used_max: u64,
    waiting: VecDeque<u64>,
    next: u64,
}

/// The right to hold some bytes.
#[derive(Debug)]
pub(crate) struct Permit {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Budget { bytes, state: Mutex::default(), changed: Condvar::new() })
    }

    /// A permit if there is one at once and nobody waits for one.
    pub(crate) fn try_acquire(self: &Arc<Self>, bytes: u64) -> Option<Permit> {
        let mut state = self.state.lock();
        (state.waiting.is_empty() && self.fits(&state, bytes)).then(|| self.grant(&mut state, bytes))
    }

    /// A permit, or none if it does not come within `patience`. The caller must hold no permit that others wait for,
    /// or all could wait for each other until their patience ends.
    pub(crate) fn acquire(self: &Arc<Self>, bytes: u64, patience: Duration) -> Option<Permit> {
        let deadline = Instant::now() + patience;
        let mut state = self.state.lock();
        let me = state.next;
        state.next += 1;
        state.waiting.push_back(me);
        loop {
            let first = state.waiting.front() == Some(&me);
            if first && self.fits(&state, bytes) {
                state.waiting.pop_front();
                let permit = self.grant(&mut state, bytes);
                self.changed.notify_all();
                return Some(permit);
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                state.waiting.retain(|&other| other != me);
                self.changed.notify_all();
                return None;
            }
        }
    }

    /// Bytes in use now, and the most there ever were.
    pub(crate) fn used(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.used, state.used_max)
    }

    fn fits(&self, state: &State, bytes: u64) -> bool {
        self.bytes - state.used >= bytes
    }

    fn grant(self: &Arc<Self>, state: &mut State, bytes: u64) -> Permit {
        state.used += bytes;
        state.used_max = state.used_max.max(state.used);
        Permit { budget: Arc::clone(self), bytes }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.budget.state.lock();
        state.used -= self.bytes;
        if !state.waiting.is_empty() {
            self.budget.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
