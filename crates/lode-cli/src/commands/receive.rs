//! `lode receive`: takes in what `lode send` wrote, as one unit.

mod kept;

use super::volume::change;
use crate::failure::{Code, Failure, Result};
use crate::progress::Progress;
use crate::{image, output, session, size, text};
use lode::{Disk, ErrorKind, ReceiveOptions, Received, Receiver};
use serde::Serialize;
use std::io::Read;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  ssh host lode send disk.lode data@monday | lode receive backup.lode
  lode receive backup.lode copy@monday-copy -i monday.stream
  lode receive backup.lode data --status
  ssh host lode send disk.lode data@monday --position 73400320 | lode receive backup.lode
  lode receive backup.lode data --drop

A full stream makes a new volume. An incremental one changes a volume that is still what the older
snapshot saw; --force gives up what was changed since. Either way the volume and its snapshot are
there when everything has arrived and is on stable storage, and nothing is seen of it before.

A stream that is cut is kept, and takes space, until it is whole or dropped: also when the command
is killed or the power fails, but then up to 64 MiB less. Send the same again, from its beginning
or from the position that --status tells: what is there already is passed over. Another stream is
refused meanwhile. Until a new volume is whole an empty one named VOLUME.receiving stands for it.";

/// What `lode receive` takes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The disk
    disk: PathBuf,
    /// The volume, or VOLUME@SNAPSHOT; if not given, named as where they come from
    name: Option<String>,
    /// The file to read, standard input if not given; another one goes on where the one before was cut
    #[arg(short, long, value_name = "FILE")]
    input: Vec<PathBuf>,
    /// Give up what was changed since the snapshot that the stream is based on
    #[arg(long)]
    force: bool,
    /// Tell how far streams have come that were cut: to this volume, or all
    #[arg(long, conflicts_with_all = ["input", "force"])]
    status: bool,
    /// Drop what was received of a stream to this volume
    #[arg(long, requires = "name", conflicts_with_all = ["input", "force", "status", "json"])]
    drop: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    volume: String,
    snapshot: String,
    /// The size of the volume.
    bytes: u64,
    /// Bytes that the stream brought.
    data_bytes: u64,
}

/// Receives it.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let (volume, snapshot) = match arguments.name.as_ref().map(|name| name.split_once('@')) {
        None => (None, None),
        Some(None) => (arguments.name.clone(), None),
        Some(Some((volume, snapshot))) => (Some(volume.to_owned()), Some(snapshot.to_owned())),
    };
    if arguments.status {
        return kept::status(&arguments.disk, volume.as_deref(), arguments.json);
    }
    if let (true, Some(volume)) = (arguments.drop, &volume) {
        return change(&arguments.disk, |disk| Ok(disk.drop_receive(volume)?));
    }
    let options = ReceiveOptions { volume, snapshot, force: arguments.force };
    let inputs = inputs(&arguments.input)?;
    let received = image::closing(image::open(&arguments.disk)?, |disk| receive(disk, &options, inputs))?;
    let (volume, snapshot) = (text::safe(&received.volume), text::safe(&received.snapshot));
    if arguments.json {
        output::json(&Report {
            volume: received.volume,
            snapshot: received.snapshot,
            bytes: received.bytes,
            data_bytes: received.data,
        })?;
    } else {
        output::line(format!("{volume}@{snapshot}: {} received", size::show(received.data)))?;
    }
    Ok(Code::Done)
}

/// Opened before the disk is: a name that is wrong is told at once.
fn inputs(paths: &[PathBuf]) -> Result<Inputs> {
    if paths.is_empty() {
        return Ok(vec![input(Path::new("-"))?]);
    }
    paths.iter().map(|path| input(path)).collect()
}

fn input(path: &Path) -> Result<(String, Box<dyn Read>)> {
    if path.as_os_str() == "-" {
        if session::stdin_is_terminal() {
            return Err(Failure::usage("standard input is a terminal: expected a pipe, or a file (--input)"));
        }
        return Ok(("standard input".into(), session::stdin()));
    }
    let name = image::show(path);
    let file = session::open(path)?;
    if file.metadata().is_ok_and(|found| found.is_dir()) {
        return Err(Failure::usage(format!("{name}: expected a file, found a directory")));
    }
    Ok((name, Box::new(std::io::BufReader::with_capacity(1 << 18, session::reader(file)))))
}

type Inputs = Vec<(String, Box<dyn Read>)>;

fn receive(disk: &Disk, options: &ReceiveOptions, inputs: Inputs) -> Result<Received> {
    let mut receiver = disk.receiver(options)?;
    receiver.made_at(crate::now());
    if let Err(failure) = take_in(&mut receiver, inputs) {
        return Err(failure.during(outcome(receiver.keep())));
    }
    let volume = options.volume.clone().or(receiver.info().map(|info| info.volume.clone()));
    receiver.commit().map_err(|error| {
        let kept = disk.receives().unwrap_or_default().into_iter().find(|kept| Some(&kept.volume) == volume.as_ref());
        Failure::from(error).during(outcome(kept.map(|kept| kept.position)))
    })
}

/// What is left of a stream that was not received.
fn outcome(kept: Option<u64>) -> String {
    match kept {
        Some(position) => format!("kept up to position {position} (`lode send --position` goes on from there)"),
        None => "nothing was received".into(),
    }
}

fn take_in(receiver: &mut Receiver, inputs: Inputs) -> Result<()> {
    let mut progress = Progress::bytes("receiving", None);
    let last = inputs.len() - 1;
    for (n, (name, mut input)) in inputs.into_iter().enumerate() {
        let taken = receiver.take_in(&mut *input, &mut |done, all| {
            progress.set_total(all);
            let _ = progress.advance(done); // Whether it broke off is asked at the end.
        });
        match taken {
            Err(error) if error.kind() == ErrorKind::Ended && n < last => {}
            Err(error) => return Err(Failure::from(error).during(name)),
            Ok(()) => nothing_behind(&name, &mut *input)?,
        }
    }
    progress.finish()
}

/// What stands behind a stream would be passed over without a word.
fn nothing_behind(name: &str, input: &mut dyn Read) -> Result<()> {
    let mut more = Vec::new();
    input.take(1).read_to_end(&mut more).map_err(|error| Failure::io(format!("reading {name}"), error))?;
    if more.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(format!("{name}: expected one stream, found more behind it")))
}
