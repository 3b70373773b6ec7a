//! `lode mount`: the file system of a disk on a directory, until it is unmounted or a signal says that it is enough.

mod background;
pub mod helper;
mod options;

use crate::chores::{Chores, Files};
use crate::commands::fs::time;
use crate::control::server::Control;
use crate::failure::{Code, Failure, Result};
use crate::serving::{self, Where};
use crate::shelf::Shelf;
use crate::{image, output, space};
use lode::{Disk, OpenOptions};
use lode_fs::FileSystem;
use lode_fuse::{Mount, Order};
use lode_nbd::Server;
use options::Options;
use rustix::mount::{UnmountFlags, unmount};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  lode mount disk.lode /mnt
  lode mount disk.lode /mnt --allow-other -o relaxed
  lode mount disk.lode /mnt --foreground
  lode mount disk.lode /mnt --socket /tmp/lode.sock -o hold=8GiB
  umount /mnt

Strict is the order if nothing else is asked for: what survives a crash is a prefix of what programs
did, without any fsync (but for stores into shared mappings, and for a write that is longer than a
mebibyte, which is several). With -o relaxed the kernel keeps written pages for a while, as other
file systems do. In both, fsync makes durable what was done to that file, and all that was done
before; of a directory (`sync /mnt`) it makes everything durable, which a plain `sync` does not:
Linux does not hand that on to a FUSE file system. Reading a file does not change its time of access
(as noatime elsewhere).

With -o snapshots the root has a directory .snapshots: `mkdir /mnt/.snapshots/monday` keeps what is
there now, durably and at once (with -o relaxed: what `sync` has written), `cp` brings a file back,
`rmdir /mnt/.snapshots/monday` deletes it.

With -o snapshots=1h:24 a snapshot is made every hour by itself, as long as it is mounted, and the
last 24 of these are kept; it may be given several times (-o snapshots=1h:24,snapshots=1day:7). They
are named by that and the time: .snapshots/1h-2026-11-23T10:00:00Z. Others are never deleted.

With -o reorganize, once nobody has read or written for ten seconds, files that were overwritten at
random are put in order again, so that they are read fast from their beginning to their end.

After a crash, or kill -9, the same command mounts it again and goes on: there is nothing to mend.
Requests come over io_uring where the kernel offers that (Linux 6.14 or later, and switched on: as
root, echo Y > /sys/module/fuse/parameters/enable_uring), which makes small operations faster, reads
about twice. -o noring does without, -o ring refuses to mount where it is not to be had.

Programs that set user ids, and devices, are not honoured unless -o suid and -o dev ask for that.

With --socket or --listen the same process serves the volumes of the disk over NBD, as `lode serve`
does, until it is unmounted. What the file system keeps its files in is no volume, and not served.

With -o hold=SIZE the last SIZE of the free space is for files: volumes on the same disk are refused
before they take of it. Files take of it when nothing else is left, and what they took is held again
once there is space. It ends with the mount. What is free for files, df tells.

What is written here and there in a large file is put in the order of the file in memory, up to
64 MiB for two seconds at most, so that it can be read fast from front to back; -o gather=SIZE sets
how much, 0 for none. It is no more lost in a crash than what other writes have in memory, and in no
other order: whatever is done next comes behind it.

By mount(8) and in /etc/fstab, once `make install` has put mount.fuse.lode into /sbin:
  mount -t fuse.lode disk.lode /mnt -o relaxed
  /srv/disk.lode /mnt fuse.lode allow_other,hold=8GiB,nofail 0 0

Other commands work on the disk while it is mounted: they find it by the socket disk.lode.control.";

/// How often it looks whether it was unmounted.
const LOOK: Duration = Duration::from_millis(50);

/// How long requests and commands that run may take to finish at the end.
const DRAIN: Duration = Duration::from_secs(10);

/// What `lode mount` takes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The disk
    disk: PathBuf,
    /// The directory
    directory: PathBuf,
    /// Stay in the foreground
    #[arg(long, short)]
    foreground: bool,
    /// Let other users use it
    #[arg(long)]
    allow_other: bool,
    /// Change nothing
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    at: Where,
    /// So many threads answer over /dev/fuse [default: twice as many as there are processors, at least 4]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// strict, relaxed, ring, noring, snapshots, reorganize, suid, dev, noexec, ro, allow_other, auto_unmount,
    /// hold=SIZE, gather=SIZE, socket=PATH, listen=ADDR:PORT, threads=N; what fstab has for others means nothing here
    #[arg(long = "option", short, value_name = "OPTIONS", value_delimiter = ',')]
    option: Vec<String>,
    /// Pass over options that are not known
    #[arg(long, short)]
    sloppy: bool,
    /// Look at the options, and do nothing
    #[arg(long)]
    fake: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
    /// Be the process in the background
    #[arg(long, hide = true)]
    daemon: bool,
}

