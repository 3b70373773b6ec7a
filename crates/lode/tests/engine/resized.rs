use super::basics::{medium, quiet};
use lode::{Disk, ErrorKind, FormatOptions, OpenOptions, Survive, VolumeOptions};
use lode_media::ram::RamMedium;
use lode_media::{Medium, Position, ZoneId};
use std::sync::Arc;

#[test]
fn what_a_cut_took_from_a_block_does_not_come_back_with_a_unit_that_wrote_another_part_of_it() {
    let geometry =
        lode_media::Geometry { zones: lode::SMALLEST_ZONES + 8, zone_bytes: 32 << 10, append_align: 512, devices: 1 };
    let medium: Arc<dyn lode_media::Medium> = Arc::new(RamMedium::new(geometry));
    Disk::format(Arc::clone(&medium), &FormatOptions { disk_id: 7 }).unwrap();
    let disk = Disk::open(medium, &OpenOptions { background: false, ..OpenOptions::default() }).unwrap();
    let volume =
        disk.create_volume("v", &VolumeOptions { bytes: 512, block_bytes: 512, ..VolumeOptions::default() }).unwrap();
    volume.write_at(0, &[1; 512]).unwrap();
    let mut unit = disk.begin().unwrap();
    unit.write_at(&volume, 0, &[2; 4]).unwrap();
    disk.resize_volume("v", 300).unwrap();
    unit.commit().unwrap();
    disk.resize_volume("v", 512).unwrap();
    let mut found = [9; 512];
    volume.read_at(0, &mut found).unwrap();
    assert_eq!(found[..4], [2; 4]);
    assert_eq!(found[4..300], [1; 296]);
    assert_eq!(found[300..], [0; 212], "what the resize cut off is back");
}

/// A unit makes a volume shorter than its own writes reach, and others make it shorter still: nothing of the unit is
/// lost but what it cut itself.
#[test]
fn a_unit_cuts_its_own_writes_although_others_have_cut_more() {
    let disk = Disk::open(medium(64, 64 << 10, 512), &quiet()).unwrap();
    let volume = VolumeOptions { bytes: 2048, block_bytes: 512, ..Default::default() };
    let volume = disk.create_volume("v", &volume).unwrap();
    let mut unit = disk.begin().unwrap();
    unit.write_at(&volume, 1536, &[1; 512]).unwrap();
    disk.resize_volume("v", 512).unwrap();
    unit.resize(&volume, 1536).unwrap();
    unit.commit().unwrap();
    assert_eq!(volume.bytes(), 1536);
}

#[test]
fn a_repaired_disk_opens_again_like_any_other() {
    let geometry =
        lode_media::Geometry { zones: lode::SMALLEST_ZONES + 8, zone_bytes: 32 << 10, append_align: 512, devices: 1 };
    let ram = Arc::new(RamMedium::new(geometry));
    let medium = || Arc::clone(&ram) as Arc<dyn Medium>;
    let options = OpenOptions { background: false, ..OpenOptions::default() };
    Disk::format(medium(), &FormatOptions { disk_id: 7 }).unwrap();
    let disk = Disk::open(medium(), &options).unwrap();
    let volume = disk
        .create_volume("v", &VolumeOptions { bytes: 64 << 10, block_bytes: 512, ..VolumeOptions::default() })
        .unwrap();
    for n in 0..6u8 {
        volume.write_at(u64::from(n) * 512, &[n + 1; 512]).unwrap();
        disk.flush(Survive::Power).unwrap();
    }
    drop((volume, disk));
    // The third batch of the record stream loses its header.
    let mut batches = Vec::new();
    for zone in 4..geometry.zones {
        for offset in (0..geometry.zone_bytes).step_by(512) {
            let at = Position { zone: ZoneId(zone), offset };
            let mut head = [0; 8];
            ram.read(at, &mut head).unwrap();
            if &head[..4] == b"LODE" && head[6] == 1 {
                batches.push(at);
            }
        }
    }
    assert!(batches.len() >= 6, "{batches:?}");
    ram.overwrite(batches[2], &[0; 512]).unwrap();
    assert!(Disk::open(medium(), &options).is_err());
    let disk = Disk::open(medium(), &OpenOptions { repair: true, ..options.clone() }).unwrap();
    disk.volume("v").unwrap().write_at(0, &[77; 512]).unwrap();
    disk.flush(Survive::Power).unwrap();
    drop(disk);
    Disk::open(medium(), &options).unwrap();
}

/// P5: a volume can be made shorter, and longer, on a full disk, also in the middle of a block.
#[test]
fn a_volume_is_resized_on_a_full_disk() {
    let disk = Disk::open(medium(64, 64 << 10, 512), &quiet()).unwrap();
    let volume = VolumeOptions { bytes: 16 << 20, block_bytes: 512, ..Default::default() };
    let volume = disk.create_volume("v", &volume).unwrap();
    let mut end = 0;
    while volume.write_at(end, &[7; 512]).map_err(|error| assert_eq!(error.kind(), ErrorKind::Full)).is_ok() {
        end += 512;
    }
    for bytes in [end - 512 - 100, end - 50, (32 << 20) + 7, 1000] {
        disk.resize_volume("v", bytes).unwrap();
    }
    let mut read = [1; 1000];
    disk.volume("v").unwrap().read_at(0, &mut read).unwrap();
    assert_eq!(read, [7; 1000]);
}
