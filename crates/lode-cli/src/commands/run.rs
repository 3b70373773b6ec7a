//! `lode run`: a command whose changes to a mounted file system count together, or not at all.

use crate::failure::{Code, Failure, Result};
use crate::{image, session};
use lode_fuse::control::{Question, Refused, ask};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const EXAMPLES: &str = "\
Examples:
  lode run /mnt -- sh -c 'make && make install'
  lode run /mnt --keep upgrade -- ./upgrade.sh
  lode run /mnt --retry 3 -- git -C /mnt/repo pull

The command, and all that it starts, see DIR as it is now, with their own changes; nobody else sees
these. If it ends with 0 they count, all at one instant; with anything else, a signal or a crash
they are dropped. Files elsewhere are not part of it.

If others have changed meanwhile what the command changed or read, nothing is done: a message names
the path, and the exit code is 10. --retry runs the command again then. With --loose only what both
have changed is a conflict.

A command may use `lode run` on DIR itself: that one counts in this one when it ends with 0, and for
others when this one does.

--keep leaves it open under a name instead, also after a crash: `lode txn` lists, compares, enters,
commits or aborts it. What cannot be dropped: what was sent to sockets, signals, other mounts, and
changes by files that were open before.

It needs a mount namespace of its own: root has one, others if the kernel permits user namespaces.";

/// What `lode run` takes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// A directory of a mounted file system; all of that file system is seen so
    directory: PathBuf,
    /// Leave the changes open under this name
    #[arg(long, value_name = "NAME")]
    keep: Option<String>,
    /// How often the command is run again if others are in the way
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "keep")]
    retry: u32,
    /// Only what others have changed is a conflict, not what was read
    #[arg(long)]
    loose: bool,
    /// The command
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        let words = refused.to_string();
        let Refused::Status(error, _) = refused else { return Failure::new(Code::NotFound, words) };
        use rustix::io::Errno;
        let code = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::CANCELED) => Code::Conflict,
            Some(Errno::NOSPC) => Code::Full,
            Some(Errno::NOENT) => Code::NotFound,
            Some(Errno::EXIST) => Code::Exists,
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Code::Denied,
            Some(Errno::INVAL) => Code::Usage,
            _ => Code::Io,
        };
        Failure::new(code, words)
    }
}

/// Where a file system is mounted that a path lies in: the longest mount point above it that is one of ours.
pub fn mounted(path: &Path) -> Result<PathBuf> {
    let shown = || image::show(path);
    let whole = path.canonicalize().map_err(|error| Failure::io(shown(), error))?;
    let failed = |error| Failure::io("/proc/self/mountinfo", error);
    let mut mounts = Vec::new();
    session::open(Path::new("/proc/self/mountinfo"))?.read_to_end(&mut mounts).map_err(failed)?;
    let points = mounts.split(|byte| *byte == b'\n').filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let behind = fields.iter().position(|field| *field == b"-")?;
        let ours = [&b"fuse"[..], b"fuse.lode"].contains(fields.get(behind + 1)?);
        Some((unescaped(fields.get(4)?), ours))
    });
    let above = points.filter(|(point, _)| whole.starts_with(point));
    let found = above.max_by_key(|(point, _)| point.as_os_str().len());
    match found {
        Some((point, true)) => Ok(point),
        _ => Err(Failure::new(Code::NotFound, format!("{}: not in a mounted file system of Lode", shown()))),
    }
}

/// A field of mountinfo: `\040` is a space.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut at = 0;
    while at < field.len() {
        let octal = (field[at] == b'\\').then(|| field.get(at + 1..at + 4)).flatten();
        let value = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(value.unwrap_or(field[at]));
        at += if value.is_some() { 4 } else { 1 };
    }
    PathBuf::from(std::ffi::OsStr::from_bytes(&bytes))
}

/// Runs a command that sees a transaction where the file system is mounted.
pub fn within(point: &Path, number: u64, command: &[OsString]) -> Result<ExitStatus> {
    let failed = |error| Failure::io("run: beginning a mount namespace with `unshare` (package util-linux)", error);
    let here = std::env::current_dir().map_err(failed)?;
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    unshare.args(["--mount", "--propagation", "private", "--", "sh", "-c"]);
    unshare.arg("mount --no-mtab --bind \"$1\" \"$2\" && cd \"$3\" && shift 3 && exec \"$@\"").arg("sh");
    unshare.arg(point.join(".txn").join(number.to_string())).arg(point).arg(here).args(command);
    // It ends with the command, which gets the signals of the terminal as well; the others are passed on.
    let told: Vec<(i32, Arc<AtomicBool>)> = [SIGTERM, SIGHUP, SIGINT, SIGQUIT]
        .into_iter()
        .map(|signal| (signal, Arc::new(AtomicBool::new(false))))
        .collect();
    for (signal, flag) in &told {
        signal_hook::flag::register(*signal, Arc::clone(flag)).map_err(failed)?;
    }
    let mut child = unshare.spawn().map_err(failed)?;
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        let asked = told
            .iter()
            .find(|(signal, flag)| flag.swap(false, Ordering::Relaxed) && [SIGTERM, SIGHUP].contains(signal));
        if asked.is_some() {
            let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
            let _ = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM));
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// Ends this process as the command has ended.
pub fn end_as(status: ExitStatus) -> ! {
    std::process::exit(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

/// Runs it; again, as often as it is asked for, if others are in the way.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let point = mounted(&arguments.directory)?;
    let mut left = arguments.retry;
    loop {
        let (number, _) = ask(&point, &Question::Begin(arguments.loose))?;
        let status = match within(&point, number, &arguments.command) {
            Ok(status) => status,
            Err(failure) => {
                let _ = ask(&point, &Question::Abort(number));
                return Err(failure);
            }
        };
        if let Some(name) = &arguments.keep {
            let kept = ask(&point, &Question::Keep(number, name.clone()));
            if kept.is_err() {
                let _ = ask(&point, &Question::Abort(number));
            }
            kept?;
            if status.success() {
                return Ok(Code::Done);
            }
            end_as(status);
        }
        if !status.success() {
            ask(&point, &Question::Abort(number))?;
            end_as(status);
        }
        match ask(&point, &Question::Commit(number)) {
            Ok(_) => return Ok(Code::Done),
            Err(refused) => {
                let failure = Failure::from(refused);
                let _ = ask(&point, &Question::Abort(number));
                if failure.code() != Code::Conflict || left == 0 {
                    return Err(failure);
                }
                left -= 1;
            }
        }
    }
}
