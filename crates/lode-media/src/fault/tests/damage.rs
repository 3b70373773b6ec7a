//! Failing calls, and damage beside cuts.

use super::*;

fn synced() -> FaultMedium<RamMedium> {
    let medium = medium(losing(1));
    medium.append(at(0, 0), &[&[1; 256]]).unwrap();
    medium.sync().unwrap();
    medium
}

#[test]
fn the_nth_call_fails_once_or_for_ever() {
    type Call = fn(&FaultMedium<RamMedium>) -> Result<()>;
    let calls: [(FaultPoint, Call); 4] = [
        (FaultPoint::Read, |medium| medium.read(at(0, 0), &mut [0])),
        (FaultPoint::Append, |medium| {
            medium.erase(ZoneId(1)).unwrap();
            medium.append(at(1, 0), &[&[1; 64]])
        }),
        (FaultPoint::Erase, |medium| medium.erase(ZoneId(2))),
        (FaultPoint::Sync, Medium::sync),
    ];
    for (point, call) in calls {
        let medium = synced();
        medium.fail(point, 3, Lasting::Once, ErrorKind::NoSpace);
        let kinds = [(); 4].map(|()| call(&medium).err().map(|error| error.kind()));
        assert_eq!(kinds, [None, None, Some(ErrorKind::NoSpace), None], "{point:?}");
        medium.fail(point, 2, Lasting::Forever, ErrorKind::Io);
        let kinds = [(); 4].map(|()| call(&medium).err().map(|error| error.kind()));
        assert_eq!(kinds, [None, Some(ErrorKind::Io), Some(ErrorKind::Io), Some(ErrorKind::Io)], "{point:?}");
        medium.heal();
        call(&medium).unwrap();
    }
}

#[test]
fn a_failed_append_may_have_written_its_front() {
    let mut fronts = BTreeSet::new();
    for seed in 0..100 {
        let medium = medium(FaultPlan::new(seed));
        medium.fail(FaultPoint::Append, 1, Lasting::Once, ErrorKind::Io);
        medium.append(at(0, 0), &[&[1; 128]]).unwrap_err();
        fronts.insert(read(&medium, at(0, 0), 192).into_iter().filter(|&byte| byte == 1).count());
    }
    assert_eq!(fronts, BTreeSet::from([0, 64, 128]));
}

#[test]
fn a_failed_sync_loses_the_data_and_the_next_one_succeeds() {
    let medium = synced();
    medium.append(at(0, 256), &[&[2; 64]]).unwrap();
    medium.fail(FaultPoint::Sync, 1, Lasting::Once, ErrorKind::Io);
    medium.sync().unwrap_err();
    assert_eq!(read(&medium, at(0, 256), 1), [2], "it is still to be seen");
    medium.append(at(0, 320), &[&[3; 64]]).unwrap();
    medium.sync().unwrap();
    restart(&medium);
    assert_eq!(read(&medium, at(0, 256), 1), [0], "it never was durable");
    assert_eq!(read(&medium, at(0, 320), 1), [3]);
}

#[test]
fn an_erase_lost_by_a_failed_sync_leaves_the_old_content() {
    let medium = synced();
    medium.erase(ZoneId(0)).unwrap();
    medium.fail(FaultPoint::Sync, 1, Lasting::Once, ErrorKind::Io);
    medium.sync().unwrap_err();
    medium.append(at(0, 0), &[&[2; 64]]).unwrap();
    medium.sync().unwrap();
    restart(&medium);
    assert_eq!(read(&medium, at(0, 63), 2), [2, 1]);
}

#[test]
fn a_misdirected_append_lands_elsewhere() {
    let medium = medium(losing(1));
    medium.misdirect_next(Some(at(3, 100)));
    medium.append(at(0, 0), &[&[1; 128]]).unwrap();
    medium.append(at(0, 128), &[&[2; 64]]).unwrap();
    medium.sync().unwrap();
    restart(&medium);
    assert_eq!(read(&medium, at(0, 127), 2), [0, 2]);
    assert_eq!(read(&medium, at(3, 63), 2), [0, 1]);
    assert_eq!(read(&medium, at(3, 191), 2), [1, 0]);
    medium.misdirect_next(None);
    medium.append(at(1, 0), &[&[3; 1024]]).unwrap();
    let found = (0..4).filter(|&zone| read(&medium, at(zone, 0), 1024) == [3; 1024]).count();
    assert_eq!(found, 1);
}

#[test]
fn rot_stays_until_the_zone_is_erased() {
    let medium = synced();
    medium.rot(at(0, 70), 0b101).unwrap();
    restart(&medium);
    assert_eq!(read(&medium, at(0, 69), 3), [1, 0b100, 1]);
    assert_eq!(medium.rot(at(4, 0), 1).unwrap_err().kind(), ErrorKind::OutOfBounds);
    medium.erase(ZoneId(0)).unwrap();
    medium.append(at(0, 0), &[&[1; 256]]).unwrap();
    medium.sync().unwrap();
    assert_eq!(read(&medium, at(0, 0), 256), [1; 256]);
}

#[test]
fn rot_chosen_by_chance_hits_what_was_synced() {
    assert_eq!(medium(losing(1)).rot_somewhere(), None);
    for _ in 0..20 {
        let medium = synced();
        let hit = medium.rot_somewhere().unwrap();
        assert!(hit.zone == ZoneId(0) && hit.offset < 256);
        let found = read(&medium, hit, 1)[0];
        assert_eq!((found ^ 1).count_ones(), 1);
    }
}

#[test]
fn an_unreadable_sector_fails_until_it_is_written_again() {
    let medium = synced();
    medium.make_unreadable(at(0, 100), 30).unwrap();
    for (offset, len, fails) in [(0, 64, false), (63, 2, true), (130, 1, true), (192, 64, false), (128, 0, false)] {
        assert_eq!(medium.read(at(0, offset), &mut vec![0; len]).is_err(), fails, "{len} bytes at {offset}");
    }
    restart(&medium);
    assert_eq!(medium.read(at(0, 64), &mut [0]).unwrap_err().kind(), ErrorKind::Io);
    medium.erase(ZoneId(0)).unwrap();
    medium.sync().unwrap();
    medium.read(at(0, 64), &mut [0]).unwrap();
}

#[test]
fn a_read_that_goes_wrong_once_is_right_the_next_time() {
    let medium = synced();
    medium.flip_reads(1);
    let wrong: u32 = read(&medium, at(0, 0), 64).iter().map(|byte| (byte ^ 1).count_ones()).sum();
    assert_eq!(wrong, 1);
    assert_eq!(read(&medium, at(0, 0), 64), [1; 64]);
    medium.set_plan(FaultPlan { read_flip_per_mille: 1000, ..FaultPlan::new(2) });
    assert_ne!(read(&medium, at(0, 0), 64), [1; 64]);
}

#[test]
fn threads_may_use_it_side_by_side() {
    let medium = medium(FaultPlan::new(1));
    std::thread::scope(|scope| {
        for zone in 0..4_u8 {
            let medium = &medium;
            scope.spawn(move || {
                for sector in 0..16 {
                    let place = at(u32::from(zone), sector * 64);
                    medium.append(place, &[&[zone; 64]]).unwrap();
                    medium.sync().unwrap();
                    assert_eq!(read(medium, place, 64), [zone; 64]);
                }
            });
        }
    });
    restart(&medium);
    assert_eq!(read(&medium, at(3, 1000), 24), [3; 24]);
}
