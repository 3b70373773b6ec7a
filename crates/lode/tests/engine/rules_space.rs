//! Rules of space: the schedules that R26 to R28 answer.
use crate::basics::{medium, quiet};
use crate::watch::{Cuts, Event, Watched};
use lode::{Compression, Disk, ErrorKind, OpenOptions, Survive, Volume, VolumeOptions};
use lode_media::{Position, ZoneId};
use std::sync::Arc;

pub const BLOCK: u64 = 512;
/// What a stored block of 512 bytes is charged.
pub const CHARGE: u64 = 512 + 128;

pub fn options(bytes: u64) -> VolumeOptions {
    VolumeOptions { bytes, block_bytes: 512, ..VolumeOptions::default() }
}

pub fn plain() -> OpenOptions {
    OpenOptions { cache_bytes: 0, ..quiet() }
}

fn read_only() -> OpenOptions {
    OpenOptions { read_only: true, ..plain() }
}

pub fn stamp(step: u64) -> Vec<u8> {
    step.to_le_bytes().repeat(64)
}

pub fn stamp_of(volume: &Volume, block: u64) -> u64 {
    let mut bytes = [0; 512];
    volume.read_at(block * BLOCK, &mut bytes).unwrap();
    assert!(bytes.chunks(8).all(|word| word == &bytes[..8]), "block {block} is of two parts");
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

fn drawn(step: u64, below: u64) -> u64 {
    (step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 33) % below
}

/// Writes whole blocks from `offset` on until the disk is full; tells how many.
pub fn fill(volume: &Volume, offset: u64) -> u64 {
    for n in 0.. {
        match volume.write_at(offset + n * BLOCK, &stamp(n + 1)) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                return n;
            }
        }
    }
    unreachable!("a disk has an end")
}

/// A disk that was written over many times, and what of that had been flushed when each event happened.
struct Worn {
    medium: Arc<Watched>,
    blocks: u64,
    /// Before which event, and what each block held then at least.
    flushed: Vec<(usize, Vec<u64>)>,
    begun: usize,
}

/// Overwrites, cleans and checkpoints until many zones were used again; flushes now and then. The larger the window,
/// the fewer syncs the engine does by itself.
fn worn(window: u64) -> Worn {
    let medium = Watched::disk(64, 64 << 10, 512);
    let options_window = OpenOptions { checkpoint_window_bytes: Some(window), ..plain() };
    let disk = Disk::open(medium.clone(), &options_window).unwrap();
    let blocks = disk.info().unwrap().usable / CHARGE * 8 / 10;
    let volume = disk.create_volume("v", &options(blocks * BLOCK)).unwrap();
    let mut twin = vec![0; usize::try_from(blocks).unwrap()];
    let mut flushed = Vec::new();
    let mut begun = 0;
    for step in 1..=blocks * 4 {
        // Every block once, then one here and one there; a third of these again and again, so that zones grow old
        // apart.
        let below = if step % 3 == 0 { blocks / 20 } else { blocks };
        let block = if step <= blocks { step - 1 } else { drawn(step, below) };
        volume.write_at(block * BLOCK, &stamp(step)).unwrap();
        twin[usize::try_from(block).unwrap()] = step;
        if step % 16 == 0 {
            while disk.maintain().unwrap() {}
        }
        if step % 300 == 0 {
            disk.flush(Survive::Power).unwrap();
            flushed.push((medium.events(), twin.clone()));
            if step <= blocks {
                begun = medium.events();
            }
        }
    }
    assert!(disk.counters().zones_cleaned > 20);
    Worn { medium, blocks, flushed, begun }
}

