//! The images of cuts small enough to count by hand.

use super::CrashImage;
use crate::chooser::Chooser;
use crate::platter::{CrashClass, Platter};
use crate::trace::{Erased, NOISE, TracingMedium};
use lode_media::{Geometry, Medium, Position, ZoneId};
use std::collections::BTreeSet;
use std::sync::Arc;

const SECTOR: usize = 64;
const SHAPE: Geometry = Geometry { zones: 2, zone_bytes: 512, append_align: 64, devices: 1 };
const SUBSETS: CrashClass = CrashClass { tear: false, undefined: false, full_sectors_max: 12, ordered: true };

fn at(sector: u32) -> Position {
    Position { zone: ZoneId(0), offset: sector * 64 }
}

/// A zone of eight ones, durable, then erased; `then` goes on.
fn device(then: impl FnOnce(&TracingMedium)) -> Platter {
    let medium = TracingMedium::new(SHAPE, Erased::Old);
    medium.erase(ZoneId(0)).expect("the zone exists");
    medium.append(at(0), &[&[1; 512]]).expect("the zone is erased");
    medium.sync().expect("it cannot fail");
    then(&medium);
    let mut platter = Platter::new(SHAPE, medium.first_byte());
    for op in medium.ops() {
        platter.step(&op);
    }
    platter
}

/// What all images hold in the first `sectors` sectors, one byte for each, or `?` for a mixed one.
fn images(platter: &Platter, class: CrashClass, sectors: usize) -> (usize, BTreeSet<Vec<u8>>) {
    let cut = Arc::new(platter.cut(class));
    let mut chooser = Chooser::exhaustive();
    let mut seen = BTreeSet::new();
    let mut count = 0;
    loop {
        let image = CrashImage::new(Arc::clone(&cut), chooser);
        let mut bytes = vec![0; sectors * SECTOR];
        image.read(at(0), &mut bytes).expect("inside");
        let firsts =
            bytes.chunks(SECTOR).map(|sector| if sector.iter().all(|b| *b == sector[0]) { sector[0] } else { b'?' });
        seen.insert(firsts.collect());
        count += 1;
        chooser = image.chooser();
        if !chooser.advance() {
            return (count, seen);
        }
    }
}

fn rewrite(medium: &TracingMedium, byte: u8, sectors: usize) {
    medium.erase(ZoneId(0)).expect("the zone exists");
    medium.append(at(0), &[&vec![byte; sectors * SECTOR]]).expect("the zone is erased");
}

#[test]
fn what_is_synced_stays() {
    let platter = device(|medium| {
        rewrite(medium, 2, 3);
        medium.sync().expect("it cannot fail");
    });
    assert_eq!(images(&platter, SUBSETS, 3), (1, BTreeSet::from([vec![2, 2, 2]])));
}

#[test]
fn every_subset_of_an_unsynced_append_is_made_once() {
    let platter = device(|medium| rewrite(medium, 2, 3));
    let (count, seen) = images(&platter, SUBSETS, 3);
    assert_eq!((count, seen.len()), (8, 8));
    assert!(seen.contains(&vec![1, 2, 1]));
}

#[test]
fn what_is_not_read_is_not_branched_on() {
    let platter = device(|medium| rewrite(medium, 2, 3));
    assert_eq!(images(&platter, SUBSETS, 1), (2, BTreeSet::from([vec![1], vec![2]])));
}

#[test]
fn a_torn_sector_is_old_new_garbage_or_zeros() {
    let platter = device(|medium| rewrite(medium, 2, 2));
    let (count, seen) = images(&platter, CrashClass { tear: true, ..SUBSETS }, 2);
    assert_eq!((count, seen.len()), (16, 16));
    assert!(seen.contains(&vec![NOISE, 0]));
}

#[test]
fn a_version_between_may_be_what_is_left() {
    let platter = device(|medium| {
        rewrite(medium, 2, 1);
        rewrite(medium, 3, 1);
    });
    assert_eq!(images(&platter, SUBSETS, 1).1, BTreeSet::from([vec![1], vec![2], vec![3]]));
}