/// Mounts it, and stays until it is unmounted; or has a process of its own do so.
pub fn run(mut arguments: Arguments) -> Result<Code> {
    if arguments.fake {
        Options::new(&arguments)?;
        return Ok(Code::Done);
    }
    if arguments.daemon {
        background::settle(&mut arguments)?;
    }
    let options = Options::new(&arguments)?;
    if !arguments.foreground && !arguments.daemon {
        return background::begin(arguments.quiet);
    }
    // Before anything can be waited for, so that a signal is never lost.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|error| Failure::io("mount: catching signals", error))?;
    ready(&arguments.directory)?;
    let started = Instant::now();
    let opening = OpenOptions { read_only: options.mount.read_only, ..OpenOptions::default() };
    let opened = image::open_with(&arguments.disk, &opening)?;
    image::closing(opened, |disk| {
        space::log(&arguments.disk, disk);
        let fs = FileSystem::open(disk, time())?;
        if options.hold > 0 && !options.mount.read_only {
            fs.hold_space(options.hold)?;
        }
        fs.gather(options.gathering());
        if options.mount.order == Order::Strict && !options.mount.read_only {
            fs.join_writes();
        }
        let took = started.elapsed();
        let files = Files { fs: fs.clone(), retained: options.retained.clone() };
        let shelf = Arc::new(Shelf::default());
        // Whatever may be refused is asked for before it is mounted.
        let server = match options.at.is_nowhere() {
            true => None,
            false => Some(serving::start(&options.at, disk, options.mount.read_only, &shelf)?),
        };
        let mount = Mount::new(fs, &arguments.directory, &options.mount)
            .map_err(|error| refused(&arguments.directory, error))?;
        let control = Control::start(&arguments.disk, disk, &shelf);
        let chores = Chores::start(disk, options.mount.read_only, options.reorganize, Some(files));
        let told = tell(&arguments, disk, server.as_ref(), (took, mount.has_ring()));
        while told.is_ok() && !mount.is_over() && signals.pending().next().is_none() {
            std::thread::sleep(LOOK);
        }
        let until = Instant::now() + DRAIN;
        if let Some(server) = server {
            server.drain(DRAIN);
        }
        chores.stop();
        if let Ok(control) = control {
            control.drain(until.saturating_duration_since(Instant::now()));
        }
        let at = image::show(&arguments.directory);
        mount.unmount().map_err(|error| Failure::io(format!("unmounting {at}"), error))?.sync()?;
        told.map(|()| Code::Done)
    })
}

/// Says that it is mounted.
fn tell(arguments: &Arguments, disk: &Disk, server: Option<&Server>, (took, ring): (Duration, bool)) -> Result<()> {
    let (path, directory) = (image::show(&arguments.disk), image::show(&arguments.directory));
    let over = if ring { ", over io_uring" } else { "" };
    output::line(format!("{path}: on {directory} after {:.1} ms{over}", took.as_secs_f64() * 1e3))?;
    if let Some(server) = server {
        output::print(&serving::uris(disk, server.address())?)?;
    }
    output::line(background::READY)?;
    if arguments.daemon { background::let_go() } else { Ok(()) }
}

/// A mount that a process has left that is no more is taken away; anything else must be a directory.
fn ready(directory: &Path) -> Result<()> {
    match std::fs::metadata(directory) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(Failure::usage(format!("{}: expected a directory", image::show(directory)))),
        Err(error) if is_left(&error) => {
            let taken = unmount(directory, UnmountFlags::DETACH);
            if taken.is_err() {
                // Without the right to unmount there is a program that has it.
                let _ = Command::new("fusermount3").arg("-uz").arg(directory).status();
            }
            Ok(())
        }
        Err(error) => Err(Failure::io(image::show(directory), error)),
    }
}

/// What the kernel says of a mount whose process is no more. While it is still taking back what that had of rings, requests
/// are cancelled or cut off.
fn is_left(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let left = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|errno| left.contains(&errno))
}

fn refused(directory: &Path, error: std::io::Error) -> Failure {
    let at = image::show(directory);
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => Failure::new(
            Code::Denied,
            format!(
                "{at}: the kernel does not permit FUSE here ({error}): expected to be root, or to have fusermount3 (package \
                 fuse3) and the right to open /dev/fuse; --allow-other needs user_allow_other in /etc/fuse.conf"
            ),
        ),
        std::io::ErrorKind::NotFound => Failure::new(
            Code::NotFound,
            format!(
                "{at}: there is no FUSE here ({error}): expected /dev/fuse (modprobe fuse) and fusermount3 (package fuse3)"
            ),
        ),
        std::io::ErrorKind::Unsupported => Failure::new(Code::Denied, format!("{at}: -o ring: {error}")),
        _ => Failure::io(format!("mounting on {at}"), error),
    }
}
