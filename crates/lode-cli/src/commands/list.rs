//! `lode list`: ordered lists of blocks, and the order of the lists.

use super::volume::{Compress, block_size, change};
use crate::failure::{Code, Failure, Result};
use crate::{image, output, session, size, text};
use clap::{Args, Subcommand};
use lode::{BlockId, Disk, ErrorKind, ListInfo, ListOptions, OrderedId, Place};
use serde::Serialize;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  lode list create disk.lode --block-size 4KiB
  lode list append disk.lode 1 journal.bin
  lode list show disk.lode
  lode list blocks disk.lode 1
  lode list read disk.lode 1 > journal.bin
  lode list read disk.lode 1 --snapshot monday > journal.bin
  lode list move disk.lode 3 --after 1
  lode list delete disk.lode 1

An ordered list is blocks in an order that its clients choose. Lists and blocks are named by
numbers, which they keep wherever they move. The lists themselves are in an order, too. Programs
that insert, remove and move single blocks use the library.";

/// What `lode list` takes.
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Command {
    /// Create a list and print its number
    Create {
        /// The disk
        disk: PathBuf,
        /// The size of its blocks: a power of two from 64 bytes to 64 KiB
        #[arg(long, value_name = "SIZE", value_parser = block_size, default_value = "4KiB")]
        block_size: u32,
        /// How blocks are compressed
        #[arg(long, value_enum, default_value_t = Compress::None)]
        compress: Compress,
        /// Do not bring its blocks together in their order
        #[arg(long)]
        no_cluster: bool,
        /// Put its blocks behind those of the list before it, when the cleaner moves them
        #[arg(long)]
        near: bool,
        #[command(flatten)]
        to: Where,
    },
    /// Show all lists in their order
    Show {
        /// The disk
        disk: PathBuf,
        /// As this snapshot sees them
        #[arg(long, value_name = "NAME")]
        snapshot: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the blocks of a list in their order
    Blocks {
        /// The disk
        disk: PathBuf,
        /// The list
        list: u32,
        /// As this snapshot sees it
        #[arg(long, value_name = "NAME")]
        snapshot: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Append a file to a list, block by block, all or nothing; zeros fill up the last block
    Append {
        /// The disk
        disk: PathBuf,
        /// The list
        list: u32,
        /// The file; - for standard input
        file: PathBuf,
    },
    /// Write what the blocks of a list hold to standard output
    Read {
        /// The disk
        disk: PathBuf,
        /// The list
        list: u32,
        /// As this snapshot sees it
        #[arg(long, value_name = "NAME")]
        snapshot: Option<String>,
    },
    /// Move a list to another place in the order of lists
    Move {
        /// The disk
        disk: PathBuf,
        /// The list
        list: u32,
        #[command(flatten)]
        to: Where,
    },
    /// Delete a list with all its blocks
    Delete {
        /// The disk
        disk: PathBuf,
        /// The list
        list: u32,
    },
}

/// A place in the order of lists; the last one if nothing is said.
#[derive(Args)]
#[group(multiple = false)]
pub struct Where {
    /// Before all other lists
    #[arg(long)]
    first: bool,
    /// Right behind this list
    #[arg(long, value_name = "LIST")]
    after: Option<u32>,
}

impl Where {
    fn place(&self) -> Place<OrderedId> {
        match self.after {
            Some(list) => Place::After(OrderedId(list)),
            None if self.first => Place::First,
            None => Place::Last,
        }
    }
}

/// Runs one of them.
pub fn run(command: &Command) -> Result<Code> {
    match command {
        Command::Create { disk, block_size, compress, no_cluster, near, to } => change(disk, |disk| {
            let options = ListOptions {
                block_bytes: *block_size,
                compression: (*compress).into(),
                cluster: !no_cluster,
                near: *near,
            };
            let list = disk.create_list(&options, to.place())?;
            output::line(list.0)
        }),
        Command::Append { disk, list, file } => change(disk, |disk| append(disk, OrderedId(*list), file)),
        Command::Move { disk, list, to } => {
            change(disk, |disk| Ok(disk.move_list(OrderedId(*list), to.place()).map(drop)?))
        }
        Command::Delete { disk, list } => change(disk, |disk| Ok(disk.delete_list(OrderedId(*list)).map(drop)?)),
        Command::Show { disk, snapshot, json } => show(disk, Seen(snapshot.as_deref()), *json),
        Command::Blocks { disk, list, snapshot, json } => {
            blocks(disk, OrderedId(*list), Seen(snapshot.as_deref()), *json)
        }
        Command::Read { disk, list, snapshot } => read(disk, OrderedId(*list), Seen(snapshot.as_deref())),
    }
}

fn append(disk: &Disk, list: OrderedId, path: &Path) -> Result<()> {
    let failed = |error| Failure::io(format!("reading {}", image::show(path)), error);
    let mut source: Box<dyn Read> = match path.as_os_str() == "-" {
        true => session::stdin(),
        false => session::reader(session::open(path)?),
    };
    let size = u64::from(disk.list(list)?.block_bytes);
    let mut unit = disk.begin()?;
    loop {
        let mut piece = Vec::new();
        source.by_ref().take(size).read_to_end(&mut piece).map_err(failed)?;
        if piece.is_empty() {
            break;
        }
        let block = unit.insert_block(list, Place::Last)?;
        unit.write_block(block, 0, &piece)?;
    }
    unit.commit()?;
    Ok(())
}

/// Lists as they are now, or as a snapshot sees them.
#[derive(Clone, Copy)]
struct Seen<'a>(Option<&'a str>);

impl Seen<'_> {
    /// What is in no snapshot would look like lists that are no more.
    fn check(self, disk: &Disk) -> Result<()> {
        let Some(name) = self.0 else { return Ok(()) };
        match disk.snapshots().into_iter().find(|snapshot| snapshot.name == name) {
            Some(found) if !found.lists => {
                let words = format!("snapshot {} has no ordered lists in it", text::safe(name));
                Err(Failure::new(Code::NotFound, words))
            }
            _ => Ok(()), // One that is not there is told by whoever looks into it.
        }
    }

    fn lists(self, disk: &Disk) -> lode::Result<Vec<OrderedId>> {
        self.0.map_or_else(|| disk.lists(), |snapshot| disk.lists_at(snapshot))
    }

    fn list(self, disk: &Disk, list: OrderedId) -> lode::Result<ListInfo> {
        self.0.map_or_else(|| disk.list(list), |snapshot| disk.list_at(snapshot, list))
    }

    fn blocks(self, disk: &Disk, list: OrderedId) -> lode::Result<Vec<BlockId>> {
        self.0.map_or_else(|| disk.blocks(list), |snapshot| disk.blocks_at(snapshot, list))
    }

    fn read(self, disk: &Disk, block: BlockId, into: &mut [u8]) -> lode::Result<()> {
        match self.0 {
            None => disk.read_block(block, 0, into),
            Some(snapshot) => disk.read_block_at(snapshot, block, 0, into),
        }
    }
}

