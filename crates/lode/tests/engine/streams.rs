//! Streams from disk to disk: what arrives, what is refused, what a cut or a crash leaves.
use crate::basics::{medium, quiet};
use crate::tape::{Fate, Tape, bare};
use lode::{
    Compression, Disk, Error, ErrorKind, FormatOptions, OpenOptions, Piece, ReceiveOptions, Received, SendOptions,
    SnapshotOptions, StreamReader, Survive, Volume, VolumeOptions,
};
use lode_media::{Geometry, Medium, ram::RamMedium};
use std::sync::Arc;

const HEAD: usize = 40;

pub fn disk(id: u128, zones: u32, zone_bytes: u32) -> (Arc<dyn Medium>, Disk) {
    let medium = Arc::new(RamMedium::new(Geometry { zones, zone_bytes, append_align: 512, devices: 1 }));
    Disk::format(medium.clone(), &FormatOptions { disk_id: id }).unwrap();
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    (medium, disk)
}

pub fn small(id: u128) -> (Arc<dyn Medium>, Disk) {
    disk(id, 96, 64 << 10)
}

pub fn take(disk: &Disk, name: &str, made: u64) {
    disk.take_snapshot(name, &SnapshotOptions { made, ..Default::default() }).unwrap();
}

pub fn send_with(disk: &Disk, name: &str, from: Option<&str>, options: &SendOptions) -> Result<Vec<u8>, Error> {
    let volume = disk.volume(name)?;
    let from = from.map(|from| disk.volume(&format!("{}@{from}", volume.name()))).transpose()?;
    let mut stream = Vec::new();
    let sent = volume.send(from.as_ref(), options, &mut stream, &mut |done, all| assert!(done <= all))?;
    assert_eq!(sent.stream, stream.len() as u64);
    Ok(stream)
}

pub fn send(disk: &Disk, name: &str, from: Option<&str>) -> Vec<u8> {
    send_with(disk, name, from, &SendOptions::default()).unwrap()
}

pub fn receive_with(disk: &Disk, stream: &[u8], options: &ReceiveOptions) -> Result<Received, Error> {
    disk.receive(&mut &stream[..], options, &mut |done, all| assert!(done <= all))
}

pub fn receive(disk: &Disk, stream: &[u8]) -> Result<Received, Error> {
    receive_with(disk, stream, &ReceiveOptions::default())
}

pub fn content(volume: &Volume) -> Vec<u8> {
    let mut bytes = vec![0xee; usize::try_from(volume.bytes()).unwrap()];
    volume.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Bytes that are no holes.
fn stored(volume: &Volume) -> u64 {
    let extents = volume.extents(0, volume.bytes()).unwrap();
    extents.iter().filter(|extent| extent.allocated).map(|extent| extent.bytes).sum()
}

/// All that a user sees of a disk.
pub fn seen(disk: &Disk) -> Vec<(String, Vec<u8>)> {
    let mut names = disk.volume_names();
    for snapshot in disk.snapshots() {
        names.extend(snapshot.volumes.iter().map(|volume| format!("{volume}@{}", snapshot.name)));
    }
    names.into_iter().map(|name| (name.clone(), content(&disk.volume(&name).unwrap()))).collect()
}

pub fn sound(medium: Arc<dyn Medium>) {
    assert_eq!(Disk::check(medium).unwrap().problems, Vec::<String>::new());
}

/// A seeded sequence.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    pub fn bytes(&mut self, len: u64) -> Vec<u8> {
        let value = self.below(256).to_le_bytes()[0];
        (0..len).map(|n| if n % 3 == 0 { value } else { self.below(4).to_le_bytes()[0] }).collect()
    }
}

/// Writes, discards and resizes.
fn change(disk: &Disk, volume: &Volume, random: &mut Random) {
    for _ in 0..=random.below(12) {
        let bytes = volume.bytes();
        let at = random.below(bytes.max(1));
        let len = random.below((bytes - at).min(9000) + 1);
        match random.below(8) {
            0 => disk.resize_volume(&volume.name(), random.below(100_000)).map(drop).unwrap(),
            1 | 2 => volume.discard(at, len).map(drop).unwrap(),
            _ => volume.write_at(at, &random.bytes(len)).map(drop).unwrap(),
        }
    }
}

