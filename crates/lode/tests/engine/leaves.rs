//! What reading the map from the medium costs.

use crate::basics::quiet;
use crate::reads::{Sore, list, noise};
use lode::{Disk, OpenOptions, Survive};
use std::sync::Arc;

const BLOCK: u64 = 4096;
const LEAF: u64 = 1024;
const LEAVES: u64 = 8;

/// A list of eight leaves that are arrays, with changes since their image was written.
fn medium() -> Arc<Sore> {
    let medium = Sore::disk(64, 4 << 20);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let volume = list(&disk, "large", BLOCK);
    for turn in [1, 7, 11] {
        for n in (0..LEAF * LEAVES).filter(|n| n % turn == 0) {
            let block = n * 769 % (LEAF * LEAVES);
            volume.write_at(block * BLOCK, &noise(block << 8 | turn, 16)).unwrap();
        }
        disk.flush(Survive::Power).unwrap();
        disk.checkpoint().unwrap();
    }
    disk.close().unwrap();
    medium
}

/// Reads a block of each leaf, all of whose map are on the medium only; says how many reads that took, and of how many
/// bytes.
fn read(medium: &Arc<Sore>, leaves: impl Iterator<Item = u64>) -> (u64, u64) {
    let disk = Disk::open(medium.clone(), &OpenOptions { cache_bytes: 0, ..quiet() }).unwrap();
    let volume = disk.file_list_named("large").unwrap().unwrap();
    let before = (medium.reads(), medium.read_bytes());
    for leaf in leaves {
        let n = leaf * LEAF + 500;
        let written = (0..LEAF * LEAVES).find(|turn| turn * 769 % (LEAF * LEAVES) == n).unwrap();
        let turn = [11, 7, 1].into_iter().find(|turn| written % turn == 0).unwrap();
        let mut bytes = [0; 16];
        volume.read_at(n * BLOCK, &mut bytes).unwrap();
        assert!(bytes[..] == noise(n << 8 | turn, 16), "block {n}");
    }
    (medium.reads() - before.0, medium.read_bytes() - before.1)
}

#[test]
fn who_comes_along_has_some_leaves_read_at_once() {
    let medium = medium();
    // With the block itself.
    let (one, one_bytes) = read(&medium, [4].into_iter());
    assert!(one > 2, "{one}");
    let (back, back_bytes) = read(&medium, (0..LEAVES).rev());
    assert!(back <= LEAVES * one, "one by one: {back} reads, each {one}");
    assert!(back_bytes <= LEAVES * one_bytes * 5 / 4, "{back_bytes} bytes, each {one_bytes}");
    // The first leaf, and two or three times some.
    let (reads, bytes) = read(&medium, 0..LEAVES);
    assert!(reads - LEAVES <= 4 * (one - 1), "{reads} reads, one leaf takes {one}");
    assert!(bytes < back_bytes, "{bytes} of {back_bytes}");
}
