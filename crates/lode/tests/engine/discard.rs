//! Free zones whose space is given back (R3): on a real file, when the file system below is full, and cut at every call.

use super::tape::{self, Fate, Tape};
use lode::{Disk, FormatOptions, OpenOptions, Survive, VolumeOptions};
use lode_media::file::{CreateOptions, RawImage};
use lode_media::{ErrorKind, Geometry, Medium};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

const ZONE: u32 = 64 << 10;
const ZONES: u32 = 160;
const BLOCK: u64 = 4096;

fn options() -> OpenOptions {
    OpenOptions { discard: true, background: false, ..OpenOptions::default() }
}

fn settle(disk: &Disk) {
    while disk.maintain().unwrap() {}
}

/// A directory of its own, gone with the test.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("lode-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_image_takes_what_is_stored_in_it_and_shrinks_when_a_volume_is_deleted() {
    let scratch = Scratch::new("discard");
    let path = scratch.0.join("image");
    let whole = u64::from(ZONES) * u64::from(ZONE);
    let raw = RawImage::create(&path, &CreateOptions { bytes: whole, force: false }).unwrap();
    let medium: Arc<dyn Medium> = Arc::new(raw.into_medium(ZONE).unwrap());
    let taken = || std::fs::metadata(&path).unwrap().blocks() * 512;
    Disk::format(medium.clone(), &FormatOptions { disk_id: 1 }).unwrap();
    assert!(taken() >= whole, "the image was reserved");
    let disk = Disk::open(medium.clone(), &options()).unwrap();
    settle(&disk);
    let empty = taken();
    assert!(empty < whole / 2, "{empty} of {whole} bytes are taken by an empty disk");
    let volume =
        disk.create_volume("v", &VolumeOptions { bytes: 4 << 20, block_bytes: 4096, ..Default::default() }).unwrap();
    let keep = disk.create_volume("keep", &VolumeOptions { bytes: BLOCK, ..Default::default() }).unwrap();
    keep.write_at(0, &[9; 4096]).unwrap();
    let noise: Vec<u8> = (0..4u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect();
    for n in 0..(4u64 << 20) / BLOCK {
        let from = usize::try_from(n * BLOCK).unwrap();
        volume.write_at(n * BLOCK, &noise[from..from + 4096]).unwrap();
        disk.maintain().unwrap();
    }
    disk.flush(Survive::Power).unwrap();
    settle(&disk);
    let full = taken();
    assert!(full > empty + (2 << 20), "{full} bytes are taken with 4 MiB stored, {empty} without");
    let mut read = vec![0; 4 << 20];
    volume.read_at(0, &mut read).unwrap();
    assert!(read == noise);
    drop(volume);
    disk.delete_volume("v").unwrap();
    while disk.info().unwrap().live > 100_000 {
        disk.maintain().unwrap();
    }
    // What is dead is cleaned when space is low; here it is asked for.
    for _ in 0..200 {
        disk.clean().unwrap();
        disk.checkpoint().unwrap();
        settle(&disk);
    }
    assert!(taken() < full - (2 << 20), "{} bytes are taken after the delete, {full} before", taken());
    assert!(disk.counters().zones_discarded > 100);
    disk.close().unwrap();
    // Without the option nothing is given back, and all of it is there.
    let disk = Disk::open(medium.clone(), &OpenOptions { background: false, ..OpenOptions::default() }).unwrap();
    let mut read = [0; 4096];
    disk.volume("keep").unwrap().read_at(0, &mut read).unwrap();
    assert_eq!(read, [9; 4096]);
    settle(&disk);
    assert_eq!(disk.counters().zones_discarded, 0);
    disk.close().unwrap();
    assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
}

fn discarding(tape: &Arc<Tape>) -> Disk {
    Disk::open(tape.clone(), &OpenOptions { discard: true, ..tape::bare() }).unwrap()
}

/// What clients discard is given back soon, without anybody being short of space.
#[test]
fn what_is_dead_is_given_back_when_nobody_writes() {
    let tape = Tape::formatted(ZONES, 8192, 512);
    let disk = discarding(&tape);
    settle(&disk);
    let options = VolumeOptions { bytes: 512 << 10, block_bytes: 512, ..Default::default() };
    let volume = disk.create_volume("w", &options).unwrap();
    for n in 0..128 {
        volume.write_at(n * BLOCK, &[7; 4096]).unwrap();
        disk.maintain().unwrap();
    }
    disk.flush(Survive::Power).unwrap();
    let rest = || {
        for _ in 0..200 {
            disk.maintain().unwrap();
        }
    };
    let given_back = || disk.counters().zones_discarded;
    rest();
    let before = given_back();
    rest();
    assert_eq!(given_back(), before, "nothing is dead");
    volume.discard(0, 512 << 10).unwrap();
    disk.flush(Survive::Power).unwrap();
    let roots = disk.counters().roots;
    rest();
    assert!(given_back() > before + 40, "{} zones, {before} before", given_back());
    let roots = disk.counters().roots - roots;
    assert!(roots < 20, "{roots} roots");
    drop(volume);
    disk.close().unwrap();
    assert_eq!(Disk::check(tape).unwrap().problems, Vec::<String>::new());
}

