//! A file system and volumes of one disk at once, and mounts as mount(8) and fstab ask for them.

use crate::client::Client;
use crate::support::{Scratch, bad, content, good, json, lode, run, same, sound, tool};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A disk with a file system and a volume, and a directory to mount it on. What is mounted there is unmounted when this is
/// dropped.
struct Bench {
    scratch: Scratch,
    disk: PathBuf,
    at: PathBuf,
}

impl Bench {
    fn new(size: &str) -> Bench {
        assert!(Path::new("/dev/fuse").exists(), "expected /dev/fuse, found none: modprobe fuse");
        assert!(rustix::process::geteuid().is_root(), "expected to run as root, since file systems are mounted");
        let scratch = Scratch::new();
        let disk = scratch.disk(size);
        good(lode(&["fs", "make"]).arg(&disk));
        good(lode(&["volume", "create"]).arg(&disk).args(["data", "--size", "64MiB"]));
        let at = scratch.path("mnt");
        fs::create_dir(&at).unwrap();
        Bench { scratch, disk, at }
    }

    /// `lode mount`, in the background.
    fn mount(&self, more: &[&str]) -> String {
        good(lode(&["mount"]).arg(&self.disk).arg(&self.at).args(more))
    }

    /// What mount(8) calls for `mount -t fuse.lode DISK DIR`.
    fn helper(&self, more: &[&str]) -> Command {
        let helper = self.scratch.path("mount.fuse.lode");
        if !helper.exists() {
            symlink(env!("CARGO_BIN_EXE_lode"), &helper).unwrap();
        }
        let mut command = Command::new(helper);
        command.arg(&self.disk).arg(&self.at).args(more);
        command
    }

    /// Unmounts it, and waits until the disk is closed.
    fn unmount(&self) {
        good(tool("umount", "mount").arg(&self.at));
        self.closed();
    }

    fn closed(&self) {
        let start = Instant::now();
        while run(lode(&["check"]).arg(&self.disk)).status.code() == Some(4) {
            assert!(start.elapsed() < Duration::from_secs(60), "expected the disk to be closed, it is open");
            std::thread::sleep(Duration::from_millis(20));
        }
        good(lode(&["fs", "check"]).arg(&self.disk));
        sound(&self.disk);
    }

    fn is_mounted(&self) -> bool {
        fs::read_to_string("/proc/self/mounts").unwrap().contains(&format!(" {} fuse.lode ", self.at.display()))
    }

    /// The process that serves the mount.
    fn process(&self) -> rustix::process::Pid {
        let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
        let serves = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            words.contains(&&b"--daemon"[..]) && words.contains(&self.at.to_str().unwrap().as_bytes())
        };
        let found = fs::read_dir("/proc").unwrap().filter_map(|entry| number(entry.unwrap())).find(serves);
        rustix::process::Pid::from_raw(found.expect("a process serves the mount")).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _ = tool("umount", "mount").arg("-l").arg(&self.at).status();
        }
    }
}

#[test]
fn one_process_serves_the_volumes_and_mounts_the_files() {
    let bench = Bench::new("256MiB");
    let socket = bench.scratch.socket();
    let said = bench.mount(&["--socket", socket.0.to_str().unwrap()]);
    assert!(said.contains("nbd+unix:///data?socket="), "{said}");
    let uri = format!("nbd+unix:///data?socket={}", socket.0.display());
    let (file, out) = (bench.scratch.file("file", 16 << 20, 5), bench.scratch.path("out"));
    let copying = std::thread::spawn({
        let (file, uri) = (file.clone(), uri.clone());
        move || good(tool("nbdcopy", "libnbd-bin").arg(&file).arg(&uri))
    });
    for n in 0..200 {
        fs::write(bench.at.join(format!("{n}")), content(5000, n)).unwrap();
    }
    copying.join().unwrap();
    // A client that stays is no reason to stay.
    let mut client = Client::connect(&socket.0, "data").unwrap();
    client.write(0, &content(4096, 9), true).unwrap();
    good(tool("nbdcopy", "libnbd-bin").arg(&uri).arg(&out));
    bench.unmount();
    assert!(!socket.0.exists(), "the socket goes with the mount");
    bench.mount(&["-o", &format!("socket={}", socket.0.display())]);
    good(tool("nbdcopy", "libnbd-bin").arg(&uri).arg(&out));
    let mut expected = fs::read(&file).unwrap();
    expected[..4096].copy_from_slice(&content(4096, 9));
    fs::write(&file, &expected).unwrap();
    expected.resize(64 << 20, 0);
    fs::write(&file, &expected).unwrap();
    same(&file, &out);
    assert_eq!(fs::read(bench.at.join("199")).unwrap(), content(5000, 199));
    bench.unmount();
}

