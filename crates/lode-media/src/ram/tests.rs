#![allow(clippy::unwrap_used)]

use super::*;
use crate::ErrorKind;
use crate::fault::Rng;

fn geometry(append_align: u32) -> Geometry {
    Geometry { zones: 4, zone_bytes: 16 * append_align, append_align, devices: 1 }
}

fn at(zone: u32, offset: u32) -> Position {
    Position { zone: ZoneId(zone), offset }
}

fn read(medium: &RamMedium, from: Position, len: usize) -> Vec<u8> {
    let mut into = vec![0x11; len];
    medium.read(from, &mut into).unwrap();
    into
}

#[test]
fn random_appends_read_back_like_plain_bytes() {
    for align in [64, 512, 4096, 8192] {
        for fill in [0, NOISE] {
            let medium = RamMedium::filled(geometry(align), fill);
            let mut rng = Rng::new(u64::from(align));
            let zone_bytes = index(geometry(align).zone_bytes);
            let mut model = vec![vec![fill; zone_bytes]; 4];
            let mut ends = [0_usize; 4];
            for _ in 0..400 {
                let zone = rng.index(4);
                let left = (zone_bytes - ends[zone]) / index(align);
                if left == 0 {
                    medium.erase(ZoneId(u32::try_from(zone).unwrap())).unwrap();
                    ends[zone] = 0;
                    model[zone].fill(fill);
                    continue;
                }
                let len = (1 + rng.index(left.min(3))) * index(align);
                let mut data = vec![0; len];
                match rng.below(4) {
                    0 => {}
                    1 => data.fill(7),
                    2 => data.iter_mut().zip((0..8_u8).cycle()).for_each(|(byte, word)| *byte = word),
                    _ => rng.bytes(&mut data),
                }
                let place = at(u32::try_from(zone).unwrap(), u32::try_from(ends[zone]).unwrap());
                let cut = rng.index(len + 1);
                medium.append(place, &[&data[..cut], &data[cut..]]).unwrap();
                model[zone][ends[zone]..ends[zone] + len].copy_from_slice(&data);
                ends[zone] += len;
                let from = rng.index(zone_bytes);
                let len = rng.index(zone_bytes - from + 1);
                let found = read(&medium, at(place.zone.0, u32::try_from(from).unwrap()), len);
                assert_eq!(found, model[zone][from..from + len]);
            }
        }
    }
}

#[test]
fn uniform_sectors_take_no_memory() {
    let medium = RamMedium::new(geometry(4096));
    medium.append(at(0, 0), &[&[0; 8192], &[9; 4096]]).unwrap();
    let words: Vec<u8> = 0x0102_0304_0506_0708_u64.to_le_bytes().repeat(512);
    medium.append(at(0, 12288), &[&words]).unwrap();
    assert_eq!(medium.stored_bytes(), 0);
    let mut different = words;
    different[4095] = 0xFF;
    medium.append(at(0, 16384), &[&different]).unwrap();
    assert_eq!(medium.stored_bytes(), 4096);
    assert_eq!(read(&medium, at(0, 16384), 4096), different);
    assert_eq!(read(&medium, at(0, 12291), 10), [5, 4, 3, 2, 1, 8, 7, 6, 5, 4]);
    medium.erase(ZoneId(0)).unwrap();
    assert_eq!(medium.stored_bytes(), 0);
}

#[test]
fn what_was_not_appended_reads_as_zeros_or_noise() {
    for align in [64, 4096] {
        assert_eq!(read(&RamMedium::new(geometry(align)), at(1, 3), 5), [0; 5]);
        let noisy = RamMedium::noisy(geometry(align));
        assert_eq!(read(&noisy, at(1, 3), 5), [NOISE; 5]);
        noisy.append(at(1, align), &[&vec![1; index(align)]]).unwrap();
        assert_eq!(read(&noisy, at(1, align - 1), 2), [NOISE, 1]);
        noisy.erase(ZoneId(1)).unwrap();
        assert_eq!(read(&noisy, at(1, align), 1), [NOISE]);
    }
}

#[test]
fn appends_in_flight_come_in_any_order() {
    let medium = RamMedium::new(geometry(64));
    for sector in [3, 0, 2, 1, 5, 4] {
        medium.append(at(0, sector * 64), &[&[u8::try_from(sector).unwrap(); 64]]).unwrap();
    }
    assert_eq!(medium.zone(ZoneId(0)).read().ranges(), [(0, 384)]);
    assert_eq!(read(&medium, at(0, 255), 2), [3, 4]);
}

