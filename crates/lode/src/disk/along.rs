//! Reading along: who reads a list from front to back in long reads, of which the blocks lie scattered, gets what follows
//! read with what he asks for.
//!
//! ```text
//!   list      │ chunk 4 MiB: asked for, scattered │ next chunk: its first read brings all of it │
//!   the log   ▒▒▒▒····▒▒▒▒·······▒▒▒▒···              each of the pieces is longer than for one read
//! ```
//! Blocks that were written here and there stand in the log in pieces, and those of a whole chunk are longer than those of
//! one read of it. In which order the reads of a chunk come does not matter, nor how many at once: the first does the work,
//! the others wait for it. What was read along counts for a block only if it is at the place that the map names now, and
//! is verified then as if it had been read by itself; whatever is not to be had is left to the read.

use super::Inner;
use super::read::{Missing, View, unpack};
use super::stored::{ALONG, Requests, Stretch};
use crate::state::ColdLeaf;
use crate::sync::Mutex;
use crate::types::{Location, index, index64, len_u64};
use lode_media::AlignedBuffer;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a list that are read together. A longer read has long pieces by itself.
pub(super) const CHUNK: usize = 4 << 20;
/// So many chunks are held, unless the cache is small: they take at most an eighth of what it may, and as much memory waits
/// to be filled again.
const HELD_MAX: usize = 2;
const CACHE_PART: usize = 8;
/// So many are known of which something was asked for.
const KNOWN: usize = 16;
/// So many places are looked up in one hold of the lock.
const AT_ONCE: u64 = 256;

/// A chunk of which something was asked for.
struct Chunk {
    of: View,
    number: u64,
    asked: usize,
    /// Read, or to be read by the first who comes.
    held: Option<Arc<Held>>,
}

type Held = Mutex<Option<Arc<Pieces>>>;

/// What was read of a chunk.
struct Pieces {
    bytes: AlignedBuffer,
    /// Where in it the stored bytes of which place begin; by place.
    places: Vec<(Location, usize)>,
}

/// See the file's head.
pub(crate) struct Along {
    held_max: usize,
    /// The last one asked for at the end.
    known: Vec<Chunk>,
    /// Their buffers are used again once nobody reads from them.
    done: Vec<Arc<Held>>,
}

impl Along {
    pub fn new(cache_bytes: usize) -> Along {
        Along { held_max: (cache_bytes / CACHE_PART / CHUNK).min(HELD_MAX), known: Vec::new(), done: Vec::new() }
    }

    /// Of a chunk so many bytes are asked for. Gives what is held of it, or is to be.
    fn ask(&mut self, of: View, number: u64, bytes: usize, scattered: bool) -> Option<Arc<Held>> {
        let find = |number: u64| self.known.iter().position(|chunk| (chunk.of, chunk.number) == (of, number));
        let before = number.checked_sub(1).and_then(find);
        let in_order = before.is_some_and(|before| self.known[before].asked >= CHUNK / 4 * 3);
        let known = find(number).map(|known| self.known.remove(known));
        // All of it was asked for once: somebody begins again.
        let mut chunk = known.filter(|known| known.asked < CHUNK).unwrap_or_else(|| {
            let held = (in_order && scattered && self.held_max > 0).then(Arc::default);
            Chunk { of, number, asked: 0, held }
        });
        chunk.asked += bytes;
        let held = chunk.held.clone();
        if chunk.asked >= CHUNK {
            self.done.extend(chunk.held.take());
        }
        self.known.push(chunk);
        if self.known.len() > KNOWN {
            self.known.remove(0);
        }
        if self.known.iter().filter(|chunk| chunk.held.is_some()).count() > self.held_max
            && let Some(oldest) = self.known.iter_mut().find(|chunk| chunk.held.is_some())
        {
            self.done.extend(oldest.held.take());
        }
        let most = self.held_max;
        self.done.drain(..self.done.len().saturating_sub(most));
        held
    }

