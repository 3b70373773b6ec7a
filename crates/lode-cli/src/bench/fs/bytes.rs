//! `bytes`: what small files take of the disk, once everything is durable and a checkpoint has been taken.

use super::super::report::{Better, Case, Report, Samples};
use super::super::subject::Data;
use super::super::{figure, narrow};
use super::Settings;
use super::library::{fill, made};
use crate::failure::Result;
use lode::OpenOptions;
use lode_media::Geometry;
use lode_media::ram::RamMedium;
use std::sync::Arc;

const FILE: u64 = 1024;
const BAR: f64 = 1536.0;

/// Runs the bench.
pub fn run(settings: &Settings) -> Result<Report> {
    let files = settings.pick(100_000, 10_000);
    let mut report = Report::new("bytes");
    // The same each time.
    let (live, taken) = taken(files)?;
    let samples = |bytes: f64| [bytes].into_iter().collect::<Samples>();
    let case = format!("bytes on the disk for each of {files} files of 1 KiB");
    report.cases.push(Case::absolute(case, "bytes", samples(live), None, Better::Lower, BAR));
    report.notes.push(format!(
        "with what the cleaner has not collected yet, in whole zones: {taken:.0} bytes of the medium for each"
    ));
    Ok(report)
}

/// What is live for each file, its share of the tables included; and what is taken of the medium.
fn taken(files: u64) -> Result<(f64, f64)> {
    let image = files * FILE * 8;
    let zone_bytes = lode::default_zone_bytes(image);
    let zones = u32::try_from(image / u64::from(zone_bytes)).expect("a zone is not so small");
    let medium = RamMedium::new(Geometry { zones, zone_bytes, append_align: 4096, devices: 1 });
    let fs = made(Arc::new(medium), &OpenOptions::default())?;
    let disk = fs.disk().clone();
    disk.checkpoint()?;
    let before = disk.info()?;
    fill(&fs.view(), 0, files, narrow(FILE), &Data::new())?;
    fs.sync()?;
    let tables = disk.counters().checkpoint_bytes;
    disk.checkpoint()?;
    let tables = disk.counters().checkpoint_bytes - tables;
    let after = disk.info()?;
    let each = |bytes: u64| figure(bytes) / figure(files);
    let zones = u64::from(before.free_zones.saturating_sub(after.free_zones));
    drop(fs);
    disk.close()?;
    Ok((each(after.live - before.live + tables), each(zones * before.zone)))
}
