//! A kernel for tests that fails as it is told. What it is not told to do, the real one does.

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use io_uring::IoUring;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::bounds::wide;

use super::calls::{Calls, Kernel};

/// What one call does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// What the kernel does.
    Real,
    /// Moves whole sectors of at most so many bytes, and says so many. A seek moves nothing.
    Short(usize),
    /// Fails.
    Fail(Errno),
}

/// The call that a step is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    Read,
    Write,
    Sync,
    Allocate,
    Seek,
    Flags,
    Ring,
    Submit,
    Completion,
}

#[derive(Default)]
struct Script {
    steps: HashMap<Call, VecDeque<Step>>,
    made: HashMap<Call, u32>,
}

/// The kernel, and the hand that directs it: clones are one and the same.
#[derive(Clone, Default)]
pub(crate) struct Scripted(Arc<Mutex<Script>>);

impl Scripted {
    /// Appends steps to what the next calls of a kind do.
    pub(crate) fn next(&self, call: Call, steps: &[Step]) {
        self.0.lock().steps.entry(call).or_default().extend(steps);
    }

    /// How many calls of a kind were made.
    pub(crate) fn made(&self, call: Call) -> u32 {
        self.0.lock().made.get(&call).copied().unwrap_or(0)
    }

    pub(crate) fn boxed(&self) -> Box<dyn Calls> {
        Box::new(self.clone())
    }

    fn step(&self, call: Call) -> Step {
        let mut script = self.0.lock();
        *script.made.entry(call).or_default() += 1;
        script.steps.get_mut(&call).and_then(VecDeque::pop_front).unwrap_or(Step::Real)
    }

    fn obey<T>(&self, call: Call, real: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self.step(call) {
            Step::Fail(error) => Err(error.into()),
            _ => real(),
        }
    }
}

impl Calls for Scripted {
    fn pread(&self, fd: BorrowedFd<'_>, into: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.step(Call::Read) {
            Step::Real => Kernel.pread(fd, into, offset),
            Step::Fail(error) => Err(error.into()),
            Step::Short(said) => {
                let whole = (said - said % 4096).min(into.len());
                Kernel.pread(fd, &mut into[..whole], offset)?;
                Ok(said)
            }
        }
    }

    fn pwritev(&self, fd: BorrowedFd<'_>, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        match self.step(Call::Write) {
            Step::Real => Kernel.pwritev(fd, pieces, offset),
            Step::Fail(error) => Err(error.into()),
            Step::Short(said) => {
                let mut left = said - said % 4096;
                let mut front = Vec::new();
                for piece in pieces {
                    let take = piece.len().min(left);
                    front.push(IoSlice::new(&piece[..take]));
                    left -= take;
                }
                front.retain(|piece| !piece.is_empty());
                if !front.is_empty() {
                    Kernel.pwritev(fd, &front, offset)?;
                }
                Ok(said)
            }
        }
    }

    fn fdatasync(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.obey(Call::Sync, || Kernel.fdatasync(fd))
    }

    fn fallocate(&self, fd: BorrowedFd<'_>, flags: FallocateFlags, offset: u64, len: u64) -> io::Result<()> {
        self.obey(Call::Allocate, || Kernel.fallocate(fd, flags, offset, len))
    }

    fn seek(&self, fd: BorrowedFd<'_>, to: SeekFrom) -> io::Result<u64> {
        match self.step(Call::Seek) {
            Step::Real => Kernel.seek(fd, to),
            Step::Short(said) => Ok(wide(said)),
            Step::Fail(error) => Err(error.into()),
        }
    }

    fn set_flags(&self, fd: BorrowedFd<'_>, flags: OFlags) -> io::Result<()> {
        self.obey(Call::Flags, || Kernel.set_flags(fd, flags))
    }

    fn ring(&self, entries: u32) -> io::Result<IoUring> {
        self.obey(Call::Ring, || Kernel.ring(entries))
    }

    fn submit(&self, ring: &IoUring, want: usize) -> io::Result<usize> {
        match self.step(Call::Submit) {
            Step::Fail(error) => {
                // The kernel has taken all of it: the worst moment to fail.
                Kernel.submit(ring, 0)?;
                Err(error.into())
            }
            _ => Kernel.submit(ring, want),
        }
    }

    fn completed(&self, result: i32) -> i32 {
        match self.step(Call::Completion) {
            Step::Real => result,
            Step::Short(said) => i32::try_from(said).expect("a length that a test made up"),
            Step::Fail(error) => -error.raw_os_error(),
        }
    }
}
