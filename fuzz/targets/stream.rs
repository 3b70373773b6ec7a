//! Receiving a stream some of whose bytes were changed: an error that leaves the disk as it was, or all of what the
//! stream says on a disk that is sound; never a panic.
//!
//! The first byte of an input chooses: bit 0, a full or an incremental stream; bit 1, whether checksums are made right
//! again, so that what is behind them is reached; bit 2, whether changes of the volume are given up. Then patches: two
//! bytes of offset, one of length, and the bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lode::{
    Compression, Disk, FormatOptions, OpenOptions, Piece, ReceiveOptions, SendOptions, SnapshotOptions, StreamReader,
    VolumeOptions,
};
use lode_media::{Geometry, Medium, Position, ZoneId, ram::RamMedium};
use std::sync::{Arc, LazyLock};

const GEOMETRY: Geometry = Geometry { zones: 40, zone_bytes: 8192, append_align: 512, devices: 1 };
const ZONE: usize = 8192;
/// Bytes of a piece's head and of the end; of a stream's head in front of the names.
const PIECE: usize = 40;
const HEAD: usize = 40 + 2 * 32;

struct Base {
    /// A disk that the stream fits.
    image: Vec<u8>,
    stream: Vec<u8>,
    /// What the volume holds then.
    content: Vec<u8>,
}

static BASES: LazyLock<[Base; 2]> = LazyLock::new(bases);

fn options() -> OpenOptions {
    OpenOptions { background: false, cache_bytes: 0, ..OpenOptions::default() }
}

fn disk(id: u128) -> (Arc<RamMedium>, Disk) {
    let medium = Arc::new(RamMedium::new(GEOMETRY));
    Disk::format(medium.clone(), &FormatOptions { disk_id: id }).expect("it is large enough");
    let disk = Disk::open(medium.clone(), &options()).expect("it is new");
    (medium, disk)
}

fn at(offset: usize) -> Position {
    Position { zone: ZoneId(u32::try_from(offset / ZONE).expect("small")), offset: 0 }
}

fn image(medium: &RamMedium) -> Vec<u8> {
    let mut image = vec![0; ZONE * 40];
    for (number, piece) in image.chunks_exact_mut(ZONE).enumerate() {
        medium.read(at(number * ZONE), piece).expect("in range");
    }
    image
}

fn content(disk: &Disk, name: &str) -> Vec<u8> {
    let volume = disk.volume(name).expect("it is there");
    let mut content = vec![0; usize::try_from(volume.bytes().min(1 << 20)).expect("small")];
    volume.read_at(0, &mut content).expect("it is not damaged");
    content
}

fn bases() -> [Base; 2] {
    let (_, from) = disk(1);
    let options = VolumeOptions { bytes: 6000, block_bytes: 128, ..VolumeOptions::default() };
    let volume = from.create_volume("v", &options).expect("there is room");
    volume.write_at(300, &[7; 1500]).expect("there is room");
    let take = |name: &str, made| {
        from.take_snapshot(name, &SnapshotOptions { made, ..Default::default() }).expect("there is room");
    };
    take("one", 1);
    volume.write_at(4000, &(0..900_u16).map(|n| n.to_le_bytes()[0]).collect::<Vec<u8>>()).expect("there is room");
    volume.discard(512, 512).expect("in range");
    from.resize_volume("v", 7001).expect("there is room");
    take("two", 2);
    let (to, receiver) = disk(2);
    [("v@one", None), ("v@two", Some("v@one"))].map(|(name, since)| {
        let volume = from.volume(name).expect("it was taken");
        let since = since.map(|since| from.volume(since).expect("it was taken"));
        let mut stream = Vec::new();
        let compression = if since.is_some() { Compression::Lz4 } else { Compression::None };
        let options = SendOptions { position: 0, compression };
        volume.send(since.as_ref(), &options, &mut stream, &mut |_, _| {}).expect("memory does not fail");
        receiver.flush(lode::Survive::Power).expect("memory does not fail");
        let image = image(&to);
        receiver.receive(&mut &stream[..], &ReceiveOptions::default(), &mut |_, _| {}).expect("it fits");
        Base { image, stream, content: content(&receiver, "v") }
    })
}

fn word(bytes: &[u8], at: usize) -> usize {
    let word = bytes.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
    word.map_or(0, |word| usize::try_from(u32::from_le_bytes(*word)).expect("wide"))
}