#[test]
fn generations_arrive_as_they_were_sent_and_go_on_from_any_disk_that_has_them() {
    for (seed, block_bytes, compression) in
        [(1, 512, Compression::None), (2, 64, Compression::Lz4), (3, 4096, Compression::None)]
    {
        let mut random = Random(seed);
        let (media_a, a) = small(1);
        let (media_b, mut b) = small(2);
        let (media_c, mut c) = small(3);
        // Numbers of lists and snapshots must not happen to agree.
        b.create_volume("other", &VolumeOptions::default()).unwrap();
        let volume = a.create_volume("v", &VolumeOptions { bytes: 50_000, block_bytes, compression }).unwrap();
        for turn in 0_u64..12 {
            change(&a, &volume, &mut random);
            // Closed, and as after a crash: what was received keeps where it came from.
            if turn % 4 == 3 {
                b.close().unwrap();
                c.flush(Survive::Power).unwrap();
                drop(c);
                b = Disk::open(media_b.clone(), &quiet()).unwrap();
                c = Disk::open(media_c.clone(), &quiet()).unwrap();
            }
            let (name, before) = (format!("s{turn}"), format!("s{}", turn.wrapping_sub(1)));
            take(&a, &name, 100 + turn);
            let options = SendOptions {
                position: 0,
                compression: if turn % 2 == 0 { Compression::None } else { Compression::Lz4 },
            };
            let from = (turn > 0).then_some(before.as_str());
            let stream = send_with(&a, &format!("v@{name}"), from, &options).unwrap();
            let received = receive(&b, &stream).unwrap();
            assert_eq!((received.volume.as_str(), &received.snapshot), ("v", &name));
            assert_eq!(received.bytes, volume.bytes());
            // Over B to C: what C has it knows by where it was taken, not by where it came from.
            receive(&c, &send(&b, &format!("v@{name}"), from)).unwrap();
            for disk in [&b, &c] {
                let (there, here) = (disk.volume("v").unwrap(), a.volume(&format!("v@{name}")).unwrap());
                assert!(content(&there) == content(&here), "seed {seed} turn {turn}");
                assert_eq!((there.block_bytes(), there.compression()), (block_bytes, compression));
                assert_eq!(disk.snapshots().last().unwrap().made, 100 + turn);
                // What is a hole here is one there.
                assert!(stored(&there) <= stored(&here), "seed {seed} turn {turn}");
            }
        }
        // What was received stays as it was.
        for turn in 0..12 {
            let name = format!("v@s{turn}");
            let expected = content(&a.volume(&name).unwrap());
            assert!(content(&b.volume(&name).unwrap()) == expected && content(&c.volume(&name).unwrap()) == expected);
        }
        // Straight from A to C, and then back from C to A.
        change(&a, &volume, &mut random);
        take(&a, "x", 7);
        receive(&c, &send(&a, "v@x", Some("s11"))).unwrap();
        let there = c.volume("v").unwrap();
        change(&c, &there, &mut random);
        take(&c, "y", 8);
        receive(&a, &send(&c, "v@y", Some("x"))).unwrap();
        assert!(content(&volume) == content(&there));
        for (medium, disk) in [(media_a, a), (media_b, b), (media_c, c)] {
            disk.flush(Survive::Power).unwrap();
            drop(disk);
            sound(medium.clone());
            Disk::open(medium, &quiet()).unwrap().close().unwrap();
        }
    }
}

