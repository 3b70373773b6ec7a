//! An image as a row of bytes: opening it, its length, and reading it before the length of its zones is known.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::bounds::{index, wide};
use crate::{AlignedBuffer, Error, ErrorKind, Result};

use super::calls::{Calls, Kernel};
use super::handle::{Alignment, Handle};
use super::medium::FileMedium;
use super::{Access, CreateOptions, Io, create, lock};

/// Appends are aligned to at least this, also where the device would take less: a smaller write into a page or a
/// physical sector of 4096 bytes rewrites its neighbours, and could damage them (M3).
pub(super) const SECTOR: u32 = 4096;

/// What the file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Regular,
    Device,
}

/// An image that is open and locked.
pub struct RawImage {
    pub(super) handle: Handle,
    pub(super) kind: Kind,
    pub(super) access: Access,
    pub(super) io: Io,
    pub(super) direct: bool,
    /// Appends have to be multiples of this.
    pub(super) sector: u32,
    pub(super) len: AtomicU64,
}

impl RawImage {
    /// Makes a new image and opens it for writing. See [`CreateOptions`] for what is refused.
    pub fn create(path: impl AsRef<Path>, options: &CreateOptions) -> Result<RawImage> {
        create::create(path.as_ref(), options, Box::new(Kernel))
    }

    /// Opens an image that exists.
    ///
    /// `Busy` if somebody else has it open and one of the two wants to write; `NotFound`, `Denied` and `Io` as the
    /// system says; `Unsupported` if it is neither a regular file nor a block device.
    pub fn open(path: impl AsRef<Path>, access: Access, io: Io) -> Result<RawImage> {
        Self::open_with(path.as_ref(), access, io, Box::new(Kernel))
    }

    pub(super) fn open_with(path: &Path, access: Access, io: Io, calls: Box<dyn Calls>) -> Result<RawImage> {
        let mut flags = OPEN_FLAGS;
        flags |= match access {
            Access::ReadOnly => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR,
        };
        if access == Access::ReadWrite && is_device(path) {
            flags |= OFlags::EXCL;
        }
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| {
            let in_use = if error == Errno::BUSY { ", which is mounted or held by somebody else" } else { "" };
            Error::io(format!("opening {}{in_use}", path.display()), error.into())
        })?;
        let kind = kind_of(&fd, path)?;
        lock(&fd, path, access)?;
        Self::from_locked(fd, path, kind, access, io, calls)
    }

    /// Learns what it has to know of a file that is open and locked.
    pub(super) fn from_locked(
        fd: OwnedFd,
        path: &Path,
        kind: Kind,
        access: Access,
        io: Io,
        calls: Box<dyn Calls>,
    ) -> Result<RawImage> {
        let len = len_of(fd.as_fd(), path, kind)?;
        make_blocking(fd.as_fd(), path)?;
        let alignment = make_direct(fd.as_fd(), kind, calls.as_ref());
        let sector = sector_of(fd.as_fd(), kind, alignment);
        let handle = Handle::new(fd, path, alignment.unwrap_or(Alignment::ANY), calls);
        Ok(RawImage { handle, kind, access, io, direct: alignment.is_some(), sector, len: AtomicU64::new(len) })
    }

    /// Bytes in the image. A device is as long as it is, also if less of it was asked for when it was made.
    #[allow(clippy::len_without_is_empty, reason = "an image is a place, not a collection")]
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Looks at the length again: a device may have become larger.
    pub(super) fn measure(&self) -> Result<u64> {
        len_of(self.handle.fd(), self.path(), self.kind)
    }

    /// Where the image was found.
    pub fn path(&self) -> &Path {
        &self.handle.path
    }

    /// Whether direct I/O is used.
    pub fn direct(&self) -> bool {
        self.direct
    }

    /// The same image with another way to do groups of reads.
    pub fn with_io(mut self, io: Io) -> RawImage {
        self.io = io;
        self
    }

    /// Fills `into` from `offset`, of any alignment.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if offset.checked_add(wide(into.len())).is_some_and(|end| end <= self.len()) {
            return self.handle.read(offset, into);
        }
        Err(Error::new(
            ErrorKind::OutOfBounds,
            format!(
                "expected a range inside the {} bytes of {}, found {} bytes at offset {offset}",
                self.len(),
                self.path().display(),
                into.len()
            ),
        ))
    }

    /// The image as zones of `zone_bytes`; what is left behind the last whole zone is not used.
    pub fn into_medium(self, zone_bytes: u32) -> Result<FileMedium> {
        FileMedium::new(self, zone_bytes)
    }
}