fn seal(bytes: &mut [u8], from: usize, to: usize) {
    if bytes.len() < to + 4 || from > to {
        return;
    }
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[from..to]);
    bytes[to..to + 4].copy_from_slice(&u32::try_from(sum).expect("32 bits").to_le_bytes());
}

/// Makes all checksums right, as far as lengths allow.
fn seal_all(stream: &mut [u8]) {
    let head = HEAD + word(stream, 32).min(300) + word(stream, 36).min(300);
    seal(stream, 0, head);
    let mut at = head + 4;
    while at + PIECE <= stream.len() {
        if stream[at..].starts_with(b"SEND") {
            let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &stream[..at]);
            stream[at + 24..at + 32].copy_from_slice(&sum.to_le_bytes());
            seal(stream, at, at + 36);
            return;
        }
        let stored = word(stream, at + 24);
        if let Some(bytes) = stream.get(at + PIECE..(at + PIECE).saturating_add(stored)) {
            let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
            stream[at + 28..at + 32].copy_from_slice(&u32::try_from(sum).expect("32 bits").to_le_bytes());
        }
        seal(stream, at, at + 36);
        at = (at + PIECE).saturating_add(stored);
    }
}

/// Pieces follow each other to the end, and none is larger than it may be.
fn look(stream: &[u8]) {
    let mut from = stream;
    let Ok(mut reader) = StreamReader::new(&mut from) else { return };
    let (mut at, bytes) = (reader.info().position, reader.info().bytes);
    loop {
        match reader.next_piece() {
            Err(_) => return,
            Ok(None) => break,
            Ok(Some(piece)) => {
                assert!(!matches!(piece, Piece::Data(data) if data.len() > 1 << 20), "a piece that nothing bounds");
                at += piece.bytes();
                assert!(piece.bytes() > 0 && at <= bytes);
            }
        }
    }
    assert_eq!(at, bytes, "a stream that ends early was taken for whole");
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, mut rest)) = bytes.split_first() else { return };
    let base = &BASES[usize::from(choice & 1)];
    let mut stream = base.stream.clone();
    while let Some(([a, b, len], more)) = rest.split_first_chunk() {
        let start = usize::from(u16::from_le_bytes([*a, *b])) % stream.len();
        let (patch, more) = more.split_at((usize::from(len % 16) + 1).min(more.len()));
        let end = (start + patch.len()).min(stream.len());
        stream[start..end].copy_from_slice(&patch[..end - start]);
        rest = more;
    }
    let changed = stream != base.stream;
    if choice & 2 != 0 {
        seal_all(&mut stream);
    }
    look(&stream);
    let medium = Arc::new(RamMedium::new(GEOMETRY));
    for (number, piece) in base.image.chunks_exact(ZONE).enumerate() {
        medium.overwrite(at(number * ZONE), piece).expect("in range");
    }
    let disk = Disk::open(medium.clone(), &options()).expect("it is sound");
    if choice & 4 != 0 && choice & 1 != 0 {
        disk.volume("v").and_then(|volume| volume.write_at(100, &[1; 50])).expect("there is room");
    }
    let before = (disk.volume_names(), disk.snapshots());
    let options = ReceiveOptions { force: choice & 4 != 0, ..ReceiveOptions::default() };
    match disk.receive(&mut &stream[..], &options, &mut |_, _| {}) {
        Err(_) => {
            // What came before the error is kept, until it is dropped.
            for kept in disk.receives().expect("it is sound") {
                disk.drop_receive(&kept.volume).expect("nobody receives it");
            }
            assert_eq!((disk.volume_names(), disk.snapshots()), before, "what was refused left something");
            assert_eq!(disk.units().expect("it is sound"), [], "what was refused is open");
        }
        Ok(received) => {
            assert!(!changed || choice & 2 != 0, "a stream that was changed was believed");
            let found = content(&disk, &format!("{}@{}", received.volume, received.snapshot));
            assert!(changed || found == base.content, "other content than what was sent");
        }
    }
    disk.close().expect("memory does not fail");
    assert_eq!(Disk::check(medium.clone()).expect("it is a disk").problems, Vec::<String>::new());
    Disk::open(medium, &self::options()).expect("what was closed opens");
});