/// A disk with `v@one` and `v@two` of a few small blocks, and the two streams.
pub fn two_generations() -> (Disk, Vec<u8>, Vec<u8>) {
    let (_, a) = small(1);
    let options = VolumeOptions { bytes: 900, block_bytes: 64, ..Default::default() };
    let volume = a.create_volume("v", &options).unwrap();
    volume.write_at(70, &[1; 200]).unwrap();
    take(&a, "one", 5);
    volume.write_at(500, &[2; 30]).unwrap();
    volume.discard(64, 64).unwrap();
    a.resize_volume("v", 1000).unwrap();
    take(&a, "two", 6);
    let (full, more) = (send(&a, "v@one", None), send(&a, "v@two", Some("one")));
    (a, full, more)
}

/// What is stored and what is promised.
pub fn held(disk: &Disk) -> (u64, u64) {
    while disk.maintain().unwrap() {}
    let info = disk.info().unwrap();
    (info.live, info.reserved)
}

fn refused(disk: &Disk, stream: &[u8]) -> Error {
    let before = (seen(disk), held(disk));
    let error = receive(disk, stream).unwrap_err();
    // What came before the error is kept, where nobody sees it.
    for kept in disk.receives().unwrap() {
        let mut now = seen(disk);
        now.retain(|(name, content)| *name != format!("{}.receiving", kept.volume) || !content.is_empty());
        assert!(now == before.0 && kept.position > 0, "what is kept of a stream ({error}) is seen");
        disk.drop_receive(&kept.volume).unwrap();
    }
    assert!(disk.units().unwrap().is_empty());
    assert!(before == (seen(disk), held(disk)), "a stream that was refused ({error}) left something");
    error
}

#[test]
fn a_stream_cut_anywhere_leaves_nothing_and_can_be_gone_on_with() {
    let (a, full, more) = two_generations();
    for (stream, from, name) in [(&full, None, "v@one"), (&more, Some("one"), "v@two")] {
        let mut positions = Vec::new();
        let (mut medium, mut b) = small(2);
        for cut in 0..stream.len() {
            if from.is_some() {
                (medium, b) = small(2);
                receive(&b, &full).unwrap();
            }
            assert_eq!(refused(&b, &stream[..cut]).kind(), ErrorKind::Ended, "cut at {cut}");
            // Another stream goes on from there.
            let snapshot = format!("{cut} {}", stream.len());
            let volume = if from.is_none() { format!("new {cut}") } else { "v".to_owned() };
            let options =
                ReceiveOptions { volume: Some(volume.clone()), snapshot: Some(snapshot.clone()), force: false };
            let mut receiver = b.receiver(&options).unwrap();
            let error = receiver.take_in(&mut &stream[..cut], &mut |_, _| {}).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Ended);
            let position = receiver.position();
            if receiver.info().is_some() {
                assert!(error.to_string().contains(&format!("at position {position} of")), "{error}");
            }
            positions.push(position);
            let rest = send_with(&a, name, from, &SendOptions { position, ..Default::default() }).unwrap();
            receiver.take_in(&mut &rest[..], &mut |_, _| {}).unwrap();
            receiver.commit().unwrap();
            assert!(content(&b.volume(&volume).unwrap()) == content(&a.volume(name).unwrap()), "cut at {cut}");
            b.delete_snapshot(&snapshot).unwrap();
            if from.is_none() {
                b.delete_volume(&volume).unwrap();
            }
        }
        positions.dedup();
        assert!(positions.len() >= 4 && positions.is_sorted(), "{positions:?}");
        b.close().unwrap();
        sound(medium);
    }
}

#[test]
fn a_stream_with_any_byte_changed_is_refused() {
    let (_, full, more) = two_generations();
    let (medium, b) = small(2);
    for stream in [&full, &more] {
        for at in 0..stream.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bad = stream.clone();
                bad[at] ^= flip;
                let kind = refused(&b, &bad).kind();
                assert!(
                    matches!(
                        kind,
                        ErrorKind::Corrupt | ErrorKind::NewerFormat | ErrorKind::InvalidArgument | ErrorKind::Ended
                    ),
                    "byte {at}: {kind:?}"
                );
            }
        }
        // Pieces in another order, twice, or left out.
        let first = stream.windows(4).position(|word| word == b"SPIE").unwrap();
        let second = first + 1 + stream[first + 1..].windows(4).position(|word| word == b"SPIE").unwrap();
        let twice = [&stream[..second], &stream[first..]].concat();
        let missing = [&stream[..first], &stream[second..]].concat();
        for bad in [twice, missing] {
            assert_eq!(refused(&b, &bad).kind(), ErrorKind::Corrupt);
        }
        receive(&b, stream).unwrap();
    }
    b.close().unwrap();
    sound(medium);
}

