//! Space that is held for files on a disk that volumes share.
use crate::tree::{CALLER, NOW, at, get, is_sound, medium, open, put, remove};
use lode::{Disk, Volume, VolumeOptions};
use lode_fs::{Conflicts, ErrorKind, FileSystem, Ino, New};

const MIB: u64 = 1 << 20;

/// Bytes without zeros among them, other ones for another `seed`.
fn noise(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|n| u8::try_from(n % 251).unwrap() ^ seed | 1).collect()
}

fn volume(disk: &Disk) -> Volume {
    disk.create_volume("data", &VolumeOptions { bytes: 1 << 30, ..VolumeOptions::default() }).unwrap();
    disk.volume("data").unwrap()
}

/// Writes to a volume until there is no more space. Gives back how much was written.
fn fill(volume: &Volume, from: u64) -> u64 {
    let piece = noise(65536, 7);
    let mut at = from;
    while let Ok(_lsn) = volume.write_at(at, &piece) {
        at += 65536;
    }
    // What is left is less than a block.
    while volume.write_at(at, &piece[..4096]).is_ok() {
        at += 4096;
    }
    at - from
}

/// Appends to a file until there is no more space. Gives back how much was written.
fn append(fs: &FileSystem, path: &str) -> u64 {
    let view = fs.view();
    let ino = at(&view, path).unwrap();
    let from = view.attributes(ino).unwrap().size;
    let mut size = from;
    loop {
        match view.write(ino, size, &noise(4096, 3), NOW) {
            Ok(_) => size += 4096,
            Err(error) if error.kind() == ErrorKind::Full => return size - from,
            Err(error) => panic!("{error}"),
        }
    }
}

fn free(fs: &FileSystem) -> (u64, u64) {
    let found = fs.statistics().unwrap();
    (found.free, found.held)
}

#[test]
fn what_is_held_for_files_volumes_do_not_get() {
    let (disk, fs) = open(&medium(96));
    let volume = volume(&disk);
    let before = free(&fs);
    fs.hold_space(8 * MIB).unwrap();
    assert_eq!(free(&fs), (before.0, 8 * MIB), "it is free for files");
    assert!(disk.info().unwrap().free + 8 * MIB <= before.0, "for others it is not");
    let taken = fill(&volume, 0);
    assert!(taken > 8 * MIB && (8 * MIB..10 * MIB).contains(&free(&fs).0), "{taken}, {:?}", free(&fs));
    // A large file: also its list comes out of what is held.
    put(&fs.view(), "/large", "");
    let written = append(&fs, "/large");
    assert!((7 * MIB..10 * MIB).contains(&written), "{written}");
    assert!(free(&fs).1 < MIB / 8, "{:?}", free(&fs));
    assert_eq!(fill(&volume, taken), 0);
    // Space that comes back is theirs again.
    remove(&fs.view(), "/large");
    put(&fs.view(), "/small", "x");
    assert!((7 * MIB..=8 * MIB).contains(&free(&fs).1), "{:?}", free(&fs));
    volume.discard(0, 4 * MIB).unwrap();
    put(&fs.view(), "/small", "y");
    assert_eq!(free(&fs).1, 8 * MIB);
    let more = fill(&volume, taken);
    assert!(more < 5 * MIB && free(&fs).1 == 8 * MIB, "{more}, {:?}, {taken}, {written}", free(&fs));
    is_sound(&fs);
}

#[test]
fn without_it_they_do() {
    let (disk, fs) = open(&medium(96));
    put(&fs.view(), "/a", "");
    fill(&volume(&disk), 0);
    assert!(append(&fs, "/a") < MIB / 4);
    is_sound(&fs);
}

#[test]
fn more_than_there_is_cannot_be_held_and_less_gives_the_rest_back() {
    let (disk, fs) = open(&medium(96));
    let all = free(&fs).0;
    fs.hold_space(4 * MIB).unwrap();
    let refused = fs.hold_space(all).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full);
    assert!(refused.to_string().starts_with(&format!("{all} bytes to be held: ")), "{refused}");
    assert_eq!(free(&fs).1, 4 * MIB, "as it was");
    for held in [12 * MIB, 6 * MIB, 6 * MIB + 1, 4096, 0] {
        fs.hold_space(held).unwrap();
        assert_eq!(free(&fs), (all, held.next_multiple_of(4096)));
        let charged = held.div_ceil(4096) * (4096 + 128);
        assert_eq!(disk.info().unwrap().free, all - charged);
    }
}

#[test]
fn transactions_draw_on_it_too() {
    let (disk, fs) = open(&medium(96));
    fs.hold_space(4 * MIB).unwrap();
    fill(&volume(&disk), 0);
    let txn = fs.begin(Conflicts::Read, NOW).unwrap();
    let view = txn.view();
    let ino = view.make(Ino::ROOT, b"a", &New::file(0o600), &CALLER).unwrap().ino;
    for n in 0..2 * MIB / 4096 {
        view.write(ino, n * 4096, &noise(4096, 5), NOW).unwrap();
    }
    txn.commit(NOW).unwrap();
    assert_eq!(fs.view().attributes(ino).unwrap().size, 2 * MIB);
    is_sound(&fs);
}

#[test]
fn files_can_be_changed_again_and_again_in_what_is_held() {
    let (disk, fs) = open(&medium(96));
    put(&fs.view(), "/a", "0");
    fs.hold_space(MIB).unwrap();
    let volume = volume(&disk);
    fill(&volume, 0);
    for n in 0..2000 {
        put(&fs.view(), "/a", &n.to_string());
        disk.maintain().unwrap();
    }
    assert_eq!(get(&fs.view(), "/a").as_deref(), Some("1999"));
    assert!(free(&fs).1 > MIB / 2, "{:?}", free(&fs));
    is_sound(&fs);
}
