//! A file system that is mounted for a measurement, and taken down after it.

use super::super::scratch::{Undo, Victim};
use super::side::Side;
use super::stage::{Loop, Stage};
use crate::failure::{Code, Failure, Result};
use crate::image;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a mount may take to come or to go.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the file's head.
pub struct Mounted<'a> {
    stage: &'a Stage,
    side: Side,
    /// The file or device that it lies in.
    place: PathBuf,
    /// What is mounted, the last one on top. Taken down in this order, and the device after all of them.
    up: Option<Up>,
    _loop: Option<Loop>,
}

struct Up {
    /// The process that serves it, and what it says.
    server: Option<(Victim, Option<BufReader<std::process::ChildStdout>>)>,
    /// Mount points, the lower one first, and what unmounts them if the bench is broken off.
    points: Vec<(PathBuf, Undo)>,
}

impl<'a> Mounted<'a> {
    /// Mounts what `place` holds.
    pub fn new(stage: &'a Stage, side: Side, place: PathBuf, device: Option<Loop>) -> Result<Mounted<'a>> {
        let mut mounted = Mounted { stage, side, place, up: None, _loop: device };
        mounted.mount(&[])?;
        Ok(mounted)
    }

    /// Which side it is.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.stage.mount_point()
    }

    /// `more`: options for Lode beside its order.
    fn mount(&mut self, more: &[&str]) -> Result<()> {
        let point = self.path();
        self.up = Some(Up { server: None, points: Vec::new() });
        match self.side {
            Side::Strict => self.serve(&point, &[&["strict"], more].concat()),
            Side::Relaxed => self.serve(&point, &[&["relaxed"], more].concat()),
            Side::Passthrough => {
                let lower = self.stage.path("lower");
                self.mount_kernel(&lower)?;
                let program = self.stage.passthrough()?;
                let mut command = Command::new(program);
                command.arg("--foreground").arg(&lower).arg(&point).stdout(Stdio::null());
                self.start(command, &point, false)
            }
            _ => self.mount_kernel(&point),
        }
    }

    fn up(&mut self) -> &mut Up {
        self.up.as_mut().expect("set while it is mounted")
    }

    fn mount_kernel(&mut self, point: &Path) -> Result<()> {
        let (kind, options) = self.side.mounted_as();
        let data = CString::new(options).expect("no zeros in it");
        let watched = watched(point);
        mount(&self.place, point, kind, MountFlags::empty(), data.as_c_str())
            .map_err(|error| Failure::io(format!("bench-fs: mounting {}", self.side.name()), error.into()))?;
        self.up().points.push(watched);
        Ok(())
    }

    /// Has this program serve the image.
    fn serve(&mut self, point: &Path, options: &[&str]) -> Result<()> {
        let program = std::env::current_exe().map_err(|error| Failure::io("bench-fs: finding this program", error))?;
        let mut command = Command::new(program);
        command.arg("mount").arg(&self.place).arg(point).arg("--foreground").stdout(Stdio::piped());
        command.args(["-o", &options.join(",")]);
        self.start(command, point, true)
    }

    /// Starts a server, and waits until it says that it is ready, or until the directory is another.
    fn start(&mut self, mut command: Command, point: &Path, speaks: bool) -> Result<()> {
        let name = self.side.name();
        let failed = |words: String| Failure::new(Code::Io, format!("bench-fs: mounting {name}: {words}"));
        let (before, watched) = (device_of(point), watched(point));
        let child = command.stdin(Stdio::null()).spawn().map_err(|error| failed(error.to_string()))?;
        let mut server = Victim::new(child);
        let mut words = server.0.stdout.take().map(BufReader::new);
        let start = Instant::now();
        loop {
            let ready = match words.as_mut().filter(|_| speaks) {
                Some(words) => {
                    let mut line = String::new();
                    words.read_line(&mut line).is_ok() && line == "ready\n"
                }
                None => device_of(point) != before,
            };
            if ready {
                break;
            }
            if let Ok(Some(status)) = server.0.try_wait() {
                return Err(failed(format!("expected it to serve, found it ended: {status}")));
            }
            if start.elapsed() > PATIENCE {
                return Err(failed(format!("expected it within {} s", PATIENCE.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.up().server = Some((server, words));
        self.up().points.push(watched);
        Ok(())
    }

    /// Everything that was done survives the loss of power. FUSE does not pass on a sync of all: so the file system below
    /// is synced as well, and a sync of the root directory does it for Lode.
    pub fn sync(&self) -> Result<()> {
        let failed = |error| Failure::io(format!("bench-fs: syncing {}", self.side.name()), error);
        // From the top: what one has in its cache goes to the one below.
        for point in self.up.iter().flat_map(|up| up.points.iter().rev()) {
            let root = File::open(&point.0).map_err(failed)?;
            rustix::fs::syncfs(&root).map_err(|error| failed(error.into()))?;
            if self.side.is_lode() {
                root.sync_all().map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Nothing of it is in a cache: it is mounted anew.
    pub fn cool(&mut self) -> Result<()> {
        self.sync()?;
        self.take_down()?;
        fs::write("/proc/sys/vm/drop_caches", "3").map_err(|error| Failure::io("/proc/sys/vm/drop_caches", error))?;
        self.mount(&[])
    }

    /// Nobody works for so long. Lode is mounted to make use of that.
    pub fn rest(&mut self, time: Duration) -> Result<()> {
        self.sync()?;
        self.take_down()?;
        self.mount(&["reorganize"])?;
        std::thread::sleep(time);
        Ok(())
    }

    /// It is unmounted.
    pub fn close(mut self) -> Result<()> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<()> {
        let Some(mut up) = self.up.take() else { return Ok(()) };
        // From the top; the server ends when its own is gone.
        while let Some((point, undo)) = up.points.pop() {
            let gone = unmounted(&point);
            if gone.is_ok() {
                self.await_server(up.server.take())?;
            }
            // It does nothing more where nothing is mounted.
            drop(undo);
            gone?;
        }
        Ok(())
    }

    fn await_server(&self, server: Option<(Victim, Option<BufReader<std::process::ChildStdout>>)>) -> Result<()> {
        let Some((mut server, words)) = server else { return Ok(()) };
        let status = server.0.wait().map_err(|error| Failure::io("bench-fs: waiting for a mount to end", error))?;
        drop(words);
        if status.success() || !self.side.is_lode() {
            return Ok(());
        }
        let words = format!("bench-fs: {}: expected the mount to end well, found {status}", self.side.name());
        Err(Failure::new(Code::Io, words))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // A failure is on its way already, or `close` has done it.
        let _ = self.take_down();
    }
}

fn device_of(path: &Path) -> Option<u64> {
    rustix::fs::stat(path).ok().map(|found| found.st_dev)
}

/// A mount point that is taken away if the bench is broken off.
fn watched(point: &Path) -> (PathBuf, Undo) {
    let again = point.to_owned();
    let undo = Undo::new(move || {
        let _ = unmount(&again, UnmountFlags::DETACH);
    });
    (point.to_owned(), undo)
}

/// Unmounts, once nobody is in it any more.
fn unmounted(point: &Path) -> Result<()> {
    let start = Instant::now();
    loop {
        match unmount(point, UnmountFlags::empty()) {
            Err(rustix::io::Errno::BUSY) if start.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => {
                return Err(Failure::io(format!("bench-fs: unmounting {}", image::show(point)), error.into()));
            }
            Ok(()) => return Ok(()),
        }
    }
}
