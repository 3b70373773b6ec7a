//! A file system used from the library, without a mount: made, and filled with small files.

use super::super::subject::Data;
use crate::commands::fs::time;
use crate::failure::Result;
use crate::random;
use lode::{Disk, FormatOptions, OpenOptions};
use lode_fs::{Caller, FileSystem, Ino, MakeOptions, New, View};
use lode_media::Medium;
use std::sync::Arc;

/// Files of a directory.
pub const EACH: u64 = 1000;

/// Who makes everything.
pub fn caller() -> Caller {
    Caller { uid: 0, gid: 0, umask: 0, now: time() }
}

/// An empty file system on a new disk.
pub fn made(medium: Arc<dyn Medium>, options: &OpenOptions) -> Result<FileSystem> {
    Disk::format(medium.clone(), &FormatOptions { disk_id: random::identity()? })?;
    let disk = Disk::open(medium, options)?;
    FileSystem::make(&disk, &MakeOptions { key: random::identity()?, caller: caller() })?;
    Ok(FileSystem::open(&disk, time())?)
}

/// The name of a directory or of a file in it.
pub fn name(number: u64) -> Vec<u8> {
    format!("file-{number:08}").into_bytes()
}

/// So many files of `bytes` each, a thousand in a directory. `first` is a multiple of a thousand.
pub fn fill(view: &View, first: u64, files: u64, bytes: usize, data: &Data) -> Result<()> {
    let caller = caller();
    let mut directory = Ino::ROOT;
    for number in first..first + files {
        if number % EACH == 0 {
            directory = view.make(Ino::ROOT, &name(number / EACH), &New::directory(0o755), &caller)?.ino;
        }
        let file = view.make(directory, &name(number), &New::file(0o644), &caller)?.ino;
        view.write(file, 0, data.piece(number, bytes), caller.now)?;
    }
    Ok(())
}
