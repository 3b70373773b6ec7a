//! One writer or several readers of an image, across processes and inside one.
//!
//! `flock` belongs to the open file, not to the process: it also stops a second opener in this process, and it
//! does not vanish when somebody else closes the file (as POSIX record locks do). Nothing is written to the image;
//! who holds it is looked up in `/proc/locks`.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::FlockOperation;

use crate::{Error, ErrorKind, Result};

use super::Access;

/// A process that dies with io_uring requests in flight holds its files, and so its locks, for a moment longer.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// Takes the lock, or says who has it.
pub(crate) fn lock(fd: impl AsFd, path: &Path, access: Access) -> Result<()> {
    let operation = match access {
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    for attempt in 1.. {
        match rustix::fs::flock(&fd, operation).map_err(io::Error::from) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted && attempt < ATTEMPTS => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && attempt < ATTEMPTS => std::thread::sleep(PAUSE),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(Error::io(format!("locking {}", path.display()), error)),
        }
    }
    Err(busy(fd.as_fd(), path))
}

fn busy(fd: BorrowedFd<'_>, path: &Path) -> Error {
    let words = format!("expected {} to be free, found it held by {}", path.display(), holder(fd));
    Error::new(ErrorKind::Busy, words)
}

/// Who holds a lock on the file, in words.
fn holder(fd: BorrowedFd<'_>) -> String {
    let unknown = || "another process".to_owned();
    let Ok(stat) = rustix::fs::fstat(fd) else { return unknown() };
    let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let Ok(locks) = fs::read_to_string("/proc/locks") else { return unknown() };
    match find_holder(&locks, device, stat.st_ino) {
        Some(process) if process == std::process::id() => format!("this process ({process})"),
        Some(process) => match fs::read_to_string(format!("/proc/{process}/comm")) {
            Ok(name) => format!("process {process} ({})", name.trim_end().escape_debug()),
            Err(_) => format!("process {process}"),
        },
        None => unknown(),
    }
}

/// Finds the process in the text of `/proc/locks`, of which a line reads
/// `1: FLOCK  ADVISORY  WRITE 4242 fe:00:131094 0 EOF`. Lines with an arrow are those that wait.
fn find_holder(locks: &str, device: (u32, u32), inode: u64) -> Option<u32> {
    let file = format!("{:02x}:{:02x}:{inode}", device.0, device.1);
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let kind = words.next()?;
        let process = words.nth(2)?;
        let holds = kind == "FLOCK" && words.next()? == file;
        // Process 0 is one that this process's namespace cannot see.
        process.parse().ok().filter(|&process| holds && process != 0)
    })
}

#[cfg(test)]
mod tests;
