//! What benches have in common that work on files: failures that name them, and a tree as an archive.

use super::super::scratch::Scratch;
use super::super::subject::Data;
use super::stage::Stage;
use super::tools;
use crate::failure::{Failure, Result};
use crate::image;
use crate::random::Random;
use std::fs;
use std::io::Error;
use std::path::{Path, PathBuf};

/// Files of a directory.
const EACH: u64 = 50;

/// Makes a failure out of what went wrong with a path.
pub fn failed(path: &Path) -> impl Fn(Error) -> Failure + '_ {
    move |error| Failure::io(format!("bench-fs: {}", image::show(path)), error)
}

/// An archive of so many files, of 500 to 10,000 bytes each, beside the stage's image.
pub fn archive(stage: &Stage, files: u64, data: &Data) -> Result<PathBuf> {
    let (tree, path) = (Scratch::new(stage.path("tree")), stage.path("tree.tar"));
    let mut random = Random::new(7);
    for number in 0..files {
        let directory = tree.path().join(format!("{}/{}", number / EACH / 20, number / EACH));
        if number % EACH == 0 {
            fs::create_dir_all(&directory).map_err(failed(&directory))?;
        }
        let file = directory.join(format!("file-{number}"));
        let bytes = 500 + super::super::narrow(random.below(9501));
        fs::write(&file, data.piece(number, bytes)).map_err(failed(&file))?;
    }
    tools::run(tools::command("tar").arg("-cf").arg(&path).arg("-C").arg(tree.path()).arg("."))?;
    Ok(path)
}

/// All files of a tree are durable, one after the other, each before the directory that it lies in.
pub fn sync_each(tree: &Path) -> Result<()> {
    for entry in fs::read_dir(tree).map_err(failed(tree))? {
        let path = entry.map_err(failed(tree))?.path();
        if path.is_dir() {
            sync_each(&path)?;
        } else {
            fs::File::open(&path).and_then(|file| file.sync_all()).map_err(failed(&path))?;
        }
    }
    fs::File::open(tree).and_then(|directory| directory.sync_all()).map_err(failed(tree))
}
