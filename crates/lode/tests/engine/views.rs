//! Units that see one instant, or are told of conflicts.
use crate::basics::{medium, quiet};
use lode::{
    Disk, ErrorKind, ListOptions, Place, SnapshotOptions, Survive, Unit, UnitConflicts, UnitOptions, UnitView, Volume,
    VolumeOptions,
};

const BLOCK: u64 = 512;

fn disk() -> (std::sync::Arc<dyn lode_media::Medium>, Disk, Volume) {
    let medium = medium(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let options = VolumeOptions { bytes: 16 * BLOCK, block_bytes: 512, ..Default::default() };
    let volume = disk.create_volume("v", &options).unwrap();
    for block in 0..4 {
        volume.write_at(block * BLOCK, &[1; 512]).unwrap();
    }
    (medium, disk, volume)
}

fn unit(disk: &Disk, view: UnitView, conflicts: UnitConflicts) -> Unit {
    disk.begin_with(&UnitOptions { view, conflicts }).unwrap()
}

fn seen(unit: &Unit, volume: &Volume, block: u64) -> u8 {
    let mut bytes = [0; 512];
    unit.read_at(volume, block * BLOCK, &mut bytes).unwrap();
    bytes[0]
}

#[test]
fn each_view_shows_what_it_says() {
    let (medium, disk, volume) = disk();
    let list = disk.create_list(&ListOptions { block_bytes: 512, ..Default::default() }, Place::Last).unwrap();
    let block = disk.insert_block(list, Place::Last).unwrap();
    let mut units =
        [UnitView::Moving, UnitView::Frozen, UnitView::Committed].map(|view| unit(&disk, view, UnitConflicts::Allowed));
    for unit in &mut units {
        unit.write_at(&volume, 0, &[9; 512]).unwrap();
    }
    volume.write_at(BLOCK, &[2; 512]).unwrap();
    volume.write_at(0, &[3; 512]).unwrap();
    volume.discard(2 * BLOCK, BLOCK).unwrap();
    disk.resize_volume("v", 20 * BLOCK).unwrap();
    disk.write_block(block, 0, &[5; 512]).unwrap();
    disk.insert_block(list, Place::First).unwrap();
    disk.create_volume("new", &VolumeOptions { bytes: BLOCK, block_bytes: 512, ..Default::default() }).unwrap();
    let views: Vec<[u8; 4]> = units.iter().map(|unit| [0, 1, 2, 3].map(|block| seen(unit, &volume, block))).collect();
    assert_eq!(views, [[9, 2, 0, 1], [9, 1, 1, 1], [3, 2, 0, 1]]);
    assert_eq!(units.each_ref().map(|unit| unit.bytes(&volume).unwrap() / BLOCK), [20, 16, 20]);
    assert_eq!(units.each_mut().map(|unit| unit.blocks(list).unwrap().len()), [2, 1, 2]);
    let mut bytes = [1; 512];
    units[1].read_block(block, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 512]);
    let newer = disk.volume("new").unwrap();
    assert_eq!(units[1].read_at(&newer, 0, &mut bytes).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(disk.snapshots().is_empty(), "a view is no snapshot that anybody sees");
    disk.take_snapshot("s", &SnapshotOptions::default()).unwrap();
    disk.resize_volume("v", 24 * BLOCK).unwrap();
    let then = disk.volume("v@s").unwrap();
    assert_eq!(units.each_ref().map(|unit| unit.bytes(&then).unwrap() / BLOCK), [20; 3]);
    disk.resize_volume("v", 20 * BLOCK).unwrap();
    for unit in units {
        unit.commit().unwrap();
    }
    let mut bytes = [0; 512];
    volume.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [9; 512]);
    while disk.maintain().unwrap() {}
    disk.close().unwrap();
    assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
}

