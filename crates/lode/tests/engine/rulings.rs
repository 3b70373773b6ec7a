//! Where the papers disagree: what holds here, one test for each ruling that no other test shows (`docs/ROWS.md`, CT).
use crate::basics::quiet;
use crate::tape::{BLOCK, Fate, Tape, open, put, recovered, values};
use lode::{
    BlockId, Disk, ErrorKind, Extent, ListOptions, OpenOptions, OrderedId, Place, SnapshotOptions, Survive,
    UnitConflicts, UnitLabel, UnitOptions, UnitState, UnitStatus, UnitView,
};
use std::collections::BTreeSet;
use std::sync::Arc;

const SIZE: u64 = BLOCK as u64;

fn tape() -> (Arc<Tape>, Disk) {
    let tape = Tape::formatted(96, 64 << 10, BLOCK);
    let disk = open(&tape);
    (tape, disk)
}

fn list(disk: &Disk) -> OrderedId {
    disk.create_list(&ListOptions { block_bytes: BLOCK, ..ListOptions::default() }, Place::Last).unwrap()
}

fn label(name: &str) -> UnitLabel {
    UnitLabel { label: name.to_owned(), ..UnitLabel::default() }
}

fn sound(tape: &Arc<Tape>) {
    assert_eq!(Disk::check(tape.clone()).unwrap().problems, Vec::<String>::new());
}

/// CT-01: seen at once, durable only behind a flush. Who has to tell of what it read can wait for just that.
#[test]
fn what_is_written_is_seen_at_once_and_durable_only_behind_a_flush() {
    let (tape, disk) = tape();
    put(&disk.volume("v").unwrap(), 0, 1);
    let mut unit = disk.begin().unwrap();
    unit.write_at(&disk.volume("v").unwrap(), SIZE, &[1; BLOCK as usize]).unwrap();
    unit.commit().unwrap();
    disk.flush(Survive::Process).unwrap();
    assert_eq!(values(&disk, 2), [1, 1]);
    assert_eq!(recovered(&tape.cut_hard(), 2), [0, 0], "a cut may take what was only committed");
    let read = disk.position();
    disk.flush_up_to(read, Survive::Power).unwrap();
    assert_eq!(recovered(&tape.cut_hard(), 2), [1, 1]);
    let mut unit = disk.begin().unwrap();
    unit.write_at(&disk.volume("v").unwrap(), 0, &[2; BLOCK as usize]).unwrap();
    unit.commit_and_flush(Survive::Power).unwrap();
    assert_eq!(recovered(&tape.cut_hard(), 2), [2, 1]);
}

/// CT-02: taking a number writes nothing, so that what a unit took is free when the unit ends, and after a crash, and
/// nobody has to look for it.
#[test]
fn numbers_that_a_unit_took_are_free_again_without_a_search() {
    let (tape, disk) = tape();
    let first = list(&disk);
    disk.insert_block(first, Place::Last).unwrap();
    disk.flush(Survive::Power).unwrap();
    let (position, events) = (disk.position(), tape.len());
    let mut unit = disk.begin().unwrap();
    let own = unit.create_list(&ListOptions { block_bytes: BLOCK, ..ListOptions::default() }, Place::Last).unwrap();
    let taken: BTreeSet<BlockId> = (0..500).map(|_| unit.insert_block(own, Place::Last).unwrap()).collect();
    disk.flush(Survive::Power).unwrap();
    assert_eq!(disk.position(), position);
    assert_eq!(tape.batches(events).len(), 0, "nothing was written");
    let crashed = tape.cut_hard();
    unit.abort();
    for disk in [disk, open(&crashed)] {
        let lists: Vec<OrderedId> = (0..3).map(|_| list(&disk)).collect();
        assert!(lists.contains(&own), "{own:?} is free again: {lists:?}");
        let blocks: BTreeSet<BlockId> = (0..2000).map(|_| disk.insert_block(first, Place::Last).unwrap()).collect();
        assert!(taken.is_subset(&blocks), "all numbers are free again");
    }
    sound(&crashed);
}

