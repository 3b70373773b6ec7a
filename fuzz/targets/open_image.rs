//! Opening a disk some of whose bytes were changed: an error or the right content, never other content, never a panic.
//!
//! The first byte of an input chooses: bit 0, which of two disks (closed cleanly, or left as by kill -9); bit 1, whether
//! the checksums of batches are made right again, so that what is behind them is reached; bit 2, whether the disk is
//! repaired and written on (not with checksums made right: then the tables may say anything, and invariants do not hold).
//! Then patches: three bytes of offset, one of length, and the bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lode::{Compression, Disk, FormatOptions, OpenOptions, Survive, VolumeOptions};
use lode_media::{Geometry, Medium, Position, ZoneId, ram::RamMedium};
use std::sync::{Arc, LazyLock};

const ZONE: usize = 8192;
const GEOMETRY: Geometry = Geometry { zones: 40, zone_bytes: 8192, append_align: 512, devices: 1 };
const VOLUMES: [(&str, u64, u32, Compression); 3] = [
    ("plain", 9000, 512, Compression::None),
    ("packed", 12_000, 256, Compression::Lz4),
    ("small", 1500, 64, Compression::None),
];

struct Base {
    image: Vec<u8>,
    /// What each volume holds.
    contents: Vec<Vec<u8>>,
    /// Where batches start.
    batches: Vec<usize>,
}

static BASES: LazyLock<[Base; 2]> = LazyLock::new(|| [Base::new(true), Base::new(false)]);

fn at(offset: usize) -> Position {
    let zone = u32::try_from(offset / ZONE).expect("small");
    Position { zone: ZoneId(zone), offset: u32::try_from(offset % ZONE).expect("small") }
}

fn word(image: &[u8], offset: usize) -> usize {
    let bytes = image.get(offset..offset + 4).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| usize::try_from(u32::from_le_bytes(*bytes)).expect("wide"))
}

impl Base {
    fn new(closed: bool) -> Base {
        let medium = Arc::new(RamMedium::new(GEOMETRY));
        Disk::format(medium.clone(), &FormatOptions { disk_id: 42 }).expect("it is large enough");
        let disk = Disk::open(medium.clone(), &options(false, false)).expect("it is new");
        let volumes: Vec<_> = VOLUMES
            .iter()
            .map(|&(name, bytes, block_bytes, compression)| {
                disk.create_volume(name, &VolumeOptions { bytes, block_bytes, compression }).expect("there is room")
            })
            .collect();
        let mut draw = 1_u64;
        for round in 0..90_u8 {
            for volume in &volumes {
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let offset = (draw >> 33) % (volume.bytes() - 700);
                let data: Vec<u8> = (0..700_u16).map(|n| n.to_le_bytes()[0] / 9 ^ round).collect();
                let len = usize::from(round) * 5 + 1;
                volume.write_at(offset, &data[..len.min(700)]).expect("there is room");
            }
            if round % 7 == 0 {
                let mut unit = disk.begin().expect("it is open");
                volumes.iter().for_each(|volume| unit.write_at(volume, 5, b"in a unit").expect("there is room"));
                unit.commit().expect("nothing conflicts");
            }
            if round % 16 == 3 {
                volumes[1].discard(3000, 4000).expect("in range");
                disk.flush(Survive::Power).expect("memory does not fail");
            }
        }
        let contents = volumes.iter().map(|volume| read(volume).expect("nothing is damaged")).collect();
        drop(volumes);
        if closed {
            disk.close().expect("memory does not fail");
        } else {
            disk.flush(Survive::Power).expect("memory does not fail");
            drop(disk);
        }
        let mut image = vec![0; ZONE * 40];
        for (number, piece) in image.chunks_exact_mut(ZONE).enumerate() {
            medium.read(at(number * ZONE), piece).expect("in range");
        }
        let batches = (0..image.len()).step_by(512).filter(|&start| image[start..].starts_with(b"LODE")).collect();
        Base { image, contents, batches }
    }
}

/// Makes the checksum of the batch at `start` right, if its lengths allow.
fn seal(image: &mut [u8], start: usize) {
    let (data, records, head) = (word(image, start + 68), word(image, start + 72), word(image, start + 88));
    let zone_end = (start / ZONE + 1) * ZONE;
    if head < 128 || head > ZONE || records > ZONE || data > ZONE {
        return;
    }
    let in_head = records.min(head - 128);
    let tail = start + head + data.next_multiple_of(16);
    if tail + records - in_head > zone_end {
        return;
    }
    image[start + 124..start + 128].fill(0);
    let mut covered = image[start..start + 128 + in_head].to_vec();
    covered.extend_from_slice(&image[tail..tail + records - in_head]);
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &covered);
    image[start + 124..start + 128].copy_from_slice(&u32::try_from(sum).expect("32 bits").to_le_bytes());
}

