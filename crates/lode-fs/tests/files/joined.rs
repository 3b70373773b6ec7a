//! Writes that come in two pieces.

use crate::tree::{NOW, at, is_sound, medium, open, put};
use lode::Survive;
use lode_fs::{ErrorKind, FileSystem, Ino, View};

/// Where a kernel cuts a write of 9000 bytes at 100.
const FIRST: (u64, usize) = (100, 3996);
const REST: (u64, usize) = (4096, 5004);

fn write(view: &View, ino: Ino, (offset, len): (u64, usize)) {
    view.write(ino, offset, &vec![7; len], NOW).unwrap();
}

fn opened() -> (std::sync::Arc<lode::Disk>, FileSystem, Ino) {
    let (disk, fs) = open(&medium(64));
    fs.join_writes();
    put(&fs.view(), "/f", "");
    let ino = at(&fs.view(), "/f").unwrap();
    (disk, fs, ino)
}

#[test]
fn a_write_in_two_pieces_is_one_operation() {
    let (disk, fs, ino) = opened();
    let view = fs.view();
    let before = disk.position();
    write(&view, ino, FIRST);
    assert_eq!(disk.position(), before, "it may go on");
    write(&view, ino, REST);
    let one = disk.position();
    assert!(one > before);
    view.write(ino, 20_000, &[8; 9000], NOW).unwrap();
    assert_eq!(disk.position().0 - one.0, one.0 - before.0, "as many records as a write that comes whole");
    let mut found = vec![0; 9000];
    assert_eq!(view.read(ino, 100, &mut found).unwrap(), 9000);
    assert!(found.iter().all(|byte| *byte == 7));
    is_sound(&fs);
}

/// Whatever comes next but the rest comes behind it.
#[test]
fn a_piece_that_does_not_go_on_is_an_operation() {
    type Next = fn(&FileSystem, &View, Ino);
    let all: [(&str, Next); 6] = [
        ("a look", |_, view, ino| assert_eq!(view.attributes(ino).unwrap().size, 4096)),
        ("a read", |_, view, ino| assert_eq!(view.read(ino, 100, &mut [0; 10]).unwrap(), 10)),
        ("another file", |_, view, _| put(view, "/other", "content")),
        ("a write elsewhere", |_, view, ino| view.write(ino, 8192, &[1; 4096], NOW).unwrap()),
        ("another piece", |_, view, ino| view.write(ino, 5000, &[1; 3192], NOW).unwrap()),
        ("time", |fs, _, _| fs.settle()),
    ];
    for (what, next) in all {
        let (disk, fs, ino) = opened();
        let view = fs.view();
        let before = disk.position();
        write(&view, ino, FIRST);
        next(&fs, &view, ino);
        assert!(disk.position() > before, "{what}");
        let mut found = [0; 3996];
        assert_eq!(view.read(ino, 100, &mut found).unwrap(), 3996, "{what}");
        assert!(found.iter().all(|byte| *byte == 7), "{what}");
        is_sound(&fs);
    }
}

#[test]
fn a_piece_is_durable_after_a_flush_and_at_the_end() {
    for flushed in [true, false] {
        let medium = medium(64);
        let (disk, fs) = open(&medium);
        fs.join_writes();
        put(&fs.view(), "/f", "");
        let ino = at(&fs.view(), "/f").unwrap();
        write(&fs.view(), ino, FIRST);
        if flushed {
            fs.view().flush(ino).unwrap();
        }
        drop(fs);
        if !flushed {
            disk.flush(Survive::Power).unwrap();
        }
        drop(disk);
        let (_disk, fs) = open(&medium);
        assert_eq!(fs.view().attributes(ino).unwrap().size, 4096, "flushed: {flushed}");
    }
}

/// The rest may be refused; what was said to be done is.
#[test]
fn on_a_full_disk_the_first_piece_stays() {
    let (disk, fs, ino) = opened();
    let view = fs.view();
    put(&view, "/filling", "");
    let filling = at(&view, "/filling").unwrap();
    let mut end = 0;
    for len in [1 << 20, 64 << 10, 4096] {
        while view.write(filling, end, &vec![3; len], NOW).is_ok() {
            end += len as u64;
        }
    }
    disk.flush(Survive::Power).unwrap();
    let first = view.write(ino, 100, &[7; 3996], NOW);
    let rest = view.write(ino, 4096, &vec![7; 1 << 20], NOW);
    assert_eq!(rest.unwrap_err().kind(), ErrorKind::Full);
    let size = view.attributes(ino).unwrap().size;
    assert_eq!(size, if first.is_ok() { 4096 } else { 0 });
    fs.sync().unwrap();
    is_sound(&fs);
}