/// CT-03: everything that a unit wrote takes the place of its commit, whatever was written between.
#[test]
fn the_commit_of_a_unit_counts_over_writes_that_came_between() {
    for flushed in [false, true] {
        let (tape, disk) = tape();
        let volume = disk.volume("v").unwrap();
        let mut unit = disk.begin().unwrap();
        unit.write_at(&volume, 0, &[1; BLOCK as usize]).unwrap();
        unit.discard(&volume, SIZE, SIZE).unwrap();
        put(&volume, 0, 2);
        put(&volume, 1, 2);
        if flushed {
            disk.flush(Survive::Power).unwrap();
        }
        assert_eq!(values(&disk, 2), [2, 2]);
        unit.commit().unwrap();
        assert_eq!(values(&disk, 2), [1, 0]);
        disk.flush(Survive::Power).unwrap();
        assert_eq!(recovered(&tape.cut_hard(), 2), [1, 0]);
    }
}

/// CT-09: an abort is recorded only if the unit has a barrier, since only that could come back. It comes back if a cut
/// takes the record.
#[test]
fn an_abort_is_recorded_only_if_there_was_a_barrier() {
    let tape = Tape::formatted(96, 64 << 10, BLOCK);
    let disk = Disk::open(tape.clone(), &OpenOptions { unit_memory_bytes: 0, ..quiet() }).unwrap();
    let volume = disk.volume("v").unwrap();
    let free = disk.info().unwrap().free;
    let mut unit = disk.begin().unwrap();
    unit.write_at(&volume, 0, &[1; 32 * BLOCK as usize]).unwrap();
    disk.flush(Survive::Power).unwrap();
    let (position, start) = (disk.position(), tape.len());
    unit.abort();
    disk.flush(Survive::Power).unwrap();
    assert_eq!((disk.position(), tape.batches(start).len()), (position, 0), "nothing is recorded");
    assert_eq!(disk.info().unwrap().free, free, "its space is free at once");

    let mut unit = disk.begin_labelled(&label("job"), &UnitOptions::default()).unwrap();
    unit.write_at(&volume, 0, &[1; BLOCK as usize]).unwrap();
    unit.barrier(b"").unwrap();
    let id = unit.id();
    disk.flush(Survive::Power).unwrap();
    let position = disk.position();
    unit.abort();
    assert!(disk.position() > position, "it is recorded");
    disk.flush(Survive::Process).unwrap();
    let back = open(&tape.cut_hard());
    assert_eq!(back.units().unwrap()[0].state, UnitState::Dormant);
    disk.flush(Survive::Power).unwrap();
    let gone = open(&tape.cut_hard());
    assert_eq!(gone.units().unwrap(), []);
    assert_eq!(gone.unit_status(id).unwrap(), UnitStatus::Aborted);
}

/// CT-22: records and bytes of an overwrite, first behind a snapshot and again, whatever the number of snapshots.
#[test]
fn an_overwrite_costs_the_same_with_any_number_of_snapshots() {
    let cost = |snapshots: u32| {
        let (_, disk) = tape();
        let volume = disk.volume("v").unwrap();
        (0..4).for_each(|block| put(&volume, block, 1));
        for n in 0..snapshots {
            disk.take_snapshot(&format!("s{n}"), &SnapshotOptions::default()).unwrap();
            (0..if n + 1 < snapshots { 4 } else { 1 }).for_each(|block| put(&volume, block, 2));
        }
        disk.checkpoint().unwrap();
        disk.flush(Survive::Power).unwrap();
        [1, 1].map(|block| {
            let before = (disk.position().0, disk.counters().log_bytes);
            put(&volume, block, 3);
            disk.flush(Survive::Power).unwrap();
            (disk.position().0 - before.0, disk.counters().log_bytes - before.1)
        })
    };
    let few = cost(1);
    assert!(few[0].0 > few[1].0, "the first one keeps the old place: {few:?}");
    for snapshots in [2, 16, 100] {
        assert_eq!(cost(snapshots), few, "with {snapshots} snapshots");
    }
    assert_eq!(cost(0)[1], few[1]);
}

