//! `lode snapshot`: take, list and delete snapshots, and go back to one.

mod schedule;

use super::volume::change;
use crate::failure::{Code, Result};
use crate::{image, output, size, text};
use clap::Subcommand;
use lode::{SnapshotInfo, SnapshotOptions};
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

const EXAMPLES: &str = "\
Examples:
  lode snapshot create disk.lode monday
  lode snapshot create disk.lode before-upgrade --volume data
  lode snapshot list disk.lode
  lode export disk.lode data@monday monday.raw
  lode snapshot rollback disk.lode monday --volume data
  lode snapshot delete disk.lode monday

A snapshot is taken at one instant and takes no time, however large the disk is. It is read-only:
NAME@SNAPSHOT names a volume as the snapshot sees it, for `lode export` and as an export of
`lode serve`. What is overwritten afterwards keeps its space until the snapshot is deleted.";

/// What `lode snapshot` takes.
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Command {
    /// Take a snapshot of all volumes, or of some
    #[command(after_help = EXAMPLES)]
    Create {
        /// The disk
        disk: PathBuf,
        /// The name of the snapshot
        name: String,
        /// Of this volume only; may be given again
        #[arg(long, value_name = "NAME")]
        volume: Vec<String>,
        /// Of the ordered lists only, all of them; or of these and of the volumes named
        #[arg(long)]
        lists: bool,
    },
    /// List the snapshots, oldest first
    List {
        /// The disk
        disk: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a volume what it was in a snapshot, all or nothing
    Rollback {
        /// The disk
        disk: PathBuf,
        /// The snapshot
        name: String,
        /// The volume
        #[arg(long, value_name = "NAME")]
        volume: String,
    },
    /// Take one every so often, and keep so many
    #[command(subcommand)]
    Schedule(schedule::Command),
    /// Delete a snapshot; what only it holds is given back
    Delete {
        /// The disk
        disk: PathBuf,
        /// The snapshot
        name: String,
    },
}

/// Runs one of them.
pub fn run(command: &Command) -> Result<Code> {
    match command {
        Command::Create { disk, name, volume, lists } => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let made = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
            let options = SnapshotOptions { volumes: volume.clone(), lists: *lists, made };
            change(disk, |disk| Ok(disk.take_snapshot(name, &options).map(drop)?))
        }
        Command::Rollback { disk, name, volume } => change(disk, |disk| {
            Ok(disk.volume(volume)?.roll_back(&disk.volume(&format!("{volume}@{name}"))?).map(drop)?)
        }),
        Command::Delete { disk, name } => change(disk, |disk| Ok(disk.delete_snapshot(name).map(drop)?)),
        Command::List { disk, json } => list(disk, *json),
        Command::Schedule(command) => schedule::run(command),
    }
}

#[derive(Serialize)]
struct Listed {
    name: String,
    made: String,
    volumes: Vec<String>,
    /// Whether it is of the ordered lists.
    lists: bool,
    /// What comes back when it is deleted.
    held_bytes: u64,
}

impl Listed {
    fn new(snapshot: SnapshotInfo, held_bytes: u64) -> Self {
        let made = SystemTime::UNIX_EPOCH + Duration::from_nanos(snapshot.made);
        let made = humantime::format_rfc3339_seconds(made).to_string();
        Listed { name: snapshot.name, made, volumes: snapshot.volumes, lists: snapshot.lists, held_bytes }
    }
}

fn list(path: &std::path::Path, json: bool) -> Result<Code> {
    let snapshots = image::closing(image::open_read_only(path)?, |disk| {
        let held = |snapshot: SnapshotInfo| {
            let bytes = disk.snapshot_space(&snapshot.name)?;
            Ok(Listed::new(snapshot, bytes))
        };
        disk.snapshots().into_iter().map(held).collect::<Result<Vec<Listed>>>()
    })?;
    if json {
        output::json(&snapshots)?;
        return Ok(Code::Done);
    }
    let mut rows = vec![["NAME", "TAKEN", "HOLDS", "VOLUMES", "LISTS"].map(String::from).to_vec()];
    for snapshot in &snapshots {
        rows.push(vec![
            text::safe(&snapshot.name),
            snapshot.made.clone(),
            size::show(snapshot.held_bytes),
            text::safe(&snapshot.volumes.join(" ")),
            text::yes_no(snapshot.lists),
        ]);
    }
    output::print(&text::table(&rows))?;
    Ok(Code::Done)
}
