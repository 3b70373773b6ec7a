//! Mounted file systems, and commands as transactions, with what people have on their machines.

use crate::support::{Scratch, bad, good, json, lode, run, sound, tool, wait};
use crate::transports::{SWITCH, has_ring, option, over_each};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A file system that is mounted, until this is dropped.
struct Mounted {
    child: Child,
    disk: PathBuf,
    at: PathBuf,
}

impl Mounted {
    /// On a new disk.
    fn new(scratch: &Scratch) -> Mounted {
        let disk = scratch.disk("256MiB");
        good(lode(&["fs", "make"]).arg(&disk));
        let at = scratch.path("mnt");
        fs::create_dir(&at).unwrap();
        Self::again(&disk, &at, &[])
    }

    fn again(disk: &Path, at: &Path, more: &[&str]) -> Mounted {
        assert!(Path::new("/dev/fuse").exists(), "expected /dev/fuse, found none: modprobe fuse");
        let mut command = lode(&["mount", "--foreground"]);
        command.args(["-o", option()]).arg(disk).arg(at).args(more).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (mut line, mut all) = (String::new(), String::new());
        while line != "ready\n" {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "expected `lode mount` to be ready, found {all:?}");
            all.push_str(&line);
        }
        assert_eq!(all.contains(", over io_uring\n"), has_ring(), "{all}");
        Mounted { child, disk: disk.to_owned(), at: at.to_owned() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    fn lode(&self, command: &[&str], more: &[&str]) -> Command {
        let mut lode = lode(command);
        lode.arg(&self.at).args(more);
        lode
    }

    /// `lode run` of a line of shell in the mounted directory.
    fn shell(&self, options: &[&str], line: &str) -> Command {
        let mut lode = self.lode(&["run"], options);
        lode.args(["--", "sh", "-ec", &format!("cd {}; {line}", self.at.display())]);
        lode
    }

    fn kill(&mut self) -> (PathBuf, PathBuf) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        (self.disk.clone(), self.at.clone())
    }

