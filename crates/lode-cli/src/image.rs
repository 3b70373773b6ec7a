//! From a path to an open disk: the raw image, its geometry as the engine reads it, the medium, the disk.

use crate::failure::{During, Failure, Result};
use crate::text::safe;
use lode::{Disk, OpenOptions};
use lode_media::Medium;
use lode_media::file::{Access, Io, RawImage};
use std::path::Path;
use std::sync::Arc;

/// The medium in `path`, its geometry found by reading it.
pub fn medium(path: &Path, access: Access) -> Result<Arc<dyn Medium>> {
    let named = || show(path);
    if path.is_dir() {
        return Err(Failure::usage(format!("{}: expected a file or a block device, found a directory", named())));
    }
    let raw = RawImage::open(path, access, Io::Auto)?;
    let geometry = lode::probe(raw.len(), &mut |offset, into| raw.read_at(offset, into)).during(named)?;
    Ok(Arc::new(raw.into_medium(geometry.zone_bytes)?))
}

/// The disk in `path`, open for writing.
pub fn open(path: &Path) -> Result<Disk> {
    open_with(path, &OpenOptions::default())
}

/// The disk in `path`, open for reading only: nothing is written, not even what a crash left to do.
pub fn open_read_only(path: &Path) -> Result<Disk> {
    open_with(path, &OpenOptions { read_only: true, ..OpenOptions::default() })
}

/// The disk in `path`, open as `options` say.
pub fn open_with(path: &Path, options: &OpenOptions) -> Result<Disk> {
    let access = if options.read_only { Access::ReadOnly } else { Access::ReadWrite };
    Disk::open(medium(path, access)?, options).during(|| show(path))
}

/// Runs `work` on a disk and closes it, also when the work fails: then its failure is the one told.
pub fn closing<T>(disk: Disk, work: impl FnOnce(&Disk) -> Result<T>) -> Result<T> {
    let outcome = work(&disk);
    let closed = disk.close().during(|| "closing the disk".into());
    let value = outcome?;
    closed.map(|()| value)
}

/// A path as it can be printed.
pub fn show(path: &Path) -> String {
    safe(&path.to_string_lossy())
}
