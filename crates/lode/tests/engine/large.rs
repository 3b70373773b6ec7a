use super::basics::{medium, quiet};
use lode::{Disk, OpenOptions, Survive, VolumeOptions};

const BLOCKS: u64 = 600;

fn stamp(block: u64, turn: u8) -> [u8; 512] {
    let mut bytes = [turn; 512];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes
}

/// R16: right after the commit of a unit of many batches its blocks wait to be folded into the tables. Everybody sees
/// them all the same, whoever changes one changes the newest, and the cleaner takes nothing for damage.
#[test]
fn what_a_large_unit_has_committed_counts_before_it_is_in_the_tables() {
    let medium = medium(96, 64 << 10, 512);
    let options = OpenOptions { unit_memory_bytes: 16 << 10, ..quiet() };
    let disk = Disk::open(medium.clone(), &options).unwrap();
    let volume = VolumeOptions { bytes: BLOCKS * 512, block_bytes: 512, ..Default::default() };
    let volume = disk.create_volume("v", &volume).unwrap();
    for block in 0..BLOCKS {
        volume.write_at(block * 512, &stamp(block, 1)).unwrap();
    }
    let mut unit = disk.begin().unwrap();
    // In no order of places, so that each block takes a record of its own.
    for n in 0..BLOCKS {
        let block = n * 7 % BLOCKS;
        if !block.is_multiple_of(5) {
            unit.write_at(&volume, block * 512, &stamp(block, 2)).unwrap();
        }
    }
    unit.commit().unwrap();
    let folded = |name: &str| lode::marks().iter().find(|(mark, _)| *mark == name).map_or(0, |(_, count)| *count);
    let name = "unit: a block folded since another change follows";
    let before = folded(name);
    let mut turns: Vec<u8> = (0..BLOCKS).map(|block| if block % 5 == 0 { 1 } else { 2 }).collect();
    let expect = |disk: &Disk, turns: &[u8]| {
        let volume = disk.volume("v").unwrap();
        for (block, turn) in (0..).zip(turns) {
            let mut read = [0; 512];
            volume.read_at(block * 512, &mut read).unwrap();
            assert_eq!(read, stamp(block, *turn), "block {block}");
        }
    };
    expect(&disk, &turns);
    for block in (500..520).rev() {
        volume.write_at(block * 512, &stamp(block, 3)).unwrap();
        turns[usize::try_from(block).unwrap()] = 3;
    }
    assert!(folded(name) > before, "nothing was left to be folded");
    disk.clean().unwrap();
    assert_eq!(disk.info().unwrap().zones_aside, 0);
    expect(&disk, &turns);
    disk.flush(Survive::Power).unwrap();
    drop((volume, disk));
    assert_eq!(Disk::check(medium.clone()).unwrap().problems, Vec::<String>::new());
    expect(&Disk::open(medium, &options).unwrap(), &turns);
}

/// R28: what a unit spills is work of users, for which cleaning goes on, though none of it counts before the commit. (A
/// keeper that took it for idle time stopped, and the unit got `Full` with half of the space free.)
#[test]
fn cleaning_goes_on_while_a_unit_spills_more_than_is_free() {
    let options = OpenOptions { background: true, unit_memory_bytes: 64 << 10, ..OpenOptions::default() };
    let disk = Disk::open(medium(1024, 64 << 10, 512), &options).unwrap();
    let blocks = 24 << 8;
    let volume = VolumeOptions { bytes: blocks * 4096, block_bytes: 4096, ..Default::default() };
    let volume = disk.create_volume("v", &volume).unwrap();
    // In another order each time, so that zones do not die as a whole.
    for (turn, step) in (1..=6).zip([1, 211, 509, 31, 1009, 7]) {
        let mut unit = disk.begin().unwrap();
        for n in 0..blocks {
            unit.write_at(&volume, n * step % blocks * 4096, &[turn; 4096]).unwrap_or_else(|error| {
                panic!("turn {turn}, write {n}: {error}, {:?}", disk.info().unwrap());
            });
        }
        unit.commit().unwrap();
    }
}

