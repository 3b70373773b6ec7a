//! `lode send`: a volume in a snapshot, or what changed of it since an older one, as a stream for `lode receive`.

use super::export::target::{self, Target};
use crate::failure::{Code, Failure, Result};
use crate::progress::Progress;
use crate::{image, output, session, size, text};
use lode::{Compression, SendOptions};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  lode send disk.lode data@monday | ssh host lode receive backup.lode
  lode send disk.lode data@tuesday --from monday -o tuesday.stream
  lode send disk.lode data@tuesday --from monday --position 73400320 -o rest.stream

What changed between two snapshots is known without reading the volume. `lode receive` says up to
which position a stream is kept that was cut, and --status later; --position goes on from there. The
stream is checksummed, not encrypted and not signed.";

/// What `lode send` takes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The disk
    disk: PathBuf,
    /// What to send, VOLUME@SNAPSHOT
    name: String,
    /// Only what changed since this older snapshot, which the receiver has
    #[arg(long, value_name = "SNAPSHOT")]
    from: Option<String>,
    /// The file to write; standard output if not given
    #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    output: PathBuf,
    /// Begin here, where a stream was cut
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    position: u64,
    /// Compress the stream
    #[arg(long, value_name = "HOW", value_parser = ["none", "lz4"], default_value = "none")]
    compress: String,
    /// Replace a file that exists, or what a device holds
    #[arg(long)]
    force: bool,
    /// Print JSON; needs --output
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    /// Bytes of the volume in the stream.
    data_bytes: u64,
    /// Bytes of the stream.
    stream_bytes: u64,
}

/// Sends it.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let to_stdout = target::is_stream(&arguments.output);
    if to_stdout && arguments.json {
        return Err(Failure::usage(
            "--json: expected a file for the stream (--output), since JSON goes to standard output",
        ));
    }
    if to_stdout && session::stdout_is_terminal() {
        return Err(Failure::usage("standard output is a terminal: expected a pipe, or a file (--output)"));
    }
    image::closing(image::open_read_only(&arguments.disk)?, |disk| {
        let volume = disk.volume(&arguments.name)?;
        let from = arguments.from.as_ref().map(|from| disk.volume(&format!("{}@{from}", volume.name()))).transpose()?;
        let compression = if arguments.compress == "lz4" { Compression::Lz4 } else { Compression::None };
        let options = SendOptions { position: arguments.position, compression };
        let mut sink = Sink::open(&arguments.output, &arguments.disk, arguments.force)?;
        let mut progress = Progress::bytes("sending", Some(volume.bytes()));
        let sent = volume.send(from.as_ref(), &options, &mut sink, &mut |done, _| {
            let _ = progress.advance(done); // Whether it broke off is asked at the end.
        });
        let sent = sent.map_err(|error| sink.failed.take().unwrap_or_else(|| error.into()))?;
        progress.finish()?;
        sink.target.finish()?;
        if arguments.json {
            output::json(&Report { data_bytes: sent.data, stream_bytes: sent.stream })?;
        } else if !to_stdout {
            let (name, file) = (text::safe(&arguments.name), image::show(&arguments.output));
            let (data, stream) = (size::show(sent.data), size::show(sent.stream));
            output::line(format!("{name}: {data} sent as {stream} to {file}"))?;
        }
        Ok(Code::Done)
    })
}

/// Writes the stream in order, and keeps what failed with its exit code.
struct Sink {
    target: Target,
    at: u64,
    failed: Option<Failure>,
}

impl Sink {
    fn open(path: &Path, disk: &Path, force: bool) -> Result<Sink> {
        Ok(Sink { target: Target::open(path, disk, 0, force)?, at: 0, failed: None })
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Err(failure) = self.target.data(self.at, bytes) {
            let error = std::io::Error::other(failure.words().to_owned());
            self.failed = Some(failure);
            return Err(error);
        }
        self.at += u64::try_from(bytes.len()).expect("a piece is small");
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
