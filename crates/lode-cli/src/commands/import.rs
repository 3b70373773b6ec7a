//! `lode import`: bring a whole file into a volume as one unit.
//!
//! The volume is the old content or the new one, whatever happens on the way: everything is written in
//! one unit, and the unit commits at the end. A volume that is absent is made empty, of size 0, first;
//! the unit gives it its size.

mod source;

use crate::failure::{Code, During, Failure, Result};
use crate::progress::Progress;
use crate::reservations::Reservations;
use crate::{image, output, size, text};
use lode::{Compression, Disk, ErrorKind, Survive, Unit, Volume, VolumeOptions};
use source::Source;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const EXAMPLES: &str = "\
Examples:
  lode import disk.lode data image.raw
  zcat image.raw.gz | lode import disk.lode data -
  lode import disk.lode data image.raw --reservation nightly

The volume becomes the content of the file, followed by zeros; it is made if it is absent. Killed at
any moment, it holds its old content or its new one, never a mixture. The old content takes space
until the new one is in.

With --reservation the space comes out of what was reserved before (`lode reserve`), as long as that
lasts, and then out of what is free. A volume that is absent takes a little of what is free.";

/// The block size of a volume that import makes.
const BLOCK: u32 = 4096;

/// How much is read and written at a time.
const PIECE: usize = 1 << 20;

/// What `lode import` takes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The disk
    disk: PathBuf,
    /// The volume
    name: String,
    /// The file to read, or - for standard input
    file: PathBuf,
    /// Draw on this reservation first
    #[arg(long, value_name = "NAME")]
    reservation: Option<String>,
}

/// Imports the file.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let source = Source::open(&arguments.file)?;
    let drawn = arguments.reservation.as_ref().map(|name| Drawn::new(&arguments.disk, name)).transpose()?;
    image::closing(image::open(&arguments.disk)?, |disk| {
        let (volume, made) = volume(disk, &arguments.name)?;
        let outcome = fill(disk, &volume, source, drawn);
        if outcome.is_err() && made && is_empty(disk, &arguments.name, &volume) {
            // Not here before, so not here afterwards. What failed is told, not what failed then.
            let _ = disk.delete_volume(&arguments.name).and_then(|_| disk.flush(Survive::Power));
        }
        let name = text::safe(&arguments.name);
        let bytes = outcome.during(|| format!("volume {name} is as it was"))?;
        output::line(format!("{name}: {} imported", size::show(bytes)))?;
        Ok(Code::Done)
    })
}

/// Whether nobody has given it a size since it was made, or put another one in its place.
fn is_empty(disk: &Disk, name: &str, made: &Volume) -> bool {
    disk.volume(name).is_ok_and(|found| found.list() == made.list() && found.bytes() == 0)
}

fn volume(disk: &Disk, name: &str) -> Result<(Volume, bool)> {
    match disk.volume(name) {
        Ok(volume) => Ok((volume, false)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let options = VolumeOptions { bytes: 0, block_bytes: BLOCK, compression: Compression::None };
            Ok((disk.create_volume(name, &options)?, true))
        }
        Err(error) => Err(error.into()),
    }
}

/// Writes everything in one unit. Returns the bytes read.
fn fill(disk: &Disk, volume: &Volume, mut source: Source, drawn: Option<Drawn>) -> Result<u64> {
    let reserved = drawn.as_ref().map(|drawn| drawn.left(volume)).transpose()?.unwrap_or(0);
    let mut target = Target::new(disk, volume, drawn)?;
    if let Some(bytes) = source.len() {
        target.make_room(bytes)?;
        enough_space(disk, &mut source, volume.block_bytes(), reserved)?;
    }
    let mut progress = Progress::bytes("importing", source.len());
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    loop {
        let (from, found) = source.next(at, &mut piece)?;
        if found == 0 {
            at = from;
            break;
        }
        target.write(from, &piece[..found])?;
        at = from + u64::try_from(found).expect("a piece is small");
        progress.set(at)?;
    }
    target.finish(at)?;
    Ok(at)
}

