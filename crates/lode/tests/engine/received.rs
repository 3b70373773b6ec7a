//! Streams that were received in part: gone on with by others, after a crash, and after what happened in between.
use crate::streams::{
    Random, content, disk, held, receive, receive_with, seen, send, send_with, small, sound, take, two_generations,
};
use crate::tape::{Fate, Tape, bare};
use crate::{barriers::label, basics::quiet};
use lode::{
    Disk, Error, ErrorKind, OpenOptions, ReceiveInfo, ReceiveOptions, Received, Receiver, SendOptions, SnapshotOptions,
    Survive, UnitOptions, UnitState, VolumeOptions,
};
use lode_media::{Medium, Position, ZoneId};
use std::sync::Arc;

const FORCE: ReceiveOptions = ReceiveOptions { volume: None, snapshot: None, force: true };

/// One that makes a barrier at every piece.
fn eager(disk: &Disk, options: &ReceiveOptions) -> Receiver {
    let mut receiver = disk.receiver(options).unwrap();
    receiver.barrier_each(1);
    receiver
}

/// Takes in a stream that is cut. Gives back how much of it is kept.
fn cut_short(disk: &Disk, stream: &[u8], options: &ReceiveOptions) -> u64 {
    let mut receiver = eager(disk, options);
    assert_eq!(receiver.take_in(&mut &stream[..], &mut |_, _| {}).unwrap_err().kind(), ErrorKind::Ended);
    let position = receiver.position();
    assert_eq!(receiver.keep().unwrap_or(0), position);
    position
}

fn kept(disk: &Disk) -> ReceiveInfo {
    let mut kept = disk.receives().unwrap();
    assert_eq!(kept.len(), 1, "{kept:?}");
    kept.remove(0)
}

fn rest(from: &Disk, name: &str, base: Option<&str>, position: u64) -> Vec<u8> {
    send_with(from, name, base, &SendOptions { position, ..Default::default() }).unwrap()
}

/// Nothing is open, and nothing is held.
fn done(medium: Arc<dyn Medium>, disk: Disk) {
    assert!(disk.units().unwrap().is_empty());
    assert_eq!(held(&disk).1, 0);
    disk.close().unwrap();
    sound(medium);
}

#[test]
fn a_stream_cut_anywhere_is_gone_on_with_by_whoever_comes() {
    let (a, full, more) = two_generations();
    for (stream, base, name, force) in
        [(&full, None, "v@one", false), (&more, Some("one"), "v@two", false), (&more, Some("one"), "v@two", true)]
    {
        let mut positions = std::collections::BTreeSet::new();
        for cut in 0..stream.len() {
            let (medium, mut b) = small(2);
            let options = ReceiveOptions { force, ..Default::default() };
            if base.is_some() {
                receive(&b, &full).unwrap();
            }
            if force {
                b.volume("v").unwrap().write_at(300, &[9; 300]).unwrap();
            }
            b.flush(Survive::Power).unwrap();
            let before = seen(&b);
            let position = cut_short(&b, &stream[..cut], &options);
            positions.insert(position);
            match cut % 3 {
                0 => {}
                1 => {
                    b.close().unwrap();
                    b = Disk::open(medium.clone(), &quiet()).unwrap();
                }
                _ => {
                    drop(b);
                    b = Disk::open(medium.clone(), &quiet()).unwrap();
                }
            }
            let mut now = seen(&b);
            now.retain(|(name, content)| name != "v.receiving" || !content.is_empty());
            assert!(now == before, "cut at {cut}: what is not whole is seen");
            if position > 0 {
                let kept = kept(&b);
                assert_eq!((kept.position, &kept.volume[..]), (position, "v"));
                assert_eq!(format!("v@{}", kept.snapshot), name);
                assert_eq!((kept.info.base.is_some(), kept.info.position), (base.is_some(), 0));
                assert_eq!(kept.state, if cut % 3 == 0 { UnitState::Kept } else { UnitState::Dormant });
                // Not from behind what is there.
                if position < kept.info.bytes {
                    let error = receive_with(&b, &rest(&a, name, base, position + 1), &options).unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                }
            } else {
                assert_eq!(b.receives().unwrap(), []);
            }
            let from = [position, 0, position / 2, position.saturating_sub(1)][cut / 3 % 4];
            // From a position in the middle the sender has to know what the receiver lacks.
            let received = receive_with(&b, &rest(&a, name, base, from), &options).unwrap();
            assert_eq!(received.bytes, content(&a.volume(name).unwrap()).len() as u64);
            assert!(content(&b.volume("v").unwrap()) == content(&a.volume(name).unwrap()), "cut at {cut} from {from}");
            assert!(content(&b.volume(name).unwrap()) == content(&a.volume(name).unwrap()));
            assert_eq!(b.volume_names(), ["v"]);
            done(medium, b);
        }
        assert!(positions.len() >= 4, "{positions:?}");
    }
}