/// CT-23: a snapshot is a record of its own and needs no barrier. A unit that only reads is one like any other.
#[test]
fn a_snapshot_outlives_a_crash_and_a_unit_that_only_reads_needs_a_barrier() {
    let (tape, disk) = tape();
    let volume = disk.volume("v").unwrap();
    put(&volume, 0, 1);
    disk.take_snapshot("kept", &SnapshotOptions::default()).unwrap();
    let frozen = UnitOptions { view: UnitView::Frozen, ..UnitOptions::default() };
    let _gone = disk.begin_labelled(&label("gone"), &frozen).unwrap();
    let mut reader = disk.begin_labelled(&label("reader"), &frozen).unwrap();
    reader.barrier(b"").unwrap();
    put(&volume, 0, 2);
    disk.flush(Survive::Power).unwrap();
    disk.take_snapshot("lost", &SnapshotOptions::default()).unwrap();
    let cut = tape.cut_hard();
    let disk = open(&cut);
    assert_eq!(disk.snapshots().iter().map(|info| &info.name[..]).collect::<Vec<_>>(), ["kept"]);
    assert_eq!(disk.units().unwrap().iter().map(|unit| &unit.label[..]).collect::<Vec<_>>(), ["reader"]);
    let (volume, seen) = (disk.volume("v").unwrap(), disk.volume("v@kept").unwrap());
    let mut bytes = [[0; 512]; 2];
    seen.read_at(0, &mut bytes[0]).unwrap();
    disk.resume("reader").unwrap().read_at(&volume, 0, &mut bytes[1]).unwrap();
    assert_eq!((bytes, &values(&disk, 1)[..]), ([[1; 512]; 2], &[2][..]));
    sound(&cut);
}

/// CT-24: a list is deleted as it is at the commit, with what others put in meanwhile; who asked to be told of all that
/// it had looked at is told. Who puts something into a list that is gone by its commit is refused.
#[test]
fn a_list_is_deleted_as_it_is_at_the_commit() {
    for (conflicts, told) in
        [(UnitConflicts::Allowed, false), (UnitConflicts::Written, true), (UnitConflicts::Read, true)]
    {
        let (tape, disk) = tape();
        let list = list(&disk);
        let old = disk.insert_block(list, Place::Last).unwrap();
        disk.write_block(old, 0, &[1; 512]).unwrap();
        let mut deleting = disk.begin_with(&UnitOptions { conflicts, ..UnitOptions::default() }).unwrap();
        deleting.delete_list(list).unwrap();
        let [mut inserting, mut late] = [(); 2].map(|()| disk.begin().unwrap());
        let new = inserting.insert_block(list, Place::After(old)).unwrap();
        inserting.write_block(new, 0, &[2; 512]).unwrap();
        late.insert_block(list, Place::First).unwrap();
        inserting.commit().unwrap();
        assert_eq!(disk.blocks(list).unwrap(), [old, new]);
        let deleted = deleting.try_commit().map(drop).map_err(|error| error.kind());
        assert_eq!(deleted, if told { Err(ErrorKind::Conflict) } else { Ok(()) });
        assert_eq!(disk.lists().unwrap().len(), usize::from(told));
        assert_eq!(disk.read_block(new, 0, &mut [0; 512]).is_ok(), told);
        let inserted = late.try_commit().map(drop).map_err(|error| error.kind());
        assert_eq!(inserted, if told { Ok(()) } else { Err(ErrorKind::Conflict) });
        drop((deleting, late));
        while disk.maintain().unwrap() {}
        disk.flush(Survive::Power).unwrap();
        assert_eq!(disk.info().unwrap().stored, if told { 2 * SIZE } else { 0 });
        sound(&tape);
    }
}

/// CT-21: what a unit removes it has changed, with all that is in it: who wrote there meanwhile was first.
#[test]
fn what_others_write_into_what_a_unit_removes_is_a_conflict() {
    let written = UnitOptions { conflicts: UnitConflicts::Written, ..UnitOptions::default() };
    for (at, deletes) in [(0, false), (1, false), (0, true), (1, true), (2, true), (3, true)] {
        let (_tape, disk) = tape();
        let [one, other] = [(); 2].map(|()| list(&disk));
        let blocks = [(); 3].map(|()| disk.insert_block(one, Place::Last).unwrap());
        let elsewhere = disk.insert_block(other, Place::Last).unwrap();
        for block in blocks.into_iter().chain([elsewhere]) {
            disk.write_block(block, 0, &[1; 512]).unwrap();
        }
        let mut unit = disk.begin_with(&written).unwrap();
        if deletes {
            unit.delete_list(one).unwrap();
        } else {
            unit.remove_block(one, blocks[1]).unwrap();
        }
        match at {
            3 => disk.move_blocks(one, (blocks[1], blocks[1]), other, Place::Last).map(drop).unwrap(),
            2 => disk.remove_block(one, blocks[1]).map(drop).unwrap(),
            1 => disk.write_block(blocks[1], 0, &[2; 512]).map(drop).unwrap(),
            _ => disk.write_block(elsewhere, 0, &[2; 512]).map(drop).unwrap(),
        }
        let done = unit.try_commit().map(drop).map_err(|error| error.kind());
        assert_eq!(done, if at == 0 { Ok(()) } else { Err(ErrorKind::Conflict) }, "{at} {deletes}");
    }
}