    /// SIGTERM, a clean end, and a sound disk.
    fn stop(mut self) {
        let id = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        let status = wait(&mut self.child, Duration::from_secs(60)).expect("it ends within the deadline");
        assert!(status.success(), "{status}");
        good(lode(&["fs", "check"]).arg(&self.disk));
        sound(&self.disk);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = tool("umount", "mount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
    }
}

#[test]
fn files_are_what_programs_made_them_also_when_mounted_again() {
    over_each(|| {
        let scratch = Scratch::new();
        let mounted = Mounted::new(&scratch);
        let at = |name: &str| mounted.path(name);
        fs::create_dir(at("d")).unwrap();
        fs::write(at("d/a"), "content").unwrap();
        fs::hard_link(at("d/a"), at("b")).unwrap();
        symlink("d/a", at("c")).unwrap();
        fs::set_permissions(at("b"), fs::Permissions::from_mode(0o640)).unwrap();
        let sparse = fs::File::create(at("sparse")).unwrap();
        sparse.write_all_at(b"end", 5 << 30).unwrap();
        fs::rename(at("d"), at("e")).unwrap();
        let check = |at: &dyn Fn(&str) -> PathBuf| {
            assert_eq!(fs::read(at("c")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
            assert_eq!(fs::read_to_string(at("e/a")).unwrap(), "content");
            let found = fs::metadata(at("b")).unwrap();
            assert_eq!((found.nlink(), found.mode() & 0o7777, found.len()), (2, 0o640, 7));
            let found = fs::metadata(at("sparse")).unwrap();
            assert_eq!((found.len(), found.blocks()), ((5 << 30) + 3, 8));
            let mut names: Vec<_> =
                fs::read_dir(at("")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            assert_eq!(names, ["b", "c", "e", "sparse"]);
        };
        check(&at);
        let device = fs::metadata(&mounted.at).unwrap().dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let ahead = fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb")).unwrap();
        assert_eq!(ahead, "4096\n");
        assert!(good(tool("findmnt", "util-linux").arg(&mounted.at)).contains("fuse.lode"));
        let (disk, point) = (mounted.disk.clone(), mounted.at.clone());
        mounted.stop();
        let mounted = Mounted::again(&disk, &point, &["-o", "relaxed,noexec"]);
        check(&|name| mounted.path(name));
        fs::write(mounted.path("late"), "late").unwrap();
        mounted.stop();
        let mounted = Mounted::again(&disk, &point, &["--read-only"]);
        assert_eq!(fs::read_to_string(mounted.path("late")).unwrap(), "late");
        assert!(fs::write(mounted.path("no"), "").is_err());
    });
}

#[test]
fn after_kill_9_a_prefix_of_what_was_done_is_there_and_it_goes_on() {
    over_each(|| {
        let scratch = Scratch::new();
        let mut mounted = Mounted::new(&scratch);
        let at = mounted.at.clone();
        let writer = std::thread::spawn(move || {
            (0..).take_while(|n| fs::write(at.join(format!("{n}")), n.to_string()).is_ok()).count()
        });
        let until = |name| {
            while !mounted.path(name).exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        until("200");
        fs::File::open(mounted.path("0")).unwrap().sync_all().unwrap();
        until("300");
        let (disk, point) = mounted.kill();
        let done = writer.join().unwrap();
        drop(mounted);
        let mounted = Mounted::again(&disk, &point, &[]);
        // What was asked for is there; of the rest a prefix: the last one may be there without its content.
        let names = fs::read_dir(&mounted.at).unwrap().count();
        assert!((200..=done + 1).contains(&names), "{names} names of {done}");
        for n in 0..names {
            let content = fs::read_to_string(mounted.path(&n.to_string())).unwrap();
            assert!(content == n.to_string() || (n + 1 == names && content.is_empty()), "{n} of {names}: {content:?}");
        }
        fs::write(mounted.path("since"), "").unwrap();
        mounted.stop();
    });
}

/// Such writes are put in another order in memory.
#[test]
fn after_kill_9_a_prefix_of_writes_here_and_there_is_there_too() {
    const PIECE: u64 = 8192;
    const PIECES: u64 = 1024;
    // Which piece is written when; every 997th time a file is made instead.
    let piece = |turn: u64| (!turn.is_multiple_of(997)).then_some(8 + turn * 769 % (PIECES - 8));
    over_each(|| {
        let scratch = Scratch::new();
        let mut mounted = Mounted::new(&scratch);
        let at = mounted.at.clone();
        let file = fs::File::create(at.join("large")).unwrap();
        file.write_all_at(&vec![0; usize::try_from(PIECES * PIECE).unwrap()], 0).unwrap();
        file.sync_all().unwrap();
        let writer = std::thread::spawn(move || {
            let turn = |turn: u64| match piece(turn) {
                Some(piece) => {
                    file.write_all_at(&turn.to_le_bytes().repeat(usize::try_from(PIECE / 8).unwrap()), piece * PIECE)
                }
                None => fs::write(at.join(turn.to_string()), ""),
            };
            (1..).take_while(|n| turn(*n).is_ok()).last()
        });
        while !mounted.path("3988").exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        let (disk, point) = mounted.kill();
        let done = writer.join().unwrap().unwrap();
        drop(mounted);
        let mounted = Mounted::again(&disk, &point, &[]);
        let names =
            fs::read_dir(&mounted.at).unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
        let mut made: Vec<u64> = names.filter_map(|name| name.parse().ok()).collect();
        made.sort_unstable();
        let content = fs::read(mounted.path("large")).unwrap();
        let found: Vec<u64> = content
            .chunks_exact(usize::try_from(PIECE).unwrap())
            .map(|piece| {
                assert!(piece.chunks(8).all(|number| number == &piece[..8]), "a piece is torn");
                u64::from_le_bytes(piece[..8].try_into().unwrap())
            })
            .collect();
        let last = *found.iter().chain(&made).max().unwrap();
        assert!(last <= done + 1, "{last} of {done}");
        let mut expected = vec![0; usize::try_from(PIECES).unwrap()];
        for turn in 1..=last {
            if let Some(piece) = piece(turn) {
                expected[usize::try_from(piece).unwrap()] = turn;
            }
        }
        let wrong = found.iter().zip(&expected).find(|(found, expected)| found != expected);
        assert_eq!(wrong, None, "found, expected: all that was written up to {last}, and nothing of later");
        assert_eq!(made, (1..=last).filter(|turn| piece(*turn).is_none()).collect::<Vec<_>>());
        mounted.stop();
    });
}

/// A kernel that lacks the page in which a write begins asks twice.
#[test]
fn after_kill_9_no_write_is_there_in_part() {
    const EACH: u64 = 9000;
    over_each(|| {
        let scratch = Scratch::new();
        let mut mounted = Mounted::new(&scratch);
        let (disk, point) = (mounted.disk.clone(), mounted.at.clone());
        for _ in 0..8 {
            // With no page of it in memory, and anew where it was written before.
            let at = mounted.path("records");
            let writer = std::thread::spawn(move || {
                let file = fs::File::options().write(true).create(true).truncate(false).open(at).unwrap();
                let record = |n: u64| n.to_le_bytes().repeat(usize::try_from(EACH / 8).unwrap());
                (1..).take_while(|n| file.write_all_at(&record(*n), 100 + n % 700 * EACH).is_ok()).last()
            });
            std::thread::sleep(Duration::from_millis(60));
            (mounted.disk, mounted.at) = mounted.kill();
            writer.join().unwrap();
            drop(mounted);
            mounted = Mounted::again(&disk, &point, &[]);
            let content = fs::read(mounted.path("records")).unwrap_or_default();
            for record in content.get(100..).unwrap_or_default().chunks(usize::try_from(EACH).unwrap()) {
                assert!(record.chunks(8).all(|number| number == &record[..8]), "a record is torn: {:?}", &record[..8]);
            }
        }
        mounted.stop();
    });
}

/// Linux does not tell whoever serves a mount of a `sync`.
#[test]
fn the_fsync_of_a_directory_is_of_everything() {
    over_each(|| {
        let scratch = Scratch::new();
        let mut mounted = Mounted::new(&scratch);
        fs::create_dir(mounted.path("d")).unwrap();
        fs::write(mounted.path("d/f"), "old").unwrap();
        let root = fs::File::open(&mounted.at).unwrap();
        root.sync_all().unwrap();
        // Nothing of the root itself changes.
        let file = fs::File::options().write(true).open(mounted.path("d/f")).unwrap();
        file.write_all_at(b"new", 0).unwrap();
        root.sync_all().unwrap();
        let (disk, at) = mounted.kill();
        drop((root, file, mounted));
        let mounted = Mounted::again(&disk, &at, &[]);
        assert_eq!(fs::read_to_string(mounted.path("d/f")).unwrap(), "new");
        mounted.stop();
    });
}

/// A kernel that keeps pages keeps times, too, and tells them behind what it does.
#[test]
fn times_of_files_are_those_that_programs_saw_after_all() {
    over_each(|| {
        let scratch = Scratch::new();
        let mounted = Mounted::new(&scratch);
        let (disk, point) = (mounted.disk.clone(), mounted.at.clone());
        mounted.stop();
        let mounted = Mounted::again(&disk, &point, &["-o", "relaxed"]);
        for name in ["a", "b", "c"] {
            let file = fs::File::create(mounted.path(name)).unwrap();
            file.write_all_at(name.as_bytes(), 0).unwrap();
            file.sync_all().unwrap();
        }
        std::thread::sleep(Duration::from_millis(1100));
        let file = fs::File::options().write(true).open(mounted.path("b")).unwrap();
        file.write_all_at(b"more", 1).unwrap();
        let set = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + Duration::new(7, 8));
        fs::File::open(mounted.path("c")).unwrap().set_times(set).unwrap();
        fs::rename(mounted.path("a"), mounted.path("d")).unwrap();
        let seen = ["d", "b", "c"].map(|name| (name, fs::metadata(mounted.path(name)).unwrap()));
        drop(file);
        mounted.stop();
        let mounted = Mounted::again(&disk, &point, &[]);
        for (name, seen) in seen {
            let found = fs::metadata(mounted.path(name)).unwrap();
            assert_eq!(found.modified().unwrap(), seen.modified().unwrap(), "{name}");
            let nanoseconds = |found: &fs::Metadata| found.ctime() * 1_000_000_000 + found.ctime_nsec();
            let apart = nanoseconds(&found).abs_diff(nanoseconds(&seen));
            assert!(apart < 1_000_000_000, "{name}: {apart} ns");
        }
        mounted.stop();
    });
}

#[test]
fn a_command_that_fails_leaves_no_trace_and_one_that_succeeds_counts_as_a_whole() {
    over_each(|| {
        let scratch = Scratch::new();
        let mounted = Mounted::new(&scratch);
        fs::write(mounted.path("a"), "old").unwrap();
        let line = "echo new > a; mkdir d; echo x > d/x; ls -R > list; ! test -e /nowhere; exit 7";
        assert_eq!(run(&mut mounted.shell(&[], line)).status.code(), Some(7));
        assert_eq!(run(&mut mounted.shell(&[], "echo new > a; kill -9 $$")).status.code(), Some(137));
        assert_eq!(
            (fs::read_to_string(mounted.path("a")).unwrap(), fs::read_dir(&mounted.at).unwrap().count()),
            ("old".into(), 1)
        );
        // Others see nothing of it while it runs.
        let marker = scratch.path("marker");
        let line = format!(
            "echo new > a; mkdir d; echo x > d/x; touch {0}; while test -e {0}; do sleep 0.01; done",
            marker.display()
        );
        let mut child = mounted.shell(&[], &line).spawn().unwrap();
        while !marker.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!((fs::read_to_string(mounted.path("a")).unwrap(), mounted.path("d").exists()), ("old".into(), false));
        fs::remove_file(&marker).unwrap();
        assert!(wait(&mut child, Duration::from_secs(60)).unwrap().success());
        assert_eq!(fs::read_to_string(mounted.path("a")).unwrap(), "new\n");
        assert_eq!(fs::read_to_string(mounted.path("d/x")).unwrap(), "x\n");
        mounted.stop();
    });
}

#[test]
fn who_is_in_the_way_is_named_and_another_try_may_succeed() {
    over_each(|| {
        let scratch = Scratch::new();
        let mounted = Mounted::new(&scratch);
        fs::create_dir(mounted.path("d")).unwrap();
        fs::write(mounted.path("d/f"), "0").unwrap();
        let outside = mounted.path("d/f");
        // The command itself has somebody else change the file, through a descriptor of the mount outside.
        let marker = scratch.path("marker");
        let line = format!("touch {0}; while test -e {0}; do sleep 0.01; done; echo mine >> d/f", marker.display());
        let meddler = std::thread::spawn({
            let (marker, outside) = (marker.clone(), outside.clone());
            move || {
                while !marker.exists() {
                    std::thread::sleep(Duration::from_millis(2));
                }
                fs::write(&outside, "theirs 0\n").unwrap();
                fs::remove_file(&marker).unwrap();
            }
        });
        let refused = bad(&mut mounted.shell(&[], &line), 10);
        meddler.join().unwrap();
        assert_eq!(refused, "lode: /d/f was changed by others meanwhile\n");
        assert_eq!(fs::read_to_string(&outside).unwrap(), "theirs 0\n");
        // Only the first try is disturbed.
        let once = scratch.path("once");
        let line = format!("if test -e {}; then echo mine >> d/f; else {line}; fi", once.display());
        fs::write(&outside, "").unwrap();
        let meddler = std::thread::spawn({
            let (marker, outside) = (marker.clone(), outside.clone());
            move || {
                while !marker.exists() {
                    std::thread::sleep(Duration::from_millis(2));
                }
                fs::write(&outside, "theirs 0\n").unwrap();
                fs::write(once, "").unwrap();
                fs::remove_file(&marker).unwrap();
            }
        });
        good(&mut mounted.shell(&["--retry", "3"], &line));
        meddler.join().unwrap();
        assert_eq!(fs::read_to_string(&outside).unwrap(), "theirs 0\nmine\n");
        mounted.stop();
    });
}

#[test]
fn what_is_kept_can_be_looked_at_gone_on_with_and_committed_or_dropped_also_after_kill_9() {
    over_each(|| {
        let scratch = Scratch::new();
        let mut mounted = Mounted::new(&scratch);
        fs::write(mounted.path("a"), "one\ntwo\n").unwrap();
        fs::write(mounted.path("gone"), "gone\n").unwrap();
        good(
            &mut mounted.shell(&["--keep", "up"], "echo three >> a; rm gone; mkdir d; printf '\\000\\001' > d/binary"),
        );
        good(&mut mounted.shell(&["--keep", "drop"], "rm a"));
        bad(&mut mounted.shell(&["--keep", "up"], "true"), 7);
        let (disk, point) = mounted.kill();
        let mounted = Mounted::again(&disk, &point, &[]);
        let listed = good(&mut mounted.lode(&["txn", "list"], &[]));
        assert_eq!(listed.lines().count(), 3, "{listed}");
        assert_eq!(good(&mut mounted.lode(&["txn", "diff"], &["up"])), "M a\nA d/\nA d/binary\nD gone\n");
        let patch = good(&mut mounted.lode(&["txn", "diff"], &["up", "--patch"]));
        let expected = "--- a/a\n+++ b/a\n@@ -1,2 +1,3 @@\n one\n two\n+three\nA d/\nA d/binary (no text)\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-gone\n";
        assert_eq!(patch, expected);
        assert!(mounted.path("gone").exists());
        let enter = format!("cat {0}/a; echo more > {0}/more", mounted.at.display());
        assert_eq!(good(&mut mounted.lode(&["txn", "enter"], &["up", "--", "sh", "-c", &enter])), "one\ntwo\nthree\n");
        good(&mut mounted.lode(&["txn", "abort"], &["drop"]));
        good(&mut mounted.lode(&["txn", "commit"], &["up"]));
        assert_eq!(fs::read_to_string(mounted.path("a")).unwrap(), "one\ntwo\nthree\n");
        assert_eq!(fs::read_to_string(mounted.path("more")).unwrap(), "more\n");
        assert!(!mounted.path("gone").exists() && mounted.path("d/binary").exists());
        bad(&mut mounted.lode(&["txn", "commit"], &["up"]), 3);
        assert_eq!(good(&mut mounted.lode(&["txn", "list"], &[])), "");
        mounted.stop();
    });
}

#[test]
fn a_transaction_ends_with_the_process_that_began_it() {
    over_each(|| {
        let scratch = Scratch::new();
        let mounted = Mounted::new(&scratch);
        let marker = scratch.path("marker");
        let mut child = mounted.shell(&[], &format!("touch {}; exec sleep 20", marker.display())).spawn().unwrap();
        while !marker.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(good(&mut mounted.lode(&["txn", "list"], &[])).lines().count(), 2);
        child.kill().unwrap();
        child.wait().unwrap();
        let gone = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            good(&mut mounted.lode(&["txn", "list"], &[])).is_empty()
        });
        assert!(gone, "it is still open");
        mounted.stop();
    });
}

#[test]
fn what_cannot_be_mounted_says_why() {
    over_each(|| {
        let scratch = Scratch::new();
        let disk = scratch.disk("64MiB");
        let at = scratch.path("mnt");
        fs::create_dir(&at).unwrap();
        let refused = |arguments: &[&str], code| bad(lode(&["mount"]).arg(&disk).arg(&at).args(arguments), code);
        assert!(refused(&["--foreground"], 8).contains("the disk has no file system: `lode fs make` makes one"));
        assert!(bad(lode(&["fs", "check"]).arg(&disk), 8).contains("no file system"));
        good(lode(&["fs", "make"]).arg(&disk));
        assert!(bad(lode(&["fs", "make"]).arg(&disk), 7).contains("has a file system already"));
        assert!(refused(&["-o", "nonsense"], 2).contains("-o nonsense: there is no such option"));
        for often in ["", "1h", "1h:", "1h:0", ":3", "x:3", "1ms:3", "1h:100000"] {
            let words = refused(&["-o", &format!("snapshots={often}")], 2);
            assert!(words.contains("expected how often and how many are kept, such as 1h:24, found "), "{words}");
        }
        bad(lode(&["mount", "--foreground"]).arg(&disk).arg(scratch.path("nowhere")), 3);
        bad(lode(&["run"]).arg(&at).args(["--", "true"]), 3);
        let mounted = Mounted::again(&disk, &at, &[]);
        assert!(refused(&["--foreground"], 4).contains("disk.lode"));
        // Volumes and files share the disk.
        good(lode(&["volume", "create"]).arg(&disk).args(["data", "--size", "1MiB"]));
        assert_eq!(json(lode(&["volume", "list"]).arg(&disk).arg("--json")).as_array().unwrap().len(), 1);
        mounted.stop();
    });
}

/// The permissions as the kernel has them.
fn permissions(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_program_that_is_changed_or_given_away_loses_its_owners_rights() {
    over_each(|| {
        let scratch = Scratch::new();
        let disk = scratch.disk("256MiB");
        good(lode(&["fs", "make"]).arg(&disk));
        let at = std::env::temp_dir().join(format!("lode-test-{}-{}", std::process::id(), option()));
        fs::create_dir(&at).unwrap();
        let mounted = Mounted::again(&disk, &at, &["--allow-other", "-o", "suid"]);
        let program = mounted.path("program");
        // Version 2, permitted: whatever.
        let mut capability = [0u8; 20];
        capability[3] = 2;
        capability[5] = 4;
        let fresh = || {
            let _ = fs::remove_file(&program);
            fs::write(&program, "content").unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o6777)).unwrap();
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&program, "security.capability", &capability, flags).unwrap();
            assert_eq!((permissions(&program), capable(&program)), (0o6777, true));
        };
        let by_others = |line: &str| {
            let mut command = tool("setpriv", "util-linux");
            command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "sh", "-ec", line, "sh"]);
            good(command.arg(&program));
        };
        for line in ["echo x >> $1", "truncate -s 3 $1", "echo x | dd of=$1 conv=notrunc status=none"] {
            fresh();
            by_others(line);
            assert_eq!((permissions(&program), capable(&program)), (0o777, false), "{line}");
        }
        // Root may leave the bits, but not what the program may by itself.
        fresh();
        good(tool("sh", "dash").args(["-ec", "echo x >> $1", "sh"]).arg(&program));
        assert_eq!((permissions(&program), capable(&program)), (0o6777, false));
        fresh();
        std::os::unix::fs::chown(&program, Some(1000), None).unwrap();
        assert_eq!((permissions(&program), capable(&program)), (0o777, false));
        mounted.stop();
        fs::remove_dir(&at).unwrap();
    });
}

