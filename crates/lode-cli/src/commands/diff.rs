//! `lode diff`: which bytes of a volume changed since a snapshot, from the tables alone.

use crate::failure::{Code, Result};
use crate::{image, output, size, text};
use serde::Serialize;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  lode diff disk.lode data monday              since the snapshot monday
  lode diff disk.lode data monday tuesday      between two snapshots
  lode diff disk.lode data monday --json

No data is read: what was written again with the same bytes counts as changed.";

/// What `lode diff` takes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The disk
    disk: PathBuf,
    /// The volume
    volume: String,
    /// The older snapshot
    from: String,
    /// The newer snapshot; without it, now
    to: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Changed {
    offset: u64,
    bytes: u64,
}

/// Shows what changed.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let Arguments { volume, from, to, .. } = arguments;
    let changes = image::closing(image::open_read_only(&arguments.disk)?, |disk| {
        let newer = to.as_ref().map_or_else(|| volume.clone(), |to| format!("{volume}@{to}"));
        Ok(disk.volume(&newer)?.changes_since(&disk.volume(&format!("{volume}@{from}"))?)?)
    })?;
    let changes: Vec<Changed> =
        changes.into_iter().map(|range| Changed { offset: range.start, bytes: range.end - range.start }).collect();
    if arguments.json {
        output::json(&changes)?;
        return Ok(Code::Done);
    }
    let mut rows = vec![["OFFSET", "LENGTH"].map(String::from).to_vec()];
    rows.extend(changes.iter().map(|changed| vec![changed.offset.to_string(), changed.bytes.to_string()]));
    output::print(&text::table(&rows))?;
    let bytes = changes.iter().map(|changed| changed.bytes).sum();
    output::line(format!("{} in {} ranges", size::show(bytes), changes.len()))?;
    Ok(Code::Done)
}