/// CT-25: the number of a block that a unit removes is given to nobody before its commit, and so stands for one block
/// only after any cut.
#[test]
fn a_block_that_a_unit_removed_is_given_to_nobody_before_its_commit() {
    let (tape, disk) = tape();
    let list = list(&disk);
    let [a, x, b] = [(); 3].map(|()| disk.insert_block(list, Place::Last).unwrap());
    disk.write_block(x, 0, &[7; 512]).unwrap();
    disk.flush(Survive::Power).unwrap();
    let start = tape.len();
    let mut unit = disk.begin().unwrap();
    unit.remove_block(list, x).unwrap();
    let mut other = disk.begin().unwrap();
    for _ in 0..20 {
        assert_ne!(other.insert_block(list, Place::Last).unwrap(), x);
        assert_ne!(disk.insert_block(list, Place::Last).unwrap(), x);
    }
    drop(other);
    unit.commit().unwrap();
    disk.flush(Survive::Process).unwrap();
    let again = (0..1000).find(|_| disk.insert_block(list, Place::Last).unwrap() == x);
    assert!(again.is_some(), "it is free again");
    disk.flush(Survive::Process).unwrap();
    disk.write_block(x, 0, &[8; 512]).unwrap();
    disk.flush(Survive::Process).unwrap();
    let batches: Vec<usize> = tape.batches(start).iter().map(|(n, ..)| *n).collect();
    let mut seen = BTreeSet::new();
    for lost in batches.into_iter().chain([usize::MAX]) {
        let cut = tape.cut(tape.len(), |n, _| if n == lost { Fate::Old } else { Fate::New });
        let disk = open(&cut);
        let blocks = disk.blocks(list).unwrap();
        let mut bytes = [0; 512];
        let content = disk.read_block(x, 0, &mut bytes).map(|()| bytes[0]).ok();
        let place = blocks.iter().position(|block| *block == x).map(|at| (at == 1 && blocks[2] == b, at));
        seen.insert(match (place, content) {
            (Some((true, _)), Some(7)) => "the old block",
            (None, None) => "none",
            (Some((false, _)), Some(0)) => "a new block",
            (Some((false, _)), Some(8)) => "a new block, written",
            found => panic!("{found:?} of {blocks:?} with {lost} lost"),
        });
        assert_eq!(blocks[0], a);
        sound(&cut);
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

/// CT-26: what was never written is zeros, and is told to be not stored.
#[test]
fn what_was_never_written_is_zeros_and_not_stored() {
    let (tape, disk) = tape();
    let volume = disk.volume("v").unwrap();
    let list = list(&disk);
    let block = disk.insert_block(list, Place::Last).unwrap();
    put(&volume, 1, 0);
    disk.flush(Survive::Power).unwrap();
    for disk in [disk, open(&tape.cut_hard())] {
        assert_eq!(values(&disk, 3), [0; 3]);
        let mut read = [1; 512];
        disk.read_block(block, 0, &mut read).unwrap();
        assert_eq!(read, [0; 512]);
        let extent =
            |from: u64, to: u64, allocated| Extent { offset: from * SIZE, bytes: (to - from) * SIZE, allocated };
        let extents = disk.volume("v").unwrap().extents(0, 3 * SIZE).unwrap();
        assert_eq!(extents, [extent(0, 1, false), extent(1, 2, true), extent(2, 3, false)]);
        assert_eq!(disk.info().unwrap().stored, SIZE, "zeros that were written are stored");
    }
}
