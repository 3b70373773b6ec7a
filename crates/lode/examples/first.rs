//! The first thing to try: two writes that count together or not at all. The README shows this program.

use lode::{Disk, FormatOptions, OpenOptions, Survive, VolumeOptions};
use lode_media::{Geometry, ram::RamMedium};
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let geometry = Geometry { zones: 64, zone_bytes: 1 << 20, append_align: 4096, devices: 1 };
    let medium = Arc::new(RamMedium::new(geometry));
    Disk::format(medium.clone(), &FormatOptions { disk_id: 42 })?;
    let disk = Disk::open(medium, &OpenOptions::default())?;
    let pages = disk.create_volume("pages", &VolumeOptions { bytes: 1 << 20, ..Default::default() })?;

    let mut unit = disk.begin()?;
    unit.write_at(&pages, 0, b"both of these")?;
    unit.write_at(&pages, 400_000, b"or neither")?;
    unit.commit_and_flush(Survive::Power)?;
    disk.close()?;
    Ok(())
}
