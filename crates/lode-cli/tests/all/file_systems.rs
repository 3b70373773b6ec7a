//! ext4 and XFS on a volume, through nbdfuse and a loop device, with the server killed under them.

use crate::support::{Process, Scratch, Serving, good, lode, run, sound, tool};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A volume as a block device: nbdfuse makes it a file, a loop device makes that a disk.
struct Device {
    _fuse: Process,
    directory: PathBuf,
    device: String,
}

impl Device {
    fn attach(scratch: &Scratch, serving: &Serving) -> Device {
        let directory = scratch.path("fuse");
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("disk");
        let mut command = tool("nbdfuse", "libnbd-bin");
        command.arg(&file).arg(serving.uri("data")).stdin(Stdio::null());
        let mut device = Device { _fuse: Process(command.spawn().unwrap()), directory, device: String::new() };
        let start = Instant::now();
        while !file.exists() {
            assert!(start.elapsed() < Duration::from_secs(20), "expected nbdfuse to mount (apt-get install fuse3)");
            std::thread::sleep(Duration::from_millis(20));
        }
        let setup = ["--direct-io=on", "--show", "--find"];
        device.device = good(tool("losetup", "mount").args(setup).arg(&file)).trim().to_owned();
        device
    }

    fn mount(&self, at: &Path, more: &[&str]) -> Mount {
        std::fs::create_dir_all(at).unwrap();
        good(tool("mount", "mount").args(more).arg(&self.device).arg(at));
        Mount(at.to_owned())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if !self.device.is_empty() {
            run(tool("losetup", "mount").args(["-d", &self.device]));
        }
        run(tool("umount", "mount").args(["-l"]).arg(&self.directory));
    }
}

/// A mounted file system.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        // A dead server makes the first one fail now and then; the second one always detaches.
        if !run(tool("umount", "mount").arg(&self.0)).status.success() {
            run(tool("umount", "mount").arg("-l").arg(&self.0));
        }
    }
}

fn content(file: usize) -> Vec<u8> {
    crate::support::content(1 + file * 7919 % 150_000, file as u64 + 1)
}

/// Writes files, each durable before the next, until writing fails. `done` counts the durable ones.
fn write_files(at: &Path, done: &AtomicUsize) {
    for number in 0.. {
        let write = || -> std::io::Result<()> {
            let mut file = File::create(at.join(format!("file-{number}")))?;
            file.write_all(&content(number))?;
            file.sync_all()
        };
        if write().is_err() {
            return;
        }
        done.store(number + 1, Ordering::SeqCst);
    }
}

/// Keeps other writes on their way, never made durable, until writing fails.
fn disturb(at: &Path, stop: &AtomicBool) {
    let noise = crate::support::content(4 << 20, 99);
    for number in 0.. {
        let path = at.join(format!("noise-{}", number % 8));
        if stop.load(Ordering::SeqCst) || std::fs::write(path, &noise).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn survives(make: (&str, &str, &[&str]), verify: (&str, &str, &[&str])) {
    let root = rustix::process::geteuid().is_root();
    assert!(root, "expected to run as root, since file systems are mounted on a loop device");
    let scratch = Scratch::new();
    let (disk, socket) = (scratch.disk("2GiB"), scratch.socket());
    good(lode(&["volume", "create"]).arg(&disk).args(["data", "--size", "600MiB"]));
    let serving = Serving::start(&disk, &socket.0, &[]);
    let at = scratch.path("mount");
    let durable = {
        let device = Device::attach(&scratch, &serving);
        good(tool(make.0, make.1).args(make.2).arg(&device.device));
        let mount = device.mount(&at, &[]);
        let (done, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| write_files(&mount.0, &done));
            scope.spawn(|| disturb(&mount.0, &stop));
            let start = Instant::now();
            while done.load(Ordering::SeqCst) < 60 && start.elapsed() < Duration::from_secs(30) {
                std::thread::sleep(Duration::from_millis(3));
            }
            serving.kill();
            stop.store(true, Ordering::SeqCst);
        });
        done.load(Ordering::SeqCst)
    };
    assert!(durable >= 10, "expected files to be written, found {durable}");
    let serving = Serving::start(&disk, &socket.0, &[]);
    {
        let device = Device::attach(&scratch, &serving);
        // Once, so that the journal is replayed.
        drop(device.mount(&at, &[]));
        good(tool(verify.0, verify.1).args(verify.2).arg(&device.device));
        let mount = device.mount(&at, &["-o", "ro"]);
        for number in 0..durable {
            let found = std::fs::read(mount.0.join(format!("file-{number}"))).unwrap();
            assert!(found == content(number), "file {number} of {durable}, durable before the kill, differs");
        }
    }
    serving.stop();
    sound(&disk);
}

#[test]
fn ext4_survives_kill_9_of_the_server() {
    survives(("mkfs.ext4", "e2fsprogs", &["-q", "-F"]), ("e2fsck", "e2fsprogs", &["-fn"]));
}

#[test]
fn xfs_survives_kill_9_of_the_server() {
    survives(("mkfs.xfs", "xfsprogs", &["-q", "-f"]), ("xfs_repair", "xfsprogs", &["-n"]));
}
