//! Scratch directories, processes with deadlines, servers, and content to compare.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// No single command of these tests takes longer.
const DEADLINE: Duration = Duration::from_secs(60);

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A directory that vanishes with the test.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lode-test-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A path for a unix socket, short enough for the kernel however deep the scratch directory is.
    pub fn socket(&self) -> Socket {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Socket(std::env::temp_dir().join(format!("lode-test-{}-{number}.sock", std::process::id())))
    }

    /// A new disk of `size` in `disk`.
    pub fn disk(&self, size: &str) -> PathBuf {
        let disk = self.path("disk.lode");
        good(lode(&["create"]).arg(&disk).args(["--size", size]));
        disk
    }

    /// A file of `bytes` with data, zeros and holes in it, other ones for another `seed`.
    pub fn file(&self, name: &str, bytes: usize, seed: u64) -> PathBuf {
        let path = self.path(name);
        let content = content(bytes, seed);
        let file = File::create(&path).unwrap();
        file.set_len(bytes as u64).unwrap();
        for (index, piece) in content.chunks(4096).enumerate() {
            if piece.iter().any(|byte| *byte != 0) {
                std::os::unix::fs::FileExt::write_all_at(&file, piece, index as u64 * 4096).unwrap();
            }
        }
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The path of a unix socket.
pub struct Socket(pub PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Noise with runs of zeros in it.
pub fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut content = vec![0; bytes];
    let mut random = Random(seed);
    for piece in content.chunks_mut(16384) {
        if random.draw().is_multiple_of(3) {
            continue;
        }
        piece.iter_mut().for_each(|byte| *byte = random.draw().to_le_bytes()[0]);
    }
    content
}

/// A seeded sequence (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn draw(&mut self) -> u64 {
        self.0 ^= 0x9e37_79b9_7f4a_7c15;
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// The program under test.
pub fn lode(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lode"));
    command.args(arguments);
    command
}

/// A program that must be installed.
pub fn tool(program: &str, package: &str) -> Command {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    let found = std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file());
    Command::new(
        found.unwrap_or_else(|| panic!("expected the program {program}, found none: apt-get install {package}")),
    )
}

/// Runs a command to its end, or kills it and fails at the deadline.
pub fn run(command: &mut Command) -> Output {
    let what = format!("{command:?}");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect(&what);
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = |pipe: &mut dyn Read| {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        bytes
    };
    std::thread::scope(|scope| {
        let stdout = scope.spawn(move || read(&mut out));
        let stderr = scope.spawn(move || read(&mut err));
        let status = wait(&mut child, DEADLINE);
        let output = |status| Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() };
        match status {
            Some(status) => output(status),
            None => {
                let _ = child.kill();
                let output = output(child.wait().unwrap());
                panic!("expected {what} to end within {DEADLINE:?}, it did not: {}", words(&output));
            }
        }
    })
}

/// Waits for the end of a process.
pub fn wait(child: &mut Child, deadline: Duration) -> Option<std::process::ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

fn words(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Runs a command that must succeed. Returns what it printed.
pub fn good(command: &mut Command) -> String {
    let output = run(command);
    assert!(output.status.success(), "{command:?}: {}: {}", output.status, words(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs `lode` expecting this exit code. Returns what it said on standard error, which is one line.
pub fn bad(command: &mut Command, code: i32) -> String {
    let output = run(command);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {}", words(&output));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.starts_with("lode: ") && error.trim_end().lines().count() == 1, "expected one line, found {error:?}");
    error
}

/// Runs a `--json` command and parses what it prints.
pub fn json(command: &mut Command) -> serde_json::Value {
    let output = run(command);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{command:?}: {error}: {}", words(&output)))
}

/// The disk is sound: structure, and every block.
pub fn sound(disk: &Path) {
    for command in ["check", "scrub"] {
        good(lode(&[command]).arg(disk));
    }
}

/// Both files have the same bytes.
pub fn same(a: &Path, b: &Path) {
    let (a_bytes, b_bytes) = (std::fs::read(a).unwrap(), std::fs::read(b).unwrap());
    assert_eq!(a_bytes.len(), b_bytes.len(), "{} and {}", a.display(), b.display());
    let first = a_bytes.iter().zip(&b_bytes).position(|(a, b)| a != b);
    assert_eq!(first, None, "{} and {} differ there", a.display(), b.display());
}

/// `lode serve`, killed at the latest when dropped.
pub struct Serving {
    child: Child,
    pub socket: PathBuf,
}

impl Serving {
    /// Starts a server and waits until it is ready.
    pub fn start(disk: &Path, socket: &Path, more: &[&str]) -> Serving {
        Self::start_with_log(disk, socket, more, Stdio::inherit())
    }

    /// The same; what it says beside its work goes to `log`.
    pub fn start_with_log(disk: &Path, socket: &Path, more: &[&str], log: Stdio) -> Serving {
        let mut command = lode(&["serve"]);
        command.arg(disk).arg("--socket").arg(socket).args(more);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (tell, told) = std::sync::mpsc::channel();
        // Goes on reading, so that the server never meets a closed or a full pipe.
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        let mut serving = Serving { child, socket: socket.to_owned() };
        let start = Instant::now();
        while start.elapsed() < DEADLINE {
            match told.recv_timeout(Duration::from_millis(100)) {
                Ok(line) if line == "ready" => return serving,
                Ok(_) | Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        let _ = serving.child.kill();
        panic!("expected `lode serve` to be ready, found {:?}", serving.child.wait());
    }

    pub fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.socket.display())
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kill -9.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, and a clean end.
    pub fn stop(mut self) {
        let id = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        let status = wait(&mut self.child, DEADLINE).expect("the server ends within the deadline");
        assert!(status.success(), "expected a clean end, found {status}");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A child process that ends with the test.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
