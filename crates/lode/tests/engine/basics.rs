use lode::{Compression, Disk, ErrorKind, FormatOptions, OpenOptions, Survive, VolumeOptions};
use lode_media::{Geometry, Medium, ram::RamMedium};
use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;

pub fn medium(zones: u32, zone_bytes: u32, align: u32) -> Arc<dyn Medium> {
    let medium = Arc::new(RamMedium::new(Geometry { zones, zone_bytes, append_align: align, devices: 1 }));
    Disk::format(medium.clone(), &FormatOptions { disk_id: 7 }).unwrap();
    medium
}

pub fn quiet() -> OpenOptions {
    OpenOptions { background: false, ..OpenOptions::default() }
}

fn filled(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| u8::try_from(n % 251).unwrap().wrapping_mul(31).wrapping_add(seed)).collect()
}

#[test]
fn what_is_written_is_read_before_and_after_reopening() {
    for background in [false, true] {
        let options = OpenOptions { background, ..OpenOptions::default() };
        let medium = medium(64, 1 << 20, 4096);
        let disk = Disk::open(medium.clone(), &options).unwrap();
        let volume = disk.create_volume("v", &VolumeOptions { bytes: 8 << 20, ..Default::default() }).unwrap();
        let mut twin = vec![0u8; 8 << 20];
        for (n, (offset, len)) in
            [(0, 4096), (4096, 8192), (5000, 100), (1 << 20, 3 << 20), (100, 70_000), (6_000_001, 1_000_003)]
                .into_iter()
                .enumerate()
        {
            let data = filled(len, u8::try_from(n).unwrap());
            volume.write_at(offset, &data).unwrap();
            twin[usize::try_from(offset).unwrap()..][..len].copy_from_slice(&data);
        }
        volume.discard(2 << 20, 500_000).unwrap();
        twin[2 << 20..(2 << 20) + 500_000].fill(0);
        let mut read = vec![1; 8 << 20];
        volume.read_at(0, &mut read).unwrap();
        assert!(read == twin);
        disk.flush(Survive::Power).unwrap();
        drop((volume, disk));
        assert_eq!(Disk::check(medium.clone()).unwrap().problems, Vec::<String>::new());
        let disk = Disk::open(medium.clone(), &options).unwrap();
        let volume = disk.volume("v").unwrap();
        volume.read_at(0, &mut read).unwrap();
        assert!(read == twin);
        disk.close().unwrap();
        drop(volume);
        assert_eq!(Disk::check(medium.clone()).unwrap().problems, Vec::<String>::new());
        let disk = Disk::open(medium, &options).unwrap();
        assert_eq!(disk.info().unwrap().replayed, 0);
        disk.volume("v").unwrap().read_at(0, &mut read).unwrap();
        assert!(read == twin);
    }
}

#[test]
fn a_unit_is_seen_by_nobody_until_it_commits() {
    let disk = Disk::open(medium(64, 1 << 20, 4096), &quiet()).unwrap();
    let volume = disk
        .create_volume("v", &VolumeOptions { bytes: 1 << 20, compression: Compression::Lz4, ..Default::default() })
        .unwrap();
    let mut a = disk.begin().unwrap();
    let mut b = disk.begin().unwrap();
    a.write_at(&volume, 10, b"aaaa").unwrap();
    b.write_at(&volume, 10, b"bbbb").unwrap();
    let mut read = [0; 4];
    volume.read_at(10, &mut read).unwrap();
    assert_eq!(&read, &[0; 4]);
    a.read_at(&volume, 10, &mut read).unwrap();
    assert_eq!(&read, b"aaaa");
    b.commit().unwrap();
    volume.read_at(10, &mut read).unwrap();
    assert_eq!(&read, b"bbbb");
    a.commit().unwrap();
    volume.read_at(10, &mut read).unwrap();
    assert_eq!(&read, b"aaaa");
    let mut c = disk.begin().unwrap();
    c.write_at(&volume, 10, b"cccc").unwrap();
    c.abort();
    volume.read_at(10, &mut read).unwrap();
    assert_eq!(&read, b"aaaa");
    assert_eq!(disk.info().unwrap().reserved, 0);
}