/// What a disk received, cut by a crash at any call of its medium, then cut once more while it goes on.
#[test]
fn a_receive_goes_on_after_crashes_at_any_call() {
    for (bytes, unit_memory_bytes, force) in [(3000, 8 << 20, false), (40_000, 8 << 10, true), (40_000, 8 << 10, false)]
    {
        let options = OpenOptions { unit_memory_bytes, ..bare() };
        let (_, a) = disk(1, 64, 256 << 10);
        let sizes = VolumeOptions { bytes, block_bytes: 128, ..Default::default() };
        let volume = a.create_volume("w", &sizes).unwrap();
        let mut random = Random(bytes + u64::from(force));
        for part in 0..8 {
            let at = part * (bytes / 8) / 64 * 64;
            let len = bytes / 8 - 128 * random.below(2);
            volume.write_at(at, &random.bytes(len)).unwrap();
            volume.discard(at + 64, 192).unwrap();
        }
        take(&a, "one", 1);
        let (full, one) = (send(&a, "w@one", None), content(&volume));
        volume.write_at(bytes / 4, &random.bytes(bytes / 4)).unwrap();
        volume.discard(bytes / 2, 1000).unwrap();
        a.resize_volume("w", bytes + 700).unwrap();
        volume.write_at(bytes - 200, &random.bytes(400)).unwrap();
        take(&a, "two", 2);
        let (more, two) = (send(&a, "w@two", Some("one")), content(&volume));
        let asked = ReceiveOptions { force, ..Default::default() };

        /// Goes on with whatever is kept until both generations are there. Tells of all that is durable.
        fn finish(b: &Disk, asked: &ReceiveOptions, streams: [&dyn Fn(u64) -> Vec<u8>; 2], told: &mut dyn FnMut(u64)) {
            for (n, stream) in streams.into_iter().enumerate() {
                if b.snapshots().len() > n {
                    continue;
                }
                if n == 1 && asked.force && b.receives().unwrap().is_empty() {
                    b.volume("w").unwrap().write_at(64, &[7; 2000]).unwrap();
                }
                let from = b.receives().unwrap().first().map_or(0, |kept| kept.position);
                let mut receiver = eager(b, asked);
                let stream = stream(from);
                receiver.take_in(&mut &stream[..], &mut |done, _| told(done)).unwrap();
                receiver.commit().unwrap();
            }
        }
        let sent: [&dyn Fn(u64) -> Vec<u8>; 2] =
            [&|from| rest(&a, "w@one", None, from), &|from| rest(&a, "w@two", Some("one"), from)];
        let anew: [&dyn Fn(u64) -> Vec<u8>; 2] = [&|_| full.clone(), &|_| more.clone()];

        let tape = Tape::formatted(160, 16 << 10, 512);
        let b = Disk::open(tape.clone(), &options).unwrap();
        let mut durable = Vec::new();
        finish(&b, &asked, anew, &mut |done| {
            // Its last barrier was flushed.
            let kept = b.receives().unwrap().first().map_or(0, |kept| kept.position);
            durable.push((tape.len(), kept, done));
        });
        drop(b);
        // Where the second stream begins, positions begin anew.
        let second = durable.iter().position(|(.., done)| *done == bytes).unwrap() + 1;
        let (mut resumed, mut twice) = (0, 0);
        let mut look = |left: &Arc<Tape>, told: Option<(usize, u64)>, turn: usize| {
            let b = Disk::open(left.clone(), &options).unwrap();
            let names: Vec<String> = b.snapshots().into_iter().map(|snapshot| snapshot.name).collect();
            let position = b.receives().unwrap().first().map_or(0, |kept| kept.position);
            resumed += usize::from(position > 0);
            match names.len() {
                0 => {
                    assert!(b.volume("w").is_err(), "{turn}: a volume without its snapshot");
                    assert!(b.volume("w.receiving").is_ok_and(|made| made.bytes() == 0) || position == 0);
                }
                1 => {
                    assert!(content(&b.volume("w@one").unwrap()) == one, "{turn}");
                    let mut now = content(&b.volume("w").unwrap());
                    // What is given up may be there, or not yet.
                    if force && now[64..2064] == [7; 2000] {
                        now[64..2064].copy_from_slice(&one[64..2064]);
                    }
                    assert!(now == one, "{turn}");
                }
                _ => assert!(content(&b.volume("w").unwrap()) == two, "{turn}"),
            }
            if let Some((generation, told)) = told {
                assert!(names.len() > generation || position >= told, "{turn}: {position}, but {told} was kept");
            }
            finish(&b, &asked, if turn.is_multiple_of(2) { sent } else { anew }, &mut |_| {});
            assert!(content(&b.volume("w").unwrap()) == two && content(&b.volume("w@two").unwrap()) == two, "{turn}");
            assert!(content(&b.volume("w@one").unwrap()) == one, "{turn}");
            assert_eq!(b.volume_names(), ["v", "w"]);
            assert!(b.units().unwrap().is_empty());
            assert_eq!(held(&b).1, 0);
        };
        for cut in 0..=tape.len() {
            for fate in [Fate::Old, Fate::New, Fate::Noise] {
                let at = durable.iter().rposition(|(len, ..)| *len <= cut);
                let told = at.map(|at| (usize::from(at >= second), durable[at].1));
                let left = tape.cut(cut, |event, sector| if (event * 7 + sector) % 3 == 0 { Fate::Old } else { fate });
                look(&left, told, cut);
                sound(left.restart());
                let again = usize::try_from(random.below(left.len() as u64 + 1)).unwrap();
                let left = left.cut(again, |_, _| fate);
                look(&left, None, cut + 1);
                sound(left.restart());
                twice += 1;
            }
        }
        assert!(resumed > 20 && twice > 20, "{resumed} {twice}");
    }
    let marks = lode::marks();
    assert!(marks.iter().any(|(known, _)| *known == "receive: gone on with what was kept"));
}