#[test]
fn an_append_over_another_panics_until_the_zone_is_erased() {
    for (start, len) in [(0, 64), (64, 64), (0, 256), (64, 192), (128, 64)] {
        let medium = RamMedium::new(geometry(64));
        medium.append(at(0, 64), &[&[1; 128]]).unwrap();
        let append = || medium.append(at(0, start), &[&vec![2; len]]).unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(append)).is_err();
        assert_eq!(panicked, start != 0 || len != 64, "{len} bytes at {start}");
        medium.erase(ZoneId(0)).unwrap();
        append();
    }
}

#[test]
fn requests_outside_are_refused() {
    let medium = RamMedium::new(geometry(4096));
    let results = [
        medium.read(at(4, 0), &mut [0]),
        medium.read(at(0, 16 * 4096), &mut [0]),
        medium.append(at(0, 1), &[&[0; 4096]]),
        medium.append(at(0, 0), &[&[0; 100]]),
        medium.append(at(0, 15 * 4096), &[&[0; 8192]]),
        medium.erase(ZoneId(4)),
        medium.overwrite(at(4, 0), &[0]),
    ];
    for result in results {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::OutOfBounds);
    }
}

#[test]
fn overwriting_changes_any_bytes() {
    for align in [64, 4096] {
        let medium = RamMedium::new(geometry(align));
        medium.overwrite(at(2, align - 1), &[1, 2, 3]).unwrap();
        assert_eq!(read(&medium, at(2, align - 2), 5), [0, 1, 2, 3, 0]);
    }
}

#[test]
fn it_counts() {
    let medium = RamMedium::new(geometry(64));
    medium.append(at(0, 0), &[&[0; 64], &[0; 64]]).unwrap();
    medium.sync().unwrap();
    medium.erase(ZoneId(0)).unwrap();
    read(&medium, at(0, 0), 1);
    assert_eq!(medium.counts(), Counts { appends: 1, appended_bytes: 128, reads: 1, erases: 1, syncs: 1, discards: 0 });
}

#[test]
fn threads_work_side_by_side() {
    let medium = RamMedium::new(geometry(4096));
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let medium = &medium;
            scope.spawn(move || {
                for sector in 0..8 {
                    let zone = u32::from(thread) / 2;
                    let place = at(zone, (sector * 2 + u32::from(thread) % 2) * 4096);
                    medium.append(place, &[&[thread; 4095], &[0xFF]]).unwrap();
                    assert_eq!(read(medium, place, 1), [thread]);
                }
            });
        }
    });
    assert_eq!(medium.stored_bytes(), 4 * 16 * 4096);
}

#[test]
fn a_discarded_zone_takes_no_memory_and_is_erased_before_it_is_used() {
    let medium = RamMedium::noisy(geometry(4096));
    let mut noise = vec![0; 4096];
    noise[0] = 1;
    medium.append(at(1, 0), &[&noise]).unwrap();
    assert_eq!(medium.stored_bytes(), 4096);
    medium.discard(ZoneId(1)).unwrap();
    assert_eq!((medium.stored_bytes(), medium.counts().discards), (0, 1));
    assert_eq!(read(&medium, at(1, 0), 2), [NOISE; 2]);
    let appended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| medium.append(at(1, 0), &[&noise])));
    assert!(appended.is_err(), "an append into a zone that is discarded and not erased");
    medium.erase(ZoneId(1)).unwrap();
    medium.append(at(1, 0), &[&noise]).unwrap();
    assert_eq!(medium.discard(ZoneId(4)).unwrap_err().kind(), ErrorKind::OutOfBounds);
}

#[test]
fn a_medium_grows_at_its_end_and_never_shrinks() {
    let medium = RamMedium::noisy(geometry(4096));
    medium.append(at(3, 0), &[&[3; 4096]]).unwrap();
    assert_eq!(medium.erase(ZoneId(4)).unwrap_err().kind(), ErrorKind::OutOfBounds);
    for (asked, zones) in [(Some(6), 6), (Some(2), 6), (None, 6)] {
        medium.grow(asked).unwrap();
        assert_eq!(medium.geometry().zones, zones);
    }
    assert_eq!((read(&medium, at(3, 0), 1), read(&medium, at(5, 0), 1)), (vec![3], vec![NOISE]));
    medium.append(at(5, 0), &[&[5; 4096]]).unwrap();
    assert_eq!(read(&medium, at(5, 0), 1), [5]);
}
