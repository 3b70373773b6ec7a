//! Real clients against this server. A tool that is missing fails the test with the name of its package.

use std::{
    io::{BufRead, BufReader, Read},
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use lode_nbd::{
    Limits, Listener, Server,
    memory::{MemoryExport, MemoryExports},
};

use crate::support::{House, eventually};

/// Far more than any of these commands takes.
const TIME: Duration = Duration::from_secs(60);

fn tool(name: &str) -> Command {
    let package = match name {
        "nbdinfo" | "nbdcopy" => "libnbd-bin",
        "nbdsh" => "python3-libnbd",
        "qemu-img" | "qemu-io" => "qemu-utils",
        "fio" => "fio",
        _ => "coreutils",
    };
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let Some(found) = std::env::split_paths(&paths).find(|directory| directory.join(name).exists()) else {
        panic!("{name} is missing: apt-get install {package}");
    };
    // What a tool starts itself is best taken from where it is: nbdsh needs the Python that was packaged with it.
    let first = std::iter::once(found).chain(std::env::split_paths(&paths));
    let mut command = Command::new(name);
    command.env("PATH", std::env::join_paths(first).expect("they came from a PATH"));
    command
}

/// Runs a command to its end, within [`TIME`], and gives what it printed. It must succeed.
fn run(command: &mut Command) -> String {
    let words = format!("{command:?}");
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tool was found");
    let gather = |mut pipe: Box<dyn Read + Send>| {
        thread::spawn(move || {
            let mut text = String::new();
            let _ = pipe.read_to_string(&mut text);
            text
        })
    };
    let out = gather(Box::new(child.stdout.take().expect("piped")));
    let err = gather(Box::new(child.stderr.take().expect("piped")));
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is ours") {
            break status;
        }
        if started.elapsed() > TIME {
            let _ = child.kill();
            panic!("{words} did not end within {TIME:?}");
        }
        thread::sleep(Duration::from_millis(10));
    };
    let (out, err) = (out.join().expect("no panic"), err.join().expect("no panic"));
    assert!(status.success(), "{words}: {status}\n{out}\n{err}");
    out
}

fn pattern(path: &Path, bytes: usize) {
    let mut random = crate::load::Random::new(3);
    let mut data: Vec<u8> = (0..bytes).map(|_| random.byte()).collect();
    // A hole in the middle, and at the end.
    data[bytes / 4..bytes / 2].fill(0);
    data[bytes - bytes / 8..].fill(0);
    std::fs::write(path, data).expect("the directory is writable");
}

#[test]
fn nbdinfo_describes_lists_and_maps() {
    let house = House::new(
        MemoryExports::with("disk", 1 << 20).and("locked", Arc::new(MemoryExport::new(4096).into_read_only())),
        Limits::default(),
    );
    let text = run(tool("nbdinfo").arg(house.uri("disk")));
    for line in ["export-size: 1048576", "can_fast_zero: true", "can_multi_conn: true", "base:allocation"] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    let text = run(tool("nbdinfo").arg("--list").arg(house.uri("")));
    assert!(text.contains("\"locked\"") && text.contains("is_read_only: true"), "{text}");
    let text = run(tool("nbdinfo").arg("--map").arg(house.uri("disk")));
    assert!(text.contains("hole,zero"), "{text}");
}

#[test]
fn nbdcopy_there_and_back() {
    let house = House::memory(64 << 20);
    let (there, back) = (house.directory.join("there"), house.directory.join("back"));
    pattern(&there, 64 << 20);
    run(tool("nbdcopy").arg("--flush").arg(&there).arg(house.uri("disk")));
    run(tool("nbdcopy").arg(house.uri("disk")).arg(&back));
    run(tool("cmp").arg(&there).arg(&back));
}

