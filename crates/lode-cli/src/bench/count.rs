//! Instructions of a set of operations, counted: the same from run to run, whatever else the machine does.
//!
//! Valgrind runs this program once more, as a child that does some sets on a disk in memory and nothing else: no
//! threads, no device. It is run with more and with fewer sets; the difference is theirs alone. Processors count
//! instructions too, but virtual machines seldom pass that on (docs/decisions/0018).

use super::bracket::{create, delete};
use super::report::Samples;
use super::subject::Data;
use super::{Settings, figure};
use crate::failure::{Code, Failure, Result};
use lode::{Disk, FormatOptions, OpenOptions};
use lode_media::ram::RamMedium;
use lode_media::{Geometry, Medium, Position, ZoneId};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sets of the longer run, and of the shorter one.
const MANY: u64 = 400;
const FEW: u64 = 100;

/// Instructions of a set, in a bracket and without one.
pub struct Counted {
    pub create: (Samples, Samples),
    pub delete: (Samples, Samples),
}

/// What the child is told.
#[derive(clap::Args)]
pub struct CountArguments {
    /// How many create-like sets to do
    creates: u64,
    /// How many of these to delete again
    deletes: u64,
    /// Each set in a bracket
    #[arg(long)]
    bracket: bool,
}

/// A medium in memory that from some time on takes no more note of what it is given: to copy it is no work of the
/// engine.
pub struct Forgetful {
    below: RamMedium,
    forgets: AtomicBool,
}

impl Forgetful {
    /// One that takes note of everything so far.
    pub fn new(geometry: Geometry) -> Forgetful {
        Forgetful { below: RamMedium::new(geometry), forgets: AtomicBool::new(false) }
    }

    /// From here on it does not.
    pub fn forget(&self) {
        self.forgets.store(true, Ordering::Relaxed);
    }
}

impl Medium for Forgetful {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn read(&self, at: Position, into: &mut [u8]) -> lode_media::Result<()> {
        self.below.read(at, into)
    }

    fn append(&self, at: Position, pieces: &[&[u8]]) -> lode_media::Result<()> {
        if self.forgets.load(Ordering::Relaxed) { Ok(()) } else { self.below.append(at, pieces) }
    }

    fn erase(&self, zone: ZoneId) -> lode_media::Result<()> {
        if self.forgets.load(Ordering::Relaxed) { Ok(()) } else { self.below.erase(zone) }
    }

    fn sync(&self) -> lode_media::Result<()> {
        self.below.sync()
    }

    fn discard(&self, zone: ZoneId) -> lode_media::Result<()> {
        self.below.discard(zone)
    }
}

/// The child: does what it is told, and ends.
pub fn counted(arguments: &CountArguments) -> Result<Code> {
    let geometry = Geometry { zones: 128, zone_bytes: 4 << 20, append_align: 4096, devices: 1 };
    let medium = Arc::new(Forgetful::new(geometry));
    Disk::format(medium.clone(), &FormatOptions { disk_id: 1 })?;
    let options = OpenOptions { background: false, cache_bytes: 0, ..OpenOptions::default() };
    let disk = Disk::open(medium.clone(), &options)?;
    let data = Data::new();
    medium.forget();
    let made = create(&disk, &data, arguments.creates, arguments.bracket)?;
    let most = usize::try_from(arguments.deletes).unwrap_or(usize::MAX).min(made.len());
    delete(&disk, &made[..most], arguments.bracket)?;
    Ok(Code::Done)
}

/// Instructions of a child.
fn instructions(creates: u64, deletes: u64, bracket: bool) -> Result<f64> {
    let name = "bench unit-overhead";
    let program =
        std::env::current_exe().map_err(|error| Failure::io(format!("{name}: finding this program"), error))?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    command.arg(program).arg("bench-count").args([creates.to_string(), deletes.to_string()]);
    instructions_of(command.args(bracket.then_some("--bracket")), name)
}

/// What valgrind counts, run by this command for the bench of that name.
pub fn instructions_of(valgrind: &mut Command, name: &str) -> Result<f64> {
    let done = valgrind.stdin(Stdio::null()).stdout(Stdio::null()).output().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::new(
            Code::NotFound,
            format!(
                "{name}: not measurable here: expected valgrind to count instructions, found none: install it (apt-get \
                 install valgrind)"
            ),
        ),
        _ => Failure::io(format!("{name}: counting instructions: starting valgrind"), error),
    })?;
    let words = String::from_utf8_lossy(&done.stderr);
    let count = words.lines().find_map(|line| line.split_once("refs:")).map(|(_, count)| count.replace(',', ""));
    match count.and_then(|count| count.trim().parse().ok()) {
        Some(count) if done.status.success() => Ok(figure(count)),
        _ => Err(Failure::new(
            Code::Io,
            format!("{name}: expected a count of instructions from valgrind, found {}: {words}", done.status),
        )),
    }
}

/// Counts both kinds of sets, with and without a bracket.
pub fn count(settings: &Settings) -> Result<Counted> {
    let side = |bracket| -> Result<(Samples, Samples)> {
        let (mut create, mut delete) = (Samples::default(), Samples::default());
        // They differ by less than a thousandth from one run to the next; two show that.
        for _ in 0..settings.pick(2, 1) {
            let made = instructions(MANY, 0, bracket)?;
            create.push((made - instructions(FEW, 0, bracket)?) / figure(MANY - FEW));
            let fewer = instructions(MANY, FEW, bracket)?;
            delete.push((instructions(MANY, MANY, bracket)? - fewer) / figure(MANY - FEW));
        }
        Ok((create, delete))
    };
    let (with, without) = (side(true)?, side(false)?);
    Ok(Counted { create: (with.0, without.0), delete: (with.1, without.1) })
}