/// R26: at each erase of the life of a disk the power fails: the zone is noise, and whatever was not synced before is
/// lost. What was flushed must be there: in that zone there lay no block that a lost record was to free, no record that
/// replay needs, and no table that the newest durable root names.
#[test]
fn no_zone_is_erased_before_all_that_makes_it_dispensable_is_durable() {
    for window in [256 << 10, 1 << 20, 1 << 40] {
        let Worn { medium, blocks, flushed, begun } = worn(window);
        let journal = medium.journal();
        let mut cuts = Cuts::of(&medium, &journal);
        let mut erased = 0;
        for (at, event) in journal.iter().enumerate().skip(begun) {
            let Event::Erase(zone) = event else { continue };
            if zone.0 < 4 {
                continue;
            }
            erased += 1;
            let left = cuts.cut(at + 1, |n, _| n == at);
            let disk = Disk::open(left.clone(), &read_only()).unwrap_or_else(|error| panic!("event {at}: {error}"));
            let volume = disk.volume("v").unwrap();
            let (_, expected) = flushed.iter().rev().find(|(event, _)| *event <= at).unwrap();
            for block in 0..blocks {
                let (found, least) = (stamp_of(&volume, block), expected[usize::try_from(block).unwrap()]);
                assert!(found >= least, "event {at}, zone {}: block {block} is of step {found}, not {least}", zone.0);
            }
            if erased % 8 == 0 {
                assert_eq!(Disk::check(left).unwrap().problems, Vec::<String>::new(), "event {at}");
            }
        }
        assert!(erased > 100, "{erased} zones were erased");
    }
}

/// R26: all blocks of some zones are overwritten, and nobody has flushed that yet. The zones are dead, need no survivor
/// moved, and no replay; but were they erased now, a cut would leave neither the old blocks nor the new ones.
#[test]
fn a_dead_zone_is_not_erased_while_what_killed_its_blocks_is_not_durable() {
    let medium = Watched::disk(64, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &OpenOptions { checkpoint_window_bytes: Some(1 << 40), ..plain() }).unwrap();
    let volume = disk.create_volume("v", &options(500 * BLOCK)).unwrap();
    for block in 0..500 {
        volume.write_at(block * BLOCK, &stamp(block + 1)).unwrap();
    }
    disk.checkpoint().unwrap();
    let begun = medium.events();
    for step in 0..1500 {
        volume.write_at(step % 500 * BLOCK, &stamp(step % 500 + 1)).unwrap();
        if step % 20 == 0 {
            disk.clean().unwrap();
            disk.maintain().unwrap();
        }
    }
    let journal = medium.journal();
    let mut cuts = Cuts::of(&medium, &journal);
    let mut erased = 0;
    for (at, event) in journal.iter().enumerate().skip(begun) {
        if matches!(event, Event::Erase(_)) {
            erased += 1;
            let left = cuts.cut(at + 1, |n, _| n == at);
            let disk = Disk::open(left, &read_only()).unwrap_or_else(|error| panic!("event {at}: {error}"));
            let volume = disk.volume("v").unwrap();
            assert!((0..500).all(|block| stamp_of(&volume, block) == block + 1), "event {at}");
        }
    }
    assert!(erased > 8, "{erased} zones were erased");
}

/// A disk of which most is overwritten, so that every early zone is a victim; the zone of block 0 and its place are
/// told.
fn with_victims() -> (Arc<Watched>, Disk, Volume, u64, Position) {
    let medium = Watched::disk(64, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &plain()).unwrap();
    let blocks = disk.info().unwrap().usable / CHARGE * 7 / 10;
    let volume = disk.create_volume("v", &options(blocks * BLOCK)).unwrap();
    for block in 0..blocks {
        volume.write_at(block * BLOCK, &stamp(block + 1)).unwrap();
    }
    disk.flush(Survive::Power).unwrap();
    disk.checkpoint().unwrap();
    let content = stamp(1);
    let journal = medium.journal();
    let found = journal.iter().find_map(|event| match event {
        Event::Append(at, bytes) if at.zone.0 > 3 => {
            let offset = bytes.windows(512).position(|window| window == content)?;
            Some(Position { zone: at.zone, offset: at.offset + u32::try_from(offset).unwrap() })
        }
        _ => None,
    });
    (medium, disk, volume, blocks, found.unwrap())
}

/// Overwrites every block but those in `spared`, several times: all zones but those set aside are used again.
fn overwrite(volume: &Volume, blocks: u64, spared: std::ops::Range<u64>) {
    for step in 0..blocks * 5 {
        let block = drawn(step, blocks);
        if !spared.contains(&block) {
            volume.write_at(block * BLOCK, &stamp(block + 1)).unwrap();
        }
    }
}

fn erases_of(medium: &Watched, zone: ZoneId, since: usize) -> usize {
    medium.journal()[since..].iter().filter(|event| matches!(event, Event::Erase(id) if *id == zone)).count()
}

