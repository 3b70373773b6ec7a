//! `append-fsync`: threads that each append to a file of their own, and wait until that is durable. `replace`: what
//! editors and mail servers do: a new file is written, made durable, and takes the place of the old one.

use super::super::figure;
use super::super::report::Report;
use super::super::subject::Data;
use super::compare::{Figure, measure};
use super::side::Side;
use super::stage::Stage;
use super::{Settings, tree};
use crate::failure::{Code, Failure, Result};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const PIECE: usize = 4096;
const BAR: f64 = 1.5;
const THREADS: u64 = 4;
/// Files that each thread replaces in turn.
const REPLACED: u64 = 64;

/// What a thread does once, in a directory of its own.
type Once<'a> = &'a (dyn Fn(&Path, &mut File, u64) -> Result<()> + Sync);

/// Four threads, each at a file of its own.
pub fn append(stage: &Stage, settings: &Settings) -> Result<Report> {
    let data = Data::new();
    let once = |directory: &Path, file: &mut File, turn: u64| {
        let failed = tree::failed(directory);
        file.write_all(data.piece(turn, PIECE)).and_then(|()| file.sync_all()).map_err(failed)
    };
    bench("append-fsync", "append 4 KiB and fsync", &[THREADS], stage, settings, &once)
}

/// One thread, and four, in directories of their own.
pub fn replace(stage: &Stage, settings: &Settings) -> Result<Report> {
    let data = Data::new();
    let once = |directory: &Path, _: &mut File, turn: u64| {
        let (fresh, old) = (directory.join("new"), directory.join(format!("{}", turn % REPLACED)));
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&fresh)?;
            file.write_all(data.piece(turn, PIECE))?;
            file.sync_all()?;
            fs::rename(&fresh, &old)
        };
        write().map_err(tree::failed(&old))
    };
    bench("replace", "create, write 4 KiB, fsync, rename", &[1, THREADS], stage, settings, &once)
}

fn bench(
    name: &'static str,
    what: &str,
    threads: &[u64],
    stage: &Stage,
    settings: &Settings,
    once: Once<'_>,
) -> Result<Report> {
    let by = |count: &u64| if *count == 1 { "1 thread".to_owned() } else { format!("{count} threads") };
    let figures: Vec<Figure> =
        threads.iter().map(|count| Figure::high(format!("{what}, {}", by(count)), "1/s", BAR)).collect();
    let judge = settings.against.unwrap_or(Side::Ext4);
    let sides = stage.sides(&Side::ALL, judge)?;
    let time = settings.pick(Duration::from_secs(4), Duration::from_millis(300));
    let measured = measure(stage, settings, &sides, figures.len(), |mounted| {
        threads.iter().map(|count| rate(&mounted.path(), *count, time, once)).collect()
    })?;
    let mut report = Report::new(name);
    measured.report(&mut report, &figures, judge);
    Ok(report)
}

/// How often a second so many threads do it in all.
fn rate(top: &Path, threads: u64, time: Duration, once: Once<'_>) -> Result<f64> {
    let barrier = Barrier::new(super::super::narrow(threads));
    let work = |thread: u64| {
        let directory = top.join(format!("{threads}-{thread}"));
        let file = || -> Result<File> {
            fs::create_dir(&directory).map_err(tree::failed(&directory))?;
            File::create(directory.join("appended")).map_err(tree::failed(&directory))
        };
        // All are at the barrier before one gives up.
        let file = file();
        barrier.wait();
        let (mut file, start) = (file?, Instant::now());
        let mut turn = 0;
        while start.elapsed() < time {
            once(&directory, &mut file, turn)?;
            turn += 1;
        }
        Ok(figure(turn) / start.elapsed().as_secs_f64())
    };
    let work = &work;
    let counts = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let panicked = |_| Failure::new(Code::Io, "bench-fs: a thread panicked");
        running.into_iter().map(|thread| thread.join().map_err(panicked)?).collect::<Result<Vec<f64>>>()
    })?;
    Ok(counts.iter().sum())
}
