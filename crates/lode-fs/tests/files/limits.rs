//! Names, sizes and counts at and over what there can be; a full disk; a disk that is only read.
use crate::tree::{CALLER, NOW, at, directory, get, is_sound, medium, open, put, remove};
use lode::{Disk, OpenOptions};
use lode_fs::{Changes, Conflicts, ErrorKind, FileSystem, Ino, MakeOptions, New, Renaming, Setting};
use std::sync::Arc;

fn kind<T>(result: lode_fs::Result<T>) -> ErrorKind {
    result.map(drop).unwrap_err().kind()
}

#[test]
fn names_have_255_bytes_and_no_more_wherever_they_are_given() {
    let (_disk, fs) = open(&medium(64));
    let view = fs.view();
    let (most, more) = ([b'n'; 255], [b'n'; 256]);
    let file = view.make(Ino::ROOT, &most, &New::file(0o600), &CALLER).unwrap().ino;
    assert_eq!(view.lookup(Ino::ROOT, &most).unwrap().ino, file);
    let d = directory(&view, "/d");
    view.link(file, d, &most, NOW).unwrap();
    view.rename(d, &most, d, &[b'm'; 255], Renaming::Keep, NOW).unwrap();
    let too_long = [
        kind(view.lookup(Ino::ROOT, &more)),
        kind(view.make(d, &more, &New::file(0o600), &CALLER)),
        kind(view.make(d, &more, &New::directory(0o700), &CALLER)),
        kind(view.link(file, d, &more, NOW)),
        kind(view.rename(d, &[b'm'; 255], d, &more, Renaming::Keep, NOW)),
        kind(view.rename(d, &more, d, b"x", Renaming::Keep, NOW)),
        kind(view.unlink(d, &more, NOW)),
        kind(view.remove_directory(d, &more, NOW)),
        kind(view.entry(d, &more)),
    ];
    assert_eq!(too_long, [ErrorKind::NameTooLong; 9]);
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        assert_eq!(kind(view.make(d, name, &New::file(0o600), &CALLER)), ErrorKind::Invalid, "{name:?}");
        assert_eq!(kind(view.link(file, d, name, NOW)), ErrorKind::Invalid, "{name:?}");
    }
    // Any other bytes are a name.
    for byte in (1..=255u8).filter(|byte| ![b'/', b'.'].contains(byte)) {
        view.make(d, &[byte], &New::file(0o600), &CALLER).unwrap();
    }
    is_sound(&fs);
}

#[test]
fn targets_have_4095_bytes_and_attributes_what_fits_in_64_kib() {
    let (_disk, fs) = open(&medium(64));
    let view = fs.view();
    let link = view.make(Ino::ROOT, b"most", &New::link(&[b't'; 4095]), &CALLER).unwrap().ino;
    assert_eq!(view.read_link(link).unwrap(), [b't'; 4095]);
    assert_eq!(kind(view.make(Ino::ROOT, b"more", &New::link(&[b't'; 4096]), &CALLER)), ErrorKind::NameTooLong);
    put(&view, "/f", "");
    let f = at(&view, "/f").unwrap();
    let set = |name: &[u8], bytes: usize| view.set_attribute(f, name, &vec![7; bytes], Setting::Any, NOW);
    let name = [&b"user."[..], &[b'n'; 250]].concat();
    set(&name, 10).unwrap();
    assert_eq!(kind(set(&[&name[..], b"n"].concat(), 10)), ErrorKind::Range);
    view.remove_attribute(f, &name, NOW).unwrap();
    // A head of eight bytes, and the name.
    let most = 65536 - 8 - 6;
    set(b"user.a", most).unwrap();
    assert_eq!(view.attribute(f, b"user.a").unwrap(), vec![7; most]);
    is_sound(&fs);
    assert_eq!(kind(set(b"user.a", most + 1)), ErrorKind::Full);
    assert_eq!(kind(set(b"user.b", 0)), ErrorKind::Full);
    assert_eq!(kind(set(b"user.a", 65537)), ErrorKind::Range);
    assert_eq!(view.attribute(f, b"user.a").unwrap(), vec![7; most], "as it was");
    set(b"user.a", 0).unwrap();
    set(b"user.b", 0).unwrap();
    is_sound(&fs);
}

