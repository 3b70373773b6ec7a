use crate::tape::*;
use lode::{Survive, VolumeOptions};
use lode_media::Position;

type Batches = Vec<(Position, usize)>;

fn sealed() -> (std::sync::Arc<Tape>, Vec<Batches>, Vec<u8>) {
    let tape = Tape::formatted(48, 32 << 10, 512);
    let disk = open(&tape);
    let start = tape.len();
    for n in 0..100u8 {
        write(&disk, u64::from(n % 50), n + 1);
        disk.flush(Survive::Power).unwrap();
    }
    let values = values(&disk, 50);
    let segments = tape.segments(start);
    (tape.restart(), segments, values)
}

/// R7, R12: one ruined sector, the first batch's head of a sealed, witnessed segment that the root does not list.
#[test]
fn the_first_batch_of_a_sealed_segment_is_read_from_its_footer() {
    let (tape, segments, expected) = sealed();
    for segment in &segments[..segments.len() - 1] {
        let damaged = tape.restart();
        damaged.ruin(segment[0].0);
        assert_eq!(values(&open(&damaged.restart()), 50), expected);
    }
}

/// R7, R12: one ruined sector of a footer; every record of the segment is in its batches.
#[test]
fn a_ruined_footer_is_no_gap_in_the_records() {
    let (tape, segments, expected) = sealed();
    for segment in &segments[..segments.len() - 1] {
        let damaged = tape.restart();
        damaged.ruin(segment.last().unwrap().0);
        assert_eq!(values(&open(&damaged.restart()), 50), expected);
    }
}

/// R11: while zones are free, every batch of the cleaner announces two as well, so that a ruined footer behind it hides
/// nothing of what others flush into the segments it opened.
#[test]
fn a_segment_opened_by_the_keeper_announces_the_next() {
    let tape = Tape::formatted(160, 32 << 10, 512);
    let disk = open(&tape);
    let start = tape.len();
    let w = disk.create_volume("w", &VolumeOptions { bytes: 1 << 20, block_bytes: 64, ..Default::default() }).unwrap();
    for n in 0..16384u64 {
        w.write_at(n * 7919 % 16384 * 64, &[3; 64]).unwrap();
    }
    for n in 0..8192u64 {
        w.write_at(n * 2 * 7919 % 16384 * 64, &[4; 64]).unwrap();
    }
    disk.flush(Survive::Power).unwrap();
    // Without maintenance nothing is freed: each round takes zones for what it moves.
    let mut rounds = 0;
    while disk.info().unwrap().free_zones > 6 {
        disk.clean().unwrap();
        disk.flush(Survive::Power).unwrap();
        rounds += 1;
        let last = tape.batches(start).last().cloned().unwrap();
        let next = [u32_at(&last.2, NEXT_A), u32_at(&last.2, NEXT_B)];
        assert!(!next.contains(&u32::MAX), "the newest batch, {:?}, names {next:?}", last.1);
    }
    assert!(rounds > 5, "{rounds} rounds");
}
