//! Units that go on where another one is: clones of clones.
use crate::barriers::{BLOCK, block, committed, killed, label, made, sound};
use crate::lists::Draw;
use lode::{
    BlockId, Disk, ErrorKind, ListOptions, Place, SnapshotOptions, Survive, Unit, UnitConflicts, UnitCopy, UnitLabel,
    UnitOptions, UnitView, Volume,
};
use std::ops::ControlFlow;

fn copy(unit: &mut Unit, name: &str) -> UnitCopy {
    unit.copy(&label(name), &mut |_, _| ControlFlow::Continue(())).unwrap().unwrap()
}

fn begin(disk: &Disk, name: &str, options: &UnitOptions) -> Unit {
    disk.begin_labelled(&label(name), options).unwrap()
}

fn below(draw: &mut Draw, n: u64) -> u64 {
    u64::try_from(draw.below(usize::try_from(n).unwrap())).unwrap()
}

/// Something in a unit, and in the bytes that it should see.
fn change(unit: &mut Unit, volume: &Volume, model: &mut Vec<u8>, draw: &mut Draw) {
    let blocks = u64::try_from(model.len()).unwrap() / BLOCK;
    let first = below(draw, blocks);
    let count = 1 + below(draw, (blocks - first).min(9));
    let (at, bytes) = (first * BLOCK, count * BLOCK);
    let range = usize::try_from(at).unwrap()..usize::try_from(at + bytes).unwrap();
    match below(draw, 8) {
        0 => {
            unit.discard(volume, at, bytes).unwrap();
            model[range].fill(0);
        }
        1 => {
            let bytes = (20 + below(draw, 60)) * BLOCK;
            unit.resize(volume, bytes).unwrap();
            model.resize(usize::try_from(bytes).unwrap(), 0);
        }
        2 => drop(unit.barrier(b"").unwrap()),
        _ => {
            let value = u8::try_from(1 + below(draw, 255)).unwrap();
            // Not always whole blocks.
            let (from, to) = (at + below(draw, BLOCK), at + bytes);
            unit.write_at(volume, from, &vec![value; usize::try_from(to - from).unwrap()]).unwrap();
            model[usize::try_from(from).unwrap()..range.end].fill(value);
        }
    }
}

fn sees(unit: &Unit, volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0xee; usize::try_from(unit.bytes(volume).unwrap()).unwrap()];
    unit.read_at(volume, 0, &mut bytes).unwrap();
    bytes
}

/// Both see the same, and from then on each what it does itself, over kills and commits.
#[test]
fn a_clone_of_a_clone_is_what_the_clone_was() {
    for seed in 0..40 {
        let (medium, mut disk, volume) = made(40);
        volume.write_at(0, &[9; 40 * 512]).unwrap();
        disk.take_snapshot("monday", &SnapshotOptions::default()).unwrap();
        volume.write_at(0, &[8; 40 * 512]).unwrap();
        let of_monday = UnitLabel { snapshot: Some("monday".to_owned()), ..label("one") };
        let mut one = disk.begin_labelled(&of_monday, &UnitOptions::default()).unwrap();
        let (mut draw, mut model) = (Draw(seed), vec![9; 40 * 512]);
        for _ in 0..below(&mut draw, 30) {
            change(&mut one, &volume, &mut model, &mut draw);
        }
        let mut two = copy(&mut one, "two").unit;
        let mut other = model.clone();
        drop(volume);
        for turn in 0..3 {
            let volume = disk.volume("v").unwrap();
            assert!(sees(&one, &volume) == model, "seed {seed} turn {turn}");
            assert!(sees(&two, &volume) == other, "seed {seed} turn {turn}");
            for _ in 0..below(&mut draw, 12) {
                change(&mut one, &volume, &mut model, &mut draw);
                change(&mut two, &volume, &mut other, &mut draw);
            }
            for unit in [&mut one, &mut two] {
                unit.barrier(b"").unwrap();
            }
            disk.flush(Survive::Power).unwrap();
            drop((one, two, volume));
            disk = killed(&medium, disk);
            (one, two) = (disk.resume("one").unwrap(), disk.resume("two").unwrap());
        }
        // Dropped, or merged back, the one is nothing to the other.
        let volume = disk.volume("v").unwrap();
        if seed % 2 == 0 {
            one.abort();
        } else {
            one.commit().unwrap();
        }
        while disk.maintain().unwrap() {}
        assert!(sees(&two, &volume) == other, "seed {seed}");
        if let Err(error) = two.commit() {
            assert!(error.to_string().contains("was cut short"), "seed {seed}: {error}");
            disk.abort_unit(disk.unit_labelled("two").unwrap()).unwrap();
        }
        disk.delete_snapshot("monday").unwrap();
        drop(volume);
        sound(medium, disk);
    }
}

