//! What the kernel is told for the time of a bench: that FUSE may use io_uring, and how many files may be open.

use super::super::scratch::Undo;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;

/// Whether the kernel offers file systems in user space a ring.
const RING: &str = "/sys/module/fuse/parameters/enable_uring";

/// Offers the ring, where there is one and it is off, as long as the value lives.
pub fn ring() -> Option<Undo> {
    let before = fs::read_to_string(RING).ok()?;
    if before.trim() != "N" || fs::write(RING, "Y").is_err() {
        return None;
    }
    Some(Undo::new(|| {
        let _ = fs::write(RING, "N");
    }))
}

/// Lets this process, and those it starts, open as many files as it can have, and says how many these are.
/// `passthrough_hp` has one open for each name that the kernel knows.
pub fn open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let system = fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    // Only who is mighty enough may raise the hard limit.
    for most in [system, limit.maximum].into_iter().flatten() {
        if setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: Some(most) }).is_ok() {
            return most;
        }
    }
    limit.current.unwrap_or(u64::MAX)
}
