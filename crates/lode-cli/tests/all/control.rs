//! Commands on a disk that is being served: they run in its server, and nobody sees a difference.

use crate::client::Client;
use crate::support::{Process, Scratch, Serving, bad, content, good, json, lode, run, same, sound, wait};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

fn served(scratch: &Scratch, socket: &Path) -> (PathBuf, Serving) {
    let disk = scratch.disk("256MiB");
    let serving = Serving::start(&disk, socket, &[]);
    (disk, serving)
}

fn control(disk: &Path) -> PathBuf {
    let mut path = disk.as_os_str().to_owned();
    path.push(".control");
    path.into()
}

/// `lode WORDS DISK MORE`.
fn on(disk: &Path, words: &[&str], more: &[&str]) -> Command {
    let mut command = lode(words);
    command.arg(disk).args(more);
    command
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let id = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, signal).unwrap();
}

/// Looks until `found` says yes.
fn until(what: &str, mut found: impl FnMut() -> bool) {
    let start = Instant::now();
    while !found() {
        assert!(start.elapsed() < SOON, "expected {what} within {SOON:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn commands_run_on_a_served_disk_as_on_any_other() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let (disk, serving) = served(&scratch, &socket.0);
    good(&mut on(&disk, &["volume", "create"], &["data", "--size", "8MiB"]));
    let mut client = Client::connect(&socket.0, "data").unwrap();
    client.write(0, &[7; 1 << 20], false).unwrap();
    let listed = json(&mut on(&disk, &["volume", "list"], &["--json"]));
    assert_eq!((&listed[0]["name"], &listed[0]["mapped_bytes"]), (&"data".into(), &(1 << 20).into()));
    good(&mut on(&disk, &["snapshot", "create"], &["monday"]));
    client.write(65536, &[8; 4096], false).unwrap();
    let changed = json(&mut on(&disk, &["diff"], &["data", "monday", "--json"]));
    assert_eq!(changed, serde_json::json!([{ "offset": 65536, "bytes": 4096 }]));
    assert!(good(&mut on(&disk, &["snapshot", "list"], &[])).contains("monday"));
    good(&mut on(&disk, &["snapshot", "rollback"], &["monday", "--volume", "data"]));
    assert!(client.read(0, 1 << 20).unwrap() == [7; 1 << 20], "the client sees it at once");
    assert!(good(&mut on(&disk, &["scrub"], &[])).starts_with("sound"));
    good(&mut on(&disk, &["recluster"], &[]));
    assert_eq!(json(&mut on(&disk, &["info"], &["--json"]))["volumes"], 1);
    assert!(good(&mut on(&disk, &["inspect"], &["records"])).contains("data"));
    good(&mut on(&disk, &["volume", "resize"], &["data", "--size", "1MiB"]));
    good(&mut on(&disk, &["volume", "delete"], &["data"]));
    good(&mut on(&disk, &["snapshot", "delete"], &["monday"]));
    let error = bad(&mut on(&disk, &["volume", "delete"], &["data"]), 3);
    serving.stop();
    assert_eq!(error, bad(&mut on(&disk, &["volume", "delete"], &["data"]), 3), "the same words as without a server");
    assert!(!control(&disk).exists(), "the socket goes with its server");
    sound(&disk);
}

#[test]
fn files_are_those_of_the_client() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let (disk, serving) = served(&scratch, &socket.0);
    let file = scratch.file("file", 3 << 20, 1);
    let here = |command: &mut Command| good(command.current_dir(scratch.path(".")));
    here(&mut on(Path::new("disk.lode"), &["import"], &["data", "file"]));
    // A shell, so that there is a umask and standard input is a file, a pipe, or has a name.
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        here(command.args(["-ec", script]).env("LODE", env!("CARGO_BIN_EXE_lode")))
    };
    shell("umask 077; $LODE export disk.lode data private; $LODE export disk.lode data - > stream");
    shell("cat file | $LODE import disk.lode piped -; $LODE import disk.lode named /dev/stdin < file");
    shell("$LODE export disk.lode piped - | cat > piped; $LODE export disk.lode named named");
    for name in ["private", "stream", "piped", "named"] {
        same(&file, &scratch.path(name));
    }
    assert_eq!(scratch.path("private").metadata().unwrap().mode() & 0o777, 0o600);
    shell("$LODE list create disk.lode; $LODE list append disk.lode 1 - < file; $LODE list read disk.lode 1 > list");
    let (list, file) = (std::fs::read(scratch.path("list")).unwrap(), std::fs::read(&file).unwrap());
    assert!(list[..file.len()] == file);
    let error = bad(on(&disk, &["import"], &["data", "absent"]).current_dir(scratch.path(".")), 3);
    assert!(error.contains("absent"), "{error}");
    let error = bad(&mut on(&disk, &["export"], &["data", disk.to_str().unwrap(), "--force"]), 2);
    assert!(error.contains("expected another file than the disk itself"), "{error}");
    serving.stop();
    sound(&disk);
}

