//! The rules about what a valid batch is, and about footers (R7, R12), each with the schedule that it answers.
use crate::tape::{
    BLOCK, Fate, HEAD, MAIN, Tape, bare, kind, open, put, recovered, reseal, u32_at, u64_at, values, write,
};
use lode::{Disk, ErrorKind, Survive};
use lode_media::Position;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Adds to the field of `bytes` at `at`.
fn add(bytes: &mut [u8], at: usize, what: u64) {
    let value = u64_at(bytes, at).wrapping_add(what);
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// R7: what lies where the next batch would is one if and only if everything in its header is its own. Remnants, misled
/// writes and other disks' batches have sound checksums; each differs in one field, and each is the end of the log.
#[test]
fn a_batch_with_one_wrong_field_is_the_end_of_the_log() {
    type Change = fn(&mut [u8]);
    let sealed: [(&str, Change, bool); 15] = [
        ("nothing", |_| (), true),
        ("magic", |bytes| bytes[0] ^= 1, false),
        ("version", |bytes| bytes[4] ^= 2, false),
        ("kind", |bytes| bytes[6] = 9, false),
        ("disk", |bytes| bytes[8] ^= 1, false),
        ("filling of the zone", |bytes| add(bytes, 24, 1), false),
        ("filling of an earlier epoch", |bytes| add(bytes, 24, (1u64 << 32).wrapping_neg()), false),
        ("a later sequence", |bytes| add(bytes, 32, 1), false),
        ("an earlier sequence", |bytes| add(bytes, 32, 1u64.wrapping_neg()), false),
        ("zone", |bytes| bytes[56] ^= 1, false),
        ("offset", |bytes| add(bytes, 60, 512), false),
        ("head", |bytes| bytes[89] ^= 4, false),
        ("length beyond the zone", |bytes| bytes[66] = 0xFF, false),
        ("length between sectors", |bytes| bytes[64] = 1, false),
        ("count of records", |bytes| bytes[76] += 1, false),
    ];
    let torn: [(&str, Change, bool); 3] = [
        ("checksum", |bytes| bytes[124] ^= 1, false),
        ("record", |bytes| bytes[140] ^= 1, false),
        ("block", |bytes| bytes[600] ^= 1, false),
    ];
    let tape = Tape::formatted(48, 32 << 10, 512);
    let disk = open(&tape);
    write(&disk, 0, 1);
    disk.flush(Survive::Power).unwrap();
    let start = tape.len();
    write(&disk, 1, 2);
    let [(_, at, bytes)] = &tape.batches(start)[..] else { panic!("one batch was expected") };
    let changes = sealed.iter().map(|change| (change, true)).chain(torn.iter().map(|change| (change, false)));
    for ((what, change, counts), again) in changes {
        let cut = tape.restart();
        cut.damage(*at, |place| {
            let batch = &mut place[..bytes.len()];
            change(batch);
            if again && *what != "head" {
                reseal(batch);
            }
        });
        assert_eq!(recovered(&cut.restart(), 2), [1, if *counts { 2 } else { 0 }], "{what}");
    }
}

/// R7: the zone's filling tells, and nothing else does. An epoch's first batch is lost in a cut and the ones behind it
/// stay. The next epoch takes the zone again, and its first batch has the place, the length and the sequence of the
/// lost one: the old batch behind it follows in every number, and would bring back what was lost.
#[test]
fn a_batch_of_an_older_filling_that_fits_in_every_other_number_never_counts() {
    let tape = Tape::formatted(48, 32 << 10, 512);
    let disk = open(&tape);
    let start = tape.len();
    (0..3).for_each(|block| write(&disk, block, 1));
    let old = tape.batches(start);
    let cut = tape.cut(tape.len(), |n, _| if n == old[0].0 { Fate::Old } else { Fate::New });
    let disk = open(&cut);
    assert_eq!(values(&disk, 6), [0; 6]);
    write(&disk, 5, 9);
    let new = cut.batches(0);
    assert_eq!((new[0].1, new[0].2.len()), (old[0].1, old[0].2.len()), "the same place and length");
    assert_eq!(u64_at(&new[0].2, 32), u64_at(&old[0].2, 32), "the same sequence");
    disk.flush(Survive::Power).unwrap();
    assert_eq!(recovered(&cut.cut_hard(), 6), [0, 0, 0, 0, 0, 9]);
}

/// R7: every block of a batch behind the witness is verified. A cut loses one sector of data of the second of three
/// batches whose headers are whole: the log ends before it, and the third does not count either.
#[test]
fn a_block_torn_behind_the_witness_ends_the_log_before_its_batch() {
    let tape = Tape::formatted(48, 32 << 10, 512);
    let disk = open(&tape);
    let start = tape.len();
    (0..3).for_each(|block| write(&disk, block, 1));
    let second = tape.batches(start)[1].0;
    for fate in [Fate::Old, Fate::Noise, Fate::Zeros] {
        let cut = tape.cut(tape.len(), |n, sector| if (n, sector) == (second, 1) { fate } else { Fate::New });
        assert_eq!(recovered(&cut, 3), [1, 0, 0], "{fate:?}");
    }
}

/// A disk whose log has sealed some segments, all of it durable and witnessed; the places of the sealed ones' batches
/// by segment, in order; and what its blocks are full of.
fn with_sealed_segments() -> (Arc<Tape>, Vec<Vec<Position>>, Vec<u8>) {
    let tape = Tape::formatted(48, 32 << 10, 512);
    let disk = open(&tape);
    let start = tape.len();
    for n in 0..100u8 {
        write(&disk, u64::from(n % 50), n + 1);
    }
    disk.flush(Survive::Power).unwrap();
    write(&disk, 60, 1);
    disk.flush(Survive::Power).unwrap();
    let segments = tape.segments(start).into_iter();
    let mut segments: Vec<Vec<Position>> =
        segments.map(|segment| segment.into_iter().map(|(at, _)| at).collect()).collect();
    segments.pop();
    assert!(segments.len() >= 2, "{segments:?}");
    let values = values(&disk, 61);
    (tape.restart(), segments, values)
}

/// R12: the footer is a second copy of a sealed segment's records. A batch whose head is ruined before the witness
/// loses nothing: recovery reads the footer, and so does the cleaner, who must not take what he cannot name for dead.
#[test]
fn a_sealed_segment_with_a_ruined_head_is_read_and_cleaned_by_its_footer() {
    let (tape, segments, expected) = with_sealed_segments();
    for segment in &segments {
        for at in [segment[1], segment[segment.len() / 2], segment[segment.len() - 2]] {
            let damaged = tape.restart();
            damaged.ruin(at);
            let disk = open(&damaged);
            assert_eq!(values(&disk, 61), expected, "{at:?}");
            for round in 0..6 {
                disk.clean().unwrap();
                disk.flush(Survive::Power).unwrap();
                put(&disk.volume("v").unwrap(), 127, round);
                while disk.maintain().unwrap() {}
            }
            assert!(disk.counters().zones_cleaned > 0);
            assert_eq!(disk.info().unwrap().zones_aside, 0);
            assert_eq!(values(&disk, 61), expected);
            disk.close().unwrap();
            assert_eq!(values(&open(&damaged.cut_hard()), 61), expected);
        }
    }
}

/// R12: the batches are the first copy. Without its trailer the footer is not found, and the segment is walked; only
/// when a batch is ruined as well is something missing, and then it is told.
#[test]
fn a_sealed_segment_without_its_trailer_is_walked() {
    let (tape, segments, expected) = with_sealed_segments();
    for segment in &segments {
        let trailer = Position { offset: (32 << 10) - 32, ..segment[0] };
        let damaged = tape.restart();
        damaged.damage(trailer, |bytes| bytes[0] ^= 1);
        assert_eq!(values(&open(&damaged.restart()), 61), expected, "{trailer:?}");
        damaged.ruin(segment[1]);
        let error = Disk::open(damaged.restart(), &bare()).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

/// R12: a footer costs one read for each sealed segment before the witness, beside the look at the segment's first head
/// that the root does not name, and the batches there none.
#[test]
fn a_sealed_segment_before_the_witness_is_not_walked() {
    let (tape, segments, expected) = with_sealed_segments();
    let disk = open(&tape);
    let reads = tape.take_reads();
    for segment in &segments {
        let zone = segment[0].zone;
        let count = reads.iter().filter(|at| at.zone == zone).count();
        assert!(count <= 2, "{count} reads of zone {}", zone.0);
    }
    assert_eq!(values(&disk, 61), expected);
    let mut footers = BTreeSet::new();
    disk.inspect_batches(&mut |batch| {
        if batch.from_footer {
            footers.insert(batch.zone);
        }
    })
    .unwrap();
    assert!(segments.iter().all(|segment| footers.contains(&segment[0].zone.0)));
}

/// R12: it repeats all records of its segment, byte by byte.
#[test]
fn a_footer_repeats_all_records_of_its_segment() {
    let tape = Tape::formatted(48, 32 << 10, 512);
    let disk = open(&tape);
    let start = tape.len();
    for round in 0..3 {
        disk.volume("v").unwrap().write_at(u64::from(BLOCK), &vec![round; 40 << 10]).unwrap();
        (0..20).for_each(|block| write(&disk, block, round));
    }
    let (mut records, mut footers) = (Vec::new(), 0);
    for (_, _, bytes) in tape.batches(start) {
        let at = |offset| usize::try_from(u32_at(&bytes, offset)).unwrap();
        if kind(&bytes) == MAIN {
            let (head, data, length) = (usize::try_from(HEAD).unwrap(), at(68), at(72));
            let in_head = length.min(head - 128);
            let tail = head + data.next_multiple_of(16);
            records.push((
                u64_at(&bytes, 32),
                [&bytes[128..128 + in_head], &bytes[tail..tail + length - in_head]].concat(),
            ));
            continue;
        }
        footers += 1;
        let (mut entry, mut repeated) = (128, Vec::new());
        while entry < 128 + at(72) {
            let length = usize::try_from(u32_at(&bytes, entry + 24)).unwrap();
            repeated.push((u64_at(&bytes, entry), bytes[entry + 40..entry + 40 + length].to_vec()));
            entry += 40 + length;
        }
        assert!(repeated == std::mem::take(&mut records), "the footer of zone {}", u32_at(&bytes, 56));
    }
    assert!(footers > 3);
}
