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
