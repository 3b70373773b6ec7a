//! Lists that are compressed when the cleaner moves their blocks.
use crate::basics::{medium, quiet};
use crate::tape::Tape;
use lode::{
    Compression, Disk, ListOptions, OpenOptions, Place, SnapshotOptions, Survive, UnitLabel, UnitOptions, Volume,
    VolumeOptions,
};
use std::ops::ControlFlow;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 600;

/// Text-like: it packs well, and differs from block to block.
fn words(block: u64, round: u64) -> Vec<u8> {
    let line = format!("block {block} as of round {round}; ");
    line.bytes().cycle().take(4096).collect()
}

fn made(compression: Compression) -> (std::sync::Arc<dyn lode_media::Medium>, Disk, Volume) {
    let medium = medium(200, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &OpenOptions { unit_memory_bytes: 8 << 10, ..quiet() }).unwrap();
    let options = VolumeOptions { bytes: BLOCKS * BLOCK, compression, ..VolumeOptions::default() };
    let volume = disk.create_volume("v", &options).unwrap();
    for block in 0..BLOCKS {
        volume.write_at(block * BLOCK, &words(block, 0)).unwrap();
    }
    disk.flush(Survive::Power).unwrap();
    (medium, disk, volume)
}

/// Overwrites every third block, so that the zones are worth cleaning; then everything that can be is cleaned.
fn clean(disk: &Disk, volume: &Volume, round: u64) {
    for block in (0..BLOCKS).step_by(3) {
        volume.write_at(block * BLOCK, &words(block, round)).unwrap();
    }
    for _ in 0..200 {
        disk.flush(Survive::Power).unwrap();
        disk.clean().unwrap();
        while disk.maintain().unwrap() {}
    }
}