/// R26: the records of a zone cannot be read, neither in its batches nor in its footer, when the cleaner wants it.
/// Nobody knows then what lives there: it is set aside, told, and never erased; its blocks can be read through the map.
#[test]
fn a_zone_whose_records_cannot_be_read_is_set_aside_and_never_erased() {
    let (medium, disk, volume, blocks, place) = with_victims();
    let zone = place.zone;
    medium.damage(Position { zone, offset: 0 }, &[0; 512]);
    medium.damage(Position { zone, offset: (64 << 10) - 512 }, &[0; 512]);
    let seen = medium.events();
    overwrite(&volume, blocks, 0..8);
    assert!(disk.counters().zones_cleaned > 20);
    assert_eq!(erases_of(&medium, zone, seen), 0);
    assert_eq!(disk.info().unwrap().zones_aside, 1);
    assert!((0..blocks).all(|block| stamp_of(&volume, block) == block + 1), "what lies there can still be read");
    disk.flush(Survive::Power).unwrap();
    let problems = Disk::check(medium.copy()).unwrap().problems;
    assert!(problems.iter().all(|problem| problem.contains("aside")), "{problems:?}");
}

/// R26: one block of a victim has rotted. Copied with a new checksum it would be taken for sound; left out, its zone
/// would be erased, and the damage turn into a loss of what somebody may yet repair. The zone is set aside.
#[test]
fn a_zone_with_a_survivor_that_cannot_be_read_is_set_aside_and_never_erased() {
    let (medium, disk, volume, blocks, place) = with_victims();
    medium.damage(Position { offset: place.offset + 100, ..place }, &[0xff]);
    let seen = medium.events();
    overwrite(&volume, blocks, 0..8);
    assert!(disk.counters().zones_cleaned > 20);
    assert_eq!(erases_of(&medium, place.zone, seen), 0);
    assert_eq!(disk.info().unwrap().zones_aside, 1);
    let error = volume.read_at(0, &mut [0; 512]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("block 0 "), "{error}");
    assert!((1..blocks).all(|block| stamp_of(&volume, block) == block + 1), "its neighbours are as they were");
}

/// R27: a unit writes what compresses well. Until it commits it is promised what it would take uncompressed, since what
/// it will write next may not compress; then it is charged what it takes.
#[test]
fn a_unit_is_promised_its_uncompressed_size_until_it_commits() {
    let disk = Disk::open(Watched::disk(64, 64 << 10, 512), &plain()).unwrap();
    let compressed = VolumeOptions { bytes: 1 << 20, block_bytes: 4096, compression: Compression::Lz4 };
    let volume = disk.create_volume("v", &compressed).unwrap();
    let mut unit = disk.begin().unwrap();
    unit.write_at(&volume, 0, &[1; 100 * 4096]).unwrap();
    assert_eq!(disk.info().unwrap().reserved, 100 * (4096 + 128));
    // What it holds already is not promised twice.
    unit.write_at(&volume, 50 * 4096, &[2; 100 * 4096]).unwrap();
    assert_eq!(disk.info().unwrap().reserved, 150 * (4096 + 128));
    unit.commit().unwrap();
    let info = disk.info().unwrap();
    assert_eq!((info.reserved, info.blocks), (0, 150));
    assert!(info.live < 150 * 512, "{} bytes charged for 150 blocks of one byte each", info.live);
}

/// R27: a unit writes, and before it commits others fill the disk until nothing more goes in. The commit has room.
#[test]
fn a_unit_commits_on_a_disk_that_others_have_filled_since() {
    for unit_memory_bytes in [4 << 10, 1 << 20] {
        let disk = Disk::open(Watched::disk(64, 64 << 10, 512), &OpenOptions { unit_memory_bytes, ..plain() }).unwrap();
        let volume = disk.create_volume("v", &options(8 << 20)).unwrap();
        let other = disk.create_volume("other", &options(8 << 20)).unwrap();
        let mut unit = disk.begin().unwrap();
        unit.write_at(&volume, 0, &[5; 100 << 10]).unwrap();
        let blocks = fill(&other, 0);
        assert!(blocks > 1000);
        assert_eq!(unit.write_at(&volume, 1 << 20, &[5; 4096]).unwrap_err().kind(), ErrorKind::Full);
        unit.commit_and_flush(Survive::Power).unwrap();
        let info = disk.info().unwrap();
        assert!(info.live <= info.usable, "{} bytes of {} were given away", info.live, info.usable);
        let mut read = vec![0; 100 << 10];
        volume.read_at(0, &mut read).unwrap();
        assert!(read.iter().all(|byte| *byte == 5));
        assert!((0..blocks).all(|block| stamp_of(&other, block) == block + 1));
    }
}

