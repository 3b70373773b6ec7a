//! The rules about media and about writes of parts of blocks (R1 to R5), each with the schedule that it answers.
use crate::tape::{BLOCK, Call, Fate, Tape, bare, open, put, recovered, values, write};
use lode::{Compression, Disk, Lsn, Survive, Unit, Volume, VolumeOptions};
use lode_media::Medium;
use std::sync::Arc;

/// R1: appends persist in any order. Four batches are on their way, and any of them may be missing after a cut: what is
/// left is a prefix, whatever lies behind the first gap.
#[test]
fn appends_that_persist_in_any_order_leave_a_prefix() {
    let tape = Tape::formatted(48, 32 << 10, 512);
    let disk = open(&tape);
    let start = tape.len();
    (0..4).for_each(|block| write(&disk, block, 1));
    let batches: Vec<usize> = tape.batches(start).iter().map(|(n, ..)| *n).collect();
    assert_eq!(batches.len(), 4);
    for kept in 0..16u32 {
        let is_kept = |n| batches.iter().position(|batch| *batch == n).is_none_or(|at| kept >> at & 1 == 1);
        let cut = tape.cut(tape.len(), |n, _| if is_kept(n) { Fate::New } else { Fate::Old });
        let prefix = usize::try_from(kept.trailing_ones()).unwrap();
        let expected: Vec<u8> = (0..4).map(|block| u8::from(block < prefix)).collect();
        assert_eq!(recovered(&cut, 4), expected, "kept: {kept:04b}");
    }
}

/// R1: a sync covers what an earlier opening appended. A process dies with unsynced batches; the next one sees them,
/// begins its epoch behind them, and then the power is cut: what it saw must be durable before its root says so.
#[test]
fn what_a_dead_process_left_unsynced_is_durable_once_the_next_has_begun() {
    let tape = Tape::formatted(48, 32 << 10, 512);
    let disk = open(&tape);
    write(&disk, 0, 1);
    write(&disk, 1, 2);
    drop(disk);
    tape.next_process();
    let start = tape.len();
    let disk = open(&tape);
    assert_eq!(values(&disk, 2), [1, 2]);
    let opened = tape.len();
    drop(disk);
    for at in start..=opened {
        // The worst for the epoch: whatever it wrote is there, and what it found is not, as far as no sync says.
        let cut = tape.cut(at, |n, _| if n < start { Fate::Old } else { Fate::New });
        let found = recovered(&cut, 2);
        assert!(found == [0, 0] || found == [1, 2], "{found:?} after a cut at {at}");
        assert!(at < opened || found == [1, 2], "an opening that returned has made durable what it found");
    }
}

/// R2: a cut may leave each sector of an unsynced append old, new or garbage, by itself, and never touches a sector
/// that was synced. All mixtures: what was flushed is there, and the torn operation counts whole or not at all.
#[test]
fn every_mixture_of_sectors_of_a_torn_append_leaves_what_was_flushed() {
    for (zone_bytes, align) in [(32 << 10, 512), (64 << 10, 4096)] {
        let tape = Tape::formatted(48, zone_bytes, align);
        let disk = open(&tape);
        write(&disk, 0, 1);
        disk.flush(Survive::Power).unwrap();
        let start = tape.len();
        let mut unit = disk.begin().unwrap();
        unit.write_at(&disk.volume("v").unwrap(), u64::from(BLOCK), &[2; 2 * BLOCK as usize]).unwrap();
        unit.commit().unwrap();
        disk.flush(Survive::Process).unwrap();
        let [(torn, at, bytes)] = &tape.batches(start)[..] else { panic!("one batch was expected") };
        assert!(at.offset > 0, "the torn batch lies behind the flushed one, in its zone");
        let sectors = bytes.len() / usize::try_from(align).unwrap();
        assert!(sectors >= 2);
        let fates = [Fate::Old, Fate::New, Fate::Noise, Fate::Zeros];
        for mixture in 0..1usize << (2 * sectors) {
            let fate = |sector: usize| fates[mixture >> (2 * sector) & 3];
            let cut = tape.cut(tape.len(), |n, sector| if n == *torn { fate(sector) } else { Fate::New });
            let whole = (0..sectors).all(|sector| fate(sector) == Fate::New);
            let found = recovered(&cut, 3);
            assert!(found == if whole { [1, 2, 2] } else { [1, 0, 0] }, "{found:?} of mixture {mixture:#b}");
        }
    }
}

