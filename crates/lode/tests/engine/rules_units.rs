//! Rules of units: the schedules that R16 and R17 answer.
use crate::basics::quiet;
use crate::watch::{Call, Cuts, Event, Watched};
use lode::{Disk, OpenOptions, Survive, Unit, Volume, VolumeOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const BLOCK: u64 = 512;

fn options(bytes: u64) -> VolumeOptions {
    VolumeOptions { bytes, block_bytes: 512, ..VolumeOptions::default() }
}

/// Units keep no more than this in memory, so that those of these tests spill.
fn spilling() -> OpenOptions {
    OpenOptions { unit_memory_bytes: 8 << 10, ..quiet() }
}

fn read_only() -> OpenOptions {
    OpenOptions { read_only: true, cache_bytes: 0, ..quiet() }
}

fn read(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0xee; usize::try_from(volume.bytes()).unwrap()];
    volume.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Writes every block of the volume, in an order that makes no runs.
fn write_scattered(unit: &mut Unit, volume: &Volume, byte: u8) {
    let blocks = volume.bytes() / BLOCK;
    for n in 0..blocks {
        unit.write_at(volume, n * 769 % blocks * BLOCK, &[byte; 512]).unwrap();
    }
}

/// R16: the records of a unit take many batches, and the power fails at each append and sync between the first and the
/// commit record, with any one of the appends in flight lost.
#[test]
fn a_unit_of_many_batches_is_there_whole_or_not_at_all_at_every_append_of_its_commit() {
    let medium = Watched::disk(64, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &spilling()).unwrap();
    let volume = disk.create_volume("v", &options(1024 * BLOCK)).unwrap();
    volume.write_at(0, &[1; 1024 * 512]).unwrap();
    disk.flush(Survive::Power).unwrap();
    let mut unit = disk.begin().unwrap();
    write_scattered(&mut unit, &volume, 2);
    let begun = medium.events();
    unit.commit_and_flush(Survive::Power).unwrap();
    let ended = medium.events();
    assert!(ended - begun > 4, "the commit takes several batches, not {}", ended - begun);
    let journal = medium.journal();
    let mut cuts = Cuts::of(&medium, &journal);
    let mut seen = [0; 3];
    for at in begun..=ended {
        cuts.all(at, |left| {
            let disk = Disk::open(left.clone(), &read_only()).unwrap();
            let bytes = read(&disk.volume("v").unwrap());
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a unit in part after a cut at event {at}");
            seen[usize::from(bytes[0])] += 1;
        });
    }
    let last = Disk::open(cuts.cut(ended, |_, _| false), &read_only()).unwrap();
    assert_eq!(read(&last.volume("v").unwrap())[0], 2, "what was flushed is there");
    assert!(seen[1] > 4 && seen[2] > 0, "{seen:?}");
}

/// R16: others write at every append that the unit and its commit cause, and would get between its records.
#[test]
fn nothing_enters_the_stream_between_the_records_of_a_unit_and_its_commit() {
    let medium = Watched::disk(64, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &spilling()).unwrap();
    let volume = disk.create_volume("v", &options(1024 * BLOCK)).unwrap();
    let other = disk.create_volume("other", &options(1024 * BLOCK)).unwrap();
    let (writing, wrote) = (AtomicBool::new(false), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&wrote);
    let target = other.clone();
    medium.before_each(move |call| {
        if matches!(call, Call::Append) && !writing.swap(true, Ordering::Relaxed) {
            let n = count.fetch_add(1, Ordering::Relaxed);
            target.write_at(n % 1024 * BLOCK, &[7; 512]).unwrap();
            writing.store(false, Ordering::Relaxed);
        }
    });
    let mut unit = disk.begin().unwrap();
    write_scattered(&mut unit, &volume, 2);
    let id = unit.id();
    unit.commit_and_flush(Survive::Power).unwrap();
    medium.let_be();
    assert!(wrote.load(Ordering::Relaxed) > 10);

    let mut batches = Vec::new();
    disk.inspect_batches(&mut |batch| batches.push((batch.first_lsn, batch.content.clone()))).unwrap();
    batches.sort();
    let records: Vec<String> = batches.into_iter().flat_map(|(_, content)| content).collect();
    let commit = format!("Commit {{ unit: {id:?}, ");
    let at = records.iter().position(|record| record.starts_with(&commit)).unwrap();
    let own = format!("Put {{ list: {:?}, ", volume.list());
    let before = records[..at].iter().rev().take_while(|record| record.starts_with(&own));
    let blocks: usize = before.map(|put| put.split_once("entries: [").unwrap().1.matches('(').count()).sum();
    assert_eq!(blocks, 1024, "all Puts of the unit stand right before its commit");
    let others = format!("Put {{ list: {:?}, ", other.list());
    assert!(records[..at].iter().any(|record| record.starts_with(&others)), "others wrote while it spilled");
}

/// Overwrites a volume again and again, with upkeep after each write, and tells how many records a crash then replays.
fn replayed_beside_open_units(units: u8) -> (u64, u64) {
    let medium = Watched::disk(96, 64 << 10, 512);
    let window = OpenOptions { checkpoint_window_bytes: Some(256 << 10), ..spilling() };
    let disk = Disk::open(medium.clone(), &window).unwrap();
    let volume = disk.create_volume("v", &options(512 * BLOCK)).unwrap();
    let shadowed = disk.create_volume("shadowed", &options(512 * BLOCK)).unwrap();
    let open: Vec<Unit> = (0..units)
        .map(|n| {
            let mut unit = disk.begin().unwrap();
            unit.write_at(&shadowed, 0, &[n + 1; 64 << 10]).unwrap();
            unit
        })
        .collect();
    for step in 0..12_000u64 {
        volume.write_at(step * 37 % 512 * BLOCK, &step.to_le_bytes().repeat(64)).unwrap();
        disk.maintain().unwrap();
    }
    disk.flush(Survive::Power).unwrap();
    let left = medium.copy();
    drop(open);
    let disk = Disk::open(left.clone(), &window).unwrap();
    assert!(read(&disk.volume("shadowed").unwrap()).iter().all(|byte| *byte == 0));
    let info = disk.info().unwrap();
    drop(disk);
    assert_eq!(Disk::check(left).unwrap().problems, Vec::<String>::new());
    (info.replayed, info.live)
}

/// R17: units spill and stay open while the rest of the disk is written over many times; then a crash. What they
/// have spilled is no reason to replay the log from there.
#[test]
fn units_that_have_spilled_and_stay_open_do_not_hold_back_the_replay_start() {
    let (without, live) = replayed_beside_open_units(0);
    let (with, live_with) = replayed_beside_open_units(8);
    assert!(without > 0);
    assert!(with <= without * 2, "{with} records were replayed beside open units, {without} without them");
    assert!(with < 1_500, "{with} records of 12,000 were replayed: more than the window of 256 KiB holds");
    assert_eq!(live_with, live, "nothing of the units is left");
}

/// R17: the zones that a unit has spilled into are cleaned, erased and filled with other things before it commits.
#[test]
fn a_unit_commits_what_the_cleaner_has_moved_since_it_spilled() {
    let medium = Watched::disk(64, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &spilling()).unwrap();
    let volume = disk.create_volume("v", &options(2048 * BLOCK)).unwrap();
    let shadowed = disk.create_volume("shadowed", &options(256 * BLOCK)).unwrap();
    let mut unit = disk.begin().unwrap();
    let begun = medium.events();
    for n in 0..256u64 {
        unit.write_at(&shadowed, n * BLOCK, &[u8::try_from(n).unwrap(); 512]).unwrap();
        volume.write_at(n * BLOCK, &[1; 512]).unwrap();
    }
    disk.flush(Survive::Process).unwrap();
    let mut spilled: Vec<u32> =
        medium.journal()[begun..].iter().filter_map(Event::zone).filter(|zone| *zone > 3).collect();
    spilled.sort_unstable();
    spilled.dedup();
    // The zone that is being filled, and those announced, hold nothing of the unit yet, or not for long.
    let seen = medium.events();
    let erased_since = |journal: &[Event]| {
        let erased =
            |zone: &&u32| journal[seen..].iter().any(|event| matches!(event, Event::Erase(id) if id.0 == **zone));
        spilled.iter().filter(erased).count()
    };
    for step in 0..40_000u64 {
        volume.write_at(step * 769 % 2048 * BLOCK, &[9; 512]).unwrap();
        if step % 1000 == 0 && erased_since(&medium.journal()) == spilled.len() {
            break;
        }
    }
    assert_eq!(erased_since(&medium.journal()), spilled.len(), "every zone that the unit spilled into was reused");
    let expected: Vec<u8> = (0..=255u8).flat_map(|n| [n; 512]).collect();
    let mut inside = vec![0; expected.len()];
    unit.read_at(&shadowed, 0, &mut inside).unwrap();
    assert!(inside == expected);
    assert!(read(&shadowed).iter().all(|byte| *byte == 0));
    unit.commit_and_flush(Survive::Power).unwrap();
    assert!(read(&shadowed) == expected);
    let left = medium.copy();
    assert!(read(&Disk::open(left.clone(), &read_only()).unwrap().volume("shadowed").unwrap()) == expected);
    assert_eq!(Disk::check(left).unwrap().problems, Vec::<String>::new());
}

/// R17: units fill most of the disk with what they spill, and a crash comes before any commits. Recovery has no unit to
/// take up again, so all that space must be free.
#[test]
fn what_units_had_spilled_before_a_crash_is_free_space_after_it() {
    let medium = Watched::disk(64, 64 << 10, 512);
    for round in 0..4 {
        let disk = Disk::open(medium.clone(), &spilling()).unwrap();
        let info = disk.info().unwrap();
        assert_eq!((info.stored, info.blocks), (0, 0), "round {round}");
        let volume = match disk.volume("v") {
            Ok(volume) => volume,
            Err(_) => disk.create_volume("v", &options(4096 * BLOCK)).unwrap(),
        };
        let bytes = disk.info().unwrap().usable / (BLOCK + 128) * 8 / 10 * BLOCK;
        let mut unit = disk.begin().unwrap();
        unit.write_at(&volume, 0, &vec![3; usize::try_from(bytes).unwrap()]).unwrap();
        disk.flush(Survive::Power).unwrap();
        // Dropped without closing, the unit after the disk: a crash.
        drop((volume, disk));
        std::mem::forget(unit);
    }
}

/// AR-06: 64 units write one block, each of them ten times, and spill every version. Of all these the disk keeps one
/// for each unit and the committed one: that many blocks are what a cleaner finds alive.
#[test]
fn of_a_block_that_64_units_write_there_are_never_more_than_66_versions() {
    let medium = Watched::disk(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &OpenOptions { unit_memory_bytes: 0, ..quiet() }).unwrap();
    let volume = disk.create_volume("v", &options(256 << 10)).unwrap();
    volume.write_at(0, &[255; 512]).unwrap();
    let mut units: Vec<Unit> = (0..64).map(|_| disk.begin().unwrap()).collect();
    for version in 0..10u8 {
        for (n, unit) in units.iter_mut().enumerate() {
            unit.write_at(&volume, 0, &[u8::try_from(n).unwrap() + version; 512]).unwrap();
        }
    }
    let info = disk.info().unwrap();
    assert_eq!((info.blocks, info.stored), (1, 512), "one committed version");
    assert_eq!(info.reserved, 64 * (512 + 128), "one version for each unit is promised");
    // The segments with all these versions are sealed by writing something else, then cleaned.
    let filling = disk.create_volume("filling", &options(256 << 10)).unwrap();
    for step in 0..512u64 {
        filling.write_at(step % 4 * BLOCK, &[1; 512]).unwrap();
    }
    while disk.clean().unwrap() {}
    let moved = disk.counters().cleaned_bytes / 512;
    assert!(
        (64..=66 + 4 + 16).contains(&moved),
        "{moved} sectors were moved for 65 versions, 4 other blocks and heads"
    );
    for (n, unit) in units.iter().enumerate() {
        let mut bytes = [0; 512];
        unit.read_at(&volume, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [u8::try_from(n).unwrap() + 9; 512]);
    }
    assert_eq!(read(&volume)[..512], [255; 512]);
    for unit in units {
        unit.commit().unwrap();
        assert_eq!(disk.info().unwrap().blocks, 1 + 4);
    }
    assert_eq!(read(&volume)[..512], [63 + 9; 512]);
    assert_eq!(disk.info().unwrap().reserved, 0);
}
