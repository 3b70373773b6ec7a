#![allow(clippy::unwrap_used)]

use super::*;
use crate::scratch::Scratch;

const LOCKS: &str = "\
1: FLOCK  ADVISORY  WRITE 4242 fe:00:131094 0 EOF
1: -> FLOCK  ADVISORY  WRITE 17 fe:00:131095 0 EOF
2: POSIX  ADVISORY  WRITE 18 fe:00:131096 0 EOF
3: FLOCK  ADVISORY  READ  19 103:0a:131096 0 EOF
4: FLOCK  ADVISORY  READ  0 fe:00:7 0 EOF
nonsense
";

#[test]
fn the_holder_is_found_by_device_and_inode() {
    assert_eq!(find_holder(LOCKS, (0xfe, 0), 131_094), Some(4242));
    assert_eq!(find_holder(LOCKS, (0x103, 0xa), 131_096), Some(19));
}

#[test]
fn waiters_other_kinds_and_unseen_processes_are_no_holders() {
    assert_eq!(find_holder(LOCKS, (0xfe, 0), 131_095), None);
    assert_eq!(find_holder(LOCKS, (0xfe, 0), 131_096), None);
    assert_eq!(find_holder(LOCKS, (0xfe, 0), 7), None);
    assert_eq!(find_holder("", (0, 0), 0), None);
}

#[test]
fn readers_share_and_writers_do_not() {
    let scratch = Scratch::new();
    let path = scratch.path("file");
    std::fs::write(&path, "").unwrap();
    let open = || std::fs::File::open(&path).unwrap();
    let (first, second, third) = (open(), open(), open());
    lock(&first, &path, Access::ReadOnly).unwrap();
    lock(&second, &path, Access::ReadOnly).unwrap();
    let error = lock(&third, &path, Access::ReadWrite).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop((first, second));
    lock(&third, &path, Access::ReadWrite).unwrap();
}

#[test]
fn a_lock_that_goes_away_soon_is_waited_for() {
    let scratch = Scratch::new();
    let path = scratch.path("file");
    std::fs::write(&path, "").unwrap();
    let first = std::fs::File::open(&path).unwrap();
    let second = std::fs::File::open(&path).unwrap();
    lock(&first, &path, Access::ReadWrite).unwrap();
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(150));
        drop(first);
    });
    lock(&second, &path, Access::ReadWrite).unwrap();
    release.join().unwrap();
}

#[test]
fn the_refusal_names_the_holder() {
    let scratch = Scratch::new();
    let path = scratch.path("file");
    std::fs::write(&path, "").unwrap();
    let first = std::fs::File::open(&path).unwrap();
    let second = std::fs::File::open(&path).unwrap();
    lock(&first, &path, Access::ReadWrite).unwrap();
    let words = lock(&second, &path, Access::ReadOnly).unwrap_err().to_string();
    let here = format!("this process ({})", std::process::id());
    assert!(words.contains(&here) || words.contains("another process"), "{words}");
    assert!(words.contains("file"), "{words}");
}