#[test]
fn streams_are_never_mixed() {
    let (a, full, more) = two_generations();
    let (_, other) = small(3);
    let sizes = VolumeOptions { bytes: 900, block_bytes: 64, ..Default::default() };
    other.create_volume("v", &sizes).unwrap().write_at(70, &[1; 200]).unwrap();
    take(&other, "one", 5);
    let (medium, b) = small(2);
    let half = cut_short(&b, &full[..full.len() - 50], &ReceiveOptions::default());
    assert!(half > 0);
    drop(b);
    let b = Disk::open(medium.clone(), &quiet()).unwrap();
    let (names, held) = (b.volume_names(), kept(&b));
    let refused = |stream: &[u8], kind: ErrorKind| {
        let error = receive(&b, stream).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!((b.volume_names(), kept(&b).position), (names.clone(), held.position), "{error}");
        error.to_string()
    };
    // The same name, another disk; the same disk, another snapshot; an incremental one.
    let words = refused(&send(&other, "v@one", None), ErrorKind::Exists);
    assert!(words.contains(&format!("up to position {half} of 900: that of v@one of disk 1")), "{words}");
    refused(&rest(&other, "v@one", None, half), ErrorKind::Exists);
    refused(&send(&a, "v@two", None), ErrorKind::Exists);
    refused(&more, ErrorKind::Exists);
    receive(&b, &full).unwrap();
    // And the other way round: what changed, when all is sent.
    let half = cut_short(&b, &more[..more.len() - 50], &ReceiveOptions::default());
    assert!(half > 0);
    assert_eq!(receive(&b, &send(&a, "v@two", None)).unwrap_err().kind(), ErrorKind::Exists);
    receive(&b, &more).unwrap();
    assert!(content(&b.volume("v").unwrap()) == content(&a.volume("v@two").unwrap()));

    // The same content by another way, where it has other names.
    let (relay_medium, relay) = small(4);
    let named = ReceiveOptions { volume: Some("x".into()), snapshot: Some("y".into()), force: false };
    receive_with(&relay, &full, &named).unwrap();
    let (last_medium, last) = small(5);
    let position = cut_short(&last, &full[..full.len() - 50], &ReceiveOptions::default());
    let wanted = ReceiveOptions { volume: Some("v".into()), snapshot: Some("z".into()), force: false };
    let received = receive_with(&last, &rest(&relay, "x@y", None, position), &wanted).unwrap();
    assert_eq!((&received.volume[..], &received.snapshot[..]), ("v", "z"));
    assert!(content(&last.volume("v@z").unwrap()) == content(&a.volume("v@one").unwrap()));
    for (medium, disk) in [(medium, b), (relay_medium, relay), (last_medium, last)] {
        done(medium, disk);
    }
}