#[test]
fn where_it_cannot_serve_it_does_not_mount() {
    let bench = Bench::new("64MiB");
    let refused = |more: &[&str], code| bad(lode(&["mount"]).arg(&bench.disk).arg(&bench.at).args(more), code);
    let file = bench.scratch.file("file", 10, 1);
    refused(&["--socket", file.to_str().unwrap()], 7);
    assert!(refused(&["--listen", "192.0.2.1:0"], 9).contains("192.0.2.1:0"));
    assert!(refused(&["-o", "socket=/a,listen=127.0.0.1:0"], 2).contains("expected one of them, found both"));
    assert!(!bench.is_mounted());
}

#[test]
fn what_belongs_to_the_file_system_is_nobody_elses() {
    let bench = Bench::new("128MiB");
    let socket = bench.scratch.socket();
    let path = socket.0.to_str().unwrap();
    bench.mount(&["--socket", path]);
    let line = format!("echo x > {}/kept", bench.at.display());
    good(lode(&["run"]).arg(&bench.at).args(["--keep", "up", "--", "sh", "-c", &line]));
    let told = json(lode(&["unit", "list", "--json"]).arg(&bench.disk));
    let (label, number) = (told[0]["label"].as_str().unwrap().to_owned(), told[0]["unit"].to_string());
    assert!(label.starts_with("files/"), "{told}");
    let exports =
        json(tool("nbdinfo", "libnbd-bin").args(["--json", "--list", &format!("nbd+unix:///?socket={path}")]));
    let exports: Vec<_> = exports["exports"].as_array().unwrap().iter().map(|export| &export["export-name"]).collect();
    assert_eq!(exports, ["data"]);
    for name in ["inodes", "1", &format!("data?unit={label}"), "data?unit=snapshots/noon"] {
        assert!(Client::connect(&socket.0, name).is_err(), "{name:?} is served");
    }
    let refused = |mounted: bool| {
        for command in
            [&["unit", "commit"][..], &["unit", "abort"], &["unit", "begin"], &["clone", "merge"], &["clone", "drop"]]
        {
            for name in [&label, &number] {
                if command[1] == "begin" && *name == number {
                    continue; // A label like any other.
                }
                let code = if command[0] == "clone" && *name == number { 3 } else { 2 };
                let said = bad(lode(command).arg(&bench.disk).arg(name), code);
                let clear = said.contains("expected a unit of volumes, found one of the file system")
                    || said.contains("expected a clone")
                    || said.contains("there is no clone");
                assert!(clear, "{command:?} {name}, mounted: {mounted}: {said}");
            }
        }
        bad(lode(&["unit", "begin"]).arg(&bench.disk).arg("snapshots/mine"), 2);
        bad(lode(&["volume", "delete"]).arg(&bench.disk).arg("inodes"), 3);
        bad(lode(&["volume", "resize"]).arg(&bench.disk).args(["inodes", "--size", "1MiB"]), 3);
        for number in 1..12 {
            bad(lode(&["list", "delete"]).arg(&bench.disk).arg(number.to_string()), 3);
        }
    };
    refused(true);
    bench.unmount();
    refused(false);
    bench.mount(&[]);
    assert_eq!(good(lode(&["txn", "diff"]).arg(&bench.at).arg("up")), "A kept\n");
    good(lode(&["txn", "commit"]).arg(&bench.at).arg("up"));
    bench.unmount();
}

