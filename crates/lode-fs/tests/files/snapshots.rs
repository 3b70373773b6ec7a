//! Snapshots of the files.
use crate::tree::{CALLER, NOW, at, get, is_sound, medium, open, put, remove};
use lode_fs::{ErrorKind, Ino, New, Retention, Time};

#[test]
fn a_snapshot_shows_what_was_also_after_a_crash_until_it_is_deleted() {
    let medium = medium(64);
    let (disk, fs) = open(&medium);
    put(&fs.view(), "/a", "old");
    fs.snapshot("monday", Time(5)).unwrap();
    put(&fs.view(), "/a", "new");
    put(&fs.view(), "/b", "b");
    let shown = |fs: &lode_fs::FileSystem| {
        let view = fs.snapshot_view("monday").unwrap();
        assert_eq!((get(&view, "/a").as_deref(), get(&view, "/b")), (Some("old"), None));
    };
    shown(&fs);
    for refused in ["monday", "", "a/b", "..", "x@y"] {
        let kind = if refused == "monday" { ErrorKind::Exists } else { ErrorKind::Invalid };
        assert_eq!(fs.snapshot(refused, NOW).unwrap_err().kind(), kind, "{refused}");
    }
    // Without closing.
    std::mem::forget((fs, disk));
    let (disk, fs) = open(&medium);
    let listed = fs.snapshots();
    assert_eq!((listed.len(), &listed[0].name[..], listed[0].made), (1, "monday", Time(5)));
    shown(&fs);
    let view = fs.snapshot_view("monday").unwrap();
    let made = view.make(Ino::ROOT, b"x", &New::file(0o644), &CALLER);
    assert_eq!(made.unwrap_err().kind(), ErrorKind::ReadOnly);
    let written = view.write(at(&view, "/a").unwrap(), 0, b"x", NOW);
    assert_eq!(written.unwrap_err().kind(), ErrorKind::ReadOnly);
    fs.delete_snapshot("monday").unwrap();
    assert_eq!(view.lookup(Ino::ROOT, b"a").unwrap_err().kind(), ErrorKind::Ended);
    assert_eq!(fs.snapshot_view("monday").err().unwrap().kind(), ErrorKind::NotFound);
    is_sound(&fs);
    // Again without: it does not come back.
    std::mem::forget((view, fs, disk));
    let (_disk, fs) = open(&medium);
    assert!(fs.snapshots().is_empty());
}

/// A snapshot hands out inodes of the same numbers as what is committed.
#[test]
fn letting_go_in_a_snapshot_lets_go_of_nothing_elsewhere() {
    let (_disk, fs) = open(&medium(64));
    put(&fs.view(), "/a", "still here");
    fs.snapshot("one", NOW).unwrap();
    let holding = fs.holding_view();
    let ino = holding.lookup(Ino::ROOT, b"a").unwrap().ino;
    remove(&fs.view(), "/a");
    let snapshot = fs.snapshot_view("one").unwrap();
    assert_eq!(snapshot.lookup(Ino::ROOT, b"a").unwrap().ino, ino);
    snapshot.release(ino, 1, NOW).unwrap();
    let mut bytes = [0; 10];
    holding.read(ino, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"still here");
    holding.release(ino, 1, NOW).unwrap();
    assert_eq!(holding.read(ino, 0, &mut bytes).unwrap_err().kind(), ErrorKind::NotFound);
    is_sound(&fs);
}

/// FL-24: versions that are kept by themselves.
#[test]
fn of_snapshots_by_schedule_the_last_ones_are_kept_and_those_of_others_are_not_touched() {
    let medium = medium(64);
    let (disk, fs) = open(&medium);
    let when = |made: Time| format!("{:03}", made.0);
    let hourly = Retention { name: "hourly".into(), every: 10, keep: 3 };
    let daily = Retention { name: "daily".into(), every: 30, keep: 2 };
    let names =
        |fs: &lode_fs::FileSystem| -> Vec<String> { fs.snapshots().into_iter().map(|found| found.name).collect() };
    fs.snapshot("hourly-by-hand", Time(1)).unwrap();
    fs.snapshot("hourly-002", Time(1)).unwrap();
    for now in 100..140 {
        put(&fs.view(), "/now", &now.to_string());
        for retention in [&hourly, &daily] {
            fs.retain(retention, Time(now), &when).unwrap();
        }
    }
    let expected = ["daily-100", "daily-130", "hourly-002", "hourly-110", "hourly-120", "hourly-130", "hourly-by-hand"];
    assert_eq!(names(&fs), expected);
    assert_eq!(get(&fs.snapshot_view("hourly-120").unwrap(), "/now").as_deref(), Some("120"));
    // It goes on after a crash, and when a clock was put back.
    std::mem::forget((fs, disk));
    let (_disk, fs) = open(&medium);
    fs.retain(&hourly, Time(139), &when).unwrap();
    assert_eq!(names(&fs), expected);
    fs.retain(&hourly, Time(140), &when).unwrap();
    assert!(!names(&fs).contains(&"hourly-110".to_owned()) && names(&fs).contains(&"hourly-140".to_owned()));
    for now in 50..75 {
        fs.retain(&hourly, Time(now), &when).unwrap();
    }
    let mine: Vec<String> = names(&fs).into_iter().filter(|name| name.starts_with("hourly-")).collect();
    assert_eq!(mine, ["hourly-002", "hourly-050", "hourly-060", "hourly-070", "hourly-by-hand"]);
    is_sound(&fs);
}
