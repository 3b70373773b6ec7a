//! What a bench leaves behind for a while, files and processes, and that it ends also when somebody stops the bench.

use crate::failure::{Failure, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What there is to remove.
static THERE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// Which processes there are to kill.
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// What there is to put back, by number.
static CHANGED: Mutex<Vec<(u64, PutBack)>> = Mutex::new(Vec::new());
/// Tells these apart.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// A signal has come: what is left to be done is done by whoever waits for signals, who then ends the process.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Waits for the end, if it has come: nobody else makes or removes anything, or ends the process before that is done.
fn unless_ending() {
    while ENDING.load(Ordering::Acquire) {
        std::thread::park();
    }
}

type PutBack = Box<dyn FnOnce() + Send>;

/// Something outside of files and processes (a mount, a switch of the kernel) that is put back with this value.
pub struct Undo(u64);

impl Undo {
    /// `put_back` is done once: when this value goes, or when somebody stops the bench, the newest first.
    pub fn new(put_back: impl FnOnce() + Send + 'static) -> Undo {
        unless_ending();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        CHANGED.lock().unwrap_or_else(PoisonError::into_inner).push((number, Box::new(put_back)));
        Undo(number)
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        unless_ending();
        let mut changed = CHANGED.lock().unwrap_or_else(PoisonError::into_inner);
        let at = changed.iter().position(|(number, _)| *number == self.0);
        let put_back = at.map(|at| changed.remove(at).1);
        drop(changed);
        if let Some(put_back) = put_back {
            put_back();
        }
    }
}

/// A file or directory that vanishes with this value.
pub struct Scratch(PathBuf);

impl Scratch {
    /// `path`, which is about to be made.
    pub fn new(path: PathBuf) -> Scratch {
        THERE.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
        Scratch(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        unless_ending();
        remove(&self.0);
        THERE.lock().unwrap_or_else(PoisonError::into_inner).retain(|path| *path != self.0);
    }
}

/// A process that is killed with this value, and awaited.
pub struct Victim(pub Child);

impl Victim {
    /// `child`, which has just been started.
    pub fn new(child: Child) -> Victim {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).push(Pid::from_child(&child));
        Victim(child)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        unless_ending();
        let own = Pid::from_child(&self.0);
        // Off the list first: once it is awaited, its number may be another's.
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).retain(|process| *process != own);
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn remove(path: &Path) {
    // What cannot be removed is left; there is nothing better to do with it.
    let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
}

/// From here on, a signal that ends the bench takes scratch files and processes with it.
pub fn vanish_on_signals() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|error| Failure::io("bench: catching signals", error))?;
    std::thread::spawn(move || {
        let signal = signals.forever().next().unwrap_or(SIGTERM);
        ENDING.store(true, Ordering::Release);
        // Mounts first: the processes below them would leave them dead, and nothing is removed through them.
        loop {
            let newest = CHANGED.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some((_, put_back)) = newest else { break };
            put_back();
        }
        for process in RUNNING.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = kill_process(*process, Signal::KILL);
        }
        THERE.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|path| remove(path));
        std::process::exit(128 + signal);
    });
    Ok(())
}