fn capable(program: &Path) -> bool {
    rustix::fs::getxattr(program, "security.capability", &mut [0u8; 64][..]).is_ok()
}

#[test]
fn commits_go_on_while_others_write_in_the_same_directory() {
    over_each(|| {
        let scratch = Scratch::new();
        let mounted = Mounted::new(&scratch);
        fs::create_dir(mounted.path("d")).unwrap();
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let (directory, over) = (mounted.path("d"), &over);
                scope.spawn(move || {
                    for n in 0.. {
                        if over.load(std::sync::atomic::Ordering::Relaxed) {
                            return;
                        }
                        let name = directory.join(format!("w{writer}-{}", n % 50));
                        fs::write(&name, "content").unwrap();
                        fs::rename(&name, directory.join(format!("r{writer}"))).unwrap();
                    }
                });
            }
            let runs: Vec<_> =
                (0..6)
                    .map(|run| {
                        let mounted = &mounted;
                        scope.spawn(move || {
                            for n in 0..5 {
                                good(&mut mounted.shell(
                                    &["--retry", "20"],
                                    &format!("echo {n} > d/t{run}-{n}; echo {n} > d/t{run}"),
                                ));
                            }
                        })
                    })
                    .collect();
            let ended: Vec<_> = runs.into_iter().map(|run| run.join()).collect();
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(ended.iter().all(Result::is_ok));
        });
        for run in 0..6 {
            assert_eq!(fs::read_to_string(mounted.path(&format!("d/t{run}"))).unwrap(), "4\n");
        }
        assert_eq!(fs::read_dir(mounted.path("d")).unwrap().count(), 6 * 6 + 4);
        mounted.stop();
    });
}

