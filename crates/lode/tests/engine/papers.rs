//! Small rows of the papers that no other test shows (`docs/ROWS.md`).
use crate::basics::quiet;
use crate::tape::{BLOCK, Event, Fate, MAIN, Tape, bare, kind, open, put, recovered, values};
use lode::{BlockId, Disk, ListOptions, OpenOptions, OrderedId, Place, Survive, UnitLabel, UnitOptions, VolumeOptions};
use std::collections::BTreeSet;

const SIZE: u64 = BLOCK as u64;

fn list(disk: &Disk) -> OrderedId {
    disk.create_list(&ListOptions { block_bytes: BLOCK, ..ListOptions::default() }, Place::Last).unwrap()
}

fn job() -> UnitLabel {
    UnitLabel { label: "job".to_owned(), ..UnitLabel::default() }
}

/// LD-06, R4: the numbers of a deleted list and of all its blocks are free again, once it is drained.
#[test]
fn all_numbers_of_a_deleted_list_come_back() {
    let disk = open(&Tape::formatted(96, 64 << 10, BLOCK));
    let (gone, other) = (list(&disk), list(&disk));
    let numbers: BTreeSet<BlockId> = (0..3000).map(|_| disk.insert_block(gone, Place::First).unwrap()).collect();
    disk.delete_list(gone).unwrap();
    while disk.maintain().unwrap() {}
    let again: BTreeSet<BlockId> = (0..3010).map(|_| disk.insert_block(other, Place::Last).unwrap()).collect();
    assert!(numbers.is_subset(&again), "{} of 3000", numbers.intersection(&again).count());
    assert!((0..3).any(|_| list(&disk) == gone));
}

/// LD-09: a reservation is nobody's after a crash.
#[test]
fn a_reservation_ends_with_a_crash() {
    let tape = Tape::formatted(96, 64 << 10, BLOCK);
    let disk = open(&tape);
    let free = disk.info().unwrap().free;
    let _held = disk.reserve(100, BLOCK).unwrap();
    assert!(disk.info().unwrap().free < free);
    disk.flush(Survive::Power).unwrap();
    let info = open(&tape.cut_hard()).info().unwrap();
    assert_eq!((info.reserved, info.free), (0, free));
}

/// LD-10: a stretch is not moved behind one of its own blocks, nor is one that ends before it begins.
#[test]
fn a_stretch_is_not_moved_into_itself() {
    let disk = open(&Tape::formatted(96, 64 << 10, BLOCK));
    let (one, two) = (list(&disk), list(&disk));
    let blocks = [(); 5].map(|()| disk.insert_block(one, Place::Last).unwrap());
    let [_, first, middle, last, _] = blocks;
    for place in [first, middle, last] {
        assert!(disk.move_blocks(one, (first, last), one, Place::After(place)).is_err());
    }
    assert!(disk.move_blocks(one, (last, first), two, Place::First).is_err());
    assert!(disk.move_blocks(two, (first, last), one, Place::First).is_err());
    assert!(disk.move_blocks(one, (first, last), two, Place::After(middle)).is_err());
    assert_eq!((disk.blocks(one).unwrap(), disk.blocks(two).unwrap()), (blocks.to_vec(), vec![]));
    disk.move_blocks(one, (first, last), one, Place::After(blocks[0])).unwrap();
    assert_eq!(disk.blocks(one).unwrap(), blocks, "where it was");
}

/// LD-12: a flush up to the newest change of one list makes that durable, and does nothing if that is.
#[test]
fn a_flush_up_to_a_change_of_one_list_is_enough_for_it() {
    let tape = Tape::formatted(48, 64 << 10, BLOCK);
    let disk = open(&tape);
    let other = VolumeOptions { bytes: 8 * SIZE, block_bytes: BLOCK, ..Default::default() };
    let other = disk.create_volume("other", &other).unwrap();
    let newest = disk.volume("v").unwrap().write_at(0, &[1; BLOCK as usize]).unwrap();
    disk.flush(Survive::Process).unwrap();
    other.write_at(0, &[2; BLOCK as usize]).unwrap();
    disk.flush_up_to(newest, Survive::Power).unwrap();
    assert_eq!(recovered(&tape.cut_hard(), 1), [1]);
    let events = tape.len();
    disk.flush_up_to(newest, Survive::Power).unwrap();
    assert_eq!(tape.len(), events, "it is durable");
}

