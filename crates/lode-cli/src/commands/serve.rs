//! `lode serve`: the volumes of a disk over NBD, until a signal says that it is enough.

use crate::chores::Chores;
use crate::control::server::Control;
use crate::failure::{Code, Failure, Result};
use crate::serving::{self, Where};
use crate::shelf::Shelf;
use crate::{image, output, space, text};
use lode::{Disk, OpenOptions};
use lode_nbd::Address;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  lode serve disk.lode --socket /tmp/lode.sock
  nbdinfo --list 'nbd+unix:///?socket=/tmp/lode.sock'
  nbdcopy image.raw 'nbd+unix:///data?socket=/tmp/lode.sock'
  lode serve disk.lode --listen 127.0.0.1:10809
  nbdinfo --map=lode:changed:monday 'nbd+unix:///data@tuesday?socket=/tmp/lode.sock'
  qemu-img map --output=json --image-opts driver=nbd,export=data@tuesday,server.type=unix,\
server.path=/tmp/lode.sock,x-dirty-bitmap=lode:changed:monday

The name of an export is the name of its volume; VOLUME@SNAPSHOT is the volume as a snapshot sees
it, and VOLUME?unit=LABEL as a unit sees it, for reading and writing (`lode unit`, `lode clone`); in
a URI that is VOLUME%3Funit=LABEL. A reply to a write means that it survives kill -9 of this server;
a reply to a flush, or to a write with FUA, that it survives a power cut. SIGTERM and SIGINT let
running requests finish (at most --drain seconds) and close the disk. The unix socket can be used by
its owner only.

The metadata context lode:changed:SNAPSHOT tells what of an export changed since an older snapshot
of its volume: flag 1 where something did. Of VOLUME@SNAPSHOT it never changes, so a backup copies
from there; of a volume in use a reply tells what was written before it was asked for. It is an
error once the older snapshot is deleted. (qemu-img map shows what has changed as \"data\": false.)

Other commands work on the disk while it is served: `lode snapshot create disk.lode monday` finds
this server by the socket disk.lode.control, and has it run the command. So do all but create,
check, repair, bench and a second serve. The same user, and root, may do that.

Without --socket and --listen, the socket is the one that systemd has opened for this process
(LISTEN_FDS; docs/SYSTEMD.md has the units). TCP is neither encrypted nor authenticated, so it is
for loopback addresses unless --allow-remote is given.

When little space is left, a line on standard error says so before any write is refused, and what
could be dropped; and again when there is more. NBD has no words for that: a client hears only the
refusal.

With --reorganize, once nobody has read or written for ten seconds, blocks that were overwritten at
random are brought together again (as by `lode recluster`), in pieces of 16 MiB, until somebody
does.

With --discard the image takes about what is stored in it, and zones are written out again before
they are used. If somebody else has taken the space by then, writes of new data are refused as if
the disk were full.";

/// What `lode serve` takes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The disk
    disk: PathBuf,
    #[command(flatten)]
    at: Where,
    /// Refuse every change; the disk is not written to
    #[arg(long)]
    read_only: bool,
    /// Give the space of what is free in the disk back to the file system or the device below
    #[arg(long, conflicts_with = "read_only")]
    discard: bool,
    /// When nobody works, put the blocks of volumes next to each other that lie scattered
    #[arg(long, conflicts_with = "read_only")]
    reorganize: bool,
    /// Warn when less than this part of the space is free, in percent; 0: never
    #[arg(long, value_name = "PERCENT", default_value_t = OpenOptions::default().low_percent,
        value_parser = clap::value_parser!(u8).range(0..=100))]
    warn_below: u8,
    /// How long running requests may take to finish at the end, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    drain: u64,
}

/// Serves until SIGTERM or SIGINT.
pub fn run(arguments: &Arguments) -> Result<Code> {
    // Before anything can be waited for, so that a signal is never lost.
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|error| Failure::io("serve: catching signals", error))?;
    let started = Instant::now();
    let options = OpenOptions {
        read_only: arguments.read_only,
        discard: arguments.discard,
        low_percent: arguments.warn_below,
        ..OpenOptions::default()
    };
    let disk = image::open_with(&arguments.disk, &options)?;
    let opened = started.elapsed();
    image::closing(disk, |disk| {
        space::log(&arguments.disk, disk);
        let shelf = Arc::new(Shelf::default());
        let server = serving::start(&arguments.at, disk, arguments.read_only, &shelf)?;
        let control = Control::start(&arguments.disk, disk, &shelf);
        let chores = Chores::start(disk, arguments.read_only, arguments.reorganize, None);
        output::print(&greeting(arguments, disk, server.address(), opened, &control)?)?;
        // The iterator ends only when its handle is closed, which nobody does.
        let _ = signals.forever().next();
        let until = Instant::now() + Duration::from_secs(arguments.drain);
        let report = server.drain(until.saturating_duration_since(Instant::now()));
        chores.stop();
        if let Ok(control) = control {
            control.drain(until.saturating_duration_since(Instant::now()));
        }
        output::line(format!("stopped: {} connections finished, {} cut off", report.finished, report.dropped))?;
        Ok(Code::Done)
    })
}

fn greeting(
    arguments: &Arguments,
    disk: &Disk,
    address: &Address,
    opened: Duration,
    control: &Result<Control>,
) -> Result<String> {
    let path = image::show(&arguments.disk);
    let mode = if arguments.read_only { ", read-only" } else { "" };
    let mut words = format!("{path}: opened in {:.1} ms{mode}\n", opened.as_secs_f64() * 1e3);
    let _ = match control {
        Ok(control) => writeln!(words, "commands: {}", image::show(control.path())),
        // The disk is served all the same.
        Err(why) => writeln!(words, "commands: none, they will find the disk busy: {}", text::safe(why.words())),
    };
    words.push_str(&serving::uris(disk, address)?);
    words.push_str("ready\n");
    Ok(words)
}
