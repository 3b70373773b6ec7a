//! Reading committed blocks: places under the lock, bytes outside of it, each checked (P6, R30).
//!
//! A read takes all its places in one hold. What waits to be appended is read from memory, the rest from the cache or
//! the medium. On a mismatch the places are looked up again: if any has changed, the read starts over whole; a
//! mismatch at an unchanged place is damage.

use super::stored::{READ, Unread, position};
use super::{Core, Inner};
use crate::error::{Error, Result};
use crate::format::crc;
use crate::log::writer::{Sealed, Waiting};
use crate::planted::{self, Bug};
use crate::state::{ColdLeaf, State};
use crate::sync::{MutexGuard, Ordering};
use crate::types::{Kind, ListId, Location, SnapshotId, index, index64, len_u64};
use lode_media::ReadRequest;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone)]
pub(crate) struct CachedBlock {
    checksum: u32,
    /// Zeros at its end may be lacking.
    bytes: Arc<[u8]>,
}

impl CachedBlock {
    pub fn new(checksum: u32, bytes: &[u8]) -> CachedBlock {
        CachedBlock { checksum, bytes: Arc::from(bytes) }
    }

    /// Fills `into`, if it is the block with this checksum.
    fn copy(&self, checksum: u32, into: &mut [u8]) -> bool {
        if self.checksum != checksum || self.bytes.len() > into.len() {
            return false;
        }
        let (head, zeros) = into.split_at_mut(self.bytes.len());
        head.copy_from_slice(&self.bytes);
        zeros.fill(0);
        true
    }

    /// Whether it is the block with this checksum.
    pub fn is(&self, checksum: u32) -> bool {
        self.checksum == checksum
    }
}

#[derive(Clone)]
pub(crate) struct ByBytes;

impl quick_cache::Weighter<u64, CachedBlock> for ByBytes {
    fn weight(&self, _: &u64, block: &CachedBlock) -> u64 {
        len_u64(block.bytes.len()) + 64
    }
}

/// Blocks as they are read, by place. An entry counts only if the map's checksum matches it, so none is ever removed.
pub(crate) type Cache = quick_cache::sync::Cache<u64, CachedBlock, ByBytes>;

/// A cache of so many bytes.
pub(crate) fn cache(bytes: usize) -> Option<Cache> {
    (bytes > 0).then(|| Cache::with_weighter((bytes / 4096).max(16), len_u64(bytes), ByBytes))
}

/// The blocks of a list as they are now, or as a snapshot sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub list: ListId,
    pub at: Option<SnapshotId>,
}

impl View {
    /// Where a block is stored.
    pub fn lookup(self, state: &State, block: u64) -> std::result::Result<Option<(Location, u32)>, ColdLeaf> {
        match self.at {
            None => state.lookup(self.list, block),
            Some(snapshot) => state.lookup_at(self.list, snapshot, block),
        }
    }
}

/// Where a block's bytes come from.
enum Source {
    /// Nowhere: zeros, or copied already.
    Done,
    Sealed(Arc<Sealed>, Location, u32),
    Medium(Location, u32),
}

/// What a longer read brings in is not put into the cache: it would drive out what is read again.
const CACHED_MAX: usize = 128 << 10;
/// Blocks of files that are larger than this are content mostly.
const SMALL: usize = 1024;
/// A read of no more blocks than this may be answered out of windows.
const FEW: usize = 4;
/// What a long read asks for lies scattered from so many pieces on.
const SCATTERED: usize = 4;
/// Stretches of so many bytes are read into where they belong, whatever lies about them: below that one read of two
/// stretches and a copy take less time than two reads.
const DIRECT_MIN: usize = 1 << 20;

/// What is read.
#[derive(Clone, Copy)]
struct Asked {
    of: View,
    /// It is a list of files. Whoever reads content of files has a cache of his own mostly: what is read of it once takes no
    /// room in this one.
    of_files: bool,
    block_bytes: u32,
    first: u64,
}

type Sources = SmallVec<[Source; 1]>;
/// Blocks by their number in a read, with their places and checksums.
pub(super) type Missing = SmallVec<[(usize, Location, u32); 1]>;

impl Inner {
    /// Fills `into` with `count` whole blocks of a list from `first` on, committed state.
    pub fn read_blocks(&self, of: View, block_bytes: u32, first: u64, into: &mut [u8]) -> Result<()> {
        self.read_blocks_but(of, block_bytes, first, into, |_| false)
    }

