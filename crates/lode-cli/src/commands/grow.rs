//! `lode grow`: make a disk larger.

use crate::failure::{Code, Result};
use crate::{image, output, size};
use lode::Disk;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  lode grow disk.lode 20GiB
  lode grow /dev/sdx

Adds zones at the end; a file is made longer, with its space reserved. Without a size the disk takes
all of a device, or of a file, that has become larger. A disk never becomes smaller. Interrupted, it
has its old size or the new one. How far it can grow depends on the size of its zones, which was
chosen by its first size.";

/// What `lode grow` takes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The disk
    disk: PathBuf,
    /// The new size of the image, cut to whole zones [default: what is there]
    #[arg(value_parser = size::parse)]
    size: Option<u64>,
    /// Print JSON, all sizes in bytes
    #[arg(long)]
    json: bool,
}

#[derive(serde::Serialize)]
struct Shown {
    before: u64,
    image: u64,
    usable: u64,
}

/// Makes the disk larger.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let shown = image::closing(image::open(&arguments.disk)?, |disk| grow(disk, arguments.size))?;
    if arguments.json {
        output::json(&shown)?;
    } else {
        let path = image::show(&arguments.disk);
        let (image, usable) = (size::show(shown.image), size::show(shown.usable));
        let words = if shown.image == shown.before {
            format!("{path}: {image} as before, {usable} of it usable")
        } else {
            format!("{path}: {image} instead of {}, {usable} of it usable", size::show(shown.before))
        };
        output::line(words)?;
    }
    Ok(Code::Done)
}

fn grow(disk: &Disk, size: Option<u64>) -> Result<Shown> {
    let before = disk.info()?.image;
    let image = disk.grow(size)?;
    Ok(Shown { before, image, usable: disk.info()?.usable })
}
