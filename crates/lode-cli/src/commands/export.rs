//! `lode export`: write a volume to a file, its holes as holes. The disk is never written to.

pub mod target;

use crate::failure::{Code, Failure, Result};
use crate::progress::Progress;
use crate::{image, size, text};
use lode::Volume;
use std::path::PathBuf;
use target::Target;

const EXAMPLES: &str = "\
Examples:
  lode export disk.lode data image.raw
  lode export disk.lode data - | zstd > image.raw.zst
  lode export disk.lode data@monday monday.raw

A file appears under its name only when it is whole. One that exists is refused without --force.";

/// How much is read and written at a time.
const PIECE: u64 = 1 << 20;

/// What `lode export` takes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The disk
    disk: PathBuf,
    /// The volume; NAME@SNAPSHOT: as that snapshot sees it
    name: String,
    /// The file or block device to write, or - for standard output
    file: PathBuf,
    /// Replace a file that exists, or what a device holds
    #[arg(long)]
    force: bool,
}

/// Exports the volume.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let disk = image::open_read_only(&arguments.disk)?;
    image::closing(disk, |disk| {
        let volume = disk.volume(&arguments.name)?;
        let mut target = Target::open(&arguments.file, &arguments.disk, volume.bytes(), arguments.force)?;
        copy(&volume, &mut target)?;
        target.finish()?;
        if !target::is_stream(&arguments.file) {
            let (name, bytes) = (text::safe(&arguments.name), size::show(volume.bytes()));
            crate::output::line(format!("{name}: {bytes} exported to {}", image::show(&arguments.file)))?;
        }
        Ok(Code::Done)
    })
}

fn copy(volume: &Volume, target: &mut Target) -> Result<()> {
    let len = volume.bytes();
    let mut progress = Progress::bytes("exporting", Some(len));
    let mut piece = vec![0; usize::try_from(PIECE).expect("a piece is small")];
    // Extents are asked for a gibibyte at a time, so that their list stays short.
    const WINDOW: u64 = 1 << 30;
    let mut at = 0;
    while at < len {
        let window = WINDOW.min(len - at);
        for extent in volume.extents(at, window)? {
            let (mut from, end) = (extent.offset, extent.offset + extent.bytes);
            if !extent.allocated {
                target.hole(from, extent.bytes)?;
                continue;
            }
            while from < end {
                let bytes = PIECE.min(end - from);
                let into = &mut piece[..usize::try_from(bytes).expect("a piece is small")];
                volume.read_at(from, into).map_err(|error| Failure::from(error).during("reading the volume"))?;
                target.data(from, into)?;
                from += bytes;
                progress.set(from)?;
            }
        }
        at += window;
    }
    Ok(())
}