    /// As [`Inner::read_blocks`], and leaves blocks as they are in `into` that the caller has already.
    pub fn read_blocks_but(
        &self,
        of: View,
        block_bytes: u32,
        first: u64,
        into: &mut [u8],
        has: impl Fn(u64) -> bool,
    ) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if into.len() == index(block_bytes)
            && !has(first)
            && let Some(done) = self.read_one(of, first, into)
        {
            return done;
        }
        loop {
            let (sources, of_files) = match self.sources(of, block_bytes, first, into, &has) {
                Ok(found) => found,
                Err(ColdLeaf(key)) => {
                    self.load(key)?;
                    continue;
                }
            };
            let wrong = self.fetch(Asked { of, of_files, block_bytes, first }, &sources, into);
            let Err(error) = wrong else { return Ok(()) };
            if self.unchanged(of, first, &sources) {
                return Err(error);
            }
            crate::mark("read: blocks moved under a read");
        }
    }

    /// Takes a block that was just written into the cache.
    pub fn remember(&self, place: Location, checksum: u32, stored: &[u8]) {
        if let Some(cache) = &self.cache {
            cache.insert(place.0, CachedBlock::new(checksum, stored));
        }
    }

    /// One block that is in the cache, a hole, or in the open batch: without allocating anything.
    fn read_one(&self, of: View, block: u64, into: &mut [u8]) -> Option<Result<()>> {
        let core = self.core.lock();
        let Ok(found) = of.lookup(&core.state, block) else { return None };
        let Some((place, checksum)) = found else {
            into.fill(0);
            return Some(Ok(()));
        };
        let source = source(&core, place, checksum, into);
        drop(core);
        match source {
            Source::Done => {}
            Source::Sealed(..) => return None,
            Source::Medium(..) => {
                self.cache.as_ref()?.get(&place.0).filter(|cached| cached.copy(checksum, into))?;
            }
        }
        Some(Ok(()))
    }

    fn sources(
        &self,
        of: View,
        block_bytes: u32,
        first: u64,
        into: &mut [u8],
        has: impl Fn(u64) -> bool,
    ) -> std::result::Result<(Sources, bool), ColdLeaf> {
        let mut core = self.core.lock();
        let of_files = core.state.is_file_list(of.list);
        let mut sources = Sources::with_capacity(into.len() / index(block_bytes));
        for (n, into) in into.chunks_mut(index(block_bytes)).enumerate() {
            let block = first + len_u64(n);
            if planted::is(Bug::ReadInPieces) {
                MutexGuard::bump(&mut core);
            }
            if has(block) {
                sources.push(Source::Done);
                continue;
            }
            sources.push(match of.lookup(&core.state, block)? {
                None => {
                    into.fill(0);
                    Source::Done
                }
                Some((place, checksum)) => source(&core, place, checksum, into),
            });
        }
        Ok((sources, of_files))
    }

    fn unchanged(&self, of: View, first: u64, sources: &[Source]) -> bool {
        let core = self.core.lock();
        sources.iter().enumerate().all(|(n, source)| match source {
            Source::Medium(place, checksum) => {
                matches!(of.lookup(&core.state, first + len_u64(n)), Ok(Some(now)) if now == (*place, *checksum))
            }
            _ => true,
        })
    }

    fn fetch(&self, asked: Asked, sources: &[Source], into: &mut [u8]) -> Result<()> {
        let Asked { of, block_bytes, first, .. } = asked;
        let mut missing = Missing::new();
        for (n, (source, into)) in sources.iter().zip(into.chunks_mut(index(block_bytes))).enumerate() {
            match source {
                Source::Done => {}
                Source::Sealed(sealed, place, checksum) => {
                    let stored = sealed.stored(*place).expect("found in this batch");
                    unpack(stored, *place, *checksum, into)
                        .map_err(|problem| damaged(of.list, first + len_u64(n), *place, &problem))?;
                }
                Source::Medium(place, checksum) => {
                    let cached = self.cache.as_ref().and_then(|cache| cache.get(&place.0));
                    match cached.filter(|cached| cached.copy(*checksum, into)) {
                        Some(_) => {}
                        None => missing.push((n, *place, *checksum)),
                    }
                }
            }
        }
        if missing.len() <= FEW {
            self.fetch_from_windows(block_bytes, &mut missing, into);
        } else if (CACHED_MAX + 1..=super::along::CHUNK).contains(&into.len()) {
            let scattered = runs_of(&missing, block_bytes).len() >= SCATTERED;
            self.fetch_along(of, block_bytes, first, &mut missing, scattered, into);
        }
        if missing.is_empty() {
            return Ok(());
        }
        self.fetch_from_medium(asked, &missing, into)
    }

    /// Takes out of `missing` what windows have. Of one read one miss counts.
    fn fetch_from_windows(&self, block_bytes: u32, missing: &mut Missing, into: &mut [u8]) {
        let mut missed = false;
        missing.retain(|(n, place, checksum)| {
            let into = &mut into[*n * index(block_bytes)..(*n + 1) * index(block_bytes)];
            let found = self.read_from_window(*place, *checksum, into, !missed);
            missed |= !found;
            if let Some(cache) = self.cache.as_ref().filter(|_| found) {
                cache.insert(place.0, CachedBlock::new(*checksum, into));
            }
            !found
        });
    }

    /// Long stretches of blocks that are stored as they are come into where they belong; others by way of a buffer,
    /// those that lie close together in one read.
    fn fetch_from_medium(&self, asked: Asked, missing: &[(usize, Location, u32)], into: &mut [u8]) -> Result<()> {
        let Asked { of: View { list, .. }, of_files, block_bytes, first } = asked;
        let runs = runs_of(missing, block_bytes);
        let is_direct = |run: &Range<usize>| {
            is_whole(missing[run.start].1, block_bytes)
                && (runs.len() == 1 || run.len() * index(block_bytes) >= DIRECT_MIN)
        };
        let mut direct: SmallVec<[ReadRequest<'_>; 1]> = SmallVec::new();
        let mut places: SmallVec<[(Location, u32); 4]> = SmallVec::new();
        // Which block each of the places is, and what it is to fill.
        let mut slots: SmallVec<[(usize, &mut [u8]); 4]> = SmallVec::new();
        let (mut rest, mut skipped) = (&mut *into, 0);
        for run in &runs {
            let (n, place, _) = missing[run.start];
            let (_, from) = rest.split_at_mut((n - skipped) * index(block_bytes));
            let (mine, behind) = from.split_at_mut(run.len() * index(block_bytes));
            (rest, skipped) = (behind, n + run.len());
            if is_direct(run) {
                direct.push(ReadRequest { at: position(place), into: mine, result: Ok(()) });
            } else {
                let blocks = missing[run.clone()].iter().zip(mine.chunks_mut(index(block_bytes)));
                for ((n, place, checksum), into) in blocks {
                    places.push((*place, *checksum));
                    slots.push((*n, into));
                }
            }
        }
        // Of several problems the one of the first block is told.
        let mut failed: Option<(usize, Error)> = None;
        let mut fail = |n: usize, place: Location, problem: Unread| {
            if failed.as_ref().is_none_or(|(other, _)| n < *other) {
                failed = Some((n, unreadable(list, first + len_u64(n), place, problem)));
            }
        };
        let results = self.each_stored(&places, &READ, direct, |at, stored| {
            let ((place, checksum), (n, into)) = (places[at], &mut slots[at]);
            let done = stored.map_err(Unread::Medium).and_then(|stored| {
                check(stored, checksum)?;
                unpack_unchecked(stored, place, into).map_err(Unread::Packed)
            });
            done.unwrap_or_else(|problem| fail(*n, place, problem));
        });
        drop(slots);
        for (run, result) in runs.iter().filter(|run| is_direct(run)).zip(results) {
            for (n, place, checksum) in &missing[run.clone()] {
                let stored = &mut into[n * index(block_bytes)..(n + 1) * index(block_bytes)];
                // One bad sector says nothing of the others.
                let told = result.is_ok() || run.len() == 1;
                let read = if told { result.clone() } else { self.medium.read(position(*place), stored) };
                let done = read.map_err(Unread::Medium).and_then(|()| check(stored, *checksum));
                done.unwrap_or_else(|problem| fail(*n, *place, problem));
            }
        }
        if let Some((_, error)) = failed {
            return Err(error);
        }
        if let Some(cache) = self.cache.as_ref().filter(|_| into.len() <= CACHED_MAX) {
            for (n, place, checksum) in missing {
                let bytes = &into[n * index(block_bytes)..(n + 1) * index(block_bytes)];
                let once = of_files && is_whole(*place, block_bytes) && bytes.len() > SMALL;
                if once && !self.once.is_again(*place) {
                    continue;
                }
                cache.insert(place.0, CachedBlock::new(*checksum, bytes));
            }
        }
        Ok(())
    }
}