#[test]
fn an_erased_zone_is_old_garbage_or_zeros_as_a_whole() {
    let class = CrashClass { undefined: true, ..SUBSETS };
    let pending = device(|medium| medium.erase(ZoneId(0)).expect("the zone exists"));
    let expected = BTreeSet::from([vec![1, 1], vec![NOISE, NOISE], vec![0, 0]]);
    assert_eq!(images(&pending, class, 2), (3, expected.clone()));
    let synced = device(|medium| {
        medium.erase(ZoneId(0)).expect("the zone exists");
        medium.sync().expect("it cannot fail");
    });
    assert_eq!(images(&synced, class, 2), (3, expected));
    assert_eq!(images(&synced, SUBSETS, 2).0, 1);
}

#[test]
fn the_reduced_class_has_its_members_and_no_others() {
    let platter = device(|medium| rewrite(medium, 2, 5));
    let (_, reduced) = images(&platter, CrashClass { full_sectors_max: 4, ..SUBSETS }, 5);
    let (_, all) = images(&platter, SUBSETS, 5);
    assert_eq!(all.len(), 32);
    assert!(reduced.is_subset(&all));
    let mut expected = BTreeSet::from([vec![1; 5], vec![2; 5]]);
    for one in 0..5 {
        expected.insert((0..5).map(|place| if place == one { 1 } else { 2 }).collect());
        expected.insert((0..5).map(|place| if place == one { 2 } else { 1 }).collect());
        expected.insert((0..5).map(|place| if place < one { 2 } else { 1 }).collect());
    }
    assert!(expected.is_subset(&reduced));
    assert!(reduced.len() <= expected.len() + 1, "beside these there is one random mix");
}

#[test]
fn what_a_crash_has_shown_is_a_fact_and_what_it_has_not_shown_is_open() {
    let platter = device(|medium| rewrite(medium, 2, 2));
    let image = CrashImage::new(Arc::new(platter.cut(SUBSETS)), Chooser::replay(&[1]));
    let mut byte = [0];
    image.read(at(0), &mut byte).expect("inside");
    assert_eq!(byte, [1]);
    let (_, seen) = images(&image.platter(1), SUBSETS, 2);
    assert_eq!(seen, BTreeSet::from([vec![1, 1], vec![1, 2]]));
}

#[test]
fn what_a_killed_life_had_not_synced_may_still_be_lost_in_the_next() {
    let mut platter = device(|medium| rewrite(medium, 2, 1));
    let image = CrashImage::new(Arc::new(platter.cut(SUBSETS)), Chooser::exhaustive());
    let mut byte = [0];
    image.read(at(0), &mut byte).expect("inside");
    assert_eq!(byte, [2]);
    for op in image.ops() {
        platter.step(&op);
    }
    assert_eq!(images(&platter, SUBSETS, 1).1, BTreeSet::from([vec![1], vec![2]]));
}

#[test]
fn an_append_over_what_is_synced_or_without_the_erase_is_a_violation() {
    let unsynced_erase = device(|medium| rewrite(medium, 2, 1));
    let image = CrashImage::new(Arc::new(unsynced_erase.cut(SUBSETS)), Chooser::exhaustive());
    assert!(image.append(at(1), &[&[3; 64]]).is_err());
    assert_eq!(image.violations().len(), 1);
    let two_synced = device(|medium| {
        rewrite(medium, 2, 2);
        medium.sync().expect("it cannot fail");
        medium.append(at(2), &[&[2; 64]]).expect("it goes on");
    });
    let image = CrashImage::new(Arc::new(two_synced.cut(SUBSETS)), Chooser::exhaustive());
    assert!(image.append(at(1), &[&[3; 64]]).is_err());
    image.append(at(2), &[&[3; 64]]).expect("what was there was not synced");
    let mut bytes = [0; 4 * SECTOR];
    image.read(at(0), &mut bytes).expect("inside");
    assert_eq!([bytes[0], bytes[64], bytes[128], bytes[192]], [2, 2, 3, 1]);
}

#[test]
fn what_recovery_writes_is_read_back_and_recorded() {
    let platter = device(|medium| rewrite(medium, 2, 1));
    let image = CrashImage::new(Arc::new(platter.cut(SUBSETS)), Chooser::exhaustive());
    image.erase(ZoneId(0)).expect("the zone exists");
    image.append(at(0), &[&[4; 64], &[5; 64]]).expect("the zone is erased");
    let mut bytes = [0; 128];
    image.read(at(0), &mut bytes).expect("inside");
    assert_eq!((bytes[63], bytes[64]), (4, 5));
    assert_eq!(image.recorded(), 2);
}
