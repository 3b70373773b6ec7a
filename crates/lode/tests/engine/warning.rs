//! Whoever watches is warned before anybody gets `Full`, by whatever the space runs out.

use super::tape::{self, Tape};
use lode::{
    Disk, ErrorKind, FormatOptions, OpenOptions, SnapshotOptions, SpaceLevel, SpaceNews, Survive, VolumeOptions,
};
use lode_media::Geometry;
use lode_media::ram::RamMedium;
use std::sync::{Arc, Mutex};

/// A large volume on a disk whose levels are written down.
fn watched(options: &OpenOptions) -> (Arc<Tape>, Disk, Arc<Mutex<Vec<SpaceNews>>>) {
    let tape = Tape::formatted(120, 8192, 512);
    let (disk, told) = watching(Disk::open(tape.clone(), options).unwrap());
    (tape, disk, told)
}

fn watching(disk: Disk) -> (Disk, Arc<Mutex<Vec<SpaceNews>>>) {
    disk.create_volume("w", &VolumeOptions { bytes: 16 << 20, block_bytes: 512, ..Default::default() }).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let into = told.clone();
    disk.watch_space(move |news| into.lock().unwrap().push(news.clone()));
    (disk, told)
}

fn levels(told: &Mutex<Vec<SpaceNews>>) -> Vec<SpaceLevel> {
    told.lock().unwrap().iter().map(|news| news.level).collect()
}

/// Writes until the disk is full. Gives back how many blocks were written.
fn fill(disk: &Disk, mut seen: impl FnMut(u64)) -> u64 {
    let volume = disk.volume("w").unwrap();
    for block in 0.. {
        match volume.write_at(block * 512, &[1; 512]) {
            Ok(_) => seen(block),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full);
                return block;
            }
        }
    }
    unreachable!("a volume ends")
}

#[test]
fn both_levels_are_told_once_before_full_and_again_when_there_is_space() {
    use SpaceLevel::{Ample, Critical, Low};
    let (_, disk, told) = watched(&tape::bare());
    assert_eq!(disk.info().unwrap().space, Ample);
    let mut at = Vec::new();
    let blocks = fill(&disk, |block| {
        if told.lock().unwrap().len() > at.len() {
            at.push(block);
        }
    });
    assert_eq!(levels(&told), [Low, Critical]);
    assert!((85..95).contains(&(at[0] * 100 / blocks)), "low at {} of {blocks}", at[0]);
    assert!((94..99).contains(&(at[1] * 100 / blocks)), "critical at {} of {blocks}", at[1]);
    let info = disk.info().unwrap();
    let first = told.lock().unwrap()[0].clone();
    assert_eq!((info.space, first.usable, first.lacking), (Critical, info.usable, false));
    assert!(first.free * 100 < first.usable * 10 && first.free * 100 > first.usable * 9, "{first:?}");
    // A little more than nothing is still critical; at the limit it does not go to and fro.
    disk.volume("w").unwrap().discard(0, blocks / 40 * 512).unwrap();
    disk.maintain().unwrap();
    assert_eq!(levels(&told), [Low, Critical]);
    disk.delete_volume("w").unwrap();
    while disk.maintain().unwrap() {}
    let levels = levels(&told);
    assert_eq!(levels[..2], [Low, Critical]);
    assert_eq!(levels.last(), Some(&Ample));
    assert_eq!(disk.info().unwrap().space, Ample);
}

