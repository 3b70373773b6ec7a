//! From a path to an open disk: the raw image, its geometry as the engine reads it, the medium, the disk.

use crate::failure::{During, Failure, Result};
use crate::session;
use crate::text::safe;
use lode::{Disk, OpenOptions};
use lode_media::Medium;
use lode_media::file::{Access, Io, RawImage};
use std::path::Path;
use std::sync::Arc;

/// The medium in `path`, its geometry found by reading it.
pub fn medium(path: &Path, access: Access) -> Result<Arc<dyn Medium>> {
    let named = || show(path);
    let path = &session::path(path)?;
    if path.is_dir() {
        return Err(Failure::usage(format!("{}: expected a file or a block device, found a directory", named())));
    }
    let raw = RawImage::open(path, access, Io::Auto)?;
    let geometry = lode::probe(raw.len(), &mut |offset, into| raw.read_at(offset, into)).during(named)?;
    Ok(Arc::new(raw.into_medium(geometry.zone_bytes)?))
}

/// A disk that is open for a command.
pub struct Opened {
    disk: Disk,
    /// It is the server's: it stays open.
    served: bool,
}

/// The disk in `path`, open for writing.
pub fn open(path: &Path) -> Result<Opened> {
    open_with(path, &OpenOptions::default())
}

/// The disk in `path`, open for reading only: nothing is written, not even what a crash left to do.
pub fn open_read_only(path: &Path) -> Result<Opened> {
    open_with(path, &OpenOptions { read_only: true, ..OpenOptions::default() })
}

/// The disk in `path`, open as `options` say; the one that is served, as it is open there.
pub fn open_with(path: &Path, options: &OpenOptions) -> Result<Opened> {
    if let Some(disk) = session::served(path) {
        return Ok(Opened { disk, served: true });
    }
    let access = if options.read_only { Access::ReadOnly } else { Access::ReadWrite };
    let disk = Disk::open(medium(path, access)?, options).during(|| show(path))?;
    Ok(Opened { disk, served: false })
}

/// Runs `work` on a disk and closes it, also when the work fails: then its failure is the one told.
pub fn closing<T>(opened: Opened, work: impl FnOnce(&Disk) -> Result<T>) -> Result<T> {
    let outcome = work(&opened.disk);
    if opened.served {
        return outcome;
    }
    let closed = opened.disk.close().during(|| "closing the disk".into());
    let value = outcome?;
    closed.map(|()| value)
}

/// A path as it can be printed.
pub fn show(path: &Path) -> String {
    safe(&path.to_string_lossy())
}
