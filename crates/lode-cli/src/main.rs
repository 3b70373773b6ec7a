//! The command `lode`: arguments in, words out. It decides nothing that the engine decides.
//!
//! `arguments` says what can be typed, `commands` has one file per sub-command, `bench` measures. On a disk that is being
//! served, `control` has the command run by its server; `session` hides from the command where it runs.
//! Everything that fails comes back as a [`failure::Failure`], which carries the exit code; only this
//! file prints it and ends the process.
#![forbid(unsafe_code)]
// `commands` keep to what `clippy.toml` says.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

mod arguments;
mod bench;
mod chores;
mod commands;
mod control;
mod exports;
mod failure;
mod image;
mod output;
mod progress;
mod random;
mod reservations;
mod serving;
mod session;
mod shelf;
mod size;
mod space;
mod text;

use arguments::Arguments;
use commands::mount::helper;
use control::client::{self, Outcome};
use failure::{Code, Failure, Result};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Now, in nanoseconds since 1970.
fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

fn main() -> ExitCode {
    let code = run().unwrap_or_else(|failure| {
        eprintln!("lode: {}", text::safe(failure.words()));
        failure.code()
    });
    let line: Vec<_> = std::env::args_os().take(1).collect();
    if helper::is_one(&line) { helper::exit_code(code).into() } else { code.into() }
}

/// Runs the command here, or has it run by the server of its disk.
fn run() -> Result<Code> {
    let line = helper::translated(std::env::args_os().collect());
    let (arguments, disk) = Arguments::parse(line.clone()).unwrap_or_else(|error| error.exit());
    let mut unasked = None;
    if let Some(disk) = disk.filter(|_| !arguments.command.needs_the_disk_alone()) {
        match client::run(&disk, line)? {
            Outcome::Done(code) => return Ok(code),
            Outcome::Alone(why) => unasked = why,
        }
    }
    commands::run(arguments.command).map_err(|failure| match unasked {
        Some(why) if failure.code() == Code::Busy => {
            Failure::new(Code::Busy, format!("{}; its server was not asked: {why}", failure.words()))
        }
        _ => failure,
    })
}