#[test]
fn mount_calls_it_with_the_options_of_fstab() {
    let bench = Bench::new("64MiB");
    let options = "rw,noexec,nosuid,nodev,allow_other,default_permissions,relaxed,noatime,_netdev,noauto,nofail,\
                   x-systemd.automount,user=root,comment=mine";
    // An end of its output that it kept would never come.
    assert_eq!(good(&mut bench.helper(&["-n", "-o", options])), "");
    let found = good(tool("findmnt", "util-linux").args(["-n", "-o", "FSTYPE,OPTIONS"]).arg(&bench.at));
    for option in ["fuse.lode", "noexec", "nosuid", "nodev", "allow_other", "default_permissions"] {
        assert!(found.contains(option), "{option}: {found}");
    }
    let process = bench.process();
    let directory = fs::read_link(format!("/proc/{}/cwd", process.as_raw_nonzero())).unwrap();
    assert_eq!(directory, Path::new("/"), "no other file system is kept busy");
    assert_eq!(rustix::process::getsid(Some(process)), Ok(process), "it belongs to no terminal");
    fs::write(bench.at.join("a"), "a").unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    bench.closed();
    assert!(!bench.is_mounted(), "SIGTERM unmounts");
    let verbose = good(&mut bench.helper(&["-v", "-o", "ro,strict"]));
    assert!(verbose.contains("disk.lode: on "), "{verbose}");
    assert_eq!(fs::read_to_string(bench.at.join("a")).unwrap(), "a");
    assert_eq!(fs::write(bench.at.join("b"), "").unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    bench.unmount();
}

#[test]
fn what_mount_asks_for_in_vain_is_told_and_sloppy_passes_over_it() {
    let bench = Bench::new("64MiB");
    let refused = |more: &[&str], code| bad(&mut bench.helper(more), code);
    assert!(refused(&["-o", "nonsense"], 1).contains("-o nonsense: there is no such option"));
    assert!(refused(&["-o", "remount,ro"], 1).contains("expected it to be unmounted first"));
    assert!(refused(&["-o", "uid=7"], 1).contains("files have owners"));
    assert!(refused(&["-o", "threads=none"], 1).contains("expected a number from 1 to 1024"));
    assert!(refused(&["-o", "hold=much"], 1).contains("expected a size"));
    assert!(!run(&mut bench.helper(&["-N", "/proc/1/ns/mnt"])).status.success());
    assert_eq!(good(&mut bench.helper(&["-f", "-o", "relaxed"])), "");
    assert!(!bench.is_mounted(), "-f mounts nothing");
    assert!(refused(&["-f", "-o", "nonsense"], 1).contains("no such option"));
    good(&mut bench.helper(&["-s", "-o", "nonsense,uid=7"]));
    assert!(bench.is_mounted());
    assert!(refused(&[], 32).contains("disk.lode"), "it is mounted already");
    bench.unmount();
}

/// The helper is where mount(8) looks for it only once it is installed.
#[test]
fn installed_it_is_found_by_mount_and_by_fstab() {
    let bench = Bench::new("64MiB");
    let makefile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Makefile");
    let root = bench.scratch.path("root");
    // What is installed is what was built for this test.
    let built = Path::new(env!("CARGO_BIN_EXE_lode"));
    good(
        tool("make", "make")
            .arg("-f")
            .arg(&makefile)
            .args(["install", "CARGO=true", "PREFIX=/usr"])
            .arg(format!("LODE={}", built.display()))
            .arg(format!("DESTDIR={}", root.display())),
    );
    assert!(good(Command::new(root.join("usr/bin/lode")).arg("--version")).starts_with("lode "));
    assert_eq!(fs::read_link(root.join("sbin/mount.fuse.lode")).unwrap(), Path::new("/usr/bin/lode"));
    // mount(8) looks in /sbin: in a mount namespace of its own that is a directory of this test.
    let (sbin, fstab) = (bench.scratch.path("sbin"), bench.scratch.path("fstab"));
    fs::create_dir(&sbin).unwrap();
    symlink(root.join("usr/bin/lode"), sbin.join("mount.fuse.lode")).unwrap();
    let (disk, at) = (bench.disk.display(), bench.at.display());
    fs::write(&fstab, format!("{disk} {at} fuse.lode noauto,relaxed,x-lode 0 0\n")).unwrap();
    let mount = tool("mount", "mount").get_program().to_owned().into_string().unwrap();
    let sbin_is = fs::canonicalize("/sbin").unwrap();
    let line = format!(
        "mount --bind {} {}; {mount} -t fuse.lode {disk} {at}; echo one > {at}/one; umount {at}; \
         until {mount} --fstab {} {at} 2>/dev/null; do sleep 0.05; done; cat {at}/one; findmnt -n -o FSTYPE {at}; \
         umount {at}",
        sbin.display(),
        sbin_is.display(),
        fstab.display()
    );
    let line = format!("PATH=/usr/bin:/bin; {line}");
    let said = good(tool("unshare", "util-linux").args(["-m", "sh", "-ec", &line]));
    assert_eq!(said, "one\nfuse.lode\n");
    bench.closed();
}

#[test]
fn after_kill_9_it_is_unmounted_if_that_was_asked_for_and_mounts_again_in_any_case() {
    let bench = Bench::new("64MiB");
    tool("fusermount3", "fuse3"); // Or says what to install.
    for (options, goes) in [("auto_unmount", true), ("strict", false)] {
        bench.mount(&["-o", options]);
        fs::write(bench.at.join(options), options).unwrap();
        fs::File::open(bench.at.join(options)).unwrap().sync_all().unwrap();
        rustix::process::kill_process(bench.process(), rustix::process::Signal::KILL).unwrap();
        let start = Instant::now();
        while goes && bench.is_mounted() {
            assert!(start.elapsed() < Duration::from_secs(60), "expected it to be unmounted, it is mounted");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    // At whatever moment of its end.
    for _ in 0..20 {
        // It is busy as long as the one before is ending.
        let again = || run(lode(&["mount"]).arg(&bench.disk).arg(&bench.at));
        let mounted = std::iter::repeat_with(again).find(|done| done.status.code() != Some(4)).unwrap();
        assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
        rustix::process::kill_process(bench.process(), rustix::process::Signal::KILL).unwrap();
    }
    bench.mount(&[]);
    assert_eq!(fs::read_to_string(bench.at.join("auto_unmount")).unwrap(), "auto_unmount");
    assert_eq!(fs::read_to_string(bench.at.join("strict")).unwrap(), "strict");
    bench.unmount();
}

#[test]
fn what_is_held_for_files_df_tells_and_volumes_do_not_get() {
    let bench = Bench::new("128MiB");
    assert!(bad(lode(&["mount"]).arg(&bench.disk).arg(&bench.at).args(["-o", "hold=1TiB"]), 5).contains("to be held"));
    assert!(!bench.is_mounted());
    let free = || {
        let found = good(tool("df", "coreutils").args(["-B1", "--output=avail"]).arg(&bench.at));
        let others = json(lode(&["info", "--json"]).arg(&bench.disk))["free"].as_u64().unwrap();
        (found.lines().last().unwrap().trim().parse::<u64>().unwrap(), others)
    };
    bench.mount(&[]);
    let (all, others) = free();
    assert!(all <= others);
    bench.unmount();
    bench.mount(&["-o", "hold=32MiB"]);
    let (held, others) = free();
    assert!(held.abs_diff(all) < 1 << 20 && others + (32 << 20) < all, "{all}: {held} for files, {others} for others");
    // More than others get, less than there is.
    let too_much = bench.scratch.path("file");
    fs::write(&too_much, vec![7; usize::try_from(others).unwrap() + (1 << 20)]).unwrap();
    bad(lode(&["import"]).arg(&bench.disk).arg("more").arg(&too_much), 5);
    fs::copy(&too_much, bench.at.join("copy")).unwrap();
    same(&too_much, &bench.at.join("copy"));
    bench.unmount();
}