#[test]
fn qemu_img_converts_compares_and_maps() {
    let house = House::memory(32 << 20);
    let file = house.directory.join("file");
    pattern(&file, 32 << 20);
    run(tool("qemu-img").args(["convert", "-n", "-f", "raw", "-O", "raw"]).arg(&file).arg(house.uri("disk")));
    run(tool("qemu-img").args(["compare", "-f", "raw", "-F", "raw"]).arg(&file).arg(house.uri("disk")));
    let map = run(tool("qemu-img").args(["map", "--output=json", "-f", "raw"]).arg(house.uri("disk")));
    assert!(map.contains("\"zero\": true") && map.contains("\"zero\": false"), "{map}");
    let info = run(tool("qemu-img").args(["info", "-f", "raw"]).arg(house.uri("disk")));
    assert!(info.contains("32 MiB"), "{info}");
}

#[test]
fn qemu_io_writes_and_verifies() {
    let house = House::memory(16 << 20);
    let script = [
        "write -P 0x5a 1000 123456",
        "read -P 0x5a 1000 123456",
        "write -f -P 0x11 1M 4M",
        "read -P 0x11 1M 4M",
        "write -z -u 2M 1M",
        "read -P 0 2M 1M",
        "write -z 3M 1M",
        "read -P 0 3M 1M",
        "aio_write -P 0x77 8M 2M",
        "aio_write -P 0x78 10M 2M",
        "aio_flush",
        "read -P 0x77 8M 2M",
        "read -P 0x78 10M 2M",
        "discard 8M 1M",
        "flush",
    ];
    let mut command = tool("qemu-io");
    command.args(["-f", "raw"]);
    script.iter().for_each(|line| {
        command.args(["-c", line]);
    });
    let text = run(command.arg(house.uri("disk")));
    assert!(!text.contains("failed"), "{text}");
}

#[test]
fn nbdsh_uses_every_call() {
    let house = House::memory(8 << 20);
    let script = r#"
import errno
uri = "URI"
h.add_meta_context("base:allocation")
h.connect_uri(uri)
assert h.get_size() == 8 << 20
assert h.can_df() and h.can_cache() and h.can_fast_zero() and h.can_multi_conn() and h.can_fua()
h.pwrite(b"x" * 5000, 1234, nbd.CMD_FLAG_FUA)
assert h.pread(5000, 1234) == b"x" * 5000
chunks = []
h.pread_structured(1 << 20, 0, lambda data, offset, status, error: chunks.append((offset, status)), nbd.CMD_FLAG_DF)
assert chunks == [(0, nbd.READ_DATA)], chunks
h.zero(1 << 20, 0)
chunks = []
h.pread_structured(1 << 20, 0, lambda data, offset, status, error: chunks.append((offset, status)))
assert chunks == [(0, nbd.READ_HOLE)], chunks
h.pwrite(b"y" * 65536, 65536)
extents = []
h.block_status(1 << 20, 0, lambda context, offset, entries, error: extents.extend(entries))
assert extents[:4] == [65536, 3, 65536, 0], extents
h.trim(65536, 65536)
h.cache(1 << 20, 0)
h.flush()
try:
    h.zero(4096, 0, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE)
    assert False
except nbd.Error as error:
    assert error.errnum == errno.EOPNOTSUPP, error
h.set_strict_mode(0)
try:
    h.pread(4096, (8 << 20) - 1)
    assert False
except nbd.Error as error:
    assert error.errnum == errno.EINVAL, error
h.shutdown()
for structured in (False, True):
    g = nbd.NBD()
    g.set_request_structured_replies(structured)
    g.connect_uri(uri)
    buffers = [nbd.Buffer(65536) for _ in range(64)]
    for i in range(64):
        g.aio_pwrite(nbd.Buffer.from_bytearray(bytearray([i] * 65536)), i * 65536)
    while g.aio_in_flight() > 0:
        g.poll(-1)
    for i, buffer in enumerate(buffers):
        g.aio_pread(buffer, i * 65536)
    while g.aio_in_flight() > 0:
        g.poll(-1)
    for i, buffer in enumerate(buffers):
        assert buffer.to_bytearray() == bytearray([i] * 65536)
    g.shutdown()
"#;
    let script = script.replace("URI", &house.uri("disk"));
    run(tool("nbdsh").arg("-c").arg(script));
}

