//! Making an image: nothing that holds data is overwritten unasked, and what is made survives a power cut.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::bounds::wide;
use crate::{Error, ErrorKind, Result};

use super::calls::Calls;
use super::image::{Kind, OPEN_FLAGS, is_device, kind_of};
use super::{Access, Io, RawImage, lock};

/// How much of each end of a device must be zero for it to count as unused: every common file system, partition
/// table and volume manager leaves its mark there.
const MARK_BYTES: u64 = 64 << 10;

/// What to make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreateOptions {
    /// Length of the image. For a device at most its size; 0 takes all of it.
    pub bytes: u64,
    /// Take the place of what is there: a file that is not empty, or a device whose first or last 64 KiB are not
    /// all zero.
    pub force: bool,
}

pub(super) fn create(path: &Path, options: &CreateOptions, calls: Box<dyn Calls>) -> Result<RawImage> {
    if is_device(path) { on_device(path, options, calls) } else { in_file(path, options, calls) }
}

fn on_device(path: &Path, options: &CreateOptions, calls: Box<dyn Calls>) -> Result<RawImage> {
    let mut image = RawImage::open_with(path, Access::ReadWrite, Io::Auto, calls)?;
    if options.bytes > image.len() {
        return Err(Error::new(
            ErrorKind::OutOfBounds,
            format!("expected {} to have {} bytes, found {}", path.display(), options.bytes, image.len()),
        ));
    }
    if !options.force {
        let last = image.len().saturating_sub(MARK_BYTES);
        expect_zeros(&image, 0, "first")?;
        expect_zeros(&image, last, "last")?;
    }
    if options.bytes > 0 {
        *image.len.get_mut() = options.bytes;
    }
    Ok(image)
}

fn expect_zeros(image: &RawImage, offset: u64, which: &str) -> Result<()> {
    let mut found = vec![0; crate::bounds::narrow(MARK_BYTES.min(image.len()))];
    image.read_at(offset, &mut found)?;
    let Some(first) = found.iter().position(|&byte| byte != 0) else { return Ok(()) };
    let words = format!(
        "expected the {which} {} bytes of {} to be zero, found data at offset {}: it seems to be in use",
        found.len(),
        image.path().display(),
        offset + wide(first)
    );
    Err(Error::new(ErrorKind::NotEmpty, words))
}

fn in_file(path: &Path, options: &CreateOptions, calls: Box<dyn Calls>) -> Result<RawImage> {
    if options.bytes == 0 {
        let words = format!("expected a length for the new image {}, found 0", path.display());
        return Err(Error::new(ErrorKind::OutOfBounds, words));
    }
    let (fd, made) = open_or_make(path)?;
    let shaped = (|| {
        if kind_of(&fd, path)? != Kind::Regular {
            // It was no device a moment ago: somebody is changing the place under us.
            let words = format!("expected a regular file at {}, found a block device", path.display());
            return Err(Error::new(ErrorKind::Unsupported, words));
        }
        lock(&fd, path, Access::ReadWrite)?;
        expect_empty(&fd, path, options)?;
        reserve(&fd, path, options.bytes, calls.as_ref())
    })();
    if let Err(error) = shaped {
        if made {
            // What was made here a moment ago is of no use to anyone; that it cannot be removed changes nothing.
            let _ = std::fs::remove_file(path);
        }
        return Err(error);
    }
    RawImage::from_locked(fd, path, Kind::Regular, Access::ReadWrite, Io::Auto, calls)
}

/// Opens the file without following a symbolic link, and says whether it was made by this call.
fn open_or_make(path: &Path) -> Result<(OwnedFd, bool)> {
    let flags = OPEN_FLAGS | OFlags::RDWR | OFlags::NOFOLLOW;
    let private = Mode::RUSR | Mode::WUSR;
    let opened = match rustix::fs::open(path, flags | OFlags::CREATE | OFlags::EXCL, private) {
        Err(Errno::EXIST) => rustix::fs::open(path, flags, Mode::empty()).map(|fd| (fd, false)),
        made => made.map(|fd| (fd, true)),
    };
    opened.map_err(|error| match error {
        Errno::LOOP => Error::new(
            ErrorKind::Unsupported,
            format!("expected a regular file or a block device at {}, found a symbolic link", path.display()),
        ),
        error => Error::io(format!("creating {}", path.display()), error.into()),
    })
}

fn expect_empty(fd: &OwnedFd, path: &Path, options: &CreateOptions) -> Result<()> {
    let context = || format!("emptying {}", path.display());
    let found = rustix::fs::fstat(fd).map_err(|error| Error::io(context(), error.into()))?.st_size;
    if found > 0 && !options.force {
        return Err(Error::new(
            ErrorKind::NotEmpty,
            format!("expected no file or an empty one at {}, found {found} bytes", path.display()),
        ));
    }
    rustix::fs::ftruncate(fd, 0).map_err(|error| Error::io(context(), error.into()))
}

/// Reserves the space, sets the length, and makes both and the name durable.
fn reserve(fd: &OwnedFd, path: &Path, bytes: u64, calls: &dyn Calls) -> Result<()> {
    let context = || format!("reserving {bytes} bytes for {}", path.display());
    match calls.fallocate(fd.as_fd(), FallocateFlags::empty(), 0, bytes) {
        Ok(()) => {}
        // No reservation on this file system: each zone is written out when it is erased.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
        Err(error) => {
            // The part that was reserved is given back; the first error is the one that counts.
            let _ = rustix::fs::ftruncate(fd, 0);
            return Err(Error::io(context(), error));
        }
    }
    rustix::fs::ftruncate(fd, bytes).map_err(|error| Error::io(context(), error.into()))?;
    rustix::fs::fsync(fd).map_err(|error| Error::io(format!("syncing {}", path.display()), error.into()))?;
    sync_directory(path)
}

/// A new name is durable only once its directory is.
pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(directory, flags, Mode::empty())
        .and_then(rustix::fs::fsync)
        .map_err(|error| Error::io(format!("syncing the directory {}", directory.display()), error.into()))
}

#[cfg(test)]
mod tests;
