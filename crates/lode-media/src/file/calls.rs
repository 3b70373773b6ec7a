//! The system calls that a medium is made of, as a table, so that tests can stand below them.
//!
//! Each method is one call with nothing added. Opening, locking and shaping a file are not here: they happen once.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use io_uring::IoUring;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};

/// The calls. The default of each method asks the kernel.
pub(crate) trait Calls: Send + Sync {
    /// `pread(2)`.
    fn pread(&self, fd: BorrowedFd<'_>, into: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(fd, into, offset)?)
    }

    /// `pwritev(2)`.
    fn pwritev(&self, fd: BorrowedFd<'_>, pieces: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(fd, pieces, offset)?)
    }

    /// `fdatasync(2)`.
    fn fdatasync(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(fd)?)
    }

    /// `fallocate(2)`.
    fn fallocate(&self, fd: BorrowedFd<'_>, flags: FallocateFlags, offset: u64, len: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(fd, flags, offset, len)?)
    }

    /// `lseek(2)`: the file's own position is never used, so threads do not disturb each other.
    fn seek(&self, fd: BorrowedFd<'_>, to: SeekFrom) -> io::Result<u64> {
        Ok(rustix::fs::seek(fd, to)?)
    }

    /// `fcntl(2)` with `F_SETFL`: turns direct I/O on and off.
    fn set_flags(&self, fd: BorrowedFd<'_>, flags: OFlags) -> io::Result<()> {
        Ok(rustix::fs::fcntl_setfl(fd, flags)?)
    }

    /// The ioctl `BLKDISCARD`.
    fn discard(&self, fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
        const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);
        // SAFETY: BLKDISCARD reads two 64-bit numbers, the start and the length in bytes.
        let request = unsafe { rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, len]) };
        // SAFETY: the request is the one declared above, and the kernel writes to no memory of ours.
        Ok(unsafe { rustix::ioctl::ioctl(fd, request) }?)
    }

    /// `io_uring_setup(2)`.
    fn ring(&self, entries: u32) -> io::Result<IoUring> {
        IoUring::builder().dontfork().build(entries)
    }

    /// `io_uring_enter(2)`: submits all that is queued and waits for `want` completions.
    fn submit(&self, ring: &IoUring, want: usize) -> io::Result<usize> {
        ring.submit_and_wait(want)
    }

    /// What a ring said of one read: the bytes, or a negated error number.
    fn completed(&self, result: i32) -> i32 {
        result
    }
}

/// The kernel's calls as they are.
pub(crate) struct Kernel;

impl Calls for Kernel {}
