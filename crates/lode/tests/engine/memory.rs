use super::basics::{medium, quiet};
use lode::{Disk, OpenOptions, Survive, VolumeOptions};

/// Small blocks, so that many leaves of the map fit on a small disk.
const BLOCK: u64 = 64;
const LEAVES: u64 = 600;
/// Blocks of a leaf on the disk below.
const LEAF: u64 = 1024;

fn stamp(leaf: u64, turn: u8) -> [u8; 64] {
    let mut bytes = [turn; 64];
    bytes[..8].copy_from_slice(&leaf.to_le_bytes());
    bytes
}

/// R24: what is bigger than memory is dropped, and read back when it is used.
#[test]
fn tables_stay_within_their_memory_and_nothing_is_lost() {
    let medium = medium(128, 1 << 20, 4096);
    let options = OpenOptions { tables_bytes: 64 << 10, ..quiet() };
    let disk = Disk::open(medium.clone(), &options).unwrap();
    let volume = VolumeOptions { bytes: LEAVES * LEAF * BLOCK, block_bytes: 64, ..Default::default() };
    let volume = disk.create_volume("v", &volume).unwrap();
    for leaf in 0..LEAVES {
        volume.write_at(leaf * LEAF * BLOCK, &stamp(leaf, 1)).unwrap();
    }
    // What is not on the medium yet stays in memory, whatever the limit.
    disk.maintain().unwrap();
    let all = disk.counters().tables_bytes;
    disk.checkpoint().unwrap();
    while disk.maintain().unwrap() {}
    let trimmed = disk.counters().tables_bytes;
    assert!(all > 128 << 10 && trimmed < all / 2, "{all} bytes of tables, {trimmed} after trimming");
    assert!(lode::marks().iter().any(|(name, _)| *name == "map: leaves dropped from memory"));

    // Some are overwritten, one by one and as a unit over all leaves; the rest is read back as it was.
    let mut unit = disk.begin().unwrap();
    for leaf in 0..LEAVES {
        match leaf % 3 {
            0 => drop(volume.write_at(leaf * LEAF * BLOCK, &stamp(leaf, 2)).unwrap()),
            1 => unit.write_at(&volume, leaf * LEAF * BLOCK, &stamp(leaf, 3)).unwrap(),
            _ => {}
        }
        disk.maintain().unwrap();
    }
    unit.commit_and_flush(Survive::Power).unwrap();
    let expected = |leaf: u64| stamp(leaf, [2, 3, 1][usize::try_from(leaf % 3).unwrap()]);
    let read_all = |disk: &Disk| {
        let volume = disk.volume("v").unwrap();
        for leaf in 0..LEAVES {
            let mut block = [0; 64];
            volume.read_at(leaf * LEAF * BLOCK, &mut block).unwrap();
            assert_eq!(block, expected(leaf), "leaf {leaf}");
        }
    };
    read_all(&disk);
    drop((volume, disk));
    assert_eq!(Disk::check(medium.clone()).unwrap().problems, Vec::<String>::new());
    read_all(&Disk::open(medium, &options).unwrap());
}
