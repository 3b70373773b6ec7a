//! Transactions within transactions.
use crate::transactions::begin;
use crate::tree::{NOW, at, directory, get, is_sound, medium, open, put, remove};
use lode_fs::{Allocation, Changes, Conflicts, ErrorKind, Ino, Renaming};

#[test]
fn one_within_another_becomes_a_part_of_it_and_nobody_else_sees_it_before() {
    let (_disk, fs) = open(&medium(64));
    let now = fs.view();
    put(&now, "/old", "old");
    let outer = begin(&fs);
    put(&outer.view(), "/a", "outer");
    put(&outer.view(), "/big", &"b".repeat(60_000));
    let inner = outer.begin(Conflicts::Read, NOW).unwrap();
    assert_eq!(get(&inner.view(), "/a").as_deref(), Some("outer"));
    put(&inner.view(), "/a", "inner");
    put(&inner.view(), "/huge", &"h".repeat(300_000));
    directory(&inner.view(), "/d");
    remove(&inner.view(), "/old");
    assert_eq!(get(&outer.view(), "/a").as_deref(), Some("outer"), "not before its commit");
    // The outer one goes on.
    put(&outer.view(), "/beside", "beside");
    let told = inner.commit(NOW).unwrap();
    assert_eq!(told.within, Some(outer.number()));
    for (path, content) in [("/a", Some("inner")), ("/beside", Some("beside")), ("/old", None)] {
        assert_eq!(get(&outer.view(), path).as_deref(), content, "{path}");
    }
    assert_eq!((get(&now, "/a"), get(&now, "/old").as_deref()), (None, Some("old")), "before the outer one's");
    assert_eq!(inner.view().lookup(Ino::ROOT, b"a").unwrap_err().kind(), ErrorKind::Ended);
    outer.commit(NOW).unwrap();
    assert_eq!(get(&now, "/a").as_deref(), Some("inner"));
    assert_eq!(now.attributes(at(&now, "/huge").unwrap()).unwrap().size, 300_000);
    assert!(fs.transactions().is_empty());
    is_sound(&fs);
}

#[test]
fn what_is_dropped_within_leaves_no_trace_and_ends_with_the_outer_one() {
    let (_disk, fs) = open(&medium(64));
    let outer = begin(&fs);
    put(&outer.view(), "/a", "outer");
    let inner = outer.begin(Conflicts::Read, NOW).unwrap();
    let innermost = inner.begin(Conflicts::Read, NOW).unwrap();
    put(&innermost.view(), "/a", "innermost");
    inner.abort();
    assert_eq!(innermost.commit(NOW).unwrap_err().kind(), ErrorKind::Ended);
    assert_eq!(get(&outer.view(), "/a").as_deref(), Some("outer"));
    let late = outer.begin(Conflicts::Read, NOW).unwrap();
    put(&late.view(), "/late", "late");
    outer.commit(NOW).unwrap();
    assert_eq!(late.commit(NOW).unwrap_err().kind(), ErrorKind::Ended);
    assert_eq!((get(&fs.view(), "/a").as_deref(), get(&fs.view(), "/late")), (Some("outer"), None));
    assert!(fs.transactions().is_empty());
    is_sound(&fs);
}

#[test]
fn conflicts_within_are_found_by_path_and_names_commute() {
    let (_disk, fs) = open(&medium(64));
    let outer = begin(&fs);
    directory(&outer.view(), "/d");
    put(&outer.view(), "/d/f", "f");
    let one = outer.begin(Conflicts::Changed, NOW).unwrap();
    let two = outer.begin(Conflicts::Changed, NOW).unwrap();
    for n in 0..100 {
        put(&one.view(), &format!("/d/one-{n}"), "1");
        put(&two.view(), &format!("/d/two-{n}"), "2");
        put(&outer.view(), &format!("/d/outer-{n}"), "0");
    }
    put(&one.view(), "/d/f", "one");
    put(&two.view(), "/d/f", "two");
    one.commit(NOW).unwrap();
    let refused = two.commit(NOW).unwrap_err();
    assert_eq!(refused.to_string(), "/d/f was changed by others meanwhile");
    assert_eq!(get(&two.view(), "/d/f").as_deref(), Some("two"), "still open");
    two.abort();
    outer.commit(NOW).unwrap();
    for (path, content) in
        [("/d/one-99", Some("1")), ("/d/outer-99", Some("0")), ("/d/two-99", None), ("/d/f", Some("one"))]
    {
        assert_eq!(get(&fs.view(), path).as_deref(), content, "{path}");
    }
    is_sound(&fs);
}

