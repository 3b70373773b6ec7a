//! Units: what they hide, how they meet, what they cost the disk.
use crate::basics::{medium, quiet};
use crate::watch::{Call, Watched};
use lode::{Compression, Disk, ErrorKind, OpenOptions, Survive, UnitStatus, VolumeOptions};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

fn options(bytes: u64, block_bytes: u32) -> VolumeOptions {
    VolumeOptions { bytes, block_bytes, compression: Compression::None }
}

#[test]
fn overlapping_discards_of_a_unit_free_each_block_once() {
    let medium = medium(64, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let volume = disk.create_volume("v", &options(64 << 10, 512)).unwrap();
    volume.write_at(0, &[7; 64 << 10]).unwrap();
    let mut unit = disk.begin().unwrap();
    unit.discard(&volume, 0, 32 << 10).unwrap();
    unit.discard(&volume, 16 << 10, 32 << 10).unwrap();
    unit.resize(&volume, 8 << 10).unwrap();
    unit.resize(&volume, 64 << 10).unwrap();
    unit.write_at(&volume, 512, &[9; 512]).unwrap();
    unit.commit_and_flush(Survive::Power).unwrap();
    let mut read = vec![1; 64 << 10];
    volume.read_at(0, &mut read).unwrap();
    assert!(read[512..1024].iter().all(|byte| *byte == 9));
    assert!(read[..512].iter().chain(&read[1024..]).all(|byte| *byte == 0));
    drop((volume, disk));
    assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_unit_that_cuts_a_volume_cuts_also_what_others_added_meanwhile() {
    for cut in [4096, 4500] {
        let medium = medium(64, 64 << 10, 512);
        let disk = Disk::open(medium.clone(), &quiet()).unwrap();
        let volume = disk.create_volume("v", &options(1024, 1024)).unwrap();
        let mut unit = disk.begin().unwrap();
        unit.resize(&volume, cut).unwrap();
        disk.resize_volume("v", 100 << 10).unwrap();
        volume.write_at(0, &[5; 100 << 10]).unwrap();
        unit.commit().unwrap();
        assert_eq!(volume.bytes(), cut);
        disk.resize_volume("v", 100 << 10).unwrap();
        let mut read = vec![1; 100 << 10];
        volume.read_at(0, &mut read).unwrap();
        let cut = usize::try_from(cut).unwrap();
        assert!(read[..cut].iter().all(|byte| *byte == 5), "cut at {cut}");
        assert!(read[cut..].iter().all(|byte| *byte == 0), "cut at {cut}");
        disk.flush(Survive::Power).unwrap();
        drop((volume, disk));
        assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn a_unit_on_a_deleted_volume_conflicts_and_leaves_nothing() {
    let disk = Disk::open(medium(64, 64 << 10, 512), &quiet()).unwrap();
    let volume = disk.create_volume("v", &options(8192, 512)).unwrap();
    let other = disk.create_volume("w", &options(8192, 512)).unwrap();
    let mut unit = disk.begin().unwrap();
    unit.write_at(&volume, 0, &[1; 512]).unwrap();
    unit.write_at(&other, 0, &[2; 512]).unwrap();
    disk.delete_volume("v").unwrap();
    assert_eq!(unit.commit().unwrap_err().kind(), ErrorKind::Conflict);
    let mut read = [9; 512];
    other.read_at(0, &mut read).unwrap();
    assert_eq!(read, [0; 512]);
    assert_eq!(disk.info().unwrap().reserved, 0);
}

#[test]
fn units_are_never_given_a_name_twice_also_over_crashes() {
    let medium = medium(64, 64 << 10, 512);
    let mut names = BTreeSet::new();
    for _ in 0..5 {
        let disk = Disk::open(medium.clone(), &quiet()).unwrap();
        for _ in 0..20 {
            assert!(names.insert(disk.begin().unwrap().id()));
        }
        // Dropped without closing: a crash.
    }
}

#[test]
fn a_reader_sees_all_of_a_unit_or_nothing_of_it() {
    let disk = Disk::open(medium(64, 1 << 20, 4096), &OpenOptions::default()).unwrap();
    let volume = disk.create_volume("v", &options(1 << 20, 4096)).unwrap();
    volume.write_at(0, &[0; 1 << 20]).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut reads = 0u32;
                    let mut read = vec![0; 1 << 20];
                    while !done.load(Ordering::Relaxed) || reads == 0 {
                        volume.read_at(0, &mut read).unwrap();
                        let first = read[0];
                        assert!(read.iter().step_by(4096).all(|byte| *byte == first), "a unit seen in part");
                        reads += 1;
                    }
                    reads
                })
            })
            .collect();
        for round in 1..=60u8 {
            let mut unit = disk.begin().unwrap();
            for block in (0..256).rev() {
                unit.write_at(&volume, block * 4096, &[round; 4096]).unwrap();
            }
            unit.commit().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
}

#[test]
fn many_small_units_on_a_small_disk_wait_for_the_cleaner_and_go_on() {
    let disk = Disk::open(medium(64, 256 << 10, 4096), &OpenOptions::default()).unwrap();
    let volume = disk.create_volume("v", &options(4 << 20, 4096)).unwrap();
    for step in 0..20_000u64 {
        let mut unit = disk.begin().unwrap();
        unit.write_at(&volume, (step * 7919 % 1024) * 4096, &[3; 4096]).unwrap();
        unit.commit().unwrap();
    }
    disk.close().unwrap();
}

#[test]
fn a_unit_far_larger_than_its_memory_commits_whole() {
    let medium = medium(96, 1 << 20, 4096);
    let options_small = OpenOptions { unit_memory_bytes: 100_000, ..quiet() };
    let disk = Disk::open(medium.clone(), &options_small).unwrap();
    let volume = disk.create_volume("v", &options(32 << 20, 4096)).unwrap();
    let mut unit = disk.begin().unwrap();
    for block in 0..5000u64 {
        unit.write_at(&volume, block * 4099 % (31 << 20), &block.to_le_bytes().repeat(512)).unwrap();
    }
    let mut inside = vec![0; 32 << 20];
    unit.read_at(&volume, 0, &mut inside).unwrap();
    let mut outside = vec![1; 32 << 20];
    volume.read_at(0, &mut outside).unwrap();
    assert!(outside.iter().all(|byte| *byte == 0));
    unit.commit_and_flush(Survive::Power).unwrap();
    drop((volume, disk));
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    disk.volume("v").unwrap().read_at(0, &mut outside).unwrap();
    assert!(outside == inside);
    drop(disk);
    assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_dropped_unit_gives_back_what_it_spilled() {
    let disk = Disk::open(medium(64, 256 << 10, 4096), &OpenOptions { unit_memory_bytes: 10_000, ..quiet() }).unwrap();
    let volume = disk.create_volume("v", &options(8 << 20, 4096)).unwrap();
    for _ in 0..20 {
        let mut unit = disk.begin().unwrap();
        unit.write_at(&volume, 0, &[1; 4 << 20]).unwrap();
        drop(unit);
    }
    let info = disk.info().unwrap();
    assert_eq!((info.stored, info.blocks, info.reserved), (0, 0, 0));
}

#[test]
fn failures_that_one_device_cannot_survive_are_refused_not_weakened() {
    let disk = Disk::open(medium(64, 64 << 10, 512), &quiet()).unwrap();
    let volume = disk.create_volume("v", &options(8192, 512)).unwrap();
    volume.write_at(0, &[1; 512]).unwrap();
    for survive in [Survive::Device, Survive::Site] {
        assert_eq!(disk.flush(survive).unwrap_err().kind(), ErrorKind::Unsupported);
    }
    let syncs = disk.counters().syncs;
    let position = disk.flush(Survive::Process).unwrap();
    assert_eq!(disk.counters().syncs, syncs, "a flush against the end of the process needs no sync");
    disk.flush_up_to(position, Survive::Power).unwrap();
    assert_eq!(disk.counters().syncs, syncs + 1);
    disk.flush_up_to(position, Survive::Power).unwrap();
    assert_eq!(disk.counters().syncs, syncs + 1, "what is durable already costs nothing");
}

#[test]
fn a_unit_that_cuts_inside_a_block_keeps_what_others_wrote_in_front_of_the_cut() {
    let disk = Disk::open(medium(64, 64 << 10, 512), &quiet()).unwrap();
    let volume = disk.create_volume("v", &options(4096, 2048)).unwrap();
    volume.write_at(0, &[1; 4096]).unwrap();
    let mut unit = disk.begin().unwrap();
    unit.resize(&volume, 1000).unwrap();
    unit.resize(&volume, 4096).unwrap();
    let mut read = vec![9; 4096];
    unit.read_at(&volume, 0, &mut read).unwrap();
    assert!(read[..1000].iter().all(|byte| *byte == 1) && read[1000..].iter().all(|byte| *byte == 0));
    volume.write_at(100, &[2; 1500]).unwrap();
    unit.commit().unwrap();
    volume.read_at(0, &mut read).unwrap();
    assert!(read[..100].iter().all(|byte| *byte == 1));
    assert!(read[100..1000].iter().all(|byte| *byte == 2));
    assert!(read[1000..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_volume_that_outlives_its_disk_goes_on_without_the_threads() {
    let disk = Disk::open(medium(64, 256 << 10, 4096), &OpenOptions::default()).unwrap();
    let volume = disk.create_volume("v", &options(4 << 20, 4096)).unwrap();
    drop(disk);
    for step in 0..20_000u64 {
        volume.write_at((step * 7919 % 1024) * 4096, &[3; 4096]).unwrap();
    }
}

/// XX-06: a question about a unit is answered truly, or with "forgotten".
#[test]
fn what_became_of_a_unit_is_told_or_forgotten() {
    let medium = medium(64, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let volume = disk.create_volume("v", &options(8192, 512)).unwrap();
    let status = |id| disk.unit_status(id).unwrap();
    let (mut committed, dropped, mut open) = (disk.begin().unwrap(), disk.begin().unwrap(), disk.begin().unwrap());
    let ids = [committed.id(), dropped.id(), open.id()];
    assert_eq!(ids.map(status), [UnitStatus::Open; 3]);
    committed.write_at(&volume, 0, &[1; 512]).unwrap();
    open.write_at(&volume, 0, &[2; 512]).unwrap();
    let position = committed.commit().unwrap();
    dropped.abort();
    let empty = disk.begin().unwrap();
    let of_nothing = empty.id();
    let nothing = empty.commit().unwrap();
    let known = [UnitStatus::Committed(position), UnitStatus::Aborted, UnitStatus::Open];
    assert_eq!(ids.map(status), known);
    assert_eq!(status(of_nothing), UnitStatus::Committed(nothing));
    let conflicting = disk.begin().unwrap();
    let conflict = conflicting.id();
    {
        let gone = disk.create_volume("gone", &options(8192, 512)).unwrap();
        let mut conflicting = conflicting;
        conflicting.write_at(&gone, 0, &[1; 512]).unwrap();
        disk.delete_volume("gone").unwrap();
        assert_eq!(conflicting.commit().unwrap_err().kind(), ErrorKind::Conflict);
    }
    assert_eq!(status(conflict), UnitStatus::Aborted);
    assert_eq!(disk.unit_status(lode::UnitId(conflict.0 + 100)).unwrap_err().kind(), ErrorKind::NotFound);

    // Thousands of others later, and in another opening.
    for _ in 0..3000 {
        disk.begin().unwrap().abort();
    }
    assert_eq!(ids.map(status), [UnitStatus::Forgotten; 3]);
    let id = open.id();
    open.commit_and_flush(Survive::Power).unwrap();
    assert_eq!(status(id), UnitStatus::Forgotten);
    drop((volume, disk));
    let disk = Disk::open(medium, &quiet()).unwrap();
    assert_eq!(disk.unit_status(id).unwrap(), UnitStatus::Forgotten);
}

/// AR-02, P4: somebody writes while a unit reads around a block of its own, or a volume is read from within a block to
/// within another: all of that write is seen, or nothing.
#[test]
fn what_others_commit_is_read_as_it_is_at_one_instant() {
    let medium = Watched::disk(64, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &OpenOptions { cache_bytes: 0, ..quiet() }).unwrap();
    let volume = disk.create_volume("v", &options(64 << 10, 512)).unwrap();
    volume.write_at(0, &[1; 3 * 512]).unwrap();
    disk.flush(Survive::Power).unwrap();
    let mut unit = disk.begin().unwrap();
    unit.write_at(&volume, 512, &[9; 512]).unwrap();
    let (other, begun) = (disk.clone(), AtomicBool::new(false));
    medium.before_each(move |call| {
        if matches!(call, Call::Read(_)) && !begun.swap(true, Ordering::SeqCst) {
            other.volume("v").unwrap().write_at(0, &[2; 3 * 512]).unwrap();
        }
    });
    let mut read = [0; 3 * 512 - 20];
    unit.read_at(&volume, 10, &mut read).unwrap();
    medium.let_be();
    let (before, rest) = read.split_at(502);
    let (own, after) = rest.split_at(512);
    assert!(own.iter().all(|byte| *byte == 9));
    assert!(before.iter().chain(after).all(|byte| *byte == 1), "{} and {}", before[0], after[0]);
    unit.read_at(&volume, 10, &mut read).unwrap();
    assert_eq!((read[0], read[600], read[1300]), (2, 9, 2));

    let (other, begun) = (disk.clone(), AtomicBool::new(false));
    medium.before_each(move |call| {
        if matches!(call, Call::Read(_)) && !begun.swap(true, Ordering::SeqCst) {
            other.volume("v").unwrap().write_at(0, &[3; 3 * 512]).unwrap();
        }
    });
    volume.read_at(10, &mut read).unwrap();
    medium.let_be();
    assert!(read.iter().all(|byte| *byte == read[0]), "{} to {}", read[0], read[1300]);
}
