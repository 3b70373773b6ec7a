//! A disk that becomes larger while it is in use.

use super::tape::{self, Fate, Tape};
use lode::{Disk, ErrorKind, FormatOptions, OpenOptions, SpaceLevel, Survive, VolumeOptions};
use lode_media::fault::{FaultMedium, FaultPlan, FaultPoint, Lasting};
use lode_media::ram::RamMedium;
use lode_media::{Geometry, Medium};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const ZONE: u32 = 8192;

fn ram(zones: u32) -> Arc<RamMedium> {
    let medium = RamMedium::noisy(Geometry { zones, zone_bytes: ZONE, append_align: 512, devices: 1 });
    let medium = Arc::new(medium);
    Disk::format(medium.clone(), &FormatOptions { disk_id: 3 }).unwrap();
    medium
}

fn sized(zones: u32) -> u64 {
    u64::from(zones) * u64::from(ZONE)
}

fn sound(medium: Arc<dyn Medium>) {
    assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
}

fn options() -> OpenOptions {
    OpenOptions { background: false, ..OpenOptions::default() }
}

/// Writes blocks from `first` on until the disk is full. Gives back the first that was not written.
fn fill(disk: &Disk, first: u64) -> u64 {
    let volume = disk.volume("v").unwrap();
    for block in first.. {
        match volume.write_at(block * 512, &block.to_le_bytes().repeat(64)) {
            Ok(_) if block % 64 == 0 => drop(disk.maintain().unwrap()),
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full);
                return block;
            }
        }
    }
    unreachable!("a volume ends")
}

#[test]
fn a_full_disk_goes_on_after_it_has_grown_and_has_all_of_it_when_it_is_opened_again() {
    let medium = ram(60);
    let disk = Disk::open(medium.clone(), &options()).unwrap();
    disk.create_volume("v", &VolumeOptions { bytes: 1 << 30, block_bytes: 512, ..Default::default() }).unwrap();
    let first = fill(&disk, 0);
    let before = disk.info().unwrap();
    assert_eq!(before.space, SpaceLevel::Critical);
    // Beyond one page of the zones table, and of the words of anything counted by bits.
    assert_eq!(disk.grow(Some(sized(300) + 5000)).unwrap(), sized(300));
    let after = disk.info().unwrap();
    assert_eq!((after.zones, after.image, after.space), (300, sized(300), SpaceLevel::Ample));
    assert!(after.usable > before.usable * 8 && after.free_zones >= before.free_zones + 240, "{after:?}");
    let second = fill(&disk, first);
    assert!(second > first * 8, "{first} blocks, then {second}");
    disk.flush(Survive::Power).unwrap();
    disk.close().unwrap();
    sound(medium.clone());
    let disk = Disk::open(medium.clone(), &options()).unwrap();
    assert_eq!((disk.info().unwrap().zones, disk.info().unwrap().usable), (300, after.usable));
    let volume = disk.volume("v").unwrap();
    for block in 0..second {
        let mut read = [0; 512];
        volume.read_at(block * 512, &mut read).unwrap();
        assert_eq!(read[..8], block.to_le_bytes(), "block {block}");
    }
    // Cleaned, written over and grown again.
    for block in 0..second {
        volume.write_at(block * 512, &[1; 512]).unwrap();
    }
    assert_eq!(disk.grow(Some(sized(301))).unwrap(), sized(301));
    disk.close().unwrap();
    sound(medium);
}

#[test]
fn threads_write_and_read_while_the_disk_grows() {
    let medium = ram(64);
    let options = OpenOptions { background: true, discard: true, ..OpenOptions::default() };
    let disk = Disk::open(medium.clone(), &options).unwrap();
    let done = AtomicBool::new(false);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    std::thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            let volume = disk
                .create_volume(name, &VolumeOptions { bytes: 1 << 20, block_bytes: 512, ..Default::default() })
                .unwrap();
            let (disk, done) = (&disk, &done);
            scope.spawn(move || {
                let mut full = 0;
                for round in 1.. {
                    let value = u8::try_from(round % 251).unwrap();
                    let block = u64::try_from(round * 7 % 300).unwrap();
                    match volume.write_at(block * 512, &[value; 512]) {
                        Ok(_) => {
                            let mut read = [0; 512];
                            volume.read_at(block * 512, &mut read).unwrap();
                            assert_eq!(read, [value; 512]);
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Full);
                            full += 1;
                        }
                    }
                    if round % 50 == 0 {
                        disk.flush(Survive::Power).unwrap();
                    }
                    // By the clock too, should a grow fail.
                    if done.load(Ordering::SeqCst) && round > 3000 || std::time::Instant::now() > until {
                        return full;
                    }
                }
                unreachable!("rounds do not end")
            });
        }
        for zones in [65, 80, 200, 201, 700, 1000] {
            std::thread::sleep(std::time::Duration::from_millis(15));
            assert_eq!(disk.grow(Some(sized(zones))).unwrap(), sized(zones));
        }
        done.store(true, Ordering::SeqCst);
    });
    assert_eq!(disk.info().unwrap().zones, 1000);
    assert_eq!(disk.info().unwrap().trouble, None);
    disk.close().unwrap();
    sound(medium.clone());
    assert_eq!(Disk::open(medium, &options).unwrap().info().unwrap().zones, 1000);
}