/// R27: on a full disk a unit discards a large part and stays open. Were that credited at once, others would write into
/// the space of what comes back when the unit is aborted.
#[test]
fn what_an_open_unit_frees_is_not_given_to_others_before_it_is_dead() {
    let disk = Disk::open(Watched::disk(64, 64 << 10, 512), &plain()).unwrap();
    let volume = disk.create_volume("v", &options(8 << 20)).unwrap();
    let other = disk.create_volume("other", &options(8 << 20)).unwrap();
    let blocks = fill(&volume, 0);
    let mut unit = disk.begin().unwrap();
    unit.discard(&volume, 0, 1000 * BLOCK).unwrap();
    for n in 0..3 {
        assert_eq!(other.write_at(n * 4096, &[1; 4096]).unwrap_err().kind(), ErrorKind::Full);
    }
    unit.abort();
    assert!((0..blocks).all(|block| stamp_of(&volume, block) == block + 1));
    let mut unit = disk.begin().unwrap();
    unit.discard(&volume, 0, 1000 * BLOCK).unwrap();
    unit.commit().unwrap();
    assert!(fill(&other, 0) >= 1000, "what is dead is credited");
}

/// R27: nothing more goes into the disk; overwrites of what is there go on for ever all the same, block by block, in
/// runs and in part, and whoever deletes something can write again.
#[test]
fn a_simple_overwrite_is_always_admitted_however_full_the_disk_is() {
    let medium = Watched::disk(64, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &plain()).unwrap();
    let volume = disk.create_volume("v", &options(8 << 20)).unwrap();
    let blocks = fill(&volume, 0);
    let mut twin: Vec<u64> = (1..=blocks).collect();
    for step in 0..blocks * 4 {
        let block = drawn(step, blocks - 4);
        let count = [1, 1, 4][usize::try_from(step % 3).unwrap()];
        volume.write_at(block * BLOCK, &stamp(step).repeat(usize::try_from(count).unwrap())).unwrap();
        twin[usize::try_from(block).unwrap()..][..usize::try_from(count).unwrap()].fill(step);
    }
    assert!((0..blocks).all(|block| stamp_of(&volume, block) == twin[usize::try_from(block).unwrap()]));
    volume.write_at(100, &[7; 10]).unwrap();
    disk.flush(Survive::Power).unwrap();
    volume.discard(0, 100 * BLOCK).unwrap();
    assert!(fill(&volume, blocks * BLOCK) >= 100);
    assert_eq!(Disk::check(medium.copy()).unwrap().problems, Vec::<String>::new());
}

/// R28: no checkpoint is due for the whole life of the disk, since its window is larger than the disk. All dead zones
/// are needed by replay then, until the engine forces the checkpoint of what holds them.
#[test]
fn a_checkpoint_is_forced_when_the_replay_start_holds_back_the_space_that_is_needed() {
    let medium = Watched::disk(64, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &OpenOptions { checkpoint_window_bytes: Some(1 << 40), ..plain() }).unwrap();
    let blocks = disk.info().unwrap().usable / CHARGE / 2;
    let volume = disk.create_volume("v", &options(blocks * BLOCK)).unwrap();
    let mut twin = vec![0; usize::try_from(blocks).unwrap()];
    for step in 1..=blocks * 12 {
        let block = drawn(step, blocks);
        volume.write_at(block * BLOCK, &stamp(step)).unwrap();
        twin[usize::try_from(block).unwrap()] = step;
    }
    assert!(disk.counters().roots > 2);
    disk.flush(Survive::Power).unwrap();
    let disk = Disk::open(medium.copy(), &read_only()).unwrap();
    let volume = disk.volume("v").unwrap();
    assert!((0..blocks).all(|block| stamp_of(&volume, block) == twin[usize::try_from(block).unwrap()]));
}

