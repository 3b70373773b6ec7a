//! What is imported: a file or a block device with its holes, or a stream.

use crate::failure::{Failure, Result};
use crate::{image, session};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

/// Where the bytes come from.
pub enum Source {
    /// Something with a length, which may have holes.
    File {
        /// The file.
        file: File,
        /// How long it is.
        len: u64,
        /// For messages.
        name: String,
    },
    /// Standard input, or a pipe.
    Stream(Box<dyn Read>, String),
}

impl Source {
    /// Opens `path`; `-` is standard input.
    pub fn open(path: &Path) -> Result<Source> {
        if path.as_os_str() == "-" {
            return Ok(Source::Stream(session::stdin(), "standard input".into()));
        }
        let name = image::show(path);
        let file = session::open(path)?;
        let kind = file.metadata().map_err(|error| Failure::io(format!("opening {name}"), error))?.file_type();
        if kind.is_file() || kind.is_block_device() {
            let len = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(|e| Failure::io(&name, e.into()))?;
            return Ok(Source::File { file, len, name });
        }
        if kind.is_dir() {
            return Err(Failure::usage(format!("{name}: expected a file, found a directory")));
        }
        Ok(Source::Stream(session::reader(file), name))
    }

    /// The length, if it is known before the end.
    pub fn len(&self) -> Option<u64> {
        match self {
            Source::File { len, .. } => Some(*len),
            Source::Stream(..) => None,
        }
    }

    /// Fills `piece` from `at` on, holes left out. Returns where the bytes lie and how many there are;
    /// 0 bytes lie at the end.
    pub fn next(&mut self, at: u64, piece: &mut [u8]) -> Result<(u64, usize)> {
        match self {
            Source::Stream(stream, name) => {
                let found = fill(stream, piece).map_err(|error| Failure::io(format!("reading {name}"), error))?;
                Ok((at, found))
            }
            Source::File { file, len, name } => {
                let failed = |error| Failure::io(format!("reading {name} at {at}"), error);
                let Some((from, until)) = data(file, at, *len).map_err(failed)? else { return Ok((*len, 0)) };
                // Pieces start at multiples of their size, so that blocks are seen whole.
                let size = u64::try_from(piece.len()).expect("a piece is small");
                let from = (from - from % size).max(at);
                let until = until.min(from - from % size + size);
                let found = usize::try_from(until - from).expect("a piece is small");
                file.read_exact_at(&mut piece[..found], from).map_err(failed)?;
                Ok((from, found))
            }
        }
    }

    /// How many bytes are not in holes.
    pub fn stored(&self) -> Result<u64> {
        let Source::File { file, len, name } = self else { return Ok(0) };
        let (mut at, mut sum) = (0, 0);
        let failed = |error| Failure::io(format!("looking for the holes of {name}"), error);
        while let Some((from, until)) = data(file, at, *len).map_err(failed)? {
            sum += until - from;
            at = until;
        }
        Ok(sum)
    }

    /// How many bytes lie in blocks that are not all zero. Reads everything.
    pub fn not_zero(&mut self, block: u32) -> Result<u64> {
        let (mut at, mut sum, mut piece) = (0, 0, vec![0; super::PIECE]);
        loop {
            let (from, found) = self.next(at, &mut piece)?;
            if found == 0 {
                return Ok(sum);
            }
            sum += runs(&piece[..found], block).map(|(_, run)| wide(run.len())).sum::<u64>();
            at = from + wide(found);
        }
    }
}

fn wide(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("a piece is small")
}

/// The first run of data at or behind `at`, as (start, end). A file that cannot tell is all data.
fn data(file: &File, at: u64, len: u64) -> std::io::Result<Option<(u64, u64)>> {
    if at >= len {
        return Ok(None);
    }
    let from = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(from) => from,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((at, len))),
        Err(error) => return Err(error.into()),
    };
    if from >= len {
        return Ok(None);
    }
    let until = rustix::fs::seek(file, SeekFrom::Hole(from))?;
    Ok(Some((from, until.min(len))))
}

/// Reads until `piece` is full or the stream ends.
fn fill(stream: &mut dyn Read, piece: &mut [u8]) -> std::io::Result<usize> {
    let mut found = 0;
    while found < piece.len() {
        match stream.read(&mut piece[found..]) {
            Ok(0) => break,
            Ok(more) => found += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The runs of blocks in `piece` that are not all zero, with their offsets.
pub fn runs(piece: &[u8], block: u32) -> impl Iterator<Item = (u64, &[u8])> {
    let block = usize::try_from(block).expect("a block is small");
    let mut at = 0;
    std::iter::from_fn(move || {
        let end = |at: usize| (at + block).min(piece.len());
        while at < piece.len() && zero(&piece[at..end(at)]) {
            at = end(at);
        }
        let start = at;
        while at < piece.len() && !zero(&piece[at..end(at)]) {
            at = end(at);
        }
        (start < at).then(|| (wide(start), &piece[start..at]))
    })
}

fn zero(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0) && bytes[1..] == bytes[..bytes.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn only_blocks_with_content_are_written() {
        let mut piece = vec![0; 10];
        piece[3] = 1;
        piece[4] = 1;
        piece[9] = 1;
        let found: Vec<_> = runs(&piece, 2).map(|(at, run)| (at, run.len())).collect();
        assert_eq!(found, [(2, 4), (8, 2)]);
        assert_eq!(runs(&[0; 8], 4).count(), 0);
        assert_eq!(runs(&[], 4).count(), 0);
    }
}
