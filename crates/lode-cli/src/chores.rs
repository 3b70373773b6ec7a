//! What has to be done at its time while a disk is served, which has no clock itself: leases of units end, and schedules
//! of snapshots are kept.

use crate::text;
use lode::Disk;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// How often it looks.
const LOOK: Duration = Duration::from_secs(2);

/// The thread that looks.
pub struct Chores {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A time as the names of snapshots have it.
pub fn when(now: u64) -> String {
    humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + Duration::from_nanos(now)).to_string()
}

impl Chores {
    /// Looks now and then, unless the disk is open for reading only.
    pub fn start(disk: &Disk, read_only: bool) -> Chores {
        let (stop, stopped) = channel();
        let disk = disk.clone();
        let look = move || {
            let mut told = String::new();
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let now = crate::now();
                let done = disk.end_leases(now).and_then(|_| disk.run_schedules(now, &when));
                // What goes on failing is told once.
                let words = done.map_or_else(|error| error.to_string(), |_| String::new());
                if words != told && !words.is_empty() {
                    eprintln!("lode: schedules and leases: {}", text::safe(&words));
                }
                told = words;
            }
        };
        let start = || std::thread::Builder::new().name("chores".into()).spawn(look).ok();
        Chores { stop: Some(stop), thread: if read_only { None } else { start() } }
    }

    /// Looks no more.
    pub fn stop(mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has no panic that could be acted on.
            let _ = thread.join();
        }
    }
}