#[test]
fn what_a_file_loses_its_last_name_with_is_given_back_and_nothing_is_left() {
    over_each(|| {
        let scratch = Scratch::new();
        let mounted = Mounted::new(&scratch);
        let open = fs::OpenOptions::new().read(true).write(true).create_new(true).open(mounted.path("open")).unwrap();
        open.write_all_at(b"still here", 0).unwrap();
        let free = || rustix::fs::statvfs(&mounted.at).unwrap().f_bfree;
        let before = free();
        let content = vec![1; 16 << 10];
        for n in 0..500 {
            fs::write(mounted.path(&n.to_string()), &content).unwrap();
        }
        let (most, blocks) = (before - free(), 500 * 4);
        assert!(most >= blocks, "{most} blocks are used");
        fs::remove_file(mounted.path("open")).unwrap();
        for n in 0..500 {
            fs::remove_file(mounted.path(&n.to_string())).unwrap();
        }
        // They go soon; who has one open has it still.
        let gone = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            before.saturating_sub(free()) < most / 10
        });
        assert!(gone, "expected {before} free blocks, found {}", free());
        let mut content = [0; 10];
        open.read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content, b"still here");
        drop(open);
        let disk = mounted.disk.clone();
        mounted.stop();
        let checked = good(lode(&["fs", "check"]).arg(&disk));
        assert_eq!(checked, "sound; 1 inodes, 1 directories, 0 names\n");
    });
}