#[derive(Serialize)]
struct Listed {
    list: u32,
    block_bytes: u32,
    compression: &'static str,
    cluster: bool,
    near: bool,
    blocks: usize,
}

fn show(path: &Path, seen: Seen<'_>, json: bool) -> Result<Code> {
    let lists = image::closing(image::open_read_only(path)?, |disk| {
        seen.check(disk)?;
        let mut lists = Vec::new();
        for list in seen.lists(disk)? {
            let found = seen.list(disk, list).and_then(|info| Ok((info, seen.blocks(disk, list)?.len())));
            let (info, blocks) = match found {
                // Somebody deleted it meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                found => found?,
            };
            let compression = super::volume::compression_name(info.compression);
            let ListInfo { block_bytes, cluster, near, .. } = info;
            lists.push(Listed { list: list.0, block_bytes, compression, cluster, near, blocks });
        }
        Ok(lists)
    })?;
    if json {
        output::json(&lists)?;
        return Ok(Code::Done);
    }
    let mut rows = vec![["LIST", "BLOCKS", "BLOCK", "COMPRESSION", "CLUSTER", "NEAR"].map(String::from).to_vec()];
    for list in &lists {
        let block = size::show(list.block_bytes.into());
        let (cluster, near) = (text::yes_no(list.cluster), text::yes_no(list.near));
        rows.push(vec![list.list.to_string(), list.blocks.to_string(), block, list.compression.into(), cluster, near]);
    }
    output::print(&text::table(&rows))?;
    Ok(Code::Done)
}

fn blocks(path: &Path, list: OrderedId, seen: Seen<'_>, json: bool) -> Result<Code> {
    let blocks = image::closing(image::open_read_only(path)?, |disk| {
        seen.check(disk)?;
        Ok(seen.blocks(disk, list)?)
    })?;
    let numbers: Vec<u64> = blocks.into_iter().map(|BlockId(block)| block).collect();
    if json {
        output::json(&numbers)?;
    } else {
        let lines: String = numbers.iter().map(|number| format!("{number}\n")).collect();
        output::print(&lines)?;
    }
    Ok(Code::Done)
}

fn read(path: &Path, list: OrderedId, seen: Seen<'_>) -> Result<Code> {
    image::closing(image::open_read_only(path)?, |disk| {
        seen.check(disk)?;
        let size = usize::try_from(seen.list(disk, list)?.block_bytes).expect("at most 64 KiB");
        let mut out = session::stdout();
        let mut bytes = vec![0; size];
        for block in seen.blocks(disk, list)? {
            seen.read(disk, block, &mut bytes)?;
            out.write_all(&bytes).map_err(|error| Failure::io("writing to standard output", error))?;
        }
        out.flush().map_err(|error| Failure::io("writing to standard output", error))?;
        Ok(Code::Done)
    })
}
