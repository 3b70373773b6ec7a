//! `lode bench-fs`: measure file systems, side by side.

use crate::bench::fs::{BENCHES, Benches, Settings, Side};
use crate::bench::{self, Report};
use crate::failure::{Code, Failure, Result};
use crate::output;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  make bench-fs                            brings what is needed, and runs all of them
  lode bench-fs small-files --dir /data    one of them, in files there
  lode bench-fs postmark --judged          Lode, and whom the bar compares it with; nobody else
  lode bench-fs --json > figures.json

Sides: Lode in both orders of mounting, strict and relaxed; ext4 (data ordered, and data=journal),
XFS and btrfs on a loop device; and passthrough, libfuse's example passthrough_hp over ext4, the
price of FUSE itself. All lie on the same file, which is written from end to end first, and each
measurement begins with an empty file system. A round measures each side once, in turn; the figures
are medians. `ratio` is what is compared with `bar`: Lode divided by the peer, or Lode's own figure
where the bar is an absolute one.

It needs root, for mounts and to drop the kernel's caches, and space: 8 GiB, fs-memory and fs-open
20 GiB. `make bench-fs` brings passthrough_hp, the C project of `build`, and the program that
`fs-bracket` compares with. Exit code 0: every bar met. 1: one was missed.

Benches:
";

fn names() -> String {
    BENCHES.map(|(name, _)| name).join(", ")
}

/// What stands behind the options in `--help`.
fn help() -> String {
    let lines: Vec<String> = BENCHES.iter().map(|(name, words)| format!("  {name:<13} {words}")).collect();
    EXAMPLES.to_owned() + &lines.join("\n")
}

/// What `lode bench-fs` takes.
#[derive(clap::Args)]
#[command(after_help = help())]
pub struct Arguments {
    /// The bench to run [default: all]
    name: Option<String>,
    /// Print JSON: one object for one bench, a list for all
    #[arg(long)]
    json: bool,
    /// Where to put scratch files [default: the current directory]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// How many interleaved rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Small and short: to see that it runs, not how fast
    #[arg(long)]
    quick: bool,
    /// Only Lode in its usual order, and whom the bar compares it with
    #[arg(long)]
    judged: bool,
    /// Compare with that one, instead of the one that the bar is for
    #[arg(long, value_name = "PEER")]
    against: Option<Side>,
    /// Lode's image on a loop device, as its peers are
    #[arg(long)]
    lode_on_loop: bool,
    /// Where `make bench-fs` has put what it brings [default: target/bench-fs, beside this program]
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,
}

/// `target/bench-fs`, if this is `target/release/lode`.
fn beside() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.ancestors().nth(2).map_or_else(|| PathBuf::from("bench-fs"), |target| target.join("bench-fs"))
}

/// Runs the benches.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let mut wanted: Vec<&str> = BENCHES.map(|(name, _)| name).to_vec();
    if let Some(name) = &arguments.name {
        wanted.retain(|known| known == name);
        if wanted.is_empty() {
            return Err(Failure::usage(format!("bench-fs: expected one of {}, found {name:?}", names())));
        }
    }
    let common = bench::Settings {
        directory: arguments.dir.clone().unwrap_or_else(|| PathBuf::from(".")),
        device: None,
        rounds: arguments.rounds,
        quick: arguments.quick,
    };
    let tools = arguments.tools.clone().unwrap_or_else(beside);
    let (judged, against, lode_on_loop) = (arguments.judged, arguments.against, arguments.lode_on_loop);
    let settings = Settings { common, judged, against, lode_on_loop, tools };
    bench::vanish_on_signals()?;
    let mut benches = Benches::new(settings);
    let mut reports: Vec<Report> = Vec::new();
    for name in wanted {
        let report = benches.run(name)?;
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