#[test]
fn what_needs_the_disk_alone_says_who_has_it() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let (disk, serving) = served(&scratch, &socket.0);
    let other = scratch.socket();
    let commands = [
        on(&disk, &["create"], &["--size", "256MiB", "--force"]),
        on(&disk, &["check"], &[]),
        on(&disk, &["repair"], &[]),
        on(&disk, &["serve"], &["--socket", other.0.to_str().unwrap()]),
    ];
    for mut command in commands {
        let error = bad(&mut command, 4);
        assert!(error.contains(&format!("process {} (lode)", serving.id())), "{error}");
    }
    serving.stop();
}

#[test]
fn a_socket_that_a_killed_server_left_behind_confuses_nobody() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let (disk, serving) = served(&scratch, &socket.0);
    serving.kill();
    assert!(control(&disk).exists());
    good(&mut on(&disk, &["volume", "create"], &["data", "--size", "1MiB"]));
    let serving = Serving::start(&disk, &socket.0, &[]);
    assert_eq!(json(&mut on(&disk, &["volume", "list"], &["--json"]))[0]["name"], "data");
    serving.stop();
    assert!(!control(&disk).exists());
}

#[test]
fn the_server_of_another_image_is_not_asked() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let (disk, serving) = served(&scratch, &socket.0);
    good(&mut on(&disk, &["volume", "create"], &["old", "--size", "1MiB"]));
    let moved = scratch.path("moved");
    std::fs::rename(&disk, &moved).unwrap();
    good(&mut on(&disk, &["create"], &["--size", "256MiB"]));
    good(&mut on(&disk, &["volume", "create"], &["new", "--size", "1MiB"]));
    assert_eq!(json(&mut on(&disk, &["volume", "list"], &["--json"]))[0]["name"], "new");
    bad(&mut on(&moved, &["volume", "list"], &[]), 4);
    std::os::unix::fs::symlink(control(&disk), control(&moved)).unwrap();
    assert_eq!(json(&mut on(&moved, &["volume", "list"], &["--json"]))[0]["name"], "old");
    serving.stop();
}

