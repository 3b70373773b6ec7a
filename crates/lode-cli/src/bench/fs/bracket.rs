//! `fs-bracket`: what it costs that each operation is one unit: instructions of creating and deleting an empty file, as
//! valgrind counts them, by this program, and by one built for this alone whose file system changes one block after the
//! other, with no unit round them.

use super::super::count::{Forgetful, instructions_of};
use super::super::figure;
use super::super::report::{Better, Case, Report, Samples};
use super::library::{caller, made, name};
use super::{Settings, tools};
use crate::failure::{Code, Failure, Result};
use lode::OpenOptions;
use lode_fs::{Ino, New};
use lode_media::Geometry;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const BAR: f64 = 1.05;
/// Files of the longer run, and of the shorter one; the difference is theirs alone.
const MANY: u64 = 500;
const FEW: u64 = 100;

/// Valgrind counts each byte that one string instruction fills or copies as an instruction: libc is to use loops instead.
const NO_STRINGS: &str = "glibc.cpu.x86_rep_stosb_threshold=1073741824:glibc.cpu.x86_rep_movsb_threshold=1073741824";

/// What the child is told.
#[derive(clap::Args)]
pub struct CountArguments {
    /// How many files to create
    creates: u64,
    /// How many of these to delete again
    deletes: u64,
}

/// The child: does what it is told, and ends.
pub fn counted(arguments: &CountArguments) -> Result<Code> {
    let medium = Arc::new(Forgetful::new(Geometry { zones: 128, zone_bytes: 4 << 20, append_align: 4096, devices: 1 }));
    let options = OpenOptions { background: false, ..OpenOptions::default() };
    let fs = made(medium.clone(), &options)?;
    let (view, caller) = (fs.view(), caller());
    let directory = view.make(Ino::ROOT, b"directory", &New::directory(0o755), &caller)?.ino;
    fs.sync()?;
    // What is read again is in the cache.
    medium.forget();
    for number in 0..arguments.creates {
        view.make(directory, &name(number), &New::file(0o644), &caller)?;
    }
    for number in 0..arguments.deletes {
        view.unlink(directory, &name(number), caller.now)?;
    }
    Ok(Code::Done)
}

/// Instructions of a create and of a delete.
fn count(settings: &Settings, program: &Path) -> Result<[Samples; 2]> {
    let run = |creates: u64, deletes: u64| {
        let mut command = Command::new("valgrind");
        command.env("GLIBC_TUNABLES", NO_STRINGS);
        command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
        command.arg(program).arg("bench-fs-count").args([creates.to_string(), deletes.to_string()]);
        instructions_of(&mut command, "bench-fs fs-bracket")
    };
    let mut found = [Samples::default(), Samples::default()];
    // They differ by little from one run to the next; two show that.
    for _ in 0..settings.pick(2, 1) {
        let made = run(MANY, 0)?;
        found[0].push((made - run(FEW, 0)?) / figure(MANY - FEW));
        found[1].push((run(MANY, MANY)? - run(MANY, FEW)?) / figure(MANY - FEW));
    }
    Ok(found)
}

/// Runs the bench.
pub fn run(settings: &Settings) -> Result<Report> {
    let without = tools::brought(settings, "lode-unbracketed")?;
    let with = std::env::current_exe().map_err(|error| Failure::io("bench-fs: finding this program", error))?;
    let (with, without) = (count(settings, &with)?, count(settings, &without)?);
    let mut report = Report::new("fs-bracket");
    for ((what, with), without) in ["create", "delete"].into_iter().zip(with).zip(without) {
        let case = format!("{what} an empty file, counted by valgrind");
        let peer = ("the same without a unit", without);
        report.cases.push(Case::against(case, "instructions", with, peer, Better::Lower, BAR));
    }
    Ok(report)
}
