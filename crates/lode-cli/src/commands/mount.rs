//! `lode mount`: the file system of a disk on a directory, until it is unmounted or a signal says that it is enough.

use crate::chores::Chores;
use crate::commands::fs::time;
use crate::control::server::Control;
use crate::failure::{Code, Failure, Result};
use crate::shelf::Shelf;
use crate::{image, output, space};
use lode::OpenOptions;
use lode_fs::FileSystem;
use lode_fuse::{Mount, MountOptions, Order, Transport};
use rustix::mount::{UnmountFlags, unmount};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  lode mount disk.lode /mnt
  lode mount disk.lode /mnt --allow-other -o relaxed
  lode mount disk.lode /mnt --foreground
  umount /mnt

Strict is the order if nothing else is asked for: what survives a crash is a prefix of what programs
did, without any fsync (but for stores into shared mappings, and for a write that is longer than a
mebibyte, which is several). With -o relaxed the kernel keeps written pages for a while, as other
file systems do. fsync and sync mean the same in both.

After a crash, or kill -9, the same command mounts it again and goes on: there is nothing to mend.
Requests come over io_uring where the kernel offers that (Linux 6.14 or later, and switched on: as
root, echo Y > /sys/module/fuse/parameters/enable_uring), which makes small operations faster, reads
about twice. -o noring does without, -o ring refuses to mount where it is not to be had.

Programs that set user ids, and devices, are not honoured unless -o suid and -o dev ask for that.

Other commands work on the disk while it is mounted: they find it by the socket disk.lode.control.";

/// How often it looks whether it was unmounted.
const LOOK: Duration = Duration::from_millis(50);

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
    /// So many threads answer over /dev/fuse [default: twice as many as there are processors, at least 4]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// strict, relaxed, ring, noring, suid, dev, noexec, ro, rw, allow_other, auto_unmount; others are ignored
    #[arg(long = "option", short, value_name = "OPTIONS", value_delimiter = ',')]
    option: Vec<String>,
}

/// Options that mounts have for others, and that mean nothing here.
const KNOWN: [&str; 12] =
    ["rw", "auto", "noauto", "user", "users", "nouser", "defaults", "nofail", "exec", "nosuid", "nodev", "_netdev"];

fn options(arguments: &Arguments) -> Result<MountOptions> {
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let mut options = MountOptions {
        source: std::path::absolute(&arguments.disk).unwrap_or_default().to_string_lossy().into_owned(),
        order: Order::Strict,
        allow_other: arguments.allow_other,
        suid: false,
        dev: false,
        noexec: false,
        read_only: arguments.read_only,
        auto_unmount: false,
        threads: arguments.threads.unwrap_or((2 * threads).clamp(4, 64)),
        transport: Transport::Either,
    };
    for option in &arguments.option {
        match option.as_str() {
            "strict" => options.order = Order::Strict,
            "relaxed" => options.order = Order::Relaxed,
            "suid" => options.suid = true,
            "dev" => options.dev = true,
            "noexec" => options.noexec = true,
            "ro" => options.read_only = true,
            "allow_other" => options.allow_other = true,
            "auto_unmount" => options.auto_unmount = true,
            "ring" => options.transport = Transport::Ring,
            "noring" => options.transport = Transport::Device,
            known if KNOWN.contains(&known) || known.starts_with("x-") || known.starts_with("comment=") => {}
            other => return Err(Failure::usage(format!("-o {other}: there is no such option"))),
        }
    }
    Ok(options)
}

/// Mounts it, and stays until it is unmounted; or has a process of its own do so.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let options = options(arguments)?;
    if !arguments.foreground {
        return in_background();
    }
    // Before anything can be waited for, so that a signal is never lost.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|error| Failure::io("mount: catching signals", error))?;
    ready(&arguments.directory)?;
    let started = Instant::now();
    let opening = OpenOptions { read_only: options.read_only, ..OpenOptions::default() };
    let opened = image::open_with(&arguments.disk, &opening)?;
    image::closing(opened, |disk| {
        space::log(&arguments.disk, disk);
        let fs = FileSystem::open(disk, time())?;
        let took = started.elapsed();
        let mount =
            Mount::new(fs, &arguments.directory, &options).map_err(|error| refused(&arguments.directory, error))?;
        let shelf = Arc::new(Shelf::default());
        let control = Control::start(&arguments.disk, disk, &shelf);
        let chores = Chores::start(disk, options.read_only, false);
        let (disk_name, directory) = (image::show(&arguments.disk), image::show(&arguments.directory));
        let over = if mount.has_ring() { ", over io_uring" } else { "" };
        output::line(format!("{disk_name}: on {directory} after {:.1} ms{over}", took.as_secs_f64() * 1e3))?;
        output::line("ready")?;
        while !mount.is_over() && signals.pending().next().is_none() {
            std::thread::sleep(LOOK);
        }
        chores.stop();
        if let Ok(control) = control {
            control.drain(Duration::from_secs(10));
        }
        mount.unmount().map_err(|error| Failure::io(format!("unmounting {directory}"), error))?.sync()?;
        Ok(Code::Done)
    })
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

/// Begins a process that mounts it, and waits until it has.
fn in_background() -> Result<Code> {
    let failed = |error| Failure::io("mount: going into the background", error);
    let own = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(own);
    command.args(std::env::args_os().skip(1)).arg("--foreground");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let told = child.stdout.take().expect("asked for");
    for line in BufReader::new(told).lines() {
        let line = line.map_err(failed)?;
        if line == "ready" {
            return Ok(Code::Done);
        }
        output::line(line)?;
    }
    let status = child.wait().map_err(failed)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).and_then(Code::from_number);
    // It has said why.
    Ok(code.unwrap_or(Code::Io))
}
