//! `open`: opening after kill -9, and 1,000 random reads, on a large disk and on one four times as large.
//!
//! A child of this program fills the disk with zeros and is killed; each round, another child opens it,
//! tells how long that and the reads took, writes on for a while, and is killed too. So each opening
//! finds what a crash left. The medium keeps only what is not zero, and nothing of it is in the page
//! cache when a round begins.

use super::memory::scattered;
use super::report::{Better, Case, Report, Samples};
use super::scratch::{Scratch, Victim};
use super::{Settings, figure};
use crate::failure::{Code, Failure, Result};
use crate::random::{self, Random};
use crate::{image, output, size};
use lode::{Compression, Disk, FormatOptions, OpenOptions, Survive, VolumeOptions};
use lode_media::Geometry;
use lode_media::sparse::SparseMedium;
use rustix::fs::Advice;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

const BLOCK: u64 = 4096;
const READS: u64 = 1000;
/// The blocks of a GiB.
const REGION_BLOCKS: u64 = 1 << 18;

/// What the child is told.
#[derive(clap::Args)]
pub struct ChildArguments {
    /// The sparse file
    file: PathBuf,
    /// The logical size of the volume
    bytes: u64,
    /// Make the disk first
    #[arg(long)]
    fill: bool,
    /// How much to write before the kill is asked for
    #[arg(long)]
    more: u64,
}

/// The child: does its work, says what it found, and writes until it is killed.
pub fn child(arguments: &ChildArguments) -> Result<Code> {
    let block = vec![0; 4096];
    let disk = if arguments.fill { fill(arguments)? } else { measure(arguments)? };
    let volume = disk.volume("bench")?;
    let mut random = Random::new(u64::from(std::process::id()));
    // Writes and flushes as a client would, so that the kill comes in the middle of work.
    for turn in 0.. {
        volume.write_at(random.below(arguments.bytes / BLOCK) * BLOCK, &block)?;
        if turn % 64 == 63 {
            disk.flush(Survive::Process)?;
        }
        if turn == arguments.more / BLOCK {
            output::line("ready")?;
        }
    }
    Ok(Code::Done)
}

fn geometry(bytes: u64) -> Geometry {
    let zone_bytes = lode::default_zone_bytes(bytes);
    let zones = u32::try_from(bytes / u64::from(zone_bytes)).expect("a zone is not so small");
    Geometry { zones, zone_bytes, append_align: 4096, devices: 1 }
}

/// Half of the volume's blocks, in an order that looks random: a GiB after the other, or the map of all of it in the
/// caches of the processor would be what is waited for. Checkpoints on the way would only cost time: the disk
/// is closed and opened again, and what is written then leaves the log as any long-lived disk has it.
fn fill(arguments: &ChildArguments) -> Result<Disk> {
    let medium = Arc::new(SparseMedium::create(&arguments.file, geometry(arguments.bytes))?);
    Disk::format(medium.clone(), &FormatOptions { disk_id: random::identity()? })?;
    let options = OpenOptions {
        checkpoint_window_bytes: Some(arguments.bytes),
        checkpoint_window_records: u64::MAX,
        ..OpenOptions::default()
    };
    let disk = Disk::open(medium.clone(), &options)?;
    let options = VolumeOptions { bytes: arguments.bytes, block_bytes: 4096, compression: Compression::None };
    let volume = disk.create_volume("bench", &options)?;
    let (blocks, zeros) = (arguments.bytes / BLOCK, vec![0; 4096]);
    for region in (0..blocks / REGION_BLOCKS).map(|region| region * REGION_BLOCKS) {
        for turn in 0..REGION_BLOCKS / 2 {
            volume.write_at((region + scattered(turn, REGION_BLOCKS)) * BLOCK, &zeros)?;
        }
    }
    disk.close()?;
    Ok(Disk::open(medium, &OpenOptions::default())?)
}

/// Opens, reads, and prints the two times in seconds.
fn measure(arguments: &ChildArguments) -> Result<Disk> {
    let start = Instant::now();
    let medium = Arc::new(SparseMedium::open(&arguments.file, geometry(arguments.bytes))?);
    let disk = Disk::open(medium, &OpenOptions::default())?;
    let opened = start.elapsed();
    let volume = disk.volume("bench")?;
    let mut random = Random::new(u64::from(std::process::id()) << 20);
    let mut block = vec![0; 4096];
    for _ in 0..READS {
        volume.read_at(random.below(arguments.bytes / BLOCK) * BLOCK, &mut block)?;
    }
    output::line(format!("{} {}", opened.as_secs_f64(), start.elapsed().as_secs_f64()))?;
    Ok(disk)
}