/// Changes fields of a stream's first piece, and makes the checksum of its head right again.
fn crafted(stream: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut stream = stream.to_vec();
    let first = stream.windows(4).position(|word| word == b"SPIE").unwrap();
    stream[first + at..][..bytes.len()].copy_from_slice(bytes);
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &stream[first..first + 36]);
    stream[first + 36..first + 40].copy_from_slice(&u32::try_from(sum).unwrap().to_le_bytes());
    stream
}

#[test]
fn sizes_that_a_stream_only_claims_are_refused_before_memory_is_taken() {
    let (_, full, more) = two_generations();
    let (_, b) = small(2);
    for stream in [&full, &more] {
        for (at, bytes) in [
            (4, &u32::MAX.to_le_bytes()[..]),
            (8, &1_u64.to_le_bytes()),
            (16, &u64::MAX.to_le_bytes()),
            (16, &0_u64.to_le_bytes()),
            (24, &u32::MAX.to_le_bytes()),
            (32, &1_u32.to_le_bytes()),
        ] {
            let error = refused(&b, &crafted(stream, at, bytes));
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains("the stream at position 0: expected"), "{error}");
        }
        // A piece that unpacks to more, or to less, than it says.
        for kind in [2_u32, 3] {
            let bad = crafted(stream, 4, &kind.to_le_bytes());
            assert_eq!(refused(&b, &bad).kind(), ErrorKind::Corrupt);
        }
        if stream == &full {
            // As in what older snapshot?
            assert_eq!(refused(&b, &crafted(stream, 4, &0_u32.to_le_bytes())).kind(), ErrorKind::Corrupt);
            receive(&b, stream).unwrap();
        }
    }
    // Names and sizes of the head, with its checksum made right.
    let head = |at: usize, bytes: &[u8]| {
        let mut stream = full.clone();
        stream[at..at + bytes.len()].copy_from_slice(bytes);
        let end = HEAD + 64 + 4;
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &stream[..end]);
        stream[end..end + 4].copy_from_slice(&u32::try_from(sum).unwrap().to_le_bytes());
        refused(&small(3).1, &stream)
    };
    assert_eq!(head(32, &u32::MAX.to_le_bytes()).kind(), ErrorKind::Corrupt);
    assert_eq!(head(16, &u64::MAX.to_le_bytes()).kind(), ErrorKind::InvalidArgument);
    assert_eq!(head(10, &[31]).kind(), ErrorKind::Corrupt);
    assert_eq!(head(HEAD + 20, &[0; 4]).kind(), ErrorKind::Corrupt);
    assert_eq!(head(HEAD + 32 + 20, &[1]).kind(), ErrorKind::Corrupt);
    assert_eq!(head(24, &1_u64.to_le_bytes()).kind(), ErrorKind::InvalidArgument);
    assert_eq!(head(HEAD + 64, b"@").kind(), ErrorKind::InvalidArgument);
    assert_eq!(head(HEAD + 64, &[0xff]).kind(), ErrorKind::Corrupt);
}

