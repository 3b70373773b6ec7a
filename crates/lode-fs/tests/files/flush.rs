//! What the flush of one file waits for.

use crate::transactions::begin;
use crate::tree::{NOW, at, medium, open, put};

#[test]
fn a_file_is_flushed_as_far_as_it_was_changed() {
    let (disk, fs) = open(&medium(64));
    let view = fs.view();
    put(&view, "/a", "first");
    let a = at(&view, "/a").unwrap();
    let syncs_of = |ino| {
        let before = disk.counters().syncs;
        view.flush(ino).unwrap();
        disk.counters().syncs - before
    };
    assert_eq!(syncs_of(a), 1);
    assert_eq!(syncs_of(a), 0, "nothing was done since");
    put(&view, "/b", "second");
    let b = at(&view, "/b").unwrap();
    assert_eq!(syncs_of(a), 0, "others' changes are theirs");
    assert_eq!(syncs_of(b), 1);
    put(&view, "/c", "third");
    let c = at(&view, "/c").unwrap();
    view.write(a, 0, b"FIRST", NOW).unwrap();
    assert_eq!((syncs_of(a), syncs_of(c)), (1, 0), "what was done before it is durable with it");
    let transaction = begin(&fs);
    transaction.view().write(b, 0, b"SECOND", NOW).unwrap();
    assert_eq!(syncs_of(b), 0, "nothing of a transaction counts");
    transaction.commit(NOW).unwrap();
    assert_eq!(syncs_of(b), 1);
    put(&view, "/d", "fourth");
    fs.sync().unwrap();
    assert_eq!(syncs_of(at(&view, "/d").unwrap()), 0, "all were");
}
