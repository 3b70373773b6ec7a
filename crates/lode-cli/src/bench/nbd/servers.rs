//! The servers that are measured, each on a unix socket of its own, each stopped when dropped.

use super::super::Settings;
use super::super::scratch::{Scratch, Victim};
use crate::failure::{Code, Failure, Result};
use crate::image;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A running server.
pub struct Server {
    /// Its name in the report.
    pub name: &'static str,
    /// Where fio finds it.
    pub uri: String,
    process: Victim,
}

/// All of them. nbdkit and qemu serve the same file, and are never asked at the same time.
pub struct Servers {
    /// The one under measurement.
    pub lode: Server,
    /// nbdkit's file plugin.
    pub nbdkit: Server,
    /// qemu-nbd without the page cache, with each kind of asynchronous I/O.
    pub qemu: [Server; 2],
    /// The directory of the sockets; removed last.
    _sockets: Scratch,
}

/// Fails, naming the package, if a program is not installed.
pub fn require(programs: &[(&str, &str)]) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for (program, package) in programs {
        if !std::env::split_paths(&path).any(|directory| directory.join(program).is_file()) {
            let words = format!("bench nbd: expected the program {program}, found none (apt-get install {package})");
            return Err(Failure::new(Code::NotFound, words));
        }
    }
    Ok(())
}

impl Servers {
    /// Starts them: Lode on `disk`, the others on `file`.
    pub fn start(settings: &Settings, disk: &Path, file: &Path) -> Result<Servers> {
        let name = format!("lode-bench-{}-sockets", std::process::id());
        let sockets = Scratch::new(std::path::absolute(settings.directory.join(name)).unwrap_or_default());
        std::fs::create_dir(sockets.path())
            .map_err(|error| Failure::io(format!("creating {}", image::show(sockets.path())), error))?;
        let socket = |name: &str| sockets.path().join(name);
        let program = std::env::current_exe().map_err(|error| Failure::io("bench nbd: finding this program", error))?;
        let lode = start("lode", Command::new(program).arg("serve").arg(disk), &socket("lode"), "--socket", "bench")?;
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.args(["--foreground", "--exit-with-parent"]);
        // The plugin comes last, behind the options.
        nbdkit.arg("-U").arg(socket("nbdkit")).arg("file").arg(file);
        let nbdkit = spawn("nbdkit file", &mut nbdkit, &socket("nbdkit"), "")?;
        let qemu = |name, aio: &str, at: &str| {
            let mut command = Command::new("qemu-nbd");
            command.args(["--persistent", "--shared=8", "--format=raw", "--cache=none"]);
            command.arg(format!("--aio={aio}")).arg(file);
            start(name, &mut command, &socket(at), "--socket", "")
        };
        let native = qemu("qemu-nbd cache=none aio=native", "native", "qemu-native")?;
        let uring = qemu("qemu-nbd cache=none aio=io_uring", "io_uring", "qemu-uring")?;
        Ok(Servers { lode, nbdkit, qemu: [native, uring], _sockets: sockets })
    }
}

fn start(name: &'static str, command: &mut Command, socket: &Path, option: &str, export: &str) -> Result<Server> {
    spawn(name, command.arg(option).arg(socket), socket, export)
}

/// Starts a server and waits until its socket takes connections.
fn spawn(name: &'static str, command: &mut Command, socket: &Path, export: &str) -> Result<Server> {
    let failed = |words: String| Failure::new(Code::Io, format!("bench nbd: starting {name}: {words}"));
    // The peers remark on every client that hangs up.
    let remarks = if name == "lode" { Stdio::inherit() } else { Stdio::null() };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(remarks);
    let process = Victim::new(command.spawn().map_err(|error| failed(error.to_string()))?);
    let uri = format!("nbd+unix:///{export}?socket={}", socket.display());
    let mut server = Server { name, uri, process };
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        if UnixStream::connect(socket).is_ok() {
            return Ok(server);
        }
        if let Ok(Some(status)) = server.process.0.try_wait() {
            return Err(failed(format!("expected it to serve, found it ended: {status}")));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(failed("expected a socket within 10 s, found none".into()))
}
