//! Where the file systems under measurement lie: one file, written from end to end, and a directory to mount them on.

use super::super::scratch::{Scratch, Undo};
use super::super::wide;
use super::mounted::Mounted;
use super::side::Side;
use super::{Settings, switch, tools};
use crate::failure::{Code, Failure, Result};
use crate::random::Random;
use crate::{image, random};
use lode::{Disk, FormatOptions, OpenOptions, Survive};
use lode_fs::{Caller, FileSystem, MakeOptions};
use lode_media::AlignedBuffer;
use lode_media::file::{Access, Io, RawImage};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PIECE: usize = 4 << 20;

/// See the file's head.
pub struct Stage {
    directory: Scratch,
    bytes: u64,
    /// So many files may a process have open.
    pub open_files: u64,
    /// Lode's image lies on a loop device, too.
    pub lode_on_loop: bool,
    tools: PathBuf,
    /// Only Lode, and whom it is compared with.
    judged: bool,
    _ring: Option<Undo>,
}

/// A loop device over a file.
pub struct Loop {
    /// `/dev/loop0`.
    pub device: PathBuf,
    _undo: Undo,
}

impl Loop {
    /// The file as a device, without a second copy of everything in the page cache if the file can do that.
    fn over(file: &Path) -> Result<Loop> {
        let attach = |direct: &[&str]| {
            let mut command = tools::command("losetup");
            tools::run(command.args(["--find", "--show"]).args(direct).arg(file))
        };
        let device = attach(&["--direct-io=on"]).or_else(|_| attach(&[]))?;
        let device = PathBuf::from(device.trim());
        let again = device.clone();
        let undo = Undo::new(move || {
            // Still in use, it goes as soon as it is not.
            let _ = tools::command("losetup").arg("--detach").arg(again).status();
        });
        Ok(Loop { device, _undo: undo })
    }
}

impl Stage {
    /// Makes the file. Needs root.
    pub fn new(settings: &Settings) -> Result<Stage> {
        if !rustix::process::geteuid().is_root() {
            let words = "bench-fs: expected to be root: it makes loop devices, mounts, and drops the kernel's caches";
            return Err(Failure::new(Code::Denied, words));
        }
        tools::require(&[("losetup", "mount"), ("mkfs.ext4", "e2fsprogs"), ("fusermount3", "fuse3")])?;
        let name = format!("lode-bench-fs-{}", std::process::id());
        let directory = settings.common.directory.join(name);
        let directory = Scratch::new(std::path::absolute(directory).unwrap_or_default());
        let failed = |error| Failure::io(format!("creating {}", image::show(directory.path())), error);
        for mount_point in ["mnt", "lower"] {
            fs::create_dir_all(directory.path().join(mount_point)).map_err(failed)?;
        }
        let stage = Stage {
            directory,
            bytes: settings.pick(8 << 30, 512 << 20),
            open_files: switch::open_files(),
            lode_on_loop: settings.lode_on_loop,
            tools: settings.tools.clone(),
            judged: settings.judged,
            _ring: switch::ring(),
        };
        stage.write_image()?;
        Ok(stage)
    }

    /// A path of that name beside the image.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Where file systems are mounted.
    pub fn mount_point(&self) -> PathBuf {
        self.path("mnt")
    }

    fn image(&self) -> PathBuf {
        self.path("image")
    }

    fn write_image(&self) -> Result<()> {
        let path = self.image();
        let failed = |error| Failure::io(format!("writing {}", image::show(&path)), error);
        let mut file = File::create_new(&path).map_err(failed)?;
        let none = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&file, none, 0, self.bytes).map_err(|error| failed(error.into()))?;
        let mut noise = AlignedBuffer::new(PIECE);
        Random::new(1).fill(&mut noise);
        for _ in 0..self.bytes / wide(PIECE) {
            file.write_all(&noise).map_err(failed)?;
        }
        file.sync_all().map_err(failed)
    }

    /// The sides that are there to be measured, of those that a bench has: all, or, if only these are asked for, Lode in
    /// its two orders and whom it is compared with.
    pub fn sides(&self, all: &[Side], judge: Side) -> Result<Vec<Side>> {
        let wanted = |side: &&Side| !self.judged || side.is_lode() || **side == judge;
        let sides: Vec<Side> = all.iter().filter(wanted).copied().collect();
        for side in &sides {
            match side {
                Side::Xfs => tools::require(&[("mkfs.xfs", "xfsprogs")])?,
                Side::Btrfs => tools::require(&[("mkfs.btrfs", "btrfs-progs")])?,
                Side::Passthrough => drop(self.passthrough()?),
                _ => {}
            }
        }
        Ok(sides)
    }

    /// The program that passes on what it is asked.
    pub fn passthrough(&self) -> Result<PathBuf> {
        tools::brought_to(&self.tools, "passthrough_hp")
    }

    /// An empty file system of that side, mounted.
    pub fn fresh(&self, side: Side) -> Result<Mounted<'_>> {
        let place = if side.is_lode() && !self.lode_on_loop { None } else { Some(Loop::over(&self.image())?) };
        let path = place.as_ref().map_or_else(|| self.image(), |place| place.device.clone());
        if side.is_lode() {
            make(&path)?;
        } else {
            let (program, options) = side.made_by();
            tools::run(tools::command(program).args(options).arg(&path))?;
        }
        Mounted::new(self, side, path, place)
    }
}

/// Makes a disk, and a file system on it, without touching what the file has beyond.
fn make(path: &Path) -> Result<()> {
    let open = || RawImage::open(path, Access::ReadWrite, Io::Auto);
    let raw = open()?;
    let zone = lode::default_zone_bytes(raw.len());
    let medium = Arc::new(raw.into_medium(zone)?);
    Disk::format(medium.clone(), &FormatOptions { disk_id: random::identity()? })?;
    let disk = Disk::open(medium, &OpenOptions::default())?;
    let caller = Caller { uid: 0, gid: 0, umask: 0, now: crate::commands::fs::time() };
    FileSystem::make(&disk, &MakeOptions { key: random::identity()?, caller })?;
    disk.flush(Survive::Power)?;
    Ok(disk.close()?)
}