fn options(read_only: bool, repair: bool) -> OpenOptions {
    OpenOptions { read_only, repair, background: false, cache_bytes: 0, ..OpenOptions::default() }
}

fn read(volume: &lode::Volume) -> lode::Result<Vec<u8>> {
    let mut content = vec![0; usize::try_from(volume.bytes().min(1 << 20)).expect("small")];
    volume.read_at(0, &mut content)?;
    Ok(content)
}

/// Reads all there is by every way there is. With `expected`, content other than that is a finding.
fn read_all(disk: &Disk, expected: Option<&[Vec<u8>]>) {
    let _ = (disk.info(), disk.counters(), disk.inspect_segments(), disk.inspect_lists());
    let _ = disk.inspect_batches(&mut |_| {});
    let _ = disk.scrub(&mut |_, _| std::ops::ControlFlow::Continue(()));
    for info in disk.volumes().unwrap_or_default() {
        let Ok(volume) = disk.volume(&info.name) else { continue };
        let _ = volume.extents(0, volume.bytes().min(1 << 20));
        let found = read(&volume);
        let known = VOLUMES.iter().position(|known| known.0 == info.name);
        if let (Some(expected), Some(known), Ok(found)) = (expected, known, &found) {
            assert!(*found == expected[known], "{}: other content, and nothing said so", info.name);
        }
        // What is not damaged must not be in the way of what is.
        let mut piece = [0; 64];
        for offset in (0..volume.bytes().min(1 << 16)).step_by(64).take_while(|_| found.is_err()) {
            let len = usize::try_from((volume.bytes() - offset).min(64)).expect("small");
            let _ = volume.read_at(offset, &mut piece[..len]);
        }
    }
}

/// What a person does with a damaged disk: repair it, write, and use it again.
fn repaired(medium: Arc<RamMedium>) {
    let Ok(disk) = Disk::open(medium.clone(), &options(false, true)) else { return };
    read_all(&disk, None);
    let written = disk
        .create_volume("new", &VolumeOptions { bytes: 5000, block_bytes: 512, ..VolumeOptions::default() })
        .and_then(|volume| volume.write_at(100, b"written after the repair"))
        .and_then(|_| disk.flush(Survive::Power));
    let _ = (disk.checkpoint(), disk.clean());
    if disk.close().is_err() || written.is_err() {
        return;
    }
    let again = Disk::open(medium, &options(false, true)).expect("what was repaired and closed opens");
    let mut found = [0; 24];
    again.volume("new").expect("it was flushed").read_at(100, &mut found).expect("it was flushed");
    assert_eq!(&found, b"written after the repair");
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, mut rest)) = bytes.split_first() else { return };
    let base = &BASES[usize::from(choice & 1)];
    let mut image = base.image.clone();
    let mut patches = 0;
    while let Some(([a, b, c, len], more)) = rest.split_first_chunk() {
        // Mostly into a batch's front, where each byte means something; else anywhere.
        let start = if a & 3 == 0 {
            usize::from(*b) * 256 * 6 + usize::from(*c) * 6
        } else {
            base.batches[(usize::from(*b) * 4 + usize::from(*a & 3)) % base.batches.len()] + usize::from(*c) * 2
        };
        let start = start % image.len();
        let (patch, more) = more.split_at((usize::from(len % 32) + 1).min(more.len()));
        let end = (start + patch.len()).min(image.len());
        image[start..end].copy_from_slice(&patch[..end - start]);
        patches += 1;
        rest = more;
    }
    let resealed = choice & 2 != 0;
    if resealed {
        base.batches.iter().for_each(|&start| seal(&mut image, start));
    }
    let medium = Arc::new(RamMedium::new(GEOMETRY));
    for (number, piece) in image.chunks_exact(ZONE).enumerate() {
        medium.overwrite(at(number * ZONE), piece).expect("in range");
    }
    let before = medium.counts();
    let report = Disk::check(medium.clone());
    if let Ok(disk) = Disk::open(medium.clone(), &options(true, false)) {
        // One damaged place must be told, or do no harm. Two may be both copies of something.
        let silent = disk.info().is_ok_and(|info| info.damaged.is_none());
        let witnessed = choice & 1 == 0 && patches <= 1 && !resealed && silent && report.is_ok();
        read_all(&disk, witnessed.then_some(&base.contents));
    }
    let after = medium.counts();
    assert!(before.appends == after.appends && before.erases == after.erases, "looking has written");
    if choice & 4 != 0 && !resealed {
        repaired(medium);
    }
});
