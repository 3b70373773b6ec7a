//! Ordered lists: simple operations and units against a plain model, through restarts.
use crate::basics::{medium, quiet};
use crate::tape::Tape;
use lode::{
    BlockId, Disk, ErrorKind, ListOptions, OpenOptions, OrderedId, Place, SnapshotOptions, Survive, VolumeOptions,
};
use std::sync::Arc;

fn options(block_bytes: u32) -> ListOptions {
    ListOptions { block_bytes, ..ListOptions::default() }
}

fn sound(medium: Arc<dyn lode_media::Medium>) {
    assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
}

fn word(disk: &Disk, block: BlockId) -> u64 {
    let mut bytes = [0; 8];
    disk.read_block(block, 0, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// Numbers that look drawn.
pub struct Draw(pub u64);

impl Draw {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % u64::try_from(bound).unwrap()).unwrap()
    }
}

/// What should be: lists in order, each with its blocks in order and what they hold.
type Model = Vec<(OrderedId, Vec<(BlockId, u64)>)>;

fn compare(disk: &Disk, model: &Model) {
    assert_eq!(disk.lists().unwrap(), model.iter().map(|(list, _)| *list).collect::<Vec<_>>());
    for (list, blocks) in model {
        assert_eq!(disk.blocks(*list).unwrap(), blocks.iter().map(|(block, _)| *block).collect::<Vec<_>>());
        for (block, content) in blocks {
            assert_eq!(word(disk, *block), *content, "{block:?} of {list:?}");
        }
        for pair in blocks.windows(2) {
            assert_eq!(disk.block_after(pair[0].0).unwrap(), Some(pair[1].0));
            assert_eq!(disk.block_before(pair[1].0).unwrap(), Some(pair[0].0));
        }
        if let (Some(first), Some(last)) = (blocks.first(), blocks.last()) {
            assert_eq!((disk.block_before(first.0).unwrap(), disk.block_after(last.0).unwrap()), (None, None));
        }
    }
}

fn place_in<T: Copy>(draw: &mut Draw, of: &[T]) -> (Place<T>, usize) {
    match draw.below(3) {
        0 => (Place::First, 0),
        1 if !of.is_empty() => {
            let at = draw.below(of.len());
            (Place::After(of[at]), at + 1)
        }
        _ => (Place::Last, of.len()),
    }
}

fn random_step(disk: &Disk, model: &mut Model, draw: &mut Draw, turn: u64) {
    let lists: Vec<OrderedId> = model.iter().map(|(list, _)| *list).collect();
    if lists.is_empty() || draw.below(20) == 0 && lists.len() < 12 {
        let (place, at) = place_in(draw, &lists);
        let list = disk.create_list(&options([128, 256][draw.below(2)]), place).unwrap();
        model.insert(at, (list, Vec::new()));
        return;
    }
    let n = draw.below(lists.len());
    let blocks: Vec<BlockId> = model[n].1.iter().map(|(block, _)| *block).collect();
    match draw.below(12) {
        0 if draw.below(4) == 0 => {
            disk.delete_list(lists[n]).unwrap();
            model.remove(n);
        }
        1 => {
            let moved = model.remove(n);
            let rest: Vec<OrderedId> = model.iter().map(|(list, _)| *list).collect();
            let (place, at) = place_in(draw, &rest);
            disk.move_list(lists[n], place).unwrap();
            model.insert(at, moved);
        }
        2 | 3 if !blocks.is_empty() => {
            let at = draw.below(blocks.len());
            disk.remove_block(lists[n], blocks[at]).unwrap();
            model[n].1.remove(at);
        }
        4 | 5 if !blocks.is_empty() => {
            let first = draw.below(blocks.len());
            let last = first + draw.below((blocks.len() - first).min(5));
            let same_size = |disk: &Disk, a: OrderedId, b: OrderedId| {
                disk.list(a).unwrap().block_bytes == disk.list(b).unwrap().block_bytes
            };
            let to = draw.below(lists.len());
            if !same_size(disk, lists[n], lists[to]) {
                let wrong = disk.move_blocks(lists[n], (blocks[first], blocks[last]), lists[to], Place::Last);
                assert!(wrong.is_err());
                return;
            }
            let moved: Vec<(BlockId, u64)> = model[n].1.drain(first..=last).collect();
            let rest: Vec<BlockId> = model[to].1.iter().map(|(block, _)| *block).collect();
            let (place, at) = place_in(draw, &rest);
            disk.move_blocks(lists[n], (blocks[first], blocks[last]), lists[to], place).unwrap();
            model[to].1.splice(at..at, moved);
        }
        6 | 7 if !blocks.is_empty() => {
            let at = draw.below(blocks.len());
            disk.write_block(blocks[at], 0, &turn.to_le_bytes()).unwrap();
            model[n].1[at].1 = turn;
        }
        _ => {
            let (place, at) = place_in(draw, &blocks);
            let block = disk.insert_block(lists[n], place).unwrap();
            model[n].1.insert(at, (block, 0));
        }
    }
}

