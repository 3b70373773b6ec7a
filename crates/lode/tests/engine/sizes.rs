//! Blocks of several sizes on one disk, and what their map costs.
use crate::basics::{medium, quiet};
use crate::tape::{BLOCK, Tape, open};
use lode::{Compression, Disk, Survive, VolumeOptions};

/// LD-14: data in blocks of 4096 bytes and of 64 KiB, and 10,000 i-nodes in blocks of 64 bytes, written in turns into
/// the same segments. The map of the i-nodes takes at most 120 KB if they are written in order, and if they are not,
/// one line of 64 bytes for each five blocks of the ten leaves that hold them, two more for each leaf, and 256 bytes for
/// the list.
#[test]
fn ten_thousand_blocks_of_64_bytes_live_among_large_ones_and_cost_little_map() {
    let compression = Compression::Lz4;
    for (stride, most) in [(1, 120_000), (7919, 10 * (205 + 2) * 64 + 256)] {
        let medium = medium(64, 1 << 20, 4096);
        let disk = Disk::open(medium.clone(), &quiet()).unwrap();
        let inodes = VolumeOptions { bytes: 10_000 * 64, block_bytes: 64, compression };
        let data = VolumeOptions { bytes: 1000 * 4096, block_bytes: 4096, compression };
        let large = VolumeOptions { bytes: 16 << 16, block_bytes: 1 << 16, compression: Compression::None };
        let inodes = disk.create_volume("inodes", &inodes).unwrap();
        let data = disk.create_volume("data", &data).unwrap();
        let large = disk.create_volume("large", &large).unwrap();
        let filled = |n: u64, len: usize| n.to_le_bytes().repeat(len / 8);
        let mut map = 0i64;
        for n in 0..10_000u64 {
            if n % 10 == 0 {
                data.write_at(n / 10 * 4096, &filled(n, 4096)).unwrap();
            }
            if n % 625 == 0 {
                large.write_at((n / 625) << 16, &filled(n, 1 << 16)).unwrap();
            }
            let before = disk.counters().tables_bytes.cast_signed();
            let inode = n * stride % 10_000;
            inodes.write_at(inode * 64, &filled(inode, 64)).unwrap();
            map += disk.counters().tables_bytes.cast_signed() - before;
        }
        assert!(map <= most, "{map} bytes of map for 10,000 blocks of 64 bytes, stride {stride}");
        disk.flush(Survive::Power).unwrap();
        let mut mixed = 0;
        disk.inspect_batches(&mut |batch| {
            let holds =
                |list| batch.content.iter().any(|record| record.starts_with(&format!("Put {{ list: {list:?}, ")));
            mixed += u32::from(holds(inodes.list()) && holds(data.list()));
        })
        .unwrap();
        assert!(mixed > 4, "blocks of several sizes lie in one batch: {mixed} times");
        let sizes: Vec<(u32, u64)> =
            disk.volumes().unwrap().into_iter().map(|volume| (volume.block_bytes, volume.mapped_blocks)).collect();
        assert_eq!(sizes, [(4096, 1000), (64, 10_000), (1 << 16, 16)]);
        drop((inodes, data, large, disk));
        let disk = Disk::open(medium.clone(), &quiet()).unwrap();
        for (name, bytes, blocks) in [("inodes", 64, 10_000), ("data", 4096, 1000), ("large", 1 << 16, 16)] {
            let volume = disk.volume(name).unwrap();
            let mut read = vec![0; bytes];
            for block in 0..blocks {
                volume.read_at(block * bytes as u64, &mut read).unwrap();
                let step = [1, 10, 625][["inodes", "data", "large"].iter().position(|n| *n == name).unwrap()];
                assert!(read == filled(block * step, bytes), "{name} block {block}");
            }
        }
        drop(disk);
        assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
    }
}

/// CT-20: a place is zone, offset and length, so blocks of every size, and what compression leaves of them, lie one
/// behind the other in one segment.
#[test]
fn blocks_of_every_size_and_stored_length_lie_in_one_segment() {
    let tape = Tape::formatted(64, 1 << 20, BLOCK);
    let disk = open(&tape);
    let mut state = 1u64;
    let noise: Vec<u8> = (0..1 << 16).map(|_| next(&mut state)).collect();
    let sizes: Vec<usize> = (6..=16).map(|shift| 1 << shift).collect();
    for size in &sizes {
        let block_bytes = u32::try_from(*size).unwrap();
        let options = VolumeOptions { bytes: 1 << 17, block_bytes, compression: Compression::Lz4 };
        let volume = disk.create_volume(&size.to_string(), &options).unwrap();
        volume.write_at(0, &vec![7; *size]).unwrap();
        volume.write_at(u64::from(block_bytes), &noise[..*size]).unwrap();
    }
    disk.flush(Survive::Power).unwrap();
    let used = disk.inspect_segments().into_iter().filter(|segment| segment.holds == "main" && segment.blocks > 0);
    assert_eq!(used.map(|segment| segment.blocks).collect::<Vec<_>>(), [22]);
    let stored = usize::try_from(disk.info().unwrap().stored).unwrap();
    let whole: usize = sizes.iter().sum();
    assert!(
        stored > whole && stored < whole * 11 / 10,
        "{stored} bytes for {whole} that do not shrink and as many that do"
    );
    let disk = open(&tape.cut_hard());
    for size in sizes {
        let mut read = vec![0; 2 * size];
        disk.volume(&size.to_string()).unwrap().read_at(0, &mut read).unwrap();
        assert!(read[..size].iter().all(|byte| *byte == 7) && read[size..] == noise[..size], "{size}");
    }
}

/// A byte that looks drawn.
fn next(state: &mut u64) -> u8 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    state.to_be_bytes()[0]
}
