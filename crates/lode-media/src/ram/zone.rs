//! One zone in memory: its content, and which ranges were appended since it was erased.
//!
//! A zone that holds nothing has no memory. Zones of media with small alignments (tiny simulated disks) are plain
//! bytes; others are sectors, of which the uniform ones are only their word.

use crate::Geometry;
use crate::bounds::{index, total_len, wide};

/// Bytes of a sector.
const SECTOR: usize = 4096;
/// Bytes of the word that a uniform sector repeats.
const WORD: usize = 8;

/// A sector of memory.
#[derive(Clone)]
pub(super) enum Sector {
    /// All words are this one (as its bytes lie in memory).
    Uniform(u64),
    Full(Box<[u8; SECTOR]>),
}

impl Sector {
    fn of(bytes: &[u8; SECTOR]) -> Sector {
        let mut word = [0; WORD];
        word.copy_from_slice(&bytes[..WORD]);
        // Equal to itself shifted by one word: one comparison of memory, as fast as memory is read.
        if bytes[WORD..] == bytes[..SECTOR - WORD] {
            Sector::Uniform(u64::from_ne_bytes(word))
        } else {
            Sector::Full(Box::new(*bytes))
        }
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        match self {
            Sector::Full(bytes) => into.copy_from_slice(&bytes[offset..offset + into.len()]),
            Sector::Uniform(word) => repeat(word.to_ne_bytes(), offset, into),
        }
    }

    fn to_bytes(&self) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        self.read(0, &mut bytes);
        bytes
    }

    fn stored_bytes(&self) -> u64 {
        if let Sector::Full(_) = self { wide(SECTOR) } else { 0 }
    }
}

