//! Transactions: what they see, what is a conflict, what is put together.
use crate::tree::{CALLER, NOW, at, directory, get, is_sound, medium, open, put, remove};
use lode_fs::{Became, Conflicts, ErrorKind, FileSystem, Ino, New, Renaming, Transaction};
use lode_media::ram::RamMedium;
use lode_media::{Geometry, Medium, Position, ZoneId};
use std::sync::Arc;

pub fn begin(fs: &FileSystem) -> Transaction {
    fs.begin(Conflicts::Read, NOW).unwrap()
}

#[test]
fn a_transaction_sees_one_moment_and_its_own_changes_and_nobody_sees_those() {
    let (_disk, fs) = open(&medium(64));
    let now = fs.view();
    put(&now, "/a", "one");
    let txn = begin(&fs);
    let own = txn.view();
    put(&now, "/a", "two");
    put(&now, "/b", "new");
    assert_eq!(get(&own, "/a").as_deref(), Some("one"));
    assert_eq!(get(&own, "/b"), None);
    put(&own, "/c", "mine");
    assert_eq!((get(&own, "/c").as_deref(), get(&now, "/c")), (Some("mine"), None));
    txn.abort();
    assert_eq!(get(&now, "/c"), None);
    assert_eq!(own.lookup(Ino::ROOT, b"a").unwrap_err().kind(), ErrorKind::Ended);
    is_sound(&fs);
}

#[test]
fn names_commute_and_files_do_not() {
    let (_disk, fs) = open(&medium(64));
    let now = fs.view();
    directory(&now, "/d");
    for n in 0..300 {
        put(&now, &format!("/d/before-{n}"), "old");
    }
    let (one, two, three) = (begin(&fs), begin(&fs), begin(&fs));
    for n in 0..200 {
        put(&one.view(), &format!("/d/one-{n}"), "1");
        put(&two.view(), &format!("/d/two-{n}"), "2");
        put(&now, &format!("/d/now-{n}"), "0");
    }
    remove(&one.view(), "/d/before-7");
    directory(&two.view(), "/d/sub");
    put(&three.view(), "/d/before-8", "three");
    put(&now, "/d/before-8", "now");
    one.commit(NOW).unwrap();
    is_sound(&fs);
    two.commit(NOW).unwrap();
    is_sound(&fs);
    let refused = three.commit(NOW).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert_eq!(refused.to_string(), "/d/before-8 was changed by others meanwhile");
    assert_eq!(get(&three.view(), "/d/before-8").as_deref(), Some("three"), "still open");
    drop(three);
    for n in 0..200 {
        for (who, what) in [("one", "1"), ("two", "2"), ("now", "0")] {
            assert_eq!(get(&now, &format!("/d/{who}-{n}")).as_deref(), Some(what));
        }
    }
    assert_eq!((get(&now, "/d/before-7"), at(&now, "/d/sub").is_some()), (None, true));
    is_sound(&fs);
    assert!(fs.transactions().is_empty());
}

#[test]
fn what_is_a_conflict_and_what_is_not() {
    type Do = fn(&lode_fs::View);
    let make: Do = |view| put(view, "/d/new", "x");
    let write: Do = |view| put(view, "/d/f", "x");
    let read: Do = |view| drop(get(view, "/d/f").unwrap());
    let miss: Do = |view| assert!(get(view, "/d/new").is_none());
    let list: Do = |view| view.list(at(view, "/d").unwrap(), 0, &mut |_| true).unwrap();
    let unlink: Do = |view| remove(view, "/d/f");
    let link: Do = |view| {
        view.link(at(view, "/d/f").unwrap(), at(view, "/d").unwrap(), b"linked", NOW).unwrap();
    };
    let other: Do = |view| put(view, "/e/other", "x");
    let empty: Do = |view| view.remove_directory(Ino::ROOT, b"e", NOW).unwrap();
    let modes: Do = |view| {
        let changes = lode_fs::Changes { permissions: Some(0o700), ..Default::default() };
        view.set_attributes(at(view, "/d").unwrap(), &changes, NOW).unwrap();
    };
    let into: Do = |view| {
        view.rename(Ino::ROOT, b"e", at(view, "/d").unwrap(), b"e", Renaming::Keep, NOW).unwrap();
    };
    let back: Do = |view| {
        view.rename(Ino::ROOT, b"d", at(view, "/e").unwrap(), b"d", Renaming::Keep, NOW).unwrap();
    };
    for (what, mine, theirs, conflict) in [
        ("two make one name", make, make, true),
        ("two write one file", write, write, true),
        ("read and written", read, write, true),
        ("not there, and made", miss, make, true),
        ("listed, and made", list, make, true),
        ("listed, and written", list, write, false),
        ("made and written", make, write, false),
        ("removed and written", unlink, write, true),
        ("written and removed", write, unlink, true),
        ("linked and written", link, write, true),
        ("linked and made", link, make, false),
        ("other directories", other, write, false),
        ("removed, and something came into it", empty, other, true),
        ("something came into it, and it was removed", other, empty, true),
        ("attributes of a directory and names in it", modes, make, false),
        // Who may what in a directory is looked at on the way to the names in it.
        ("names in a directory and attributes of it", make, modes, true),
        ("two directories come to lie in each other", into, back, true),
    ] {
        let (_disk, fs) = open(&medium(64));
        let now = fs.view();
        directory(&now, "/d");
        directory(&now, "/e");
        put(&now, "/d/f", "f");
        let txn = begin(&fs);
        mine(&txn.view());
        // So that there is something to commit.
        txn.view().make(Ino::ROOT, b"own", &New::file(0o600), &CALLER).unwrap();
        theirs(&now);
        let done = txn.commit(NOW);
        let found = done.as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict);
        assert!(found || done.is_ok(), "{what}: {done:?}");
        assert_eq!(found, conflict, "{what}: {done:?}");
        drop(txn);
        is_sound(&fs);
    }
}