#[test]
fn times_of_making_and_files_without_names_are_there_where_requests_come_over_a_ring() {
    over_each(|| {
        let scratch = Scratch::new();
        let mounted = Mounted::new(&scratch);
        let before = std::time::SystemTime::now();
        fs::write(mounted.path("a"), "").unwrap();
        let made = fs::metadata(mounted.path("a")).unwrap().created();
        assert_eq!(made.as_ref().is_ok_and(|made| *made + Duration::from_secs(1) > before), has_ring(), "{made:?}");
        let (flags, mode) = (rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR, rustix::fs::Mode::RUSR);
        let opened = rustix::fs::open(&mounted.at, flags, mode);
        assert_eq!(opened.is_ok(), has_ring(), "{opened:?}");
        if let Ok(opened) = opened {
            rustix::io::write(&opened, b"content").unwrap();
            let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&opened));
            let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
            rustix::fs::linkat(rustix::fs::CWD, link, rustix::fs::CWD, mounted.path("named"), follow).unwrap();
            drop((rustix::fs::open(&mounted.at, flags, mode).unwrap(), opened));
            assert_eq!(fs::read_to_string(mounted.path("named")).unwrap(), "content");
        }
        mounted.stop();
    });
}

#[test]
fn a_ring_that_is_not_to_be_had_is_refused_with_what_to_do_and_done_without_unless_asked_for() {
    let scratch = Scratch::new();
    let disk = scratch.disk("64MiB");
    good(lode(&["fs", "make"]).arg(&disk));
    let at = scratch.path("mnt");
    fs::create_dir(&at).unwrap();
    if !Path::new(SWITCH).exists() {
        let refused = bad(lode(&["mount", "--foreground", "-o", "ring"]).arg(&disk).arg(&at), 9);
        assert!(refused.contains("expected Linux 6.14 or later"), "{refused}");
        return;
    }
    // A namespace in which the switch is off.
    let off = scratch.path("off");
    fs::write(&off, "N\n").unwrap();
    let within = |line: &str| {
        let mut command = tool("unshare", "util-linux");
        let line = format!("mount --bind {} {SWITCH}; {line}", off.display());
        command.args(["--mount", "sh", "-ec", &line, env!("CARGO_BIN_EXE_lode")]).arg(&disk).arg(&at);
        command
    };
    let refused = bad(&mut within("exec $0 mount --foreground -o ring $1 $2"), 9);
    assert!(refused.contains(&format!("as root, echo Y > {SWITCH}")), "{refused}");
    good(&mut within(
        "$0 mount $1 $2; echo x > $2/x; test $(cat $2/x) = x; umount $2; while ! $0 fs check $1; do sleep 0.1; done",
    ));
}