#[test]
fn ordered_lists_do_what_a_plain_model_does_and_survive_restarts() {
    for (zones, zone_bytes, align) in [(96, 64 << 10, 512), (200, 4096, 128)] {
        let medium = medium(zones, zone_bytes, align);
        let mut disk = Disk::open(medium.clone(), &quiet()).unwrap();
        let (mut model, mut draw) = (Model::new(), Draw(7));
        for turn in 1..=1500 {
            random_step(&disk, &mut model, &mut draw, turn);
            if turn % 50 == 0 {
                compare(&disk, &model);
                while disk.maintain().unwrap() {}
            }
            if turn % 150 == 0 {
                disk.flush(Survive::Power).unwrap();
                if turn % 300 == 0 {
                    disk.close().unwrap();
                } else {
                    drop(disk);
                }
                sound(medium.clone());
                disk = Disk::open(medium.clone(), &quiet()).unwrap();
                compare(&disk, &model);
            }
        }
        for (list, _) in model.drain(..) {
            disk.delete_list(list).unwrap();
        }
        while disk.maintain().unwrap() {}
        assert_eq!(disk.info().unwrap().blocks, 0, "nothing is left of deleted lists");
        disk.close().unwrap();
        sound(medium);
    }
}

#[test]
fn numbers_come_back_when_no_unit_can_mean_the_old_block() {
    let medium = medium(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let list = disk.create_list(&options(512), Place::Last).unwrap();
    let block = disk.insert_block(list, Place::Last).unwrap();
    disk.write_block(block, 0, &7u64.to_le_bytes()).unwrap();
    let unit = disk.begin().unwrap();
    disk.remove_block(list, block).unwrap();
    for _ in 0..5 {
        let other = disk.insert_block(list, Place::Last).unwrap();
        assert_ne!(other, block, "a unit is open that may mean the block that was removed");
    }
    drop(unit);
    let others: Vec<BlockId> = (0..3).map(|_| disk.insert_block(list, Place::Last).unwrap()).collect();
    assert!(others.contains(&block), "the number is free again: {others:?}");
    assert_eq!(word(&disk, block), 0, "a new block is zeros");
    // After a restart free numbers are found by looking through the table.
    for block in disk.blocks(list).unwrap() {
        disk.remove_block(list, block).unwrap();
    }
    disk.close().unwrap();
    let disk = Disk::open(medium, &quiet()).unwrap();
    let most = (0..3000).map(|_| disk.insert_block(list, Place::Last).unwrap().0 & 0xffff_ffff).max().unwrap();
    assert!(most < 3000 + 2048, "numbers of before are used: the largest is {most}");
}

#[test]
fn units_change_lists_in_private_and_one_after_the_other() {
    let medium = medium(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let list = disk.create_list(&options(512), Place::Last).unwrap();
    let [a, b, c] = [(); 3].map(|()| disk.insert_block(list, Place::Last).unwrap());
    let mut one = disk.begin().unwrap();
    let mut two = disk.begin().unwrap();
    let x = one.insert_block(list, Place::After(a)).unwrap();
    one.write_block(x, 0, &1u64.to_le_bytes()).unwrap();
    let y = two.insert_block(list, Place::After(a)).unwrap();
    assert_ne!(x, y);
    two.remove_block(list, c).unwrap();
    assert_eq!(one.blocks(list).unwrap(), [a, x, b, c]);
    assert_eq!(two.blocks(list).unwrap(), [a, y, b]);
    assert_eq!(disk.blocks(list).unwrap(), [a, b, c]);
    assert_eq!(disk.read_block(x, 0, &mut [0; 8]).unwrap_err().kind(), ErrorKind::NotFound);
    let mut bytes = [0; 8];
    one.read_block(x, 0, &mut bytes).unwrap();
    assert_eq!(u64::from_le_bytes(bytes), 1);
    one.commit().unwrap();
    assert_eq!(two.blocks(list).unwrap(), [a, y, x, b], "its own operations on what is committed now");
    two.commit().unwrap();
    assert_eq!(disk.blocks(list).unwrap(), [a, y, x, b]);
    assert_eq!((word(&disk, x), word(&disk, y)), (1, 0));
    drop(disk);
    sound(medium);
}

#[test]
fn a_conflict_changes_nothing_and_leaves_the_unit_open() {
    let medium = medium(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let list = disk.create_list(&options(512), Place::Last).unwrap();
    let [a, b] = [(); 2].map(|()| disk.insert_block(list, Place::Last).unwrap());
    let mut unit = disk.begin().unwrap();
    let new = unit.insert_block(list, Place::After(a)).unwrap();
    unit.write_block(b, 0, &5u64.to_le_bytes()).unwrap();
    disk.remove_block(list, a).unwrap();
    assert_eq!(unit.try_commit().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(disk.blocks(list).unwrap(), [b]);
    assert_eq!(word(&disk, b), 0);
    // What it read before is there still, and it can be given up without a trace.
    let mut bytes = [0; 8];
    assert!(unit.read_block(new, 0, &mut bytes).is_err(), "its view has no meaning any more");
    unit.abort();
    // A write to a block that was removed meanwhile is a conflict, too.
    let mut unit = disk.begin().unwrap();
    unit.write_block(b, 0, &6u64.to_le_bytes()).unwrap();
    disk.remove_block(list, b).unwrap();
    assert_eq!(unit.try_commit().unwrap_err().kind(), ErrorKind::Conflict);
    drop(unit);
    // A list that was deleted.
    let mut unit = disk.begin().unwrap();
    unit.insert_block(list, Place::Last).unwrap();
    disk.delete_list(list).unwrap();
    assert_eq!(unit.try_commit().unwrap_err().kind(), ErrorKind::Conflict);
    drop(unit);
    // Its own writes to a list that it deletes are no conflict.
    let list = disk.create_list(&options(512), Place::Last).unwrap();
    let block = disk.insert_block(list, Place::Last).unwrap();
    let mut unit = disk.begin().unwrap();
    unit.write_block(block, 0, &6u64.to_le_bytes()).unwrap();
    unit.delete_list(list).unwrap();
    unit.commit().unwrap();
    assert_eq!(disk.lists().unwrap(), []);
    while disk.maintain().unwrap() {}
    assert_eq!(disk.info().unwrap().blocks, 0);
    drop(disk);
    sound(medium);
}

#[test]
fn a_large_unit_changes_many_lists_at_once() {
    let medium = medium(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &OpenOptions { unit_memory_bytes: 64 << 10, ..quiet() }).unwrap();
    let mut unit = disk.begin().unwrap();
    let list = unit.create_list(&options(512), Place::Last).unwrap();
    let mut blocks = Vec::new();
    for n in 0..2000u64 {
        let block = unit.insert_block(list, Place::First).unwrap();
        unit.write_block(block, 0, &n.to_le_bytes()).unwrap();
        blocks.insert(0, block);
    }
    assert_eq!(disk.lists().unwrap(), []);
    unit.commit_and_flush(Survive::Power).unwrap();
    drop(disk);
    sound(medium.clone());
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    assert_eq!(disk.blocks(list).unwrap(), blocks);
    for (n, block) in (0..2000u64).rev().zip(&blocks) {
        assert_eq!(word(&disk, *block), n);
    }
    disk.delete_list(list).unwrap();
    while disk.maintain().unwrap() {}
    assert_eq!(disk.info().unwrap().blocks, 0);
}

/// R20: all ordered lists together are one address space, which a snapshot may be of without any volume.
#[test]
fn a_snapshot_of_the_lists_is_of_all_of_them_and_of_no_volume() {
    let medium = medium(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let of_lists = SnapshotOptions { lists: true, ..Default::default() };
    assert_eq!(disk.take_snapshot("none", &of_lists).unwrap_err().kind(), ErrorKind::NotFound);
    let options = VolumeOptions { bytes: 64 << 10, block_bytes: 512, ..Default::default() };
    let volume = disk.create_volume("v", &options).unwrap();
    volume.write_at(0, &[1; 4096]).unwrap();
    let small = ListOptions { block_bytes: 512, ..Default::default() };
    let list = disk.create_list(&small, Place::Last).unwrap();
    let block = disk.insert_block(list, Place::Last).unwrap();
    disk.write_block(block, 0, &7u64.to_le_bytes()).unwrap();

    disk.take_snapshot("lists", &of_lists).unwrap();
    disk.take_snapshot("volume", &SnapshotOptions { volumes: vec!["v".into()], ..Default::default() }).unwrap();
    disk.take_snapshot("both", &SnapshotOptions { volumes: vec!["v".into()], lists: true, made: 0 }).unwrap();
    volume.write_at(0, &[2; 4096]).unwrap();
    disk.write_block(block, 0, &8u64.to_le_bytes()).unwrap();
    // A pool that no snapshot can be of.
    let large = disk.create_list(&ListOptions { block_bytes: 4096, ..Default::default() }, Place::First).unwrap();
    let other = disk.insert_block(large, Place::Last).unwrap();
    disk.write_block(other, 0, &[9; 4096]).unwrap();
    disk.remove_block(list, block).unwrap();
    disk.flush(Survive::Power).unwrap();
    drop((volume, disk));

    sound(medium.clone());
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let named: Vec<_> = disk.snapshots().into_iter().map(|one| (one.name, one.volumes.len(), one.lists)).collect();
    assert_eq!(named, [("lists".into(), 0, true), ("volume".into(), 1, false), ("both".into(), 1, true)]);
    let mut bytes = [0; 8];
    for name in ["lists", "both"] {
        assert_eq!(disk.lists_at(name).unwrap(), [list], "{name}");
        disk.read_block_at(name, block, 0, &mut bytes).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), 7, "{name}");
    }
    assert_eq!(disk.lists_at("volume").unwrap(), []);
    assert_eq!(disk.volume_at("lists", "v").map(drop).unwrap_err().kind(), ErrorKind::NotFound);
    let mut old = [0; 4096];
    disk.volume_at("both", "v").unwrap().read_at(0, &mut old).unwrap();
    assert_eq!(old, [1; 4096]);
    // Deleted, all of it comes back.
    for name in ["lists", "volume", "both"] {
        disk.delete_snapshot(name).unwrap();
    }
    for list in [list, large] {
        disk.delete_list(list).unwrap();
    }
    disk.delete_volume("v").unwrap();
    while disk.maintain().unwrap() {}
    assert_eq!(disk.info().unwrap().blocks, 0);
}

#[test]
fn snapshots_see_lists_as_they_were() {
    let medium = medium(96, 64 << 10, 512);
    let mut disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let (mut model, mut draw) = (Model::new(), Draw(11));
    let mut seen: Vec<(String, Model)> = Vec::new();
    let see = |disk: &Disk, seen: &[(String, Model)]| {
        for (name, model) in seen {
            assert_eq!(disk.lists_at(name).unwrap(), model.iter().map(|(list, _)| *list).collect::<Vec<_>>(), "{name}");
            for (list, blocks) in model {
                let ids: Vec<BlockId> = blocks.iter().map(|(block, _)| *block).collect();
                assert_eq!(disk.blocks_at(name, *list).unwrap(), ids, "{name} {list:?}");
                for (block, content) in blocks {
                    let mut bytes = [0; 8];
                    disk.read_block_at(name, *block, 0, &mut bytes).unwrap();
                    assert_eq!(u64::from_le_bytes(bytes), *content, "{name} {block:?}");
                }
            }
        }
    };
    for turn in 1..=900 {
        random_step(&disk, &mut model, &mut draw, turn);
        if turn % 60 == 0 {
            let name = format!("s{turn}");
            // Of everything, or of the ordered lists alone.
            disk.take_snapshot(&name, &SnapshotOptions { lists: turn % 120 == 0, ..Default::default() }).unwrap();
            seen.push((name, model.clone()));
        }
        if turn % 100 == 0 {
            see(&disk, &seen);
            let gone = seen.remove(draw.below(seen.len()));
            disk.delete_snapshot(&gone.0).unwrap();
            while disk.maintain().unwrap() {}
            disk.flush(Survive::Power).unwrap();
            drop(disk);
            sound(medium.clone());
            disk = Disk::open(medium.clone(), &quiet()).unwrap();
            see(&disk, &seen);
            compare(&disk, &model);
        }
    }
}

/// A disk whose tables were written at different times; then some batches of the log are ruined, a footer perhaps among
/// them.
fn torn(seed: u64, ruined: usize) -> Option<Arc<Tape>> {
    let tape = Tape::formatted(96, 8 << 10, 512);
    let options = OpenOptions { checkpoint_window_bytes: Some(64 << 10), ..quiet() };
    let disk = Disk::open(tape.clone(), &options).unwrap();
    let (mut model, mut draw) = (Model::new(), Draw(seed));
    for turn in 1..=400 {
        random_step(&disk, &mut model, &mut draw, turn);
        disk.flush(Survive::Power).unwrap();
        if turn % 8 == 0 {
            disk.maintain().unwrap();
        }
    }
    disk.flush(Survive::Power).unwrap();
    drop(disk);
    let batches = tape.batches(0);
    let from = batches.len().checked_sub(ruined + 8)?;
    batches[from..from + 8].iter().for_each(|(_, at, _)| tape.ruin(*at));
    Some(tape.restart())
}

#[test]
fn a_repair_leaves_lists_whole_whatever_was_lost_of_the_log() {
    let mut repaired = 0;
    for (seed, ruined) in (23..31).flat_map(|seed| (0..60).step_by(4).map(move |ruined| (seed, ruined))) {
        let Some(tape) = torn(seed, ruined) else { continue };
        let Err(error) = Disk::open(tape.clone(), &quiet()).map(drop) else { continue };
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let disk = Disk::open(tape.clone(), &OpenOptions { repair: true, ..quiet() }).unwrap();
        for list in disk.lists().unwrap() {
            for block in disk.blocks(list).unwrap() {
                word(&disk, block);
            }
            let block = disk.insert_block(list, Place::First).unwrap();
            disk.write_block(block, 0, &[1; 8]).unwrap();
        }
        disk.flush(Survive::Power).unwrap();
        drop(disk);
        sound(tape.clone());
        Disk::open(tape, &quiet()).unwrap();
        repaired += 1;
    }
    assert!(repaired > 5, "only {repaired} were repaired");
    let mended = lode::marks().into_iter().find(|(name, _)| *name == "repair: ordered lists mended");
    assert!(mended.is_some_and(|(_, count)| count > 0), "no repair had lists to mend");
}

#[test]
fn many_short_lists_are_drained_in_few_batches() {
    let tape = Tape::formatted(96, 64 << 10, 512);
    let disk = Disk::open(tape.clone(), &quiet()).unwrap();
    let mut lists = Vec::new();
    for _ in 0..200 {
        let list = disk.create_list(&options(512), Place::Last).unwrap();
        for _ in 0..3 {
            disk.insert_block(list, Place::Last).unwrap();
        }
        lists.push(list);
    }
    let mut unit = disk.begin().unwrap();
    lists.iter().for_each(|list| unit.delete_list(*list).unwrap());
    unit.commit_and_flush(Survive::Power).unwrap();
    let start = tape.len();
    while disk.maintain().unwrap() {}
    disk.flush(Survive::Power).unwrap();
    assert_eq!(disk.info().unwrap().blocks, 0);
    let batches = tape.batches(start).len();
    assert!(batches < 20, "{batches} batches for 200 lists");
}
