//! Reads a stream and believes nothing: what it gives out was checked, and no size is taken from the stream before it
//! is known to be bounded. It knows nothing of disks.

use super::{SnapshotIdentity, StreamInfo, corrupt, failed};
use crate::error::{Error, ErrorKind, Result};
use crate::format::crc;
use crate::format::records::{Compression, NAME_BYTES_MAX};
use crate::format::stream::{
    END_MAGIC, MAGIC, PIECE_BYTES_MAX, PIECE_MAGIC, StreamEnd, StreamHead, StreamIdentity, StreamPiece, Sum, VERSION,
};
use crate::types::{index, index64, len_u64};
use std::io::Read;

/// A part of a volume, and what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// So many bytes are as in the older snapshot.
    Same(u64),
    /// So many bytes are a hole.
    Hole(u64),
    /// These bytes: at most 1 MiB.
    Data(&'a [u8]),
}

impl<'a> Piece<'a> {
    /// How much of the volume it is.
    pub fn bytes(&self) -> u64 {
        match self {
            Piece::Same(bytes) | Piece::Hole(bytes) => *bytes,
            Piece::Data(data) => len_u64(data.len()),
        }
    }

    /// What of it lies behind its first `bytes` bytes. None: nothing.
    pub(super) fn behind(&self, bytes: u64) -> Option<Piece<'a>> {
        let rest = self.bytes().checked_sub(bytes).filter(|rest| *rest > 0)?;
        Some(match self {
            Piece::Same(_) => Piece::Same(rest),
            Piece::Hole(_) => Piece::Hole(rest),
            Piece::Data(data) => Piece::Data(&data[index64(bytes)..]),
        })
    }
}

/// Reads a stream piece by piece. It takes in nothing of what stands behind the stream's end.
pub struct StreamReader<'a> {
    from: &'a mut dyn Read,
    info: StreamInfo,
    position: u64,
    pieces: u64,
    data: u64,
    sum: Sum,
    stored: Vec<u8>,
    unpacked: Vec<u8>,
    ended: bool,
}

/// Fills `into`, or says how many bytes there were.
fn fill(from: &mut dyn Read, into: &mut [u8]) -> Result<usize> {
    let mut found = 0;
    while found < into.len() {
        match from.read(&mut into[found..]) {
            Ok(0) => break,
            Ok(more) => found += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed("reading", &error)),
        }
    }
    Ok(found)
}

fn fill_head(from: &mut dyn Read, into: &mut [u8]) -> Result<()> {
    if fill(from, into)? < into.len() {
        return Err(Error::new(ErrorKind::Ended, "the stream ends within its head"));
    }
    Ok(())
}

/// The fixed part of the head, believed as far as the lengths in it.
fn check_fixed(head: &StreamHead) -> Result<()> {
    if head.magic != MAGIC {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("no stream: expected the word LODESEND at its beginning, found {:#018x}", head.magic.swap_bytes()),
        ));
    }
    if head.version != VERSION {
        let kind = if head.version > VERSION { ErrorKind::NewerFormat } else { ErrorKind::Corrupt };
        return Err(Error::new(kind, format!("a stream: expected version {VERSION}, found {}", head.version)));
    }
    let most = NAME_BYTES_MAX;
    if index(head.name) > most || index(head.snapshot_name) > most {
        let found = format!("{} and {}", head.name, head.snapshot_name);
        return corrupt("the head of the stream", format!("names of at most {most} bytes"), found);
    }
    Ok(())
}

/// What a stream says at its beginning. Reads that and nothing behind it.
pub(super) fn read_head(from: &mut dyn Read, sum: &mut Sum) -> Result<StreamInfo> {
    let mut bytes = vec![0; StreamHead::SIZE];
    fill_head(from, &mut bytes)?;
    let head = StreamHead::decode(&bytes);
    check_fixed(&head)?;
    let names = StreamHead::SIZE + 2 * StreamIdentity::SIZE;
    let between = names + index(head.name);
    let end = between + index(head.snapshot_name);
    bytes.resize(end + 4, 0);
    fill_head(from, &mut bytes[StreamHead::SIZE..])?;
    sum.add(&bytes);
    let checksum = u32::from_le_bytes(bytes[end..].try_into().expect("four bytes"));
    if crc(&bytes[..end]) != checksum {
        return corrupt("the head of the stream", "another checksum", format!("{checksum:#010x}"));
    }
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).ok();
    let (volume, snapshot) = (text(&bytes[names..between]), text(&bytes[between..end]));
    let (Some(volume), Some(snapshot)) = (volume, snapshot) else {
        return corrupt("the head of the stream", "names in UTF-8", "others");
    };
    let Some(compression) = Compression::from_code(head.compression) else {
        return corrupt("the head of the stream", "compression 0 to 3", head.compression);
    };
    if !(6..=16).contains(&head.block_shift) || head.incremental > 1 || head.position > head.bytes {
        let found = format!("2^{}, {}, {} of {}", head.block_shift, head.incremental, head.position, head.bytes);
        return corrupt("the head of the stream", "a block size, 0 or 1, a position within the volume", found);
    }
    let identity = |at: usize| SnapshotIdentity::of(StreamIdentity::decode(&bytes[at..at + StreamIdentity::SIZE]));
    let (sent, base) = (identity(StreamHead::SIZE), identity(StreamHead::SIZE + StreamIdentity::SIZE));
    if sent.snapshot == 0 || (base.snapshot == 0) != (head.incremental == 0) {
        let found = format!("{} and {}", sent.snapshot, base.snapshot);
        return corrupt("the head of the stream", "numbers of the snapshots that it says it has", found);
    }
    Ok(StreamInfo {
        volume,
        snapshot,
        bytes: head.bytes,
        block_bytes: 1 << head.block_shift,
        compression,
        identity: sent,
        base: (head.incremental == 1).then_some(base),
        position: head.position,
    })
}