    /// Memory for a chunk.
    fn buffer(&mut self, bytes: usize) -> AlignedBuffer {
        let nobodys = self.done.iter().position(|held| Arc::strong_count(held) == 1);
        let spare = nobodys.and_then(|at| self.done.remove(at).lock().take());
        let spare = spare.and_then(Arc::into_inner).map(|pieces| pieces.bytes).filter(|spare| spare.len() >= bytes);
        spare.unwrap_or_else(|| AlignedBuffer::new(bytes.max(CHUNK)))
    }
}

impl Pieces {
    /// Fills `into` with a block, if it is there.
    fn copy(&self, place: Location, checksum: u32, into: &mut [u8]) -> bool {
        let Ok(found) = self.places.binary_search_by_key(&place.0, |(place, _)| place.0) else { return false };
        let at = self.places[found].1;
        unpack(&self.bytes[at..at + index(place.stored())], place, checksum, into).is_ok()
    }
}

impl Inner {
    /// Takes out of `missing` what is read along with them, or was.
    pub(super) fn fetch_along(
        &self,
        of: View,
        block_bytes: u32,
        first: u64,
        missing: &mut Missing,
        scattered: bool,
        into: &mut [u8],
    ) {
        let block = index(block_bytes);
        let blocks = len_u64(CHUNK / block);
        let chunk_of = |n: usize| (first + len_u64(n)) / blocks;
        let (Some(front), Some(back)) = (missing.first(), missing.last()) else { return };
        for number in chunk_of(front.0)..=chunk_of(back.0) {
            let asked = missing.iter().filter(|(n, ..)| chunk_of(*n) == number).count() * block;
            let Some(held) = self.along.lock().ask(of, number, asked, scattered) else { continue };
            let pieces = {
                let mut held = held.lock();
                Arc::clone(held.get_or_insert_with(|| Arc::new(self.read_chunk(of, number * blocks, blocks))))
            };
            missing.retain(|(n, place, checksum)| {
                chunk_of(*n) != number || !pieces.copy(*place, *checksum, &mut into[*n * block..(*n + 1) * block])
            });
        }
    }

    /// The places of these blocks on the medium; the block that cannot be looked up yet.
    fn places_of(
        &self,
        of: View,
        blocks: Range<u64>,
        into: &mut Vec<(Location, u32)>,
    ) -> std::result::Result<(), (u64, ColdLeaf)> {
        let core = self.core.lock();
        for block in blocks {
            let found = of.lookup(&core.state, block).map_err(|cold| (block, cold))?;
            into.extend(found.filter(|(place, _)| core.writer.stored(*place).is_none()));
        }
        Ok(())
    }

    /// What is on the medium of these blocks. What goes wrong is left to the read itself.
    fn read_chunk(&self, of: View, first: u64, blocks: u64) -> Pieces {
        let mut places = Vec::with_capacity(index64(blocks));
        let mut next = first;
        while next < first + blocks {
            let end = (next + AT_ONCE).min(first + blocks);
            match self.places_of(of, next..end, &mut places) {
                Ok(()) => next = end,
                Err((block, ColdLeaf(key))) if self.load(key).is_ok() => next = block,
                Err(_) => break,
            }
        }
        places.sort_unstable_by_key(|(place, _)| place.0);
        places.dedup_by_key(|(place, _)| place.0);
        let order: Vec<usize> = (0..places.len()).collect();
        let mut total = 0;
        let stretches: Vec<Stretch> = Stretch::of(&order, &places, self.shape.align, &ALONG)
            .take_while(|stretch| {
                total += index(stretch.bytes);
                total <= 2 * CHUNK
            })
            .collect();
        let total = stretches.iter().map(|stretch| index(stretch.bytes)).sum();
        let mut bytes = self.along.lock().buffer(total);
        let read = self.read_stretches(&stretches, &mut bytes[..total], Requests::new());
        crate::mark("read: along");
        let (mut at, mut found) = (0, Vec::with_capacity(places.len()));
        for (stretch, result) in stretches.iter().zip(&read) {
            if result.is_ok() {
                let members = places[stretch.members.clone()].iter();
                found.extend(members.map(|(place, _)| (*place, at + index(place.offset() - stretch.at.offset))));
            }
            at += index(stretch.bytes);
        }
        Pieces { bytes, places: found }
    }
}
