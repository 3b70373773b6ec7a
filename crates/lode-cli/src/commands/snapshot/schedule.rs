//! `lode snapshot schedule`: snapshots that the disk takes, and deletes, by itself.

use crate::chores::when;
use crate::commands::volume::change;
use crate::failure::{Code, Result};
use crate::{image, output, text};
use clap::Subcommand;
use lode::SnapshotSchedule;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  lode snapshot schedule set disk.lode hourly --every 1h --keep 24
  lode snapshot schedule set disk.lode daily --every 1day --keep 30 --volume data
  lode snapshot schedule list disk.lode
  lode snapshot schedule remove disk.lode hourly

The disk keeps its schedules. While it is served, its server takes each snapshot when it is due, and
deletes the oldest of a schedule when there are more than it keeps. `lode snapshot schedule run`
does so once, for disks that are not served. A snapshot is named SCHEDULE-TIME; one that a person
took is never deleted.";

/// What `lode snapshot schedule` takes.
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Command {
    /// Make a schedule, or change one
    #[command(after_help = EXAMPLES)]
    Set {
        /// The disk
        disk: PathBuf,
        /// The name of the schedule
        name: String,
        /// From one snapshot to the next (10m, 1h, 1day)
        #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
        every: Duration,
        /// How many are kept
        #[arg(long, value_name = "COUNT")]
        keep: u64,
        /// Of this volume only; may be given again
        #[arg(long, value_name = "NAME")]
        volume: Vec<String>,
        /// Of the ordered lists only, all of them; or of these and of the volumes named
        #[arg(long)]
        lists: bool,
    },
    /// List the schedules
    List {
        /// The disk
        disk: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Forget a schedule; its snapshots stay
    Remove {
        /// The disk
        disk: PathBuf,
        /// The schedule
        name: String,
    },
    /// Do now what is due
    Run {
        /// The disk
        disk: PathBuf,
    },
}

/// Runs one of them.
pub fn run(command: &Command) -> Result<Code> {
    match command {
        Command::Set { disk, name, every, keep, volume, lists } => {
            let every = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX);
            let (name, volumes) = (name.clone(), volume.clone());
            let schedule = SnapshotSchedule { name, every, keep: *keep, volumes, lists: *lists };
            change(disk, |disk| Ok(disk.set_schedule(&schedule).map(drop)?))
        }
        Command::List { disk, json } => list(disk, *json),
        Command::Remove { disk, name } => change(disk, |disk| Ok(disk.remove_schedule(name).map(drop)?)),
        Command::Run { disk } => change(disk, |disk| {
            let done = disk.run_schedules(crate::now(), &when)?;
            for (names, what) in [(done.taken, "taken"), (done.deleted, "deleted")] {
                for name in names {
                    output::line(format!("{}: {what}", text::safe(&name)))?;
                }
            }
            Ok(())
        }),
    }
}

#[derive(Serialize)]
struct Listed {
    name: String,
    every_seconds: u64,
    keep: u64,
    /// None, and not of the ordered lists: of all that there is.
    volumes: Vec<String>,
    lists: bool,
}

fn list(path: &Path, json: bool) -> Result<Code> {
    let listed = |schedule: SnapshotSchedule| Listed {
        every_seconds: schedule.every / 1_000_000_000,
        name: schedule.name,
        keep: schedule.keep,
        volumes: schedule.volumes,
        lists: schedule.lists,
    };
    let all: Vec<Listed> =
        image::closing(image::open_read_only(path)?, |disk| Ok(disk.schedules().into_iter().map(listed).collect()))?;
    if json {
        output::json(&all)?;
        return Ok(Code::Done);
    }
    let mut rows = vec![["NAME", "EVERY", "KEEPS", "VOLUMES", "LISTS"].map(String::from).to_vec()];
    for schedule in &all {
        let all = schedule.volumes.is_empty() && !schedule.lists;
        let volumes = if all { "all".into() } else { schedule.volumes.join(" ") };
        rows.push(vec![
            text::safe(&schedule.name),
            humantime::format_duration(Duration::from_secs(schedule.every_seconds)).to_string(),
            schedule.keep.to_string(),
            text::safe(&volumes),
            text::yes_no(all || schedule.lists),
        ]);
    }
    output::print(&text::table(&rows))?;
    Ok(Code::Done)
}
