//! `lode check`: every invariant of the disk, verified from the medium alone.

use crate::failure::{Code, Failure, Result};
use crate::{image, output, size, text};
use lode::{CheckReport, Disk};
use lode_media::file::Access;
use serde::Serialize;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  lode check disk.lode && echo sound
  lode check disk.lode --json | jq -r '.problems[]'

Exit code 0: sound. 1: damaged. The disk is not written to.";

/// What `lode check` takes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The disk
    disk: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown {
    sound: bool,
    problems: Vec<String>,
    lists: u64,
    blocks: u64,
    live_bytes: u64,
    segments: u32,
    last: u64,
}

impl From<CheckReport> for Shown {
    fn from(report: CheckReport) -> Self {
        Shown {
            sound: report.problems.is_empty(),
            problems: report.problems,
            lists: report.lists,
            blocks: report.blocks,
            live_bytes: report.live_bytes,
            segments: report.segments,
            last: report.last.0,
        }
    }
}

impl Shown {
    /// A disk that cannot even be read as one has that as its problem.
    fn beyond_reading(failure: &Failure) -> Self {
        let problems = vec![failure.words().to_owned()];
        Shown { sound: false, problems, lists: 0, blocks: 0, live_bytes: 0, segments: 0, last: 0 }
    }
}

/// Checks the disk.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let shown = match report(arguments) {
        Ok(report) => Shown::from(report),
        Err(failure) if failure.code() == Code::Damaged => Shown::beyond_reading(&failure),
        Err(failure) => return Err(failure),
    };
    if arguments.json {
        output::json(&shown)?;
    } else {
        output::print(&describe(&shown))?;
    }
    Ok(if shown.sound { Code::Done } else { Code::Damaged })
}

fn report(arguments: &Arguments) -> Result<CheckReport> {
    let medium = image::medium(&arguments.disk, Access::ReadOnly)?;
    Ok(Disk::check(medium)?)
}

fn describe(shown: &Shown) -> String {
    let mut words: String = shown.problems.iter().map(|problem| format!("{}\n", text::safe(problem))).collect();
    let verdict = match shown.problems.len() {
        0 => "sound".to_owned(),
        1 => "DAMAGED: 1 problem".to_owned(),
        n => format!("DAMAGED: {n} problems"),
    };
    let live = size::show(shown.live_bytes);
    words.push_str(&format!(
        "{verdict}; {} lists, {} blocks, {live} live in {} segments, up to position {}\n",
        shown.lists, shown.blocks, shown.segments, shown.last
    ));
    words
}
