//! The sub-commands: one file each, with its arguments, its call into the engine, and what it prints.

// A command may run in the server of its disk, for a client (see `control`).
#![warn(clippy::disallowed_methods, clippy::disallowed_macros)]

pub mod bench;
pub mod bench_fs;
pub mod check;
pub mod clone;
pub mod completions;
pub mod create;
pub mod diff;
pub mod export;
pub mod fs;
pub mod grow;
pub mod import;
pub mod info;
pub mod inspect;
pub mod list;
pub mod map;
pub mod mount;
pub mod receive;
pub mod recluster;
pub mod repair;
pub mod reserve;
pub mod run;
pub mod scrub;
pub mod send;
pub mod serve;
pub mod snapshot;
pub mod txn;
pub mod unit;
pub mod volume;

use crate::arguments::Command;
use crate::failure::{Code, Result};

/// Runs one sub-command.
pub fn run(command: Command) -> Result<Code> {
    match command {
        Command::Create(arguments) => create::run(&arguments),
        Command::Volume(command) => volume::run(&command),
        Command::Snapshot(command) => snapshot::run(&command),
        Command::List(command) => list::run(&command),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Info(arguments) => info::run(&arguments),
        Command::Grow(arguments) => grow::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Scrub(arguments) => scrub::run(&arguments),
        Command::Unit(command) => unit::run(&command),
        Command::Reserve(command) => reserve::run(&command),
        Command::Clone(command) => clone::run(&command),
        Command::Recluster(arguments) => recluster::run(&arguments),
        Command::Repair(arguments) => repair::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Map(arguments) => map::run(&arguments),
        Command::Import(arguments) => import::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Send(arguments) => send::run(&arguments),
        Command::Receive(arguments) => receive::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Fs(command) => fs::run(&command),
        Command::Mount(arguments) => mount::run(arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Txn(command) => txn::run(&command),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::BenchFs(arguments) => bench_fs::run(&arguments),
        Command::BenchFsChild(arguments) => crate::bench::fs::child(&arguments),
        Command::BenchFsCount(arguments) => crate::bench::fs::counted(&arguments),
        Command::BenchChild(arguments) => crate::bench::child(&arguments),
        Command::BenchCount(arguments) => crate::bench::counted(&arguments),
    }
}