#[test]
fn only_the_owner_may_use_the_socket() {
    // Somebody else must be able to come as far as the socket.
    let directory = std::env::temp_dir().join(format!("lode-test-owner-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (disk, program) = (directory.join("disk.lode"), directory.join("lode"));
    std::fs::copy(env!("CARGO_BIN_EXE_lode"), &program).unwrap();
    good(on(&disk, &["create"], &["--size", "256MiB"]).current_dir(&directory));
    let socket = directory.join("socket");
    let serving = Serving::start(&disk, &socket, &[]);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&control(&disk)), 0o600);
    let allow = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    allow(&directory, 0o755);
    allow(&disk, 0o666);
    let stranger = || {
        let mut command = Command::new(&program);
        command.args(["volume", "create"]).arg(&disk).args(["data", "--size", "1MiB"]).uid(65534).gid(65534);
        command
    };
    let refused = bad(&mut stranger(), 4);
    assert!(refused.contains("its server was not asked") && refused.contains("Permission denied"), "{refused}");
    allow(&control(&disk), 0o666);
    let refused = bad(&mut stranger(), 9);
    assert!(refused.contains("its own user and root only"), "{refused}");
    good(&mut on(&disk, &["info"], &[]));
    serving.stop();
    // A stranger's socket is not trusted either.
    let script = "import socket,sys,time\ns=socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\ns.listen()\n\
                  print('ready',flush=True)\ntime.sleep(60)";
    allow(&directory, 0o777);
    let mut listener = Command::new("python3");
    listener.args(["-c", script]).arg(control(&disk)).uid(65534).gid(65534).stdout(Stdio::piped());
    let mut listener = Process(listener.spawn().unwrap());
    listener.0.stdout.take().unwrap().read_exact(&mut [0; 6]).unwrap();
    assert!(good(&mut on(&disk, &["info"], &[])).contains("volumes"), "it is opened here instead");
    drop(listener);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_client_that_is_killed_ends_its_command() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let (disk, serving) = served(&scratch, &socket.0);
    let old = scratch.file("old", 1 << 20, 1);
    good(on(&disk, &["import"], &["data"]).arg(&old));
    let reserved = || json(&mut on(&disk, &["info"], &["--json"]))["reserved"].as_u64().unwrap();
    let begin = || {
        let mut command = on(&disk, &["import"], &["data", "-"]);
        let mut child = Process(command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        let mut pipe = child.0.stdin.take().unwrap();
        pipe.write_all(&content(2 << 20, 2)[..1_500_000]).unwrap();
        (child, pipe)
    };
    // The pipe stays open: only the client is gone.
    let (mut child, pipe) = begin();
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    until("the unit to end", || reserved() == 0);
    drop(pipe);
    // The input ends, since whoever wrote it was interrupted, as the client is, a moment later.
    let (mut child, pipe) = begin();
    until("the unit to begin", || reserved() > 0);
    signal(&child.0, rustix::process::Signal::STOP);
    drop(pipe);
    std::thread::sleep(Duration::from_millis(700));
    assert!(reserved() > 0, "it waits for what the client says");
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    until("the unit to end", || reserved() == 0);
    let out = scratch.path("out");
    good(on(&disk, &["export"], &["data"]).arg(&out));
    same(&old, &out);
    // What it does not read ends it too.
    let mut child = on(&disk, &["export"], &["data", "-"]).stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 1]).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    serving.stop();
    sound(&disk);
}

#[test]
fn the_end_of_the_server_ends_its_commands() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let disk = scratch.disk("256MiB");
    let serving = Serving::start(&disk, &socket.0, &["--drain", "1"]);
    let mut command = on(&disk, &["import"], &["data", "-"]);
    let mut child = Process(command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    child.0.stdin.as_mut().unwrap().write_all(&[1; 1 << 16]).unwrap();
    until("the command to run", || json(&mut on(&disk, &["volume", "list"], &["--json"]))[0]["name"] == "data");
    let start = Instant::now();
    serving.stop();
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    assert_eq!(wait(&mut child.0, SOON).unwrap().code(), Some(6));
    let mut words = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut words).unwrap();
    assert!(words.contains("the server is ending") && words.contains("volume data is as it was"), "{words}");
    assert_eq!(json(&mut on(&disk, &["volume", "list"], &["--json"])), serde_json::json!([]));
    sound(&disk);
}