impl<'a> StreamReader<'a> {
    /// Reads the head of a stream. `InvalidArgument`: it is none; `NewerFormat`, `Corrupt`; `Ended`: it was cut;
    /// `Stream`: reading failed.
    pub fn new(from: &'a mut dyn Read) -> Result<StreamReader<'a>> {
        let mut sum = Sum::new();
        let info = read_head(from, &mut sum)?;
        let position = info.position;
        let (stored, unpacked) = Default::default();
        Ok(StreamReader { from, info, position, pieces: 0, data: 0, sum, stored, unpacked, ended: false })
    }

    /// What its head says.
    pub fn info(&self) -> &StreamInfo {
        &self.info
    }

    /// Where in the volume the next piece begins.
    pub fn position(&self) -> u64 {
        self.position
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<()> {
        if fill(self.from, into)? < into.len() {
            let (position, bytes) = (self.position, self.info.bytes);
            let before = if position < bytes { "" } else { ", and its end is missing" };
            let words = format!("the stream was cut: it ends at position {position} of {bytes}{before}");
            return Err(Error::new(ErrorKind::Ended, words));
        }
        Ok(())
    }

    fn wrong<T>(&self, expected: impl std::fmt::Display, found: impl std::fmt::Display) -> Result<T> {
        corrupt(format!("the stream at position {}", self.position), expected, found)
    }

    /// The next piece; none at the end of the stream, which was whole then. `Corrupt`; `Ended`: it was cut; `Stream`:
    /// reading failed. What was given out before an error can be believed.
    pub fn next_piece(&mut self) -> Result<Option<Piece<'_>>> {
        if self.ended {
            return Ok(None);
        }
        let mut head = [0; StreamPiece::SIZE];
        self.fill(&mut head)?;
        let piece = StreamPiece::decode(&head);
        if crc(&head[..StreamPiece::SIZE - 4]) != piece.head_checksum {
            return self.wrong("another checksum of a piece's head", format!("{:#010x}", piece.head_checksum));
        }
        if self.position == self.info.bytes {
            return self.end(&StreamEnd::decode(&head)).map(|()| None);
        }
        self.sum.add(&head);
        self.check(&piece)?;
        let stored = index(piece.stored);
        let mut bytes = std::mem::take(&mut self.stored);
        bytes.resize(stored.max(bytes.len()), 0);
        let filled = self.fill(&mut bytes[..stored]);
        self.stored = bytes;
        filled?;
        let stored = &self.stored[..stored];
        self.sum.add(stored);
        if crc(stored) != piece.checksum {
            return self.wrong("another checksum of a piece", format!("{:#010x}", piece.checksum));
        }
        if piece.kind == 3 {
            self.unpacked.resize(index(PIECE_BYTES_MAX), 0);
            let into = self.unpacked.get_mut(..index64(piece.length)).unwrap_or_default();
            let unpacked = lz4_flex::block::decompress_into(stored, into);
            if unpacked.as_ref().ok() != Some(&into.len()) {
                return self.wrong(format!("a piece that unpacks to {} bytes", piece.length), format!("{unpacked:?}"));
            }
        }
        self.position += piece.length;
        self.pieces += 1;
        Ok(Some(match piece.kind {
            0 => Piece::Same(piece.length),
            1 => Piece::Hole(piece.length),
            _ => {
                self.data += piece.length;
                let from = if piece.kind == 3 { &self.unpacked } else { &self.stored };
                Piece::Data(&from[..index64(piece.length)])
            }
        }))
    }

    /// Everything that a piece's head says is possible here.
    fn check(&self, piece: &StreamPiece) -> Result<()> {
        if piece.magic != PIECE_MAGIC || piece.reserved != 0 {
            return self.wrong("a piece", format!("{:#010x} and {}", piece.magic, piece.reserved));
        }
        if piece.offset != self.position {
            return self.wrong("the piece from there on", format!("one from {} on", piece.offset));
        }
        if piece.length == 0 || piece.length > self.info.bytes - self.position {
            return self.wrong(format!("a piece within {} bytes", self.info.bytes), format!("{} bytes", piece.length));
        }
        let stored = u64::from(piece.stored);
        let bounded = piece.length <= u64::from(PIECE_BYTES_MAX);
        let possible = match piece.kind {
            0 => stored == 0 && self.info.base.is_some(),
            1 => stored == 0,
            2 => stored == piece.length && bounded,
            3 => stored < piece.length && bounded,
            _ => false,
        };
        if !possible {
            let found = format!("{stored} bytes for {} of kind {}", piece.length, piece.kind);
            return self.wrong("a piece of a kind that can be here", found);
        }
        Ok(())
    }

    fn end(&mut self, end: &StreamEnd) -> Result<()> {
        if end.magic != END_MAGIC || end.reserved != 0 || end.reserved_b != 0 {
            return self.wrong("the end of the stream", format!("{:#010x}", end.magic));
        }
        let found = (self.pieces, self.data, self.sum.value());
        if found != (end.pieces, end.data, end.checksum) {
            let counts = |(pieces, data, sum)| format!("{pieces} pieces with {data} bytes and checksum {sum:#018x}");
            return self.wrong(counts((end.pieces, end.data, end.checksum)), counts(found));
        }
        self.ended = true;
        Ok(())
    }
}
