//! What can be typed.

use crate::commands::{
    bench, bench_fs, check, clone, completions, create, diff, export, fs, grow, import, info, inspect, list, map,
    mount, receive, recluster, repair, reserve, run, scrub, send, serve, snapshot, txn, unit, volume,
};
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

const LONG: &str = "\
A logical disk in a file or on a block device: it takes any group of writes as one indivisible unit.

A DISK holds volumes. A volume is served to any NBD client, filled from a file as one unit, and read
back out. A command that succeeds is durable: it survives a power cut. `info`, `check`, `scrub`,
`inspect`, `diff`, `export` and `send` never write to the disk.";

const AFTER: &str = "\
Examples:
  lode create disk.lode --size 10GiB
  lode volume create disk.lode data --size 4GiB
  lode serve disk.lode --socket /tmp/lode.sock &
  nbdcopy image.raw 'nbd+unix:///data?socket=/tmp/lode.sock'
  lode export disk.lode data copy.raw

Exit codes:
  0  done; check, scrub: sound; bench: every bar met
  1  damage found; bench: a bar missed
  2  the arguments make no sense, or ask for what this disk cannot do
  3  no such disk, volume or file
  4  busy: the image is open elsewhere
  5  full: the disk, or the file system below it
  6  a device, a file or the network failed
  7  exists: the target holds something already
  8  not a Lode disk, or one of a newer format
  9  not allowed: a read-only file, a missing permission
 10  conflict: others changed what this was made for; nothing was done

Sizes are bytes, or KiB, MiB, GiB, TiB: 4096, 64KiB, 1.5GiB.";

/// The whole command line.
#[derive(Parser)]
#[command(name = "lode", version, about = "A logical disk: any group of writes as one indivisible unit")]
#[command(long_about = LONG, after_help = AFTER, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// A command line, and the argument that names its disk.
    pub fn parse(line: Vec<OsString>) -> clap::error::Result<(Arguments, Option<PathBuf>)> {
        let mut command = Arguments::command();
        let mut matches = command.try_get_matches_from_mut(line).map_err(|error| error.format(&mut command))?;
        let disk = disk(&matches);
        Ok((Arguments::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))?, disk))
    }
}

/// The argument `disk` of the innermost command.
fn disk(matches: &ArgMatches) -> Option<PathBuf> {
    match matches.subcommand() {
        Some((_, inner)) => disk(inner),
        None => matches.try_get_one::<PathBuf>("disk").ok().flatten().cloned(),
    }
}

/// The sub-commands, in the order of `--help`.
#[derive(Subcommand)]
pub enum Command {
    /// Make an empty disk
    Create(create::Arguments),
    /// Create, list, resize or delete volumes
    #[command(subcommand)]
    Volume(volume::Command),
    /// Take, list or delete snapshots, or go back to one
    #[command(subcommand)]
    Snapshot(snapshot::Command),
    /// Begin, list, commit or abort units that stay open
    #[command(subcommand)]
    Unit(unit::Command),
    /// Make, list, merge or drop writable clones of snapshots
    #[command(subcommand)]
    Clone(clone::Command),
    /// Reserve space on a disk that is being served, list or cancel that
    #[command(subcommand)]
    Reserve(reserve::Command),
    /// Create, show, fill, move or delete ordered lists of blocks
    #[command(subcommand)]
    List(list::Command),
    /// Show what changed since a snapshot
    Diff(diff::Arguments),
    /// Show a disk's sizes
    Info(info::Arguments),
    /// Make a disk larger
    Grow(grow::Arguments),
    /// Verify the structure of a disk from its medium alone
    Check(check::Arguments),
    /// Read and verify every stored block
    Scrub(scrub::Arguments),
    /// Put the blocks of volumes next to each other again
    Recluster(recluster::Arguments),
    /// Go on from the last sound state of a damaged disk
    Repair(repair::Arguments),
    /// Look at what the medium holds
    Inspect(inspect::Arguments),
    /// Draw what lies where
    Map(map::Arguments),
    /// Bring a file into a volume, all or nothing
    Import(import::Arguments),
    /// Write a volume to a file
    Export(export::Arguments),
    /// Write a volume in a snapshot, or what changed of it, as a stream for another disk
    Send(send::Arguments),
    /// Take in what `send` wrote, all or nothing
    Receive(receive::Arguments),
    /// Serve the volumes over NBD
    Serve(serve::Arguments),
    /// Make or verify a file system
    #[command(subcommand)]
    Fs(fs::Command),
    /// Mount the file system of a disk
    Mount(mount::Arguments),
    /// Run a command whose changes to a mounted file system count together, or not at all
    Run(run::Arguments),
    /// List, compare, enter, commit or abort transactions of a mounted file system
    #[command(subcommand)]
    Txn(txn::Command),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// Measure, side by side with the raw device
    Bench(bench::Arguments),
    /// Measure file systems, side by side with those of the kernel
    BenchFs(bench_fs::Arguments),
    /// Be the process that `bench-fs fs-open` kills
    #[command(hide = true)]
    BenchFsChild(crate::bench::fs::ChildArguments),
    /// Be the process whose instructions `bench-fs fs-bracket` counts
    #[command(hide = true)]
    BenchFsCount(crate::bench::fs::CountArguments),
    /// Be the process that `bench open` kills
    #[command(hide = true)]
    BenchChild(crate::bench::ChildArguments),
    /// Be the process whose instructions `bench unit-overhead` counts
    #[command(hide = true)]
    BenchCount(crate::bench::CountArguments),
}

