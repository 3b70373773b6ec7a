//! `lode recluster`: put the blocks of volumes next to each other again.

use crate::failure::{Code, Result};
use crate::progress::Progress;
use crate::{image, output, size, text};
use lode::Survive;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  lode recluster disk.lode
  lode recluster disk.lode data

Blocks that were overwritten at random lie scattered, which makes reading in order slow. This moves
what lies scattered, in order, and leaves the rest as it is. Interrupted, it has done a part.";

/// What `lode recluster` takes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The disk
    disk: PathBuf,
    /// The volume; all volumes if none is named
    name: Option<String>,
}

/// Goes through the volumes.
pub fn run(arguments: &Arguments) -> Result<Code> {
    image::closing(image::open(&arguments.disk)?, |disk| {
        let names = arguments.name.as_ref().map_or_else(|| disk.volume_names(), |name| vec![name.clone()]);
        for name in names {
            let before = disk.stretches(&name)?;
            let mut progress = Progress::bytes("reclustering", Some(disk.volume(&name)?.bytes()));
            let moved = disk.recluster(&name, &mut |done, _| progress.advance(done))?;
            progress.finish()?;
            let (name, moved, after) = (text::safe(&name), size::show(moved), disk.stretches(&name)?);
            output::line(format!("{name}: {moved} moved, {before} stretches are {after} now"))?;
        }
        disk.flush(Survive::Power)?;
        Ok(Code::Done)
    })
}
