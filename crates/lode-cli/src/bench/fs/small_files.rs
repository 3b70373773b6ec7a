//! `small-files`: many small files are made and written, read, and deleted; nothing is in a cache when a phase begins,
//! everything is durable when it ends.

use super::super::report::Report;
use super::super::subject::Data;
use super::super::{figure, seconds};
use super::compare::{Figure, measure};
use super::mounted::Mounted;
use super::side::Side;
use super::stage::Stage;
use super::{Settings, tree};
use crate::failure::{Failure, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Files of a directory.
const EACH: u64 = 100;
/// Descriptors that `passthrough_hp` needs for other things.
const SPARE: u64 = 500;

/// A set of files.
struct Set {
    count: u64,
    bytes: usize,
}

/// Runs the bench.
pub fn run(stage: &Stage, settings: &Settings) -> Result<Report> {
    let most = stage.open_files.saturating_sub(SPARE);
    let sets = [
        Set { count: settings.pick(10_000, 1000).min(most), bytes: 1 << 10 },
        Set { count: settings.pick(1000, 200).min(most), bytes: 10 << 10 },
    ];
    let mut figures = Vec::new();
    for set in &sets {
        for phase in ["create+write", "read", "delete"] {
            let case = format!("{phase} {} files of {} KiB", set.count, set.bytes >> 10);
            figures.push(Figure::high(case, "files/s", 1.0));
        }
    }
    let judge = settings.against.unwrap_or(Side::Passthrough);
    let sides = stage.sides(&Side::ALL, judge)?;
    let data = Data::new();
    let measured = measure(stage, settings, &sides, figures.len(), |mounted| {
        let mut found = Vec::new();
        for set in &sets {
            found.extend(phases(mounted, set, &data)?);
        }
        Ok(found)
    })?;
    let mut report = Report::new("small-files");
    measured.report(&mut report, &figures, judge);
    Ok(report)
}

fn phases(mounted: &mut Mounted<'_>, set: &Set, data: &Data) -> Result<[f64; 3]> {
    let top = mounted.path().join(format!("{}", set.bytes));
    let rate = |seconds: f64| figure(set.count) / seconds;
    mounted.cool()?;
    let create = seconds(|| create(&top, set, data).and_then(|()| mounted.sync()))?;
    mounted.cool()?;
    let read = seconds(|| read(&top, set).and_then(|()| mounted.sync()))?;
    mounted.cool()?;
    let delete = seconds(|| delete(&top, set).and_then(|()| mounted.sync()))?;
    fs::remove_dir_all(&top).map_err(tree::failed(&top))?;
    Ok([create, read, delete].map(rate))
}

fn file(top: &Path, number: u64) -> PathBuf {
    top.join(format!("{}/{number}", number / EACH))
}

fn create(top: &Path, set: &Set, data: &Data) -> Result<()> {
    for number in 0..set.count {
        if number % EACH == 0 {
            let directory = top.join(format!("{}", number / EACH));
            fs::create_dir_all(&directory).map_err(tree::failed(&directory))?;
        }
        let path = file(top, number);
        fs::write(&path, data.piece(number, set.bytes)).map_err(tree::failed(&path))?;
    }
    Ok(())
}

fn read(top: &Path, set: &Set) -> Result<()> {
    for number in 0..set.count {
        let path = file(top, number);
        let len = fs::read(&path).map_err(tree::failed(&path))?.len();
        if len != set.bytes {
            let words = format!("bench-fs: expected {} bytes in a file, found {len}", set.bytes);
            return Err(Failure::new(crate::failure::Code::Io, words));
        }
    }
    Ok(())
}

fn delete(top: &Path, set: &Set) -> Result<()> {
    for number in 0..set.count {
        let path = file(top, number);
        fs::remove_file(&path).map_err(tree::failed(&path))?;
    }
    Ok(())
}