/// R28: the last promised byte is used, in blocks of all sizes, and then everything is overwritten in an order that
/// leaves a little garbage in each zone and much in none. Some victim always yields, and nobody hears that the disk is
/// full.
#[test]
fn some_victim_always_yields_on_a_disk_filled_to_the_last_promised_byte() {
    for block_bytes in [64, 512, 4096] {
        let medium = Watched::disk(64, 64 << 10, 512);
        let disk = Disk::open(medium.clone(), &plain()).unwrap();
        let volume = disk.create_volume("v", &VolumeOptions { bytes: 8 << 20, block_bytes, ..options(0) }).unwrap();
        let bytes = usize::try_from(block_bytes).unwrap();
        let size = u64::from(block_bytes);
        let count = (0..).find(|n| volume.write_at(n * size, &vec![1; bytes]).is_err()).unwrap();
        assert!(disk.info().unwrap().free < size + 128);
        for round in 0..6u8 {
            for n in 0..count {
                // A stride that visits each zone in turn.
                let block = n * 7919 % count;
                volume.write_at(block * size, &vec![round; bytes]).unwrap();
            }
        }
        disk.flush(Survive::Power).unwrap();
        assert_eq!(Disk::check(medium.copy()).unwrap().problems, Vec::<String>::new());
    }
}

/// R28: a disk is full when the cleaner finds the records of many zones unreadable, and sets them aside. It is short of
/// zones then for good, and whatever it moves gains nothing. Upkeep ends, and a writer hears that the disk is full,
/// after bounded work, instead of live blocks being moved about for ever.
#[test]
fn a_pass_that_gains_nothing_ends() {
    let medium = Watched::disk(64, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &plain()).unwrap();
    let volume = disk.create_volume("v", &options(8 << 20)).unwrap();
    let blocks = fill(&volume, 0);
    disk.checkpoint().unwrap();
    for view in disk.inspect_segments().into_iter().filter(|view| view.holds == "main").take(12) {
        for offset in [0, (64 << 10) - 512] {
            medium.damage(Position { zone: ZoneId(view.zone), offset }, &[0; 512]);
        }
    }
    let image = disk.info().unwrap().image;
    let mut full = 0;
    let mut step = 0;
    while full < 3 {
        step += 1;
        assert!(step < 4 * blocks, "there is always room although a third of the disk is set aside");
        match volume.write_at(step * 769 % blocks * BLOCK, &stamp(step)) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                full += 1;
            }
        }
    }
    assert!(disk.info().unwrap().zones_aside >= 8);
    let before = disk.counters().cleaned_bytes;
    let steps = (0..1000).take_while(|_| disk.maintain().unwrap()).count();
    assert!(steps < 200, "upkeep goes on although it gains nothing");
    for _ in 0..3 {
        assert_eq!(volume.write_at(0, &[1; 512]).unwrap_err().kind(), ErrorKind::Full);
    }
    let moved = disk.counters().cleaned_bytes - before;
    assert!(moved < 40 * image, "{moved} bytes were moved on a disk of {image} bytes for nothing");
}

/// R28: a disk that is full to the brim still takes flushes, commits of nothing but discards, and deletes.
#[test]
fn the_reserve_has_room_for_deletes_and_flushes_when_the_disk_is_full() {
    let medium = Watched::disk(64, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &plain()).unwrap();
    for round in 0..6 {
        let volumes: Vec<Volume> =
            ["a", "b", "c"].into_iter().map(|name| disk.create_volume(name, &options(8 << 20)).unwrap()).collect();
        for n in 0..800u64 {
            volumes[0].write_at(n * BLOCK, &stamp(n)).unwrap();
            volumes[1].write_at(n * BLOCK, &stamp(n)).unwrap();
        }
        assert!(fill(&volumes[2], 0) > 500, "round {round}");
        disk.flush(Survive::Power).unwrap();
        let mut unit = disk.begin().unwrap();
        unit.discard(&volumes[0], 0, 700 * BLOCK).unwrap();
        unit.resize(&volumes[1], 10 * BLOCK).unwrap();
        unit.commit_and_flush(Survive::Power).unwrap();
        for name in ["a", "b", "c"] {
            disk.delete_volume(name).unwrap();
        }
        disk.flush(Survive::Power).unwrap();
        assert_eq!(disk.info().unwrap().live, 0, "round {round}");
    }
    assert_eq!(Disk::check(medium.copy()).unwrap().problems, Vec::<String>::new());
}

