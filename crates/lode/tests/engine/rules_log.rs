//! The rules about the order of the log and its witness (R6, R8), each with the schedule that it answers.
use crate::tape::{
    BLOCK, Call, DURABLE, Event, FOOTER, Fate, HEAD, MAIN, ROOT, SEQUENCE, Tape, bare, kind, open, put, recovered,
    u64_at, values, write,
};
use lode::{Disk, ErrorKind, OpenOptions, Survive};
use std::sync::Arc;
use std::sync::mpsc::channel;

/// Enough to fill some zones and to leave holes in them.
fn churn(disk: &Disk, rounds: u8) {
    let volume = disk.volume("v").unwrap();
    for round in 1..=rounds {
        for block in 0..96 {
            if block % 8 != u64::from(round % 8) {
                put(&volume, block, round);
            }
        }
        disk.flush(Survive::Power).unwrap();
    }
}

/// R6: a flush waits for all lower sequences. The append of a first batch hangs in the device; a second one is appended
/// and done. Its flush must neither return nor sync before the first is there, or a cut would take both.
#[test]
fn a_flush_waits_for_every_lower_sequence_still_in_flight() {
    let tape = Tape::formatted(48, 32 << 10, 512);
    let disk = open(&tape);
    let volume = disk.volume("v").unwrap();
    let start = tape.len();
    let ((hung, wait_hung), (release, wait_release)) = (channel(), channel());
    put(&volume, 0, 1);
    tape.hook(Call::Append, move || {
        hung.send(()).unwrap();
        let _ = wait_release.recv();
    });
    std::thread::scope(|scope| {
        let release = release; // If this panics, the append ends.
        let first = scope.spawn(|| disk.flush(Survive::Power).unwrap());
        wait_hung.recv().unwrap();
        let position = volume.write_at(u64::from(BLOCK), &[2; BLOCK as usize]).unwrap();
        // More than a batch takes: the second one is sealed, and appended by this thread.
        (2..20).for_each(|block| put(&volume, block, 2));
        assert_eq!(tape.batches(start).len(), 1, "the second is done, and the first is not");
        let disk = &disk;
        let second = scope.spawn(move || disk.flush_up_to(position, Survive::Power).unwrap());
        // What must not happen gets every chance to.
        for _ in 0..20_000 {
            std::thread::yield_now();
        }
        assert!(!second.is_finished(), "flushed, and the batch before it is not");
        assert!(!tape.events().iter().any(|event| matches!(event, Event::Sync(covers) if *covers > start)));
        assert_eq!(recovered(&tape.cut(tape.len(), |_, _| Fate::New), 2), [0, 0], "nothing without the first");
        release.send(()).unwrap();
        first.join().unwrap();
        second.join().unwrap();
    });
    let order: Vec<u64> = tape.batches(start).iter().map(|(_, _, bytes)| u64_at(bytes, SEQUENCE)).collect();
    assert_eq!(order[0], order[1] + 1, "they were done the other way round: {order:?}");
    assert_eq!(recovered(&tape.cut_hard(), 2), [1, 2]);
}

/// R6: one stream, whose batches are issued in the order of their sequences: those of simple writes, of units, of units
/// that spilled, of the cleaner's records, and over an opening.
#[test]
fn batches_are_issued_in_the_order_of_their_sequences() {
    let tape = Tape::formatted(48, 32 << 10, 512);
    let start = tape.len();
    for opening in 0..2 {
        let disk = Disk::open(tape.clone(), &OpenOptions { unit_memory_bytes: 4096, ..bare() }).unwrap();
        let volume = disk.volume("v").unwrap();
        churn(&disk, 6);
        let mut unit = disk.begin().unwrap();
        unit.write_at(&volume, 100, &[opening + 50; 30_000]).unwrap();
        put(&volume, 90, 3);
        unit.commit().unwrap();
        disk.clean().unwrap();
        disk.checkpoint().unwrap();
        disk.flush(Survive::Power).unwrap();
        drop((volume, disk));
        tape.next_process();
    }
    let order: Vec<u64> = tape.batches(start).iter().map(|(_, _, bytes)| u64_at(bytes, SEQUENCE)).collect();
    assert!(order.len() > 40, "{}", order.len());
    assert!(order.is_sorted_by(|a, b| a + 1 == *b), "{order:?}");
}