#[test]
fn when_the_file_system_below_is_full_new_data_is_refused_and_nothing_else() {
    let tape = Tape::formatted(ZONES, 8192, 512);
    let disk = discarding(&tape);
    settle(&disk);
    let discarded = tape.discards();
    assert!(discarded > 80, "only {discarded} zones of {ZONES} were given back");
    let free = disk.info().unwrap().free_zones;
    assert!(usize::try_from(free).unwrap() > discarded, "what was given back counts as free");
    tape.refuse_erases_of_discarded(true);
    disk.create_volume("w", &VolumeOptions { bytes: 4 << 20, block_bytes: 512, ..Default::default() }).unwrap();
    let volume = disk.volume("w").unwrap();
    let mut written = 0;
    let refused = loop {
        match volume.write_at(written * 512, &[3; 512]) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), lode::ErrorKind::Full);
    let info = disk.info().unwrap();
    assert!(info.free > 64 << 10, "there was space, but for the file system below");
    let trouble = info.trouble.unwrap();
    assert!(trouble.contains("erasing zone"), "{trouble}");
    // Commits, deletes and flushes have the reserve.
    disk.flush(Survive::Power).unwrap();
    volume.discard(0, 512).unwrap();
    disk.resize_volume("w", 2 << 20).unwrap();
    disk.flush(Survive::Power).unwrap();
    // There is space again.
    tape.refuse_erases_of_discarded(false);
    for n in 0..written {
        volume.write_at(n * 512, &[4; 512]).unwrap();
    }
    disk.flush(Survive::Power).unwrap();
    drop((volume, disk));
    let after = tape.cut_hard();
    assert_eq!(Disk::check(after).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_discard_that_fails_is_told_and_not_tried_again() {
    let tape = Tape::formatted(ZONES, 8192, 512);
    tape.fail_discards(ErrorKind::Io);
    let disk = discarding(&tape);
    settle(&disk);
    assert_eq!((tape.discards(), disk.counters().zones_discarded), (0, 0));
    assert!(disk.info().unwrap().trouble.unwrap().contains("giving back the space"));
    assert!(disk.info().unwrap().free_zones > 130, "the zones are free all the same");
    tape::write(&disk, 1, 1);
    disk.close().unwrap();
}

#[test]
fn cut_at_every_call_with_all_that_was_given_back_turned_to_noise_nothing_flushed_is_lost() {
    let geometry = Geometry { zones: 64, zone_bytes: 8192, append_align: 512, devices: 1 };
    let tape = Tape::formatted(geometry.zones, geometry.zone_bytes, geometry.append_align);
    let disk = discarding(&tape);
    let mut flushed = vec![(tape.len(), vec![0; 8])];
    let mut values = vec![0; 8];
    for round in 1..60u8 {
        for block in 0..8u8 {
            for filler in 0..12 {
                tape::put(&disk.volume("v").unwrap(), 20 + filler, round);
            }
            tape::put(&disk.volume("v").unwrap(), u64::from(block), round);
            values[usize::from(block)] = round;
        }
        // Zones are found dead by what nobody has flushed: these must not be given back.
        disk.clean().unwrap();
        disk.maintain().unwrap();
        disk.flush(Survive::Power).unwrap();
        flushed.push((tape.len(), values.clone()));
        disk.maintain().unwrap();
        disk.maintain().unwrap();
    }
    drop(disk);
    let (discards, reused) = (tape.discards(), tape.erases_of_discarded());
    assert!(discards > 20 && reused > 5, "{discards} zones given back, {reused} of them used again");
    for at in (flushed[0].0..tape.len()).step_by(7) {
        let kept = flushed.iter().rev().find(|(end, _)| *end <= at).unwrap();
        let last = flushed.iter().find(|(end, _)| *end > at).unwrap_or(kept);
        let after = tape.cut(at, |n, sector| if (n + sector) % 3 == 0 { Fate::New } else { Fate::Noise });
        let found = tape::recovered(&after, 8);
        for (block, value) in found.iter().enumerate() {
            assert!((kept.1[block]..=last.1[block]).contains(value), "block {block} at {at}: {value}");
        }
    }
}

#[test]
fn a_zone_that_is_dead_and_still_needed_after_a_crash_is_not_given_back() {
    let tape = Tape::formatted(ZONES, 8192, 512);
    let disk = discarding(&tape);
    let volume = disk.volume("v").unwrap();
    let write_all = |value| (0..40).for_each(|block| tape::put(&volume, block, value));
    write_all(1);
    disk.flush(Survive::Power).unwrap();
    write_all(2);
    disk.flush(Survive::Process).unwrap();
    for _ in 0..2 {
        disk.clean().unwrap();
    }
    assert!(disk.counters().zones_cleaned > 1, "zones were found dead");
    disk.maintain().unwrap();
    assert!(tape.discards() > 0, "there are many free zones, and some of them were given back");
    drop((volume, disk));
    // The records of the first write are in those zones, and replay begins with them.
    let found = tape::recovered(&tape.cut_hard(), 40);
    assert!(found.iter().all(|value| (1..=2).contains(value)), "{found:?}");
}