fn check(disk: &Disk, volume: &Volume, round: u64) {
    let mut bytes = vec![0; 4096];
    for block in 0..BLOCKS {
        volume.read_at(block * BLOCK, &mut bytes).unwrap();
        let since = if block % 3 == 0 { round } else { 0 };
        assert!(bytes == words(block, since), "block {block}");
    }
    let scrubbed = disk.scrub(&mut |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!((scrubbed.blocks, scrubbed.damaged.len()), (BLOCKS, 0));
}

/// LD-31: what is written is stored as it is; what stays is compressed, by the method of its list.
#[test]
fn what_stays_is_compressed_when_it_is_moved() {
    let mut stored = Vec::new();
    for compression in [Compression::None, Compression::ColdLz4, Compression::ColdZstd] {
        let (medium, disk, volume) = made(compression);
        assert_eq!(disk.info().unwrap().stored, BLOCKS * BLOCK, "nothing is compressed when it is written");
        clean(&disk, &volume, 1);
        check(&disk, &volume, 1);
        assert!(disk.counters().zones_cleaned > 10);
        stored.push(disk.info().unwrap().stored);
        drop(volume);
        drop(disk); // A kill: what was moved is found again.
        let disk = Disk::open(medium.clone(), &quiet()).unwrap();
        let volume = disk.volume("v").unwrap();
        assert_eq!(volume.compression(), compression);
        check(&disk, &volume, 1);
        // What is compressed already is moved as it is.
        clean(&disk, &volume, 2);
        check(&disk, &volume, 2);
        drop(volume);
        disk.close().unwrap();
        assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
    }
    assert_eq!(stored[0], BLOCKS * BLOCK);
    assert!(stored[1] < stored[0] / 2 && stored[2] < stored[0] / 2, "{stored:?}");
}

/// LD-31: an ordered list says itself how its blocks are compressed, not the pool that it shares with others.
#[test]
fn ordered_lists_are_compressed_each_as_it_says() {
    let (medium, disk, volume) = made(Compression::None);
    let lists = [Compression::ColdZstd, Compression::None].map(|compression| {
        let options = ListOptions { compression, ..ListOptions::default() };
        disk.create_list(&options, Place::Last).unwrap()
    });
    let mut blocks = Vec::new();
    for n in 0..50 {
        for list in lists {
            let block = disk.insert_block(list, Place::Last).unwrap();
            disk.write_block(block, 0, &words(n, 0)).unwrap();
            blocks.push((block, n));
            volume.write_at((n * 2) * BLOCK, &words(n * 2, 0)).unwrap();
        }
    }
    disk.flush(Survive::Power).unwrap();
    let before = disk.info().unwrap().stored;
    assert_eq!(before, (BLOCKS + 100) * BLOCK, "nothing is compressed when it is written");
    clean(&disk, &volume, 1);
    let saved = before - disk.info().unwrap().stored;
    assert!((20 * BLOCK..50 * BLOCK).contains(&saved), "{saved} bytes saved of 50 blocks that are compressed");
    let mut bytes = vec![0; 4096];
    for (block, n) in blocks {
        disk.read_block(block, 0, &mut bytes).unwrap();
        assert!(bytes == words(n, 0));
    }
    drop(volume);
    disk.close().unwrap();
    assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
}

/// The blocks of snapshots, of units that have spilled or have a barrier, and of ordered lists, too.
#[test]
fn snapshots_units_and_lists_see_the_same_after_it() {
    let (medium, disk, volume) = made(Compression::ColdZstd);
    disk.take_snapshot("before", &SnapshotOptions::default()).unwrap();
    let options = ListOptions { compression: Compression::ColdLz4, ..ListOptions::default() };
    let list = disk.create_list(&options, Place::Last).unwrap();
    let blocks: Vec<_> = (0..40).map(|_| disk.insert_block(list, Place::Last).unwrap()).collect();
    for (block, n) in blocks.iter().zip(1000..) {
        disk.write_block(*block, 0, &words(n, 0)).unwrap();
    }
    let label = |name: &str| UnitLabel { label: name.to_owned(), ..UnitLabel::default() };
    let mut spilled = disk.begin().unwrap();
    let mut kept = disk.begin_labelled(&label("kept"), &UnitOptions::default()).unwrap();
    for block in 0..100 {
        spilled.write_at(&volume, block * BLOCK, &words(block, 7)).unwrap();
        kept.write_at(&volume, (200 + block) * BLOCK, &words(200 + block, 8)).unwrap();
    }
    kept.barrier(b"").unwrap();
    clean(&disk, &volume, 1);
    let then = disk.volume("v@before").unwrap();
    let mut bytes = vec![0; 4096];
    let mut reads = |read: &mut dyn FnMut(&mut [u8]), wanted: Vec<u8>| {
        read(&mut bytes);
        assert!(bytes == wanted, "{}", String::from_utf8_lossy(&wanted[..30]));
    };
    for block in 0..BLOCKS {
        reads(&mut |into| then.read_at(block * BLOCK, into).unwrap(), words(block, 0));
    }
    for (block, n) in blocks.iter().zip(1000..) {
        reads(&mut |into| disk.read_block(*block, 0, into).unwrap(), words(n, 0));
    }
    for block in 0..100 {
        reads(&mut |into| spilled.read_at(&volume, block * BLOCK, into).unwrap(), words(block, 7));
        reads(&mut |into| kept.read_at(&volume, (200 + block) * BLOCK, into).unwrap(), words(200 + block, 8));
    }
    spilled.commit().unwrap();
    kept.commit().unwrap();
    for block in 0..100 {
        reads(&mut |into| volume.read_at(block * BLOCK, into).unwrap(), words(block, 7));
        reads(&mut |into| volume.read_at((200 + block) * BLOCK, into).unwrap(), words(200 + block, 8));
    }
    drop((volume, then));
    disk.close().unwrap();
    assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
}

/// LD-33: blocks of an ordered list that the cleaner moves come to lie as they stand in the list.
#[test]
fn moved_blocks_of_a_list_lie_as_they_stand_in_it() {
    let tape = Tape::formatted(200, 64 << 10, 512);
    let disk = Disk::open(tape.clone(), &OpenOptions { cache_bytes: 0, ..quiet() }).unwrap();
    let [one, two] = [(); 2]
        .map(|()| disk.create_list(&ListOptions { block_bytes: 4096, ..ListOptions::default() }, Place::Last).unwrap());
    // The order is not that of the numbers, nor that of the writes.
    let mut blocks = Vec::new();
    for n in 0..240usize {
        let place = if blocks.is_empty() { Place::First } else { Place::After(blocks[n * 7919 % n.max(1)]) };
        blocks.push(disk.insert_block(one, place).unwrap());
        let other = disk.insert_block(two, Place::First).unwrap();
        disk.write_block(other, 0, &words(n.try_into().unwrap(), 3)).unwrap();
    }
    for n in 0..240usize {
        let block = blocks[n * 101 % 240];
        disk.write_block(block, 0, &words(block.0, 4)).unwrap();
        // Something that dies, so that zones are worth cleaning.
        let other = disk.insert_block(two, Place::First).unwrap();
        disk.write_block(other, 0, &words(0, 5)).unwrap();
        disk.remove_block(two, other).unwrap();
    }
    let order = disk.blocks(one).unwrap();
    // How often what is read next lies right behind.
    let neighbours = || {
        disk.flush(Survive::Power).unwrap();
        tape.take_reads();
        let mut bytes = vec![0; 4096];
        for block in &order {
            disk.read_block(*block, 0, &mut bytes).unwrap();
            assert!(bytes == words(block.0, 4));
        }
        let reads = tape.take_reads();
        assert_eq!(reads.len(), order.len());
        let behind = |pair: &&[lode_media::Position]| {
            pair[0].zone == pair[1].zone && (4096..4096 + 1024).contains(&pair[1].offset.wrapping_sub(pair[0].offset))
        };
        reads.windows(2).filter(behind).count()
    };
    let before = neighbours();
    for _ in 0..100 {
        disk.flush(Survive::Power).unwrap();
        disk.clean().unwrap();
        while disk.maintain().unwrap() {}
    }
    let after = neighbours();
    assert!(before < 20 && after > 150, "{before} neighbours before, {after} after");
}
