#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use super::*;
use crate::ram::NOISE;

mod damage;

const GEOMETRY: Geometry = Geometry { zones: 4, zone_bytes: 1024, append_align: 64, devices: 1 };

fn at(zone: u32, offset: u32) -> Position {
    Position { zone: ZoneId(zone), offset }
}

fn medium(plan: FaultPlan) -> FaultMedium<RamMedium> {
    FaultMedium::new(RamMedium::new(GEOMETRY), plan)
}

/// A plan by which everything unsynced is gone after a cut.
fn losing(seed: u64) -> FaultPlan {
    FaultPlan { drop_per_mille: 1000, erase_happens_per_mille: 0, ..FaultPlan::new(seed) }
}

fn read(medium: &dyn Medium, from: Position, len: usize) -> Vec<u8> {
    let mut into = vec![0x11; len];
    medium.read(from, &mut into).unwrap();
    into
}

fn restart(medium: &FaultMedium<RamMedium>) {
    medium.crash_now();
    medium.power_on();
}

#[test]
fn what_is_synced_survives_and_what_is_not_may_not() {
    let medium = medium(losing(1));
    medium.append(at(0, 0), &[&[1; 64]]).unwrap();
    medium.sync().unwrap();
    medium.append(at(0, 64), &[&[2; 64]]).unwrap();
    assert_eq!(medium.pending(), 1);
    assert_eq!(read(&medium, at(0, 63), 2), [1, 2]);
    restart(&medium);
    assert_eq!(read(&medium, at(0, 63), 2), [1, 0]);
    assert_eq!(medium.pending(), 0);
}

#[test]
fn without_power_nothing_goes() {
    let medium = medium(FaultPlan::new(1));
    medium.crash_now();
    assert!(!medium.is_on());
    let results =
        [medium.read(at(0, 0), &mut [0]), medium.append(at(0, 0), &[&[0; 64]]), medium.erase(ZoneId(0)), medium.sync()];
    for result in results {
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Io, "power is off"));
    }
    medium.power_on();
    medium.append(at(0, 0), &[&[0; 64]]).unwrap();
}