/// R6: data outside of the record stream is durable before a record names it. The cleaner moves blocks and says so; at
/// every cut the record may be there and what was moved not, as far as no sync says otherwise.
#[test]
fn what_the_cleaner_moved_is_durable_before_the_record_that_shows_it() {
    let tape = Tape::formatted(48, 32 << 10, 512);
    let disk = open(&tape);
    churn(&disk, 6);
    let expected = values(&disk, 96);
    let start = tape.len();
    let mut moved = 0;
    for _ in 0..4 {
        disk.clean().unwrap();
        disk.flush(Survive::Process).unwrap();
        disk.flush(Survive::Power).unwrap();
        while disk.maintain().unwrap() {}
        moved = disk.counters().cleaned_bytes;
    }
    assert!(moved > 0, "nothing was moved");
    let events = tape.events();
    let of_the_stream = |n: usize| match &events[n] {
        Event::Append(_, bytes) => matches!(kind(bytes), MAIN | FOOTER | ROOT),
        _ => false,
    };
    for at in start..=tape.len() {
        let cut = tape.cut(at, |n, _| if of_the_stream(n) { Fate::New } else { Fate::Noise });
        assert_eq!(recovered(&cut, 96), expected, "records without what they name, cut at {at}");
    }
}

/// R8: a header or root may say W only if a sync was issued after all appends up to W had ended, and returned before
/// the header was built. Of every append in `tape` since `from`.
fn check_witnesses(tape: &Tape, from: usize) -> usize {
    let events = tape.events();
    let ends: Vec<(usize, u64)> =
        tape.batches(from).iter().map(|(n, _, bytes)| (*n, u64_at(bytes, SEQUENCE))).collect();
    let mut checked = 0;
    for (n, at, bytes) in tape.appends(from) {
        if !matches!(kind(&bytes), MAIN | FOOTER | ROOT) {
            continue;
        }
        let durable = if kind(&bytes) == ROOT { u64_at(&bytes, 128 + 24) } else { u64_at(&bytes, DURABLE) };
        let covered = events[..n].iter().filter_map(|event| match event {
            Event::Sync(covers) => Some(*covers),
            _ => None,
        });
        let covered = covered.max().unwrap_or(0);
        let late = ends.iter().find(|(end, sequence)| *sequence < durable && *end >= covered);
        assert!(late.is_none(), "{at:?} witnesses everything below {durable}, and no sync covers {late:?}");
        checked += ends.iter().filter(|(_, sequence)| *sequence < durable).count();
    }
    checked
}

/// R8: while a sync is on its way another batch is appended and done. That sync does not cover it: no header may say
/// so, and a flush of it needs another sync. Believed, a cut would be taken for damage, or the flush would be a lie.
#[test]
fn a_batch_appended_during_a_sync_is_not_witnessed_by_it() {
    let tape = Tape::formatted(48, 32 << 10, 512);
    let disk = open(&tape);
    let start = tape.len();
    write(&disk, 0, 1);
    let inner = disk.clone();
    tape.hook(Call::Sync, move || write(&inner, 1, 2));
    disk.flush_up_to(disk.position(), Survive::Power).unwrap();
    write(&disk, 2, 3);
    assert_eq!(check_witnesses(&tape, start), 1, "the third batch witnesses the first and not the second");
    assert_eq!(recovered(&tape.cut_hard(), 3), [1, 0, 0], "what the sync covered");
    let second_lost = tape.batches(start)[1].0;
    let cut = tape.cut(tape.len(), |n, _| if n == second_lost { Fate::Old } else { Fate::New });
    assert_eq!(recovered(&cut, 3), [1, 0, 0], "a cut, no damage");
    disk.flush(Survive::Power).unwrap();
    assert_eq!(recovered(&tape.cut_hard(), 3), [1, 2, 3]);
}