#[test]
fn cut_at_every_call_of_a_grow_the_disk_is_of_the_old_or_the_new_size_with_all_that_was_flushed() {
    let tape = Tape::formatted(44, ZONE, 512);
    let disk = tape::open(&tape);
    for block in 0..20 {
        tape::put(&disk.volume("v").unwrap(), block, 1);
    }
    disk.flush(Survive::Power).unwrap();
    let begun = tape.len();
    // Grows in the middle of changes that nobody has flushed.
    tape::put(&disk.volume("v").unwrap(), 3, 2);
    disk.grow(Some(sized(150))).unwrap();
    let grown = tape.len();
    disk.resize_volume("v", 1 << 20).unwrap();
    let volume = disk.volume("v").unwrap();
    // The old zones would not hold this.
    for block in 120..600 {
        tape::put(&volume, block, 3);
    }
    tape::put(&volume, 4, 3);
    disk.flush(Survive::Power).unwrap();
    let flushed = tape.len();
    for block in 120..200 {
        tape::put(&volume, block, 4);
    }
    disk.checkpoint().unwrap();
    disk.grow(Some(sized(151))).unwrap();
    drop((volume, disk));
    let mut both = [0, 0];
    for at in begun..=tape.len() {
        for fates in 0..4usize {
            let after = tape.cut(at, |n, sector| match fates {
                0 => Fate::Old,
                1 => Fate::New,
                2 => [Fate::New, Fate::Noise, Fate::Old][(n * 5 + sector) % 3],
                _ => [Fate::Noise, Fate::New][n % 2],
            });
            let zones = tape::open(&after.restart()).info().unwrap().zones;
            match zones {
                44 => assert!(at < grown, "the grow had returned, and the disk has its old size at {at}"),
                150 | 151 => assert!(at > begun),
                _ => panic!("{zones} zones at {at}"),
            }
            both[usize::from(zones > 44 && at < grown)] += 1;
            let found = tape::recovered(&after, 20);
            let wanted = |block| match block {
                3 if at >= flushed => 2..=2,
                3 => 1..=2,
                4 if at >= flushed => 3..=3,
                4 => 1..=3,
                _ => 1..=1,
            };
            for (block, value) in found.iter().enumerate() {
                assert!(wanted(block).contains(value), "block {block} is {value} at {at}, {fates}");
            }
            // Whatever was left, it can be grown (again).
            if at % 5 == 0 || at < grown + 5 {
                let disk = tape::open(&after.restart());
                disk.grow(Some(sized(152))).unwrap();
                fill_some(&disk);
                drop(disk);
            }
        }
    }
    assert!(both.iter().all(|count| *count > 0), "both sizes were found before the grow had returned: {both:?}");
}

fn fill_some(disk: &Disk) {
    disk.create_volume("more", &VolumeOptions { bytes: 1 << 20, block_bytes: 512, ..Default::default() }).unwrap();
    let volume = disk.volume("more").unwrap();
    for block in 0..100 {
        tape::put(&volume, block, 9);
    }
    disk.flush(Survive::Power).unwrap();
    assert_eq!(disk.info().unwrap().zones, 152);
}

#[test]
fn a_disk_opens_on_a_larger_medium_and_takes_what_is_there_when_asked_to() {
    let medium = ram(60);
    medium.grow(Some(90)).unwrap();
    let disk = Disk::open(medium.clone(), &options()).unwrap();
    assert_eq!(disk.info().unwrap().zones, 60);
    disk.close().unwrap();
    sound(medium.clone());
    let disk = Disk::open(medium.clone(), &options()).unwrap();
    assert_eq!(disk.grow(Some(sized(70))).unwrap(), sized(70));
    assert_eq!(disk.grow(None).unwrap(), sized(90));
    assert_eq!(disk.grow(None).unwrap(), sized(90));
    drop(disk);
    assert_eq!(Disk::open(medium, &options()).unwrap().info().unwrap().zones, 90);
}

#[test]
fn a_medium_that_lacks_zones_of_the_disk_is_refused() {
    let tape = Tape::formatted(60, ZONE, 512);
    let disk = tape::open(&tape);
    disk.grow(Some(sized(70))).unwrap();
    disk.close().unwrap();
    let end = usize::try_from(sized(69)).unwrap();
    let mut bytes = vec![0; end];
    for (zone, bytes) in bytes.chunks_mut(usize::try_from(ZONE).unwrap()).enumerate() {
        let zone = lode_media::ZoneId(u32::try_from(zone).unwrap());
        tape.read(lode_media::Position { zone, offset: 0 }, bytes).unwrap();
    }
    let short = Tape::new(Geometry { zones: 69, ..tape.geometry() }, bytes);
    let error = Disk::open(short, &options()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("at least 70 zones"), "{error}");
}