/// Stretches of blocks that are stored as they are and follow each other on the medium, and all others one by one.
fn runs_of(missing: &[(usize, Location, u32)], block_bytes: u32) -> SmallVec<[Range<usize>; 1]> {
    let mut runs: SmallVec<[Range<usize>; 1]> = SmallVec::new();
    for (at, (n, place, _)) in missing.iter().enumerate() {
        let joins = at > 0 && is_whole(*place, block_bytes) && {
            let (before_n, before, _) = missing[at - 1];
            before_n + 1 == *n && before.step(1) == *place && before.zone() == place.zone()
        };
        match runs.last_mut() {
            Some(run) if joins => run.end += 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

fn check(stored: &[u8], checksum: u32) -> std::result::Result<(), Unread> {
    if crc(stored) == checksum || planted::is(Bug::ReadUnchecked) { Ok(()) } else { Err(Unread::Checksum) }
}

/// The error for a block that cannot be had.
fn unreadable(list: ListId, block: u64, place: Location, problem: Unread) -> Error {
    match problem {
        Unread::Medium(error) => Error::media(format!("reading list {} block {block} at {place:?}", list.0), error),
        other => damaged(list, block, place, &other.to_string()),
    }
}

/// Fills `into` with the bytes from `offset` on, by one read of all the whole blocks around them.
pub(crate) fn read_bytes(
    block_bytes: u32,
    offset: u64,
    into: &mut [u8],
    read: impl FnOnce(u64, &mut [u8]) -> Result<()>,
) -> Result<()> {
    if into.is_empty() {
        return Ok(());
    }
    let first = offset / u64::from(block_bytes);
    let within = index64(offset % u64::from(block_bytes));
    let whole = (within + into.len()).next_multiple_of(index(block_bytes));
    if whole == into.len() {
        return read(first, into);
    }
    let mut blocks = vec![0; whole];
    read(first, &mut blocks)?;
    into.copy_from_slice(&blocks[within..within + into.len()]);
    Ok(())
}

fn is_whole(place: Location, block_bytes: u32) -> bool {
    place.stored() == block_bytes && place.kind() == Some(Kind::Raw)
}

fn source(core: &Core, place: Location, checksum: u32, into: &mut [u8]) -> Source {
    match core.writer.stored(place) {
        None => Source::Medium(place, checksum),
        Some(Waiting::Sealed(sealed)) => Source::Sealed(Arc::clone(sealed), place, checksum),
        Some(Waiting::Open(stored)) => {
            if unpack_unchecked(stored, place, into).is_err() {
                into.fill(0);
                debug_assert!(false, "a block in memory can always be unpacked");
            }
            Source::Done
        }
    }
}

/// The error for a block that is not what it was when written.
pub(crate) fn damaged(list: ListId, block: u64, place: Location, problem: &str) -> Error {
    Error::corrupt(
        format!("list {} block {block} at {place:?}", list.0),
        "the bytes that were written",
        format!("others ({problem})"),
    )
}

/// Turns stored bytes into a block, after checking them.
pub(crate) fn unpack(
    stored: &[u8],
    place: Location,
    checksum: u32,
    into: &mut [u8],
) -> std::result::Result<(), String> {
    if crc(stored) != checksum {
        return Err("its checksum does not match".to_owned());
    }
    unpack_unchecked(stored, place, into)
}

pub(crate) fn unpack_unchecked(stored: &[u8], place: Location, into: &mut [u8]) -> std::result::Result<(), String> {
    match place.kind() {
        Some(Kind::Raw) if stored.len() <= into.len() => {
            let (head, zeros) = into.split_at_mut(stored.len());
            head.copy_from_slice(stored);
            zeros.fill(0);
        }
        Some(Kind::Raw) => return Err(format!("{} bytes are stored for a block of {}", stored.len(), into.len())),
        Some(Kind::Packed) => crate::packed::unpack(stored, into)?,
        None => return Err("it is stored in an unknown kind".to_owned()),
    }
    Ok(())
}
