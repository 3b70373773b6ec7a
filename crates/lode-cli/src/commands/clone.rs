//! `lode clone`: writable clones of what a snapshot sees.

use super::unit;
use super::volume::change;
use crate::failure::{Code, Failure, Result};
use crate::text;
use clap::Subcommand;
use lode::{Disk, UnitOptions};
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  lode snapshot create disk.lode monday
  lode clone create disk.lode try monday
  lode clone copy disk.lode try try-else
  nbdcopy new.raw 'nbd+unix:///data%3Funit=try?socket=/tmp/lode.sock'
  lode clone merge disk.lode try
  lode clone drop disk.lode try

A clone is a unit that sees a snapshot: made in no time, it costs what is written to it. Its volumes
are the exports VOLUME?unit=NAME of `lode serve` (in a URI, VOLUME%3Funit=NAME). It lives, through
restarts and crashes, until what was written to it is merged into the volumes as they are then, all
at once, or dropped. The snapshot's name may be deleted before. A clone of a clone copies what was
written to that one so far; from then on neither sees what is written to the other.";

/// What `lode clone` takes.
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Command {
    /// Make a clone of what a snapshot sees
    #[command(after_help = EXAMPLES)]
    Create {
        /// The disk
        disk: PathBuf,
        /// The name of the clone
        name: String,
        /// The snapshot
        snapshot: String,
        /// Drop it after so long, unless somebody is connected to it (10m, 2h, 7days)
        #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
        keep: Option<Duration>,
    },
    /// Make a clone of a clone, as it is now
    Copy {
        /// The disk
        disk: PathBuf,
        /// The clone that there is
        clone: String,
        /// The name of the new one
        name: String,
        /// Drop it after so long, unless somebody is connected to it (10m, 2h, 7days)
        #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
        keep: Option<Duration>,
    },
    /// List the clones, and other open units
    List {
        /// The disk
        disk: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write what was written to a clone to the volumes as they are now, all or nothing
    Merge {
        /// The disk
        disk: PathBuf,
        /// The clone
        name: String,
    },
    /// Drop a clone with all that was written to it
    Drop {
        /// The disk
        disk: PathBuf,
        /// The clone
        name: String,
    },
}

/// Runs one of them.
pub fn run(command: &Command) -> Result<Code> {
    match command {
        Command::Create { disk, name, snapshot, keep } => {
            let label = unit::labelled(name, *keep, Some(snapshot.clone()));
            change(disk, |disk| unit::begin(disk, &label, &UnitOptions::default()))
        }
        Command::Copy { disk, clone, name, keep } => {
            let label = unit::labelled(name, *keep, None);
            change(disk, |disk| is_clone(disk, clone, "list").and_then(|()| unit::copy(disk, clone, &label)))
        }
        Command::List { disk, json } => unit::list(disk, *json, "no clones"),
        Command::Merge { disk, name } => {
            change(disk, |disk| is_clone(disk, name, "commit").and_then(|()| unit::commit(disk, name)))
        }
        Command::Drop { disk, name } => {
            change(disk, |disk| is_clone(disk, name, "abort").and_then(|()| unit::abort(disk, name)))
        }
    }
}

/// Another unit ends by another command, so that a wrong name ends no work of somebody else.
fn is_clone(disk: &Disk, name: &str, instead: &str) -> Result<()> {
    let found = disk.units()?.into_iter().find(|unit| unit.label == name);
    match found.map(|unit| unit.snapshot.is_some()) {
        Some(true) => Ok(()),
        Some(false) => {
            let words = format!("{}: expected a clone, found a unit (lode unit {instead})", text::safe(name));
            Err(Failure::usage(words))
        }
        None => Err(Failure::new(Code::NotFound, format!("there is no clone {}", text::safe(name)))),
    }
}