#[test]
fn a_disk_grown_as_far_as_it_goes_is_filled_with_the_smallest_blocks_that_count_and_opened() {
    let medium = ram(60);
    let disk = Disk::open(medium.clone(), &options()).unwrap();
    disk.create_volume("v", &VolumeOptions { bytes: 1 << 30, block_bytes: 512, ..Default::default() }).unwrap();
    let error = disk.grow(Some(u64::MAX)).unwrap_err().to_string();
    let most = error.split("at most ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    assert!(disk.grow(Some(most + u64::from(ZONE))).is_err());
    assert_eq!(disk.grow(Some(most)).unwrap(), most);
    let volume = disk.volume("v").unwrap();
    let mut blocks = fill(&disk, 0);
    assert!(blocks > 7_000, "{blocks}");
    disk.checkpoint().unwrap();
    // The cleaner gets some room, then blocks all over the disk are written again.
    let kept = blocks - blocks / 3;
    volume.discard(kept * 512, (blocks - kept) * 512).unwrap();
    blocks = kept;
    for n in 0..blocks / 4 {
        let block = n * 1_000_003 % blocks;
        volume.write_at(block * 512, &block.to_le_bytes().repeat(64)).unwrap();
        if n % 64 == 0 {
            disk.maintain().unwrap();
        }
    }
    assert_eq!(disk.info().unwrap().trouble, None);
    drop(volume);
    disk.close().unwrap();
    sound(medium.clone());
    let volume = Disk::open(medium, &options()).unwrap().volume("v").unwrap();
    for block in (0..blocks).step_by(7) {
        let mut read = [0; 512];
        volume.read_at(block * 512, &mut read).unwrap();
        assert_eq!(read[..8], block.to_le_bytes());
    }
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let faulty = Arc::new(FaultMedium::new(RamMedium::new(ram(60).geometry()), FaultPlan::new(1)));
    Disk::format(faulty.clone(), &FormatOptions { disk_id: 3 }).unwrap();
    let disk = Disk::open(faulty.clone(), &options()).unwrap();
    for (bytes, words) in [
        (0, "never becomes smaller"),
        (sized(60) - 1, "never becomes smaller"),
        (u64::MAX, "zones of 8192 bytes: more cannot be named"),
        (sized(3000), "zones of 8192 bytes: more cannot be named"),
    ] {
        let error = disk.grow(Some(bytes)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(words), "{error}");
    }
    faulty.fail(FaultPoint::Grow, 1, Lasting::Once, lode_media::ErrorKind::NoSpace);
    let error = disk.grow(Some(sized(80))).unwrap_err();
    assert_eq!((error.kind(), error.to_string().contains("making the image larger")), (ErrorKind::Media, true));
    assert_eq!(disk.info().unwrap().zones, 60);
    assert_eq!(disk.grow(Some(sized(60))).unwrap(), sized(60));
    // The disk is as good as it was.
    assert_eq!(disk.grow(Some(sized(80))).unwrap(), sized(80));
    // The root that names the zones cannot be written: they are not used, and nothing more is taken in (P8).
    faulty.fail(FaultPoint::Sync, 1, Lasting::Once, lode_media::ErrorKind::Io);
    disk.grow(Some(sized(100))).unwrap_err();
    assert_eq!(disk.info().unwrap().zones, 80);
    assert_eq!(disk.grow(Some(sized(100))).unwrap_err().kind(), ErrorKind::Failed);
    drop(disk);
    faulty.crash_now();
    faulty.power_on();
    let zones = Disk::open(faulty.clone(), &options()).unwrap().info().unwrap().zones;
    assert!(zones == 80 || zones == 100);
    let disk = Disk::open(faulty, &OpenOptions { read_only: true, ..options() }).unwrap();
    assert_eq!(disk.grow(Some(sized(120))).unwrap_err().kind(), ErrorKind::ReadOnly);
}

#[test]
fn a_log_that_nobody_shortens_does_not_outgrow_a_root() {
    let medium = ram(400);
    let disk = Disk::open(medium.clone(), &options()).unwrap();
    disk.create_volume("v", &VolumeOptions { bytes: 1 << 30, block_bytes: 512, ..Default::default() }).unwrap();
    let volume = disk.volume("v").unwrap();
    // No call of `maintain`: so many segments that their names would not fit.
    for block in 0..2400u64 {
        volume.write_at(block * 512, &[1; 512]).unwrap();
    }
    assert!(lode::marks().iter().any(|(mark, _)| *mark == "space: new data waits for a root"));
    drop(volume);
    disk.close().unwrap();
    sound(medium);
}
