//! Units that outlive a crash at their barriers, and their handles by their labels.
use crate::basics::{medium, quiet};
use crate::tape::Tape;
use lode::{
    Compression, Disk, ErrorKind, ListOptions, Place, SnapshotOptions, Survive, Unit, UnitConflicts, UnitLabel,
    UnitOptions, UnitState, UnitStatus, UnitView, Volume, VolumeOptions,
};
use lode_media::Medium;
use std::sync::Arc;

pub const BLOCK: u64 = 512;

pub fn made(blocks: u64) -> (Arc<dyn Medium>, Disk, Volume) {
    let medium = medium(160, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let options = VolumeOptions { bytes: blocks * BLOCK, block_bytes: 512, ..Default::default() };
    let volume = disk.create_volume("v", &options).unwrap();
    (medium, disk, volume)
}

pub fn label(label: &str) -> UnitLabel {
    UnitLabel { label: label.to_owned(), made: 5, ..UnitLabel::default() }
}

pub fn begin(disk: &Disk, name: &str) -> Unit {
    disk.begin_labelled(&label(name), &UnitOptions::default()).unwrap()
}

/// The disk after a kill of its process: what was written is there.
pub fn killed(medium: &Arc<dyn Medium>, disk: Disk) -> Disk {
    drop(disk);
    Disk::open(medium.clone(), &quiet()).unwrap()
}

pub fn block(unit: &Unit, volume: &Volume, block: u64) -> u8 {
    let mut bytes = [0; 512];
    unit.read_at(volume, block * BLOCK, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

pub fn committed(volume: &Volume, block: u64) -> u8 {
    let mut bytes = [0; 512];
    volume.read_at(block * BLOCK, &mut bytes).unwrap();
    bytes[0]
}

pub fn sound(medium: Arc<dyn Medium>, disk: Disk) {
    while disk.maintain().unwrap() {}
    assert_eq!(disk.info().unwrap().reserved, 0);
    disk.close().unwrap();
    assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
}

/// MI-14: `w1 B1 w2 crash resume w3 B2 crash` gives w1 and w3 and never w2.
#[test]
fn what_lies_behind_the_last_barrier_never_comes_back() {
    let (medium, disk, volume) = made(16);
    volume.write_at(0, &[9; 16 * 512]).unwrap();
    let mut unit = begin(&disk, "job");
    let id = unit.id();
    unit.write_at(&volume, 0, &[1; 512]).unwrap();
    unit.barrier(b"one").unwrap();
    unit.write_at(&volume, BLOCK, &[2; 512]).unwrap();
    unit.write_at(&volume, 0, &[2; 512]).unwrap();
    disk.flush(Survive::Power).unwrap();
    drop(unit);
    let disk = killed(&medium, disk);
    let volume = disk.volume("v").unwrap();
    let info = disk.units().unwrap().remove(0);
    assert_eq!((info.id, &info.label[..], &info.cookie[..], info.made), (id, "job", &b"one"[..], 5));
    assert_eq!((info.bytes, info.state), (BLOCK, UnitState::Dormant));
    assert_eq!(disk.unit_status(id).unwrap(), UnitStatus::Open);
    assert_eq!(committed(&volume, 0), 9, "nobody else sees it");
    let mut unit = disk.resume("job").unwrap();
    assert_eq!(disk.resume("job").map(drop).unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(unit.cookie(), b"one");
    assert_eq!([0, 1, 2].map(|at| block(&unit, &volume, at)), [1, 9, 9]);
    unit.write_at(&volume, 2 * BLOCK, &[3; 512]).unwrap();
    unit.barrier(b"two").unwrap();
    unit.write_at(&volume, 3 * BLOCK, &[4; 512]).unwrap();
    disk.flush(Survive::Power).unwrap();
    drop(unit);
    let disk = killed(&medium, disk);
    let volume = disk.volume("v").unwrap();
    let unit = disk.resume_unit(id).unwrap();
    assert_eq!(unit.cookie(), b"two");
    assert_eq!([0, 1, 2, 3].map(|at| block(&unit, &volume, at)), [1, 9, 3, 9]);
    unit.commit().unwrap();
    assert_eq!([0, 1, 2, 3].map(|at| committed(&volume, at)), [1, 9, 3, 9]);
    assert!(matches!(disk.unit_status(id).unwrap(), UnitStatus::Committed(_)));
    assert_eq!(disk.units().unwrap(), []);
    sound(medium, disk);
}

/// What a unit writes again after a barrier is promised once, also what snapshots see of it.
#[test]
fn a_block_that_is_written_again_after_a_barrier_is_promised_once() {
    for ends in 0..3 {
        let (medium, disk, volume) = made(16);
        volume.write_at(0, &[9; 16 * 512]).unwrap();
        disk.take_snapshot("s", &SnapshotOptions::default()).unwrap();
        let mut unit = begin(&disk, "job");
        let mut held = Vec::new();
        for turn in 0..5 {
            unit.write_at(&volume, BLOCK, &[turn; 3 * 512]).unwrap();
            unit.barrier(&[turn]).unwrap();
            held.push(disk.info().unwrap().reserved);
        }
        assert!(held[0] > 0 && held.iter().all(|now| *now == held[0]), "{held:?}");
        match ends {
            0 => drop(unit.commit().unwrap()),
            1 => unit.abort(),
            _ => {
                unit.keep();
                disk.abort_unit(disk.unit_labelled("job").unwrap()).unwrap();
            }
        }
        assert_eq!(committed(&volume, 1), if ends == 0 { 4 } else { 9 });
        drop(volume);
        sound(medium, disk);
    }
}

/// XX-03: with a label a unit is kept when its handle goes, without one it is aborted, also if it has a barrier.
#[test]
fn a_label_keeps_a_unit_whose_handle_is_dropped() {
    let (medium, disk, volume) = made(16);
    let mut unit = begin(&disk, "kept");
    unit.write_at(&volume, 0, &[1; 512]).unwrap();
    drop(unit);
    assert_eq!(disk.units().unwrap()[0].state, UnitState::Kept);
    let taken = disk.begin_labelled(&label("kept"), &UnitOptions::default()).map(drop).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::Exists);
    let unit = disk.resume("kept").unwrap();
    assert_eq!(disk.abort_unit(unit.id()).unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(block(&unit, &volume, 0), 1);
    drop(unit);
    disk.abort_unit(disk.unit_labelled("kept").unwrap()).unwrap();
    let mut nameless = disk.begin().unwrap();
    nameless.write_at(&volume, 0, &[1; 512]).unwrap();
    nameless.barrier(b"").unwrap();
    let id = nameless.id();
    assert_eq!(disk.units().unwrap()[0].id, id);
    drop(nameless);
    assert_eq!(disk.units().unwrap(), []);
    assert_eq!(disk.unit_status(id).unwrap(), UnitStatus::Aborted);
    // After a crash it is known by its number.
    let mut nameless = disk.begin().unwrap();
    nameless.write_at(&volume, 0, &[7; 512]).unwrap();
    nameless.barrier(b"").unwrap();
    let id = nameless.id();
    disk.flush(Survive::Power).unwrap();
    drop(volume);
    // A kill leaves the handle no time for an abort.
    std::mem::forget(nameless);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let unit = disk.resume_unit(id).unwrap();
    unit.commit().unwrap();
    assert_eq!(committed(&disk.volume("v").unwrap(), 0), 7);
    sound(medium, disk);
}

/// A unit without a barrier is gone with a crash, label or not.
#[test]
fn without_a_barrier_a_crash_aborts() {
    let (medium, disk, volume) = made(16);
    let mut unit = begin(&disk, "job");
    let id = unit.id();
    unit.write_at(&volume, 0, &[1; 512]).unwrap();
    drop((unit, volume));
    disk.flush(Survive::Power).unwrap();
    let disk = killed(&medium, disk);
    assert_eq!(disk.units().unwrap(), []);
    assert_eq!(disk.unit_status(id).unwrap(), UnitStatus::Forgotten);
    assert_eq!(disk.resume("job").map(drop).unwrap_err().kind(), ErrorKind::NotFound);
    sound(medium, disk);
}

/// Holes, sizes and cuts before and behind barriers, seen by the unit at every step as without barriers, and committed so.
#[test]
fn barriers_change_nothing_that_a_unit_sees_or_commits() {
    for barriers in [0u32, 0b1, 0b10101, 0b11111, 0b111111] {
        for crashes in [0u32, 0b111111] {
            let (medium, mut disk, mut volume) = made(16);
            volume.write_at(0, &[9; 16 * 512]).unwrap();
            let mut unit = begin(&disk, "job");
            let mut seen = Vec::new();
            for step in 0..6u8 {
                match step {
                    0 => unit.write_at(&volume, 0, &[1; 3 * 512]).unwrap(),
                    1 => unit.discard(&volume, BLOCK, 4 * BLOCK).unwrap(),
                    2 => unit.write_at(&volume, 2 * BLOCK + 7, &[2; 100]).unwrap(),
                    3 => unit.resize(&volume, 9 * BLOCK + 100).unwrap(),
                    4 => unit.resize(&volume, 12 * BLOCK).unwrap(),
                    _ => unit.write_at(&volume, 10 * BLOCK, &[3; 512]).unwrap(),
                }
                if barriers & 1 << step > 0 {
                    unit.barrier(&[step]).unwrap();
                    if crashes & 1 << step > 0 {
                        disk.flush(Survive::Power).unwrap();
                        drop((unit, volume));
                        disk = killed(&medium, disk);
                        volume = disk.volume("v").unwrap();
                        unit = disk.resume("job").unwrap();
                    }
                }
                let mut bytes = vec![0; usize::try_from(unit.bytes(&volume).unwrap()).unwrap()];
                unit.read_at(&volume, 0, &mut bytes).unwrap();
                seen.push(bytes);
            }
            let mut right = vec![9u8; 16 * 512];
            right[..3 * 512].fill(1);
            assert_eq!(seen[0], right);
            right[512..5 * 512].fill(0);
            assert_eq!(seen[1], right);
            right[2 * 512 + 7..2 * 512 + 107].fill(2);
            assert_eq!(seen[2], right);
            right.truncate(9 * 512 + 100);
            assert_eq!(seen[3], right);
            right.resize(12 * 512, 0);
            assert_eq!(seen[4], right);
            right[10 * 512..11 * 512].fill(3);
            assert_eq!(seen[5], right);
            unit.commit().unwrap();
            let mut bytes = vec![0; 12 * 512];
            volume.read_at(0, &mut bytes).unwrap();
            assert!(volume.bytes() == 12 * BLOCK && bytes == right, "{barriers:b} {crashes:b}");
            drop(volume);
            sound(medium, disk);
        }
    }
}

/// What a barrier keeps is moved by the cleaner like anything else, and a large one is committed in a chain.
#[test]
fn large_units_with_barriers_live_under_the_cleaner() {
    let (medium, disk, volume) = made(4096);
    volume.write_at(0, &vec![9; 4096 * 512]).unwrap();
    let mut unit = begin(&disk, "large");
    for round in 0..4u8 {
        for at in 0..1500u64 {
            unit.write_at(&volume, (at * 2 + u64::from(round % 2)) % 3000 * BLOCK, &[round + 1; 512]).unwrap();
        }
        unit.barrier(&[round]).unwrap();
        for at in 0..600u64 {
            volume.write_at((3000 + at) * BLOCK, &[round + 10; 512]).unwrap();
        }
        disk.clean().unwrap();
        while disk.maintain().unwrap() {}
    }
    assert_eq!((block(&unit, &volume, 0), block(&unit, &volume, 1)), (3, 4));
    disk.flush(Survive::Power).unwrap();
    drop((unit, volume));
    let disk = killed(&medium, disk);
    let volume = disk.volume("v").unwrap();
    for _ in 0..20 {
        disk.clean().unwrap();
        disk.flush(Survive::Power).unwrap();
        while disk.maintain().unwrap() {}
    }
    let unit = disk.resume("large").unwrap();
    for at in 0..3000 {
        assert_eq!(block(&unit, &volume, at), 3 + u8::try_from(at % 2).unwrap());
    }
    unit.commit().unwrap();
    for at in 0..3000 {
        assert_eq!(committed(&volume, at), 3 + u8::try_from(at % 2).unwrap());
    }
    for _ in 0..20 {
        disk.clean().unwrap();
        disk.flush(Survive::Power).unwrap();
        while disk.maintain().unwrap() {}
    }
    assert_eq!(disk.info().unwrap().zones_aside, 0);
    drop(volume);
    sound(medium, disk);
}

/// R4, R15: operations on lists survive with their numbers, which nobody else gets, and are executed at the commit.
#[test]
fn list_operations_outlive_a_crash_with_their_numbers() {
    let (medium, disk, volume) = made(16);
    drop(volume);
    let options = ListOptions { block_bytes: 512, ..ListOptions::default() };
    let list = disk.create_list(&options, Place::Last).unwrap();
    let first = disk.insert_block(list, Place::Last).unwrap();
    let gone = disk.insert_block(list, Place::Last).unwrap();
    disk.write_block(first, 0, &[1; 512]).unwrap();
    disk.write_block(gone, 0, &[1; 512]).unwrap();
    let mut unit = begin(&disk, "job");
    let second = unit.insert_block(list, Place::After(first)).unwrap();
    unit.write_block(second, 0, &[2; 512]).unwrap();
    unit.write_block(gone, 0, &[2; 512]).unwrap();
    unit.barrier(b"1").unwrap();
    unit.remove_block(list, gone).unwrap();
    let own = unit.create_list(&options, Place::First).unwrap();
    let third = unit.insert_block(own, Place::First).unwrap();
    unit.barrier(b"2").unwrap();
    disk.flush(Survive::Power).unwrap();
    drop(unit);
    let disk = killed(&medium, disk);
    let mut others = Vec::new();
    for _ in 0..20 {
        others.push(disk.insert_block(list, Place::Last).unwrap());
    }
    assert!(!others.contains(&second) && !others.contains(&third) && !others.contains(&gone));
    assert_ne!(disk.create_list(&options, Place::Last).unwrap(), own);
    let mut unit = disk.resume("job").unwrap();
    assert_eq!(unit.blocks(own).unwrap(), [third]);
    assert_eq!(unit.blocks(list).unwrap()[..3], [first, second, others[0]]);
    unit.commit().unwrap();
    assert_eq!(disk.blocks(list).unwrap()[..3], [first, second, others[0]]);
    let mut bytes = [0; 512];
    disk.read_block(second, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [2; 512]);
    assert_eq!(disk.blocks(own).unwrap(), [third]);
    sound(medium, disk);
}

/// R15, R18: a view that a dormant unit has stays, and what others changed since is a conflict all the same.
#[test]
fn frozen_views_and_conflicts_outlive_a_crash() {
    let (medium, disk, volume) = made(16);
    volume.write_at(0, &[1; 16 * 512]).unwrap();
    let options = UnitOptions { view: UnitView::Frozen, conflicts: UnitConflicts::Read };
    for name in ["writer", "reader"] {
        let mut unit = disk.begin_labelled(&label(name), &options).unwrap();
        let at = if name == "writer" { 0 } else { 1 };
        block(&unit, &volume, at);
        unit.write_at(&volume, 8 * BLOCK + at * BLOCK, &[2; 512]).unwrap();
        unit.barrier(b"").unwrap();
    }
    volume.write_at(BLOCK, &[5; 512]).unwrap();
    disk.flush(Survive::Power).unwrap();
    drop(volume);
    let disk = killed(&medium, disk);
    while disk.maintain().unwrap() {}
    let volume = disk.volume("v").unwrap();
    volume.write_at(2 * BLOCK, &[5; 512]).unwrap();
    let writer = disk.resume("writer").unwrap();
    assert_eq!([0, 1, 2, 8].map(|at| block(&writer, &volume, at)), [1, 1, 1, 2]);
    let mut reader = disk.resume("reader").unwrap();
    assert_eq!(reader.try_commit().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(block(&reader, &volume, 9), 2, "it is as it was");
    reader.abort();
    let bytes = writer.bytes(&volume).unwrap();
    assert_eq!(bytes, 16 * BLOCK);
    assert_eq!(writer.commit().unwrap_err().kind(), ErrorKind::Conflict, "it has read block 2 just now");
    assert_eq!(disk.units().unwrap().len(), 1, "a commit that fails aborts nothing that has a label");
    disk.abort_unit(disk.unit_labelled("writer").unwrap()).unwrap();
    drop(volume);
    while disk.maintain().unwrap() {}
    assert!(disk.snapshots().is_empty());
    sound(medium, disk);
}

/// Architecture, section 8: a writable clone is a unit on a snapshot, which stays for it when its name is deleted.
#[test]
fn a_clone_is_a_unit_on_a_snapshot() {
    let (medium, disk, volume) = made(16);
    volume.write_at(0, &[1; 16 * 512]).unwrap();
    disk.take_snapshot("monday", &SnapshotOptions::default()).unwrap();
    volume.write_at(0, &[2; 8 * 512]).unwrap();
    let of = |name: &str| UnitLabel { snapshot: Some("monday".to_owned()), ..label(name) };
    let mut clone = disk.begin_labelled(&of("clone"), &UnitOptions::default()).unwrap();
    let idle = disk.begin_labelled(&of("idle"), &UnitOptions::default()).unwrap();
    assert_eq!([0, 15].map(|at| block(&clone, &volume, at)), [1, 1]);
    clone.write_at(&volume, 15 * BLOCK, &[3; 512]).unwrap();
    clone.discard(&volume, 3 * BLOCK, BLOCK).unwrap();
    let stored = |unit: &Unit| {
        let extents = unit.extents(&volume, 0, 16 * BLOCK).unwrap();
        extents.into_iter().map(|extent| (extent.bytes / BLOCK, extent.allocated)).collect::<Vec<_>>()
    };
    assert_eq!(stored(&clone), [(3, true), (1, false), (12, true)]);
    clone.barrier(b"").unwrap();
    assert_eq!(stored(&clone), [(3, true), (1, false), (12, true)]);
    disk.delete_snapshot("monday").unwrap();
    assert!(disk.snapshots().is_empty());
    while disk.maintain().unwrap() {}
    assert_eq!([0, 15].map(|at| block(&clone, &volume, at)), [1, 3]);
    idle.abort();
    disk.flush(Survive::Power).unwrap();
    drop((clone, volume));
    let disk = killed(&medium, disk);
    while disk.maintain().unwrap() {}
    let volume = disk.volume("v").unwrap();
    volume.write_at(BLOCK, &[4; 512]).unwrap();
    let clone = disk.resume("clone").unwrap();
    assert_eq!([0, 1, 15].map(|at| block(&clone, &volume, at)), [1, 1, 3]);
    clone.commit().unwrap();
    assert_eq!([0, 1, 15].map(|at| committed(&volume, at)), [2, 4, 3], "merged back");
    drop(volume);
    while disk.maintain().unwrap() {}
    sound(medium, disk);
}

/// P5: a barrier may find the disk full, and the unit goes on; its commit does not.
#[test]
fn a_full_disk_refuses_a_barrier_and_no_commit() {
    let (medium, disk, volume) = made(1 << 14);
    let mut unit = begin(&disk, "job");
    unit.write_at(&volume, 0, &[1; 64 * 512]).unwrap();
    unit.barrier(b"first").unwrap();
    unit.write_at(&volume, 64 * BLOCK, &[1; 64 * 512]).unwrap();
    let mut at = 200 * BLOCK;
    while volume.write_at(at, &[7; 512]).map_err(|error| assert_eq!(error.kind(), ErrorKind::Full)).is_ok() {
        at += BLOCK;
    }
    assert_eq!(unit.barrier(&[5; 64]).unwrap_err().kind(), ErrorKind::Full);
    assert_eq!((block(&unit, &volume, 0), block(&unit, &volume, 100)), (1, 1));
    unit.commit().unwrap();
    assert_eq!((committed(&volume, 0), committed(&volume, 100)), (1, 1));
    disk.delete_volume("v").unwrap();
    drop(volume);
    sound(medium, disk);
}

/// MI-08: what the log still tells of units that have ended is known after a crash; what it does not is forgotten.
#[test]
fn the_status_of_a_unit_outlives_a_crash_up_to_a_horizon() {
    let (medium, disk, volume) = made(16);
    let unit = |name: &str, barrier: bool| {
        let mut unit = begin(&disk, name);
        unit.write_at(&volume, 0, &[1; 512]).unwrap();
        if barrier {
            unit.barrier(b"").unwrap();
        }
        (unit.id(), unit)
    };
    let ((kept, one), (aborted, other), (open, _), (small, plain)) =
        (unit("a", true), unit("b", true), unit("c", true), unit("d", false));
    one.commit().unwrap();
    other.abort();
    plain.commit().unwrap();
    let seen = |disk: &Disk| [kept, aborted, open, small].map(|unit| disk.unit_status(unit).unwrap());
    assert!(matches!(
        seen(&disk)[..],
        [UnitStatus::Committed(_), UnitStatus::Aborted, UnitStatus::Open, UnitStatus::Committed(_)]
    ));
    disk.flush(Survive::Power).unwrap();
    drop(volume);
    let disk = killed(&medium, disk);
    assert!(matches!(
        seen(&disk)[..],
        [UnitStatus::Committed(_), UnitStatus::Aborted, UnitStatus::Open, UnitStatus::Forgotten]
    ));
    disk.checkpoint().unwrap();
    let disk = killed(&medium, disk);
    assert_eq!(seen(&disk), [UnitStatus::Forgotten, UnitStatus::Forgotten, UnitStatus::Open, UnitStatus::Forgotten]);
    assert_eq!(disk.unit_status(lode::UnitId(u64::MAX)).unwrap_err().kind(), ErrorKind::NotFound);
    disk.abort_unit(open).unwrap();
    sound(medium, disk);
}

/// What fails half-way takes a unit with a label back to its last barrier, and no further.
#[test]
fn a_unit_that_fails_half_way_is_what_it_was_at_its_last_barrier() {
    let tape = Tape::formatted(96, 64 << 10, 512);
    let options = lode::OpenOptions { cache_bytes: 0, ..quiet() };
    let disk = Disk::open(tape.clone(), &options).unwrap();
    let size = VolumeOptions { bytes: 1000 * BLOCK, block_bytes: 512, ..Default::default() };
    let volume = disk.create_volume("w", &size).unwrap();
    let bad = [0xD7; 512];
    volume.write_at(0, &[9; 16 * 512]).unwrap();
    volume.write_at(700 * BLOCK, &bad).unwrap();
    disk.flush(Survive::Power).unwrap();
    let mut unit = disk.begin_labelled(&label("job"), &UnitOptions::default()).unwrap();
    unit.write_at(&volume, 0, &[1; 512]).unwrap();
    unit.barrier(b"good").unwrap();
    unit.write_at(&volume, 0, &[2; 512]).unwrap();
    let start = lode_media::Position { zone: lode_media::ZoneId(0), offset: 0 };
    tape.damage(start, |bytes| {
        let at = bytes.windows(512).position(|window| window == bad).unwrap();
        bytes[at] ^= 1;
    });
    // What is found before anything is changed leaves the unit as it is.
    let both = unit.write_at(&volume, 699 * BLOCK, &[3; 513]).unwrap_err();
    assert_eq!((both.kind(), unit.is_broken(), block(&unit, &volume, 699)), (ErrorKind::Corrupt, false, 0));
    assert_eq!(unit.write_zeros(&volume, 0, 700 * BLOCK + 1).unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(unit.is_broken());
    assert_eq!(unit.write_at(&volume, 0, &[3; 512]).unwrap_err().kind(), ErrorKind::Failed);
    assert_eq!(unit.try_commit().unwrap_err().kind(), ErrorKind::Failed);
    drop(unit);
    assert_eq!(disk.units().unwrap()[0].state, UnitState::Dormant);
    let unit = disk.resume("job").unwrap();
    assert_eq!((block(&unit, &volume, 0), unit.cookie()), (1, &b"good"[..]));
    unit.commit().unwrap();
    assert_eq!(committed(&volume, 0), 1);
    drop(volume);
    assert_eq!(disk.info().unwrap().reserved, 0);
    disk.close().unwrap();
}

/// Units are kept as long as was said, if nobody has them in hand.
#[test]
fn leases_end() {
    let (medium, disk, volume) = made(16);
    for (name, until) in [("a", 100), ("b", 0), ("c", 200), ("d", 100)] {
        let label = UnitLabel { until, ..label(name) };
        let mut unit = disk.begin_labelled(&label, &UnitOptions::default()).unwrap();
        unit.write_at(&volume, 0, &[1; 512]).unwrap();
        unit.barrier(b"").unwrap();
    }
    disk.flush(Survive::Power).unwrap();
    drop(volume);
    let disk = killed(&medium, disk);
    let held = disk.resume("d").unwrap();
    assert_eq!(disk.end_leases(100).unwrap(), []);
    assert_eq!(disk.end_leases(150).unwrap().len(), 1);
    let mut left: Vec<String> = disk.units().unwrap().into_iter().map(|unit| unit.label).collect();
    left.sort();
    assert_eq!(left, ["b", "c", "d"]);
    drop(held);
    for unit in disk.units().unwrap() {
        disk.abort_unit(unit.id).unwrap();
    }
    sound(medium, disk);
}

/// Where batches are tiny nearly every commit is a chain of them.
#[test]
fn tiny_disks_take_barriers_too() {
    for lists in [false, true] {
        let medium = medium(44, 4096, 64);
        let options = lode::OpenOptions { unit_memory_bytes: 512, ..quiet() };
        let disk = Disk::open(medium.clone(), &options).unwrap();
        let options = VolumeOptions { bytes: 30 * 256, block_bytes: 256, ..Default::default() };
        let volume = disk.create_volume("v", &options).unwrap();
        let list = disk
            .create_list(
                &ListOptions { block_bytes: 64, compression: Compression::Lz4, ..Default::default() },
                Place::Last,
            )
            .unwrap();
        let blocks: Vec<_> = (0..8).map(|_| disk.insert_block(list, Place::Last).unwrap()).collect();
        for round in 1..20u8 {
            let mut unit = begin(&disk, "job");
            if lists {
                unit.write_block(blocks[usize::from(round % 8)], 0, &[round; 64]).unwrap();
            } else {
                unit.write_at(&volume, u64::from(round) * 256, &[round; 3 * 256]).unwrap();
            }
            unit.barrier(&[round]).unwrap();
            unit.commit().unwrap();
            if lists {
                let mut bytes = [0; 64];
                disk.read_block(blocks[usize::from(round % 8)], 0, &mut bytes).unwrap();
                assert_eq!(bytes, [round; 64]);
            } else {
                let mut bytes = [0; 3 * 256];
                volume.read_at(u64::from(round) * 256, &mut bytes).unwrap();
                assert_eq!(bytes, [round; 3 * 256]);
            }
            while disk.maintain().unwrap() {}
        }
        drop(volume);
        sound(medium, disk);
    }
}