/// Refuses what cannot fit beside the old content. Holes and zeros of the file need no space.
fn enough_space(disk: &Disk, source: &mut Source, block: u32, reserved: u64) -> Result<()> {
    let free = disk.info()?.free.saturating_add(reserved);
    if source.stored()? <= free {
        return Ok(());
    }
    let needed = source.not_zero(block)?;
    if needed <= free {
        return Ok(());
    }
    Err(Failure::new(
        Code::Full,
        format!(
            "expected {} free{}, since the new content is written beside the old, found {}",
            size::show(needed),
            if reserved > 0 { " or reserved" } else { "" },
            size::show(free)
        ),
    ))
}

/// A reservation of the server that runs this.
struct Drawn {
    held: Arc<Reservations>,
    name: String,
}

impl Drawn {
    fn new(disk: &Path, name: &str) -> Result<Self> {
        let held = super::reserve::held(disk)?;
        // Told before a volume is made.
        held.get(name)?;
        Ok(Drawn { held, name: name.to_owned() })
    }

    /// What is left of it for this volume, in bytes.
    fn left(&self, volume: &Volume) -> Result<u64> {
        let found = self.held.get(&self.name)?;
        if found.block_bytes == volume.block_bytes() {
            return Ok(found.left_bytes);
        }
        let (wanted, other) = (size::show(volume.block_bytes().into()), size::show(found.block_bytes.into()));
        let words = format!("expected one for blocks of {wanted}, as the volume has, found one for blocks of {other}");
        Err(Failure::usage(format!("reservation {}: {words}", text::safe(&self.name))))
    }
}

/// The volume being replaced, and the unit that replaces it.
struct Target<'a> {
    unit: Unit,
    volume: &'a Volume,
    bytes: u64,
    /// A volume of size 0 holds nothing that could be kept: it takes the size of the file.
    grows: bool,
    drawn: Option<Drawn>,
}

impl<'a> Target<'a> {
    fn new(disk: &Disk, volume: &'a Volume, drawn: Option<Drawn>) -> Result<Self> {
        let mut unit = disk.begin()?;
        let bytes = volume.bytes();
        if bytes > 0 {
            unit.discard(volume, 0, bytes)?;
        } else {
            // What somebody else brings in meanwhile is replaced, too.
            unit.resize(volume, 0)?;
        }
        Ok(Target { unit, volume, bytes, grows: bytes == 0, drawn })
    }

    /// So many bytes must fit.
    fn make_room(&mut self, bytes: u64) -> Result<()> {
        if bytes <= self.bytes {
            return Ok(());
        }
        if !self.grows {
            return Err(Failure::usage(format!(
                "expected a volume of at least {bytes} bytes, found one of {} (see `lode volume resize`)",
                self.bytes
            )));
        }
        let block = u64::from(self.volume.block_bytes());
        let rounded = bytes
            .checked_next_multiple_of(block)
            .ok_or_else(|| Failure::usage(format!("expected a file below 16 EiB, found {bytes} bytes")))?;
        self.unit.resize(self.volume, rounded)?;
        self.bytes = rounded;
        Ok(())
    }

    /// Writes the runs of blocks that are not all zero; everything else is a hole already.
    fn write(&mut self, at: u64, piece: &[u8]) -> Result<()> {
        let length = u64::try_from(piece.len()).expect("a piece is small");
        self.make_room(at.saturating_add(length))?;
        for (start, run) in source::runs(piece, self.volume.block_bytes()) {
            self.write_run(at + start, run)?;
        }
        Ok(())
    }

    /// Writes what the reservation is good for out of it, and the rest as everybody does.
    fn write_run(&mut self, at: u64, run: &[u8]) -> Result<()> {
        let block = u64::from(self.volume.block_bytes());
        let len = u64::try_from(run.len()).expect("a run is a part of a piece");
        let (first, end) = (at / block, (at + len).div_ceil(block));
        let drawn = match &self.drawn {
            Some(Drawn { held, name }) => held.draw(name, &mut self.unit, end - first, self.volume.block_bytes())?,
            None => 0,
        };
        let until = ((first + drawn) * block).clamp(at, at + len);
        let (covered, rest) = run.split_at(usize::try_from(until - at).expect("a part of the run"));
        self.unit.write_at(self.volume, at, covered)?;
        self.unit.write_at(self.volume, until, rest)?;
        Ok(())
    }

    fn finish(mut self, bytes: u64) -> Result<()> {
        self.make_room(bytes)?;
        self.unit.commit_and_flush(Survive::Power)?;
        Ok(())
    }
}
