//! Units that nobody has in hand: what damage, a close or a failed commit leaves of them.
use crate::barriers::{BLOCK, begin, block, committed, killed, label, made, sound};
use crate::basics::quiet;
use crate::tape::Tape;
use lode::{
    BlockId, Compression, Disk, ErrorKind, ListOptions, OpenOptions, OrderedId, Place, Survive, UnitConflicts,
    UnitOptions, UnitState, UnitView, VolumeOptions,
};
use lode_media::{Position, ZoneId};

const SMALL: ListOptions = ListOptions { block_bytes: 512, compression: Compression::None, cluster: true, near: false };

/// A list of three blocks that hold ones.
fn list(disk: &Disk) -> (OrderedId, [BlockId; 3]) {
    let list = disk.create_list(&SMALL, Place::Last).unwrap();
    let blocks = [0; 3].map(|_| disk.insert_block(list, Place::Last).unwrap());
    for block in blocks {
        disk.write_block(block, 0, &[1; 512]).unwrap();
    }
    (list, blocks)
}

fn insert_twenty(disk: &Disk, list: OrderedId) -> Vec<BlockId> {
    (0..20).map(|_| disk.insert_block(list, Place::Last).unwrap()).collect()
}

/// R4: a number that a unit names is not given out while it is open: also if it has only written the block, or only
/// removes it, and others remove it before and after a crash.
#[test]
fn numbers_that_a_unit_only_wrote_or_removes_are_kept() {
    for removes in [false, true] {
        let (medium, disk, volume) = made(16);
        drop(volume);
        let (list, [a, b, _]) = list(&disk);
        let mut unit = begin(&disk, "job");
        if removes {
            unit.remove_block(list, a).unwrap();
            unit.remove_block(list, b).unwrap();
        } else {
            unit.write_block(a, 0, &[2; 512]).unwrap();
            unit.write_block(b, 0, &[2; 512]).unwrap();
        }
        unit.barrier(b"").unwrap();
        disk.remove_block(list, a).unwrap();
        disk.flush(Survive::Power).unwrap();
        drop(unit);
        let disk = killed(&medium, disk);
        disk.remove_block(list, b).unwrap();
        let others = insert_twenty(&disk, list);
        assert!(!others.contains(&a) && !others.contains(&b), "{a:?} or {b:?} is among {others:?}");
        let unit = disk.resume("job").unwrap();
        assert_eq!(unit.commit().unwrap_err().kind(), ErrorKind::Conflict);
        disk.abort_unit(disk.unit_labelled("job").unwrap()).unwrap();
        sound(medium, disk);
    }
}

/// P6: what is damaged of one unit is told of, and does not keep the disk, or another unit, from being used.
#[test]
fn a_unit_that_cannot_be_read_can_be_aborted() {
    let tape = Tape::formatted(96, 64 << 10, 512);
    let options = OpenOptions { cache_bytes: 0, ..quiet() };
    let disk = Disk::open(tape.clone(), &options).unwrap();
    let (list, [a, b, _]) = list(&disk);
    let cookie = b"a cookie that nothing else has";
    for (name, cookie) in [("lost", &cookie[..]), ("other", b"o")] {
        let mut unit = begin(&disk, name);
        unit.remove_block(list, if name == "lost" { a } else { b }).unwrap();
        unit.barrier(cookie).unwrap();
    }
    disk.remove_block(list, a).unwrap();
    disk.checkpoint().unwrap();
    drop(disk);
    tape.damage(Position { zone: ZoneId(0), offset: 0 }, |bytes| {
        for at in 0..bytes.len() - cookie.len() {
            if bytes[at..].starts_with(cookie) {
                bytes[at] ^= 1;
            }
        }
    });
    let problems = Disk::check(tape.clone()).unwrap().problems;
    assert!(problems.iter().any(|problem| problem.contains("unit lost")), "{problems:?}");
    let disk = Disk::open(tape.clone(), &options).unwrap();
    let units = disk.units().unwrap();
    assert_eq!((units.len(), units[0].damage.is_some(), units[1].damage.is_some()), (2, true, false));
    let refused = disk.resume("lost").map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert!(refused.to_string().contains("lost"), "{refused}");
    let others = insert_twenty(&disk, list);
    assert!(!others.contains(&a) && !others.contains(&b), "numbers that the lost unit may name were given out");
    disk.resume("other").unwrap().commit().unwrap();
    disk.abort_unit(disk.unit_labelled("lost").unwrap()).unwrap();
    assert_eq!(disk.info().unwrap().reserved, 0);
    disk.close().unwrap();
    let disk = Disk::open(tape, &options).unwrap();
    assert!(disk.units().unwrap().is_empty());
}

