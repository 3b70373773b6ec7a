//! Where the control socket of an image is: beside a file as `IMAGE.control`, and for a block device in a directory of
//! `/run`, since `/dev` is no place for it.
//!
//! Beside the image it is found by whoever can reach the image, without a word on users, sessions or environments, and
//! from within containers too. What it cannot do is follow an image that is renamed: then the disk is busy to others.

use crate::failure::{Failure, Result};
use rustix::fs::{Mode, OFlags};
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The control sockets of block devices.
const DEVICES: &str = "/run/lode";

/// Where the socket is, or would be.
pub struct Place {
    /// For words.
    pub shown: PathBuf,
    /// For calls: short enough for the kernel, however long the directory's path is.
    pub path: PathBuf,
    /// Keeps `path` valid.
    _directory: OwnedFd,
}

/// Device and inode of an image, the same under all of its names.
pub fn identity(image: &Path) -> std::io::Result<(u64, u64)> {
    image.metadata().map(|found| if is_device(&found) { (found.rdev(), 0) } else { (found.dev(), found.ino()) })
}

fn is_device(found: &Metadata) -> bool {
    found.file_type().is_block_device()
}

/// The place for `image`, which must exist; `make`: with its directory, if that has to be made.
pub fn of(image: &Path, make: bool) -> Result<Place> {
    let failed = |error| Failure::io("finding the place of the control socket", error);
    let found = image.metadata().map_err(failed)?;
    let (directory, name) = if is_device(&found) {
        let device = found.rdev();
        (PathBuf::from(DEVICES), format!("{}-{}.control", rustix::fs::major(device), rustix::fs::minor(device)).into())
    } else {
        let image = image.canonicalize().map_err(failed)?;
        let mut name = image.file_name().unwrap_or_default().to_owned();
        name.push(".control");
        (image.parent().unwrap_or(Path::new("/")).to_owned(), name)
    };
    if make && is_device(&found) {
        match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&directory, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
    let path = Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string()).join(&name);
    Ok(Place { shown: directory.join(name), path, _directory: opened })
}