#[test]
fn a_disk_overwritten_many_times_is_cleaned_and_stays_sound() {
    for background in [false, true] {
        let options = OpenOptions { background, ..OpenOptions::default() };
        let medium = medium(64, 256 << 10, 4096);
        let disk = Disk::open(medium.clone(), &options).unwrap();
        let usable = disk.info().unwrap().usable;
        let blocks = usable * 8 / 10 / 4224;
        let volume = disk.create_volume("v", &VolumeOptions { bytes: blocks * 4096, ..Default::default() }).unwrap();
        let mut seed = 1u64;
        let mut twin = vec![0u64; usize::try_from(blocks).unwrap()];
        for step in 0..blocks * 8 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let block = (seed >> 33) % blocks;
            let data: Vec<u8> = (0..512).flat_map(|_| (step + 1).to_le_bytes()).collect();
            volume.write_at(block * 4096, &data).unwrap();
            twin[usize::try_from(block).unwrap()] = step + 1;
            if step % 1000 == 0 {
                disk.flush(Survive::Power).unwrap();
            }
        }
        for (block, expected) in twin.iter().enumerate() {
            let mut read = [0; 4096];
            volume.read_at(block as u64 * 4096, &mut read).unwrap();
            assert_eq!(u64::from_le_bytes(read[..8].try_into().unwrap()), *expected, "block {block}");
        }
        println!("{:?}", disk.counters());
        assert!(disk.counters().zones_cleaned > 0);
        drop(volume);
        disk.close().unwrap();
        assert_eq!(Disk::check(medium.clone()).unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn a_full_disk_says_so_and_works_again_after_a_delete() {
    for background in [false, true] {
        let options = OpenOptions { background, ..OpenOptions::default() };
        let medium = medium(64, 256 << 10, 4096);
        let disk = Disk::open(medium.clone(), &options).unwrap();
        for round in 0..3 {
            let volume = disk.create_volume("v", &VolumeOptions { bytes: 64 << 20, ..Default::default() }).unwrap();
            let mut offset = 0;
            let error = loop {
                match volume.write_at(offset, &filled(65536, 3)) {
                    Ok(_) => offset += 65536,
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            assert!(offset > 6 << 20, "only {offset} bytes fit in round {round}");
            volume.write_at(0, &filled(65536, 9)).unwrap();
            disk.delete_volume("v").unwrap();
            disk.flush(Survive::Power).unwrap();
            while disk.info().unwrap().live > 0 {
                if !background {
                    disk.maintain().unwrap();
                }
            }
        }
        disk.close().unwrap();
        assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn a_disk_made_again_where_one_of_the_same_name_was_is_empty() {
    let medium = medium(64, 256 << 10, 4096);
    for round in 0..3 {
        let disk = Disk::open(medium.clone(), &quiet()).unwrap();
        assert_eq!(disk.volumes().unwrap().len(), 0, "round {round}");
        let volume = disk.create_volume("v", &VolumeOptions { bytes: 1 << 20, ..Default::default() }).unwrap();
        volume.write_at(0, &filled(300_000, 1)).unwrap();
        drop(volume);
        disk.close().unwrap();
        Disk::format(medium.clone(), &FormatOptions { disk_id: 7 }).unwrap();
    }
}

/// LD-33: after random overwrites, one pass puts a volume back in order; snapshots and content stay.
#[test]
fn scattered_blocks_are_brought_together_again() {
    let medium = medium(256, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let options = VolumeOptions { bytes: 2 << 20, block_bytes: 512, ..Default::default() };
    let volume = disk.create_volume("v", &options).unwrap();
    volume.write_at(0, &vec![1; 2 << 20]).unwrap();
    let before = disk.stretches("v").unwrap();
    disk.take_snapshot("s", &lode::SnapshotOptions::default()).unwrap();
    let mut turn = 0u8;
    for step in 0..8192u64 {
        turn = turn.wrapping_add(1);
        volume.write_at(step * 2_654_435_761 % 4096 * 512, &[turn; 512]).unwrap();
    }
    let mut content = vec![0; 2 << 20];
    volume.read_at(0, &mut content).unwrap();
    assert!(disk.stretches("v").unwrap() > 1000);
    let mut told = (0, 0);
    let moved = disk.recluster("v", &mut |done, all| {
        told = (done, all);
        Continue(())
    });
    let moved = moved.unwrap();
    assert!(moved >= 1 << 20 && told.0 == told.1 && told.0 > 0);
    let after = disk.stretches("v").unwrap();
    assert!(after < before * 2, "{before} stretches became {after}");
    assert_eq!(disk.recluster("v", &mut |_, _| Continue(())).unwrap(), 0, "nothing lies scattered any more");
    let mut found = vec![0; 2 << 20];
    volume.read_at(0, &mut found).unwrap();
    assert!(found == content);
    disk.volume("v@s").unwrap().read_at(0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 1));
    while disk.maintain().unwrap() {}
    disk.close().unwrap();
    assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
}

#[test]
fn the_map_says_what_lies_where() {
    let disk = Disk::open(medium(100, 64 << 10, 512), &quiet()).unwrap();
    let options = VolumeOptions { bytes: 2 << 20, block_bytes: 512, ..Default::default() };
    let (v, w) = (disk.create_volume("v", &options).unwrap(), disk.create_volume("w", &options).unwrap());
    v.write_at(0, &vec![1; 512 << 10]).unwrap();
    w.write_at(0, &vec![2; 256 << 10]).unwrap();
    disk.take_snapshot("s", &lode::SnapshotOptions::default()).unwrap();
    v.write_at(0, &vec![3; 128 << 10]).unwrap();
    w.discard(0, 64 << 10).unwrap();
    disk.flush(Survive::Power).unwrap();
    let map = disk.map().unwrap();
    let of = |name: &str| {
        let list = map.lists.iter().position(|list| list == name).unwrap();
        let live = map.zones.iter().flat_map(|zone| &zone.lists).filter(|(number, _)| *number == list);
        live.map(|(_, bytes)| bytes).sum::<u64>()
    };
    assert_eq!((of("v"), of("w"), map.lists.len()), (512 << 10, 192 << 10, 2));
    assert_eq!(map.zones.iter().map(|zone| zone.snapshots).sum::<u64>(), (128 + 64) << 10);
    let stored = |zone: &lode::ZoneMap| zone.snapshots + zone.lists.iter().map(|(_, bytes)| bytes).sum::<u64>();
    for (zone, view) in map.zones.iter().zip(disk.inspect_segments()) {
        assert_eq!((zone.holds, stored(zone)), (view.holds, if view.holds == "roots" { 0 } else { view.live }));
    }
    let oldest = map.zones.iter().filter(|zone| stored(zone) > 0).map(|zone| zone.age).max();
    let filling = map.zones.iter().find(|zone| zone.filling && zone.holds == "main").unwrap();
    assert!(oldest > Some(filling.age), "{oldest:?} and {}", filling.age);
    disk.close().unwrap();
}

#[test]
fn a_scrub_that_is_broken_off_tells_of_what_it_read() {
    let disk = Disk::open(medium(100, 64 << 10, 512), &quiet()).unwrap();
    let options = VolumeOptions { bytes: 2 << 20, block_bytes: 512, ..Default::default() };
    disk.create_volume("v", &options).unwrap().write_at(0, &vec![1; 1 << 20]).unwrap();
    let whole = disk.scrub(&mut |_, _| Continue(())).unwrap();
    let mut calls = 0;
    let part = disk.scrub(&mut |_, _| {
        calls += 1;
        if calls < 3 { Continue(()) } else { Break(()) }
    });
    let part = part.unwrap();
    assert_eq!((whole.blocks, calls), (2048, 3));
    assert!(part.blocks > 0 && part.blocks < whole.blocks, "{} of {} blocks", part.blocks, whole.blocks);
    disk.close().unwrap();
}

/// Zones that a pass has emptied are used again by the same pass.
#[test]
fn a_disk_with_little_room_is_brought_into_order_too() {
    let disk = Disk::open(medium(100, 64 << 10, 512), &quiet()).unwrap();
    let options = VolumeOptions { bytes: 2 << 20, block_bytes: 512, ..Default::default() };
    let volume = disk.create_volume("v", &options).unwrap();
    volume.write_at(0, &vec![1; 2 << 20]).unwrap();
    for step in 0..8192u64 {
        volume.write_at(step * 2_654_435_761 % 4096 * 512, &[3; 512]).unwrap();
    }
    let before = disk.stretches("v").unwrap();
    assert!(disk.recluster("v", &mut |_, _| Continue(())).unwrap() > 0);
    let after = disk.stretches("v").unwrap();
    assert!(after * 8 < before, "{before} stretches became {after}");
}