#[test]
fn what_is_not_what_the_stream_is_based_on_is_refused_or_given_up() {
    let (a, full, more) = two_generations();
    let (medium, b) = small(2);
    assert_eq!(refused(&b, &more).kind(), ErrorKind::NotFound);
    receive(&b, &full).unwrap();
    assert_eq!(refused(&b, &full).kind(), ErrorKind::Exists);
    let other = ReceiveOptions { volume: Some("w".to_owned()), ..Default::default() };
    assert_eq!(receive_with(&b, &full, &other).unwrap_err().kind(), ErrorKind::Exists); // The snapshot.
    let there = b.volume("v").unwrap();
    for change in 0..4 {
        match change {
            0 => there.write_at(300, &[9; 5]).map(drop).unwrap(),
            1 => b.resize_volume("v", 899).map(drop).unwrap(),
            2 => b.resize_volume("v", 2000).map(drop).unwrap(),
            _ => there.discard(0, 500).map(drop).unwrap(),
        }
        let error = refused(&b, &more);
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        let force = ReceiveOptions { force: true, ..Default::default() };
        assert!(receive_with(&b, &more[..more.len() - 1], &force).is_err());
        receive_with(&b, &more, &force).unwrap();
        assert!(content(&there) == content(&a.volume("v@two").unwrap()), "change {change}");
        assert!(content(&b.volume("v@two").unwrap()) == content(&there));
        assert!(content(&b.volume("v@one").unwrap()) == content(&a.volume("v@one").unwrap()));
        b.delete_snapshot("two").unwrap();
        there.roll_back(&b.volume("v@one").unwrap()).unwrap();
    }
    // Another volume of that name, with a snapshot of that name; and one of a copy of the disk at another time.
    for made in [5, 77] {
        let (_, c) = small(if made == 5 { 3 } else { 1 });
        let volume =
            c.create_volume("v", &VolumeOptions { bytes: 900, block_bytes: 64, ..Default::default() }).unwrap();
        volume.write_at(70, &[1; 200]).unwrap();
        take(&c, "one", made);
        assert_eq!(refused(&c, &more).kind(), ErrorKind::NotFound);
    }
    // Whoever has deleted the snapshot does not know any more.
    b.delete_snapshot("one").unwrap();
    assert_eq!(refused(&b, &more).kind(), ErrorKind::NotFound);
    b.close().unwrap();
    sound(medium);
}

#[test]
fn what_others_do_meanwhile_is_a_conflict_at_the_commit() {
    for (n, force) in (0..6).flat_map(|n| [(n, false), (n, true)]) {
        let (_, full, more) = two_generations();
        let (medium, b) = small(2);
        receive(&b, &full).unwrap();
        let there = b.volume("v").unwrap();
        if force {
            there.write_at(800, &[3; 20]).unwrap();
        }
        let mut receiver = b.receiver(&ReceiveOptions { force, ..Default::default() }).unwrap();
        receiver.take_in(&mut &more[..], &mut |_, _| {}).unwrap();
        let kind = match n {
            0 => there.write_at(300, &[9; 5]).map(|_| ErrorKind::Conflict).unwrap(),
            1 => b.resize_volume("v", 899).map(|_| ErrorKind::Conflict).unwrap(),
            2 => b.delete_volume("v").map(|_| ErrorKind::Conflict).unwrap(),
            3 => b.take_snapshot("two", &SnapshotOptions::default()).map(|_| ErrorKind::Exists).unwrap(),
            4 => there.discard(0, 900).map(|_| ErrorKind::Conflict).unwrap(),
            _ => {
                // Nothing that matters.
                b.take_snapshot("x", &SnapshotOptions::default()).unwrap();
                receiver.commit().unwrap();
                continue;
            }
        };
        let before = seen(&b);
        assert_eq!(receiver.commit().unwrap_err().kind(), kind, "{n} {force}");
        assert!(seen(&b) == before);
        b.close().unwrap();
        sound(medium);
    }
    // A new volume.
    let (_, full, _) = two_generations();
    let (_, b) = small(2);
    let mut receiver = b.receiver(&ReceiveOptions::default()).unwrap();
    receiver.take_in(&mut &full[..], &mut |_, _| {}).unwrap();
    assert_eq!(b.volume_names(), ["v.receiving"]);
    b.create_volume("v", &VolumeOptions::default()).unwrap();
    assert_eq!(receiver.commit().unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(b.volume_names(), ["v", "v.receiving"]);
    b.delete_volume("v").unwrap();
    receive(&b, &full).unwrap();
    assert_eq!(b.volume_names(), ["v"]);
}

/// One commit in a single batch, and one in a chain of them, cut at every call of the medium.
#[test]
fn one_at_a_time_receives_a_new_volume() {
    let (_, full, _) = two_generations();
    let (medium, disk) = small(2);
    let mut first = disk.receiver(&ReceiveOptions::default()).unwrap();
    first.take_in(&mut &full[..], &mut |_, _| {}).unwrap();
    for _ in 0..2 {
        let refused = receive(&disk, &full).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Exists, "{refused}");
        assert!(refused.to_string().contains("being received already"), "{refused}");
    }
    let other = ReceiveOptions { volume: Some("other".into()), snapshot: Some("b".into()), force: false };
    receive_with(&disk, &full, &other).unwrap();
    first.commit().unwrap();
    assert!(content(&disk.volume("v").unwrap()) == content(&disk.volume("other").unwrap()));
    // Given up, another one may.
    let again = ReceiveOptions { volume: Some("again".into()), snapshot: Some("c".into()), force: false };
    let mut first = disk.receiver(&again).unwrap();
    first.take_in(&mut &full[..], &mut |_, _| {}).unwrap();
    first.abort();
    assert!(disk.units().unwrap().is_empty());
    receive_with(&disk, &full, &again).unwrap();
    assert!(disk.units().unwrap().is_empty());
    disk.close().unwrap();
    sound(medium);
}

