//! Units that somebody else ends, and one that a program left behind without a label.

use super::{abort_open, commit, commit_open};
use crate::failure::Code;
use lode::{Disk, FormatOptions, OpenOptions, Survive, UnitConflicts, UnitOptions, VolumeOptions};
use lode_media::{Geometry, ram::RamMedium};
use std::sync::Arc;

#[test]
fn a_unit_without_a_label_outlives_a_commit_that_is_refused() {
    let geometry = Geometry { zones: 64, zone_bytes: 1 << 20, append_align: 4096, devices: 1 };
    let medium = Arc::new(RamMedium::new(geometry));
    Disk::format(medium.clone(), &FormatOptions { disk_id: 7 }).expect("it is formatted");
    let open = || Disk::open(medium.clone(), &OpenOptions::default()).expect("it opens");
    let disk = open();
    let data = disk.create_volume("data", &VolumeOptions { bytes: 1 << 20, ..Default::default() }).expect("room");
    let options = UnitOptions { conflicts: UnitConflicts::Written, ..UnitOptions::default() };
    let mut unit = disk.begin_with(&options).expect("room");
    unit.write_at(&data, 0, &[2; 4096]).and_then(|()| unit.barrier(b"")).expect("room");
    data.write_at(0, &[1; 4096]).and_then(|_| disk.flush(Survive::Power)).expect("room");
    let number = unit.id();
    std::mem::forget(unit); // The end of the program.
    disk.close().expect("it closes");
    let disk = open();
    let refused = commit(&disk, &number.0.to_string()).expect_err("others wrote there");
    assert_eq!(refused.code(), Code::Conflict, "{}", refused.words());
    disk.close().expect("it closes");
    let disk = open();
    let units: Vec<_> = disk.units().expect("they are readable").into_iter().map(|unit| unit.id).collect();
    assert_eq!(units, [number]);
}

#[test]
fn who_comes_too_late_is_told() {
    for end in [commit_open, abort_open] {
        let late = end(&mut None, "job").expect_err("it has ended");
        assert_eq!(late.code(), Code::NotFound, "{}", late.words());
    }
}
