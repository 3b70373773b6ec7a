//! Schedules of snapshots.
use crate::basics::{medium, quiet};
use lode::{Disk, ErrorKind, Scheduled, SnapshotOptions, SnapshotSchedule, Survive, VolumeOptions};

const SECOND: u64 = 1_000_000_000;

fn schedule(name: &str, every: u64, keep: u64, volumes: &[&str]) -> SnapshotSchedule {
    let volumes = volumes.iter().map(|name| (*name).to_owned()).collect();
    SnapshotSchedule { name: name.to_owned(), every: every * SECOND, keep, volumes, lists: false }
}

fn run(disk: &Disk, now: u64) -> Scheduled {
    disk.run_schedules(now * SECOND, &|now| (now / SECOND).to_string()).unwrap()
}

fn names(disk: &Disk) -> Vec<String> {
    disk.snapshots().into_iter().map(|snapshot| snapshot.name).collect()
}

#[test]
fn a_schedule_takes_what_is_due_and_keeps_so_many() {
    let medium = medium(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let options = VolumeOptions { bytes: 1 << 20, block_bytes: 512, ..Default::default() };
    for name in ["v", "w"] {
        disk.create_volume(name, &options).unwrap();
    }
    disk.set_schedule(&schedule("hourly", 10, 3, &[])).unwrap();
    disk.set_schedule(&schedule("one", 25, 2, &["w"])).unwrap();
    // One that a person took under such a name is not the schedule's.
    disk.take_snapshot("hourly-mine", &SnapshotOptions::default()).unwrap();
    let first = run(&disk, 100);
    assert_eq!(first.taken, ["hourly-100", "one-100"]);
    assert_eq!(run(&disk, 109), Scheduled::default());
    for now in [110, 120] {
        assert_eq!(run(&disk, now).deleted, Vec::<String>::new());
    }
    let later = run(&disk, 131);
    assert_eq!((later.taken, later.deleted), (vec!["hourly-131".into(), "one-131".into()], vec!["hourly-100".into()]));
    assert_eq!(names(&disk), ["hourly-mine", "one-100", "hourly-110", "hourly-120", "hourly-131", "one-131"]);
    assert_eq!(disk.snapshots().iter().find(|snapshot| snapshot.name == "one-131").unwrap().volumes, ["w"]);
    // Changed, and through a restart: what is too many goes.
    disk.set_schedule(&schedule("hourly", 50, 1, &[])).unwrap();
    disk.flush(Survive::Power).unwrap();
    drop(disk);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    assert_eq!(disk.schedules(), [schedule("hourly", 50, 1, &[]), schedule("one", 25, 2, &["w"])]);
    assert_eq!(run(&disk, 140).deleted, ["hourly-110", "hourly-120"]);
    // A volume that is gone: nothing more is taken of it, and nothing fails.
    disk.delete_volume("w").unwrap();
    assert_eq!(run(&disk, 180).taken, Vec::<String>::new());
    assert_eq!(run(&disk, 181).taken, ["hourly-181"]);
    disk.remove_schedule("hourly").unwrap();
    assert_eq!(disk.remove_schedule("hourly").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(run(&disk, 999), Scheduled::default());
    assert!(names(&disk).contains(&"hourly-181".to_owned()), "its snapshots stay");
    for wrong in [schedule("x", 0, 1, &[]), schedule("x", 1, 0, &[]), schedule("", 1, 1, &[])] {
        assert_eq!(disk.set_schedule(&wrong).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    assert_eq!(disk.set_schedule(&schedule("x", 1, 1, &["w"])).unwrap_err().kind(), ErrorKind::NotFound);
    while disk.maintain().unwrap() {}
    disk.close().unwrap();
    assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_clock_that_is_set_back_stops_no_schedule() {
    let disk = Disk::open(medium(96, 64 << 10, 512), &quiet()).unwrap();
    disk.set_schedule(&schedule("hourly", 10, 2, &[])).unwrap();
    assert_eq!(run(&disk, 9_000).taken, ["hourly-9000"]);
    assert_eq!(run(&disk, 8_995), Scheduled::default(), "a little back: soon enough");
    assert_eq!(run(&disk, 100).taken, ["hourly-100"]);
    assert_eq!(run(&disk, 105), Scheduled::default());
    let next = run(&disk, 110);
    assert_eq!((next.taken, next.deleted), (vec!["hourly-110".into()], vec!["hourly-9000".into()]), "in that order");
}

#[test]
fn a_schedule_that_fails_holds_up_no_other() {
    let disk = Disk::open(medium(96, 64 << 10, 512), &quiet()).unwrap();
    for name in ["a", "b"] {
        disk.set_schedule(&schedule(name, 10, 2, &[])).unwrap();
    }
    // A person has taken that name.
    disk.take_snapshot("a-100", &SnapshotOptions::default()).unwrap();
    let failed = disk.run_schedules(100 * SECOND, &|now| (now / SECOND).to_string()).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Exists);
    assert_eq!(names(&disk), ["a-100", "b-100"]);
    assert_eq!(run(&disk, 101).taken, ["a-101"]);
    // A name that leaves no room for the time could never be kept.
    let long = schedule(&"x".repeat(250), 10, 2, &[]);
    assert_eq!(disk.set_schedule(&long).unwrap_err().kind(), ErrorKind::InvalidArgument);
}
