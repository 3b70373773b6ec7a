//! Finding a disk in any bytes: an error or a geometry that fits in them, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lode_media::{Geometry, Medium, Position, ZoneId, ram::RamMedium};
use std::sync::{Arc, LazyLock};

const GEOMETRY: Geometry = Geometry { zones: 40, zone_bytes: 8192, append_align: 512, devices: 1 };

/// A whole disk, from which inputs take bytes.
static DISK: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let medium = Arc::new(RamMedium::new(GEOMETRY));
    lode::Disk::format(medium.clone(), &lode::FormatOptions { disk_id: 42 }).expect("it is large enough");
    let mut image = vec![0; 40 * 8192];
    for (zone, into) in (0..).zip(image.chunks_exact_mut(8192)) {
        medium.read(Position { zone: ZoneId(zone), offset: 0 }, into).expect("in range");
    }
    image
});

/// The checksum of the root at the start of a zone made right, if its lengths allow.
fn seal(image: &mut [u8], at: usize) {
    let Some(header) = image.get(at..at + 128) else { return };
    let records = usize::try_from(u32::from_le_bytes(*header[72..].first_chunk().expect("four bytes"))).expect("wide");
    let Some(end) = (at + 128).checked_add(records).filter(|end| *end <= image.len()) else { return };
    image[at + 124..at + 128].fill(0);
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &image[at..end]);
    image[at + 124..at + 128].copy_from_slice(&u32::try_from(sum).expect("32 bits").to_le_bytes());
}

fn find(image: &[u8], told: u64) {
    let mut read = |offset: u64, into: &mut [u8]| {
        assert!(into.len() <= 1 << 28, "a length that nothing bounds");
        let from = usize::try_from(offset).expect("wide").min(image.len());
        let have = into.len().min(image.len() - from);
        into[..have].copy_from_slice(&image[from..from + have]);
        Ok(())
    };
    if let Ok(found) = lode::probe(told, &mut read) {
        assert!(u64::from(found.zones) * u64::from(found.zone_bytes) <= told);
        let sound = found.zones > 0
            && found.append_align > 0
            && found.zone_bytes > 0
            && found.zone_bytes.is_multiple_of(found.append_align);
        assert!(sound, "a geometry that no medium has: {found:?}");
        // What probe finds is opened next. Larger ones would only cost memory here.
        if u64::from(found.zones) * u64::from(found.zone_bytes) <= 1 << 20 {
            let medium = RamMedium::new(found);
            for (zone, bytes) in (0..found.zones).zip(image.chunks(usize::try_from(found.zone_bytes).expect("wide"))) {
                medium.overwrite(Position { zone: ZoneId(zone), offset: 0 }, bytes).expect("in range");
            }
            let options = lode::OpenOptions { read_only: true, background: false, ..Default::default() };
            let _ = lode::Disk::open(Arc::new(medium), &options);
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    find(bytes, u64::try_from(bytes.len()).expect("small"));
    let mut image = DISK.clone();
    for patch in bytes.chunks_exact(4) {
        let zone = usize::from(patch[0] & 3) * 8192;
        let at = zone + usize::from(patch[1]) % 256 + if patch[0] & 4 == 0 { 0 } else { 128 };
        image[at..at + 2].copy_from_slice(&patch[2..]);
    }
    for zone in 0..4 {
        seal(&mut image, zone * 8192);
    }
    let told = u64::try_from(image.len()).expect("small");
    find(&image, if bytes.len() % 5 == 4 { told / 2 } else { told });
});
