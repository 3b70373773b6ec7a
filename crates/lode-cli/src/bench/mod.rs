//! The harness of `lode bench`: both sides in the same run, interleaved, on the same kind of file.
//!
//! A **bench** has **cases**; a case compares Lode with a **peer** (the raw device, or another server) or
//! with an absolute bar. A **round** measures each side once; rounds alternate which side goes first, and
//! the figure of a side is its median. Files are written from end to end before anything is measured, so
//! that neither side pays for allocation.

mod bracket;
mod bytes;
mod clean;
mod commit;
mod compress;
mod count;
mod fill;
pub mod fs;
mod lists;
mod memory;
mod nbd;
mod open;
mod place;
mod raw;
mod read;
mod report;
mod scratch;
mod snapshots;
mod stall;
mod subject;
mod unit;
mod units;

pub use count::{CountArguments, counted};
pub use open::{ChildArguments, child};
pub use report::Report;
pub use scratch::vanish_on_signals;

use crate::failure::{Failure, Result};
use std::path::PathBuf;
use std::time::Instant;

/// The benches, in the order in which all of them run.
pub const NAMES: [&str; 25] = [
    "fill",
    "commit1",
    "commit1x4",
    "commit16",
    "batch16",
    "read-cold",
    "read-hot",
    "unit",
    "unit-overhead",
    "open",
    "memory",
    "clean",
    "bytes",
    "stall",
    "compress",
    "nbd",
    "snapshot",
    "after-snapshot",
    "snapshots-1000",
    "diff",
    "list-insert",
    "list-delete",
    "list-drop",
    "units-many",
    "recluster",
];

/// How to measure.
pub struct Settings {
    /// Where scratch files go.
    pub directory: PathBuf,
    /// The device to measure on, instead of files.
    pub device: Option<PathBuf>,
    /// Interleaved rounds.
    pub rounds: u32,
    /// Small sizes.
    pub quick: bool,
}

impl Settings {
    /// `full`, or `quick` when only a short run is asked for.
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// Runs the bench of that name.
pub fn run(name: &str, settings: &Settings) -> Result<Report> {
    match name {
        "fill" => fill::run(settings),
        "commit1" => commit::single(settings),
        "commit1x4" => commit::four_threads(settings),
        "commit16" => commit::sixteen(settings),
        "batch16" => commit::batch(settings),
        "read-cold" => read::cold(settings),
        "read-hot" => read::hot(settings),
        "unit" => unit::run(settings),
        "unit-overhead" => bracket::run(settings),
        "open" => open::run(settings),
        "memory" => memory::run(settings),
        "clean" => clean::run(settings),
        "bytes" => bytes::run(settings),
        "stall" => stall::run(settings),
        "compress" => compress::run(settings),
        "nbd" => nbd::run(settings),
        "snapshot" => snapshots::take_one(settings),
        "after-snapshot" => snapshots::after(settings),
        "snapshots-1000" => snapshots::thousand(settings),
        "diff" => snapshots::diff(settings),
        "list-insert" => lists::insert(settings),
        "list-delete" => lists::delete(settings),
        "list-drop" => lists::drop_list(settings),
        "units-many" => units::many(settings),
        "recluster" => read::recluster(settings),
        _ => Err(Failure::usage(format!("bench: expected one of {}, found {name:?}", NAMES.join(", ")))),
    }
}

/// Measures two sides in turn, the first one going first in every other round.
fn interleave(
    rounds: u32,
    mut lode: impl FnMut(u32) -> Result<()>,
    mut peer: impl FnMut(u32) -> Result<()>,
) -> Result<()> {
    for round in 0..rounds {
        if round % 2 == 0 {
            lode(round)?;
            peer(round)?;
        } else {
            peer(round)?;
            lode(round)?;
        }
    }
    Ok(())
}

/// Seconds that `work` takes.
fn seconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// A count as a figure. Exact up to 2^53, and no bench counts that far.
#[allow(clippy::cast_precision_loss, reason = "figures are printed with three digits")]
fn figure(count: u64) -> f64 {
    count as f64
}

/// A length in memory as one on a medium.
fn wide(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("an address has at most 64 bits")
}

/// A length on a medium, known to be small, as one in memory.
fn narrow(bytes: u64) -> usize {
    usize::try_from(bytes).expect("this code runs where memory of that length exists")
}