#[test]
fn a_crash_while_receiving_leaves_all_or_nothing() {
    let (_, a) = disk(1, 64, 256 << 10);
    for (bytes, unit_memory_bytes) in [(3000, 8 << 20), (150_000, 16 << 10)] {
        let name = format!("v{bytes}");
        let volume = a.create_volume(&name, &VolumeOptions { bytes, block_bytes: 128, ..Default::default() }).unwrap();
        let mut random = Random(bytes);
        volume.write_at(0, &random.bytes(bytes)).unwrap();
        volume.discard(bytes / 3, 1000).unwrap();
        take(&a, &format!("one {bytes}"), 1);
        let (full, one) = (send(&a, &format!("{name}@one {bytes}"), None), content(&volume));
        volume.write_at(0, &random.bytes(bytes - bytes / 3)).unwrap();
        take(&a, &format!("two {bytes}"), 2);
        let (more, two) = (send(&a, &format!("{name}@two {bytes}"), Some(&format!("one {bytes}"))), content(&volume));
        let options = OpenOptions { unit_memory_bytes, ..bare() };

        let tape = Tape::formatted(128, 16 << 10, 512);
        let b = Disk::open(tape.clone(), &options).unwrap();
        receive(&b, &full).unwrap();
        receive(&b, &more).unwrap();
        drop(b);
        let (mut before, mut between, mut behind) = (0, 0, 0);
        for cut in 0..=tape.len() {
            for fate in [Fate::Old, Fate::New, Fate::Noise] {
                let left = tape.cut(cut, |event, sector| if (event * 7 + sector) % 3 == 0 { Fate::Old } else { fate });
                let b = Disk::open(left.clone(), &options).unwrap();
                let names: Vec<String> = b.snapshots().into_iter().map(|snapshot| snapshot.name).collect();
                let next = match names.len() {
                    0 => {
                        assert!(b.volume(&name).is_err(), "cut at {cut}: a volume without its snapshot");
                        let remnant = b.volume(&format!("{name}.receiving"));
                        assert!(remnant.is_err() || remnant.unwrap().bytes() == 0);
                        before += 1;
                        receive(&b, &full).unwrap();
                        &more
                    }
                    1 => {
                        assert!(content(&b.volume(&name).unwrap()) == one, "cut at {cut}");
                        between += 1;
                        &more
                    }
                    _ => {
                        assert!(content(&b.volume(&name).unwrap()) == two, "cut at {cut}");
                        behind += 1;
                        drop(b);
                        sound(left);
                        continue;
                    }
                };
                assert!(content(&b.volume(&format!("{name}@one {bytes}")).unwrap()) == one);
                receive(&b, next).unwrap();
                assert!(content(&b.volume(&name).unwrap()) == two, "cut at {cut}");
                assert_eq!(b.volume_names(), ["v", &name]);
                drop(b);
                sound(left.restart());
            }
        }
        assert!(before > 2 && between > 2 && behind > 0, "{before} {between} {behind}");
    }
    let (marks, chain) = (lode::marks(), "unit: committed in a chain of batches");
    for mark in ["unit: a snapshot taken by a commit", "receive: what a crash left removed", chain] {
        assert!(marks.iter().any(|(known, _)| *known == mark), "{mark}");
    }
}