/// R8: what headers and roots witness is true throughout a life with cleaning, checkpoints and openings.
#[test]
fn no_header_and_no_root_witnesses_more_than_a_sync_covered() {
    let tape = Tape::formatted(48, 32 << 10, 512);
    let start = tape.len();
    for _ in 0..3 {
        let disk = open(&tape);
        churn(&disk, 5);
        disk.clean().unwrap();
        disk.checkpoint().unwrap();
        (0..90).for_each(|block| put(&disk.volume("v").unwrap(), block, 77));
        drop(disk);
        tape.next_process();
    }
    assert!(check_witnesses(&tape, start) > 1000);
}

/// A disk with three blocks flushed one by one, so that the batch of the third witnesses those of the first two.
fn three_flushed() -> (Arc<Tape>, Vec<lode_media::Position>) {
    let tape = Tape::formatted(48, 32 << 10, 512);
    let disk = open(&tape);
    let start = tape.len();
    for block in 0..3 {
        write(&disk, block, 5);
        disk.flush(Survive::Power).unwrap();
    }
    let at = tape.batches(start).iter().map(|(_, at, _)| *at).collect();
    (tape, at)
}

/// R8: the run of valid batches ends before the witness. That is no crash: opening stops, says so, and has written
/// nothing. What lies before the damage can be read; only an explicit repair goes on writing from there.
#[test]
fn a_gap_before_the_witness_is_damage_and_never_truncates() {
    for (ruined, left) in [(0, [0, 0, 0]), (1, [5, 0, 0])] {
        let (tape, at) = three_flushed();
        tape.ruin(at[ruined]);
        let tape = tape.restart();
        let error = Disk::open(tape.clone(), &bare()).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let disk = Disk::open(tape.clone(), &OpenOptions { read_only: true, ..bare() }).unwrap();
        assert_eq!(values(&disk, 3), left);
        assert!(disk.info().unwrap().damaged.is_some());
        assert_eq!(tape.len(), 0, "neither wrote anything");
        drop(disk);
        let disk = Disk::open(tape.clone(), &OpenOptions { repair: true, ..bare() }).unwrap();
        assert_eq!(values(&disk, 3), left);
        write(&disk, 2, 6);
        disk.flush(Survive::Power).unwrap();
        assert_eq!(recovered(&tape.cut_hard(), 3), [left[0], left[1], 6]);
    }
}

/// R8: the newest flush has no witness. Lost later by a device that lied, it looks like a cut, unless the client kept
/// its position and asks for it.
#[test]
fn a_flush_whose_position_was_kept_is_missed_when_it_is_gone() {
    let (tape, at) = three_flushed();
    let disk = Disk::open(tape.restart(), &OpenOptions { read_only: true, ..bare() }).unwrap();
    let (kept, expect) = (disk.position(), |at| OpenOptions { expect_at_least: Some(at), ..bare() });
    drop(disk);
    Disk::open(tape.restart(), &expect(kept)).expect("all of it is there");
    tape.ruin(at[2]);
    let error = Disk::open(tape.restart(), &expect(kept)).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(recovered(&tape.restart(), 3), [5, 5, 0]);
}

/// R8: block checksums are read behind the witness only; before it, damage is of that block alone.
#[test]
fn a_bad_block_before_the_witness_is_damage_of_that_block_alone() {
    let (tape, at) = three_flushed();
    tape.damage(lode_media::Position { offset: at[0].offset + HEAD, ..at[0] }, |bytes| bytes[17] ^= 4);
    let disk = open(&tape.restart());
    let volume = disk.volume("v").unwrap();
    let mut read = [0; BLOCK as usize];
    assert_eq!(volume.read_at(0, &mut read).unwrap_err().kind(), ErrorKind::Corrupt);
    for block in 1..3 {
        volume.read_at(block * u64::from(BLOCK), &mut read).unwrap();
        assert_eq!(read, [5; BLOCK as usize]);
    }
    put(&volume, 0, 8);
    assert_eq!(values(&disk, 3), [8, 5, 5], "written again it is sound");
}
