//! Snapshots: what they see, what they cost, how they go.
use crate::basics::{medium, quiet};
use lode::{Disk, ErrorKind, OpenOptions, SnapshotOptions, Survive, Volume, VolumeOptions};
use std::sync::Arc;

const BLOCK: u64 = 512;

fn stamp(turn: u8) -> [u8; 512] {
    [turn; 512]
}

fn create(disk: &Disk, name: &str, blocks: u64) -> Volume {
    let options = VolumeOptions { bytes: blocks * BLOCK, block_bytes: 512, ..Default::default() };
    disk.create_volume(name, &options).unwrap()
}

fn take(disk: &Disk, name: &str) {
    disk.take_snapshot(name, &SnapshotOptions::default()).unwrap();
}

fn turns(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0xee; usize::try_from(volume.bytes()).unwrap()];
    volume.read_at(0, &mut bytes).unwrap();
    bytes.chunks(512).map(|block| if block.iter().all(|byte| *byte == block[0]) { block[0] } else { 0xff }).collect()
}

fn sound(medium: Arc<dyn lode_media::Medium>) {
    assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
}

#[test]
fn snapshots_see_what_was_there_through_overwrites_discards_and_restarts() {
    let medium = medium(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let volume = create(&disk, "v", 8);
    for block in [0, 1, 2, 5] {
        volume.write_at(block * BLOCK, &stamp(1)).unwrap();
    }
    take(&disk, "one");
    volume.write_at(BLOCK, &stamp(2)).unwrap();
    volume.write_at(3 * BLOCK, &stamp(2)).unwrap();
    volume.discard(5 * BLOCK, BLOCK).unwrap();
    volume.write_at(BLOCK, &stamp(3)).unwrap();
    take(&disk, "two");
    volume.discard(0, 8 * BLOCK).unwrap();
    volume.write_at(7 * BLOCK, &stamp(4)).unwrap();
    let expected = [("one", [1, 1, 1, 0, 0, 1, 0, 0]), ("two", [1, 3, 1, 2, 0, 0, 0, 0])];
    let now = [0, 0, 0, 0, 0, 0, 0, 4];
    let see = |disk: &Disk| {
        for (name, blocks) in expected {
            assert_eq!(turns(&disk.volume_at(name, "v").unwrap()), blocks, "{name}");
        }
        assert_eq!(turns(&disk.volume("v").unwrap()), now);
    };
    see(&disk);
    disk.flush(Survive::Power).unwrap();
    drop((volume, disk));
    sound(medium.clone());
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    see(&disk);
    disk.checkpoint().unwrap();
    disk.clean().unwrap();
    see(&disk);
    disk.close().unwrap();
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    see(&disk);
    assert_eq!(disk.snapshots().iter().map(|info| &info.name[..]).collect::<Vec<_>>(), ["one", "two"]);
    disk.delete_snapshot("two").unwrap();
    assert_eq!(turns(&disk.volume_at("one", "v").unwrap()), expected[0].1);
    assert_eq!(disk.volume_at("two", "v").err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    disk.delete_snapshot("one").unwrap();
    assert_eq!(turns(&disk.volume("v").unwrap()), now);
    assert_eq!(disk.info().unwrap().blocks, 1);
    disk.close().unwrap();
    sound(medium);
}

#[test]
fn a_snapshot_sees_volumes_that_are_deleted_or_cut_and_not_those_made_later() {
    let medium = medium(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let volume = create(&disk, "v", 8);
    let cut = create(&disk, "cut", 8);
    volume.write_at(0, &[1; 8 * 512]).unwrap();
    cut.write_at(0, &[1; 8 * 512]).unwrap();
    take(&disk, "s");
    disk.delete_volume("v").unwrap();
    disk.resize_volume("cut", 2 * BLOCK).unwrap();
    let other = create(&disk, "v", 4);
    other.write_at(0, &stamp(9)).unwrap();
    create(&disk, "later", 4);
    disk.flush(Survive::Power).unwrap();
    drop((volume, cut, other, disk));
    sound(medium.clone());
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    assert_eq!(disk.snapshots()[0].volumes, ["v", "cut"]);
    for name in ["v", "cut"] {
        assert_eq!(turns(&disk.volume_at("s", name).unwrap()), [1; 8], "{name}");
    }
    assert_eq!(disk.volume_at("s", "later").err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    assert_eq!(turns(&disk.volume("v").unwrap()), [9, 0, 0, 0]);
    let seen = disk.volume_at("s", "v").unwrap();
    assert_eq!(seen.write_at(0, &stamp(1)).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(seen.discard(0, 512).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(disk.begin().unwrap().write_at(&seen, 0, &stamp(1)).unwrap_err().kind(), ErrorKind::ReadOnly);
    disk.delete_snapshot("s").unwrap();
    assert_eq!(seen.read_at(0, &mut [0; 512]).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.info().unwrap().blocks, 3);
    disk.close().unwrap();
    sound(medium);
}

#[test]
fn a_snapshot_of_single_volumes_keeps_nothing_of_others() {
    let medium = medium(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let (a, b) = (create(&disk, "a", 4), create(&disk, "b", 4));
    for volume in [&a, &b] {
        volume.write_at(0, &stamp(1)).unwrap();
    }
    let options = SnapshotOptions { volumes: vec!["a".to_owned()], made: 77, ..Default::default() };
    disk.take_snapshot("s", &options).unwrap();
    assert_eq!(disk.take_snapshot("s", &options).unwrap_err().kind(), ErrorKind::Exists);
    for volume in [&a, &b] {
        volume.write_at(0, &stamp(2)).unwrap();
    }
    assert_eq!(turns(&disk.volume_at("s", "a").unwrap()), [1, 0, 0, 0]);
    assert_eq!(disk.volume_at("s", "b").err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    assert_eq!((disk.info().unwrap().blocks, disk.snapshots()[0].made), (3, 77));
    drop((a, b));
    disk.close().unwrap();
    sound(medium);
}

/// Units commit behind a snapshot that was taken while they were open; a large one too, whose records are built before.
#[test]
fn a_unit_that_commits_after_a_snapshot_is_not_in_it() {
    let medium = medium(200, 64 << 10, 512);
    let options = OpenOptions { unit_memory_bytes: 16 << 10, ..quiet() };
    let disk = Disk::open(medium.clone(), &options).unwrap();
    for blocks in [3u64, 600] {
        let volume = create(&disk, &format!("v{blocks}"), blocks + 1);
        for block in (0..blocks).step_by(2) {
            volume.write_at(block * BLOCK, &stamp(1)).unwrap();
        }
        let before = turns(&volume);
        let mut unit = disk.begin().unwrap();
        for n in 0..blocks {
            unit.write_at(&volume, n * 7 % blocks * BLOCK, &stamp(2)).unwrap();
        }
        unit.discard(&volume, BLOCK, BLOCK).unwrap();
        let name = format!("s{blocks}");
        take(&disk, &name);
        unit.commit().unwrap();
        let after = turns(&volume);
        assert_eq!(after.iter().filter(|turn| **turn == 2).count() as u64, blocks - 1);
        for _ in 0..3 {
            assert_eq!(turns(&disk.volume_at(&name, &volume.name()).unwrap()), before);
            assert_eq!(turns(&volume), after);
            disk.clean().unwrap();
        }
        drop(volume);
        disk.flush(Survive::Power).unwrap();
        let copy = Disk::open(medium.clone(), &OpenOptions { read_only: true, ..quiet() }).unwrap();
        assert_eq!(turns(&copy.volume_at(&name, &format!("v{blocks}")).unwrap()), before);
    }
    disk.close().unwrap();
    sound(medium);
}

/// A volume is cut, a snapshot is taken, it grows again and what was cut off is written anew. An older snapshot sees a
/// hole there still, also when the one between is gone.
#[test]
fn a_hole_that_was_cut_off_stays_one_for_the_older_snapshot() {
    for deleted in [false, true] {
        let medium = medium(96, 64 << 10, 512);
        let disk = Disk::open(medium.clone(), &quiet()).unwrap();
        let volume = create(&disk, "v", 8);
        volume.write_at(BLOCK, &stamp(1)).unwrap();
        take(&disk, "long");
        volume.write_at(BLOCK, &stamp(2)).unwrap();
        disk.resize_volume("v", 4 * BLOCK).unwrap();
        take(&disk, "short");
        disk.resize_volume("v", 8 * BLOCK).unwrap();
        volume.write_at(0, &[3; 8 * 512]).unwrap();
        if deleted {
            disk.delete_snapshot("short").unwrap();
        } else {
            assert_eq!(turns(&disk.volume_at("short", "v").unwrap()), [0, 2, 0, 0]);
        }
        assert_eq!(turns(&disk.volume_at("long", "v").unwrap()), [0, 1, 0, 0, 0, 0, 0, 0], "deleted: {deleted}");
        drop(volume);
        disk.close().unwrap();
        sound(medium);
    }
}

/// P5, R27: what a snapshot sees is not overwritten, so a write needs space; deleting works on a full disk all the same.
#[test]
fn a_disk_that_snapshots_have_filled_gives_back_their_space() {
    let medium = medium(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let blocks = 1000;
    let volume = create(&disk, "v", blocks);
    let mut turn = 0;
    let full = 'full: loop {
        turn += 1;
        take(&disk, &format!("s{turn}"));
        for block in 0..blocks {
            match volume.write_at(block * BLOCK, &stamp(turn)) {
                Ok(_) => {}
                Err(error) => break 'full error,
            }
        }
    };
    assert_eq!(full.kind(), ErrorKind::Full);
    assert!(turn > 3, "{turn} snapshots");
    let before = disk.info().unwrap();
    assert_eq!(turns(&disk.volume_at("s3", "v").unwrap()), [2; 1000]);
    volume.discard(0, 100 * BLOCK).unwrap();
    for turn in 2..turn {
        disk.delete_snapshot(&format!("s{turn}")).unwrap();
    }
    while disk.maintain().unwrap() {}
    let after = disk.info().unwrap();
    assert!(after.free > before.free + u64::from(turn - 4) * blocks * BLOCK, "{before:?} {after:?}");
    for block in 0..blocks {
        volume.write_at(block * BLOCK, &stamp(99)).unwrap();
    }
    assert_eq!(turns(&disk.volume_at("s1", "v").unwrap()), [0; 1000]);
    drop(volume);
    disk.close().unwrap();
    sound(medium);
}

#[test]
fn changes_are_told_from_the_tables_and_a_volume_is_rolled_back() {
    let medium = medium(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let volume = create(&disk, "v", 16);
    volume.write_at(0, &[1; 8 * 512]).unwrap();
    take(&disk, "one");
    let at = |name: &str| disk.volume(&format!("v@{name}")).unwrap();
    assert_eq!(volume.changes_since(&at("one")).unwrap(), []);
    volume.write_at(2 * BLOCK, &stamp(2)).unwrap();
    volume.discard(3 * BLOCK, BLOCK).unwrap();
    volume.write_at(9 * BLOCK, &stamp(2)).unwrap();
    take(&disk, "two");
    volume.write_at(5 * BLOCK, &stamp(3)).unwrap();
    let blocks = |ranges: Vec<std::ops::Range<u64>>| -> Vec<std::ops::Range<u64>> {
        ranges.into_iter().map(|range| range.start / BLOCK..range.end / BLOCK).collect()
    };
    assert_eq!(blocks(at("two").changes_since(&at("one")).unwrap()), [2..4, 9..10]);
    assert_eq!(blocks(volume.changes_since(&at("two")).unwrap()), vec![std::ops::Range { start: 5, end: 6 }]);
    assert_eq!(blocks(volume.changes_since(&at("one")).unwrap()), [2..4, 5..6, 9..10]);
    assert_eq!(at("one").changes_since(&at("two")).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(volume.changes_since(&volume).unwrap_err().kind(), ErrorKind::InvalidArgument);
    disk.resize_volume("v", 4 * BLOCK).unwrap();
    disk.resize_volume("v", 20 * BLOCK).unwrap();
    volume.write_at(19 * BLOCK, &stamp(4)).unwrap();
    // What is a hole in both has not changed.
    assert_eq!(blocks(volume.changes_since(&at("two")).unwrap()), [4..8, 9..10, 16..20]);
    // Of a part, the same cut to it, also within blocks; together the parts are the whole.
    let part = |from: u64, to: u64| volume.changes_within(&at("two"), from, to - from).unwrap();
    assert_eq!(blocks(part(6 * BLOCK, 10 * BLOCK)), [6..8, 9..10]);
    assert_eq!(part(5 * BLOCK + 100, 5 * BLOCK + 200), vec![5 * BLOCK + 100..5 * BLOCK + 200]);
    assert_eq!((part(0, 4 * BLOCK), part(10 * BLOCK, 16 * BLOCK), part(7, 7)), (vec![], vec![], vec![]));
    assert_eq!(part(0, 20 * BLOCK), volume.changes_since(&at("two")).unwrap());
    assert_eq!(volume.changes_within(&at("two"), 20 * BLOCK, 1).unwrap_err().kind(), ErrorKind::OutOfRange);
    assert_eq!(at("one").changes_within(&at("two"), 0, 0).unwrap_err().kind(), ErrorKind::InvalidArgument);

    for (name, expected) in [
        ("two", [1, 1, 2, 0, 1, 1, 1, 1, 0, 2, 0, 0, 0, 0, 0, 0]),
        ("one", [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        volume.roll_back(&at(name)).unwrap();
        assert_eq!(turns(&volume), expected, "{name}");
        assert_eq!(turns(&at(name)), expected, "{name}");
    }
    assert_eq!(turns(&at("two")), [1, 1, 2, 0, 1, 1, 1, 1, 0, 2, 0, 0, 0, 0, 0, 0]);
    disk.flush(Survive::Power).unwrap();
    drop((volume, disk));
    sound(medium);
}

/// The records of a snapshot fit where batches are smallest.
#[test]
fn snapshots_come_and_go_on_the_smallest_zones() {
    let medium = medium(96, 2048, 64);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let options = VolumeOptions { bytes: 1024, block_bytes: 64, ..Default::default() };
    let volume = disk.create_volume("v", &options).unwrap();
    for turn in 0..3 {
        volume.write_at(0, &[turn; 64]).unwrap();
        take(&disk, &format!("s{turn}"));
    }
    volume.write_at(0, &[9; 64]).unwrap();
    for turn in [1, 0, 2] {
        let mut read = [0; 64];
        disk.volume(&format!("v@s{turn}")).unwrap().read_at(0, &mut read).unwrap();
        assert_eq!(read, [turn; 64]);
        disk.delete_snapshot(&format!("s{turn}")).unwrap();
    }
    while disk.maintain().unwrap() {}
    assert_eq!(disk.info().unwrap().blocks, 1);
    drop(volume);
    disk.close().unwrap();
    sound(medium);
}

#[test]
fn what_only_a_snapshot_holds_is_what_comes_back_when_it_goes() {
    let medium = medium(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let volume = create(&disk, "v", 64);
    let fill = |from: u64, to: u64, turn: u8| {
        for block in from..to {
            volume.write_at(block * BLOCK, &stamp(turn)).unwrap();
        }
    };
    fill(0, 64, 1);
    take(&disk, "a");
    fill(0, 20, 2);
    take(&disk, "b");
    fill(10, 30, 3);
    take(&disk, "c");
    volume.discard(0, 40 * BLOCK).unwrap();
    let held = |name: &str| disk.snapshot_space(name).unwrap();
    // a alone has the first turn of blocks 0 to 19; b the second of 10 to 19, as c has the third; what a and b see of 20
    // to 29 neither holds alone; c has the second of 0 to 9 together with b.
    assert_eq!(["a", "b", "c"].map(held), [20 * BLOCK, 10 * BLOCK, 20 * BLOCK]);
    for name in ["b", "a", "c"] {
        let (before, held) = (disk.info().unwrap().stored, held(name));
        disk.delete_snapshot(name).unwrap();
        while disk.maintain().unwrap() {}
        assert_eq!(before - disk.info().unwrap().stored, held, "{name}");
    }
    assert_eq!(disk.snapshot_space("a").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn changes_of_a_part_are_those_of_the_whole_cut_to_it() {
    const BLOCKS: u64 = 1 << 20;
    let disk = Disk::open(medium(96, 64 << 10, 512), &quiet()).unwrap();
    let volume = create(&disk, "v", BLOCKS);
    let mut state = 7_u64;
    let mut below = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    // In sections all over the volume, some in both layers.
    for snapshot in ["one", "two"] {
        take(&disk, snapshot);
        for _ in 0..24 {
            volume.write_at((below(64) << 14) * BLOCK + below(4) * BLOCK, &stamp(1)).unwrap();
        }
    }
    for since in ["one", "two"] {
        let since = disk.volume(&format!("v@{since}")).unwrap();
        let whole = volume.changes_since(&since).unwrap();
        assert!(whole.len() > 10);
        for _ in 0..200 {
            let start = (below(64) << 14) * BLOCK + below(3000);
            let end = (start + below(1 << 26) + 1).min(BLOCKS * BLOCK);
            let cut = whole.iter().map(|range| range.start.max(start)..range.end.min(end));
            let expected: Vec<_> = cut.filter(|range| !range.is_empty()).collect();
            assert_eq!(volume.changes_within(&since, start, end - start).unwrap(), expected, "{start}..{end}");
        }
    }
}