#[test]
fn a_disk_that_is_too_small_stays_as_it_is() {
    let (_, a) = disk(1, 64, 256 << 10);
    let volume = a.create_volume("v", &VolumeOptions { bytes: 7 << 20, ..Default::default() }).unwrap();
    volume.write_at(0, &vec![7; 7 << 20]).unwrap();
    take(&a, "s", 1);
    let stream = send(&a, "v@s", None);
    let (medium, b) = small(2);
    assert_eq!(refused(&b, &stream).kind(), ErrorKind::Full);
    b.close().unwrap();
    sound(medium);
}

/// P5: a first snapshot makes what an open unit overwrites cost more. Where there is no space for that, it is the receiver
/// who is told, and not the unit.
#[test]
fn a_commit_that_takes_a_snapshot_leaves_other_units_what_they_were_promised() {
    let (_, full, _) = two_generations();
    let (medium, b) = small(2);
    let volume =
        b.create_volume("w", &VolumeOptions { bytes: 8 << 20, block_bytes: 64, ..Default::default() }).unwrap();
    let mut unit = b.begin().unwrap();
    let mut at = 0;
    while b.info().unwrap().free > 64 << 10 {
        unit.write_at(&volume, at, &[5; 6400]).unwrap();
        at += 6400;
    }
    assert_eq!(refused(&b, &full).kind(), ErrorKind::Full);
    unit.commit().unwrap();
    receive(&b, &full).unwrap();
    b.close().unwrap();
    sound(medium);
}

/// Gives out a byte at a time, is interrupted in between, and fails at some point.
struct Drip<'a>(&'a [u8], usize, bool);

impl std::io::Read for Drip<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.2 = !self.2;
        match self.0.get(self.1) {
            _ if self.2 => Err(std::io::ErrorKind::Interrupted.into()),
            None => Err(std::io::ErrorKind::ConnectionReset.into()),
            Some(byte) => {
                into[0] = *byte;
                self.1 += 1;
                Ok(1)
            }
        }
    }
}

/// Takes so many bytes, then fails.
struct Clogged(usize);

impl std::io::Write for Clogged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(std::io::ErrorKind::BrokenPipe.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn readers_and_writers_that_fail_are_told_of() {
    let (a, full, more) = two_generations();
    let (_, b) = small(2);
    let half = full.len() / 2;
    let receive = |drip: &mut Drip<'_>| b.receive(drip, &ReceiveOptions::default(), &mut |_, _| {});
    let error = receive(&mut Drip(&full[..half], 0, false)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stream, "{error}");
    let two = [&full[..], &more[..]].concat();
    let mut drip = Drip(&two, 0, false);
    // Nothing behind the end is taken.
    for end in [full.len(), two.len()] {
        receive(&mut drip).unwrap();
        assert_eq!(drip.1, end);
    }
    let volume = a.volume("v@one").unwrap();
    for room in 0..full.len() {
        let sent = volume.send(None, &SendOptions::default(), &mut Clogged(room), &mut |_, _| {});
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::Stream);
    }
    // The pieces tell what they are to whoever only looks.
    let mut from = &full[..];
    let mut reader = StreamReader::new(&mut from).unwrap();
    assert_eq!((reader.info().volume.as_str(), reader.info().bytes), ("v", 900));
    let mut all = Vec::new();
    while let Some(piece) = reader.next_piece().unwrap() {
        match piece {
            Piece::Data(data) => all.extend_from_slice(data),
            Piece::Hole(bytes) => all.resize(all.len() + usize::try_from(bytes).unwrap(), 0),
            Piece::Same(_) => panic!("in a full stream"),
        }
    }
    assert!(all == content(&volume));
}