#[test]
fn a_file_is_as_large_as_a_list_can_be_and_no_larger() {
    let (disk, fs) = open(&medium(64));
    let view = fs.view();
    put(&view, "/f", "");
    let f = at(&view, "/f").unwrap();
    let size = |size: u64| {
        let changes = Changes { size: Some(size), ..Changes::default() };
        view.set_attributes(f, &changes, NOW).map(|found| found.size)
    };
    let most = disk.file_list_bytes(4096).min(1 << 62);
    assert_eq!(size(most).unwrap(), most);
    view.write(f, most - 3, b"end", NOW).unwrap();
    let mut found = [0; 10];
    assert_eq!((view.read(f, most - 4, &mut found).unwrap(), &found[..4]), (4, &b"\0end"[..]));
    assert_eq!(view.read(f, most, &mut found).unwrap(), 0);
    assert_eq!(view.read(f, u64::MAX, &mut found).unwrap(), 0);
    let too_large = [
        kind(size(most + 1)),
        kind(size(u64::MAX)),
        kind(view.write(f, most - 2, b"end", NOW)),
        kind(view.write(f, most, b"e", NOW)),
        kind(view.write(f, u64::MAX, b"e", NOW)),
        kind(view.write(f, u64::MAX - 1, b"end", NOW)),
        kind(view.append(f, b"e", NOW)),
    ];
    assert_eq!(too_large, [ErrorKind::TooLarge; 7]);
    assert_eq!(view.attributes(f).unwrap().size, most, "as it was");
    is_sound(&fs);
    assert_eq!(size(1).unwrap(), 1);
    assert_eq!(view.attributes(f).unwrap().stored, 0);
    is_sound(&fs);
}

/// Four thousand million names are more than can be made here: the count is written past the file system.
#[test]
fn an_inode_has_as_many_names_as_its_count_can_tell() {
    let (disk, fs) = open(&medium(64));
    let view = fs.view();
    put(&view, "/f", "");
    directory(&view, "/d");
    let inodes = disk.file_list_named("inodes").unwrap().unwrap();
    let most = u32::MAX - 8;
    let links = |ino: Ino, links: u32| inodes.write_at(ino.0 * 512 + 12, &links.to_le_bytes()).unwrap();
    let (f, d) = (at(&view, "/f").unwrap(), at(&view, "/d").unwrap());
    links(f, most - 1);
    assert_eq!(view.link(f, d, b"last", NOW).unwrap().links, most);
    let refused = view.link(f, d, b"more", NOW).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooManyLinks);
    assert!(refused.to_string().contains("as many names as it can"), "{refused}");
    links(f, 2);
    links(d, most);
    assert_eq!(kind(view.make(d, b"sub", &New::directory(0o700), &CALLER)), ErrorKind::TooManyLinks);
    put(&view, "/d/file", "a file is no link of its directory");
    directory(&view, "/sub");
    assert_eq!(kind(view.rename(Ino::ROOT, b"sub", d, b"sub", Renaming::Keep, NOW)), ErrorKind::TooManyLinks);
    links(d, 2);
    is_sound(&fs);
}