#[test]
fn one_that_is_kept_is_there_after_a_crash_and_can_be_committed() {
    let medium = medium(64);
    let (disk, fs) = open(&medium);
    put(&fs.view(), "/a", "old");
    let txn = begin(&fs);
    put(&txn.view(), "/a", "new");
    put(&txn.view(), "/big", &"b".repeat(200_000));
    directory(&txn.view(), "/sub");
    txn.keep("mine").unwrap();
    let lost = begin(&fs);
    put(&lost.view(), "/lost", "lost");
    put(&txn.view(), "/late", "behind the barrier");
    fs.sync().unwrap();
    // Without closing.
    std::mem::forget((txn, lost, fs, disk));

    let (disk, fs) = open(&medium);
    assert_eq!(fs.transactions().len(), 1);
    put(&fs.view(), "/since", "others go on");
    let txn = fs.transaction("mine").unwrap();
    let differences: Vec<(String, Became)> = txn
        .differences()
        .unwrap()
        .into_iter()
        .map(|difference| (String::from_utf8(difference.path).unwrap(), difference.became))
        .collect();
    let expected = [("/a", Became::Changed), ("/big", Became::Added), ("/sub", Became::Added)];
    assert_eq!(differences, expected.map(|(path, became)| (path.to_owned(), became)));
    assert_eq!(get(&fs.view(), "/a").as_deref(), Some("old"));
    txn.commit(NOW).unwrap();
    for (path, content) in [("/a", Some("new")), ("/late", None), ("/lost", None), ("/since", Some("others go on"))] {
        assert_eq!(get(&fs.view(), path).as_deref(), content, "{path}");
    }
    assert!(at(&fs.view(), "/sub").is_some() && fs.transactions().is_empty());
    is_sound(&fs);
    drop(txn);
    drop(fs);
    std::sync::Arc::try_unwrap(disk).ok().unwrap().close().unwrap();
    let (_disk, fs) = open(&medium);
    is_sound(&fs);
    assert!(fs.transactions().is_empty());
}

/// A write over two lists of which the second cannot be done: what came of it must never count.
#[test]
fn what_failed_half_way_in_a_transaction_never_counts() {
    let ram = Arc::new(RamMedium::new(Geometry { zones: 64, zone_bytes: 1 << 20, append_align: 4096, devices: 1 }));
    lode::Disk::format(ram.clone(), &lode::FormatOptions { disk_id: 7 }).unwrap();
    let medium: Arc<dyn Medium> = ram.clone();
    let (disk, fs) = open(&medium);
    put(&fs.view(), "/f", &"f".repeat(60_000));
    let ino = at(&fs.view(), "/f").unwrap();
    let pattern: Vec<u8> = (0..4096u32).map(|n| u8::try_from(n * 7 % 251).unwrap()).collect();
    fs.view().write(ino, 65536, &pattern, NOW).unwrap();
    drop(fs);
    Arc::try_unwrap(disk).ok().unwrap().close().unwrap();
    let mut damaged = 0;
    for zone in 0..64 {
        let mut bytes = vec![0; 1 << 20];
        ram.read(Position { zone: ZoneId(zone), offset: 0 }, &mut bytes).unwrap();
        if let Some(found) = bytes.windows(512).position(|part| part == &pattern[..512]) {
            ram.overwrite(Position { zone: ZoneId(zone), offset: u32::try_from(found).unwrap() }, b"x").unwrap();
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1);

    let (_disk, fs) = open(&medium);
    let txn = begin(&fs);
    put(&txn.view(), "/g", "g");
    // All of it in the damaged block: nothing is done, and it can go on.
    assert_eq!(txn.view().write(ino, 65540, b"y", NOW).unwrap_err().kind(), ErrorKind::Damaged);
    txn.commit(NOW).unwrap();
    let (outer, inner) = (begin(&fs), begin(&fs));
    let within = outer.begin(Conflicts::Changed, NOW).unwrap();
    for spoiled in [&inner, &within] {
        put(&spoiled.view(), "/h", "h");
        assert_eq!(spoiled.view().write(ino, 65530, &[b'y'; 20], NOW).unwrap_err().kind(), ErrorKind::Damaged);
        let refused = spoiled.commit(NOW).unwrap_err();
        assert_eq!(refused.to_string(), "an operation of the transaction failed half-way: it can only be aborted");
        spoiled.abort();
    }
    outer.commit(NOW).unwrap();
    assert_eq!((get(&fs.view(), "/g").as_deref(), get(&fs.view(), "/h")), (Some("g"), None));
}