#[test]
fn what_cannot_be_sent_or_received_is_said_before_anything_is_done() {
    let (a, full, more) = two_generations();
    let kind = |name: &str, from: Option<&str>, position| {
        send_with(&a, name, from, &SendOptions { position, ..Default::default() }).unwrap_err().kind()
    };
    assert_eq!(kind("v", None, 0), ErrorKind::InvalidArgument);
    assert_eq!(kind("v@one", Some("two"), 0), ErrorKind::InvalidArgument);
    assert_eq!(kind("v@one", None, 901), ErrorKind::InvalidArgument);
    assert_eq!(kind("v@three", None, 0), ErrorKind::NotFound);
    let changing = a.volume("v").unwrap();
    let sent =
        a.volume("v@two").unwrap().send(Some(&changing), &SendOptions::default(), &mut Vec::new(), &mut |_, _| {});
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::InvalidArgument);
    // A snapshot that is deleted while it is sent.
    let volume = a.volume("v@one").unwrap();
    let sent = volume.send(None, &SendOptions::default(), &mut Vec::new(), &mut |done, all| {
        if done < all {
            a.delete_snapshot("one").unwrap();
        }
    });
    assert_eq!(sent.unwrap_err().kind(), ErrorKind::NotFound);

    let medium = medium(96, 64 << 10, 512);
    let b = Disk::open(medium.clone(), &quiet()).unwrap();
    let named = |volume: &str, snapshot: &str| {
        let options = ReceiveOptions { volume: Some(volume.into()), snapshot: Some(snapshot.into()), force: false };
        receive_with(&b, &full, &options).map(drop).map_err(|error| error.kind())
    };
    assert_eq!(named("a@b", "s"), Err(ErrorKind::InvalidArgument));
    assert_eq!(named("a", "s@t"), Err(ErrorKind::InvalidArgument));
    assert_eq!(named(&"x".repeat(246), "s"), Err(ErrorKind::InvalidArgument));
    assert_eq!(named(&"x".repeat(245), "s"), Ok(()));
    // What is in the way is not taken for what a crash left.
    b.create_volume("v.receiving", &VolumeOptions { bytes: 1, ..Default::default() }).unwrap();
    assert_eq!(refused(&b, &full).kind(), ErrorKind::Exists);
    b.resize_volume("v.receiving", 0).unwrap();
    let mut receiver = b.receiver(&ReceiveOptions::default()).unwrap();
    assert_eq!(receiver.take_in(&mut &more[..], &mut |_, _| {}).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(receiver.take_in(&mut &full[..full.len() - 1], &mut |_, _| {}).is_err());
    // Not whole; another stream; whole; and then nothing goes on.
    assert_eq!(receiver.take_in(&mut &more[..], &mut |_, _| {}).unwrap_err().kind(), ErrorKind::InvalidArgument);
    receiver.take_in(&mut &full[..], &mut |_, _| {}).unwrap();
    assert_eq!(receiver.take_in(&mut &full[..], &mut |_, _| {}).unwrap_err().kind(), ErrorKind::InvalidArgument);
    receiver.commit().unwrap();
    assert_eq!(
        b.receiver(&ReceiveOptions::default()).unwrap().commit().unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    b.close().unwrap();
    let closed = Disk::open(medium, &OpenOptions { read_only: true, ..quiet() }).unwrap();
    assert_eq!(closed.receiver(&ReceiveOptions::default()).map(drop).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(send(&closed, "v@one", None).len(), full.len());
}
