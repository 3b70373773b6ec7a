//! Where a bench measures: files that are written from end to end beforehand, or pieces of a device.

use super::scratch::Scratch;
use super::{Settings, narrow, wide};
use crate::failure::{Code, During, Failure, Result};
use crate::random::Random;
use crate::{image, size};
use lode_media::AlignedBuffer;
use rustix::fs::{Mode, OFlags, SeekFrom};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

const PIECE: usize = 4 << 20;

/// Tells the files of one run apart.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// A stretch of a file or of a device, all of it written before.
pub struct Place {
    /// The file or device.
    pub path: PathBuf,
    /// Where the stretch starts.
    pub start: u64,
    /// How long it is.
    pub bytes: u64,
    /// A scratch file, deleted afterwards.
    _scratch: Option<Scratch>,
}

/// Hands out places: each a file of its own, or the next stretch of the device.
pub struct Places<'a> {
    settings: &'a Settings,
    used: u64,
}

impl<'a> Places<'a> {
    /// Places as `settings` say.
    pub fn new(settings: &'a Settings) -> Self {
        Places { settings, used: 0 }
    }

    /// A written place of `bytes` for `what`. The place of a disk must be the first one.
    pub fn take(&mut self, what: &str, bytes: u64) -> Result<Place> {
        let place = match &self.settings.device {
            Some(device) => self.stretch(device, bytes)?,
            None => self.file(what, bytes)?,
        };
        self.used += bytes;
        place.write_all_of_it().during(|| format!("preparing {}", image::show(&place.path)))?;
        Ok(place)
    }

    fn file(&self, what: &str, bytes: u64) -> Result<Place> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lode-bench-{}-{number}.{what}", std::process::id());
        let scratch = Scratch::new(self.settings.directory.join(name));
        let path = scratch.path().to_owned();
        let failed = |error| Failure::io(format!("creating {}", image::show(&path)), error);
        let file = File::options().write(true).create_new(true).open(&path).map_err(failed)?;
        let place = Place { path: path.clone(), start: 0, bytes, _scratch: Some(scratch) };
        // Reserved in one piece, so that both sides get extents alike.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes).map_err(|e| failed(e.into()))?;
        Ok(place)
    }

    fn stretch(&self, device: &Path, bytes: u64) -> Result<Place> {
        let name = image::show(device);
        let file = File::open(device).map_err(|error| Failure::io(format!("opening {name}"), error))?;
        let len = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(|error| Failure::io(&name, error.into()))?;
        let end = self.used + bytes;
        if end > len {
            let (end, len) = (size::show(end), size::show(len));
            return Err(Failure::new(Code::Full, format!("{name}: expected a device of at least {end}, found {len}")));
        }
        Ok(Place { path: device.to_owned(), start: self.used, bytes, _scratch: None })
    }
}

impl Place {
    /// The place for direct I/O.
    pub fn direct(&self) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Ok(file) => Ok(file.into()),
            Err(error) => Err(Failure::io(format!("opening {} for direct I/O", image::show(&self.path)), error.into())),
        }
    }

    /// The place through the page cache.
    pub fn buffered(&self) -> Result<File> {
        let failed = |error| Failure::io(format!("opening {}", image::show(&self.path)), error);
        File::options().read(true).write(true).open(&self.path).map_err(failed)
    }

    fn write_all_of_it(&self) -> Result<()> {
        let file = self.direct()?;
        let mut noise = AlignedBuffer::new(PIECE);
        Random::new(1).fill(&mut noise);
        let mut at = 0;
        while at < self.bytes {
            let piece = narrow(wide(PIECE).min(self.bytes - at));
            file.write_all_at(&noise[..piece], self.start + at).map_err(|error| Failure::io("writing", error))?;
            at += wide(piece);
        }
        file.sync_all().map_err(|error| Failure::io("syncing", error))
    }
}
