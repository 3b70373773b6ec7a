//! A unit of 400 MiB, and the memory that it takes: an allocator that counts is the only one to know, so this test has
//! a process of its own.
#![allow(clippy::unwrap_used)]

use lode::{Disk, FormatOptions, OpenOptions, Survive, Unit, Volume, VolumeOptions};
use lode_media::{Geometry, ram::RamMedium};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

static NOW: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, counting bytes.
struct Counting;

// SAFETY: every call is passed on as it is to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let bytes = layout.size() as u64;
        let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, and every block came from `System`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const BLOCKS: u64 = 100_000;
const BLOCK: usize = 4096;

/// What is held now, without the medium.
fn held(medium: &RamMedium) -> u64 {
    NOW.load(Ordering::Relaxed) - medium.stored_bytes()
}

/// The most that was held while `work` ran, without the medium: that counts with the less of what it held before and
/// after.
fn peak_of(medium: &RamMedium, work: impl FnOnce()) -> u64 {
    let stored = medium.stored_bytes();
    PEAK.store(NOW.load(Ordering::Relaxed), Ordering::Relaxed);
    work();
    PEAK.load(Ordering::Relaxed) - stored.min(medium.stored_bytes())
}

/// Every block, in an order that makes no runs. The words of a block are equal, so that the medium keeps but one of
/// them. Tells the most that was held meanwhile.
fn write_all(unit: &mut Unit, volume: &Volume, round: u64, medium: &RamMedium) -> u64 {
    let steps = (0..BLOCKS).step_by(500).map(|first| {
        peak_of(medium, || {
            for n in first..first + 500 {
                let block = n * 7919 % BLOCKS;
                unit.write_at(volume, block * BLOCK as u64, &(round + block).to_le_bytes().repeat(BLOCK / 8)).unwrap();
            }
        })
    });
    steps.max().unwrap()
}

/// All blocks are of this round, or all are holes.
fn assert_all(volume: &Volume, round: Option<u64>) {
    let mut bytes = vec![0; 100 * BLOCK];
    for first in (0..BLOCKS).step_by(100) {
        volume.read_at(first * BLOCK as u64, &mut bytes).unwrap();
        for (block, found) in (first..).zip(bytes.chunks(BLOCK)) {
            let expected = round.map_or(0, |round| round + block).to_le_bytes();
            assert!(found.chunks(8).all(|word| word == expected), "block {block}");
        }
    }
}

/// R16: a unit of 100,000 blocks, 400 MiB, with 8 MiB of memory: whole or not at all, and what it holds in memory is
/// not its data.
#[test]
fn a_unit_of_400_mib_commits_whole_in_little_memory() {
    let geometry = Geometry { zones: 1200, zone_bytes: 1 << 20, append_align: 4096, devices: 1 };
    let medium = Arc::new(RamMedium::new(geometry));
    Disk::format(medium.clone(), &FormatOptions { disk_id: 7 }).unwrap();
    let options =
        OpenOptions { background: false, cache_bytes: 0, unit_memory_bytes: 8 << 20, ..OpenOptions::default() };
    let disk = Disk::open(medium.clone(), &options).unwrap();
    let size = VolumeOptions { bytes: BLOCKS * BLOCK as u64, ..VolumeOptions::default() };
    let volume = disk.create_volume("v", &size).unwrap();

    // One that does not commit before the process ends.
    let mut unit = disk.begin().unwrap();
    write_all(&mut unit, &volume, 1, &medium);
    disk.flush(Survive::Power).unwrap();
    assert_all(&volume, None);
    drop((volume, disk));
    drop(unit);

    let disk = Disk::open(medium.clone(), &options).unwrap();
    let volume = disk.volume("v").unwrap();
    assert_all(&volume, None);
    let before = held(&medium);
    let mut unit = disk.begin().unwrap();
    let writing = write_all(&mut unit, &volume, 1_000_000, &medium) - before;
    assert_all(&volume, None);
    let open = held(&medium) - before;
    let committing = peak_of(&medium, || {
        unit.commit_and_flush(Survive::Power).unwrap();
    }) - before;
    println!("{BLOCKS} blocks: {writing} bytes at most while writing, {open} when open, {committing} in the commit");
    assert!(open <= (8 << 20) + BLOCKS * 128, "{open} bytes are held by an open unit");
    assert!(writing.max(committing) <= 64 << 20, "{writing} and {committing} bytes were held at most");
    assert_all(&volume, Some(1_000_000));
    drop((volume, disk));
    let disk = Disk::open(medium.clone(), &options).unwrap();
    assert_all(&disk.volume("v").unwrap(), Some(1_000_000));
    drop(disk);
    assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
}