/// Fills `into` with the word repeated, starting `offset` bytes into the repetition.
fn repeat(word: [u8; WORD], offset: usize, into: &mut [u8]) {
    if let Some(&byte) = word.first()
        && word == [byte; WORD]
    {
        return into.fill(byte);
    }
    let mut word = word;
    word.rotate_left(offset % WORD);
    for chunk in into.chunks_mut(WORD) {
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// Content, in the form that the geometry asks for.
pub(super) enum Content {
    Bytes(Vec<u8>),
    Sectors(Vec<Sector>),
}

impl Content {
    /// The pieces one after another. Their length is a multiple of the alignment.
    pub(super) fn of(pieces: &[&[u8]], geometry: Geometry) -> Content {
        if !in_sectors(geometry) {
            return Content::Bytes(pieces.concat());
        }
        let mut sectors = Vec::with_capacity(total_len(pieces) / SECTOR);
        let mut joined = [0; SECTOR];
        let mut joined_len = 0;
        for piece in pieces {
            let mut piece = *piece;
            while !piece.is_empty() {
                if joined_len == 0
                    && let Some((sector, rest)) = piece.split_first_chunk::<SECTOR>()
                {
                    sectors.push(Sector::of(sector));
                    piece = rest;
                    continue;
                }
                let take = piece.len().min(SECTOR - joined_len);
                joined[joined_len..joined_len + take].copy_from_slice(&piece[..take]);
                joined_len += take;
                piece = &piece[take..];
                if joined_len == SECTOR {
                    sectors.push(Sector::of(&joined));
                    joined_len = 0;
                }
            }
        }
        Content::Sectors(sectors)
    }
}

fn in_sectors(geometry: Geometry) -> bool {
    index(geometry.append_align).is_multiple_of(SECTOR)
}

/// One zone.
pub(super) struct Zone {
    len: usize,
    fill: u8,
    /// Empty until something is put there.
    content: Content,
    /// What was appended since the last erase: ranges in order that do not touch.
    appended: Vec<(u32, u32)>,
    /// Its space was given back: it must be erased before it is appended to.
    discarded: bool,
}

impl Zone {
    pub(super) fn new(geometry: Geometry, fill: u8) -> Self {
        let content = if in_sectors(geometry) { Content::Sectors(Vec::new()) } else { Content::Bytes(Vec::new()) };
        Zone { len: index(geometry.zone_bytes), fill, content, appended: Vec::new(), discarded: false }
    }

    pub(super) fn discard(&mut self) {
        self.erase();
        self.discarded = true;
    }

    pub(super) fn erase(&mut self) {
        self.discarded = false;
        self.appended.clear();
        match &mut self.content {
            Content::Bytes(bytes) => *bytes = Vec::new(),
            Content::Sectors(sectors) => *sectors = Vec::new(),
        }
    }

    pub(super) fn stored_bytes(&self) -> u64 {
        match &self.content {
            Content::Bytes(bytes) => wide(bytes.len()),
            Content::Sectors(sectors) => sectors.iter().map(Sector::stored_bytes).sum(),
        }
    }

    /// What was appended since the last erase.
    #[cfg(test)]
    pub(super) fn ranges(&self) -> &[(u32, u32)] {
        &self.appended
    }

    pub(super) fn read(&self, offset: u32, into: &mut [u8]) {
        let start = index(offset);
        match &self.content {
            Content::Bytes(bytes) if bytes.is_empty() => into.fill(self.fill),
            Content::Sectors(sectors) if sectors.is_empty() => into.fill(self.fill),
            Content::Bytes(bytes) => into.copy_from_slice(&bytes[start..start + into.len()]),
            Content::Sectors(sectors) => {
                for part in Parts::of(start, into.len()) {
                    sectors[part.sector].read(part.offset, &mut into[part.from..part.from + part.len]);
                }
            }
        }
    }

    /// Puts content of `len` bytes in place. The error says how it breaks the order of appends.
    pub(super) fn append(&mut self, offset: u32, len: usize, new: Content) -> Result<(), String> {
        if len == 0 {
            return Ok(());
        }
        if self.discarded {
            return Err("comes after a discard, with no erase between".to_owned());
        }
        let end = offset + u32::try_from(len).expect("an append fits its zone");
        let next = self.appended.partition_point(|&(start, _)| start < offset);
        let over = |&(start, stop): &(u32, u32)| start < end && offset < stop;
        let near = self.appended[next.saturating_sub(1)..].iter().take(2).find(|range| over(range));
        if let Some((start, stop)) = near {
            return Err(format!("lies over bytes {start}..{stop}, appended since it was erased"));
        }
        self.appended.insert(next, (offset, end));
        self.join(next);
        self.put(index(offset), new);
        Ok(())
    }

    /// Joins a range with its neighbours where they touch.
    fn join(&mut self, at: usize) {
        for left in [at, at.saturating_sub(1)] {
            if let (Some(&(start, stop)), Some(&(next, end))) = (self.appended.get(left), self.appended.get(left + 1))
                && stop == next
            {
                self.appended[left] = (start, end);
                self.appended.remove(left + 1);
            }
        }
    }

    fn put(&mut self, start: usize, new: Content) {
        self.materialize();
        match (&mut self.content, new) {
            (Content::Bytes(bytes), Content::Bytes(new)) => bytes[start..start + new.len()].copy_from_slice(&new),
            (Content::Sectors(sectors), Content::Sectors(new)) => {
                let first = start / SECTOR;
                for (old, new) in sectors[first..first + new.len()].iter_mut().zip(new) {
                    *old = new;
                }
            }
            _ => unreachable!("content has the form that the zone's geometry asks for"),
        }
    }

    pub(super) fn overwrite(&mut self, offset: u32, new: &[u8]) {
        self.materialize();
        let start = index(offset);
        match &mut self.content {
            Content::Bytes(bytes) => bytes[start..start + new.len()].copy_from_slice(new),
            Content::Sectors(sectors) => {
                for part in Parts::of(start, new.len()) {
                    let mut bytes = sectors[part.sector].to_bytes();
                    bytes[part.offset..part.offset + part.len].copy_from_slice(&new[part.from..part.from + part.len]);
                    sectors[part.sector] = Sector::of(&bytes);
                }
            }
        }
    }

    /// Gives an empty zone its memory.
    fn materialize(&mut self) {
        let fill = self.fill;
        match &mut self.content {
            Content::Bytes(bytes) if bytes.is_empty() => bytes.resize(self.len, fill),
            Content::Sectors(sectors) if sectors.is_empty() => {
                sectors.resize(self.len / SECTOR, Sector::Uniform(u64::from_ne_bytes([fill; WORD])));
            }
            _ => {}
        }
    }
}

/// The part of a range that lies in one sector.
struct Part {
    sector: usize,
    offset: usize,
    /// Where the part starts in the range.
    from: usize,
    len: usize,
}

/// The parts of a range, sector by sector.
struct Parts {
    start: usize,
    from: usize,
    len: usize,
}

impl Parts {
    fn of(start: usize, len: usize) -> Self {
        Parts { start, from: 0, len }
    }
}

impl Iterator for Parts {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        if self.from == self.len {
            return None;
        }
        let at = self.start + self.from;
        let offset = at % SECTOR;
        let part =
            Part { sector: at / SECTOR, offset, from: self.from, len: (self.len - self.from).min(SECTOR - offset) };
        self.from += part.len;
        Some(part)
    }
}
