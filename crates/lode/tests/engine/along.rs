//! Long reads in order of what lies scattered bring what follows along.

use crate::basics::quiet;
use crate::reads::{Sore, list, noise};
use lode::{Disk, ErrorKind, OpenOptions, Survive, Volume};
use lode_media::Position;
use std::sync::Arc;

const BLOCK: usize = 4096;
const PIECE: usize = 64 << 10;
const MIB: usize = 1 << 20;
const FILE: usize = 16 * MIB;

fn piece(number: usize) -> Vec<u8> {
    noise(number as u64, PIECE)
}

/// A file whose pieces of 64 KiB each lie apart from those beside them: of each mebibyte one, then of each another, and
/// so on. So four that lie together belong to four mebibytes that follow each other.
fn scattered(cache_bytes: usize) -> (Arc<Sore>, Disk, Volume) {
    let medium = Sore::disk(64, 4 << 20);
    let disk = Disk::open(medium.clone(), &OpenOptions { cache_bytes, ..quiet() }).unwrap();
    let volume = list(&disk, "large", BLOCK as u64);
    for turn in 0..16 {
        for mib in 0..FILE / MIB {
            let number = mib * 16 + turn;
            volume.write_at((number * PIECE) as u64, &piece(number)).unwrap();
        }
    }
    disk.flush(Survive::Power).unwrap();
    (medium, disk, volume)
}

/// Reads a mebibyte, says how often the medium was read for it.
fn read(medium: &Sore, volume: &Volume, mib: usize) -> u64 {
    let (before, mut bytes) = (medium.reads(), vec![0; MIB]);
    volume.read_at((mib * MIB) as u64, &mut bytes).unwrap();
    for (n, bytes) in bytes.chunks(PIECE).enumerate() {
        assert!(bytes == piece(mib * 16 + n), "piece {n} of {mib} is another");
    }
    medium.reads() - before
}

#[test]
fn who_reads_in_order_has_what_follows_read_along() {
    let (medium, _disk, volume) = scattered(64 << 20);
    let before = medium.read_bytes();
    let reads: Vec<u64> = (0..16).map(|mib| read(&medium, &volume, mib)).collect();
    assert!(reads[..4].iter().all(|reads| *reads >= 16), "nobody knows yet: {reads:?}");
    for chunk in reads[4..].chunks(4) {
        assert!((16..20).contains(&chunk[0]) && chunk[1..] == [0, 0, 0], "{reads:?}");
    }
    let read_bytes = medium.read_bytes() - before;
    assert!(read_bytes < (FILE + FILE / 16) as u64, "nothing is read twice: {read_bytes}");
    // Again from the start, in another order within.
    let reads: Vec<u64> = [1, 0, 3, 2, 6, 5, 7, 4].map(|mib| read(&medium, &volume, mib)).to_vec();
    assert!(reads.iter().sum::<u64>() < 16 * 5 + 20 && reads[5..] == [0, 0, 0], "{reads:?}");
}

#[test]
fn who_reads_here_and_there_reads_nothing_besides() {
    let (medium, _disk, volume) = scattered(64 << 20);
    for mib in [3, 9, 1, 14, 6, 0, 11, 5, 13, 2] {
        let before = medium.read_bytes();
        read(&medium, &volume, mib);
        assert!(medium.read_bytes() - before <= (MIB + 32 * BLOCK) as u64, "{mib}");
    }
    let (medium, _disk, volume) = scattered(4 << 20);
    let reads: Vec<u64> = (0..16).map(|mib| read(&medium, &volume, mib)).collect();
    assert!(reads.iter().all(|reads| *reads >= 16), "where there is little memory nothing is kept: {reads:?}");
}

/// What was read along may be old.
#[test]
fn what_is_written_meanwhile_is_read() {
    let (medium, disk, volume) = scattered(64 << 20);
    (0..5).for_each(|mib| assert!(read(&medium, &volume, mib) > 0));
    let changed = noise(1 << 40, BLOCK);
    let at = (6 * MIB + 5 * BLOCK) as u64;
    volume.write_at(at, &changed).unwrap();
    for flushed in [false, true] {
        let mut bytes = vec![0; MIB];
        volume.read_at((6 * MIB) as u64, &mut bytes).unwrap();
        assert!(bytes[5 * BLOCK..6 * BLOCK] == changed, "flushed: {flushed}");
        assert!(bytes[..5 * BLOCK] == piece(6 * 16)[..5 * BLOCK]);
        disk.flush(Survive::Power).unwrap();
    }
    volume.discard(at, BLOCK as u64).unwrap();
    let mut bytes = vec![1; MIB];
    volume.read_at((6 * MIB) as u64, &mut bytes).unwrap();
    assert!(bytes[5 * BLOCK..6 * BLOCK].iter().all(|byte| *byte == 0));
}

#[test]
fn damage_in_what_is_read_along_is_of_one_block() {
    for unreadable in [false, true] {
        let (medium, _disk, volume) = scattered(64 << 20);
        (0..4).for_each(|mib| assert!(read(&medium, &volume, mib) > 0));
        let number = 6 * 16 + 3;
        let at = medium.find(&piece(number)[BLOCK..BLOCK + 200]);
        if unreadable {
            medium.bad.lock().unwrap().push(Position { offset: at.offset + 100, ..at });
        } else {
            medium.ram.overwrite(at, &[piece(number)[BLOCK] ^ 8]).unwrap();
        }
        for mib in [4, 5, 7, 8] {
            read(&medium, &volume, mib);
        }
        let error = volume.read_at((6 * MIB) as u64, &mut vec![0; MIB]).unwrap_err();
        assert_eq!(error.kind(), if unreadable { ErrorKind::Media } else { ErrorKind::Corrupt }, "{error}");
        let block = number * PIECE / BLOCK + 1;
        assert!(error.to_string().contains(&format!(" block {block} ")), "{error}");
    }
}

#[test]
fn many_read_along_at_once() {
    let (medium, _disk, volume) = scattered(64 << 20);
    std::thread::scope(|scope| {
        for from in 0..4 {
            let (medium, volume) = (&medium, &volume);
            scope.spawn(move || {
                for mib in from..16 {
                    read(medium, volume, mib);
                }
            });
        }
    });
}
