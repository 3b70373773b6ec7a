//! Ends units whose lease is over, while a disk is served: the disk itself has no clock.

use lode::Disk;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often it looks.
const LOOK: Duration = Duration::from_secs(5);

/// The thread that looks.
pub struct Leases {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Leases {
    /// Looks now and then, unless the disk is open for reading only.
    pub fn start(disk: &Disk, read_only: bool) -> Leases {
        let (stop, stopped) = channel();
        let disk = disk.clone();
        let look = move || {
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                // A disk that has stopped taking writes tells everybody else.
                let _ = disk.end_leases(crate::now());
            }
        };
        let thread = std::thread::Builder::new().name("leases".into()).spawn(look);
        // Without the thread leases do not end: nothing is lost by that.
        Leases { stop: Some(stop), thread: thread.ok().filter(|_| !read_only) }
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
