//! Lists for a client that keeps files in them, and what the last block of a file takes.
use crate::basics::{medium, quiet};
use lode::{Disk, ErrorKind, Survive, UnitConflicts, UnitOptions, UnitView, VolumeOptions};

fn whole(disk: &Disk, block_bytes: u32) -> VolumeOptions {
    VolumeOptions { bytes: disk.file_list_bytes(block_bytes), block_bytes, ..Default::default() }
}

/// Zeros at the end of a block are not stored; a block of zeros is. All ways of writing and reading, and after moving.
#[test]
fn a_block_takes_what_is_in_front_of_the_zeros_at_its_end() {
    let medium = medium(64, 1 << 20, 4096);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let volume = disk.create_volume("v", &VolumeOptions { bytes: 1 << 20, ..Default::default() }).unwrap();
    let begin = disk.info().unwrap().stored;
    let block = |used: usize| [vec![7; used], vec![0; 4096 - used]].concat();
    let cases = [(0, 4096), (1, 16), (16, 16), (17, 32), (1000, 1008), (4081, 4096), (4080, 4080), (4096, 4096)];
    let mut stored = begin;
    for (n, (used, takes)) in (0u64..).zip(cases) {
        volume.write_at(n * 3 * 4096, &block(used)).unwrap();
        let mut unit = disk.begin().unwrap();
        unit.write_at(&volume, (n * 3 + 1) * 4096, &block(used)).unwrap();
        let mut seen = vec![1; 4096];
        unit.read_at(&volume, (n * 3 + 1) * 4096, &mut seen).unwrap();
        assert_eq!(seen, block(used));
        unit.commit().unwrap();
        // Written in part, over what was a hole.
        volume.write_at((n * 3 + 2) * 4096 + 1, &block(used)[1..used.max(2)]).unwrap();
        let part = if used > 1 { takes } else { 4096 };
        stored += 2 * takes + part;
        assert_eq!(disk.info().unwrap().stored, stored, "{used} bytes");
    }
    let check = |disk: &Disk| {
        let volume = disk.volume("v").unwrap();
        let mut read = vec![1; 24 * 4096];
        volume.read_at(0, &mut read).unwrap();
        for (n, (used, _)) in cases.into_iter().enumerate() {
            for at in [n * 3, n * 3 + 1] {
                assert!(read[at * 4096..][..4096] == block(used), "{used} bytes at {at}");
            }
        }
    };
    check(&disk);
    disk.flush(Survive::Power).unwrap();
    disk.recluster("v", &mut |_, _| std::ops::ControlFlow::Continue(())).unwrap();
    check(&disk);
    disk.close().unwrap();
    assert!(Disk::check(medium.clone()).unwrap().problems.is_empty());
    check(&Disk::open(medium, &quiet()).unwrap());
}

#[test]
fn a_list_of_files_is_found_by_its_number_or_first_name_and_is_no_volume() {
    let medium = medium(64, 1 << 20, 4096);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    assert!(disk.file_list_named("inodes").unwrap().is_none());
    let first = disk.create_file_list("inodes", &whole(&disk, 512)).unwrap();
    let other = disk.create_file_list("", &whole(&disk, 4096)).unwrap();
    let end = other.bytes() - 4096;
    other.write_at(end, &[3; 4096]).unwrap();
    assert!(disk.volumes().unwrap().is_empty() && disk.volume("inodes").is_err());
    // A volume may be called the same.
    disk.create_volume("inodes", &VolumeOptions::default()).unwrap();
    disk.delete_volume("inodes").unwrap();
    assert_eq!(disk.delete_volume("inodes").unwrap_err().kind(), ErrorKind::NotFound);
    disk.checkpoint().unwrap();
    disk.close().unwrap();

    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    assert_eq!(disk.file_list_named("inodes").unwrap().unwrap().list(), first.list());
    assert_eq!(disk.file_lists(), [first.list(), other.list()]);
    let other = disk.file_list(other.list()).unwrap();
    let mut read = vec![0; 4096];
    other.read_at(end, &mut read).unwrap();
    assert_eq!(read, [3; 4096]);
    let stored = disk.info().unwrap().stored;
    disk.delete_file_list(other.list()).unwrap();
    while disk.maintain().unwrap() {}
    assert_eq!(disk.info().unwrap().stored, stored - 4096);
    assert_eq!(disk.file_list(other.list()).err().unwrap().kind(), ErrorKind::NotFound);
    assert_eq!(disk.delete_file_list(other.list()).unwrap_err().kind(), ErrorKind::NotFound);
    disk.close().unwrap();
    assert!(Disk::check(medium).unwrap().problems.is_empty());
}

/// A unit sees one instant, and yet can use a list that was made since: there was nothing in it.
#[test]
fn a_unit_with_a_frozen_view_can_fill_a_list_of_files_that_is_newer() {
    let disk = Disk::open(medium(64, 1 << 20, 4096), &quiet()).unwrap();
    let options = UnitOptions { view: UnitView::Frozen, conflicts: UnitConflicts::Allowed };
    let mut unit = disk.begin_with(&options).unwrap();
    let list = disk.create_file_list("", &whole(&disk, 4096)).unwrap();
    list.write_at(4096, &[1; 4096]).unwrap();
    unit.write_at(&list, 0, &[2; 4096]).unwrap();
    let mut read = vec![9; 8192];
    unit.read_at(&list, 0, &mut read).unwrap();
    assert!(read[..4096] == [2; 4096] && read[4096..] == [0; 4096], "its own, and not what came since");
    unit.commit().unwrap();
    list.read_at(0, &mut read).unwrap();
    assert!(read[..4096] == [2; 4096] && read[4096..] == [1; 4096]);
}

