//! The raw twins: what a program without Lode would do on the same device, as fast as it can.

use super::place::Place;
use super::{figure, wide};
use crate::failure::{Failure, Result};
use crate::random::Random;
use lode_media::AlignedBuffer;
use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

const PIECE: usize = 1 << 20;

/// A place for direct I/O, with a log in it that goes round.
pub struct Raw {
    file: File,
    start: u64,
    bytes: u64,
    end: AtomicU64,
}

fn failed(doing: &'static str) -> impl FnOnce(std::io::Error) -> Failure {
    move |error| Failure::io(format!("raw peer: {doing}"), error)
}

/// Runs `work` on `threads` threads and gives back the first failure.
pub fn together(threads: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (work, failure) = (&work, &failure);
            scope.spawn(move || {
                if let Err(error) = work(thread) {
                    failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(error);
                }
            });
        }
    });
    match failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// Noise that direct I/O takes, in ordinary memory as programs have it.
pub struct Noise {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Deref for Noise {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }
}

/// A buffer of noise that direct I/O takes.
pub fn noise(bytes: usize) -> Noise {
    const SECTOR: usize = 4096;
    let mut memory = vec![0; bytes + SECTOR];
    let start = memory.as_ptr().addr().next_multiple_of(SECTOR) - memory.as_ptr().addr();
    Random::new(7).fill(&mut memory);
    Noise { memory, start, bytes }
}

/// The same on huge pages, which devices take faster.
fn noise_on_huge_pages(bytes: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::new(bytes);
    Random::new(7).fill(&mut buffer);
    buffer
}

impl Raw {
    /// The raw twin in `place`.
    pub fn new(place: &Place) -> Result<Raw> {
        Ok(Raw { file: place.direct()?, start: place.start, bytes: place.bytes, end: AtomicU64::new(0) })
    }

    /// Where the next append of `bytes` goes; from the end back to the start.
    fn claim(&self, bytes: u64) -> u64 {
        let room = self.bytes / bytes;
        let turn = self.end.fetch_add(1, Ordering::Relaxed);
        self.start + turn % room * bytes
    }

    /// Appends without making it durable.
    pub fn append(&self, piece: &[u8]) -> Result<()> {
        self.file.write_all_at(piece, self.claim(wide(piece.len()))).map_err(failed("appending"))
    }

    /// Makes it durable.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(failed("syncing"))
    }

    /// Appends of `piece` bytes, each durable, `count` on each thread. Returns appends a second.
    pub fn durable_appends(&self, piece: usize, count: u64, threads: usize) -> Result<f64> {
        let start = Instant::now();
        together(threads, |_| {
            let buffer = noise(piece);
            for _ in 0..count {
                self.append(&buffer)?;
                self.sync()?;
            }
            Ok(())
        })?;
        Ok(figure(count * wide(threads)) / start.elapsed().as_secs_f64())
    }

    /// Writes `bytes` in order, 1 MiB at a time and `depth` at once, durable every 16 MiB. Returns bytes a second.
    pub fn in_order(&self, bytes: u64, depth: usize) -> Result<f64> {
        self.in_order_from(bytes, depth, || noise(PIECE))
    }

    /// The same out of huge pages: what the device can do at best.
    pub fn in_order_on_huge_pages(&self, bytes: u64) -> Result<f64> {
        self.in_order_from(bytes, 1, || noise_on_huge_pages(PIECE))
    }

    fn in_order_from<B: Deref<Target = [u8]>>(
        &self,
        bytes: u64,
        depth: usize,
        source: impl Fn() -> B + Sync,
    ) -> Result<f64> {
        const GROUP: usize = 16;
        let groups = bytes / wide(GROUP * PIECE);
        let barrier = Barrier::new(depth);
        let start = Instant::now();
        together(depth, |thread| {
            let buffer = source();
            let mut outcome = Ok(());
            // A thread that failed goes on through the barriers, or the others would wait for ever.
            for group in 0..groups {
                for piece in (thread..GROUP).step_by(depth) {
                    let at = (group * wide(GROUP) + wide(piece)) * wide(PIECE) % self.bytes;
                    let written = self.file.write_all_at(&buffer, self.start + at).map_err(failed("writing"));
                    outcome = outcome.and(written);
                }
                if barrier.wait().is_leader() {
                    outcome = outcome.and(self.sync());
                }
                barrier.wait();
            }
            outcome
        })?;
        Ok(figure(groups * wide(GROUP * PIECE)) / start.elapsed().as_secs_f64())
    }

    /// Reads of 4 KiB at random places, `count` on each thread. Returns reads a second.
    pub fn random_reads(&self, count: u64, threads: usize, seed: u64) -> Result<f64> {
        let start = Instant::now();
        together(threads, |thread| {
            let mut random = Random::new(seed ^ wide(thread) << 32);
            let mut buffer = AlignedBuffer::new(4096);
            for _ in 0..count {
                let at = random.below(self.bytes / 4096) * 4096;
                self.file.read_exact_at(&mut buffer, self.start + at).map_err(failed("reading"))?;
            }
            Ok(())
        })?;
        Ok(figure(count * wide(threads)) / start.elapsed().as_secs_f64())
    }

    /// The slowest of `count` durable appends of `piece` bytes.
    pub fn slowest_append(&self, piece: usize, count: u64) -> Result<Duration> {
        let buffer = noise(piece);
        let mut slowest = Duration::ZERO;
        for _ in 0..count {
            let start = Instant::now();
            self.append(&buffer)?;
            self.sync()?;
            slowest = slowest.max(start.elapsed());
        }
        Ok(slowest)
    }
}

/// A file written through the page cache, in place, each write durable.
pub struct Buffered {
    file: File,
    start: u64,
    bytes: u64,
}

impl Buffered {
    /// The file in `place`.
    pub fn new(place: &Place) -> Result<Buffered> {
        Ok(Buffered { file: place.buffered()?, start: place.start, bytes: place.bytes })
    }

    /// Overwrites `count` random 4 KiB blocks, each durable. Returns writes a second.
    pub fn durable_writes(&self, count: u64, seed: u64) -> Result<f64> {
        let (mut random, buffer) = (Random::new(seed), vec![0x5a; 4096]);
        let start = Instant::now();
        for _ in 0..count {
            let at = random.below(self.bytes / 4096) * 4096;
            self.file.write_all_at(&buffer, self.start + at).map_err(failed("writing"))?;
            self.file.sync_data().map_err(failed("syncing"))?;
        }
        Ok(figure(count) / start.elapsed().as_secs_f64())
    }
}
