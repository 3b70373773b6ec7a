//! The harness of `lode bench-fs`: a mounted file system of Lode beside those of the kernel, and beside a file system
//! that only passes on through FUSE what it is asked.
//!
//! A **side** is a file system that is measured. All sides lie on the same file, one after the other: it is written
//! from end to end first, and each measurement begins with an empty file system. A round measures every side once,
//! and begins with another one than the round before; the figure of a side is its median.

mod append;
mod bracket;
mod build;
mod bytes;
mod compare;
mod large;
mod large_file;
mod library;
mod mounted;
mod postmark;
mod side;
mod small_files;
mod stage;
mod switch;
mod tools;
mod tree;
mod unpack;

pub use bracket::{CountArguments, counted};
pub use large::{ChildArguments, child};
pub use side::Side;

use super::report::Report;
use crate::failure::{Failure, Result};
use large::Large;
use stage::Stage;
use std::path::PathBuf;

/// The benches, in the order in which all of them run, with what they measure and the bar.
pub const BENCHES: [(&str, &str); 11] = [
    ("small-files", "create, read, delete 10,000 of 1 KiB and 1,000 of 10 KiB, cold; >= 1.0 of passthrough"),
    ("large-file", "1 GiB by 8 KiB, in order and at random; >= 1.0 of passthrough, read again 0.9 of before"),
    ("postmark", "30,000 files, 250,000 transactions, 200 directories; >= 1.0 of passthrough"),
    ("append-fsync", "4 threads append 4 KiB and fsync; >= 1.5 of ext4"),
    ("replace", "create, write, fsync, rename, by 1 and by 4 threads; >= 1.5 of ext4"),
    ("build", "unpack, configure and make a C project; <= 1.05 of ext4's time"),
    ("unpack", "20,000 files by `lode run tar`; >= 3 of tar and fsync of each file on ext4"),
    ("bytes", "bytes on the disk for each of 100,000 files of 1 KiB; <= 1536"),
    ("fs-memory", "bytes of memory for each of ten million small files; <= 150"),
    ("fs-open", "seconds to open after kill -9 with these; <= 1"),
    ("fs-bracket", "instructions of create and delete in a unit; <= 1.05 of the same without it"),
];

/// How to measure.
pub struct Settings {
    /// What all benches are told.
    pub common: super::Settings,
    /// Only Lode, in both orders, and whom the bar compares it with.
    pub judged: bool,
    /// Compare with that one, instead of the one that the bar is for.
    pub against: Option<Side>,
    /// Lode's image lies on a loop device, as the peers' do.
    pub lode_on_loop: bool,
    /// Where `scripts/setup-bench-fs.sh` has put what it brings.
    pub tools: PathBuf,
}

impl Settings {
    /// `full`, or `quick` when only a short run is asked for.
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        self.common.pick(full, quick)
    }
}

/// What several benches share, each made when the first one needs it.
pub struct Benches {
    settings: Settings,
    stage: Option<Stage>,
    large: Option<Large>,
}

impl Benches {
    /// Nothing is made yet.
    pub fn new(settings: Settings) -> Benches {
        Benches { settings, stage: None, large: None }
    }

    /// Runs the bench of that name.
    pub fn run(&mut self, name: &str) -> Result<Report> {
        match name {
            "bytes" => return bytes::run(&self.settings),
            "fs-memory" => return large::memory(&self.settings, &mut self.large),
            "fs-open" => return large::open(&self.settings, &mut self.large),
            "fs-bracket" => return bracket::run(&self.settings),
            _ => {}
        }
        if self.stage.is_none() {
            self.stage = Some(Stage::new(&self.settings)?);
        }
        let stage = self.stage.as_ref().expect("made above");
        match name {
            "small-files" => small_files::run(stage, &self.settings),
            "large-file" => large_file::run(stage, &self.settings),
            "postmark" => postmark::run(stage, &self.settings),
            "append-fsync" => append::append(stage, &self.settings),
            "replace" => append::replace(stage, &self.settings),
            "build" => build::run(stage, &self.settings),
            "unpack" => unpack::run(stage, &self.settings),
            _ => Err(Failure::usage(format!("bench-fs: there is no bench {name:?}"))),
        }
    }
}
