#![allow(clippy::unwrap_used)]

use std::os::unix::fs::MetadataExt;

use super::*;
use crate::scratch::Scratch;

const GEOMETRY: Geometry = Geometry { zones: 64, zone_bytes: 1 << 20, append_align: 4096, devices: 1 };

fn at(zone: u32, offset: u32) -> Position {
    Position { zone: ZoneId(zone), offset }
}

fn read(medium: &SparseMedium, from: Position, len: usize) -> Vec<u8> {
    let mut into = vec![0x11; len];
    medium.read(from, &mut into).unwrap();
    into
}

#[test]
fn only_what_is_not_zero_is_stored() {
    for scratch in Scratch::everywhere() {
        let path = scratch.path("sparse");
        let medium = SparseMedium::create(&path, GEOMETRY).unwrap();
        let mut data = vec![0; 1 << 20];
        data[100_000] = 1;
        data[300_000..310_000].fill(2);
        for zone in 0..64 {
            medium.append(at(zone, 0), &[&data]).unwrap();
        }
        assert_eq!(medium.stored_bytes(), 64 * (4096 + 3 * 4096));
        assert!(read(&medium, at(63, 0), 1 << 20) == data);
        medium.sync().unwrap();
        assert!(std::fs::metadata(&path).unwrap().blocks() * 512 < 8 << 20);
        drop(medium);
        assert!(read(&SparseMedium::open(&path, GEOMETRY).unwrap(), at(7, 0), 1 << 20) == data);
    }
}

#[test]
fn erase_leaves_a_hole() {
    let scratch = Scratch::new();
    let medium = SparseMedium::create(scratch.path("sparse"), GEOMETRY).unwrap();
    medium.append(at(0, 0), &[&[1; 4096]]).unwrap();
    medium.append(at(1, 0), &[&[2; 4096]]).unwrap();
    medium.erase(ZoneId(0)).unwrap();
    medium.append(at(0, 0), &[&[0; 4096]]).unwrap();
    assert_eq!(read(&medium, at(0, 0), 1), [0]);
    assert_eq!(read(&medium, at(1, 0), 1), [2]);
}

#[test]
fn small_sectors_and_uneven_pieces_are_kept() {
    let scratch = Scratch::new();
    let geometry = Geometry { append_align: 512, ..GEOMETRY };
    let medium = SparseMedium::create(scratch.path("sparse"), geometry).unwrap();
    medium.append(at(0, 512), &[&[0; 700], &[3; 200], &[0; 124]]).unwrap();
    assert_eq!(read(&medium, at(0, 1211), 2), [0, 3]);
    assert_eq!(read(&medium, at(0, 1411), 2), [3, 0]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let scratch = Scratch::new();
    let path = scratch.path("sparse");
    let kind = |result: Result<SparseMedium>| result.unwrap_err().kind();
    assert_eq!(kind(SparseMedium::open(&path, GEOMETRY)), ErrorKind::NotFound);
    let medium = SparseMedium::create(&path, GEOMETRY).unwrap();
    assert_eq!(kind(SparseMedium::create(&path, GEOMETRY)), ErrorKind::NotEmpty);
    assert_eq!(kind(SparseMedium::open(&path, GEOMETRY)), ErrorKind::Busy);
    assert_eq!(medium.append(at(64, 0), &[]).unwrap_err().kind(), ErrorKind::OutOfBounds);
    assert_eq!(medium.erase(ZoneId(64)).unwrap_err().kind(), ErrorKind::OutOfBounds);
    drop(medium);
    let other = Geometry { zones: 63, ..GEOMETRY };
    assert_eq!(kind(SparseMedium::open(&path, other)), ErrorKind::OutOfBounds);
    let crooked = Geometry { zone_bytes: 5000, ..GEOMETRY };
    assert_eq!(kind(SparseMedium::create(scratch.path("other"), crooked)), ErrorKind::OutOfBounds);
}
