//! `fs-memory` and `fs-open`: a file system with ten million small files: what its tables take in memory, and how long
//! it takes to open after kill -9.
//!
//! A child of this program makes the files through the library, says what it holds, goes on writing, and is killed. Each
//! round, another child opens what that has left, says how long it took, writes on, and is killed, too. Both benches
//! share the image.

use super::super::open::{Spoken, expect, forget_cached};
use super::super::report::{Better, Case, Report, Samples};
use super::super::scratch::Scratch;
use super::super::subject::Data;
use super::super::{figure, narrow};
use super::Settings;
use super::library::{EACH, fill, made, name};
use crate::failure::{Code, Failure, Result};
use crate::{image, output};
use lode::{Disk, OpenOptions, Survive};
use lode_fs::{FileSystem, Ino};
use lode_media::file::{CreateOptions, RawImage};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

const FILE: u64 = 100;
const MEMORY_MAX: f64 = 150.0;
const OPEN_MAX: f64 = 1.0;
/// Files that are made before a child asks to be killed.
const MORE: u64 = 20 * EACH;

/// What the child is told.
#[derive(clap::Args)]
pub struct ChildArguments {
    /// The image
    file: PathBuf,
    /// How many files there are
    files: u64,
    /// Make the disk and the files first
    #[arg(long)]
    fill: bool,
}

/// The image, and what the child has said that filled it.
pub struct Large {
    file: Scratch,
    files: u64,
    tables: f64,
    resident: f64,
    filled: f64,
}

/// The child: does its work, says what it found, and makes files until it is killed.
pub fn child(arguments: &ChildArguments) -> Result<Code> {
    let data = Data::new();
    if arguments.fill {
        fill_image(arguments, &data)?;
    }
    let fs = open_image(arguments)?;
    let first = (arguments.files + u64::from(std::process::id()) * MORE).next_multiple_of(EACH);
    for turn in 0.. {
        fill(&fs.view(), first + turn * EACH, EACH, narrow(FILE), &data)?;
        if turn % 4 == 3 {
            fs.disk().flush(Survive::Process)?;
        }
        if turn == MORE / EACH {
            output::line("ready")?;
        }
    }
    Ok(Code::Done)
}

/// Makes everything, and prints what that holds in memory: bytes of tables, bytes of the process, and the seconds.
fn fill_image(arguments: &ChildArguments, data: &Data) -> Result<()> {
    let start = Instant::now();
    // More than is written while they are made, so that nothing is cleaned on the way.
    let bytes = (arguments.files * (FILE + 1900)).next_multiple_of(1 << 30);
    let raw = RawImage::create(&arguments.file, &CreateOptions { bytes, force: false })?;
    let medium = Arc::new(raw.into_medium(lode::default_zone_bytes(bytes))?);
    // Nothing of the tables is put away.
    let options = OpenOptions { tables_bytes: usize::MAX / 2, ..OpenOptions::default() };
    let before = resident()?;
    let fs = made(medium, &options)?;
    fill(&fs.view(), 0, arguments.files, narrow(FILE), data)?;
    fs.sync()?;
    fs.disk().checkpoint()?;
    let tables = fs.disk().counters().tables_bytes;
    let resident = resident()?.saturating_sub(before);
    output::line(format!("{tables} {resident} {}", start.elapsed().as_secs_f64()))?;
    let disk = fs.disk().clone();
    drop(fs);
    Ok(disk.close()?)
}

/// Bytes of this process that are in memory, without what it has of files.
fn resident() -> Result<u64> {
    let failed = |error| Failure::io("/proc/self/status", error);
    let status = std::fs::read_to_string("/proc/self/status").map_err(failed)?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kibibytes.map(|kibibytes| kibibytes << 10).ok_or_else(|| {
        Failure::new(Code::Io, "bench-fs: expected RssAnon in /proc/self/status, found none (Linux before 4.5?)")
    })
}

