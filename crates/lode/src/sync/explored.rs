//! The locks of the schedule explorer, with the calls that the engine makes.

use shuttle::sync as explorer;
pub(crate) use shuttle::sync::atomic::{AtomicU64, Ordering};
pub(crate) use shuttle::thread::{Builder, JoinHandle};
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// As `parking_lot::Mutex`: a thread that panicked while holding it has told so already.
#[derive(Default)]
pub(crate) struct Mutex<T>(explorer::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(explorer::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, held: Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)) }
    }
}

/// As `parking_lot::MutexGuard`.
pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// `None` only while it waits.
    held: Option<explorer::MutexGuard<'a, T>>,
}

const HELD: &str = "a guard is held except inside of a wait";

impl<T> MutexGuard<'_, T> {
    /// Lets another thread have the lock, if one waits for it.
    pub fn bump(guard: &mut Self) {
        drop(guard.held.take());
        *guard = guard.mutex.lock();
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.held.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect(HELD)
    }
}

/// Whether a wait ended because its time was over.
pub(crate) struct Waited(bool);

impl Waited {
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// As `parking_lot::Condvar`.
#[derive(Default)]
pub(crate) struct Condvar(explorer::Condvar);

impl Condvar {
    pub fn new() -> Condvar {
        Condvar::default()
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().expect(HELD);
        guard.held = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// There is no time in a run: any wait may be over at once, after everybody else had a turn.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> Waited {
        drop(guard.held.take());
        shuttle::thread::yield_now();
        *guard = guard.mutex.lock();
        Waited(true)
    }

    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) -> Waited {
        self.wait_for(guard, Duration::ZERO)
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
