//! Rules of tables: the schedules that R22 to R25 answer.
use crate::basics::quiet;
use crate::watch::{Cuts, Event, Watched};
use lode::{Disk, OpenOptions, Survive, Volume, VolumeOptions};
use lode_media::{Position, ZoneId};

const BLOCK: u64 = 512;

fn options(bytes: u64, block_bytes: u32) -> VolumeOptions {
    VolumeOptions { bytes, block_bytes, ..VolumeOptions::default() }
}

fn windowed(bytes: u64) -> OpenOptions {
    OpenOptions { checkpoint_window_bytes: Some(bytes), cache_bytes: 0, ..quiet() }
}

fn read_only() -> OpenOptions {
    OpenOptions { read_only: true, cache_bytes: 0, ..quiet() }
}

fn read(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0xee; usize::try_from(volume.bytes()).unwrap()];
    volume.read_at(0, &mut bytes).unwrap();
    bytes
}

/// One block that says when it was written.
fn stamp(step: u64) -> Vec<u8> {
    step.to_le_bytes().repeat(64)
}

fn stamp_of(volume: &Volume, block: u64) -> u64 {
    let mut bytes = [0; 8];
    volume.read_at(block * BLOCK, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// Draws numbers that look like chance and are the same each time.
fn drawn(step: u64, below: u64) -> u64 {
    (step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 33) % below
}

/// R22: a large section changes by one block, and a checkpoint follows; a thousand times. Neither is the section
/// written whole each time, nor do its changes pile up until reading it takes them all.
#[test]
fn a_small_change_of_a_large_section_is_written_as_a_delta_and_deltas_do_not_pile_up() {
    let medium = Watched::disk(64, 256 << 10, 512);
    let disk = Disk::open(medium.clone(), &windowed(1 << 30)).unwrap();
    let volume = disk.create_volume("v", &options(4096 * BLOCK, 512)).unwrap();
    for step in 0..4096u64 {
        volume.write_at(step * 769 % 4096 * BLOCK, &stamp(step)).unwrap();
    }
    let checkpoint = || {
        let before = disk.counters().checkpoint_bytes;
        disk.checkpoint().unwrap();
        disk.counters().checkpoint_bytes - before
    };
    let image = checkpoint();
    assert!(image > 2 * 4096 * 12, "two copies of 4096 blocks, out of order: {image} bytes");
    let mut sizes = Vec::new();
    for step in 0..1000u64 {
        volume.write_at(drawn(step, 4096) * BLOCK, &stamp(step)).unwrap();
        sizes.push(checkpoint());
    }
    let whole = sizes.iter().filter(|bytes| **bytes > image / 2).count();
    assert!(
        sizes[..8].iter().all(|bytes| *bytes < image / 4),
        "deltas of {:?} bytes, an image of {image}",
        &sizes[..8]
    );
    assert!((10..=60).contains(&whole), "the section was written whole {whole} times in 1000");
    drop((volume, disk));
    let disk = Disk::open(medium.clone(), &read_only()).unwrap();
    let (_, before) = medium.reads();
    disk.volume("v").unwrap().read_at(0, &mut [0; 512]).unwrap();
    let (_, after) = medium.reads();
    assert!(after - before < image, "{} bytes were read to load a part of the section", after - before);
}

/// R22: a volume is written over from front to end, again and again, with upkeep after each write, so that its sections
/// change at different times. At no time are many of them written at once, or work would stall for a checkpoint.
#[test]
fn the_tables_are_written_a_few_at_a_time() {
    let medium = Watched::disk(256, 64 << 10, 512);
    let disk = Disk::open(medium, &windowed(4 << 20)).unwrap();
    // Eight sections of 1024 blocks.
    let volume = disk.create_volume("v", &options(8192 * BLOCK, 512)).unwrap();
    let (mut most, mut before) = (0, disk.counters());
    for n in 0..8192 * 4 {
        let (section, within) = (n / 1024 % 8, n * 769 % 1024);
        volume.write_at((section * 1024 + within) * BLOCK, &stamp(n)).unwrap();
        while disk.maintain().unwrap() {}
        let now = disk.counters();
        most = most.max(now.checkpoint_bytes - before.checkpoint_bytes);
        before = now;
    }
    assert!(before.roots > 20, "{} roots", before.roots);
    let whole = 2 * 12 * 8192;
    assert!(most < whole / 2, "{most} bytes of tables at once, of {whole} in two copies");
}

/// R22: one section is changed once and then left alone while another changes all the time. The records behind the
/// first one's change, which a crash has to replay, stay as many as the window takes.
#[test]
fn a_section_that_changed_once_does_not_make_the_log_behind_it_grow() {
    let window = 512 << 10;
    let medium = Watched::disk(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &windowed(window)).unwrap();
    let volume = disk.create_volume("v", &options(4096 * BLOCK, 512)).unwrap();
    volume.write_at(4095 * BLOCK, &stamp(1)).unwrap();
    let mut most = 0;
    for step in 0..8000u64 {
        volume.write_at(step % 256 * BLOCK, &stamp(step)).unwrap();
        while disk.maintain().unwrap() {}
        if step % 500 == 499 {
            let left = Disk::open(medium.copy(), &read_only()).unwrap();
            most = most.max(left.info().unwrap().replayed);
            assert_eq!(stamp_of(&left.volume("v").unwrap(), 4095), 1);
        }
    }
    // An eighth more before a checkpoint is due, the segment that is being filled, and the one sealed last.
    let bound = (window / 8 * 9 + 2 * (64 << 10)) / BLOCK;
    assert!(most > 0 && most <= bound, "{most} records were replayed, {bound} fit in the window");
}

/// R23: sections are written at different times, so replay meets records that some sections include already, and others
/// do not. Usage that is counted twice would be found by the check, or stop the opening.
#[test]
fn a_record_that_a_section_includes_already_is_not_applied_to_it_again() {
    let medium = Watched::disk(192, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &windowed(256 << 10)).unwrap();
    let volume = disk.create_volume("v", &options(8192 * BLOCK, 512)).unwrap();
    let mut replayed = 0;
    let mut twin = vec![0; 8192];
    for step in 1..12_000u64 {
        // One of eight sections for a while, then the next.
        let block = step / 300 % 8 * 1024 + drawn(step, 1024);
        if step % 11 == 0 {
            volume.discard(block * BLOCK, BLOCK).unwrap();
        } else {
            volume.write_at(block * BLOCK, &stamp(step)).unwrap();
        }
        twin[usize::try_from(block).unwrap()] = if step % 11 == 0 { 0 } else { step };
        while disk.maintain().unwrap() {}
        if step % 97 == 0 {
            disk.flush(Survive::Process).unwrap();
            let left = medium.copy();
            let opened = Disk::open(left.clone(), &read_only()).unwrap();
            replayed += opened.info().unwrap().replayed;
            assert_eq!(opened.info().unwrap().live, disk.info().unwrap().live, "step {step}");
            let volume = opened.volume("v").unwrap();
            let found: Vec<u64> = (0..8192).map(|block| stamp_of(&volume, block)).collect();
            assert!(found == twin, "step {step}");
            assert_eq!(Disk::check(left).unwrap().problems, Vec::<String>::new(), "step {step}");
        }
    }
    assert!(replayed > 0 && disk.counters().roots > 10);
}

/// R23: a root reaches the medium, and of all that was appended and not synced before it nothing does. What the
/// sections that it names say must be there, and be the past of the disk.
#[test]
fn no_root_is_issued_before_everything_that_its_sections_include_is_durable() {
    let medium = Watched::disk(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &windowed(256 << 10)).unwrap();
    let volume = disk.create_volume("v", &options(1024 * BLOCK, 512)).unwrap();
    disk.flush(Survive::Power).unwrap();
    let begun = medium.events();
    for step in 1..9000u64 {
        volume.write_at(drawn(step, 1024) * BLOCK, &stamp(step)).unwrap();
        while disk.maintain().unwrap() {}
    }
    let journal = medium.journal();
    let mut cuts = Cuts::of(&medium, &journal);
    let roots: Vec<usize> = (begun..journal.len()).filter(|n| journal[*n].is_root()).collect();
    assert!(roots.len() > 20);
    for at in roots {
        let left = cuts.cut(at + 1, |_, event| event.is_root());
        let disk = Disk::open(left.clone(), &read_only()).unwrap_or_else(|error| panic!("event {at}: {error}"));
        let volume = disk.volume("v").unwrap();
        let mut newest = Vec::new();
        for block in 0..1024 {
            let found = stamp_of(&volume, block);
            assert!(found == 0 || drawn(found, 1024) == block, "event {at}: block {block} holds another one's content");
            newest.push(found);
        }
        // A prefix of the stream: of the steps up to the newest that is there, each block holds its own newest.
        let end = *newest.iter().max().unwrap();
        let mut expected = vec![0; 1024];
        for step in 1..=end {
            expected[usize::try_from(drawn(step, 1024)).unwrap()] = step;
        }
        assert!(newest == expected, "event {at}: not a prefix of the stream");
        assert_eq!(Disk::check(left).unwrap().problems, Vec::<String>::new(), "event {at}");
    }
}

/// Opens a disk with so many sections of the map, and tells how much that reads.
fn read_to_open(sections: u64) -> u64 {
    let medium = Watched::disk(192, 256 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    // A section has 4096 blocks.
    let volume = disk.create_volume("v", &options(sections * 4096 * 64, 64)).unwrap();
    for n in 0..sections * 4 {
        volume.write_at(n * 65536, &[5; 65536]).unwrap();
    }
    drop(volume);
    disk.close().unwrap();
    let left = medium.copy();
    let disk = Disk::open(left.clone(), &read_only()).unwrap();
    let (_, bytes) = left.reads();
    let (_, loaded, cold) = disk.inspect_lists().remove(0);
    assert_eq!(loaded, 0, "opening has read leaves of the map");
    assert_eq!(u64::try_from(cold).unwrap(), sections * 4);
    bytes
}

/// R24: a disk with many sections is opened. What that reads does not grow with them, but for their entries in the
/// directory.
#[test]
fn opening_reads_no_section_however_many_there_are() {
    let (few, many) = (read_to_open(2), read_to_open(34));
    // How much of the zone is read in which the log ends depends on where in it that is.
    assert!(many <= few + (256 << 10), "{few} bytes with 2 sections, {many} with 34, each of over 16 KiB");
}

/// R24: blocks are written, discarded and cut off after the checkpoint; then crashes come one after another before
/// anybody has used these sections, and a checkpoint too. When they are used at last, the records have reached them.
#[test]
fn records_since_the_checkpoint_reach_a_section_when_it_is_first_used() {
    let medium = Watched::disk(96, 256 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let volume = disk.create_volume("v", &options(4096 * BLOCK, 512)).unwrap();
    for block in 0..4096 {
        volume.write_at(block * BLOCK, &stamp(block + 1)).unwrap();
    }
    drop(volume);
    disk.close().unwrap();
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let volume = disk.volume("v").unwrap();
    let mut twin: Vec<u64> = (1..=4096).collect();
    for step in 0..500u64 {
        let block = drawn(step, 4096);
        volume.write_at(block * BLOCK, &stamp(10_000 + step)).unwrap();
        twin[usize::try_from(block).unwrap()] = 10_000 + step;
    }
    volume.discard(1000 * BLOCK, 1500 * BLOCK).unwrap();
    twin[1000..2500].fill(0);
    volume.write_at(1700 * BLOCK, &stamp(77)).unwrap();
    twin[1700] = 77;
    disk.resize_volume("v", 3500 * BLOCK).unwrap();
    twin.truncate(3500);
    disk.flush(Survive::Power).unwrap();
    drop((volume, disk));
    for crash in 0..3 {
        let disk = Disk::open(medium.clone(), &quiet()).unwrap();
        assert!(disk.info().unwrap().replayed > 500, "crash {crash}");
        let (_, loaded, cold) = disk.inspect_lists().remove(0);
        assert!(loaded == 0 && cold > 0, "crash {crash}: {loaded} leaves loaded, {cold} not");
    }
    for session in ["checkpoint", "look"] {
        let disk = Disk::open(medium.clone(), &quiet()).unwrap();
        if session == "checkpoint" {
            disk.checkpoint().unwrap();
            continue;
        }
        assert_eq!(disk.info().unwrap().replayed, 0);
        let volume = disk.volume("v").unwrap();
        assert_eq!(volume.bytes(), 3500 * BLOCK);
        let found: Vec<u64> = (0..3500).map(|block| stamp_of(&volume, block)).collect();
        assert!(found == twin);
    }
    assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
}

/// A disk after so many checkpoints that the roots went through both pairs of zones, with so many writes in front of
/// each. Everything is flushed at its end.
fn checkpointed(checkpoints: u64, writes: u64) -> (std::sync::Arc<Watched>, usize) {
    let medium = Watched::disk(64, 16 << 10, 512);
    let disk = Disk::open(medium.clone(), &windowed(1 << 30)).unwrap();
    let volume = disk.create_volume("v", &options(32 * BLOCK, 512)).unwrap();
    volume.write_at(0, &stamp(0).repeat(32)).unwrap();
    disk.flush(Survive::Power).unwrap();
    let begun = medium.events();
    for step in 1..=checkpoints {
        for n in 0..writes {
            volume.write_at((step + n) % 32 * BLOCK, &stamp(step)).unwrap();
        }
        disk.checkpoint().unwrap();
    }
    (medium, begun)
}

/// R25: the power fails at every append, erase and sync while roots go from one pair of zones to the other, with any
/// one of the calls in flight lost, or the last append half written.
#[test]
fn no_cut_while_roots_are_written_leaves_the_disk_without_one() {
    let (medium, begun) = checkpointed(100, 1);
    let journal = medium.journal();
    let erased = |pair: u32| {
        journal[begun..].iter().filter(|event| matches!(event, Event::Erase(zone) if zone.0 / 2 == pair)).count()
    };
    assert!(erased(0) >= 2 && erased(1) >= 2, "the roots went through both pairs");
    let mut cuts = Cuts::of(&medium, &journal);
    for at in begun..=journal.len() {
        // Each checkpoint begins only after the one before was durable.
        let durable = journal[begun..at].iter().filter(|event| event.is_root()).count() / 2;
        let see = |left: &std::sync::Arc<Watched>| {
            let disk = Disk::open(left.clone(), &read_only()).unwrap_or_else(|error| panic!("event {at}: {error}"));
            let bytes = read(&disk.volume("v").unwrap());
            let newest =
                bytes.chunks(512).map(|block| u64::from_le_bytes(block[..8].try_into().unwrap())).max().unwrap();
            assert!(newest + 1 >= u64::try_from(durable).unwrap(), "event {at}: only step {newest} of {durable}");
        };
        cuts.all(at, see);
        if at > begun
            && let Event::Append(place, bytes) = &journal[at - 1]
        {
            let left = cuts.cut(at - 1, |_, _| true);
            left.damage(*place, &bytes[..bytes.len() / 2]);
            see(&left);
            left.damage(*place, &vec![0x5a; bytes.len()]);
            see(&left);
        }
    }
}

/// R25: any one sector of the roots and tables is damaged, one after another, all of them. What the root before the
/// newest one names has been written over since, so it is no help.
#[test]
fn damage_to_any_one_sector_of_roots_and_tables_loses_nothing() {
    let (medium, _) = checkpointed(40, 1500);
    let disk = Disk::open(medium.clone(), &read_only()).unwrap();
    let expected = read(&disk.volume("v").unwrap());
    let tables: Vec<u32> = disk
        .inspect_segments()
        .into_iter()
        .filter(|view| ["roots", "tables-a", "tables-b"].contains(&view.holds))
        .map(|view| view.zone)
        .collect();
    assert!(tables.len() >= 6, "{tables:?}");
    let mut damaged = 0;
    for zone in tables {
        for sector in 0..(16 << 10) / 512 {
            let at = Position { zone: ZoneId(zone), offset: sector * 512 };
            let whole = medium.damage(at, &[0x5a; 512]);
            let disk = Disk::open(medium.clone(), &read_only()).unwrap_or_else(|error| panic!("{at:?}: {error}"));
            assert!(read(&disk.volume("v").unwrap()) == expected, "{at:?}");
            medium.damage(at, &whole);
            damaged += 1;
        }
    }
    assert!(damaged >= 6 * 32);
}

/// R25: the two copies of what is written for a checkpoint lie in different zones, whatever is lost of one of them.
#[test]
fn a_whole_zone_of_roots_or_tables_may_be_lost() {
    let (medium, _) = checkpointed(40, 1500);
    let disk = Disk::open(medium.clone(), &read_only()).unwrap();
    let expected = read(&disk.volume("v").unwrap());
    for view in disk.inspect_segments() {
        if ["roots", "tables-a", "tables-b"].contains(&view.holds) {
            let at = Position { zone: ZoneId(view.zone), offset: 0 };
            let whole = medium.damage(at, &[0x5a; 16 << 10]);
            let disk = Disk::open(medium.clone(), &read_only()).unwrap_or_else(|error| panic!("{at:?}: {error}"));
            assert!(read(&disk.volume("v").unwrap()) == expected, "{at:?}");
            medium.damage(at, &whole);
        }
    }
}

/// MI-31: the same work with windows of doubling size. A larger one means fewer roots and fewer bytes of checkpoints,
/// and more records to replay after a crash at the worst time.
#[test]
fn a_larger_window_writes_fewer_checkpoints_and_replays_more() {
    let mut before: Option<(u64, u64, u64)> = None;
    for shift in 17..=21 {
        let medium = Watched::disk(160, 64 << 10, 512);
        let disk = Disk::open(medium.clone(), &windowed(1 << shift)).unwrap();
        let volume = disk.create_volume("v", &options(4096 * BLOCK, 512)).unwrap();
        let mut replayed = 0;
        for step in 0..16_000u64 {
            volume.write_at(drawn(step, 4096) * BLOCK, &stamp(step)).unwrap();
            while disk.maintain().unwrap() {}
            if step % 200 == 0 {
                let left = Disk::open(medium.copy(), &read_only()).unwrap();
                replayed = replayed.max(left.info().unwrap().replayed);
            }
        }
        let counters = disk.counters();
        if let Some((roots, bytes, records)) = before {
            assert!(counters.roots < roots, "{} roots with a window of 2^{shift}, {roots} with half", counters.roots);
            assert!(
                counters.checkpoint_bytes < bytes,
                "{} bytes of checkpoints, {bytes} before",
                counters.checkpoint_bytes
            );
            assert!(replayed > records, "{replayed} records replayed, {records} before");
        }
        before = Some((counters.roots, counters.checkpoint_bytes, replayed));
    }
}

/// R13: small blocks take few bytes of log, so recovery is bounded by the number of records, too. Each opening goes on where
/// a crash left the one before, and the number is never larger.
#[test]
fn the_records_that_recovery_applies_are_bounded() {
    let most = 400;
    let many = OpenOptions { checkpoint_window_bytes: Some(1 << 30), ..quiet() };
    let few = OpenOptions { checkpoint_window_records: most, ..many.clone() };
    let mut replayed = 0;
    for options in [&many, &few] {
        let medium = Watched::disk(64, 256 << 10, 512);
        let mut written = 0;
        for opening in 0..3 {
            let disk = Disk::open(medium.clone(), options).unwrap();
            replayed = disk.info().unwrap().replayed;
            if opening > 0 && options.checkpoint_window_records == most {
                assert!(replayed <= most && replayed > 0, "{replayed} records replayed");
            }
            let volume = match disk.volume("v") {
                Ok(volume) => volume,
                Err(_) => disk.create_volume("v", &options_of_small()).unwrap(),
            };
            let roots = disk.counters().roots;
            for _ in 0..3000u64 {
                volume.write_at(drawn(written, 4096) * 64, &[7; 64]).unwrap();
                written += 1;
                if written % 10 == 0 {
                    disk.maintain().unwrap();
                }
            }
            if options.checkpoint_window_records == most {
                let roots = disk.counters().roots - roots;
                assert!(roots < 80, "{roots} roots for 3000 records: one for each eighth of what may be replayed");
            }
            disk.flush(Survive::Power).unwrap();
        }
        if options.checkpoint_window_records != most {
            assert!(replayed >= 6000, "bytes do not bound them: {replayed}");
        }
    }
}

fn options_of_small() -> VolumeOptions {
    options(4096 * 64, 64)
}

/// With the least bound that there is the keeper comes to rest all the same once nobody writes.
#[test]
fn the_keeper_comes_to_rest_whatever_the_bound() {
    let medium = Watched::disk(64, 256 << 10, 512);
    let options = OpenOptions { checkpoint_window_records: 1, ..windowed(1 << 30) };
    let disk = Disk::open(medium, &options).unwrap();
    let volume = disk.create_volume("v", &options_of_small()).unwrap();
    for block in 0..1000 {
        volume.write_at(block * 64, &[7; 64]).unwrap();
    }
    while disk.maintain().unwrap() {}
    let roots = disk.counters().roots;
    for _ in 0..10 {
        disk.maintain().unwrap();
    }
    assert_eq!(disk.counters().roots, roots);
}
