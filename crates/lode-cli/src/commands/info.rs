//! `lode info`: sizes of a disk.

use crate::failure::{Code, Result};
use crate::{image, output, size, space, text};
use lode::{DiskInfo, SpaceLevel};
use serde::Serialize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  lode info disk.lode
  lode info disk.lode --json | jq .free";

/// What `lode info` takes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The disk
    disk: PathBuf,
    /// Print JSON, all sizes in bytes
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Held {
    snapshot: String,
    bytes: u64,
}

#[derive(Serialize)]
struct Shown {
    disk_id: String,
    format: u16,
    image: u64,
    /// What the image takes of the file system; none for a device.
    allocated: Option<u64>,
    zone: u64,
    zones: u32,
    free_zones: u32,
    usable: u64,
    live: u64,
    reserved: u64,
    free: u64,
    /// Whether that is enough: `ample`, `low` or `critical`.
    space: &'static str,
    snapshots: usize,
    /// What each snapshot holds by itself; looked up only when space is not ample.
    held: Option<Vec<Held>>,
    epoch: u64,
    volumes: usize,
    damaged: Option<String>,
}

impl Shown {
    fn new(info: DiskInfo, allocated: Option<u64>, held: Option<Vec<Held>>) -> Self {
        Shown {
            disk_id: format!("{:032x}", info.disk_id),
            format: info.format,
            image: info.image,
            allocated,
            zone: info.zone,
            zones: info.zones,
            free_zones: info.free_zones,
            usable: info.usable,
            live: info.live,
            reserved: info.reserved,
            free: info.free,
            space: space::word(info.space),
            snapshots: info.snapshots,
            held,
            epoch: info.epoch,
            volumes: info.volumes,
            damaged: info.damaged,
        }
    }
}

/// Shows the disk.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let disk = image::open_read_only(&arguments.disk)?;
    let shown = image::closing(disk, |disk| {
        let info = disk.info()?;
        // It reads what they keep.
        let held = (info.space != SpaceLevel::Ample).then(|| disk.held_by_snapshots()).transpose()?;
        let held = held.map(|held| held.into_iter().map(|(snapshot, bytes)| Held { snapshot, bytes }).collect());
        Ok(Shown::new(info, allocated(&arguments.disk), held))
    })?;
    if arguments.json {
        output::json(&shown)?;
    } else {
        output::print(&describe(&shown))?;
    }
    Ok(if shown.damaged.is_some() { Code::Damaged } else { Code::Done })
}

/// What a file takes of its file system.
fn allocated(path: &Path) -> Option<u64> {
    let found = path.metadata().ok().filter(|found| found.is_file())?;
    // In units of 512 bytes, whatever the file system's blocks are.
    Some(found.blocks() * 512)
}

fn describe(shown: &Shown) -> String {
    let mut lines = vec![
        ("disk", shown.disk_id.clone()),
        ("format", shown.format.to_string()),
        ("image", format!("{} in {} zones of {}", size::show(shown.image), shown.zones, size::show(shown.zone))),
        (
            "taken",
            shown
                .allocated
                .map_or("all of the device".into(), |bytes| format!("{} of the file system", size::show(bytes))),
        ),
        ("usable", size::show(shown.usable)),
        ("live", size::show(shown.live)),
        ("reserved", size::show(shown.reserved)),
        ("free", format!("{} ({} zones)", size::show(shown.free), shown.free_zones)),
        ("volumes", shown.volumes.to_string()),
        ("opened", format!("{} times", shown.epoch)),
    ];
    if let Some(held) = &shown.held {
        let held: Vec<(&str, u64)> = held.iter().map(|held| (held.snapshot.as_str(), held.bytes)).collect();
        lines.push(("WARNING", space::warning(shown.space, shown.free, shown.usable, shown.reserved, &held)));
    }
    if let Some(damage) = &shown.damaged {
        lines.push(("DAMAGED", text::safe(damage)));
    }
    lines.iter().map(|(name, value)| format!("{name:<9} {value}\n")).collect()
}
