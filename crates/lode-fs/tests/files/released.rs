//! Inodes that are let go of in numbers, and programs that lose what they may.

use crate::tree::{CALLER, NOW, at, medium, open, put, remove};
use lode_fs::{Changes, Ino, Setting, Time, View};
use std::ops::ControlFlow;

const LATER: Time = Time(2_000);

/// Files with names, held so often.
fn held(view: &View, count: u64, times: u64) -> Vec<Ino> {
    let names = (0..count).map(|n| format!("/{n}"));
    let hold = |name: String| {
        put(view, &name, "content");
        let ino = at(view, &name).unwrap();
        // Whatever making and looking for it has counted is let go of.
        view.release(ino, u64::MAX, NOW).unwrap();
        (0..times).for_each(|_| assert_eq!(view.hold(ino).unwrap().ino, ino));
        ino
    };
    names.map(hold).collect()
}

#[test]
fn many_that_nobody_holds_any_more_go_in_a_few_units_and_those_with_names_or_holders_stay() {
    let medium = medium(64);
    let (disk, fs) = open(&medium);
    let view = fs.holding_view();
    let all = held(&view, 200, 2);
    for n in 0..150 {
        view.unlink(Ino::ROOT, n.to_string().as_bytes(), NOW).unwrap();
    }
    // The last ten of those without a name stay held once.
    let times = |n: usize| if (140..150).contains(&n) { 1 } else { 2 };
    let release: Vec<(Ino, u64)> = all.iter().enumerate().map(|(n, ino)| (*ino, times(n))).collect();
    view.release_all(&release, LATER).unwrap();
    for (n, ino) in all.iter().enumerate() {
        assert_eq!(view.attributes(*ino).is_ok(), n >= 140, "{n}");
    }
    assert_eq!(view.attributes(all[199]).unwrap().links, 1);
    view.release_all(&release[140..150], LATER).unwrap();
    assert!(all[140..150].iter().all(|ino| view.attributes(*ino).is_err()));
    // Nothing is left for the next opening to do, and nothing twice.
    view.release_all(&release, LATER).unwrap();
    drop((view, fs, disk));
    let (_disk, fs) = open(&medium);
    let report = fs.check(&mut |_, _| ControlFlow::Continue(())).unwrap().unwrap();
    assert_eq!((report.problems, report.orphans, report.inodes), (Vec::new(), 0, 51));
    assert_eq!(at(&fs.view(), "/199"), Some(all[199]));
}

#[test]
fn what_is_let_go_of_in_a_transaction_is_not_gone_for_others() {
    let medium = medium(64);
    let (_disk, fs) = open(&medium);
    put(&fs.view(), "/a", "content");
    let transaction = fs.begin(lode_fs::Conflicts::Read, NOW).unwrap();
    let view = transaction.holding_view();
    let all = [at(&view, "/a").unwrap()];
    remove(&view, "/a");
    view.release_all(&[(all[0], u64::MAX)], LATER).unwrap();
    assert_eq!(at(&fs.view(), "/a"), Some(all[0]));
}

#[test]
fn a_file_that_is_changed_runs_with_nobody_elses_rights() {
    let medium = medium(64);
    let (_disk, fs) = open(&medium);
    let view = fs.view();
    put(&view, "/f", "content");
    let file = at(&view, "/f").unwrap();
    let capable = || view.attribute(file, b"security.capability").is_ok();
    let set = |permissions| {
        let changes = Changes { permissions: Some(permissions), ..Changes::default() };
        view.set_attributes(file, &changes, NOW).unwrap();
        for name in [&b"security.capability"[..], b"user.other"] {
            view.set_attribute(file, name, b"value", Setting::Any, NOW).unwrap();
        }
    };
    for (before, after) in [(0o6755, 0o755), (0o4711, 0o711), (0o2755, 0o755), (0o2745, 0o2745), (0o1644, 0o1644)] {
        set(before);
        // Who may do so leaves the bits, but what a program may beyond its user always goes.
        view.drop_privileges(file, false, LATER).unwrap();
        assert_eq!((view.attributes(file).unwrap().permissions, capable()), (before, false), "{before:o}");
        set(before);
        view.drop_privileges(file, true, LATER).unwrap();
        assert_eq!((view.attributes(file).unwrap().permissions, capable()), (after, false), "{before:o}");
        assert_eq!(view.attribute(file, b"user.other").unwrap(), b"value");
    }
    // Nothing to do leaves no trace; a directory keeps what its bits mean for it.
    view.set_attributes(file, &Changes { permissions: Some(0o755), ..Changes::default() }, NOW).unwrap();
    let before = view.attributes(file).unwrap();
    view.drop_privileges(file, true, LATER).unwrap();
    assert_eq!(view.attributes(file).unwrap(), before);
    let directory = view.make(Ino::ROOT, b"d", &lode_fs::New::directory(0o2775), &CALLER).unwrap().ino;
    view.drop_privileges(directory, true, LATER).unwrap();
    assert_eq!(view.attributes(directory).unwrap().permissions, 0o2775);
}