/// What others read in the outer one is what it read.
#[test]
fn what_an_inner_one_read_counts_for_the_outer_one() {
    let (_disk, fs) = open(&medium(64));
    put(&fs.view(), "/read", "1");
    let outer = begin(&fs);
    let inner = outer.begin(Conflicts::Read, NOW).unwrap();
    get(&inner.view(), "/read").unwrap();
    put(&inner.view(), "/own", "x");
    inner.commit(NOW).unwrap();
    put(&fs.view(), "/read", "2");
    assert_eq!(outer.commit(NOW).unwrap_err().to_string(), "/read was changed by others meanwhile");
}

/// Holes, shortened files, lists that come and go: all of it as it was done within.
#[test]
fn holes_and_lists_of_an_inner_one_arrive() {
    let (_disk, fs) = open(&medium(64));
    let now = fs.view();
    for name in ["/cut", "/hole", "/gone", "/moved"] {
        put(&now, name, &"c".repeat(400_000));
    }
    let outer = begin(&fs);
    put(&outer.view(), "/gone-too", &"g".repeat(400_000));
    let inner = outer.begin(Conflicts::Read, NOW).unwrap();
    let view = inner.view();
    let of = |path| at(&view, path).unwrap();
    view.set_attributes(of("/cut"), &Changes { size: Some(100), ..Changes::default() }, NOW).unwrap();
    view.allocate(of("/hole"), Allocation::Punch, 50_000, 300_000, NOW).unwrap();
    remove(&view, "/gone");
    remove(&view, "/gone-too");
    view.rename(Ino::ROOT, b"moved", Ino::ROOT, b"here", Renaming::Replace, NOW).unwrap();
    let stored = |view: &lode_fs::View, path| view.attributes(at(view, path).unwrap()).unwrap().stored;
    let expected = ["/cut", "/hole", "/here"].map(|path| (get(&view, path), stored(&view, path)));
    inner.commit(NOW).unwrap();
    let found = |view: &lode_fs::View| ["/cut", "/hole", "/here"].map(|path| (get(view, path), stored(view, path)));
    assert_eq!(found(&outer.view()), expected);
    outer.commit(NOW).unwrap();
    assert_eq!(found(&now), expected);
    assert_eq!([at(&now, "/gone"), at(&now, "/gone-too"), at(&now, "/moved")], [None; 3]);
    is_sound(&fs);
}

#[test]
fn one_within_another_is_not_kept_by_itself() {
    let (_disk, fs) = open(&medium(64));
    let outer = begin(&fs);
    let inner = outer.begin(Conflicts::Read, NOW).unwrap();
    assert_eq!(inner.keep("mine").unwrap_err().kind(), ErrorKind::Unsupported);
    let listed = fs.transactions();
    assert_eq!((listed.len(), listed[1].within), (2, Some(outer.number())));
    assert!(inner.differences().unwrap().is_empty());
    put(&inner.view(), "/x", "x");
    assert_eq!(inner.differences().unwrap().len(), 1);
    assert!(outer.differences().unwrap().is_empty());
}

/// The list of a large file is deleted when the file is made short, and with it went what its length was asked of.
#[test]
fn what_one_within_has_changed_of_a_file_that_others_have_made_short_comes_along() {
    let (_disk, fs) = open(&medium(64));
    let now = fs.view();
    put(&now, "/f", &"o".repeat(200_000));
    let f = at(&now, "/f").unwrap();
    let outer = begin(&fs);
    let inner = outer.begin(Conflicts::Read, NOW).unwrap();
    inner.view().write(f, 150_000, &[b'i'; 10_000], NOW).unwrap();
    now.set_attributes(f, &Changes { size: Some(0), ..Changes::default() }, NOW).unwrap();
    inner.commit(NOW).unwrap();
    let mut found = vec![0; 200_000];
    assert_eq!(outer.view().read(f, 0, &mut found).unwrap(), 200_000);
    assert!(found[150_000..160_000].iter().all(|byte| *byte == b'i'), "as it was left");
    assert!(found[..150_000].iter().chain(&found[160_000..]).all(|byte| *byte == b'o'));
    assert_eq!(outer.commit(NOW).unwrap_err().kind(), ErrorKind::Conflict);
    is_sound(&fs);
}
