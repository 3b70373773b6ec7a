//! An open file, and whole transfers from and to it: continued when short, aligned when the I/O is direct.
//!
//! Rules: a transfer that the kernel cut short goes on where it stopped; one that makes no progress is an error,
//! never a loop; an interrupted call is repeated a bounded number of times; no other failure is repeated.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::bounds::{narrow, total_len, wide};
use crate::{AlignedBuffer, Error, ErrorKind, Result};

use super::calls::Calls;
use super::spare::Spare;

/// How often one call may be interrupted by signals before that is an error.
const INTERRUPTIONS_MAX: u32 = 100;
/// The most that one bounced read takes from the file.
pub(super) const BOUNCE_MAX: usize = 1 << 20;
/// The most pieces that one `pwritev` takes (`IOV_MAX`).
const PIECES_MAX: usize = 1024;

/// What direct I/O asks of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alignment {
    /// Addresses of buffers are multiples of this.
    pub(crate) memory: usize,
    /// Offsets and lengths are multiples of this.
    pub(crate) offset: usize,
}

impl Alignment {
    /// What buffered I/O asks: nothing.
    pub(crate) const ANY: Alignment = Alignment { memory: 1, offset: 1 };

    pub(super) fn fits(&self, offset: u64, buffer: &[u8]) -> bool {
        offset.is_multiple_of(wide(self.offset))
            && buffer.len().is_multiple_of(self.offset)
            && buffer.as_ptr().addr().is_multiple_of(self.memory)
    }

    /// The largest multiple that is not above `len`.
    pub(super) fn floor(&self, len: usize) -> usize {
        len - len % self.offset
    }
}

/// An open file or block device.
pub(crate) struct Handle {
    pub(super) fd: OwnedFd,
    pub(super) path: PathBuf,
    pub(super) alignment: Alignment,
    pub(super) calls: Box<dyn Calls>,
    pub(super) spare: Spare,
}

impl Handle {
    pub(crate) fn new(fd: OwnedFd, path: &Path, alignment: Alignment, calls: Box<dyn Calls>) -> Self {
        Handle { fd, path: path.to_path_buf(), alignment, calls, spare: Spare::default() }
    }

    /// A handle whose I/O goes through the page cache.
    pub(crate) fn buffered(fd: OwnedFd, path: &Path, calls: Box<dyn Calls>) -> Self {
        Self::new(fd, path, Alignment::ANY, calls)
    }

    /// Makes durable what was written before.
    pub(crate) fn sync(&self) -> Result<()> {
        uninterrupted(|| self.calls.fdatasync(self.fd()))
            .map_err(|error| Error::io(format!("syncing {}", self.name()), error))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn name(&self) -> std::path::Display<'_> {
        self.path.display()
    }

    /// Fills `into` from `offset`, bounced if it is not aligned.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if self.alignment.fits(offset, into) {
            let needed = into.len();
            return self.fill(offset, into, 0, needed);
        }
        let mut done = 0;
        while done < into.len() {
            let bounce = self.bounce(offset + wide(done), into.len() - done);
            let mut buffer = self.spare.take(bounce.span);
            self.fill(bounce.base, &mut buffer[..bounce.span], 0, bounce.skip + bounce.take)?;
            into[done..done + bounce.take].copy_from_slice(&buffer[bounce.skip..bounce.skip + bounce.take]);
            self.spare.give(buffer);
            done += bounce.take;
        }
        Ok(())
    }

    /// The aligned range of at most about [`BOUNCE_MAX`] bytes that covers the front of an unaligned one.
    pub(super) fn bounce(&self, offset: u64, len: usize) -> Bounce {
        let skip = narrow(offset % wide(self.alignment.offset));
        let take = len.min(BOUNCE_MAX);
        let span = (skip + take).next_multiple_of(self.alignment.offset);
        Bounce { base: offset - wide(skip), skip, take, span }
    }

    /// Reads from `offset` on until the first `needed` bytes of `into` are there; `have` of them are already.
    /// More than `needed` may be read, as direct I/O takes whole sectors; the file may end behind `needed`.
    pub(super) fn fill(&self, offset: u64, into: &mut [u8], mut have: usize, needed: usize) -> Result<()> {
        while have < needed {
            let context = || format!("reading {needed} bytes at offset {offset} of {}", self.name());
            let at = offset + wide(have);
            let got = uninterrupted(|| self.calls.pread(self.fd(), &mut into[have..], at))
                .map_err(|error| Error::io(context(), error))?;
            if have + got >= needed {
                return Ok(());
            }
            let next = self.alignment.floor(have + got);
            if next <= have {
                return Err(Error::new(
                    ErrorKind::OutOfBounds,
                    format!("{}: expected all of them, found the end of the file after {}", context(), have + got),
                ));
            }
            have = next;
        }
        Ok(())
    }

    /// Writes the pieces one after another from `offset` on, gathered first if direct I/O cannot take them.
    pub(crate) fn write(&self, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        if pieces.iter().all(|piece| self.alignment.fits(offset, piece)) {
            return self.write_pieces(offset, pieces);
        }
        let gathered = self.gather(pieces);
        let written = self.write_pieces(offset, &[&gathered[..total_len(pieces)]]);
        self.spare.give(gathered);
        written
    }

    fn gather(&self, pieces: &[&[u8]]) -> AlignedBuffer {
        let mut gathered = self.spare.take(total_len(pieces));
        let mut end = 0;
        for piece in pieces {
            gathered[end..end + piece.len()].copy_from_slice(piece);
            end += piece.len();
        }
        gathered
    }

    fn write_pieces(&self, offset: u64, pieces: &[&[u8]]) -> Result<()> {
        let total = total_len(pieces);
        let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut rest: &mut [IoSlice<'_>] = &mut slices;
        let mut done = 0;
        while done < total {
            let context = || format!("writing {total} bytes at offset {offset} of {}", self.name());
            let now = &rest[..rest.len().min(PIECES_MAX)];
            let put = uninterrupted(|| self.calls.pwritev(self.fd(), now, offset + wide(done)))
                .map_err(|error| Error::io(context(), error))?;
            let put = self.alignment.floor(put.min(total - done));
            if put == 0 {
                return Err(Error::io(
                    format!("{}: expected all to be taken, found no progress after {done}", context()),
                    io::ErrorKind::WriteZero.into(),
                ));
            }
            IoSlice::advance_slices(&mut rest, put);
            done += put;
        }
        Ok(())
    }
}

/// How an unaligned range lies in the aligned one around it.
pub(super) struct Bounce {
    /// Where the aligned range starts.
    pub(super) base: u64,
    /// Bytes of it before the wanted ones.
    pub(super) skip: usize,
    /// The wanted bytes.
    pub(super) take: usize,
    /// Length of the aligned range.
    pub(super) span: usize,
}

/// Repeats a call while signals interrupt it, up to [`INTERRUPTIONS_MAX`] times.
pub(super) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut left = INTERRUPTIONS_MAX;
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted && left > 0 => left -= 1,
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests;