/// A close takes nothing from a unit that is kept by its label.
#[test]
fn a_close_keeps_units_as_they_are() {
    let (medium, disk, volume) = made(16);
    volume.write_at(0, &[9; 16 * 512]).unwrap();
    let mut unit = begin(&disk, "behind its barrier");
    unit.write_at(&volume, 0, &[1; 512]).unwrap();
    unit.barrier(b"first").unwrap();
    unit.write_at(&volume, BLOCK, &[1; 512]).unwrap();
    unit.discard(&volume, 2 * BLOCK, BLOCK).unwrap();
    drop(unit);
    let mut unit = begin(&disk, "without one");
    unit.write_at(&volume, 3 * BLOCK, &[2; 512]).unwrap();
    drop(unit);
    drop(begin(&disk, "empty"));
    drop(volume);
    disk.close().unwrap();
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let volume = disk.volume("v").unwrap();
    assert_eq!(disk.units().unwrap().len(), 3);
    let unit = disk.resume("behind its barrier").unwrap();
    assert_eq!(unit.cookie(), b"first");
    assert_eq!([0, 1, 2, 3].map(|at| block(&unit, &volume, at)), [1, 1, 0, 9]);
    unit.commit().unwrap();
    disk.resume("without one").unwrap().commit().unwrap();
    assert_eq!([0, 1, 2, 3].map(|at| committed(&volume, at)), [1, 1, 0, 2]);
    disk.resume("empty").unwrap().abort();
    drop(volume);
    sound(medium, disk);
}

/// A commit that fails leaves nothing of what it made: what its user then writes is not lost when it is tried again.
#[test]
fn a_refused_commit_takes_back_what_it_cut() {
    let (medium, disk, volume) = made(16);
    let other = disk.create_volume("w", &VolumeOptions { bytes: 4 * BLOCK, block_bytes: 512, ..Default::default() });
    let other = other.unwrap();
    volume.write_at(0, &[9; 16 * 512]).unwrap();
    let mut unit = begin(&disk, "job");
    unit.resize(&volume, 4 * BLOCK + 100).unwrap();
    unit.write_at(&other, 3 * BLOCK, &[1; 512]).unwrap();
    disk.resize_volume("w", 2 * BLOCK).unwrap();
    assert_eq!(unit.try_commit().unwrap_err().kind(), ErrorKind::Conflict);
    volume.write_at(4 * BLOCK, &[5; 512]).unwrap();
    let mut seen = [7; 100];
    unit.read_at(&volume, 4 * BLOCK, &mut seen).unwrap();
    assert_eq!(seen, [5; 100], "a moving view shows what others wrote before the cut");
    unit.barrier(b"").unwrap();
    unit.write_at(&volume, 4 * BLOCK, &[3; 100]).unwrap();
    disk.resize_volume("w", 4 * BLOCK).unwrap();
    volume.write_at(4 * BLOCK, &[6; 512]).unwrap();
    unit.try_commit().unwrap();
    drop(unit);
    let mut seen = [7; 100];
    volume.read_at(4 * BLOCK, &mut seen).unwrap();
    assert_eq!(seen, [3; 100]);
    drop((volume, other));
    sound(medium, disk);
}

/// The same for a last block that was cut because others made the volume shorter.
#[test]
fn a_refused_commit_takes_back_what_it_trimmed() {
    let (medium, disk, volume) = made(4);
    let options = UnitOptions { view: UnitView::Moving, conflicts: UnitConflicts::Written };
    let mut unit = disk.begin_labelled(&label("job"), &options).unwrap();
    unit.write_at(&volume, 3 * BLOCK, &[1; 512]).unwrap();
    volume.write_at(3 * BLOCK, &[2; 512]).unwrap();
    disk.resize_volume("v", 3 * BLOCK + 10).unwrap();
    assert_eq!(unit.try_commit().unwrap_err().kind(), ErrorKind::Conflict);
    disk.resize_volume("v", 4 * BLOCK).unwrap();
    assert_eq!(block(&unit, &volume, 3), 1);
    unit.abort();
    drop(volume);
    sound(medium, disk);
}

