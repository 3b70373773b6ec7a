//! `lode unit`: units that stay open, to be looked at, committed or aborted.

use super::volume::change;
use crate::failure::{Code, Failure, Result};
use crate::progress::Progress;
use crate::{image, output, session, size, text};
use clap::Subcommand;
use lode::{Disk, Unit, UnitConflicts, UnitId, UnitInfo, UnitLabel, UnitOptions, UnitState, UnitStatus, UnitView};
use lode_fs::is_of_files;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const EXAMPLES: &str = "\
Examples:
  lode unit begin disk.lode upgrade
  nbdcopy new.raw 'nbd+unix:///data%3Funit=upgrade?socket=/tmp/lode.sock'
  lode unit list disk.lode
  lode unit commit disk.lode upgrade

What is written through the export VOLUME?unit=LABEL belongs to the unit LABEL, which begins with
the first connection if it is not open: nobody else sees it before the commit, and then all of it at
once. The unit stays open when its connections end, and after a crash, until it is committed or
aborted. In a URI the question mark of the name is %3F. A unit that began so and was not written to
ends with its last connection.

A commit that is refused (exit code 10, see --conflicts) changes nothing, and leaves the unit open.";

/// What `lode unit` takes.
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Command {
    /// Begin a unit
    #[command(after_help = EXAMPLES)]
    Begin {
        /// The disk
        disk: PathBuf,
        /// The label of the unit
        label: String,
        /// It sees the disk as it is now, whatever others change meanwhile
        #[arg(long)]
        frozen: bool,
        /// When the commit is refused: never, if others changed what it wrote, or also what it read
        #[arg(long, value_name = "WHEN", value_parser = ["never", "written", "read"], default_value = "never")]
        conflicts: String,
        /// Abort it after so long, unless somebody is connected to it (10m, 2h, 7days)
        #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
        keep: Option<Duration>,
    },
    /// List the open units
    List {
        /// The disk
        disk: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make everything that a unit did count, all at once
    Commit {
        /// The disk
        disk: PathBuf,
        /// The label, or the number of one without a label
        unit: String,
    },
    /// End a unit as if it had never been
    Abort {
        /// The disk
        disk: PathBuf,
        /// The label, or the number of one without a label
        unit: String,
    },
    /// Tell what became of a unit
    Status {
        /// The disk
        disk: PathBuf,
        /// Its number, as `lode unit list` shows it
        number: u64,
    },
}

/// Runs one of them.
pub fn run(command: &Command) -> Result<Code> {
    match command {
        Command::Begin { disk, label, frozen, conflicts, keep } => {
            let options = UnitOptions {
                view: if *frozen { UnitView::Frozen } else { UnitView::Moving },
                conflicts: match &conflicts[..] {
                    "written" => UnitConflicts::Written,
                    "read" => UnitConflicts::Read,
                    _ => UnitConflicts::Allowed,
                },
            };
            let label = labelled(label, *keep, None);
            change(disk, |disk| begin(disk, &label, &options))
        }
        Command::List { disk, json } => list(disk, *json, "no open units"),
        Command::Commit { disk, unit } => change(disk, |disk| commit(disk, unit)),
        Command::Abort { disk, unit } => change(disk, |disk| abort(disk, unit)),
        Command::Status { disk, number } => status(disk, *number),
    }
}

/// A label that begins now.
pub(super) fn labelled(label: &str, keep: Option<Duration>, snapshot: Option<String>) -> UnitLabel {
    let made = crate::now();
    let until = keep.map_or(0, |keep| made.saturating_add(u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX)));
    UnitLabel { label: label.to_owned(), made, until, snapshot }
}

/// Units of the file system are its own, under whatever name they are asked for.
fn not_of_files(disk: &Disk, name: &str) -> Result<()> {
    let numbered = || {
        let number = name.parse().ok().map(UnitId)?;
        disk.units().ok()?.into_iter().find(|unit| unit.id == number).map(|unit| unit.label)
    };
    if is_of_files(name) || (disk.unit_labelled(name).is_err() && numbered().is_some_and(|label| is_of_files(&label))) {
        let words =
            "expected a unit of volumes, found one of the file system; `lode txn` lists, commits and aborts those";
        return Err(Failure::usage(format!("{}: {words}", text::safe(name))));
    }
    Ok(())
}

/// Begins a unit that outlives this command.
pub(super) fn begin(disk: &Disk, label: &UnitLabel, options: &UnitOptions) -> Result<()> {
    not_of_files(disk, &label.label)?;
    let unit = outlives(disk.begin_labelled(label, options)?)?;
    output::line(format!("{}: unit {}", text::safe(&label.label), unit.0))
}

/// Leaves a new unit to the disk, with a barrier. Without room for that there is none.
fn outlives(mut unit: Unit) -> Result<UnitId> {
    let id = unit.id();
    match unit.barrier(b"") {
        Ok(_) => Ok(id),
        Err(error) => {
            unit.abort();
            Err(error.into())
        }
    }
}

/// Makes a unit that goes on where another one is, and outlives this command.
pub(super) fn copy(disk: &Disk, name: &str, label: &UnitLabel) -> Result<()> {
    not_of_files(disk, &label.label)?;
    let mut progress = Progress::bytes("copying", None);
    let copied = with(disk, name, |open| {
        let unit = open.as_mut().ok_or_else(|| ended(name))?;
        let copied = unit.copy(label, &mut |done, total| {
            progress.set_total(total);
            progress.advance(done)
        })?;
        copied.map(|copied| outlives(copied.unit)).transpose()
    });
    progress.finish()?;
    match copied? {
        Some(unit) => output::line(format!("{}: unit {}", text::safe(&label.label), unit.0)),
        None => Ok(()), // Nobody wanted it any more.
    }
}