#[test]
fn the_first_to_commit_counts_where_that_is_asked_for() {
    let (_, disk, volume) = disk();
    let begin = || unit(&disk, UnitView::Moving, UnitConflicts::Written);
    // What nobody else changed.
    let mut one = begin();
    one.write_at(&volume, 0, &[7; 512]).unwrap();
    volume.write_at(BLOCK, &[8; 512]).unwrap();
    one.commit().unwrap();
    // The same block: the second is refused, changes nothing and stays open.
    let (mut one, mut two) = (begin(), begin());
    one.write_at(&volume, 0, &[10; 512]).unwrap();
    two.write_at(&volume, 0, &[11; 512]).unwrap();
    one.commit().unwrap();
    assert_eq!(two.try_commit().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(seen(&two, &volume, 0), 11);
    drop(two);
    let mut bytes = [0; 512];
    volume.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [10; 512]);
    // A change that is taken back is a change; one that the cleaner made is none.
    let mut one = begin();
    one.write_at(&volume, 3 * BLOCK, &[12; 512]).unwrap();
    volume.write_at(3 * BLOCK, &[1; 512]).unwrap();
    assert_eq!(one.try_commit().unwrap_err().kind(), ErrorKind::Conflict);
    drop(one);
    let mut one = begin();
    one.write_at(&volume, 3 * BLOCK, &[13; 512]).unwrap();
    disk.flush(Survive::Power).unwrap();
    while disk.clean().unwrap() {}
    one.commit().unwrap();
    // Discards, sizes, lists.
    let mut one = begin();
    one.discard(&volume, 0, 4 * BLOCK).unwrap();
    volume.write_at(2 * BLOCK, &[14; 512]).unwrap();
    assert_eq!(one.try_commit().unwrap_err().kind(), ErrorKind::Conflict);
    drop(one);
    let mut one = begin();
    one.resize(&volume, 10 * BLOCK).unwrap();
    disk.resize_volume("v", 12 * BLOCK).unwrap();
    assert_eq!(one.try_commit().unwrap_err().kind(), ErrorKind::Conflict);
    drop(one);
    let list = disk.create_list(&ListOptions { block_bytes: 512, ..Default::default() }, Place::Last).unwrap();
    let mut one = begin();
    one.insert_block(list, Place::Last).unwrap();
    disk.insert_block(list, Place::Last).unwrap();
    assert_eq!(one.try_commit().unwrap_err().kind(), ErrorKind::Conflict);
}

/// What a unit writes behind the old end was nobody's before; unless somebody else has made the volume larger, too.
#[test]
fn a_unit_that_makes_a_volume_larger_is_no_conflict_to_itself() {
    for (others, has_barrier, conflicts) in
        (0..8).map(|n| (n % 2 == 1, n & 2 > 0, [UnitConflicts::Written, UnitConflicts::Read][n / 4]))
    {
        let (_, disk, volume) = disk();
        let mut unit = unit(&disk, UnitView::Moving, conflicts);
        unit.resize(&volume, 20 * BLOCK).unwrap();
        unit.write_at(&volume, 15 * BLOCK, &[7; 3 * 512]).unwrap();
        if has_barrier {
            unit.barrier(b"").unwrap();
        }
        if others {
            disk.resize_volume("v", 20 * BLOCK).unwrap();
            volume.write_at(17 * BLOCK, &[8; 512]).unwrap();
            assert_eq!(unit.try_commit().unwrap_err().kind(), ErrorKind::Conflict);
        } else {
            unit.commit().unwrap();
            let mut bytes = [0; 512];
            volume.read_at(17 * BLOCK, &mut bytes).unwrap();
            assert_eq!((volume.bytes(), bytes), (20 * BLOCK, [7; 512]));
        }
    }
}

#[test]
fn what_was_read_counts_where_that_is_asked_for() {
    let (_, disk, volume) = disk();
    // Write skew: each reads what the other writes.
    for (conflicts, both) in [(UnitConflicts::Written, true), (UnitConflicts::Read, false)] {
        let [mut one, mut two] = [(); 2].map(|()| unit(&disk, UnitView::Frozen, conflicts));
        seen(&one, &volume, 0);
        seen(&two, &volume, 1);
        one.write_at(&volume, BLOCK, &[20; 512]).unwrap();
        two.write_at(&volume, 0, &[21; 512]).unwrap();
        one.commit().unwrap();
        let second = two.try_commit();
        assert_eq!(second.is_ok(), both, "{conflicts:?}: {second:?}");
    }
    // One that only reads is told if it has not seen one state.
    for (conflicts, fine) in [(UnitConflicts::Allowed, true), (UnitConflicts::Read, false)] {
        let mut one = unit(&disk, UnitView::Moving, conflicts);
        seen(&one, &volume, 0);
        volume.write_at(0, &[19; 512]).unwrap();
        seen(&one, &volume, 1);
        assert_eq!(one.try_commit().is_ok(), fine, "{conflicts:?}");
    }
    let mut one = unit(&disk, UnitView::Moving, UnitConflicts::Read);
    seen(&one, &volume, 0);
    one.try_commit().unwrap();
    // What it has read and nobody changed is none.
    let mut one = unit(&disk, UnitView::Moving, UnitConflicts::Read);
    seen(&one, &volume, 2);
    one.write_at(&volume, 3 * BLOCK, &[22; 512]).unwrap();
    volume.write_at(0, &[23; 512]).unwrap();
    one.commit().unwrap();
}