/// Writes to a file in a transaction until there is no more space. Gives back how many blocks there are.
fn fill(view: &lode_fs::View, path: &str) -> u64 {
    put(view, path, "");
    let ino = at(view, path).unwrap();
    let mut n = 0;
    loop {
        match view.write(ino, n * 4096, &[n.to_le_bytes()[0] | 1; 4096], NOW) {
            Ok(()) => n += 1,
            Err(error) if error.kind() == ErrorKind::Full => return n,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn on_a_full_disk_the_operation_says_so_and_the_transaction_can_be_dropped_or_go_on() {
    let (disk, fs) = open(&medium(64));
    let now = fs.view();
    put(&now, "/before", "before");
    let free = fs.statistics().unwrap().free;
    for ending in ["dropped", "committed", "room made"] {
        let txn = fs.begin(Conflicts::Read, NOW).unwrap();
        let view = txn.view();
        directory(&view, "/d");
        put(&view, "/d/small", "small");
        let blocks = fill(&view, "/d/large");
        assert!(blocks > 4000, "{blocks}");
        let large = at(&view, "/d/large").unwrap();
        assert_eq!(view.attributes(large).unwrap().size, blocks * 4096, "what was refused left no trace");
        assert_eq!(kind(view.write(large, 1 << 30, &[1; 1 << 16], NOW)), ErrorKind::Full);
        assert_eq!(get(&now, "/before").as_deref(), Some("before"), "others read");
        match ending {
            "dropped" => drop((view, txn)),
            "committed" => {
                txn.commit(NOW).unwrap();
                assert_eq!(now.attributes(large).unwrap().size, blocks * 4096);
                assert_eq!(get(&now, "/d/small").as_deref(), Some("small"));
                is_sound(&fs);
                remove(&now, "/d/large");
                remove(&now, "/d/small");
                now.remove_directory(Ino::ROOT, b"d", NOW).unwrap();
            }
            _ => {
                remove(&view, "/d/large");
                put(&view, "/d/other", "other");
                txn.commit(NOW).unwrap();
                assert_eq!(get(&now, "/d/other").as_deref(), Some("other"));
                assert!(at(&now, "/d/large").is_none());
            }
        }
        while disk.maintain().unwrap() {}
        is_sound(&fs);
        let left = fs.statistics().unwrap().free;
        assert!(left + (1 << 20) > free, "{ending}: {left} of {free}");
    }
}

/// What a commit puts together needs more than is held; one of the directories needs a list of its own then.
#[test]
fn a_commit_without_space_is_refused_as_often_as_it_is_asked_for_and_takes_nothing() {
    let (disk, fs) = open(&medium(64));
    let now = fs.view();
    let directories: Vec<String> = (0..150).map(|n| format!("/d{n}")).collect();
    let add = |view: &lode_fs::View, who: &str| {
        directories.iter().for_each(|directory| put(view, &format!("{directory}/{who}"), ""));
        (0..5).for_each(|n| put(view, &format!("/d0/{who}-{n}-{}", "x".repeat(150)), ""));
    };
    for path in &directories {
        directory(&now, path);
    }
    let txn = fs.begin(Conflicts::Changed, NOW).unwrap();
    add(&txn.view(), "own");
    add(&now, "other");
    // Enough for a list, and not for all of it.
    let size = (fill(&now, "/fill") - 128) * 4096;
    let changes = Changes { size: Some(size), ..Changes::default() };
    now.set_attributes(at(&now, "/fill").unwrap(), &changes, NOW).unwrap();
    let before = disk.file_lists().len();
    assert_eq!(kind(txn.commit(NOW)), ErrorKind::Full);
    let lists = disk.file_lists().len();
    assert_eq!(lists, before + 1, "one was needed");
    for _ in 0..5 {
        assert_eq!(kind(txn.commit(NOW)), ErrorKind::Full);
    }
    assert_eq!(disk.file_lists().len(), lists);
    assert!(at(&now, "/d0/own").is_none() && at(&txn.view(), "/d0/own").is_some());
    remove(&now, "/fill");
    while disk.maintain().unwrap() {}
    txn.commit(NOW).unwrap();
    for directory in &directories {
        assert!(["own", "other"].iter().all(|who| at(&now, &format!("{directory}/{who}")).is_some()), "{directory}");
    }
    is_sound(&fs);
}

#[test]
fn a_disk_that_is_only_read_is_read_and_refuses_every_change() {
    let medium = medium(64);
    let (disk, fs) = open(&medium);
    let view = fs.view();
    directory(&view, "/d");
    put(&view, "/d/f", "content");
    drop((view, fs));
    Arc::into_inner(disk).unwrap().close().unwrap();
    let options = OpenOptions { background: false, read_only: true, ..OpenOptions::default() };
    let disk = Disk::open(medium, &options).unwrap();
    let fs = FileSystem::open(&disk, NOW).unwrap();
    let view = fs.view();
    assert_eq!(get(&view, "/d/f").as_deref(), Some("content"));
    let (d, f) = (at(&view, "/d").unwrap(), at(&view, "/d/f").unwrap());
    let refused = [
        kind(view.make(d, b"x", &New::file(0o600), &CALLER)),
        kind(view.make_nameless(d, &New::file(0o600), &CALLER)),
        kind(view.link(f, d, b"x", NOW)),
        kind(view.unlink(d, b"f", NOW)),
        kind(view.rename(d, b"f", Ino::ROOT, b"f", Renaming::Keep, NOW)),
        kind(view.write(f, 0, b"x", NOW)),
        kind(view.set_attributes(f, &Changes { permissions: Some(0), ..Changes::default() }, NOW)),
        kind(view.set_attribute(f, b"user.a", b"a", Setting::Any, NOW)),
        kind(fs.begin(Conflicts::Read, NOW)),
        kind(fs.hold_space(4096)),
    ];
    assert_eq!(refused, [ErrorKind::ReadOnly; 10]);
    assert_eq!(kind(FileSystem::make(&disk, &MakeOptions { key: 1, caller: CALLER })), ErrorKind::Exists);
    is_sound(&fs);
}
