//! Writes here and there in large files, which are gathered and put in order.
use crate::transactions::begin;
use crate::tree::{CALLER, NOW, at, is_sound, medium, open, put, remove};
use lode::Disk;
use lode_fs::{Changes, ErrorKind, FileSystem, Gathering, Ino, New, Time, View};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCK: u64 = 4096;
/// The first blocks of a file are in a list that it shares.
const FIRST: u64 = 16;

fn gather(fs: &FileSystem, bytes: usize) {
    fs.gather(Gathering { bytes, after: 2 });
}

/// A file of so many blocks.
fn large(view: &View, path: &str, blocks: u64) -> Ino {
    put(view, path, "");
    let ino = at(view, path).unwrap();
    for n in 0..blocks {
        view.write(ino, n * BLOCK, &[1; 4096], NOW).unwrap();
    }
    ino
}

/// Each block from the shared ones on, in an order that is none: `turn` is what it holds.
fn here_and_there(view: &View, ino: Ino, blocks: u64, turn: u8) -> lode_fs::Result<()> {
    let count = blocks - FIRST;
    (0..count).try_for_each(|n| view.write(ino, (FIRST + n * 769 % count) * BLOCK, &[turn; 4096], NOW))
}

fn block(view: &View, ino: Ino, block: u64) -> u8 {
    let mut found = [0; 4096];
    view.read(ino, block * BLOCK, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == found[0]), "block {block} is torn");
    found[0]
}

/// How much of all files would be moved to put it in order.
fn scattered(disk: &Disk) -> u64 {
    disk.flush(lode::Survive::Power).unwrap();
    let all = disk.file_lists().into_iter();
    all.map(|list| disk.recluster_file_list(list, &mut |_, _| ControlFlow::Continue(())).unwrap()).sum()
}

/// Otherwise it lies as it was written, and reading it in order is reading at random.
#[test]
fn a_file_that_is_written_over_at_random_lies_in_its_order() {
    let blocks = 4096;
    let moved = [0, 32 << 20].map(|bytes| {
        let (disk, fs) = open(&medium(96));
        let view = fs.view();
        let ino = large(&view, "/f", blocks);
        gather(&fs, bytes);
        here_and_there(&view, ino, blocks, 2).unwrap();
        fs.settle();
        (FIRST..blocks).for_each(|n| assert_eq!(block(&view, ino, n), 2, "block {n}"));
        is_sound(&fs);
        scattered(&disk)
    });
    assert!(moved[0] >= (blocks - FIRST) * BLOCK / 2, "at random it does not lie in order: {moved:?}");
    assert!(moved[1] <= FIRST * BLOCK + 4096, "gathered it does, but for the first blocks: {moved:?}");
}

#[test]
fn what_is_gathered_is_there_for_whoever_looks() {
    let blocks = 200;
    let (disk, fs) = open(&medium(64));
    let view = fs.view();
    let ino = large(&view, "/f", blocks);
    gather(&fs, 1 << 20);
    let scatter = |turn| {
        let before = disk.position();
        here_and_there(&view, ino, 60, turn).unwrap();
        for n in [70, 60, 80, 70] {
            view.write(ino, n * BLOCK, &[turn; 4096], Time(i64::from(turn))).unwrap();
        }
        assert!(disk.position() < lode::Lsn(before.0 + 20), "the others are gathered");
    };
    scatter(2);
    assert_eq!((block(&view, ino, 70), block(&view, ino, 60), block(&view, ino, 90)), (2, 2, 1), "who reads");
    scatter(3);
    let found = view.attributes(ino).unwrap();
    assert_eq!((found.modified, found.changed, found.stored), (Time(3), Time(3), blocks * BLOCK), "who asks");
    scatter(4);
    let transaction = begin(&fs);
    scatter(5);
    assert_eq!(block(&transaction.view(), ino, 70), 4, "a transaction has what was there");
    transaction.view().write(ino, 0, b"mine", NOW).unwrap();
    assert_eq!(transaction.commit(NOW).unwrap_err().kind(), ErrorKind::Conflict, "with what was gathered");
    scatter(6);
    fs.snapshot("six", NOW).unwrap();
    scatter(7);
    assert_eq!(block(&fs.snapshot_view("six").unwrap(), ino, 70), 6, "a snapshot");
    // What changes the file comes behind it.
    let changes = Changes { size: Some(75 * BLOCK), ..Changes::default() };
    view.set_attributes(ino, &changes, NOW).unwrap();
    view.set_attributes(ino, &Changes { size: Some(blocks * BLOCK), ..Changes::default() }, NOW).unwrap();
    assert_eq!((block(&view, ino, 70), block(&view, ino, 80)), (7, 0));
    // What is a hole is not written over: that takes space.
    for n in [81, 79, 83] {
        view.write(ino, n * BLOCK, &[8; 4096], NOW).unwrap();
    }
    assert_eq!(view.attributes(ino).unwrap().stored, 78 * BLOCK);
    remove(&view, "/f");
    is_sound(&fs);
}

