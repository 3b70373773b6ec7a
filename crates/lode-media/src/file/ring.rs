//! Reads that are in flight together, through io_uring.
//!
//! What keeps it sound: the kernel writes into the caller's buffers while an operation is in flight, so no way out
//! of [`Rings::read`] (return, error or panic) may leave one in flight. [`Flight`] sees to it: when it is dropped it
//! waits for everything that the kernel has taken. A ring on which anything went wrong is not used again.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use io_uring::{EnterFlags, IoUring, opcode, types};
use parking_lot::Mutex;

use crate::bounds::{index, wide};

use super::calls::Calls;

/// The most operations in flight in one ring.
const DEPTH: u32 = 64;
/// The most rings kept for later; as many as there are callers at once are in use.
const KEPT: usize = 8;
/// How often the kernel may say "later" before the ring is given up.
const REFUSALS_MAX: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// One read: where, and into what. `result` is what the kernel said, none if it never got to it.
pub(super) struct Operation<'a> {
    pub(super) offset: u64,
    pub(super) into: &'a mut [u8],
    pub(super) result: Option<i32>,
}

/// The rings that nobody uses now. No lock is held while reads are in flight.
#[derive(Default)]
pub(super) struct Rings {
    idle: Mutex<Vec<IoUring>>,
    refused: AtomicBool,
    batches: AtomicU64,
}

impl Rings {
    /// Whether the kernel has not said that it never makes a ring.
    pub(super) fn usable(&self) -> bool {
        !self.refused.load(Ordering::Relaxed)
    }

    /// Groups of reads done wholly by a ring.
    pub(super) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }

    /// Does the reads as far as it can. Those without a result are left to the caller.
    pub(super) fn read(&self, calls: &dyn Calls, fd: BorrowedFd<'_>, operations: &mut [Operation<'_>]) {
        let Some(mut ring) = self.take(calls) else { return };
        let ran = Flight::new(&mut ring).run(calls, fd, operations);
        if ran.is_ok() {
            self.batches.fetch_add(1, Ordering::Relaxed);
            let mut idle = self.idle.lock();
            if idle.len() < KEPT {
                idle.push(ring);
            }
        }
    }

    fn take(&self, calls: &dyn Calls) -> Option<IoUring> {
        if let Some(ring) = self.idle.lock().pop() {
            return Some(ring);
        }
        match calls.ring(DEPTH) {
            Ok(ring) => Some(ring),
            Err(error) => {
                use io::ErrorKind::{PermissionDenied, Unsupported};
                // Other failures (no memory, too many files) may pass.
                if matches!(error.kind(), PermissionDenied | Unsupported) {
                    self.refused.store(true, Ordering::Relaxed);
                }
                None
            }
        }
    }
}

/// The operations of one call that are in a ring. Dropping it waits until the kernel has none of them.
struct Flight<'r> {
    ring: &'r mut IoUring,
    pushed: usize,
    reaped: usize,
}

impl<'r> Flight<'r> {
    /// The ring must be empty.
    fn new(ring: &'r mut IoUring) -> Self {
        Flight { ring, pushed: 0, reaped: 0 }
    }

    fn run(mut self, calls: &dyn Calls, fd: BorrowedFd<'_>, operations: &mut [Operation<'_>]) -> io::Result<()> {
        let mut next = 0;
        let mut refusals = 0;
        loop {
            while next < operations.len() && self.pushed - self.reaped < index(DEPTH) {
                self.push(fd, next, &mut operations[next])?;
                next += 1;
            }
            let open = self.pushed - self.reaped;
            if open == 0 {
                return Ok(());
            }
            let want = if next < operations.len() { 1 } else { open };
            match calls.submit(self.ring, want) {
                Ok(_) => refusals = 0,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if later(&error) && refusals < REFUSALS_MAX => {
                    refusals += 1;
                    std::thread::sleep(PAUSE);
                }
                Err(error) => return Err(error),
            }
            self.reap(|which, result| {
                if let Some(operation) = operations.get_mut(which) {
                    operation.result = Some(calls.completed(result));
                }
            });
        }
    }

    fn push(&mut self, fd: BorrowedFd<'_>, which: usize, operation: &mut Operation<'_>) -> io::Result<()> {
        let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let len = u32::try_from(operation.into.len()).map_err(too_long)?;
        let entry = opcode::Read::new(types::Fd(fd.as_raw_fd()), operation.into.as_mut_ptr(), len)
            .offset(operation.offset)
            .build()
            .user_data(wide(which));
        // SAFETY: the buffer is borrowed exclusively, and the file open, for longer than this `Flight` lives, and
        // its drop waits until the kernel is done with both. Entries that the kernel never took are lost with the
        // ring, which is dropped unless every operation has been reaped.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| io::Error::from(io::ErrorKind::WouldBlock))?;
        self.pushed += 1;
        Ok(())
    }

    /// Takes what has completed.
    fn reap(&mut self, mut done: impl FnMut(usize, i32)) {
        for completion in self.ring.completion() {
            self.reaped += 1;
            done(usize::try_from(completion.user_data()).unwrap_or(usize::MAX), completion.result());
        }
    }

    /// Operations that the kernel has taken and not given back.
    fn in_kernel(&mut self) -> usize {
        let queued = self.ring.submission().len();
        self.pushed - queued - self.reaped
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        while self.in_kernel() > 0 {
            // SAFETY: nothing is submitted and no argument is passed; the call only waits for one completion.
            let waited = unsafe { self.ring.submitter().enter::<u64>(0, 1, EnterFlags::GETEVENTS.bits(), None) };
            if waited.is_err() {
                std::thread::sleep(PAUSE);
            }
            self.reap(|_, _| {});
        }
    }
}

fn later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy)
}