/// R16: a list is deleted while the blocks that a large unit put there wait to be folded. They are freed with it. (The list
/// was taken for empty.)
#[test]
fn a_list_is_deleted_before_what_a_large_unit_wrote_is_folded() {
    let medium = medium(96, 64 << 10, 512);
    let options = OpenOptions { unit_memory_bytes: 16 << 10, ..quiet() };
    let disk = Disk::open(medium.clone(), &options).unwrap();
    let volume = VolumeOptions { bytes: BLOCKS * 512, block_bytes: 512, ..Default::default() };
    let first = disk.create_volume("folded first", &volume).unwrap();
    let second = disk.create_volume("v", &volume).unwrap();
    let mut unit = disk.begin().unwrap();
    for block in 0..BLOCKS {
        unit.write_at(&first, block * 7 % BLOCKS * 512, &stamp(block, 1)).unwrap();
    }
    unit.write_at(&second, 0, &stamp(0, 1)).unwrap();
    unit.commit().unwrap();
    drop((first, second));
    disk.delete_volume("v").unwrap();
    assert_eq!(disk.info().unwrap().blocks, BLOCKS);
    disk.flush(Survive::Power).unwrap();
    drop(disk);
    assert_eq!(Disk::check(medium.clone()).unwrap().problems, Vec::<String>::new());
    Disk::open(medium, &options).unwrap().create_volume("v", &VolumeOptions::default()).unwrap();
}

/// A unit that discards a few blocks is as small as they are, however many leaves lie about them, also where a snapshot sees
/// them: it shares its batch with others, which the chain of a large one does not.
#[test]
fn a_unit_that_discards_few_blocks_is_small() {
    let disk = Disk::open(medium(1200, 64 << 10, 512), &quiet()).unwrap();
    let blocks = 32 * 1024;
    let volume = VolumeOptions { bytes: blocks * 512, block_bytes: 512, ..Default::default() };
    let volume = disk.create_volume("v", &volume).unwrap();
    for block in (0..blocks).step_by(7) {
        volume.write_at(block * 512, &stamp(block, 1)).unwrap();
    }
    for snapshot in [false, true] {
        if snapshot {
            disk.take_snapshot("s", &Default::default()).unwrap();
            volume.write_at(0, &stamp(0, 2)).unwrap();
        }
        disk.flush(Survive::Power).unwrap();
        let before = disk.counters().batches;
        for n in 1..=100u64 {
            let block = n * 7 + if snapshot { 7000 } else { 0 };
            let mut unit = disk.begin().unwrap();
            unit.discard(&volume, block * 512, 512).unwrap();
            unit.write_at(&volume, block * 512 + 512, &stamp(block, 3)).unwrap();
            unit.commit().unwrap();
        }
        disk.flush(Survive::Power).unwrap();
        let batches = disk.counters().batches - before;
        assert!(batches < 20, "{batches} batches for 100 small units");
    }
    let mut block = [1; 512];
    for n in 1..=100u64 {
        for at in [n * 7, n * 7 + 7000] {
            volume.read_at(at * 512, &mut block).unwrap();
            assert_eq!(block, [0; 512]);
        }
    }
}

/// A discard of all that there is has room for its records, as few or as many as they are, and whatever others write there
/// meanwhile.
#[test]
fn a_discard_of_everything_has_room_for_its_records() {
    let disk = Disk::open(medium(1200, 64 << 10, 512), &quiet()).unwrap();
    let blocks = 32 * 1024;
    let volume = VolumeOptions { bytes: blocks * 512, block_bytes: 512, ..Default::default() };
    let volume = disk.create_volume("v", &volume).unwrap();
    for (turn, stride) in (1u8..).zip([1, 3, 7919]) {
        for block in (0..blocks / stride).map(|n| n * 7919 % blocks) {
            volume.write_at(block * 512, &stamp(block, turn)).unwrap();
        }
        if turn == 2 {
            disk.take_snapshot("s", &Default::default()).unwrap();
        }
        let mut unit = disk.begin().unwrap();
        unit.discard(&volume, 0, blocks * 512).unwrap();
        volume.write_at(turn as u64 * 512, &stamp(0, turn)).unwrap();
        unit.commit().unwrap();
        assert_eq!(volume.extents(0, blocks * 512).unwrap().len(), 1, "all holes");
    }
}