impl std::fmt::Debug for RawImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RawImage({}, {} bytes, {:?}, {:?})", self.path().display(), self.len(), self.kind, self.access)
    }
}

/// Flags of every open: not inherited by children (the lock would be), never a controlling terminal, and not
/// waiting for the other end of a pipe.
pub(super) const OPEN_FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

/// Whether the path leads to a block device, through symbolic links too.
pub(super) fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

/// What the open file is. Anything but a regular file or a block device is refused.
pub(super) fn kind_of(fd: &OwnedFd, path: &Path) -> Result<Kind> {
    let stat = rustix::fs::fstat(fd)
        .map_err(|error| Error::io(format!("reading the attributes of {}", path.display()), error.into()))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(Kind::Regular),
        FileType::BlockDevice => Ok(Kind::Device),
        other => Err(Error::new(
            ErrorKind::Unsupported,
            format!("expected a regular file or a block device at {}, found {other:?}", path.display()),
        )),
    }
}

fn len_of(fd: BorrowedFd<'_>, path: &Path, kind: Kind) -> Result<u64> {
    let len = match kind {
        Kind::Regular => rustix::fs::fstat(fd).map(|stat| u64::try_from(stat.st_size).unwrap_or(0)),
        Kind::Device => rustix::fs::seek(fd, rustix::fs::SeekFrom::End(0)),
    };
    len.map_err(|error| Error::io(format!("reading the length of {}", path.display()), error.into()))
}

/// Only the opening must not wait; io_uring would take the flag to mean that reads must not either.
fn make_blocking(fd: BorrowedFd<'_>, path: &Path) -> Result<()> {
    rustix::fs::fcntl_getfl(fd)
        .and_then(|flags| rustix::fs::fcntl_setfl(fd, flags - OFlags::NONBLOCK))
        .map_err(|error| Error::io(format!("setting the flags of {}", path.display()), error.into()))
}

/// Turns direct I/O on if the file takes it, proven by one read.
fn make_direct(fd: BorrowedFd<'_>, kind: Kind, calls: &dyn Calls) -> Option<Alignment> {
    let alignment = direct_alignment(fd, kind)?;
    let flags = rustix::fs::fcntl_getfl(fd).ok()?;
    calls.set_flags(fd, flags | OFlags::DIRECT).ok()?;
    let mut probe = AlignedBuffer::new(alignment.offset);
    let refused = calls.pread(fd, &mut probe, 0).err();
    if refused.is_some_and(|error| error.kind() == io::ErrorKind::InvalidInput) {
        calls.set_flags(fd, flags).ok()?;
        return None;
    }
    Some(alignment)
}

/// The alignment that direct I/O needs, of which the file system may say more than the default. None if there is
/// no direct I/O, or none that the buffers of this crate fit.
fn direct_alignment(fd: BorrowedFd<'_>, kind: Kind) -> Option<Alignment> {
    let default = Alignment { memory: 512, offset: index(SECTOR) };
    if kind == Kind::Device {
        let logical = index(rustix::fs::ioctl_blksszget(fd).ok()?);
        return Some(Alignment { memory: 512, offset: logical.max(512) }).filter(|alignment| fits_buffers(*alignment));
    }
    let Ok(found) = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else { return Some(default) };
    if !StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::DIOALIGN) {
        return Some(default);
    }
    let alignment = Alignment {
        memory: index(found.stx_dio_mem_align).max(512),
        offset: index(found.stx_dio_offset_align.max(found.stx_dio_read_offset_align)).max(512),
    };
    Some(alignment).filter(|alignment| found.stx_dio_offset_align != 0 && fits_buffers(*alignment))
}

fn fits_buffers(alignment: Alignment) -> bool {
    let memory = index(SECTOR).is_multiple_of(alignment.memory);
    memory && alignment.offset.is_power_of_two() && alignment.offset <= 1 << 16
}

/// What appends have to be multiples of: the physical sector, and what direct I/O needs.
fn sector_of(fd: BorrowedFd<'_>, kind: Kind, alignment: Option<Alignment>) -> u32 {
    let physical = match kind {
        Kind::Device => rustix::fs::ioctl_blkpbszget(fd).unwrap_or(SECTOR),
        Kind::Regular => SECTOR,
    };
    let direct = alignment.map_or(SECTOR, |alignment| u32::try_from(alignment.offset).unwrap_or(SECTOR));
    physical.max(direct).max(SECTOR).next_power_of_two()
}