/// Each view shows what it shows in the other unit, and what was read there counts in the copy, too.
#[test]
fn a_copy_sees_and_minds_what_the_unit_does() {
    for view in [UnitView::Moving, UnitView::Frozen, UnitView::Committed] {
        let (medium, disk, volume) = made(16);
        volume.write_at(0, &[1; 16 * 512]).unwrap();
        let mut unit = begin(&disk, "one", &UnitOptions { view, conflicts: UnitConflicts::Read });
        block(&unit, &volume, 3);
        unit.write_at(&volume, 5 * BLOCK, &[2; 512]).unwrap();
        volume.write_at(7 * BLOCK, &[3; 512]).unwrap();
        let two = copy(&mut unit, "two").unit;
        let expected = match view {
            UnitView::Moving => [2, 3],
            UnitView::Frozen => [2, 1],
            UnitView::Committed => [1, 3],
        };
        for unit in [&unit, &two] {
            assert_eq!([5, 7].map(|at| block(unit, &volume, at)), expected, "{view:?}");
        }
        let taken = unit.copy(&label("two"), &mut |_, _| ControlFlow::Continue(()));
        assert_eq!(taken.err().unwrap().kind(), ErrorKind::Exists);
        unit.abort();
        // What the unit read before it was copied.
        volume.write_at(3 * BLOCK, &[4; 512]).unwrap();
        assert_eq!(two.commit().unwrap_err().kind(), ErrorKind::Conflict, "{view:?}");
        disk.abort_unit(disk.unit_labelled("two").unwrap()).unwrap();
        drop(volume);
        sound(medium, disk);
    }
}

/// Lists and blocks that the unit made have numbers of their own in the copy; both can be committed.
#[test]
fn ordered_lists_of_a_unit_are_made_again_in_its_copy() {
    let (medium, disk, volume) = made(16);
    let small = ListOptions { block_bytes: 512, ..ListOptions::default() };
    let old = disk.create_list(&small, Place::Last).unwrap();
    let blocks: Vec<BlockId> = (0..4).map(|_| disk.insert_block(old, Place::Last).unwrap()).collect();
    let mut unit = begin(&disk, "one", &UnitOptions::default());
    let list = unit.create_list(&small, Place::First).unwrap();
    let fresh = unit.insert_block(list, Place::First).unwrap();
    unit.write_block(fresh, 0, &[1; 512]).unwrap();
    unit.barrier(b"").unwrap();
    let second = unit.insert_block(list, Place::After(fresh)).unwrap();
    unit.write_block(second, 0, &[2; 512]).unwrap();
    unit.write_block(blocks[0], 0, &[3; 512]).unwrap();
    unit.move_blocks(old, (blocks[1], blocks[2]), list, Place::After(fresh)).unwrap();
    unit.remove_block(old, blocks[3]).unwrap();
    let mut copied = copy(&mut unit, "two");
    let (made, renamed) = (copied.lists[&list], copied.blocks.clone());
    assert!(made != list && renamed.len() == 2 && renamed[&fresh] != fresh && renamed[&second] != second);
    let of_copy = copied.unit.blocks(made).unwrap();
    assert_eq!(unit.blocks(list).unwrap(), [fresh, blocks[1], blocks[2], second]);
    assert_eq!(of_copy, [renamed[&fresh], blocks[1], blocks[2], renamed[&second]]);
    let value = |unit: &mut Unit, block| {
        let mut bytes = [0; 512];
        unit.read_block(block, 0, &mut bytes).unwrap();
        bytes[511]
    };
    assert_eq!(
        [renamed[&fresh], renamed[&second], blocks[0], blocks[1]].map(|block| value(&mut copied.unit, block)),
        [1, 2, 3, 0]
    );
    copied.unit.write_block(renamed[&fresh], 0, &[4; 512]).unwrap();
    copied.unit.commit_and_flush(Survive::Power).unwrap();
    // The blocks that both wanted to move are elsewhere now.
    assert_eq!(unit.try_commit().unwrap_err().kind(), ErrorKind::Conflict);
    unit.abort();
    disk.flush(Survive::Power).unwrap();
    drop(volume);
    let disk = killed(&medium, disk);
    assert_eq!(disk.lists().unwrap(), [made, old]);
    assert_eq!(disk.blocks(made).unwrap(), of_copy);
    assert_eq!(disk.blocks(old).unwrap(), [blocks[0]]);
    let mut bytes = [0; 512];
    disk.read_block(renamed[&fresh], 0, &mut bytes).unwrap();
    assert_eq!(bytes, [4; 512]);
    sound(medium, disk);
}