#[test]
fn fio_verifies_what_it_wrote() {
    let house = House::memory(32 << 20);
    for (mode, size, depth) in [("randwrite", "4k", "32"), ("randrw", "128k", "8"), ("write", "1m", "16")] {
        let text = run(tool("fio")
            .current_dir(&house.directory)
            .args(["--name=verify", "--ioengine=nbd", "--size=32m", "--verify=crc32c", "--do_verify=1"])
            .arg(format!("--uri={}", house.uri("disk")))
            .args([format!("--rw={mode}"), format!("--bs={size}"), format!("--iodepth={depth}")])
            .args(["--verify_fatal=1", "--verify_state_save=0", "--fsync=100"]));
        assert!(text.contains("err= 0"), "{text}");
    }
}

#[test]
fn tcp_serves_as_well() {
    let house = House::memory(1 << 20);
    let listener = Listener::tcp("127.0.0.1:0", false).expect("a port is free");
    let server = Server::start(listener, Arc::new(MemoryExports::with("disk", 8 << 20)), Limits::default());
    let server = server.expect("the limits are sound");
    let uri = format!("nbd://{}/disk", server.address());
    let (there, back) = (house.directory.join("there"), house.directory.join("back"));
    pattern(&there, 8 << 20);
    run(tool("nbdcopy").arg(&there).arg(&uri));
    run(tool("nbdcopy").arg(&uri).arg(&back));
    run(tool("cmp").arg(&there).arg(&back));
    assert_eq!(server.drain(Duration::from_secs(5)).dropped, 0);
}

/// The example that serves a disk in memory, in a process of its own.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn start(path: &Path, descriptors: u32) -> Self {
        let test = std::env::current_exe().expect("it runs");
        let example = test.ancestors().nth(2).expect("it lies in deps").join("examples/memory");
        assert!(example.exists(), "missing: cargo build -p lode-nbd --example memory");
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(format!("ulimit -n {descriptors}; exec \"$0\" \"$1\" 1073741824"))
            .args([&*example, path])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert!(lines.any(|line| line.is_ok()), "the server did not start");
        Process(child)
    }

    /// The most memory it ever had, in KiB.
    fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("it lives");
        let line = status.lines().find(|line| line.starts_with("VmHWM")).expect("Linux tells it");
        line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number")
    }
}

#[test]
fn without_descriptors_the_server_waits_and_goes_on() {
    let house = House::memory(1 << 20);
    let path = house.directory.join("child");
    let process = Process::start(&path, 24);
    let held: Vec<_> = (0..60).map(|_| UnixStream::connect(&path).expect("the queue is long")).collect();
    thread::sleep(Duration::from_millis(300));
    drop(held);
    let uri = format!("nbd+unix:///memory?socket={}", path.display());
    let text = run(tool("nbdinfo").arg("--size").arg(uri));
    assert_eq!(text.trim(), "1073741824");
    drop(process);
}

#[test]
fn memory_has_a_ceiling_that_the_kernel_sees() {
    let house = House::memory(1 << 20);
    let path = house.directory.join("child");
    let process = Process::start(&path, 1024);
    let before = process.peak_kib();
    let mut held: Vec<_> = (0..24)
        .map(|_| {
            let stream = UnixStream::connect(&path).expect("it listens");
            stream.set_read_timeout(Some(TIME)).expect("not zero");
            stream.set_write_timeout(Some(Duration::from_millis(200))).expect("not zero");
            let mut client = crate::support::Client { stream, cookie: 0 };
            client.greet();
            client.go("memory");
            client
        })
        .collect();
    // Payloads that stop one byte short, so that each would have to be kept.
    for client in &mut held {
        client.request(1, 0, 0, 32 << 20);
        let _ = std::io::Write::write_all(&mut client.stream, &vec![1; (32 << 20) - 1]);
    }
    let grown = process.peak_kib().saturating_sub(before);
    assert!(grown > 30 << 10, "the test makes the server hold nothing: {grown} KiB");
    assert!(grown < (256 + 64) << 10, "{grown} KiB for a budget of 256 MiB");
    drop(held);
    let uri = format!("nbd+unix:///memory?socket={}", path.display());
    eventually("it serves", || !run(tool("nbdinfo").arg("--size").arg(&uri)).is_empty());
}
