//! Units that connections share: on a medium whose reads fail and whose power is cut.

use crate::exports::Volumes;
use crate::shelf::Shelf;
use lode::{Disk, FormatOptions, OpenOptions, Survive, VolumeOptions};
use lode_media::fault::{FaultMedium, FaultPlan, FaultPoint, Lasting};
use lode_media::ram::RamMedium;
use lode_media::{ErrorKind, Geometry};
use lode_nbd::{Durability, Export, Exports};
use std::sync::Arc;

const UNIT: &str = "data?unit=job";
/// Farther than is zeroed at once.
const FAR: u64 = 512 << 10;

struct Bench {
    medium: Arc<FaultMedium<RamMedium>>,
    disk: Disk,
    volumes: Volumes,
}

fn open(medium: &Arc<FaultMedium<RamMedium>>) -> (Disk, Volumes) {
    let options = OpenOptions { background: false, cache_bytes: 0, ..OpenOptions::default() };
    let disk = Disk::open(medium.clone(), &options).expect("the disk opens");
    let volumes = Volumes::new(disk.clone(), false, Arc::new(Shelf::default()));
    (disk, volumes)
}

impl Bench {
    fn new() -> Bench {
        let geometry = Geometry { zones: 64, zone_bytes: 1 << 20, append_align: 4096, devices: 1 };
        let lost = FaultPlan { drop_per_mille: 1000, erase_happens_per_mille: 0, ..FaultPlan::new(1) };
        let medium = Arc::new(FaultMedium::new(RamMedium::new(geometry), lost));
        Disk::format(medium.clone(), &FormatOptions { disk_id: 7 }).expect("it is formatted");
        let (disk, volumes) = open(&medium);
        let options = VolumeOptions { bytes: 1 << 20, ..VolumeOptions::default() };
        disk.create_volume("data", &options).and_then(|_| disk.flush(Survive::Power)).expect("there is room");
        Bench { medium, disk, volumes }
    }

    fn connect(&self) -> Arc<dyn Export> {
        self.volumes.open(UNIT).expect("it is there")
    }
}

fn at(export: &dyn Export, offset: u64) -> u8 {
    let mut byte = [0];
    export.read(offset, &mut byte).expect("it is readable");
    byte[0]
}

#[test]
fn a_flush_covers_what_other_connections_and_earlier_ones_wrote() {
    for gone in [false, true] {
        let bench = Bench::new();
        let writer = bench.connect();
        writer.write(0, &[1; 4096], Durability::Process).expect("there is room");
        let writer = (!gone).then_some(writer);
        bench.connect().flush().expect("the device is sound");
        drop(writer);
        bench.medium.crash_now();
        bench.medium.power_on();
        let (_disk, volumes) = open(&bench.medium);
        let export = volumes.open(UNIT).expect("it is there");
        assert_eq!(at(&*export, 0), 1, "the first connection was closed before: {gone}");
    }
}

#[test]
fn a_unit_that_an_operation_broke_goes_on_from_its_last_barrier() {
    let bench = Bench::new();
    for at in [8192, FAR] {
        bench.disk.volume("data").expect("it is there").write_at(at, &[9; 4096]).expect("there is room");
    }
    bench.disk.flush(Survive::Power).expect("the device is sound");
    let (one, two) = (bench.connect(), bench.connect());
    one.write(0, &[1; 4096], Durability::Process).expect("there is room");
    let unwaited = two.write_unwaited(4096, &[2; 4096]).expect("there is room");
    bench.medium.fail(FaultPoint::Read, 1, Lasting::Once, ErrorKind::Io);
    // The rest of the last block cannot be read, when most is written already.
    assert!(one.zero(8192, FAR - 8192 + 100, false, Durability::Process).is_err());
    assert!(two.wait(unwaited, Durability::Process).is_err(), "it is not there any more");
    assert_eq!([at(&*two, 0), at(&*two, 4096), at(&*two, 8192)], [1, 0, 9]);
    two.flush().expect("everything that there is has a barrier");
    two.write(4096, &[4; 4096], Durability::Power).expect("the unit is sound again");
    assert!(two.wait(unwaited, Durability::Process).is_err(), "still");
    assert_eq!(at(&*one, 4096), 4);
}

#[test]
fn a_unit_that_broke_before_its_first_barrier_is_gone_and_begins_anew() {
    let bench = Bench::new();
    bench.disk.volume("data").expect("it is there").write_at(FAR, &[9; 4096]).expect("there is room");
    bench.disk.flush(Survive::Power).expect("the device is sound");
    let export = bench.connect();
    bench.medium.fail(FaultPoint::Read, 1, Lasting::Forever, ErrorKind::Io);
    assert!(export.zero(0, FAR + 100, false, Durability::Process).is_err());
    bench.medium.heal();
    assert!(export.read(0, &mut [0]).is_err() && export.flush().is_err());
    bench.connect().write(0, &[3; 100], Durability::Process).expect("this is another unit");
    assert!(export.flush().is_err(), "which is not the one of this connection");
}

#[test]
fn a_volume_that_is_called_like_one_in_a_unit_is_itself() {
    let bench = Bench::new();
    bench.disk.create_volume(UNIT, &VolumeOptions { bytes: 4096, ..VolumeOptions::default() }).expect("there is room");
    assert_eq!(bench.connect().size(), 4096);
    assert!(bench.disk.units().expect("they are readable").is_empty());
}

#[test]
fn who_only_looks_leaves_no_unit() {
    let bench = Bench::new();
    let labels = || -> Vec<String> {
        bench.disk.units().expect("they are readable").into_iter().map(|unit| unit.label).collect()
    };
    let (one, two) = (bench.connect(), bench.connect());
    assert_eq!((at(&*one, 0), labels()), (0, vec!["job".to_owned()]));
    drop(one);
    assert_eq!(labels(), ["job"], "the other is still there");
    drop(two);
    assert!(labels().is_empty());
    bench.connect().write(0, &[1; 512], Durability::Process).expect("there is room");
    assert_eq!(labels(), ["job"]);
    drop(bench.connect());
    assert_eq!((labels(), at(&*bench.connect(), 0)), (vec!["job".to_owned()], 1));
}

#[test]
fn a_disk_that_is_only_read_offers_no_units() {
    let bench = Bench::new();
    bench.connect().write(0, &[1; 512], Durability::Power).expect("there is room");
    assert_eq!(bench.volumes.list().expect("it is readable"), ["data", UNIT]);
    bench.disk.close().expect("it closes");
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let disk = Disk::open(bench.medium, &options).expect("it opens");
    let volumes = Volumes::new(disk, true, Arc::new(Shelf::default()));
    assert_eq!(volumes.list().expect("it is readable"), ["data"]);
    assert!(volumes.open(UNIT).is_err());
}