/// What a unit wrote into blocks of a list that it deleted is nothing to its copy.
#[test]
fn a_list_that_the_unit_deleted_after_writing_is_deleted_in_its_copy() {
    for with_barrier in [false, true] {
        let (medium, disk, volume) = made(16);
        let small = ListOptions { block_bytes: 512, ..ListOptions::default() };
        let old = disk.create_list(&small, Place::Last).unwrap();
        let block = disk.insert_block(old, Place::Last).unwrap();
        let mut unit = begin(&disk, "one", &UnitOptions::default());
        unit.write_block(block, 0, &[3; 512]).unwrap();
        let list = unit.create_list(&small, Place::First).unwrap();
        let fresh = unit.insert_block(list, Place::First).unwrap();
        unit.write_block(fresh, 0, &[1; 512]).unwrap();
        if with_barrier {
            unit.barrier(b"").unwrap();
        }
        unit.delete_list(list).unwrap();
        unit.delete_list(old).unwrap();
        let copied = copy(&mut unit, "two");
        unit.abort();
        copied.unit.commit().unwrap();
        assert_eq!(disk.lists().unwrap(), []);
        drop(volume);
        sound(medium, disk);
    }
}

/// A unit that asks for conflicts has a view of its own for them, but sees what is committed now.
#[test]
fn only_a_unit_that_sees_one_instant_is_told_to_see_one() {
    let (medium, mut disk, volume) = made(16);
    disk.take_snapshot("monday", &SnapshotOptions::default()).unwrap();
    let asks = |view, conflicts| UnitOptions { view, conflicts };
    drop(begin(&disk, "asks", &asks(UnitView::Moving, UnitConflicts::Read)));
    drop(begin(&disk, "frozen", &asks(UnitView::Frozen, UnitConflicts::Allowed)));
    let of_monday = UnitLabel { snapshot: Some("monday".to_owned()), ..label("clone") };
    drop(disk.begin_labelled(&of_monday, &UnitOptions::default()).unwrap());
    let seen = |disk: &Disk| disk.units().unwrap().into_iter().map(|unit| unit.snapshot).collect::<Vec<_>>();
    drop(volume);
    for turn in 0..3 {
        for name in ["asks", "frozen", "clone"].iter().filter(|_| turn != 1) {
            disk.resume(name).unwrap().barrier(b"").unwrap();
        }
        assert_eq!(seen(&disk), [None, Some(String::new()), Some("monday".to_owned())], "{turn}");
        disk.flush(Survive::Power).unwrap();
        disk = killed(&medium, disk);
    }
    sound(medium, disk);
}

/// P5: what does not fit, or is not wanted any more, leaves nothing behind.
#[test]
fn a_copy_that_fails_leaves_nothing() {
    let (medium, disk, volume) = made(1 << 14);
    let mut unit = begin(&disk, "one", &UnitOptions::default());
    unit.write_at(&volume, 0, &vec![1; 4 << 20]).unwrap();
    unit.barrier(b"").unwrap();
    let seen = std::cell::RefCell::new(Vec::new());
    let ended = unit.copy(&label("two"), &mut |done, total| {
        seen.borrow_mut().push((done, total));
        if done > 1 << 20 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(ended.unwrap().is_none(), "{:?}", seen.borrow());
    assert!(seen.borrow().len() > 2 && seen.borrow().iter().all(|(_, total)| *total == 4 << 20));
    let full = unit.copy(&label("two"), &mut |_, _| ControlFlow::Continue(()));
    assert_eq!(full.err().unwrap().kind(), ErrorKind::Full);
    assert_eq!(disk.units().unwrap().len(), 1);
    assert_eq!(block(&unit, &volume, 8191), 1);
    unit.commit().unwrap();
    assert_eq!(committed(&volume, 8191), 1);
    drop(volume);
    sound(medium, disk);
}

/// R4: the copy means the blocks that the unit meant, also when that has ended.
#[test]
fn no_number_that_a_copy_names_is_given_out_again() {
    let (medium, disk, volume) = made(16);
    let list = disk.create_list(&ListOptions { block_bytes: 512, ..ListOptions::default() }, Place::Last).unwrap();
    let block = disk.insert_block(list, Place::Last).unwrap();
    let frozen = UnitOptions { view: UnitView::Frozen, ..UnitOptions::default() };
    let mut unit = begin(&disk, "one", &frozen);
    unit.write_block(block, 0, &[1; 512]).unwrap();
    disk.remove_block(list, block).unwrap();
    let come_back = |disk: &Disk| {
        for _ in 0..50 {
            let other = disk.insert_block(list, Place::Last).unwrap();
            assert_ne!(other, block, "somebody means the old block of this number");
            disk.remove_block(list, other).unwrap();
            disk.begin().unwrap().commit().unwrap();
        }
    };
    come_back(&disk);
    let two = copy(&mut unit, "two").unit;
    unit.abort();
    come_back(&disk);
    assert_eq!(two.commit().unwrap_err().kind(), ErrorKind::Conflict);
    disk.abort_unit(disk.unit_labelled("two").unwrap()).unwrap();
    drop(volume);
    sound(medium, disk);
}