/// Does something with a unit that is open, also if connections are bound to it; what is left of it stays with them.
fn with<T>(disk: &Disk, name: &str, work: impl FnOnce(&mut Option<Unit>) -> Result<T>) -> Result<T> {
    not_of_files(disk, name)?;
    let number = name.parse().ok().map(UnitId);
    match (disk.unit_labelled(name), number, session::shelf()) {
        (Err(_), Some(number), _) => {
            let mut unit = Some(disk.resume_unit(number)?);
            let done = work(&mut unit);
            // Without a label it would end with its handle.
            if let Some(unit) = unit {
                unit.keep();
            }
            done
        }
        (found, _, Some(shelf)) => {
            found.map_err(Failure::from).and_then(|_| work(&mut shelf.resume(disk, name)?.lock().unit))
        }
        (found, _, None) => found.map_err(Failure::from).and_then(|_| work(&mut Some(disk.resume(name)?))),
    }
}

/// Somebody else was faster.
fn ended(name: &str) -> Failure {
    Failure::new(Code::NotFound, format!("unit {} was committed or aborted just now", text::safe(name)))
}

/// Commits a unit by its name.
pub(super) fn commit(disk: &Disk, name: &str) -> Result<()> {
    with(disk, name, |open| commit_open(open, name))
}

fn commit_open(open: &mut Option<Unit>, name: &str) -> Result<()> {
    open.as_mut().ok_or_else(|| ended(name))?.try_commit().map_err(|error| {
        Failure::from(error).during(format!("unit {}: nothing was changed, it is still open", text::safe(name)))
    })?;
    *open = None;
    Ok(())
}

/// Aborts a unit by its name.
pub(super) fn abort(disk: &Disk, name: &str) -> Result<()> {
    let unit = disk.unit_labelled(name).ok().or(name.parse().ok().map(UnitId));
    // With the empty volume that stands for a new one.
    if let Some(receive) = disk.receives()?.into_iter().find(|receive| Some(receive.unit) == unit) {
        return Ok(disk.drop_receive(&receive.volume)?);
    }
    with(disk, name, |open| abort_open(open, name))
}

fn abort_open(open: &mut Option<Unit>, name: &str) -> Result<()> {
    open.take().ok_or_else(|| ended(name))?.abort();
    Ok(())
}

#[derive(Serialize)]
struct Listed {
    unit: u64,
    label: String,
    begun: Option<String>,
    kept_until: Option<String>,
    state: &'static str,
    /// Bytes of the blocks that it had changed at its last barrier.
    changed_bytes: u64,
    /// The snapshot that it sees.
    snapshot: Option<String>,
    damage: Option<String>,
}

/// A moment as it is told; none: it is not known.
pub(super) fn time(nanoseconds: u64) -> Option<String> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds);
    (nanoseconds > 0).then(|| humantime::format_rfc3339_seconds(time).to_string())
}

/// Whether somebody has a unit in hand, in a word.
pub(super) fn state(state: UnitState) -> &'static str {
    match state {
        UnitState::InUse => "in use",
        UnitState::Kept => "kept",
        UnitState::Dormant => "dormant",
    }
}

impl Listed {
    fn new(unit: UnitInfo) -> Self {
        Listed {
            unit: unit.id.0,
            label: unit.label,
            begun: time(unit.made),
            kept_until: time(unit.until),
            state: state(unit.state),
            changed_bytes: unit.bytes,
            snapshot: unit.snapshot.map(|name| if name.is_empty() { "(a moment)".into() } else { name }),
            damage: unit.damage,
        }
    }
}

/// Lists the open units.
pub(super) fn list(path: &Path, json: bool, none: &str) -> Result<Code> {
    let units: Vec<Listed> =
        image::closing(image::open_read_only(path)?, |disk| Ok(disk.units()?.into_iter().map(Listed::new).collect()))?;
    if json {
        output::json(&units)?;
        return Ok(Code::Done);
    }
    if units.is_empty() {
        output::line(none)?;
        return Ok(Code::Done);
    }
    let mut rows =
        vec![["UNIT", "LABEL", "BEGUN", "STATE", "CHANGED", "SEES", "KEPT UNTIL"].map(String::from).to_vec()];
    for unit in &units {
        rows.push(vec![
            unit.unit.to_string(),
            text::safe(&unit.label),
            unit.begun.clone().unwrap_or_default(),
            unit.damage.as_ref().map_or(unit.state, |_| "damaged").to_owned(),
            size::show(unit.changed_bytes),
            text::safe(unit.snapshot.as_deref().unwrap_or("what is committed")),
            unit.kept_until.clone().unwrap_or_else(|| "it ends".into()),
        ]);
    }
    output::print(&text::table(&rows))?;
    Ok(Code::Done)
}

fn status(path: &Path, number: u64) -> Result<Code> {
    let status = image::closing(image::open_read_only(path)?, |disk| Ok(disk.unit_status(UnitId(number))?))?;
    output::line(match status {
        UnitStatus::Open => "open".into(),
        UnitStatus::Committed(position) => format!("committed before position {}", position.0),
        UnitStatus::Aborted => "aborted".into(),
        UnitStatus::Forgotten => "forgotten: it ended too long ago".into(),
    })?;
    Ok(Code::Done)
}

#[cfg(test)]
mod tests;
