//! Blocks of several lists in one step.
use crate::basics::{medium, quiet};
use lode::{Disk, ErrorKind, SnapshotOptions, Survive, VolumeOptions, Whole};

#[test]
fn blocks_of_several_lists_are_there_together_or_not_at_all() {
    let medium = medium(64, 1 << 20, 4096);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let options = |block_bytes| VolumeOptions { bytes: 1 << 20, block_bytes, ..VolumeOptions::default() };
    let (a, b) = (disk.create_volume("a", &options(4096)).unwrap(), disk.create_volume("b", &options(64)).unwrap());
    a.write_at(4096, &[9; 4096]).unwrap();
    disk.take_snapshot("before", &SnapshotOptions::default()).unwrap();
    let batches = disk.counters().batches;
    let whole = |volume, block, bytes| Whole { volume, block, bytes };
    let lsn = disk
        .write_together(&[whole(&a, 1, &[1; 100]), whole(&b, 7, &[2; 64]), whole(&a, 3, b"x"), whole(&b, 9, &[])])
        .unwrap();
    assert!(disk.flush(Survive::Power).unwrap() >= lsn);
    assert!(disk.counters().batches <= batches + 1, "one batch");
    let check = |disk: &Disk| {
        let (a, b) = (disk.volume("a").unwrap(), disk.volume("b").unwrap());
        let mut block = [7; 4096];
        a.read_at(4096, &mut block).unwrap();
        assert_eq!((&block[..100], &block[100..]), (&[1; 100][..], &[0; 3996][..]));
        a.read_at(3 * 4096, &mut block).unwrap();
        assert_eq!((block[0], &block[1..]), (b'x', &[0; 4095][..]));
        let mut small = [7; 64];
        b.read_at(7 * 64, &mut small).unwrap();
        assert_eq!(small, [2; 64]);
        b.read_at(9 * 64, &mut small).unwrap();
        assert_eq!(small, [0; 64]);
        let mut old = [7; 4096];
        disk.volume_at("before", "a").unwrap().read_at(4096, &mut old).unwrap();
        assert_eq!(old, [9; 4096], "what the snapshot sees");
    };
    check(&disk);
    // Refused as a whole.
    for (blocks, kind) in [
        (vec![whole(&a, 1, &[5; 10]), whole(&a, 256, b"beyond")], ErrorKind::OutOfRange),
        (vec![whole(&a, 1, &[5; 10]), whole(&a, 1, b"twice")], ErrorKind::InvalidArgument),
        (vec![whole(&a, 1, &[5; 10]), whole(&b, 1, &[5; 65])], ErrorKind::InvalidArgument),
    ] {
        assert_eq!(disk.write_together(&blocks).unwrap_err().kind(), kind);
    }
    check(&disk);
    // More than one batch takes: a unit.
    let many: Vec<Whole<'_>> = (20..60).map(|block| whole(&a, block, &[3; 4096])).collect();
    disk.write_together(&many).unwrap();
    drop(many);
    drop((a, b));
    disk.close().unwrap();
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    check(&disk);
    disk.close().unwrap();
    assert!(Disk::check(medium).unwrap().problems.is_empty());
}