/// Where data and holes are, of volumes, snapshots and units, against looking at each block.
#[test]
fn the_next_stored_block_and_the_next_hole_are_found_over_any_distance() {
    let medium = medium(64, 1 << 20, 4096);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let list = disk.create_file_list("", &whole(&disk, 4096)).unwrap();
    let end = list.bytes() / 4096;
    // Far apart: in one leaf, in one section, in other sections, at the end.
    let places = [0, 1, 2, 5, 1023, 1024, 1025, 70_000, 70_001, 5_000_000, end - 1];
    for block in places {
        list.write_at(block * 4096, &[1; 4096]).unwrap();
    }
    disk.take_snapshot("s", &Default::default()).unwrap();
    list.discard(1024 * 4096, 4096).unwrap();
    list.write_at(9_000_000 * 4096, &[2; 4096]).unwrap();
    let mut now: std::collections::BTreeSet<u64> = places.into_iter().chain([9_000_000]).collect();
    now.remove(&1024);
    type Next<'a> = &'a dyn Fn(u64) -> Option<u64>;
    let check = |what: &str, stored: &std::collections::BTreeSet<u64>, next: Next<'_>, hole: Next<'_>| {
        for from in
            stored.iter().flat_map(|block| [block.saturating_sub(1), *block, block + 1]).filter(|from| *from < end)
        {
            let expected = stored.range(from..).next().map(|block| (block * 4096).max(from * 4096 + 7));
            assert_eq!(next(from * 4096 + 7), expected, "{what}: stored from {from}");
            let mut expected = from;
            while stored.contains(&expected) {
                expected += 1;
            }
            let expected = Some(expected).filter(|block| *block < end).map(|block| (block * 4096).max(from * 4096 + 7));
            assert_eq!(hole(from * 4096 + 7), expected, "{what}: hole from {from}");
        }
    };
    check("volume", &now, &|at| list.next_stored(at..u64::MAX).unwrap(), &|at| list.next_hole(at..u64::MAX).unwrap());
    let mut unit = disk
        .begin_labelled(
            &lode::UnitLabel { label: "u".into(), ..Default::default() },
            &UnitOptions { view: UnitView::Frozen, conflicts: UnitConflicts::Allowed },
        )
        .unwrap();
    let frozen = now.clone();
    list.write_at(30 * 4096, &[3; 4096]).unwrap();
    now.insert(30);
    assert_eq!(list.last_stored().unwrap(), Some(end - 1));
    let in_unit = |unit: &lode::Unit, stored: &_, what: &str| {
        check(what, stored, &|at| unit.next_stored(&list, at..u64::MAX).unwrap(), &|at| {
            unit.next_hole(&list, at..u64::MAX).unwrap()
        });
    };
    in_unit(&unit, &frozen, "frozen view");
    let mut own = frozen.clone();
    assert_eq!(unit.next_changed(&list, 0).unwrap(), None);
    for block in [3, 4, 6, 71_000, 8_000_000] {
        unit.write_at(&list, block * 4096, &[4; 4096]).unwrap();
        own.insert(block);
    }
    unit.discard(&list, 70_000 * 4096, 8192).unwrap();
    own.retain(|block| !(70_000..70_002).contains(block));
    let changed = |unit: &lode::Unit| {
        let (mut all, mut at) = (Vec::new(), 0);
        while let Some(range) = unit.next_changed(&list, at).unwrap() {
            all.push((range.start, range.end));
            at = range.end;
        }
        all
    };
    let changes = [(3, 4), (4, 5), (6, 7), (70_000, 70_002), (71_000, 71_001), (8_000_000, 8_000_001)];
    in_unit(&unit, &own, "unit");
    assert_eq!(changed(&unit), changes);
    unit.barrier(b"").unwrap();
    in_unit(&unit, &own, "unit with a barrier");
    assert_eq!(changed(&unit), changes);
    drop(unit);
    disk.checkpoint().unwrap();
    disk.close().unwrap();

    let disk = Disk::open(medium, &quiet()).unwrap();
    let list = disk.file_list(list.list()).unwrap();
    assert_eq!(list.last_stored().unwrap(), Some(end - 1));
    list.discard(9_000_001 * 4096, (end - 9_000_001) * 4096).unwrap();
    assert_eq!(list.last_stored().unwrap(), Some(9_000_000));
    list.write_at((end - 1) * 4096, &[1; 4096]).unwrap();
    check("opened again", &now, &|at| list.next_stored(at..u64::MAX).unwrap(), &|at| {
        list.next_hole(at..u64::MAX).unwrap()
    });
    let unit = disk.resume("u").unwrap();
    check("resumed", &own, &|at| unit.next_stored(&list, at..u64::MAX).unwrap(), &|at| {
        unit.next_hole(&list, at..u64::MAX).unwrap()
    });
    unit.abort();
}
