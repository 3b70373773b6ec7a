//! `lode bench`: measure, side by side with the raw device.

use crate::bench::{self, Settings};
use crate::failure::{Code, Failure, Result};
use crate::output;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  lode bench                          every bench, in the current directory
  lode bench commit1 --dir /mnt/data  one of them, in files there
  lode bench fill --device /dev/sdx   on a block device, WHICH IS OVERWRITTEN
  lode bench --json > figures.json

Benches: fill commit1 commit1x4 commit16 batch16 read-cold read-hot unit open memory clean bytes
stall nbd

Each side is measured in the same run, in interleaved rounds, on files whose every extent has been
written before; the figures are medians. `ratio` is what is compared with `bar`: lode divided by
peer, or lode's own figure where the bar is an absolute one. `nbd` needs fio, nbdkit and qemu-nbd;
`unit-overhead` valgrind. Exit code 0: every bar met. 1: one was missed.";

/// What `lode bench` takes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The bench to run [default: all]
    name: Option<String>,
    /// Print JSON: one object for one bench, a list for all
    #[arg(long)]
    json: bool,
    /// Where to put scratch files, at most 12 GiB [default: the current directory]
    #[arg(long, conflicts_with = "device")]
    dir: Option<PathBuf>,
    /// A block device to measure on; what it holds is lost
    #[arg(long)]
    device: Option<PathBuf>,
    /// How many interleaved rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Small and short: to see that it runs, not how fast
    #[arg(long)]
    quick: bool,
}

/// Runs the benches.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let names: Vec<&str> = match &arguments.name {
        Some(name) => vec![name],
        None => bench::NAMES.to_vec(),
    };
    if let Some(unknown) = names.iter().find(|name| !bench::NAMES.contains(name)) {
        return Err(Failure::usage(format!("bench: expected one of {}, found {unknown:?}", bench::NAMES.join(", "))));
    }
    let settings = Settings {
        directory: arguments.dir.clone().unwrap_or_else(|| PathBuf::from(".")),
        device: arguments.device.clone(),
        rounds: arguments.rounds,
        quick: arguments.quick,
    };
    bench::vanish_on_signals()?;
    let mut reports = Vec::new();
    for name in names {
        let report = bench::run(name, &settings)?;
        if !arguments.json {
            output::print(&report.table())?;
        }
        reports.push(report);
    }
    if arguments.json {
        match (&arguments.name, reports.as_slice()) {
            (Some(_), [report]) => output::json(report)?,
            _ => output::json(&reports)?,
        }
    }
    let met = reports.iter().all(|report| report.cases.iter().all(|case| case.pass));
    Ok(if met { Code::Done } else { Code::Damaged })
}
