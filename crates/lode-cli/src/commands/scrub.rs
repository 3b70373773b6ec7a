//! `lode scrub`: read and verify every stored block.

use crate::failure::{Code, Result};
use crate::progress::Progress;
use crate::{image, output, size, text};
use lode::{Damage, ScrubReport};
use serde::Serialize;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  lode scrub disk.lode
  lode scrub disk.lode --json | jq '.damaged[].volume'

Exit code 0: every block reads back as it was written. 1: some do not. The disk is not written to.";

/// What `lode scrub` takes.
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
    blocks: u64,
    bytes: u64,
    damaged: Vec<Place>,
}

#[derive(Serialize)]
struct Place {
    volume: String,
    block: u64,
    place: String,
    problem: String,
}

impl From<Damage> for Place {
    fn from(damage: Damage) -> Self {
        Place { volume: damage.volume, block: damage.block, place: damage.place, problem: damage.problem }
    }
}

impl From<ScrubReport> for Shown {
    fn from(report: ScrubReport) -> Self {
        let damaged: Vec<Place> = report.damaged.into_iter().map(Place::from).collect();
        Shown { sound: damaged.is_empty(), blocks: report.blocks, bytes: report.bytes, damaged }
    }
}

/// Scrubs the disk.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let disk = image::open_read_only(&arguments.disk)?;
    let shown: Shown = image::closing(disk, |disk| {
        let mut progress = Progress::bytes("verifying", Some(0));
        let report = disk.scrub(&mut |done, total| {
            progress.set_total(total);
            progress.advance(done)
        })?;
        progress.finish()?;
        Ok(report.into())
    })?;
    if arguments.json {
        output::json(&shown)?;
    } else {
        output::print(&describe(&shown))?;
    }
    Ok(if shown.sound { Code::Done } else { Code::Damaged })
}

fn describe(shown: &Shown) -> String {
    let line = |at: &Place| {
        let (volume, problem) = (text::safe(&at.volume), text::safe(&at.problem));
        format!("volume {volume}, block {}, at {}: {problem}\n", at.block, text::safe(&at.place))
    };
    let mut words: String = shown.damaged.iter().map(line).collect();
    let verdict = match shown.damaged.len() {
        0 => "sound".to_owned(),
        n => format!("DAMAGED: {n} blocks"),
    };
    words.push_str(&format!("{verdict}; {} blocks read, {}\n", shown.blocks, size::show(shown.bytes)));
    words
}