/// R27: units of all sizes hold their data in memory while others fill the disk and overwrite it until zones are short.
/// Their commits spill first, and are not refused.
#[test]
fn a_commit_that_spills_is_not_refused_when_zones_are_short() {
    let medium = Watched::disk(64, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &OpenOptions { unit_memory_bytes: 8 << 20, ..plain() }).unwrap();
    let volume = disk.create_volume("v", &options(8 << 20)).unwrap();
    let other = disk.create_volume("other", &options(8 << 20)).unwrap();
    for bytes in [100usize << 10, 500 << 10, 1200 << 10] {
        let mut unit = disk.begin().unwrap();
        unit.write_at(&volume, 0, &vec![5; bytes]).unwrap();
        let blocks = fill(&other, 0);
        for step in 0..blocks * 3 {
            other.write_at(drawn(step, blocks) * BLOCK, &stamp(step)).unwrap();
        }
        unit.commit().unwrap();
        volume.discard(0, 8 << 20).unwrap();
        other.discard(0, 8 << 20).unwrap();
    }
}

/// P5, R27: when zones are short, the commit of a unit whose space was promised is not refused, although it has to
/// spill.
#[test]
fn a_commit_that_spills_is_not_refused_when_zones_are_set_aside() {
    let medium = Watched::disk(64, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &OpenOptions { unit_memory_bytes: 8 << 20, ..plain() }).unwrap();
    let volume = disk.create_volume("v", &options(8 << 20)).unwrap();
    let shadowed = disk.create_volume("s", &options(8 << 20)).unwrap();
    let mut unit = disk.begin().unwrap();
    unit.write_at(&shadowed, 0, &[5; 100 << 10]).unwrap();
    let blocks = fill(&volume, 0);
    disk.checkpoint().unwrap();
    for view in disk.inspect_segments().into_iter().filter(|view| view.holds == "main").take(12) {
        for offset in [0, (64 << 10) - 512] {
            medium.damage(Position { zone: ZoneId(view.zone), offset }, &[0; 512]);
        }
    }
    let mut full = 0;
    for step in 0..4 * blocks {
        full += u32::from(volume.write_at(step * 769 % blocks * BLOCK, &stamp(step)).is_err());
        if full == 3 {
            break;
        }
    }
    unit.commit().unwrap();
}

/// LD-09: what is reserved is there when it is used, however full others have made the disk; and comes back.
#[test]
fn a_reservation_holds_on_a_full_disk_until_it_is_used_or_dropped() {
    let disk = Disk::open(medium(64, 64 << 10, 512), &quiet()).unwrap();
    let options = VolumeOptions { bytes: 16 << 20, block_bytes: 512, ..Default::default() };
    let volume = disk.create_volume("v", &options).unwrap();
    let free = disk.info().unwrap().free;
    let mut reservation = disk.reserve(200, 512).unwrap();
    assert_eq!(reservation.held_bytes(), 200 * (512 + 128));
    assert_eq!(disk.info().unwrap().reserved, reservation.held_bytes());
    assert!(disk.reserve(u64::MAX / 1024, 512).map(drop).unwrap_err().kind() == ErrorKind::Full);
    let mut end = 8 << 20;
    while volume.write_at(end, &[7; 512]).map_err(|error| assert_eq!(error.kind(), ErrorKind::Full)).is_ok() {
        end += 512;
    }
    let mut unit = disk.begin().unwrap();
    assert_eq!(unit.write_at(&volume, 0, &[8; 512]).unwrap_err().kind(), ErrorKind::Full);
    unit.draw_on(&mut reservation, 150).unwrap();
    unit.write_at(&volume, 0, &[8; 150 * 512]).unwrap();
    assert_eq!(unit.write_at(&volume, 151 * 512, &[8; 512]).unwrap_err().kind(), ErrorKind::Full);
    unit.commit_and_flush(Survive::Power).unwrap();
    assert_eq!(reservation.blocks(), 50);
    let mut unit = disk.begin().unwrap();
    assert_eq!(unit.draw_on(&mut reservation, 51).unwrap_err().kind(), ErrorKind::InvalidArgument);
    unit.draw_on(&mut reservation, 40).unwrap();
    unit.try_commit().unwrap();
    assert_eq!(unit.draw_on(&mut reservation, 10).unwrap_err().kind(), ErrorKind::InvalidArgument);
    drop(unit);
    drop(reservation);
    disk.delete_volume("v").unwrap();
    while disk.maintain().unwrap() {}
    assert_eq!(disk.info().unwrap().reserved, 0);
    assert!(disk.info().unwrap().free >= free);
}

