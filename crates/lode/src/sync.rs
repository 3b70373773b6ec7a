//! What the engine's threads meet at: locks, conditions, atomic numbers, threads. All of them come from here.
//!
//! With the feature `explore` they are those of a library that runs one thread at a time and chooses at each of them
//! which is next (docs/decisions/0017). The engine then works only inside of such a run.
//!
//! Locks of others, in media and in the cache, stay as they are: nobody who holds one comes to any of these meanwhile.

#[cfg(feature = "explore")]
mod explored;

// Not chosen at: under the explorer all threads are one to it, so nobody ever waits there.
#[cfg(feature = "explore")]
pub(crate) use explored::{AtomicU64, Builder, Condvar, JoinHandle, Mutex, MutexGuard, Ordering};
pub(crate) use parking_lot::ReentrantMutex;
#[cfg(not(feature = "explore"))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32};
#[cfg(not(feature = "explore"))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(feature = "explore"))]
pub(crate) use std::thread::{Builder, JoinHandle};