/// R3: space is made real before it is needed. When the file system below is full, the write that would open another
/// zone is refused; what was accepted before still gets durable, and nothing is latched.
#[test]
fn a_file_system_that_is_full_refuses_a_write_and_never_a_flush() {
    let tape = Tape::formatted(48, 32 << 10, 512);
    let disk = open(&tape);
    write(&disk, 0, 1);
    tape.refuse_erases(true);
    let volume = disk.volume("v").unwrap();
    let mut accepted = 0u8;
    let refused = (0..200u8).find_map(|n| {
        let bytes = [n + 1; BLOCK as usize];
        let done = volume.write_at(u64::from(n % 64) * u64::from(BLOCK), &bytes);
        accepted += u8::from(done.is_ok());
        done.err()
    });
    assert!(refused.expect("no zone is to be had").to_string().contains("erasing"));
    let before = values(&disk, 64);
    disk.flush(Survive::Power).expect("a flush needs no further zone");
    assert_eq!(recovered(&tape.cut_hard(), 64), before);
    tape.refuse_erases(false);
    for n in accepted..200 {
        put(&volume, u64::from(n % 64), n + 1);
    }
    disk.flush(Survive::Power).unwrap();
    let after = values(&disk, 64);
    assert_eq!(after[7], 200, "the last write of block 7");
    assert_eq!(recovered(&tape.cut_hard(), 64), after);
}

type PartialWrite = fn(&Volume) -> lode::Result<Lsn>;

/// R5: a write of a part is one read-modify-write in order with every other write of the block. While its base is on
/// the way from the medium, another writer changes the block: neither of the two changes may be lost.
#[test]
fn a_part_is_written_again_when_its_block_changed_while_it_was_read() {
    let writes: [(&str, PartialWrite); 4] = [
        ("short", |volume| volume.write_at(100, &[2; 100])),
        ("long", |volume| volume.write_at(100, &[2; 40_000])),
        ("discard", |volume| volume.discard(100, 100)),
        ("over an edge", |volume| volume.write_at(100, &[2; 1000])),
    ];
    for (what, write) in writes {
        for compression in [Compression::None, Compression::Lz4] {
            let tape = Tape::formatted(48, 32 << 10, 512);
            let disk = open(&tape);
            let options = VolumeOptions { bytes: 64 << 10, block_bytes: BLOCK, compression };
            let volume = disk.create_volume("w", &options).unwrap();
            volume.write_at(0, &[1; BLOCK as usize]).unwrap();
            disk.flush(Survive::Power).unwrap();
            let other = volume.clone();
            tape.hook(Call::Read, move || assert!(other.write_at(0, &[3; 10]).is_ok()));
            write(&volume).unwrap();
            let mut read = [0; 300];
            volume.read_at(0, &mut read).unwrap();
            assert_eq!(read[..10], [3; 10], "{what}: what was written meanwhile");
            assert_eq!(read[10..100], [1; 90], "{what}");
            assert!(read[100..200].iter().all(|byte| *byte == if what == "discard" { 0 } else { 2 }), "{what}");
            disk.flush(Survive::Power).unwrap();
            let after = open(&tape.cut_hard());
            let mut again = [0; 300];
            after.volume("w").unwrap().read_at(0, &mut again).unwrap();
            assert_eq!(again, read, "{what}: after a cut");
        }
    }
}

/// R5: cutting a volume in the middle of a block is such a write, too.
#[test]
fn a_cut_through_a_block_keeps_what_was_written_while_it_was_read() {
    let tape = Tape::formatted(48, 32 << 10, 512);
    let disk = open(&tape);
    let volume = disk.volume("v").unwrap();
    put(&volume, 0, 1);
    disk.flush(Survive::Power).unwrap();
    let other = volume.clone();
    tape.hook(Call::Read, move || assert!(other.write_at(0, &[3; 10]).is_ok()));
    disk.resize_volume("v", 100).unwrap();
    disk.resize_volume("v", 64 << 10).unwrap();
    let mut read = [9; BLOCK as usize];
    volume.read_at(0, &mut read).unwrap();
    let expected: Vec<u8> = [[3; 10].as_slice(), &[1; 90], &[0; 412]].concat();
    assert_eq!(read[..], expected[..]);
}

/// R5: a unit takes the base of a part at the write, and its whole block counts at the commit: what others wrote into
/// that block in between is replaced, and not a mixture of three states.
#[test]
fn a_unit_takes_its_base_at_the_write_and_its_whole_block_counts() {
    let tape = Tape::formatted(48, 32 << 10, 512);
    let disk = open(&tape);
    let volume = disk.volume("v").unwrap();
    put(&volume, 0, 1);
    let mut unit: Unit = disk.begin().unwrap();
    unit.write_at(&volume, 0, &[2; 10]).unwrap();
    volume.write_at(100, &[3; 10]).unwrap();
    unit.write_at(&volume, 200, &[4; 10]).unwrap();
    let mut inside = [0; BLOCK as usize];
    unit.read_at(&volume, 0, &mut inside).unwrap();
    unit.commit_and_flush(Survive::Power).unwrap();
    let expected: Vec<u8> = [[2; 10].as_slice(), &[1; 190], &[4; 10], &[1; 302]].concat();
    assert_eq!(inside[..], expected[..]);
    let medium: Arc<dyn Medium> = tape.cut_hard();
    for disk in [disk, Disk::open(medium, &bare()).unwrap()] {
        let mut read = [0; BLOCK as usize];
        disk.volume("v").unwrap().read_at(0, &mut read).unwrap();
        assert_eq!(read[..], expected[..]);
    }
}