#[test]
fn what_a_unit_has_drawn_and_not_used_goes_back_to_the_reservation() {
    let disk = Disk::open(medium(64, 64 << 10, 512), &quiet()).unwrap();
    let options = VolumeOptions { bytes: 1 << 20, block_bytes: 512, ..Default::default() };
    let volume = disk.create_volume("v", &options).unwrap();
    let (mut reservation, mut other) = (disk.reserve(100, 4096).unwrap(), disk.reserve(1, 512).unwrap());
    let before = disk.info().unwrap();
    let mut unit = disk.begin().unwrap();
    unit.draw_on(&mut reservation, 60).unwrap();
    unit.write_at(&volume, 0, &[8; 3 * 512]).unwrap();
    unit.put_back(&mut reservation).unwrap();
    // Three blocks fewer; small as they were, what is left of their bytes is the disk's again.
    assert_eq!((reservation.blocks(), reservation.held_bytes()), (97, 97 * (4096 + 128)));
    let now = disk.info().unwrap();
    assert_eq!(now.reserved, before.reserved - 3 * (4096 + 128) + 3 * (512 + 128));
    assert_eq!(now.free - before.free, before.reserved - now.reserved);
    unit.draw_on(&mut reservation, 1).unwrap();
    unit.put_back(&mut other).unwrap();
    // In small blocks as many as were drawn.
    assert_eq!((other.blocks(), other.held_bytes()), (2, 2 * (512 + 128)));
    unit.commit().unwrap();
    assert_eq!(disk.info().unwrap().reserved, 96 * (4096 + 128) + 2 * (512 + 128));
    let strange = Disk::open(medium(64, 64 << 10, 512), &quiet()).unwrap();
    let mut strange = strange.reserve(1, 512).unwrap();
    let refused = disk.begin().unwrap().put_back(&mut strange).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
}

/// P5, R28: a checkpoint of everything fits on any full disk, also where zones are so small that the tables take more of
/// them than the reserve has.
#[test]
fn a_full_disk_of_small_zones_can_be_checkpointed_and_closed() {
    for (zones, zone_bytes, append_align, block_bytes) in [
        (2000, 65536, 4096, 512),
        (300, 65536, 512, 512),
        (500, 65536, 512, 64),
        (500, 131_072, 4096, 4096),
        (300, 32768, 512, 512),
        (700, 16384, 512, 1024),
        (1088, 8192, 512, 512),
    ] {
        let medium = medium(zones, zone_bytes, append_align);
        let disk = Disk::open(medium.clone(), &quiet()).unwrap();
        let volume =
            disk.create_volume("v", &VolumeOptions { bytes: 1 << 28, block_bytes, ..Default::default() }).unwrap();
        let size = u64::from(block_bytes);
        let data = |block: u64| block.to_le_bytes().repeat(usize::try_from(size / 8).unwrap());
        let mut blocks = 0;
        while volume.write_at(blocks * size, &data(blocks)).is_ok() {
            blocks += 1;
            if blocks % 64 == 0 {
                disk.maintain().unwrap();
            }
        }
        disk.checkpoint().unwrap();
        for part in [10, 20, 50] {
            volume.discard((blocks - blocks / part) * size, blocks / part * size).unwrap();
            for n in 0..blocks / 4 {
                let block = n * 1_000_003 % (blocks - blocks / part);
                volume.write_at(block * size, &data(block)).unwrap();
                if n % 64 == 0 {
                    disk.maintain().unwrap();
                }
            }
            disk.checkpoint().unwrap();
        }
        drop(volume);
        disk.close().unwrap();
        assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
    }
}
