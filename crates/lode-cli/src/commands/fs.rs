//! `lode fs`: make a file system on a disk, or verify the one that it has.

use crate::failure::{Code, Failure, Result};
use crate::progress::Progress;
use crate::{image, now, output, random, text};
use lode_fs::{Caller, ErrorKind, FileSystem, MakeOptions, Report, Time};
use serde::Serialize;
use std::path::PathBuf;

const MAKE: &str = "\
Examples:
  lode create disk.lode --size 10GiB
  lode fs make disk.lode
  lode mount disk.lode /mnt

The disk may hold volumes, too; both draw on the same space. The root belongs to whoever makes it.";

const CHECK: &str = "\
Examples:
  lode fs check disk.lode && echo sound

Verifies the tree of names, links, sizes, and what belongs to which file; the disk below it is
verified by `lode check`, the bytes of files by `lode scrub`. A file system is never mended: after a
crash there is nothing to mend, and of what is damaged all the rest can be used. Exit code 0: sound.
1: damaged.";

/// What `lode fs` can do.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Make an empty file system
    Make(Make),
    /// Verify a file system
    Check(Check),
}

/// What `lode fs make` takes.
#[derive(clap::Args)]
#[command(after_help = MAKE)]
pub struct Make {
    /// The disk
    disk: PathBuf,
}

/// What `lode fs check` takes.
#[derive(clap::Args)]
#[command(after_help = CHECK)]
pub struct Check {
    /// The disk
    disk: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What time it is, as a file system has it.
pub fn time() -> Time {
    Time(i64::try_from(now()).unwrap_or(i64::MAX))
}

impl From<lode_fs::Error> for Failure {
    fn from(error: lode_fs::Error) -> Failure {
        let code = match error.kind() {
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::Exists => Code::Exists,
            ErrorKind::Full => Code::Full,
            ErrorKind::ReadOnly => Code::Denied,
            ErrorKind::Conflict => Code::Conflict,
            ErrorKind::NotOurs => Code::NotADisk,
            ErrorKind::Damaged => Code::Damaged,
            ErrorKind::Failed => Code::Io,
            _ => Code::Usage,
        };
        Failure::new(code, error.to_string())
    }
}

/// Does it.
pub fn run(command: &Command) -> Result<Code> {
    match command {
        Command::Make(arguments) => make(arguments),
        Command::Check(arguments) => check(arguments),
    }
}

fn make(arguments: &Make) -> Result<Code> {
    let opened = image::open(&arguments.disk)?;
    image::closing(opened, |disk| {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let caller = Caller { uid, gid, umask: 0, now: time() };
        FileSystem::make(disk, &MakeOptions { key: random::identity()?, caller })?;
        disk.flush(lode::Survive::Power)?;
        Ok(())
    })?;
    output::line(format!("{}: an empty file system", image::show(&arguments.disk)))?;
    Ok(Code::Done)
}

#[derive(Serialize)]
struct Shown {
    sound: bool,
    problems: Vec<String>,
    inodes: u64,
    directories: u64,
    names: u64,
    orphans: u64,
}

fn check(arguments: &Check) -> Result<Code> {
    let opened = image::open_read_only(&arguments.disk)?;
    let mut progress = Progress::bytes("checking", None);
    let report: Report = image::closing(opened, |disk| {
        let fs = FileSystem::open(disk, time())?;
        let report = fs.check(&mut |done, all| {
            progress.set_total(all);
            progress.advance(done)
        })?;
        report.ok_or_else(|| Failure::usage("checking was broken off"))
    })?;
    progress.finish()?;
    let Report { inodes, directories, names, orphans, problems } = report;
    let shown = Shown { sound: problems.is_empty(), problems, inodes, directories, names, orphans };
    if arguments.json {
        output::json(&shown)?;
    } else {
        for problem in &shown.problems {
            output::line(text::safe(problem))?;
        }
        let verdict = if shown.sound { "sound" } else { "DAMAGED" };
        output::line(format!("{verdict}; {inodes} inodes, {directories} directories, {names} names"))?;
    }
    Ok(if shown.sound { Code::Done } else { Code::Damaged })
}
