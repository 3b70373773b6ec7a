//! What the hints of ordered lists do: where blocks come to lie, and what is read ahead.
use crate::basics::quiet;
use crate::tape::Tape;
use lode::{BlockId, Disk, ListOptions, OpenOptions, OrderedId, Place, SnapshotOptions, Survive};
use std::sync::Arc;

const ZONE: u32 = 64 << 10;

fn words(block: BlockId) -> Vec<u8> {
    block.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes().repeat(512)
}

fn uncached() -> OpenOptions {
    OpenOptions { cache_bytes: 0, ..quiet() }
}

/// So many blocks in an order that is not that of their numbers.
fn insert(disk: &Disk, list: OrderedId, count: usize) -> Vec<BlockId> {
    let mut blocks = Vec::new();
    for n in 0..count {
        let place = if blocks.is_empty() { Place::First } else { Place::After(blocks[n * 7919 % n]) };
        blocks.push(disk.insert_block(list, place).unwrap());
    }
    blocks
}

/// Writes them all, in some order, each beside something that dies at once; and cleans until all of them have moved.
fn write_and_clean(disk: &Disk, blocks: &[BlockId]) {
    let filler = disk.create_list(&ListOptions::default(), Place::First).unwrap();
    for n in 0..blocks.len() {
        let block = blocks[n * 101 % blocks.len()];
        disk.write_block(block, 0, &words(block)).unwrap();
        let other = disk.insert_block(filler, Place::First).unwrap();
        disk.write_block(other, 0, &[7; 4096]).unwrap();
        disk.remove_block(filler, other).unwrap();
    }
    for _ in 0..100 {
        disk.flush(Survive::Power).unwrap();
        disk.clean().unwrap();
        while disk.maintain().unwrap() {}
    }
    disk.delete_list(filler).unwrap();
    disk.flush(Survive::Power).unwrap();
}

/// Reads blocks, and tells where the medium was read.
fn read(tape: &Tape, disk: &Disk, blocks: &[BlockId]) -> Vec<u64> {
    let mut bytes = vec![0; 4096];
    tape.take_reads();
    for block in blocks {
        disk.read_block(*block, 0, &mut bytes).unwrap();
        assert!(bytes == words(*block), "{block:?}");
    }
    let reads = tape.take_reads();
    reads.iter().map(|at| u64::from(at.zone.0) * u64::from(ZONE) + u64::from(at.offset)).collect()
}