/// Opens it, reads a file, and prints the two times in seconds.
fn open_image(arguments: &ChildArguments) -> Result<FileSystem> {
    let start = Instant::now();
    let disk =
        Disk::open(image::medium(&arguments.file, lode_media::file::Access::ReadWrite)?, &OpenOptions::default())?;
    let fs = FileSystem::open(&disk, crate::commands::fs::time())?;
    let opened = start.elapsed();
    let number = u64::from(std::process::id()) * 7919 % arguments.files;
    let view = fs.view();
    let directory = view.lookup(Ino::ROOT, &name(number / EACH))?;
    let file = view.lookup(directory.ino, &name(number))?;
    let mut content = [0; 100];
    if view.read(file.ino, 0, &mut content)? != content.len() {
        return Err(Failure::new(Code::Io, format!("bench-fs: expected a file of {FILE} bytes, found another")));
    }
    if !arguments.fill {
        output::line(format!("{} {}", opened.as_secs_f64(), start.elapsed().as_secs_f64()))?;
    }
    Ok(fs)
}

fn numbers<const N: usize>(line: &str) -> Result<[f64; N]> {
    let parsed: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    let count = parsed.len();
    parsed.try_into().map_err(|_| {
        Failure::new(Code::Io, format!("bench-fs: expected {N} numbers from the child, found {count}: {line:?}"))
    })
}

impl Large {
    fn new(settings: &Settings) -> Result<Large> {
        let file = format!("lode-bench-fs-{}-large.image", std::process::id());
        let file = Scratch::new(settings.common.directory.join(file));
        let files = settings.pick(10_000_000, 20_000);
        let mut large = Large { file, files, tables: 0.0, resident: 0.0, filled: 0.0 };
        let mut child = large.start(&["--fill"])?;
        let [tables, resident, filled] = numbers(&child.line()?)?;
        let each = |bytes: f64| bytes / figure(files);
        (large.tables, large.resident, large.filled) = (each(tables), each(resident), filled);
        expect("ready", &child.line()?)?;
        Ok(large)
    }

    fn start(&self, options: &[&str]) -> Result<Spoken> {
        let failed = |error| Failure::io("bench-fs: starting the child", error);
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.arg("bench-fs-child").arg(self.file.path()).arg(self.files.to_string()).args(options);
        Spoken::new(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?)
    }

    /// Opens it once: how long that took, and how long with reading a file.
    fn opened(&self) -> Result<[f64; 2]> {
        forget_cached(self.file.path())?;
        let mut child = self.start(&[])?;
        let times = numbers(&child.line()?)?;
        expect("ready", &child.line()?)?;
        Ok(times)
    }
}

fn filled<'a>(settings: &Settings, large: &'a mut Option<Large>) -> Result<&'a Large> {
    if large.is_none() {
        *large = Some(Large::new(settings)?);
    }
    Ok(large.as_ref().expect("made above"))
}

/// `fs-memory`.
pub fn memory(settings: &Settings, large: &mut Option<Large>) -> Result<Report> {
    let large = filled(settings, large)?;
    let mut report = Report::new("fs-memory");
    for (what, bytes) in [("the tables", large.tables), ("the process, its cache included", large.resident)] {
        let case = format!("bytes in memory for each of {} files, {what}", large.files);
        let samples: Samples = [bytes].into_iter().collect();
        report.cases.push(Case::absolute(case, "bytes", samples, None, Better::Lower, MEMORY_MAX));
    }
    let rate = figure(large.files) / large.filled;
    report.notes.push(format!("made in {:.0} s by one thread, {rate:.0} a second", large.filled));
    if settings.common.quick {
        report.notes.push("the cache is shared by few files: the second figure means nothing".into());
    }
    Ok(report)
}

/// `fs-open`.
pub fn open(settings: &Settings, large: &mut Option<Large>) -> Result<Report> {
    let large = filled(settings, large)?;
    let (mut opened, mut read) = (Samples::default(), Samples::default());
    for _ in 0..settings.common.rounds {
        let [open, with_read] = large.opened()?;
        opened.push(open);
        read.push(with_read);
    }
    let mut report = Report::new("fs-open");
    report.notes.push(format!("and a file looked up and read: {:.1} ms", read.median() * 1e3));
    let case = format!("open after kill -9 with {} files", large.files);
    report.cases.push(Case::absolute(case, "s", opened, None, Better::Lower, OPEN_MAX));
    Ok(report)
}