type Change = fn(&Disk) -> Result<(), Error>;

/// What makes that a unit can never be committed.
const CHANGES: [Change; 5] = [
    |b| b.volume("v")?.write_at(300, &[9; 5]).map(drop),
    |b| b.resize_volume("v", 899).map(drop),
    |b| b.volume("v")?.discard(0, 900).map(drop),
    |b| b.delete_snapshot("one").map(drop),
    |b| b.delete_volume("v").map(drop),
];

#[test]
fn a_volume_that_was_changed_in_between_drops_what_was_received() {
    let (a, full, more) = two_generations();
    for (n, change) in CHANGES.into_iter().enumerate() {
        for bits in 0..16 {
            let [force, reopened, from_there, early] = [1, 2, 4, 8].map(|bit| bits & bit > 0);
            let (medium, mut b) = small(2);
            receive(&b, &full).unwrap();
            if force {
                b.volume("v").unwrap().write_at(800, &[3; 20]).unwrap();
            }
            let options = ReceiveOptions { force, ..Default::default() };
            let position = cut_short(&b, &more[..more.len() - 50], &options);
            assert!(position > 0);
            if early {
                change(&b).unwrap();
            }
            if reopened {
                b.flush(Survive::Power).unwrap();
                drop(b);
                b = Disk::open(medium.clone(), &quiet()).unwrap();
            }
            if !early {
                change(&b).unwrap();
            }
            let before = seen(&b);
            let outcome =
                receive_with(&b, &rest(&a, "v@two", Some("one"), if from_there { position } else { 0 }), &options);
            match outcome {
                Ok(_) => {
                    assert!(force && !from_there && n < 3, "{n}");
                    assert!(content(&b.volume("v").unwrap()) == content(&a.volume("v@two").unwrap()));
                }
                Err(error) => {
                    assert!(!force || from_there || n >= 3, "{n}: {error}");
                    let words = format!("what was received before, up to position {position}, was dropped");
                    assert!(error.to_string().contains(&words), "{error}");
                    let kind = if n < 3 || from_there { ErrorKind::Conflict } else { ErrorKind::NotFound };
                    assert_eq!(error.kind(), kind, "{error}");
                    assert!(seen(&b) == before);
                }
            }
            done(medium, b);
        }
    }
    let marks = lode::marks();
    assert!(marks.iter().any(|(known, _)| *known == "receive: what can never count dropped"));
}

/// The hold of the commit asks again, of a unit that was taken up.
#[test]
fn a_volume_that_changes_after_a_receive_was_taken_up_is_a_conflict() {
    let (_, full, more) = two_generations();
    for (n, change) in CHANGES.into_iter().enumerate() {
        for force in [false, true] {
            let (medium, b) = small(2);
            receive(&b, &full).unwrap();
            if force {
                b.volume("v").unwrap().write_at(800, &[3; 20]).unwrap();
            }
            let options = ReceiveOptions { force, ..Default::default() };
            assert!(cut_short(&b, &more[..more.len() - 50], &options) > 0);
            b.flush(Survive::Power).unwrap();
            drop(b);
            let b = Disk::open(medium.clone(), &quiet()).unwrap();
            let mut receiver = b.receiver(&options).unwrap();
            receiver.take_in(&mut &more[..], &mut |_, _| {}).unwrap();
            change(&b).unwrap();
            let before = seen(&b);
            let outcome = receiver.commit();
            if force && n == 3 {
                // The view that it watches by is its own.
                outcome.unwrap();
            } else {
                assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Conflict, "{n}");
                assert!(seen(&b) == before);
            }
            done(medium, b);
        }
    }
}

