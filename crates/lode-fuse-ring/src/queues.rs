//! The queues of a connection: a few entries for each processor.

use crate::Serve;
use crate::entry::Entry;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// So many entries there are to be on a small machine; each queue has at least two, so that one that waits is never the last.
const ENTRIES: usize = 32;
const EACH_MIN: usize = 2;
const EACH_MAX: usize = 8;

/// The processors that there are, or may be plugged in, as the kernel counts them: it wants a queue for each.
pub fn processors() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    counted(text.trim()).ok_or_else(|| {
        let what = format!("/sys/devices/system/cpu/possible: expected ranges of numbers, found {text:?}");
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

/// How many numbers are in `0-3,8`.
fn counted(ranges: &str) -> Option<usize> {
    ranges.split(',').try_fold(0usize, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// How many requests of one processor are worked on at once.
pub fn entries() -> io::Result<usize> {
    Ok((ENTRIES / processors()?.max(1)).clamp(EACH_MIN, EACH_MAX))
}

/// Threads that answer, until the connection ends.
pub struct Queues {
    threads: Vec<JoinHandle<()>>,
}

impl Queues {
    /// Answers the requests of a connection that has agreed upon a ring: `device` is its descriptor, payloads have at most
    /// `payload_len` bytes. Gives back with it why a queue has no entry, if that is so; the kernel sends requests over the
    /// device then. Takes so much memory for each entry, as far as it is used, and a thread.
    pub fn start(
        device: BorrowedFd<'_>,
        payload_len: usize,
        server: &Arc<impl Serve>,
    ) -> io::Result<(Queues, io::Result<()>)> {
        let device = Arc::new(device.try_clone_to_owned()?);
        let queues = u16::try_from(processors()?).map_err(io::Error::other)?;
        let each = entries()?;
        let mut all = Queues { threads: Vec::new() };
        let mut began = Ok(());
        for queue in 0..queues {
            let mut lent = Err(io::Error::other("no thread could be begun"));
            for _ in 0..each {
                let one = all.begin(&device, queue, payload_len, server);
                lent = if lent.is_ok() { lent } else { one };
            }
            began = began.and(lent);
        }
        Ok((all, began))
    }

    /// Waits until the connection has ended.
    pub fn join(self) {
        for thread in self.threads {
            let _ = thread.join();
        }
    }

    /// Begins a thread, and waits until its entry is lent.
    fn begin(
        &mut self,
        device: &Arc<OwnedFd>,
        queue: u16,
        payload_len: usize,
        server: &Arc<impl Serve>,
    ) -> io::Result<()> {
        let (lent, wait) = channel();
        let (device, server) = (Arc::clone(device), Arc::clone(server));
        let thread = std::thread::Builder::new().name(format!("lode-ring-{queue}"));
        let run = move || answer(device, queue, payload_len, &*server, &lent);
        self.threads.push(thread.spawn(run)?);
        wait.recv().unwrap_or_else(|_| Err(io::Error::other("a thread that answers has died")))
    }
}

fn answer(device: Arc<OwnedFd>, queue: u16, payload_len: usize, server: &dyn Serve, lent: &Sender<io::Result<()>>) {
    let entry = Entry::new(device, queue, payload_len);
    match entry.and_then(|mut entry| entry.register().map(|()| entry)) {
        Ok(entry) => {
            let _ = lent.send(Ok(()));
            entry.run(server);
        }
        Err(error) => {
            let _ = lent.send(Err(error));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_over_ranges_and_nonsense_is_refused() {
        for (text, count) in [("0", 1), ("0-1", 2), ("0-3,8-11", 8), ("0-1,7", 3)] {
            assert_eq!(counted(text), Some(count), "{text}");
        }
        for text in ["", "x", "3-1", "0-", "0-18446744073709551615", "1,,2"] {
            assert_eq!(counted(text), None, "{text}");
        }
        assert!(processors().unwrap() >= 1);
    }
}
