//! `postmark`: what a mail server does (J. Katcher, *PostMark: A New File System Benchmark*, 1997): a pool of small files
//! in many directories; each transaction reads a file or appends to one, and makes a new one or deletes one, each as
//! likely as the other. Nothing is synced, as there. The same sequence on every side.

use super::super::report::Report;
use super::super::subject::Data;
use super::super::{figure, narrow, wide};
use super::compare::{Figure, measure};
use super::side::Side;
use super::stage::Stage;
use super::{Settings, tree};
use crate::failure::Result;
use crate::random::Random;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const DIRECTORIES: u64 = 200;
const FILES: u64 = 30_000;
const TRANSACTIONS: u64 = 250_000;
/// Bytes of a file: 9.77 KiB at most.
const LEAST: u64 = 500;
const MOST: u64 = 10_000;
/// Bytes that are read or written at a time.
const PIECE: usize = 4096;
/// A side that is not done by then is not waited for; its rate is that of what it has done.
const LONGEST: Duration = Duration::from_secs(40);

/// The files that there are.
struct Pool<'a> {
    top: PathBuf,
    files: Vec<u64>,
    next: u64,
    random: Random,
    data: &'a Data,
}

/// Runs the bench.
pub fn run(stage: &Stage, settings: &Settings) -> Result<Report> {
    let transactions = settings.pick(TRANSACTIONS, 2000);
    // One descriptor for each file, and some that it makes before others are forgotten.
    let held = stage.open_files / 4 * 3;
    let files = settings.pick(FILES, 1000).min(held.max(100));
    let judge = settings.against.unwrap_or(Side::Passthrough);
    let sides = stage.sides(&Side::ALL, judge)?;
    let figures = [Figure::high(format!("{transactions} transactions on {files} files"), "1/s", 1.0)];
    let data = Data::new();
    let measured = measure(stage, settings, &sides, figures.len(), |mounted| {
        let mut pool = Pool { top: mounted.path(), files: Vec::new(), next: 0, random: Random::new(42), data: &data };
        pool.fill(files)?;
        Ok(vec![pool.transactions(transactions)?])
    })?;
    let mut report = Report::new("postmark");
    measured.report(&mut report, &figures, judge);
    if files < FILES && !settings.common.quick {
        let limit = stage.open_files;
        report.notes.push(format!(
            "{files} files on every side: passthrough_hp has one open for each, and no more than {limit} may be open here"
        ));
    }
    Ok(report)
}

impl Pool<'_> {
    fn path(&self, file: u64) -> PathBuf {
        self.top.join(format!("{}/{file}", file % DIRECTORIES))
    }

    fn fill(&mut self, files: u64) -> Result<()> {
        for number in 0..DIRECTORIES {
            let directory = self.top.join(format!("{number}"));
            fs::create_dir(&directory).map_err(tree::failed(&directory))?;
        }
        (0..files).try_for_each(|_| self.make())
    }

    /// How many a second.
    fn transactions(&mut self, count: u64) -> Result<f64> {
        let (start, mut done) = (Instant::now(), 0);
        while done < count && start.elapsed() < LONGEST {
            self.transaction()?;
            done += 1;
        }
        Ok(figure(done) / start.elapsed().as_secs_f64())
    }

    fn transaction(&mut self) -> Result<()> {
        let read = self.random.below(2) == 0;
        let at = narrow(self.random.below(wide(self.files.len())));
        let path = self.path(self.files[at]);
        if read {
            read_all(&path)?
        } else {
            self.append(&path)?
        }
        // One file stays, so that there is one to be read.
        if self.random.below(2) == 0 || self.files.len() == 1 { self.make() } else { self.delete() }
    }

    fn make(&mut self) -> Result<()> {
        let (number, bytes) = (self.next, LEAST + self.random.below(MOST - LEAST + 1));
        self.next += 1;
        self.files.push(number);
        let path = self.path(number);
        let mut file = File::create_new(&path).map_err(tree::failed(&path))?;
        self.write(&mut file, number, bytes, &path)
    }

    fn delete(&mut self) -> Result<()> {
        let at = narrow(self.random.below(wide(self.files.len())));
        let file = self.files.swap_remove(at);
        let path = self.path(file);
        fs::remove_file(&path).map_err(tree::failed(&path))
    }

    /// Files do not grow beyond the largest.
    fn append(&mut self, path: &Path) -> Result<()> {
        let mut file = File::options().append(true).open(path).map_err(tree::failed(path))?;
        let room = MOST.saturating_sub(file.metadata().map_err(tree::failed(path))?.len());
        if room == 0 {
            return Ok(());
        }
        let bytes = 1 + self.random.below(room);
        self.write(&mut file, bytes, bytes, path)
    }

    fn write(&self, file: &mut File, turn: u64, bytes: u64, path: &Path) -> Result<()> {
        let all = self.data.piece(turn, narrow(bytes));
        all.chunks(PIECE).try_for_each(|piece| file.write_all(piece)).map_err(tree::failed(path))
    }
}

fn read_all(path: &Path) -> Result<()> {
    let mut file = File::open(path).map_err(tree::failed(path))?;
    let mut piece = [0; PIECE];
    while file.read(&mut piece).map_err(tree::failed(path))? > 0 {}
    Ok(())
}