/// AR-18, AR-20: blocks are put in and taken out by as many records in a long list as in a short one, wherever.
#[test]
fn an_insertion_and_a_removal_cost_the_same_wherever_in_a_list() {
    let tape = Tape::formatted(96, 64 << 10, BLOCK);
    let disk = open(&tape);
    let (short, long) = (list(&disk), list(&disk));
    for (list, count) in [(short, 3), (long, 3000)] {
        (0..count).for_each(|_| assert!(disk.insert_block(list, Place::Last).is_ok()));
    }
    let mut costs = Vec::new();
    for list in [short, long] {
        let blocks = disk.blocks(list).unwrap();
        for place in [Place::First, Place::After(blocks[blocks.len() / 2]), Place::Last] {
            let before = disk.position().0;
            disk.insert_block(list, place).unwrap();
            costs.push(disk.position().0 - before);
        }
    }
    assert_eq!(costs, [3; 6], "a row each for the block and both neighbours");
    for list in [short, long] {
        let blocks = disk.blocks(list).unwrap();
        for block in [blocks[0], blocks[blocks.len() / 2], blocks[blocks.len() - 1]] {
            let before = disk.position().0;
            disk.remove_block(list, block).unwrap();
            assert_eq!(disk.position().0 - before, 3);
        }
    }
}

/// AR-21: what a unit does to lists is kept by the unit, and is no record before its commit.
#[test]
fn list_operations_of_a_unit_are_no_records_before_its_commit() {
    let tape = Tape::formatted(96, 64 << 10, BLOCK);
    let disk = open(&tape);
    let (one, two) = (list(&disk), list(&disk));
    let blocks = [(); 4].map(|()| disk.insert_block(one, Place::Last).unwrap());
    disk.flush(Survive::Power).unwrap();
    let (position, start) = (disk.position(), tape.len());
    let mut unit = disk.begin().unwrap();
    unit.insert_block(one, Place::After(blocks[1])).unwrap();
    unit.remove_block(one, blocks[0]).unwrap();
    unit.move_blocks(one, (blocks[2], blocks[3]), two, Place::First).unwrap();
    unit.move_list(two, Place::First).unwrap();
    let own = unit.create_list(&ListOptions { block_bytes: BLOCK, ..ListOptions::default() }, Place::Last).unwrap();
    unit.delete_list(own).unwrap();
    disk.flush(Survive::Power).unwrap();
    assert_eq!((disk.position(), tape.batches(start).len()), (position, 0));
    unit.commit_and_flush(Survive::Power).unwrap();
    assert!(disk.position() > position);
    let disk = open(&tape.cut_hard());
    assert_eq!(disk.lists().unwrap(), [two, one]);
    assert_eq!(disk.blocks(two).unwrap(), blocks[2..]);
}

/// MI-18: a barrier syncs nothing, and stands in the order of everything else: what survives is a prefix of both.
#[test]
fn a_barrier_orders_and_waits_for_nothing() {
    let tape = Tape::formatted(96, 64 << 10, BLOCK);
    let disk = open(&tape);
    let volume = disk.volume("v").unwrap();
    let mut unit = disk.begin_labelled(&job(), &UnitOptions::default()).unwrap();
    let start = tape.len();
    for n in 1..=2u8 {
        unit.write_at(&volume, SIZE, &[n; BLOCK as usize]).unwrap();
        unit.barrier(&[n]).unwrap();
        disk.flush(Survive::Process).unwrap();
        put(&volume, 0, n);
        disk.flush(Survive::Process).unwrap();
    }
    assert!(!tape.events()[start..].iter().any(|event| matches!(event, Event::Sync(_))), "nothing was synced");
    let batches: Vec<usize> = tape.batches(start).iter().map(|(n, ..)| *n).collect();
    let expected = [(None, 0), (Some(1), 0), (Some(1), 1), (Some(2), 1), (Some(2), 2)];
    assert_eq!(batches.len() + 1, expected.len());
    for (lost, expected) in batches.into_iter().chain([usize::MAX]).zip(expected) {
        let disk = open(&tape.cut(tape.len(), |n, _| if n == lost { Fate::Old } else { Fate::New }));
        let barrier = disk.units().unwrap().first().map(|unit| unit.cookie[0]);
        assert_eq!((barrier, values(&disk, 1)[0]), expected);
        if let Some(barrier) = barrier {
            let mut bytes = [0; BLOCK as usize];
            disk.resume("job").unwrap().read_at(&disk.volume("v").unwrap(), SIZE, &mut bytes).unwrap();
            assert_eq!(bytes, [barrier; BLOCK as usize]);
        }
    }
}

