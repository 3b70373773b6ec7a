//! Buffers for payloads that do not fit a connection's fixed ones: each is taken under a permit, moves to the thread
//! that uses it, and is kept for the next request until the connection is idle.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;

use crate::{
    budget::{Budget, Permit},
    wire::wide,
};

/// A buffer with arbitrary content, and the permit for it.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) bytes: Vec<u8>,
    _permit: Permit,
}

/// The buffers of one connection that nobody uses now.
#[derive(Debug)]
pub(crate) struct Arenas {
    free: Mutex<Vec<Arena>>,
    free_max: usize,
    budget: Arc<Budget>,
    patience: Duration,
}

impl Arenas {
    pub(crate) fn new(free_max: usize, budget: Arc<Budget>, patience: Duration) -> Self {
        Arenas { free: Mutex::default(), free_max, budget, patience }
    }

    /// A buffer of `count` bytes at least, or none if there is no permit for it in time (N1).
    ///
    /// Whoever waits gives up the connection's free buffers first, and calls this holding none: so nobody waits for
    /// what a waiter holds.
    pub(crate) fn take(&self, count: usize) -> Option<Arena> {
        let fitting = {
            let mut free = self.free.lock();
            let found = free.iter().rposition(|arena| arena.bytes.len() >= count);
            found.map(|at| free.swap_remove(at))
        };
        if fitting.is_some() {
            return fitting;
        }
        let rounded = count.next_multiple_of(64 << 10);
        let permit = self.budget.try_acquire(wide(rounded)).or_else(|| {
            self.release();
            self.budget.acquire(wide(rounded), self.patience)
        })?;
        // Of such sizes the allocator gets zero pages from the kernel: nothing is filled here.
        Some(Arena { bytes: vec![0; rounded], _permit: permit })
    }

    /// Keeps a buffer for the next request.
    pub(crate) fn put(&self, arena: Arena) {
        let mut free = self.free.lock();
        if free.len() < self.free_max {
            free.push(arena);
        }
    }

    /// Gives all free buffers back.
    pub(crate) fn release(&self) {
        self.free.lock().clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.free.lock().is_empty()
    }
}