#[test]
fn a_new_volume_whose_place_is_gone_or_taken_begins_anew() {
    let (a, full, _) = two_generations();
    for n in 0..3 {
        let (medium, b) = small(2);
        let position = cut_short(&b, &full[..full.len() - 50], &ReceiveOptions::default());
        match n {
            0 => b.delete_volume("v.receiving").map(drop).unwrap(),
            1 => b.resize_volume("v.receiving", 100).map(drop).unwrap(),
            _ => {
                b.delete_volume("v.receiving").unwrap();
                b.create_volume("v.receiving", &VolumeOptions::default()).unwrap();
            }
        }
        let error = receive(&b, &rest(&a, "v@one", None, position)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        let why = ["the volume v.receiving is gone, so", "has 100 bytes, so", "the volume v.receiving is gone, so"][n];
        assert!(error.to_string().contains(why), "{error}");
        assert!(b.units().unwrap().is_empty());
        if n == 1 {
            assert_eq!(receive(&b, &full).unwrap_err().kind(), ErrorKind::Exists);
            b.delete_volume("v.receiving").unwrap();
        }
        receive(&b, &full).unwrap();
        assert_eq!(b.volume_names(), ["v"]);
        done(medium, b);
    }
}

#[test]
fn what_was_received_into_a_volume_does_not_go_into_its_namesake() {
    let (_, full, more) = two_generations();
    let (medium, b) = small(2);
    receive(&b, &full).unwrap();
    assert!(cut_short(&b, &more[..more.len() - 50], &ReceiveOptions::default()) > 0);
    b.delete_snapshot("one").unwrap();
    b.delete_volume("v").unwrap();
    assert_eq!(receive(&b, &full).unwrap_err().kind(), ErrorKind::Exists, "another stream");
    b.create_volume("v", &VolumeOptions { bytes: 900, block_bytes: 64, ..Default::default() }).unwrap();
    let error = receive(&b, &more).unwrap_err();
    assert!(error.to_string().contains("the volume v is gone, so"), "{error}");
    assert!(content(&b.volume("v").unwrap()) == [0; 900]);
    done(medium, b);
}

/// A stream with this head and these pieces: a kind, and either bytes or a length.
fn written(head: &[u8], pieces: &[(u32, &[u8], u64)]) -> Vec<u8> {
    let sum = |bytes: &[u8]| {
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
        u32::try_from(sum).unwrap().to_le_bytes()
    };
    let (mut stream, mut at) = (head.to_vec(), 0);
    for (kind, bytes, length) in pieces {
        let length = length + bytes.len() as u64;
        let stored = u32::try_from(bytes.len()).unwrap();
        let mut piece = b"SPIE".to_vec();
        piece.extend(kind.to_le_bytes());
        piece.extend([at, length].iter().flat_map(|number: &u64| number.to_le_bytes()));
        piece.extend(stored.to_le_bytes());
        piece.extend(sum(bytes));
        piece.extend([0; 4]);
        piece.extend(sum(&piece));
        stream.extend(piece);
        stream.extend_from_slice(bytes);
        at += length;
    }
    stream
}

/// Who sends the rest may cut pieces elsewhere: what is there of one is passed over, the rest of it is taken.
#[test]
fn a_stream_goes_on_in_the_middle_of_a_piece() {
    let (a, full, more) = two_generations();
    for (stream, base, name) in [(&full, false, "v@one"), (&more, true, "v@two")] {
        let head = stream.windows(4).position(|word| word == b"SPIE").unwrap();
        let whole = content(&a.volume(name).unwrap());
        let same = if base { 0 } else { 1 };
        let until = |end: usize| -> Vec<u8> {
            let pieces: &[(u32, &[u8], u64)] = match (base, end) {
                (_, 0..=64) => &[(same, &[], end as u64)],
                (_, 65..=510) => &[(same, &[], 64), (2, &whole[64..end], 0)],
                _ => &[(same, &[], 64), (2, &whole[64..510], 0), (2, &whole[510..end], 0)],
            };
            written(&stream[..head], pieces)
        };
        for end in [1, 63, 64, 65, 200, 320, 500, 510, 511, 600, 899] {
            let (medium, b) = small(2);
            if base {
                receive(&b, &full).unwrap();
            }
            assert_eq!(cut_short(&b, &until(end), &ReceiveOptions::default()), end as u64);
            let b = if end.is_multiple_of(2) {
                drop(b);
                Disk::open(medium.clone(), &quiet()).unwrap()
            } else {
                b
            };
            receive(&b, stream).unwrap();
            assert!(content(&b.volume("v").unwrap()) == whole, "{name} from {end} on");
            done(medium, b);
        }
    }
}

#[test]
fn a_name_that_is_taken_in_between_keeps_what_was_received() {
    let (a, full, more) = two_generations();
    for (n, stream) in [(0, &full), (1, &more)] {
        let (medium, b) = small(2);
        if n == 1 {
            receive(&b, &full).unwrap();
        }
        let position = cut_short(&b, &stream[..stream.len() - 50], &ReceiveOptions::default());
        let name = ["one", "two"][n];
        b.take_snapshot(name, &SnapshotOptions::default()).unwrap();
        assert_eq!(receive(&b, stream).unwrap_err().kind(), ErrorKind::Exists);
        assert_eq!(kept(&b).position, position);
        let other = ReceiveOptions { snapshot: Some("other".into()), ..Default::default() };
        receive_with(&b, stream, &other).unwrap();
        let there = content(&a.volume(&format!("v@{name}")).unwrap());
        assert!(content(&b.volume("v@other").unwrap()) == there);
        done(medium, b);
    }
    // Taken at the last moment.
    let (medium, b) = small(2);
    let mut receiver = b.receiver(&ReceiveOptions::default()).unwrap();
    receiver.take_in(&mut &full[..], &mut |_, _| {}).unwrap();
    b.take_snapshot("one", &SnapshotOptions::default()).unwrap();
    assert_eq!(receiver.commit().unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!((kept(&b).position, kept(&b).data), (900, 256));
    b.delete_snapshot("one").unwrap();
    // Only the end of the stream is needed.
    let received = receive(&b, &rest(&a, "v@one", None, 900)).unwrap();
    assert_eq!(received.data, 256);
    assert!(content(&b.volume("v@one").unwrap()) == content(&a.volume("v@one").unwrap()));
    done(medium, b);
}

/// A volume of a megabyte, as a stream, and a disk of less than three.
fn large() -> (Disk, Vec<u8>, Arc<dyn Medium>, Disk) {
    let (_, a) = disk(1, 96, 64 << 10);
    let volume = a.create_volume("v", &VolumeOptions { bytes: 2 << 20, ..Default::default() }).unwrap();
    volume.write_at(0, &Random(3).bytes(2 << 20)).unwrap();
    take(&a, "s", 1);
    let stream = send(&a, "v@s", None);
    let (medium, b) = small(2);
    (a, stream, medium, b)
}

/// Fills a disk but for so many bytes.
fn fill(disk: &Disk, left: u64) {
    let volume = disk.create_volume("fill", &VolumeOptions { bytes: 64 << 20, ..Default::default() }).unwrap();
    let mut at = 0;
    while disk.info().unwrap().free > left + 8192 {
        volume.write_at(at, &[5; 4096]).unwrap();
        at += 4096;
    }
}

#[test]
fn a_disk_that_is_full_in_between_keeps_what_was_received() {
    for (part, left, reopened) in
        [(2, 0, true), (2, 0, false), (2, 100 << 10, true), (2, 100 << 10, false), (1, 0, true)]
    {
        let (a, stream, medium, mut b) = large();
        let cut = if part == 1 { stream.len() - 1 } else { stream.len() / 4 * 3 };
        let mut receiver = b.receiver(&ReceiveOptions::default()).unwrap();
        receiver.barrier_each(100 << 10);
        assert!(receiver.take_in(&mut &stream[..cut], &mut |_, _| {}).is_err());
        let position = receiver.keep().unwrap();
        fill(&b, left);
        if left == 0 {
            // As full as it can be.
            let volume = b.volume("fill").unwrap();
            while let Ok(()) =
                b.create_volume(&format!("{}", b.volume_names().len()), &VolumeOptions::default()).map(drop)
            {
            }
            assert_eq!(volume.write_at(60 << 20, &[1; 8192]).unwrap_err().kind(), ErrorKind::Full);
        }
        if reopened {
            b.flush(Survive::Power).unwrap();
            drop(b);
            b = Disk::open(medium.clone(), &quiet()).unwrap();
        }
        let error = receive(&b, &stream).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        let now = kept(&b).position;
        assert!(now >= position, "{now} of {position}");
        for name in b.volume_names().into_iter().filter(|name| name != "v.receiving") {
            b.delete_volume(&name).unwrap();
        }
        receive(&b, &rest(&a, "v@s", None, now)).unwrap();
        assert!(content(&b.volume("v").unwrap()) == content(&a.volume("v@s").unwrap()));
        done(medium, b);
    }
}

/// An operation that fails half-way takes the unit back to its barrier, and there it is gone on with.
#[test]
fn a_unit_that_breaks_falls_back_to_its_barrier() {
    let (a, stream, ..) = large();
    for barriers in [false, true] {
        let tape = Tape::formatted(100, 64 << 10, 512);
        let options = OpenOptions { unit_memory_bytes: 64 << 10, ..bare() };
        let b = Disk::open(tape.clone(), &options).unwrap();
        let asked = ReceiveOptions { volume: Some("w".into()), ..Default::default() };
        let mut receiver = b.receiver(&asked).unwrap();
        receiver.barrier_each(if barriers { 1 } else { u64::MAX });
        let below = tape.clone();
        // No zone of the file can be made any more: what is spilled then finds no place.
        let taken = receiver.take_in(&mut &stream[..], &mut |_, _| below.refuse_erases(true));
        assert_eq!(taken.unwrap_err().kind(), ErrorKind::Media);
        let position = receiver.keep();
        assert_eq!(position, barriers.then_some(1 << 20));
        tape.refuse_erases(false);
        if let Some(position) = position {
            assert_eq!((kept(&b).state, kept(&b).position), (UnitState::Dormant, position));
            receive_with(&b, &rest(&a, "v@s", None, position), &asked).unwrap();
        } else {
            assert!(b.units().unwrap().is_empty());
            receive_with(&b, &stream, &asked).unwrap();
        }
        assert!(content(&b.volume("w").unwrap()) == content(&a.volume("v@s").unwrap()));
        done(tape, b);
    }
}

/// A barrier needs a little room that the stream does not: without it the receive goes on.
#[test]
fn a_stream_that_just_fits_needs_no_room_for_barriers() {
    let (a, full, _) = two_generations();
    let mut fitted = 0;
    for spare in 0..40 {
        let (medium, b) = small(2);
        fill(&b, 0);
        let volume = b.volume("fill").unwrap();
        let mut at = 32 << 20;
        while b.info().unwrap().free > 8192 + spare * 256 {
            if volume.write_at(at, &[5; 4096]).is_err() {
                break;
            }
            at += 4096;
        }
        while b.info().unwrap().free > 2048 + spare * 256 {
            if b.create_volume(&format!("{}", b.volume_names().len()), &VolumeOptions::default()).is_err() {
                break;
            }
        }
        let mut receiver = eager(&b, &ReceiveOptions::default());
        let taken = receiver.take_in(&mut &full[..], &mut |_, _| {}).and_then(|()| receiver.commit().map(drop));
        match taken {
            Ok(()) => {
                fitted += 1;
                assert!(content(&b.volume("v@one").unwrap()) == content(&a.volume("v@one").unwrap()));
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "{error}");
                for kept in b.receives().unwrap() {
                    b.drop_receive(&kept.volume).unwrap();
                }
            }
        }
        done(medium, b);
    }
    assert!(fitted > 0 && fitted < 40, "{fitted}");
    let marks = lode::marks();
    assert!(marks.iter().any(|(known, _)| *known == "receive: no room for a barrier"));
}

#[test]
fn what_is_kept_can_be_looked_at_and_dropped_and_is_no_unit_of_a_client() {
    let (_, full, more) = two_generations();
    let (medium, b) = small(2);
    assert_eq!(b.drop_receive("v").unwrap_err().kind(), ErrorKind::NotFound);
    let before = held(&b);
    let mut receiver = eager(&b, &ReceiveOptions { snapshot: Some("mine".into()), ..Default::default() });
    receiver.made_at(77);
    receiver.take_in(&mut &full[..full.len() - 50], &mut |_, _| {}).unwrap_err();
    assert_eq!((kept(&b).state, kept(&b).position), (UnitState::InUse, 320));
    assert_eq!(b.drop_receive("v").unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(receive(&b, &full).unwrap_err().kind(), ErrorKind::Exists);
    let position = receiver.keep().unwrap();
    let found = kept(&b);
    assert_eq!((&found.volume[..], &found.snapshot[..], found.made, found.position), ("v", "mine", 77, position));
    assert_eq!((&found.info.volume[..], &found.info.snapshot[..], found.info.bytes), ("v", "one", 900));
    assert_eq!((found.data, found.bytes, found.state), (256, 256, UnitState::Kept));
    // Committed as it is it would be half a volume.
    for _ in 0..2 {
        let refused = b.resume("v.receiving").map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
        assert_eq!(b.resume_unit(found.unit).map(drop).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    b.flush(Survive::Power).unwrap();
    drop(b);
    let b = Disk::open(medium.clone(), &quiet()).unwrap();
    assert_eq!(b.resume("v.receiving").map(drop).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(ReceiveInfo { state: UnitState::Kept, ..kept(&b) }, found);
    b.drop_receive("v").unwrap();
    assert_eq!(b.drop_receive("v").unwrap_err().kind(), ErrorKind::NotFound);
    assert!(b.volume_names().is_empty() && b.units().unwrap().is_empty());
    assert_eq!(held(&b), before);

    // Taken up and let go of any number of times it holds what it held.
    let mut reserved = Vec::new();
    for _ in 0..20 {
        cut_short(&b, &full[..full.len() - 50], &ReceiveOptions::default());
        reserved.push(held(&b).1);
    }
    assert!(reserved.iter().all(|now| *now == reserved[0]), "{reserved:?}");
    b.drop_receive("v").unwrap();
    assert_eq!(held(&b), before);

    // Aborted as a unit, an empty volume is left, which goes with the next one, or by its drop.
    for dropped in [false, true] {
        let position = cut_short(&b, &full[..full.len() - 50], &ReceiveOptions::default());
        assert!(position > 0);
        b.abort_unit(b.unit_labelled("v.receiving").unwrap()).unwrap();
        assert_eq!(b.volume_names(), ["v.receiving"]);
        if dropped {
            b.drop_receive("v").unwrap();
            assert!(b.volume_names().is_empty());
        } else {
            receive(&b, &full).unwrap();
            b.delete_volume("v").unwrap();
            b.delete_snapshot("one").unwrap();
        }
    }
    // A unit of a client that has the name.
    let mut unit = b.begin_labelled(&label("v.receiving"), &UnitOptions::default()).unwrap();
    unit.barrier(&[1; 64]).unwrap();
    drop(unit);
    for stream in [&full, &more] {
        let refused = receive(&b, stream).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Exists, "{refused}");
    }
    assert_eq!(b.receives().unwrap(), []);
    assert_eq!(b.drop_receive("v").unwrap_err().kind(), ErrorKind::NotFound);
    b.resume("v.receiving").unwrap().abort();
    // Of an incremental one the volume stays, also an empty one of somebody's.
    receive(&b, &full).unwrap();
    b.create_volume("v.receiving", &VolumeOptions::default()).unwrap();
    let before = (seen(&b), held(&b));
    b.volume("v").unwrap().write_at(0, &[1]).unwrap();
    b.volume("v").unwrap().roll_back(&b.volume("v@one").unwrap()).unwrap();
    let _ = cut_short(&b, &more[..more.len() - 50], &FORCE);
    b.drop_receive("v").unwrap();
    assert!(seen(&b) == before.0);
    b.delete_volume("v.receiving").unwrap();
    done(medium, b);
}

/// P6: what cannot be read is told of, and can be dropped.
#[test]
fn a_receive_that_is_damaged_can_be_dropped() {
    let (_, full, _) = two_generations();
    let tape = Tape::formatted(96, 64 << 10, 512);
    let options = OpenOptions { cache_bytes: 0, ..quiet() };
    let b = Disk::open(tape.clone(), &options).unwrap();
    let asked = ReceiveOptions { volume: Some("w".into()), ..Default::default() };
    cut_short(&b, &full[..full.len() - 50], &asked);
    b.checkpoint().unwrap();
    drop(b);
    tape.damage(Position { zone: ZoneId(0), offset: 0 }, |bytes| {
        for at in 0..bytes.len() - 8 {
            if bytes[at..].starts_with(b"LODEKEPT") {
                bytes[at] ^= 1;
            }
        }
    });
    let b = Disk::open(tape.clone(), &options).unwrap();
    let error = receive_with(&b, &full, &asked).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(b.receives().unwrap(), []);
    assert!(b.units().unwrap()[0].damage.is_some());
    b.drop_receive("w").unwrap();
    let received: Received = receive_with(&b, &full, &asked).unwrap();
    assert_eq!(received.data, 256);
    assert_eq!(b.volume_names(), ["v", "w"]);
    done(tape.clone(), b);
}