#[test]
fn what_units_snapshots_and_reservations_hold_counts_and_is_told() {
    let (_, disk, told) = watched(&tape::bare());
    let usable = disk.info().unwrap().usable;
    let reservation = disk.reserve(usable * 95 / 100 / 640, 512).unwrap();
    // What was asked for before it was low is given; whoever comes next is preceded by the news.
    assert_eq!(levels(&told), []);
    let blocks = fill(&disk, |_| {});
    assert!(blocks > 0);
    let last = told.lock().unwrap().last().unwrap().clone();
    assert_eq!(last.level, SpaceLevel::Critical);
    assert!(last.reserved * 100 > usable * 94, "{last:?}");
    drop(reservation);
    disk.maintain().unwrap();
    assert_eq!(levels(&told).last(), Some(&SpaceLevel::Ample));
    // Snapshots.
    let volume = disk.volume("w").unwrap();
    volume.write_at(0, &[2; 50 * 512]).unwrap();
    disk.take_snapshot("small", &SnapshotOptions::default()).unwrap();
    volume.write_at(0, &[3; 50 * 512]).unwrap();
    volume.write_at(0, &[4; 150 * 512]).unwrap();
    disk.take_snapshot("large", &SnapshotOptions::default()).unwrap();
    volume.write_at(0, &[5; 150 * 512]).unwrap();
    told.lock().unwrap().clear();
    fill(&disk, |_| {});
    assert_eq!(told.lock().unwrap()[0].snapshots, 2);
    let held = disk.held_by_snapshots().unwrap();
    assert_eq!((held[0].0.as_str(), held[1].0.as_str()), ("large", "small"));
    assert!(held[0].1 >= 100 * 512 && held[1].1 >= 50 * 512 && held[0].1 > held[1].1, "{held:?}");
}

#[test]
fn zones_that_cannot_be_had_are_told_before_full_though_there_is_space() {
    let (tape, disk, told) = watched(&OpenOptions { discard: true, ..tape::bare() });
    while disk.maintain().unwrap() {}
    tape.refuse_erases_of_discarded(true);
    let blocks = fill(&disk, |_| {});
    let news = told.lock().unwrap().last().unwrap().clone();
    assert!(news.lacking && news.level == SpaceLevel::Critical && news.free > 64 << 10, "{news:?}");
    tape.refuse_erases_of_discarded(false);
    disk.maintain().unwrap();
    disk.maintain().unwrap();
    assert_eq!(levels(&told).last(), Some(&SpaceLevel::Ample));
    assert!(fill(&disk, |_| {}) > blocks);
}

#[test]
fn a_disk_that_is_full_tells_so_at_once_and_thresholds_can_be_set() {
    let options = OpenOptions { low_percent: 50, critical_percent: 0, ..tape::bare() };
    let (tape, disk, told) = watched(&options);
    fill(&disk, |_| {});
    assert_eq!(levels(&told), [SpaceLevel::Low]);
    disk.flush(Survive::Power).unwrap();
    disk.close().unwrap();
    let disk = tape::open(&tape.restart());
    let told = Arc::new(Mutex::new(Vec::new()));
    let into = told.clone();
    disk.watch_space(move |news| into.lock().unwrap().push(news.level));
    assert_eq!(*told.lock().unwrap(), [SpaceLevel::Critical]);
    // Deletes say nothing new, and a second watcher is told too.
    let again = Arc::new(Mutex::new(Vec::new()));
    let into = again.clone();
    disk.watch_space(move |news| into.lock().unwrap().push(news.level));
    assert_eq!(*again.lock().unwrap(), [SpaceLevel::Critical]);
    disk.delete_volume("w").unwrap();
    while disk.maintain().unwrap() {}
    assert_eq!(told.lock().unwrap().last(), Some(&SpaceLevel::Ample));
    assert_eq!(again.lock().unwrap().last(), Some(&SpaceLevel::Ample));
}

#[test]
fn with_threads_no_writer_gets_full_before_the_watcher_was_called() {
    // Not the tape: of two appends of the threads either may come first.
    let medium = RamMedium::new(Geometry { zones: 120, zone_bytes: 8192, append_align: 512, devices: 1 });
    let medium = Arc::new(medium);
    Disk::format(medium.clone(), &FormatOptions { disk_id: 3 }).unwrap();
    let (disk, told) = watching(Disk::open(medium, &OpenOptions::default()).unwrap());
    let asking = disk.clone();
    // A watcher may ask the disk.
    disk.watch_space(move |_| assert!(asking.info().unwrap().usable > 0));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (disk, told) = (&disk, &told);
            scope.spawn(move || {
                let volume = disk.volume("w").unwrap();
                for block in 0.. {
                    if let Err(error) = volume.write_at((block * 4 + thread) * 512, &[1; 512]) {
                        assert_eq!(error.kind(), ErrorKind::Full);
                        assert_eq!(levels(told), [SpaceLevel::Low, SpaceLevel::Critical]);
                        return;
                    }
                }
            });
        }
    });
}