/// A disk that children fill and open.
struct Large {
    file: Scratch,
    bytes: u64,
    opened: Samples,
    total: Samples,
}

/// A child and what it says.
pub struct Spoken {
    _child: Victim,
    words: BufReader<ChildStdout>,
}

impl Spoken {
    /// A child whose output is a pipe.
    pub fn new(mut child: Child) -> Result<Spoken> {
        let out = child.stdout.take().ok_or_else(|| Failure::new(Code::Io, "bench: the child has no output"))?;
        Ok(Spoken { _child: Victim::new(child), words: BufReader::new(out) })
    }

    /// The next line.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let found =
            self.words.read_line(&mut line).map_err(|error| Failure::io("bench: reading from the child", error))?;
        match found {
            0 => Err(Failure::new(Code::Io, "bench: expected a line from the child, found its end")),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

impl Large {
    /// Starts to fill it.
    fn new(settings: &Settings, bytes: u64) -> Result<(Large, Spoken)> {
        let name = format!("lode-bench-{}-open-{}.sparse", std::process::id(), bytes >> 20);
        let large = Large {
            file: Scratch::new(settings.directory.join(name)),
            bytes,
            opened: Samples::default(),
            total: Samples::default(),
        };
        // More than the log that recovery may have to read.
        let victim = large.start(&["--fill"], settings.pick(5 << 28, 64 << 20))?;
        Ok((large, victim))
    }

    fn start(&self, options: &[&str], more: u64) -> Result<Spoken> {
        let failed = |error| Failure::io("bench open: starting the child", error);
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command
            .arg("bench-child")
            .arg(self.file.path())
            .arg(self.bytes.to_string())
            .args(options)
            .arg(format!("--more={more}"));
        Spoken::new(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?)
    }

    fn round(&mut self, more: u64) -> Result<()> {
        forget_cached(self.file.path())?;
        let mut victim = self.start(&[], more)?;
        let times = victim.line()?;
        let parsed: Vec<f64> = times.split(' ').filter_map(|word| word.parse().ok()).collect();
        let &[opened, total] = parsed.as_slice() else { return expect("two times", &times) };
        self.opened.push(opened);
        self.total.push(total);
        expect("ready", &victim.line()?)
    }
}

/// Fails unless the child has said that.
pub fn expect(what: &str, found: &str) -> Result<()> {
    if what == found {
        return Ok(());
    }
    Err(Failure::new(Code::Io, format!("bench: expected {what} from the child, found {found:?}")))
}

/// Nothing of the file stays in the page cache.
pub fn forget_cached(path: &Path) -> Result<()> {
    let failed = |error| Failure::io(format!("bench: forgetting {}", image::show(path)), error);
    let file = File::open(path).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| failed(error.into()))
}

/// Runs the bench.
pub fn run(settings: &Settings) -> Result<Report> {
    let sizes = settings.pick([64 << 30, 256 << 30], [1 << 30, 4 << 30]);
    // Both are filled at the same time; each child is killed when it is ready.
    let (mut small, mut filling) = Large::new(settings, sizes[0])?;
    let (mut large, mut filling_large) = Large::new(settings, sizes[1])?;
    expect("ready", &filling.line()?)?;
    drop(filling);
    expect("ready", &filling_large.line()?)?;
    drop(filling_large);
    let more = settings.pick(128 << 20, 16 << 20);
    super::interleave(settings.rounds, |_| small.round(more), |_| large.round(more))?;
    let mut report = Report::new("open");
    for disk in [&small, &large] {
        let logical = size::show(disk.bytes);
        report.notes.push(format!("{logical}: opening alone {:.1} ms", disk.opened.median() * 1e3));
        let case = format!("open after kill -9 and {READS} random reads, {logical} half written");
        report.cases.push(Case::absolute(case, "s", disk.total.clone(), None, Better::Lower, 1.0));
    }
    // 30 %, or 20 ms where that is more.
    let bar = f64::max(1.3, 1.0 + 0.020 / small.total.median());
    let times = figure(large.bytes) / figure(small.bytes);
    let case = format!("the same, {times:.0} times as large");
    report.cases.push(Case::against(
        case,
        "s",
        large.total.clone(),
        ("lode on the smaller disk", small.total.clone()),
        Better::Lower,
        bar,
    ));
    Ok(report)
}