/// LD-16: reading ahead follows the order of the list; reads here and there bring nothing that nobody asked for.
#[test]
fn reads_in_the_order_of_a_list_are_read_ahead() {
    let tape = Tape::formatted(200, ZONE, 512);
    let disk = Disk::open(tape.clone(), &quiet()).unwrap();
    let list = disk.create_list(&ListOptions::default(), Place::Last).unwrap();
    let loose = disk.create_list(&ListOptions { cluster: false, ..ListOptions::default() }, Place::Last).unwrap();
    let blocks = [insert(&disk, list, 240), insert(&disk, loose, 240)].concat();
    write_and_clean(&disk, &blocks);
    let (order, of_loose) = (disk.blocks(list).unwrap(), disk.blocks(loose).unwrap());
    disk.take_snapshot("then", &SnapshotOptions::default()).unwrap();
    let again = |disk: Disk| {
        disk.flush(Survive::Power).unwrap();
        drop(disk);
        Disk::open(tape.clone(), &quiet()).unwrap()
    };
    let disk = again(disk);
    let in_order = read(&tape, &disk, &order).len();
    assert!(in_order < 60, "{in_order} reads for 240 blocks in order");
    assert_eq!(read(&tape, &disk, &order).len(), 0, "all of it fits in the cache");
    // In a cache that has no room for windows on the log: those would hold most of so small a disk.
    drop(again(disk));
    let disk = Disk::open(tape.clone(), &OpenOptions { cache_bytes: 1 << 20, ..quiet() }).unwrap();
    let scattered: Vec<BlockId> = (0..240).map(|n| order[n * 83 % 240]).collect();
    // A few more are of tables.
    let each = 240..250;
    assert!(each.contains(&read(&tape, &disk, &scattered).len()), "reads here and there");
    assert!(each.contains(&read(&tape, &disk, &of_loose).len()), "a list without the hint");
    // As a snapshot sees it, when the list is no more.
    disk.delete_list(list).unwrap();
    while disk.maintain().unwrap() {}
    let disk = again(disk);
    tape.take_reads();
    let mut bytes = vec![0; 4096];
    for block in disk.blocks_at("then", list).unwrap() {
        disk.read_block_at("then", block, 0, &mut bytes).unwrap();
        assert!(bytes == words(block));
    }
    let of_snapshot = tape.take_reads().len();
    assert!(of_snapshot < 100, "{of_snapshot} reads for 240 blocks of a snapshot");
    drop(disk);
    // A small cache holds a small window; without one there is nowhere to read ahead to.
    let disk = Disk::open(tape.clone(), &OpenOptions { cache_bytes: 64 << 10, ..quiet() }).unwrap();
    let loose_too = disk.create_list(&ListOptions::default(), Place::Last).unwrap();
    let blocks: Vec<BlockId> = insert(&disk, loose_too, 40);
    for block in &blocks {
        disk.write_block(*block, 0, &words(*block)).unwrap();
    }
    disk.flush(Survive::Power).unwrap();
    let order = disk.blocks(loose_too).unwrap();
    assert!((15..30).contains(&read(&tape, &disk, &order).len()));
    drop(disk);
    let disk = Disk::open(tape.clone(), &uncached()).unwrap();
    assert!(each.contains(&read(&tape, &disk, &of_loose).len()));
}

/// What is there of lists with partners: how far apart the last block of one and the first of its partner are, on
/// average; and how often the beginning of the partner had to be read, once its list was read to the end.
fn partners(near: bool) -> (u64, usize) {
    let tape: Arc<Tape> = Tape::formatted(200, ZONE, 512);
    let disk = Disk::open(tape.clone(), &uncached()).unwrap();
    let create = |near, place| disk.create_list(&ListOptions { near, ..ListOptions::default() }, place).unwrap();
    let first: Vec<OrderedId> = (0..12).map(|_| create(false, Place::Last)).collect();
    // In another order, so that neither numbers nor writes bring them together.
    let mut pairs: Vec<(OrderedId, OrderedId)> = Vec::new();
    for n in 0..first.len() {
        let list = first[n * 5 % first.len()];
        pairs.push((list, create(near, Place::After(list))));
    }
    let mut blocks = Vec::new();
    for (one, other) in &pairs {
        blocks.extend(insert(&disk, *one, 12));
        blocks.extend(insert(&disk, *other, 12));
    }
    write_and_clean(&disk, &blocks);
    let mut apart = 0;
    for (one, other) in &pairs {
        let (end, begin) = (*disk.blocks(*one).unwrap().last().unwrap(), disk.blocks(*other).unwrap()[0]);
        let at = read(&tape, &disk, &[end, begin]);
        apart += at[0].abs_diff(at[1]);
    }
    drop(disk);
    let disk = Disk::open(tape.clone(), &quiet()).unwrap();
    let mut missed = 0;
    for (one, other) in &pairs {
        read(&tape, &disk, &disk.blocks(*one).unwrap());
        missed += read(&tape, &disk, &disk.blocks(*other).unwrap()[..1]).len();
    }
    (apart / 12, missed)
}

/// LD-05, LD-15: the hint changes where blocks come to lie, and nothing else.
#[test]
fn lists_that_are_to_be_near_another_come_to_lie_behind_it() {
    let (with, missed) = partners(true);
    let (without, missed_without) = partners(false);
    assert!(with * 3 < without, "{with} bytes apart with the hint, {without} without");
    assert!(missed < 4 && missed_without == 12, "{missed} of 12 read with the hint, {missed_without} without");
}