#[test]
fn a_run_within_a_run_counts_in_that_and_with_that() {
    over_each(|| {
        let scratch = Scratch::new();
        let mounted = Mounted::new(&scratch);
        fs::write(mounted.path("a"), "one").unwrap();
        fs::write(mounted.path("gone"), "").unwrap();
        let lode = env!("CARGO_BIN_EXE_lode");
        let inner = |line: &str| format!("{lode} run . -- sh -ec '{line}'");
        let script = format!(
            "test $(cat a) = one; test ! -e new; ls > list
             {}
             test $(cat a) = two; test ! -e gone; cat new
             {} && exit 9
             test $(cat a) = two; test ! -e never
             {}
             test -e deep; {lode} run . -- cat a > copy",
            inner("echo two > a; rm gone; echo new > new"),
            inner("echo three > a; echo x > never; exit 3"),
            inner(&format!("{lode} run . -- touch deep"))
        );
        good(&mut mounted.shell(&[], &format!("{script}; test $(cat {}/a) = two", mounted.at.display())));
        let content = |name: &str| fs::read_to_string(mounted.path(name)).unwrap();
        assert_eq!((content("a"), content("new"), content("copy")), ("two\n".into(), "new\n".into(), "two\n".into()));
        assert!(mounted.path("deep").exists() && !mounted.path("gone").exists() && !mounted.path("never").exists());
        // What the inner ones did goes with the outer one.
        let failed = run(&mut mounted.shell(&[], &format!("{}; exit 4", inner("echo lost > a; rm new"))));
        assert_eq!(failed.status.code(), Some(4));
        assert_eq!((content("a"), content("new")), ("two\n".into(), "new\n".into()));
        let kept = run(&mut mounted.shell(&[], &format!("{lode} run . --keep mine -- true")));
        assert!(!kept.status.success() && String::from_utf8_lossy(&kept.stderr).contains("keep the outer one"));
        assert_eq!(good(&mut mounted.lode(&["txn", "list"], &[])), "");
        mounted.stop();
    });
}