#[test]
fn what_is_gathered_is_durable_after_a_flush_and_at_the_end() {
    let medium = medium(64);
    let (disk, fs) = open(&medium);
    let view = fs.view();
    let ino = large(&view, "/f", 100);
    gather(&fs, 1 << 20);
    here_and_there(&view, ino, 100, 2).unwrap();
    view.flush(ino).unwrap();
    drop((view, fs));
    drop(disk);
    let (disk, fs) = open(&medium);
    let view = fs.view();
    assert_eq!(block(&view, ino, 50), 2);
    gather(&fs, 1 << 20);
    here_and_there(&view, ino, 100, 3).unwrap();
    drop((view, fs));
    Arc::try_unwrap(disk).ok().expect("nobody holds it").close().unwrap();
    let (_disk, fs) = open(&medium);
    assert_eq!(block(&fs.view(), ino, 50), 3);
    is_sound(&fs);
}

/// With a snapshot, what is written over takes space.
#[test]
fn a_full_disk_says_so_at_the_write_and_never_behind_it() {
    let blocks = 2000;
    let (_disk, fs) = open(&medium(64));
    let view = fs.view();
    let ino = large(&view, "/f", blocks);
    gather(&fs, 1 << 20);
    let mut full = false;
    for turn in 2..40 {
        fs.snapshot(&format!("s{turn}"), NOW).unwrap();
        let done = here_and_there(&view, ino, blocks, turn);
        fs.sync().unwrap();
        if let Err(error) = done {
            assert_eq!(error.kind(), ErrorKind::Full);
            full = true;
            break;
        }
        (FIRST..blocks).for_each(|n| assert_eq!(block(&view, ino, n), turn));
    }
    assert!(full, "the disk is full at last");
    remove(&view, "/f");
    is_sound(&fs);
}

#[test]
fn many_at_once_neither_wait_for_each_other_forever_nor_lose_anything() {
    let blocks = 300;
    let (_disk, fs) = open(&medium(96));
    let files: Vec<Ino> = (0..3).map(|n| large(&fs.view(), &format!("/f{n}"), blocks)).collect();
    gather(&fs, 200 << 10);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4u64)
            .map(|n| {
                let (fs, files) = (&fs, &files);
                // The last two write to one file, each its own half.
                let (ino, first) = (files[usize::try_from(n.min(2)).unwrap()], if n == 3 { 150 } else { FIRST });
                scope.spawn(move || {
                    let view = fs.view();
                    for turn in 2..30 {
                        for k in 0..100 {
                            view.write(ino, (first + k * 37 % 100) * BLOCK, &[turn; 4096], NOW).unwrap();
                        }
                        (0..100).for_each(|k| assert_eq!(block(&view, ino, first + k), turn));
                    }
                })
            })
            .collect();
        let others = [0, 1, 2].map(|n| {
            let (fs, files, stop) = (&fs, &files, &stop);
            scope.spawn(move || {
                let view = fs.view();
                let mut turn = 0;
                while !stop.load(Ordering::Relaxed) {
                    turn += 1;
                    match n {
                        0 => {
                            let name = format!("n{turn}");
                            view.make(Ino::ROOT, name.as_bytes(), &New::file(0o600), &CALLER).unwrap();
                            view.unlink(Ino::ROOT, name.as_bytes(), NOW).unwrap();
                        }
                        1 => {
                            let transaction = begin(fs);
                            put(&transaction.view(), &format!("/t{}", turn % 5), "t");
                            transaction.commit(NOW).unwrap();
                        }
                        _ => {
                            for ino in files {
                                assert_eq!(view.attributes(*ino).unwrap().size, blocks * BLOCK);
                                fs.settle();
                            }
                            view.flush(files[0]).unwrap();
                        }
                    }
                }
            })
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
    is_sound(&fs);
}