#[test]
fn a_frozen_unit_cuts_a_block_out_of_what_is_committed_by_then() {
    let (_, disk, volume) = disk();
    let mut one = unit(&disk, UnitView::Frozen, UnitConflicts::Allowed);
    one.resize(&volume, 3 * BLOCK + 100).unwrap();
    volume.write_at(3 * BLOCK, &[40; 512]).unwrap();
    one.commit().unwrap();
    disk.resize_volume("v", 16 * BLOCK).unwrap();
    let mut bytes = [1; 512];
    volume.read_at(3 * BLOCK, &mut bytes).unwrap();
    assert_eq!((bytes[..100].to_vec(), bytes[100..].to_vec()), (vec![40; 100], vec![0; 412]));
}

#[test]
fn a_unit_that_makes_a_volume_longer_and_writes_behind_its_old_end_meets_nobody() {
    let (_, disk, volume) = disk();
    for (round, conflicts) in (1..).zip([UnitConflicts::Written, UnitConflicts::Read]) {
        let old = volume.bytes();
        let mut own = unit(&disk, UnitView::Frozen, conflicts);
        own.resize(&volume, old + 40 * BLOCK).unwrap();
        own.write_at(&volume, old + 30 * BLOCK, &[round; 512]).unwrap();
        own.commit().unwrap();
        let mut bytes = [0; 512];
        volume.read_at(old + 30 * BLOCK, &mut bytes).unwrap();
        assert_eq!(bytes, [round; 512]);
    }
    // Others have done the same: one of the two counts.
    let mut own = unit(&disk, UnitView::Moving, UnitConflicts::Written);
    let old = volume.bytes();
    disk.resize_volume("v", old + 40 * BLOCK).unwrap();
    volume.write_at(old + 30 * BLOCK, &[7; 512]).unwrap();
    own.write_at(&volume, old + 30 * BLOCK, &[8; 512]).unwrap();
    assert_eq!(own.try_commit().unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn a_view_ends_with_its_unit_and_with_a_crash() {
    let (medium, disk, volume) = disk();
    let fill = || {
        for block in 0..16 {
            volume.write_at(block * BLOCK, &[30; 512]).unwrap();
        }
    };
    fill();
    let stored = disk.info().unwrap().stored;
    let frozen = unit(&disk, UnitView::Frozen, UnitConflicts::Allowed);
    fill();
    assert!(disk.info().unwrap().stored > stored, "what the view sees is kept");
    drop(frozen);
    while disk.maintain().unwrap() {}
    assert_eq!(disk.info().unwrap().stored, stored);
    let frozen = unit(&disk, UnitView::Frozen, UnitConflicts::Allowed);
    disk.take_snapshot("kept", &SnapshotOptions::default()).unwrap();
    fill();
    disk.flush(Survive::Power).unwrap();
    drop((volume, disk));
    // Its end did not reach the medium.
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    drop(frozen);
    while disk.maintain().unwrap() {}
    disk.delete_snapshot("kept").unwrap();
    while disk.maintain().unwrap() {}
    assert_eq!(disk.info().unwrap().stored, stored);
    disk.close().unwrap();
    assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
}

/// LD-F4: the contents of two stretches are exchanged, whatever others write meanwhile.
#[test]
fn an_exchange_is_one_operation() {
    let (_, disk, volume) = disk();
    volume.write_at(BLOCK, &[2; 512]).unwrap();
    let other = VolumeOptions { bytes: 8 * BLOCK, block_bytes: 64, compression: lode::Compression::Lz4 };
    let other = disk.create_volume("other", &other).unwrap();
    other.write_at(100, &[50; 512]).unwrap();
    volume.swap(0, &other, 100, 512).unwrap();
    volume.swap(0, &volume, BLOCK, BLOCK).unwrap();
    let read = |volume: &Volume, at: u64| {
        let mut bytes = [0; 512];
        volume.read_at(at, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]));
        bytes[0]
    };
    assert_eq!([read(&volume, 0), read(&volume, BLOCK), read(&other, 100)], [2, 50, 1]);
    assert_eq!(volume.swap(0, &volume, 100, 512).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(volume.swap(0, &other, 8 * BLOCK - 100, 512).unwrap_err().kind(), ErrorKind::OutOfRange);
    // Two who exchange the same blocks at once never lose one.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..50).for_each(|_| drop(volume.swap(0, &volume, BLOCK, BLOCK))));
        }
    });
    let mut both = [read(&volume, 0), read(&volume, BLOCK)];
    both.sort_unstable();
    assert_eq!(both, [2, 50]);
}