#[test]
fn snapshots_are_made_looked_at_and_deleted_as_directories() {
    over_each(|| {
        let scratch = Scratch::new();
        let disk = scratch.disk("256MiB");
        good(lode(&["fs", "make"]).arg(&disk));
        let at = scratch.path("mnt");
        fs::create_dir(&at).unwrap();
        let mut mounted = Mounted::again(&disk, &at, &["-o", "snapshots"]);
        fs::create_dir(mounted.path("d")).unwrap();
        fs::write(mounted.path("d/a"), "old").unwrap();
        fs::create_dir(mounted.path(".snapshots/monday")).unwrap();
        fs::write(mounted.path("d/a"), "new").unwrap();
        fs::write(mounted.path("d/b"), "b").unwrap();
        fs::File::open(mounted.path("d/b")).unwrap().sync_all().unwrap();
        let names = |path: &str| {
            let mut names: Vec<_> =
                fs::read_dir(mounted.path(path)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(".snapshots"), ["monday"]);
        assert_eq!((names(".snapshots/monday/d"), names("")), (vec!["a".into()], vec!["d".into()]));
        assert_eq!(fs::read_to_string(mounted.path(".snapshots/monday/d/a")).unwrap(), "old");
        let refused = fs::write(mounted.path(".snapshots/monday/d/a"), "x").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        assert_eq!(
            fs::create_dir(mounted.path(".snapshots/monday")).unwrap_err().kind(),
            std::io::ErrorKind::AlreadyExists
        );
        assert!(fs::write(mounted.path(".snapshots/x"), "").is_err());
        assert!(!mounted.path(".snapshots/monday/.snapshots").exists());
        mounted.kill();
        let mounted = Mounted::again(&disk, &at, &["-o", "snapshots"]);
        fs::copy(mounted.path(".snapshots/monday/d/a"), mounted.path("d/a")).unwrap();
        assert_eq!(fs::read_to_string(mounted.path("d/a")).unwrap(), "old");
        fs::remove_dir(mounted.path(".snapshots/monday")).unwrap();
        assert!(!mounted.path(".snapshots/monday").exists());
        fs::create_dir(mounted.path(".snapshots/monday")).unwrap();
        assert!(mounted.path(".snapshots/monday/d/b").exists());
        mounted.stop();
        let mounted = Mounted::again(&disk, &at, &[]);
        assert!(!mounted.path(".snapshots").exists(), "only if asked for");
        drop(mounted);
    });
}

#[test]
fn snapshots_are_made_by_themselves_and_the_last_ones_are_kept() {
    let scratch = Scratch::new();
    let mounted = Mounted::new(&scratch);
    fs::write(mounted.path("a"), "a").unwrap();
    let (disk, at) = (mounted.disk.clone(), mounted.at.clone());
    mounted.stop();
    let mounted = Mounted::again(&disk, &at, &["-o", "snapshots"]);
    fs::create_dir(mounted.path(".snapshots/mine")).unwrap();
    mounted.stop();
    let mounted = Mounted::again(&disk, &at, &["-o", "snapshots=1s:2"]);
    let names = || -> Vec<String> {
        let all = fs::read_dir(mounted.path(".snapshots")).unwrap();
        let mut names: Vec<String> = all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let until = |enough: &dyn Fn(&[String]) -> bool| {
        let start = std::time::Instant::now();
        while !enough(&names()) {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", names());
            std::thread::sleep(Duration::from_millis(100));
        }
        names()
    };
    let first = until(&|names| names.len() == 3);
    assert!(first[0].starts_with("1s-2") && first[1].ends_with('Z') && first[2] == "mine", "{first:?}");
    assert_eq!(fs::read_to_string(mounted.path(&format!(".snapshots/{}/a", first[0]))).unwrap(), "a");
    // The oldest goes when another comes.
    let next = until(&|names| names[0] > first[0]);
    assert_eq!((next.len(), &next[2][..]), (3, "mine"), "{next:?}");
    mounted.stop();
}

#[test]
fn a_mount_that_is_to_end_with_its_process_does_whatever_the_kernel_offers() {
    let scratch = Scratch::new();
    over_each(|| {
        let _ = fs::remove_file(scratch.path("disk.lode"));
        let disk = scratch.disk("64MiB");
        good(lode(&["fs", "make"]).arg(&disk));
        let at = scratch.path(option());
        fs::create_dir(&at).unwrap();
        if has_ring() {
            let mut command = lode(&["mount", "--foreground", "-o", "ring,auto_unmount"]);
            let refused = bad(command.arg(&disk).arg(&at), 9);
            assert!(refused.contains("not together with auto_unmount"), "{refused}");
        }
        // It is fusermount3 that does it, and asks the kernel once: whoever looks at all mounts at that moment makes it busy.
        let ended = (0..5).any(|_| {
            let mut command = lode(&["mount", "--foreground", "-o", "auto_unmount"]);
            let child = command.arg(&disk).arg(&at).spawn().unwrap();
            let mut process = Mounted { child, disk: disk.clone(), at: at.clone() };
            let mounted = || fs::read_to_string("/proc/mounts").unwrap().contains(&format!(" {} fuse", at.display()));
            let until = |so: bool| {
                (0..1000).any(|_| {
                    std::thread::sleep(Duration::from_millis(10));
                    mounted() == so
                })
            };
            assert!(until(true), "it is never mounted");
            fs::write(at.join("a"), "content").unwrap();
            process.kill();
            until(false)
        });
        assert!(ended, "it is still mounted");
    });
}

#[test]
fn a_damaged_file_is_seen_says_so_and_can_be_removed_and_others_can_be_used() {
    over_each(|| {
        let scratch = Scratch::new();
        let mounted = Mounted::new(&scratch);
        fs::create_dir(mounted.path("d")).unwrap();
        // What stands behind its head is in the block of the inode.
        let mark = b"this is in the block of the inode and nowhere else";
        for name in ["d/bad", "d/good"] {
            fs::write(mounted.path(name), name).unwrap();
        }
        rustix::fs::setxattr(mounted.path("d/bad"), "user.mark", mark, rustix::fs::XattrFlags::empty()).unwrap();
        let (disk, at) = (mounted.disk.clone(), mounted.at.clone());
        mounted.stop();
        let mut bytes = fs::read(&disk).unwrap();
        let found: Vec<usize> =
            bytes.windows(mark.len()).enumerate().filter(|(_, part)| part == mark).map(|(place, _)| place).collect();
        assert!(!found.is_empty());
        for place in found {
            bytes[place] ^= 1;
        }
        fs::write(&disk, &bytes).unwrap();
        let mounted = Mounted::again(&disk, &at, &[]);
        let mut names: Vec<_> =
            fs::read_dir(mounted.path("d")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["bad", "good"]);
        let damaged = |error: std::io::Error| error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
        assert!(damaged(fs::metadata(mounted.path("d/bad")).unwrap_err()));
        assert!(damaged(fs::read(mounted.path("d/bad")).unwrap_err()));
        let check = run(&mut mounted.lode(&["fs", "check"], &[]));
        assert!(!check.status.success());
        fs::remove_file(mounted.path("d/bad")).unwrap();
        assert_eq!(fs::read_to_string(mounted.path("d/good")).unwrap(), "d/good");
        fs::write(mounted.path("d/bad"), "new").unwrap();
        assert_eq!(fs::read_to_string(mounted.path("d/bad")).unwrap(), "new");
        drop(mounted);
    });
}
