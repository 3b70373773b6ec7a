//! `lode volume`: create, list, resize and delete volumes.

use crate::failure::{Code, Result};
use crate::{image, output, size, text};
use clap::{Subcommand, ValueEnum};
use lode::{Compression, Disk, Survive, VolumeInfo, VolumeOptions};
use serde::Serialize;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  lode volume create disk.lode data --size 4GiB
  lode volume create disk.lode logs --size 1GiB --block-size 16KiB --compress lz4
  lode volume resize disk.lode data --size 8GiB
  lode volume list disk.lode

Volumes are thin: together they may be larger than the disk, and use space only where they are
written.";

/// What `lode volume` takes.
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Command {
    /// Create a volume
    #[command(after_help = EXAMPLES)]
    Create {
        /// The disk
        disk: PathBuf,
        /// The name of the volume; it is also the name of its NBD export
        name: String,
        /// How large the volume is to look
        #[arg(long, value_parser = size::parse)]
        size: u64,
        /// The block size: a power of two from 64 bytes to 64 KiB
        #[arg(long, value_name = "SIZE", value_parser = block_size, default_value = "4KiB")]
        block_size: u32,
        /// How blocks are compressed
        #[arg(long, value_enum, default_value_t = Compress::None)]
        compress: Compress,
    },
    /// List the volumes
    List {
        /// The disk
        disk: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Change the size of a volume; what is cut off is lost
    Resize {
        /// The disk
        disk: PathBuf,
        /// The volume
        name: String,
        /// The new size
        #[arg(long, value_parser = size::parse)]
        size: u64,
    },
    /// Delete a volume and all that it holds
    Delete {
        /// The disk
        disk: PathBuf,
        /// The volume
        name: String,
    },
}

/// How the blocks of a volume are compressed.
#[derive(Clone, Copy, ValueEnum)]
pub enum Compress {
    /// Fast compression; what does not shrink is stored as it is
    Lz4,
    /// Blocks are stored as they are written, and compressed when the cleaner moves them
    ColdLz4,
    /// The same by Zstandard: smaller, slower to read
    ColdZstd,
    /// Blocks are stored as they are
    None,
}

/// What a way of compression is called.
pub fn compression_name(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "none",
        Compression::Lz4 => "lz4",
        Compression::ColdLz4 => "cold-lz4",
        Compression::ColdZstd => "cold-zstd",
    }
}

impl From<Compress> for Compression {
    fn from(compress: Compress) -> Compression {
        match compress {
            Compress::Lz4 => Compression::Lz4,
            Compress::ColdLz4 => Compression::ColdLz4,
            Compress::ColdZstd => Compression::ColdZstd,
            Compress::None => Compression::None,
        }
    }
}

/// Parses the size of a block.
pub fn block_size(text: &str) -> std::result::Result<u32, String> {
    let bytes = size::parse(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_power_of_two() && (64..=65536).contains(bytes))
        .ok_or_else(|| format!("expected a power of two from 64 bytes to 64 KiB, found {bytes} bytes"))
}

/// Runs one of them.
pub fn run(command: &Command) -> Result<Code> {
    match command {
        Command::Create { disk, name, size, block_size, compress } => {
            let options = VolumeOptions { bytes: *size, block_bytes: *block_size, compression: (*compress).into() };
            change(disk, |disk| Ok(disk.create_volume(name, &options).map(drop)?))
        }
        Command::Resize { disk, name, size } => change(disk, |disk| Ok(disk.resize_volume(name, *size).map(drop)?)),
        Command::Delete { disk, name } => change(disk, |disk| Ok(disk.delete_volume(name).map(drop)?)),
        Command::List { disk, json } => list(disk, *json),
    }
}

/// One change, durable before this returns.
pub fn change(path: &std::path::Path, work: impl FnOnce(&Disk) -> Result<()>) -> Result<Code> {
    image::closing(image::open(path)?, |disk| {
        work(disk)?;
        disk.flush(Survive::Power)?;
        Ok(Code::Done)
    })
}

#[derive(Serialize)]
struct Listed {
    name: String,
    bytes: u64,
    block_bytes: u32,
    compression: &'static str,
    mapped_bytes: u64,
}

impl From<VolumeInfo> for Listed {
    fn from(volume: VolumeInfo) -> Self {
        let compression = compression_name(volume.compression);
        let mapped_bytes = volume.mapped_blocks.saturating_mul(volume.block_bytes.into());
        Listed { name: volume.name, bytes: volume.bytes, block_bytes: volume.block_bytes, compression, mapped_bytes }
    }
}

fn list(path: &std::path::Path, json: bool) -> Result<Code> {
    let volumes = image::closing(image::open_read_only(path)?, |disk| Ok(disk.volumes()?))?;
    let volumes: Vec<Listed> = volumes.into_iter().map(Listed::from).collect();
    if json {
        output::json(&volumes)?;
        return Ok(Code::Done);
    }
    let mut rows = vec![["NAME", "SIZE", "WRITTEN", "BLOCK", "COMPRESSION"].map(String::from).to_vec()];
    for volume in &volumes {
        rows.push(vec![
            text::safe(&volume.name),
            size::show(volume.bytes),
            size::show(volume.mapped_bytes),
            size::show(volume.block_bytes.into()),
            volume.compression.into(),
        ]);
    }
    output::print(&text::table(&rows))?;
    Ok(Code::Done)
}
