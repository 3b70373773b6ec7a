//! `lode reserve`: space that a server holds for those who will need it.

use super::volume::block_size;
use crate::failure::{Code, Failure, Result};
use crate::reservations::{Info, Reservations};
use crate::{image, output, session, size, text};
use clap::Subcommand;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  lode serve disk.lode --socket /tmp/lode.sock &
  lode reserve create disk.lode nightly --size 2GiB
  lode import disk.lode data image.raw --reservation nightly
  lode reserve list disk.lode
  lode reserve cancel disk.lode nightly

Reserved space is refused to everybody else, as if the disk were full without it, and whoever draws
on it is not refused, however full the disk is: it is counted as if no block could be compressed,
with what the disk takes for each block beside its bytes (the column HOLDS). Smaller blocks take
more, so say the block size of the volume that it is for.

The server of the disk holds it until it is cancelled or the server ends, however that happens;
nothing of it is on the disk. So this works on a disk that is being served only. What a command has
drawn and does not use, also because it fails, is free for all when it ends.";

/// What `lode reserve` takes.
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Command {
    /// Reserve space
    #[command(after_help = EXAMPLES)]
    Create {
        /// The disk
        disk: PathBuf,
        /// The name of the reservation
        name: String,
        /// How much is to be written, rounded up to whole blocks
        #[arg(long, value_parser = some)]
        size: u64,
        /// In blocks of this size: a power of two from 64 bytes to 64 KiB
        #[arg(long, value_name = "SIZE", value_parser = block_size, default_value = "4KiB")]
        block_size: u32,
    },
    /// List what is reserved
    List {
        /// The disk
        disk: PathBuf,
        /// Print JSON, all sizes in bytes
        #[arg(long)]
        json: bool,
    },
    /// Give back what is left of a reservation
    Cancel {
        /// The disk
        disk: PathBuf,
        /// The reservation
        name: String,
    },
}

fn some(text: &str) -> std::result::Result<u64, String> {
    match size::parse(text)? {
        0 => Err("expected a size of at least one byte, found 0".into()),
        bytes => Ok(bytes),
    }
}

/// Runs one of them.
pub fn run(command: &Command) -> Result<Code> {
    match command {
        Command::Create { disk: path, name, size, block_size } => {
            let held = held(path)?;
            image::closing(image::open(path)?, |disk| held.create(disk, name, *size, *block_size))?;
        }
        Command::Cancel { disk, name } => held(disk)?.cancel(name)?,
        Command::List { disk, json } => list(&*held(disk)?, *json)?,
    }
    Ok(Code::Done)
}

/// What the server of the disk holds, which runs this command.
pub(super) fn held(disk: &Path) -> Result<Arc<Reservations>> {
    if let Some(held) = session::reservations() {
        return Ok(held);
    }
    // Whatever is wrong with the disk itself, opening it tells better.
    image::closing(image::open_read_only(disk)?, |_| Ok(()))?;
    let why = "nobody serves it, so nobody could hold a reservation: expected a disk with a running `lode serve`";
    Err(Failure::usage(format!("{}: {why}", image::show(disk))))
}

#[derive(Serialize)]
struct Listed {
    name: String,
    bytes: u64,
    left_bytes: u64,
    /// What it takes of the disk, as `reserved` of `lode info` counts it.
    held_bytes: u64,
    block_bytes: u32,
}

impl From<Info> for Listed {
    fn from(info: Info) -> Self {
        let Info { name, block_bytes, bytes, left_bytes, held_bytes } = info;
        Listed { name, bytes, left_bytes, held_bytes, block_bytes }
    }
}

fn list(held: &Reservations, json: bool) -> Result<()> {
    let listed: Vec<Listed> = held.list().into_iter().map(Listed::from).collect();
    if json {
        return output::json(&listed);
    }
    if listed.is_empty() {
        return output::line("no reservations");
    }
    let mut rows = vec![["NAME", "SIZE", "LEFT", "HOLDS", "BLOCK"].map(String::from).to_vec()];
    for one in &listed {
        let sizes = [one.bytes, one.left_bytes, one.held_bytes, one.block_bytes.into()].map(size::show);
        rows.push([text::safe(&one.name)].into_iter().chain(sizes).collect());
    }
    output::print(&text::table(&rows))
}