#[test]
fn hostile_clients_are_harmless() {
    let scratch = Scratch::new();
    // Its own path may be too long for a socket.
    let short = scratch.socket();
    let (disk, serving) = served(&scratch, &scratch.socket().0);
    std::os::unix::fs::symlink(disk.parent().unwrap(), &short.0).unwrap();
    let path = short.0.join("disk.lode.control");
    let connect = || UnixStream::connect(&path).unwrap();
    let head = |length: u32| [&b"lodectl1"[..], &length.to_le_bytes()].concat();
    for sent in [&b"GET / HTTP/1.1\r\n\r\n"[..], &head(u32::MAX), &head(4), &[0; 5]] {
        let mut stream = connect();
        stream.write_all(sent).unwrap();
        let mut rest = Vec::new();
        stream.set_read_timeout(Some(SOON)).unwrap();
        // Without files beside it, or malformed, it is cut off.
        let _ = stream.read_to_end(&mut rest);
        assert_eq!(rest, [0; 5], "it is told that it may ask, and nothing else");
    }
    until("places to be free", || run(&mut on(&disk, &["info"], &[])).status.success());
    let idle: Vec<UnixStream> = (0..16).map(|_| connect()).collect();
    let error = bad(&mut on(&disk, &["info"], &[]), 4);
    assert!(error.contains("16 commands already"), "{error}");
    drop(idle);
    until("places to be free", || run(&mut on(&disk, &["info"], &[])).status.success());
    serving.stop();
    sound(&disk);
}

#[test]
fn a_server_that_hangs_is_told_of() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let (disk, serving) = served(&scratch, &socket.0);
    let id = rustix::process::Pid::from_raw(i32::try_from(serving.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::STOP).unwrap();
    let error = bad(&mut on(&disk, &["info"], &[]), 4);
    assert!(error.contains(&format!("expected process {}", serving.id())) && error.contains("to answer"), "{error}");
    rustix::process::kill_process(id, rustix::process::Signal::CONT).unwrap();
    serving.stop();
}

#[test]
fn a_server_without_a_control_socket_says_so_and_serves() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let disk = scratch.disk("256MiB");
    good(&mut on(&disk, &["volume", "create"], &["data", "--size", "1MiB"]));
    std::fs::write(control(&disk), "precious").unwrap();
    let serving = Serving::start(&disk, &socket.0, &[]);
    Client::connect(&socket.0, "data").unwrap().write(0, &[1; 4096], true).unwrap();
    let error = bad(&mut on(&disk, &["volume", "list"], &[]), 4);
    assert!(error.contains(&format!("process {} (lode)", serving.id())), "{error}");
    serving.stop();
    assert_eq!(std::fs::read(control(&disk)).unwrap(), b"precious");
}

#[test]
fn of_two_imports_at_once_the_later_one_counts_and_none_undoes_the_other() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let (disk, serving) = served(&scratch, &socket.0);
    let reserved = || json(&mut on(&disk, &["info"], &["--json"]))["reserved"].as_u64().unwrap();
    let begin = |name: &str, bytes: &[u8]| {
        let before = reserved();
        let mut command = on(&disk, &["import"], &[name, "-"]);
        let mut child = Process(command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        let mut pipe = child.0.stdin.take().unwrap();
        pipe.write_all(&bytes[..1_500_000]).unwrap();
        until("the unit to begin", || reserved() > before);
        (child, pipe)
    };
    let end = |(mut child, mut pipe): (Process, std::process::ChildStdin), bytes: &[u8]| {
        pipe.write_all(&bytes[1_500_000..]).unwrap();
        drop(pipe);
        assert!(wait(&mut child.0, SOON).unwrap().success());
    };
    let exported = |name: &str| {
        let out = scratch.path("out");
        good(on(&disk, &["export", "--force"], &[name]).arg(&out));
        std::fs::read(&out).unwrap()
    };
    let (full, mut holes) = (vec![1; 2 << 20], vec![0; 2 << 20]);
    holes[..4096].fill(2);
    // Neither was there when the other began.
    let (first, second) = (begin("data", &full), begin("data", &holes));
    end(first, &full);
    end(second, &holes);
    assert!(exported("data") == holes, "no mixture");
    // The one that made the volume is interrupted when the other has filled it.
    let ((mut first, pipe), second) = (begin("other", &holes), begin("other", &full));
    end(second, &full);
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    until("the unit to end", || reserved() == 0);
    drop(pipe);
    // It is the last thing that a command does.
    std::thread::sleep(Duration::from_millis(500));
    assert!(exported("other") == full);
    serving.stop();
    sound(&disk);
}