#[test]
fn a_cut_leaves_old_new_or_garbage_and_every_mixture() {
    let (mut starts, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..400 {
        let medium = medium(FaultPlan::new(seed));
        medium.append(at(0, 0), &[&[9; 64]]).unwrap();
        medium.sync().unwrap();
        medium.append(at(0, 64), &[&[1; 128]]).unwrap();
        medium.append(at(0, 192), &[&[2; 64]]).unwrap();
        restart(&medium);
        assert_eq!(read(&medium, at(0, 0), 64), [9; 64], "M3: what was synced is never damaged");
        let sectors: Vec<Vec<u8>> = [64, 128, 192].map(|offset| read(&medium, at(0, offset), 64)).to_vec();
        starts.insert(sectors.iter().zip([1, 1, 2]).map(|(s, new)| *s == [new; 64]).collect::<Vec<_>>());
        for (sector, new) in sectors.iter().zip([1, 1, 2]) {
            kinds.insert(match &sector[..] {
                whole if *whole == [new; 64] => "new",
                whole if *whole == [0; 64] => "old or zeros",
                whole if *whole == [NOISE; 64] => "noise",
                whole if whole.iter().all(|&byte| byte == new || byte == 0) => "shorn",
                _ => "random",
            });
        }
    }
    assert_eq!(starts.len(), 8, "every set of sectors arrives, in whatever order");
    assert_eq!(kinds.len(), 5, "{kinds:?}");
}

#[test]
fn the_same_seed_gives_the_same_ruin() {
    let ruin = |seed| {
        let medium = medium(FaultPlan { misdirect_per_mille: 300, ..FaultPlan::new(seed) });
        for zone in 0..4 {
            medium.erase(ZoneId(zone)).unwrap();
            medium.append(at(zone, 0), &[&[1; 512]]).unwrap();
        }
        restart(&medium);
        (0..4).map(|zone| read(&medium, at(zone, 0), 1024)).collect::<Vec<_>>()
    };
    assert_eq!(ruin(5), ruin(5));
    assert_ne!(ruin(5), ruin(6));
}

#[test]
fn an_erase_that_is_not_synced_may_or_may_not_have_happened() {
    let mut found = BTreeSet::new();
    for seed in 0..100 {
        let medium = medium(FaultPlan::new(seed));
        medium.append(at(0, 0), &[&[1; 1024]]).unwrap();
        medium.sync().unwrap();
        medium.erase(ZoneId(0)).unwrap();
        restart(&medium);
        let bytes: BTreeSet<u8> = read(&medium, at(0, 0), 1024).into_iter().collect();
        found.insert(bytes.into_iter().collect::<Vec<_>>());
    }
    for whole in [vec![1], vec![0], vec![NOISE], vec![0, 1, NOISE]] {
        assert!(found.contains(&whole), "{whole:?} is not among {found:?}");
    }
}

#[test]
fn an_erase_is_durable_once_synced_and_its_zone_can_be_appended_to() {
    for seed in 0..50 {
        let medium = medium(FaultPlan::new(seed));
        medium.append(at(0, 0), &[&[1; 1024]]).unwrap();
        medium.sync().unwrap();
        medium.erase(ZoneId(0)).unwrap();
        medium.append(at(0, 0), &[&[2; 64]]).unwrap();
        assert_eq!(read(&medium, at(0, 0), 64), [2; 64]);
        medium.sync().unwrap();
        restart(&medium);
        assert_eq!(read(&medium, at(0, 0), 64), [2; 64]);
        assert_eq!(read(&medium, at(0, 64), 64), [0; 64]);
    }
}

#[test]
fn every_cut_can_be_enumerated() {
    let mut images = BTreeSet::new();
    for number in 0..3 * 4 * 4 {
        let medium = medium(FaultPlan::new(1));
        medium.append(at(1, 0), &[&[1; 64]]).unwrap();
        medium.sync().unwrap();
        medium.erase(ZoneId(1)).unwrap();
        medium.append(at(1, 0), &[&[2; 128]]).unwrap();
        let mut rest = number;
        medium.crash_choosing(&mut |bound| {
            let choice = rest % bound;
            rest /= bound;
            choice
        });
        medium.power_on();
        images.insert(read(&medium, at(1, 0), 128));
    }
    // The first sector is 1, 2, noise or zeros; the second 0, 2 or noise; an erase that happened hides the 1.
    assert_eq!(images.len(), 4 * 3);
}

#[test]
fn the_medium_behind_can_be_had_as_the_cut_left_it() {
    for seed in 0..50 {
        let (one, other) = (medium(FaultPlan::new(seed)), medium(FaultPlan::new(seed)));
        for medium in [&one, &other] {
            medium.append(at(0, 0), &[&[1; 64]]).unwrap();
            medium.sync().unwrap();
            medium.append(at(0, 64), &[&[2; 640]]).unwrap();
            medium.rot(at(0, 3), 0x80).unwrap();
        }
        restart(&one);
        let settled = other.crash();
        assert_eq!(read(&settled, at(0, 0), 1024), read(&one, at(0, 0), 1024));
    }
}

#[test]
fn the_death_of_a_process_loses_nothing() {
    let medium = std::sync::Arc::new(medium(FaultPlan::new(1)));
    let first = std::sync::Arc::clone(&medium);
    std::thread::spawn(move || first.append(at(0, 0), &[&[1; 64]]).unwrap()).join().unwrap();
    assert_eq!(read(&medium, at(0, 0), 64), [1; 64]);
}

#[test]
fn a_discard_leaves_old_bytes_zeros_or_noise_and_a_cut_may_undo_it() {
    let (mut at_once, mut after_cut) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..60 {
        let medium = medium(FaultPlan::new(seed));
        medium.append(at(1, 0), &[&[7; 1024]]).unwrap();
        medium.sync().unwrap();
        medium.discard(ZoneId(1)).unwrap();
        at_once.insert(read(&medium, at(1, 0), 1)[0]);
        restart(&medium);
        after_cut.insert(read(&medium, at(1, 0), 1)[0]);
        medium.discard(ZoneId(1)).unwrap();
        medium.sync().unwrap();
        assert_eq!(medium.inner().counts().discards, 1);
        medium.erase(ZoneId(1)).unwrap();
        medium.append(at(1, 0), &[&[8; 64]]).unwrap();
        medium.sync().unwrap();
        assert_eq!(read(&medium, at(1, 0), 1), [8]);
    }
    assert_eq!(at_once, BTreeSet::from([0, 7, NOISE]));
    assert_eq!(after_cut, BTreeSet::from([0, 7, NOISE]));
    let medium = medium(FaultPlan::new(1));
    medium.fail(FaultPoint::Discard, 1, Lasting::Once, ErrorKind::Io);
    assert_eq!(medium.discard(ZoneId(1)).unwrap_err().kind(), ErrorKind::Io);
    medium.discard(ZoneId(1)).unwrap();
}