/// MI-14: a barrier with the cookie of the last one keeps what was dropped since, also where there was a hole before.
#[test]
fn a_barrier_that_says_the_same_keeps_what_was_dropped_again() {
    for closed in [false, true] {
        let (medium, disk, volume) = made(16);
        volume.write_at(0, &[9; 16 * 512]).unwrap();
        let mut unit = begin(&disk, "job");
        unit.discard(&volume, 0, 4 * BLOCK).unwrap();
        unit.barrier(b"x").unwrap();
        unit.write_at(&volume, BLOCK, &[1; 512]).unwrap();
        unit.barrier(b"x").unwrap();
        unit.discard(&volume, BLOCK, BLOCK).unwrap();
        if closed {
            drop((unit, volume));
            disk.close().unwrap();
        } else {
            unit.barrier(b"x").unwrap();
            disk.flush(Survive::Power).unwrap();
            drop((unit, volume, disk));
        }
        let disk = Disk::open(medium.clone(), &quiet()).unwrap();
        let volume = disk.volume("v").unwrap();
        let unit = disk.resume("job").unwrap();
        assert_eq!([0, 1, 4].map(|at| block(&unit, &volume, at)), [0, 0, 9], "closed: {closed}");
        unit.commit().unwrap();
        assert_eq!([0, 1, 4].map(|at| committed(&volume, at)), [0, 0, 9]);
        drop(volume);
        sound(medium, disk);
    }
}

/// Without a label a unit with a barrier is kept if its user says so.
#[test]
fn a_unit_is_kept_if_its_user_says_so() {
    let (medium, disk, volume) = made(16);
    let mut unit = disk.begin().unwrap();
    unit.write_at(&volume, 0, &[1; 512]).unwrap();
    unit.barrier(b"x").unwrap();
    let id = unit.id();
    unit.write_at(&volume, BLOCK, &[2; 512]).unwrap();
    unit.keep();
    assert_eq!(disk.units().unwrap()[0].state, UnitState::Kept);
    let unit = disk.resume_unit(id).unwrap();
    assert_eq!([0, 1].map(|at| block(&unit, &volume, at)), [1, 2]);
    drop(unit);
    assert!(disk.units().unwrap().is_empty());
    drop(volume);
    sound(medium, disk);
}

/// A unit that has a label and no whole barrier has nothing to go back to.
#[test]
fn a_unit_whose_first_barrier_was_refused_ends_when_it_fails() {
    let tape = Tape::formatted(96, 64 << 10, 512);
    let options = OpenOptions { cache_bytes: 0, ..quiet() };
    let disk = Disk::open(tape.clone(), &options).unwrap();
    let size = VolumeOptions { bytes: 1 << 24, block_bytes: 512, ..Default::default() };
    let volume = disk.create_volume("w", &size).unwrap();
    let bad = [0xD7; 512];
    volume.write_at(700 * BLOCK, &bad).unwrap();
    let mut unit = begin(&disk, "job");
    unit.write_at(&volume, 0, &[1; 512]).unwrap();
    let mut at = 1000 * BLOCK;
    let full = |result: lode::Result<_>| result.map_err(|error| assert_eq!(error.kind(), ErrorKind::Full)).is_err();
    while !full(volume.write_at(at, &[7; 512])) {
        at += BLOCK;
        while disk.maintain().unwrap() {}
    }
    // Room for the lists that a barrier needs comes before room for what is in them.
    let mut freed = 0;
    while full(unit.barrier(&[5; 64])) {
        let end = at - freed * BLOCK;
        volume.discard(end - BLOCK, BLOCK).unwrap();
        freed += 1;
        if freed == 20 {
            break;
        }
    }
    disk.abort_unit(unit.id()).unwrap_err();
    disk.flush(Survive::Power).unwrap();
    tape.damage(Position { zone: ZoneId(0), offset: 0 }, |bytes| {
        let at = bytes.windows(512).position(|window| window == bad).unwrap();
        bytes[at] ^= 1;
    });
    volume.discard(900 * BLOCK, (at - 900 * BLOCK) / BLOCK * BLOCK).unwrap();
    while disk.maintain().unwrap() {}
    let had = disk.units().unwrap()[0].has_barrier;
    assert_eq!(unit.write_zeros(&volume, 0, 700 * BLOCK + 1).unwrap_err().kind(), ErrorKind::Corrupt);
    drop(unit);
    let left: Vec<UnitState> = disk.units().unwrap().iter().map(|unit| unit.state).collect();
    assert_eq!(left, if had { vec![UnitState::Dormant] } else { vec![] });
}
