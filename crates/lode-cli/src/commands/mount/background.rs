//! A process of its own that mounts, stays, and belongs to nobody.

use super::{Arguments, helper};
use crate::failure::{Code, Failure, Result};
use crate::output;
use rustix::fs::{FileType, Mode, OFlags};
use std::io::{BufRead, BufReader};
use std::path::absolute;
use std::process::{Command, Stdio};

/// What the process prints once everything is as it was asked for.
pub const READY: &str = "ready";

/// Begins it, and waits until it has mounted.
pub fn begin(quiet: bool) -> Result<Code> {
    let failed = |error| Failure::io("mount: going into the background", error);
    let own = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(own);
    command.args(helper::translated(std::env::args_os().collect()).into_iter().skip(1)).arg("--daemon");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let told = child.stdout.take().expect("asked for");
    for line in BufReader::new(told).lines() {
        let line = line.map_err(failed)?;
        if line == READY {
            return Ok(Code::Done);
        }
        if !quiet {
            output::line(line)?;
        }
    }
    let status = child.wait().map_err(failed)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok()).and_then(Code::from_number);
    // It has said why.
    Ok(code.unwrap_or(Code::Io))
}

/// In that process, at its beginning: the terminal and its signals are no longer its own, and paths mean the same wherever
/// it is.
pub fn settle(arguments: &mut Arguments) -> Result<()> {
    let failed = |error: std::io::Error| Failure::io("mount: going into the background", error);
    // A process that leads a session already belongs to no other.
    let _ = rustix::process::setsid();
    arguments.disk = absolute(&arguments.disk).map_err(failed)?;
    arguments.directory = absolute(&arguments.directory).map_err(failed)?;
    if let Some(socket) = &mut arguments.at.socket {
        *socket = absolute(&*socket).map_err(failed)?;
    }
    Ok(())
}

/// Once it has said that it is ready: it holds up nobody who waits for the end of an output, and no directory. What it says
/// of space goes on if that is a file.
pub fn let_go() -> Result<()> {
    let failed = |error: rustix::io::Errno| Failure::io("mount: going into the background", error.into());
    let nowhere = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    rustix::stdio::dup2_stdout(&nowhere).map_err(failed)?;
    let told = rustix::fs::fstat(rustix::stdio::stderr()).map(|found| FileType::from_raw_mode(found.st_mode));
    if told != Ok(FileType::RegularFile) {
        rustix::stdio::dup2_stderr(&nowhere).map_err(failed)?;
    }
    rustix::process::chdir("/").map_err(failed)
}