/// MI-33: of a commit that is not all there nothing counts: its unit is back at the barrier, and what came behind the
/// commit is gone with it.
#[test]
fn a_commit_that_is_lost_takes_its_unit_back_to_the_barrier_and_ends_the_prefix() {
    for spilled in [false, true] {
        let tape = Tape::formatted(256, 8 << 10, BLOCK);
        let disk = Disk::open(tape.clone(), &OpenOptions { unit_memory_bytes: 2048, ..bare() }).unwrap();
        let volume = disk.volume("v").unwrap();
        let mut unit = disk.begin_labelled(&job(), &UnitOptions::default()).unwrap();
        unit.write_at(&volume, 0, &[1; BLOCK as usize]).unwrap();
        unit.barrier(b"one").unwrap();
        let blocks = if spilled { 100 } else { 2 };
        for n in 0..blocks {
            unit.write_at(&volume, n * 37 % blocks * SIZE, &[2; BLOCK as usize]).unwrap();
        }
        disk.flush(Survive::Power).unwrap();
        let start = tape.len();
        unit.commit().unwrap();
        disk.flush(Survive::Process).unwrap();
        let main = tape.batches(start).into_iter().filter(|(_, _, bytes)| kind(bytes) == MAIN);
        let commit: Vec<usize> = main.map(|(n, ..)| n).collect();
        assert!(commit.len() > if spilled { 1 } else { 0 }, "{} batches", commit.len());
        put(&volume, 120, 3);
        disk.flush(Survive::Process).unwrap();
        for lost in commit.iter().copied().chain([usize::MAX]) {
            let cut = tape.cut(tape.len(), |n, _| if n == lost { Fate::Old } else { Fate::New });
            let disk = open(&cut);
            let found = values(&disk, 121);
            let there = lost == usize::MAX;
            let units = disk.units().unwrap();
            assert_eq!((units.len(), found[0], found[1], found[120]), if there { (0, 2, 2, 3) } else { (1, 0, 0, 0) });
            if !there {
                let (unit, volume) = (disk.resume("job").unwrap(), disk.volume("v").unwrap());
                let mut bytes = [0; 2 * BLOCK as usize];
                unit.read_at(&volume, 0, &mut bytes).unwrap();
                assert_eq!((bytes[0], bytes[600], unit.cookie()), (1, 0, &b"one"[..]));
            }
        }
    }
}

/// MI-38: records of any length are appended together with the counter that says where they end.
#[test]
fn a_record_of_any_length_and_its_counter_are_appended_as_one() {
    let tape = Tape::formatted(256, 8 << 10, BLOCK);
    let disk = Disk::open(tape.clone(), &OpenOptions { unit_memory_bytes: 4096, ..quiet() }).unwrap();
    let options = VolumeOptions { bytes: 1 << 20, block_bytes: BLOCK, ..Default::default() };
    let log = disk.create_volume("log", &options).unwrap();
    disk.flush(Survive::Power).unwrap();
    let start = tape.len();
    let lengths = [1, 511, 512, 5000, 3, 70_000, 100];
    let mut ends = vec![0u64];
    for (n, length) in (1u8..).zip(lengths) {
        let end = *ends.last().unwrap();
        let mut unit = disk.begin().unwrap();
        unit.write_at(&log, SIZE + end, &vec![n; length]).unwrap();
        ends.push(end + length as u64);
        unit.write_at(&log, 0, &ends.last().unwrap().to_le_bytes()).unwrap();
        unit.commit().unwrap();
        disk.flush(if n % 3 == 0 { Survive::Power } else { Survive::Process }).unwrap();
    }
    let mut seen = vec![false; ends.len()];
    for at in start..=tape.len() {
        for kept in [Fate::Old, Fate::New, Fate::Noise] {
            let disk = open(&tape.cut(at, |n, sector| if (n + sector) % 3 == 0 { kept } else { Fate::New }));
            let mut bytes = vec![0; 1 << 20];
            disk.volume("log").unwrap().read_at(0, &mut bytes).unwrap();
            let end = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            let records = ends.iter().position(|known| *known == end).expect("an end that was written");
            let whole: Vec<u8> = (1u8..).zip(&lengths[..records]).flat_map(|(n, length)| vec![n; *length]).collect();
            let (content, rest) = bytes[BLOCK as usize..].split_at(whole.len());
            assert!(content == whole && rest.iter().all(|byte| *byte == 0), "{records} records at {at}");
            seen[records] = true;
        }
    }
    assert!(seen.iter().all(|seen| *seen), "{seen:?}");
}
