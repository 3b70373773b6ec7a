#![allow(clippy::unwrap_used)]

use super::*;
use crate::door::made_up;
use lode_fs::{Attributes, Ino, Kind};

fn known() -> Known {
    let found = Attributes {
        ino: Ino(9),
        generation: 3,
        kind: Kind::File,
        permissions: 0o4755,
        links: 2,
        uid: 1000,
        gid: 1001,
        device: 0,
        size: 5000,
        stored: 8192,
        accessed: Time::new(10, 1),
        modified: Time::new(11, 2),
        changed: Time::new(12, 3),
        made: Time::new(-1, 4),
    };
    Known { node: Node(9), found, believed: BELIEVED }
}

fn entry(name: &str) -> Entry {
    Entry { name: name.into(), ino: Ino(9), kind: Kind::Directory, next: 77 }
}

/// What is told in room for so many bytes.
fn told(room: usize, tell: impl FnOnce(&mut Told<'_>) -> Answer<()>) -> Answer<Vec<u8>> {
    let mut bytes = vec![0xee; room];
    let mut told = Told::new(&mut bytes);
    tell(&mut told)?;
    let len = told.done()?;
    bytes.truncate(len);
    Ok(bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

#[test]
fn answers_have_the_lengths_that_the_kernel_expects() {
    let statistics = Statistics { bytes: 1 << 20, free: 1 << 19, held: 0, inodes: 5, free_inodes: 4 };
    let known = known();
    let len = |tell: &dyn Fn(&mut Told<'_>) -> Answer<()>| told(4096, |told| tell(told)).unwrap().len();
    assert_eq!(len(&|told| told.attributes(&known)), 104);
    assert_eq!(len(&|told| told.entry(&known)), ENTRY_LEN);
    assert_eq!(len(&|told| told.looked(&Looked::Nothing)), ENTRY_LEN);
    let directory = made_up(crate::node::node(0, crate::node::TRANSACTIONS));
    assert_eq!(len(&|told| told.looked(&Looked::Here(directory))), ENTRY_LEN);
    assert_eq!(len(&|told| told.opened(&known)), ENTRY_LEN + 16);
    assert_eq!(len(&|told| told.statx(&known)), 288);
    assert_eq!(len(&|told| told.statistics(&statistics)), 80);
    assert_eq!(len(&|told| told.count(7)), 8);
}

#[test]
fn attributes_stand_at_their_places() {
    let bytes = told(4096, |told| told.entry(&known())).unwrap();
    assert_eq!([0, 8, 16, 24].map(|at| u64_at(&bytes, at)), [9, 3, BELIEVED.as_secs(), BELIEVED.as_secs()]);
    let attr = &bytes[40..];
    assert_eq!([0, 8, 16, 24, 32, 40].map(|at| u64_at(attr, at)), [9, 5000, 16, 10, 11, 12]);
    let numbers = [48, 52, 56, 60, 64, 68, 72, 76, 80].map(|at| u32_at(attr, at));
    assert_eq!(numbers, [1, 2, 3, 0o104_755, 2, 1000, 1001, 0, BLOCK]);
    let statx = told(4096, |told| told.statx(&known())).unwrap();
    // Made before 1970, and changed in front of modified there.
    let stat = &statx[32..];
    assert_eq!([64, 80, 96, 112].map(|at| u64_at(stat, at).cast_signed()), [10, -1, 12, 11]);
    assert_eq!([72, 88, 104, 120].map(|at| u32_at(stat, at)), [1, 4, 3, 2]);
    assert_eq!((u32_at(stat, 28), u64_at(stat, 40)), (0o104_755, 5000));
}

#[test]
fn a_listing_ends_where_there_is_no_room_and_names_end_at_eighths() {
    let bytes = told(4096, |told| {
        assert!(told.dirent(Node(9), &entry("12345678")) && told.dirent(Node(9), &entry("9")));
        Ok(())
    });
    let bytes = bytes.unwrap();
    assert_eq!(bytes.len(), 32 + 32);
    assert_eq!((u64_at(&bytes, 8), u32_at(&bytes, 16), u32_at(&bytes, 20)), (77, 8, 4));
    assert_eq!(&bytes[24 + 8 + 24..], b"9\0\0\0\0\0\0\0");
    for room in 0..(ENTRY_LEN + 32) {
        let bytes = told(room, |told| {
            assert!(!told.dirent_looked_up(&known(), &entry("name")));
            assert_eq!(told.dirent(Node(9), &entry("name")), room >= 32);
            Ok(())
        });
        assert_eq!(bytes.unwrap().len(), if room >= 32 { 32 } else { 0 });
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    for room in 0..ENTRY_LEN {
        assert_eq!(told(room, |told| told.entry(&known())).unwrap_err(), Errno::RANGE);
    }
    assert!(told(3, |told| told.bytes(b"four")).is_err());
}

/// Another user may not look into a transaction because root has just done so.
#[test]
fn what_depends_on_who_asks_is_asked_each_time() {
    let asked = Known { believed: crate::door::ASKED, ..known() };
    let bytes = told(4096, |told| told.looked(&Looked::Here(asked))).unwrap();
    assert_eq!([16, 24].map(|at| u64_at(&bytes, at)), [0, 0], "neither the name nor its attributes");
}
