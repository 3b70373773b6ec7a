//! What units drop of what they wrote: its space is given back at once (R27).
use crate::rules_space::{BLOCK, CHARGE, fill, options, plain, stamp, stamp_of};
use crate::watch::Watched;
use lode::{Disk, ErrorKind, OpenOptions, Survive};

/// R27: what a unit drops of what it wrote is promised no longer, so on a full disk it can go on: with its data in memory
/// or spilled, discarded or cut off, with snapshots or without. What it still holds stays promised: others take all that
/// there is, and it commits.
#[test]
fn a_unit_gives_back_the_space_of_what_it_drops() {
    for (unit_memory_bytes, snapshot) in [(4 << 10, false), (1 << 20, false), (4 << 10, true), (1 << 20, true)] {
        let medium = Watched::disk(64, 64 << 10, 512);
        let disk = Disk::open(medium.clone(), &OpenOptions { unit_memory_bytes, ..plain() }).unwrap();
        let volume = disk.create_volume("v", &options(8 << 20)).unwrap();
        let other = disk.create_volume("other", &options(8 << 20)).unwrap();
        volume.write_at(0, &[1; 300 * 512]).unwrap();
        if snapshot {
            disk.take_snapshot("s", &Default::default()).unwrap();
        }
        fill(&other, 0);
        other.discard(0, 64 * 512).unwrap();
        if snapshot {
            disk.delete_snapshot("s").unwrap();
            disk.take_snapshot("t", &Default::default()).unwrap();
        }
        while disk.maintain().unwrap() {}
        let reserved = || disk.info().unwrap().reserved;
        let room = disk.info().unwrap().free / (CHARGE + if snapshot { 128 } else { 0 });
        assert!((20..600).contains(&room), "room for {room} blocks");
        let mut unit = disk.begin().unwrap();
        let piece = room * 3 / 4;
        for turn in 0..40u64 {
            let at = (turn % 3) * 100 * BLOCK;
            unit.write_at(&volume, at, &stamp(turn).repeat(usize::try_from(piece).unwrap())).unwrap();
            let more = vec![9; usize::try_from((room - piece + 1) * BLOCK).unwrap()];
            assert_eq!(unit.write_at(&volume, 7 << 20, &more).unwrap_err().kind(), ErrorKind::Full);
            if turn % 4 == 3 {
                unit.resize(&volume, at).unwrap();
                unit.resize(&volume, 8 << 20).unwrap();
            } else {
                unit.discard(&volume, at, piece * BLOCK).unwrap();
            }
            assert_eq!(reserved(), 0, "turn {turn}");
        }
        // What it holds in the end is a part of what it wrote.
        unit.write_at(&volume, 0, &stamp(77).repeat(usize::try_from(piece).unwrap())).unwrap();
        unit.discard(&volume, 0, (piece - 5) * BLOCK).unwrap();
        unit.write_at(&volume, (piece - 2) * BLOCK, &stamp(78)).unwrap();
        assert_eq!(reserved(), 5 * (CHARGE + if snapshot { 128 } else { 0 }));
        fill(&other, 4 << 20);
        unit.commit_and_flush(Survive::Power).unwrap();
        let info = disk.info().unwrap();
        // The layer that the commit made for the snapshot is charged then.
        let layers = if snapshot { 1024 } else { 0 };
        assert!(info.live <= info.usable + layers && info.reserved == 0, "{info:?}");
        let held: Vec<u64> = (piece - 7..piece + 2).map(|block| stamp_of(&volume, block)).collect();
        assert_eq!(held, [0, 0, 77, 77, 77, 78, 77, 0, 0]);
        disk.close().unwrap();
        assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
    }
}

/// What a unit drops goes back to the reservation that it drew on: others do not get it.
#[test]
fn what_was_drawn_on_a_reservation_is_given_back_to_it() {
    let disk = Disk::open(Watched::disk(64, 64 << 10, 512), &plain()).unwrap();
    let volume = disk.create_volume("v", &options(8 << 20)).unwrap();
    let other = disk.create_volume("other", &options(8 << 20)).unwrap();
    let mut reservation = disk.reserve(16, 512).unwrap();
    let mut unit = disk.begin().unwrap();
    unit.draw_on(&mut reservation, 16).unwrap();
    // Four that it is promised beside.
    unit.write_at(&volume, 1 << 20, &[3; 16 * 512]).unwrap();
    unit.write_at(&volume, 2 << 20, &[3; 4 * 512]).unwrap();
    fill(&other, 0);
    unit.discard(&volume, 1 << 20, 16 * 512).unwrap();
    assert_eq!(other.write_at(7 << 20, &[1; 512]).unwrap_err().kind(), ErrorKind::Full);
    assert_eq!(disk.info().unwrap().reserved, 20 * CHARGE);
    unit.write_at(&volume, 0, &stamp(4).repeat(16)).unwrap();
    unit.discard(&volume, 2 << 20, 4 * 512).unwrap();
    assert_eq!(disk.info().unwrap().reserved, 20 * CHARGE, "the reservation's part is given back first");
    unit.discard(&volume, 0, 16 * 512).unwrap();
    assert_eq!(disk.info().unwrap().reserved, 16 * CHARGE);
    assert_eq!(fill(&other, 7 << 20), 4);
    unit.write_at(&volume, 0, &stamp(4).repeat(16)).unwrap();
    unit.commit_and_flush(Survive::Power).unwrap();
    assert_eq!(disk.info().unwrap().reserved, 0);
    assert!((0..16).all(|block| stamp_of(&volume, block) == 4));
}

/// A block that a commit made part of the unit, to cut it, was promised nothing: taken back, it gives nothing back.
#[test]
fn what_was_never_promised_is_not_given_back() {
    let disk = Disk::open(Watched::disk(64, 64 << 10, 512), &plain()).unwrap();
    let volume = disk.create_volume("v", &options(8 << 10)).unwrap();
    let gone = disk.create_volume("gone", &options(8 << 10)).unwrap();
    volume.write_at(0, &[1; 8 << 10]).unwrap();
    let mut unit = disk.begin().unwrap();
    unit.resize(&volume, 1000).unwrap();
    unit.write_at(&gone, 0, &[1; 512]).unwrap();
    disk.delete_volume("gone").unwrap();
    assert_eq!(unit.try_commit().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(disk.info().unwrap().reserved, CHARGE);
    drop(unit);
    assert_eq!(disk.info().unwrap().reserved, 0);
}
