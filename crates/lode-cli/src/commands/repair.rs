//! `lode repair`: go on writing from the last sound state of a damaged disk.

use crate::failure::{Code, Result};
use crate::{image, output, text};
use lode::{OpenOptions, Survive};
use std::path::PathBuf;

const AFTER: &str = "\
Examples:
  lode check disk.lode || lode repair disk.lode

A disk that has lost what it knows to have been durable is not opened for writing by itself. The
state before the damage can be read (`export`, `serve --read-only`); `repair` makes that state the
newest one. Copy the image first: what lies behind the damage is given up for good.";

/// What `lode repair` takes.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub struct Arguments {
    /// The disk
    disk: PathBuf,
}

/// Repairs the disk.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let options = OpenOptions { repair: true, ..OpenOptions::default() };
    image::closing(image::open_with(&arguments.disk, &options)?, |disk| {
        let position = disk.flush(Survive::Power)?;
        let path = image::show(&arguments.disk);
        match disk.info()?.damaged {
            Some(damage) => output::line(format!("{path}: repaired: {}", text::safe(&damage)))?,
            None => output::line(format!("{path}: sound, up to position {}", position.0))?,
        }
        Ok(Code::Done)
    })
}
