//! Where an export, or a drawing, goes: a new file that gets its name at the end, a block device, or a stream.

use crate::failure::{Code, Failure, Result};
use crate::{image, session, size};
use rustix::fs::SeekFrom;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The target of an export.
pub enum Target {
    /// A file under a name of its own until it is whole.
    New {
        /// The file, full of holes.
        file: File,
        /// Its name for now; emptied when it has its own.
        temporary: PathBuf,
        /// The name it is to get.
        path: PathBuf,
    },
    /// A block device: holes must be written.
    Device(File, String),
    /// Standard output, a pipe, a character device: everything in order.
    Stream(Box<dyn Write>, String),
}

/// Whether the bytes go to standard output.
pub fn is_stream(path: &Path) -> bool {
    path.as_os_str() == "-"
}

impl Target {
    /// Opens a target for `len` bytes, which must not be `disk` itself.
    pub fn open(path: &Path, disk: &Path, len: u64, force: bool) -> Result<Target> {
        if is_stream(path) {
            return Ok(Target::Stream(session::stdout(), "standard output".into()));
        }
        let name = image::show(path);
        let (path, disk) = (&session::path(path)?, &session::path(disk)?);
        let Ok(found) = path.metadata() else { return Target::new(path, len) };
        if disk.metadata().is_ok_and(|disk| (disk.dev(), disk.ino()) == (found.dev(), found.ino())) {
            return Err(Failure::usage(format!("{name}: expected another file than the disk itself")));
        }
        let kind = found.file_type();
        if kind.is_dir() {
            return Err(Failure::usage(format!("{name}: expected a file or a device, found a directory")));
        }
        if (kind.is_file() || kind.is_block_device()) && !force {
            return Err(Failure::new(Code::Exists, format!("{name} exists; --force replaces what it holds")));
        }
        if kind.is_file() {
            let real = path.canonicalize().map_err(|error| Failure::io(&name, error))?;
            return Target::new(&real, len);
        }
        let file = File::options().write(true).open(path).map_err(|e| Failure::io(format!("opening {name}"), e))?;
        if !kind.is_block_device() {
            return Ok(Target::Stream(session::writer(file), name));
        }
        let room = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(|e| Failure::io(&name, e.into()))?;
        if room < len {
            let (len, room) = (size::show(len), size::show(room));
            return Err(Failure::new(Code::Full, format!("{name}: expected a device of at least {len}, found {room}")));
        }
        Ok(Target::Device(file, name))
    }

    fn new(path: &Path, len: u64) -> Result<Target> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".lode-{}.partial", std::process::id()));
        let temporary = path.with_file_name(name);
        let failed = |error| Failure::io(format!("creating {}", image::show(&temporary)), error);
        let file = session::new_file().open(&temporary).map_err(failed)?;
        let target = Target::New { file, temporary: temporary.clone(), path: path.to_owned() };
        if let Target::New { file, .. } = &target {
            file.set_len(len).map_err(failed)?;
        }
        Ok(target)
    }

    /// Writes `bytes`.
    pub fn data(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        match self {
            Target::New { file, temporary, .. } => file
                .write_all_at(bytes, at)
                .map_err(|error| Failure::io(format!("writing {} at {at}", image::show(temporary)), error)),
            Target::Device(file, name) => {
                file.write_all_at(bytes, at).map_err(|error| Failure::io(format!("writing {name} at {at}"), error))
            }
            Target::Stream(stream, name) => {
                stream.write_all(bytes).map_err(|error| Failure::io(format!("writing {name} at {at}"), error))
            }
        }
    }

    /// `bytes` zeros.
    pub fn hole(&mut self, at: u64, bytes: u64) -> Result<()> {
        if matches!(self, Target::New { .. }) {
            return Ok(());
        }
        let zeros = vec![0; 1 << 16];
        let (mut at, end) = (at, at + bytes);
        while at < end {
            let piece = usize::try_from(end - at).unwrap_or(usize::MAX).min(zeros.len());
            self.data(at, &zeros[..piece])?;
            at += u64::try_from(piece).expect("a piece is small");
        }
        Ok(())
    }

    /// Makes everything durable and gives a new file its name.
    pub fn finish(&mut self) -> Result<()> {
        match self {
            Target::New { file, temporary, path } => {
                let failed = |error| Failure::io(format!("writing {}", image::show(path)), error);
                file.sync_all().map_err(failed)?;
                std::fs::rename(&*temporary, &*path).map_err(failed)?;
                *temporary = PathBuf::new();
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                session::open(parent.unwrap_or(Path::new(".")))?.sync_all().map_err(failed)
            }
            Target::Device(file, name) => {
                file.sync_all().map_err(|error| Failure::io(format!("writing {name}"), error))
            }
            Target::Stream(stream, name) => {
                stream.flush().map_err(|error| Failure::io(format!("writing {name}"), error))
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Target::New { temporary, .. } = self
            && !temporary.as_os_str().is_empty()
        {
            let _ = std::fs::remove_file(temporary);
        }
    }
}