impl Command {
    /// Whether it makes no sense on a disk that a server has open: it would make, verify or mend the image as it lies
    /// there, or serve it a second time. All others may be run by that server (see `control`).
    pub fn needs_the_disk_alone(&self) -> bool {
        use Command as C;
        matches!(
            self,
            C::Create(_)
                | C::Check(_)
                | C::Repair(_)
                | C::Serve(_)
                | C::Fs(_)
                | C::Mount(_)
                | C::Bench(_)
                | C::BenchChild(_)
                | C::BenchFs(_)
                | C::BenchFsChild(_)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::CommandFactory;

    /// Commands whose disk, if any, nobody else may have open.
    const WITHOUT: [&str; 7] =
        ["bench", "bench-child", "bench-count", "bench-fs", "bench-fs-child", "bench-fs-count", "completions"];

    fn every(command: &clap::Command, found: &mut Vec<String>) {
        let help = [command.get_after_help(), command.get_long_about(), command.get_about()];
        found.extend(help.into_iter().flatten().map(ToString::to_string));
        command.get_subcommands().for_each(|command| every(command, found));
    }

    /// What stands behind a second question mark would not be the name of a socket.
    #[test]
    fn examples_have_uris_that_clients_understand() {
        let mut texts = vec![include_str!("../../../README.md").to_owned()];
        every(&Arguments::command(), &mut texts);
        let words = texts.iter().flat_map(|text| text.split_whitespace());
        let uris: Vec<&str> = words.filter(|word| word.contains("nbd+unix:") || word.contains("nbd:")).collect();
        assert!(uris.len() > 6, "{uris:?}");
        let wrong = uris.iter().filter(|uri| uri.matches('?').count() > 1);
        assert_eq!(wrong.collect::<Vec<_>>(), Vec::<&&str>::new(), "in a name it is %3F");
    }

    /// As wide as clap makes lines where there is no terminal; what is longer it breaks in odd places.
    #[test]
    fn help_has_no_lines_that_would_be_broken() {
        let mut texts = Vec::new();
        every(&Arguments::command(), &mut texts);
        // Not what is to be copied as it is.
        let lines = texts.iter().flat_map(|text| text.lines()).filter(|line| !line.starts_with("  "));
        let long: Vec<&str> = lines.filter(|line| line.chars().count() > 100).collect();
        assert!(texts.len() > 20 && long.is_empty(), "{long:?}");
    }

    fn innermost(command: &clap::Command, found: &mut Vec<(String, bool)>) {
        if command.get_subcommands().next().is_none() {
            // Where it is mounted says which disk it is.
            let named = |argument: &clap::Arg| argument.get_id() == "disk" || argument.get_id() == "directory";
            let has = command.get_arguments().any(named);
            found.push((command.get_name().to_owned(), has));
        }
        command.get_subcommands().for_each(|command| innermost(command, found));
    }

    #[test]
    fn every_command_names_its_disk_so_that_its_server_is_found() {
        let mut found = Vec::new();
        innermost(&Arguments::command(), &mut found);
        assert!(found.len() > 20, "{found:?}");
        let without = found.iter().filter(|(name, has)| !has && !WITHOUT.contains(&name.as_str()));
        assert_eq!(without.collect::<Vec<_>>(), Vec::<&(String, bool)>::new());
    }
}
