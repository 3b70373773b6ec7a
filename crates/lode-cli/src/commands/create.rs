//! `lode create`: make an empty disk.

use crate::failure::{Code, Failure, Result};
use crate::{image, output, random, size};
use lode::{Disk, FormatOptions};
use lode_media::file::{CreateOptions, RawImage};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  lode create disk.lode --size 10GiB
  lode create /dev/sdx --size 100GiB --force

The target may be a file, which is made, or a block device. A target that holds anything is refused
unless --force is given; then what it held is lost.";

/// What `lode create` takes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The file or block device to make the disk in
    disk: PathBuf,
    /// The size of the image; `lode info` says what of it is usable
    #[arg(long, value_parser = size::parse)]
    size: u64,
    /// The size of a zone, the log's unit of allocation [default: by the size of the image]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    zone_size: Option<u64>,
    /// Replace whatever the target holds
    #[arg(long)]
    force: bool,
}

/// Makes the disk.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let zone = zone_bytes(arguments)?;
    let fresh = !arguments.disk.exists();
    let made = make(arguments, zone);
    if made.is_err() && fresh && is_file(&arguments.disk) {
        // What was begun here is not a disk; leaving it would only refuse the next attempt.
        let _ = std::fs::remove_file(&arguments.disk);
    }
    let usable = made?;
    let (path, image) = (image::show(&arguments.disk), size::show(arguments.size));
    output::line(format!("{path}: a disk of {image}, {} of it usable", size::show(usable)))?;
    Ok(Code::Done)
}

/// The zone size asked for or chosen; refuses, before anything is touched, what cannot become a disk.
fn zone_bytes(arguments: &Arguments) -> Result<u32> {
    let zone = match arguments.zone_size {
        Some(bytes) => u32::try_from(bytes).ok().filter(|bytes| *bytes > 0 && bytes % 4096 == 0).ok_or_else(|| {
            Failure::usage(format!("--zone-size: expected a multiple of 4 KiB below 4 GiB, found {bytes}"))
        })?,
        None => lode::default_zone_bytes(arguments.size),
    };
    let smallest = u64::from(zone) * u64::from(lode::SMALLEST_ZONES);
    if arguments.size < smallest {
        return Err(Failure::usage(format!(
            "--size: expected at least {} ({} zones of {}), found {}",
            size::show(smallest),
            lode::SMALLEST_ZONES,
            size::show(zone.into()),
            size::show(arguments.size)
        )));
    }
    Ok(zone)
}

fn make(arguments: &Arguments, zone: u32) -> Result<u64> {
    let raw = RawImage::create(&arguments.disk, &CreateOptions { bytes: arguments.size, force: arguments.force })?;
    Disk::format(Arc::new(raw.into_medium(zone)?), &FormatOptions { disk_id: random::identity()? })?;
    let disk = image::open_read_only(&arguments.disk)?;
    image::closing(disk, |disk| Ok(disk.info()?.usable))
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && !found.file_type().is_block_device())
}
