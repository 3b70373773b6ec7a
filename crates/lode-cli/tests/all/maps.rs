//! Drawings of a disk, completions, and a server that systemd starts.

use crate::client::Client;
use crate::support::{Process, Scratch, Serving, bad, good, json, lode, wait};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

fn filled(scratch: &Scratch) -> PathBuf {
    let disk = scratch.disk("256MiB");
    for (name, seed) in [("<data>&", 1), ("logs", 2)] {
        good(lode(&["import"]).arg(&disk).arg(name).arg(scratch.file("file", 4 << 20, seed)));
    }
    good(lode(&["snapshot", "create"]).arg(&disk).arg("monday"));
    good(lode(&["volume", "delete"]).arg(&disk).arg("logs"));
    disk
}

#[test]
fn a_disk_is_drawn_as_text_as_json_and_as_svg() {
    let scratch = Scratch::new();
    let disk = filled(&scratch);
    let map = |more: &[&str]| {
        let mut command = lode(&["map"]);
        command.arg(&disk).args(more).current_dir(scratch.path("."));
        command
    };
    let text = good(&mut map(&[]));
    assert!(text.starts_with("RRRR") && text.contains("seen by snapshots only"), "{text}");
    let zones = json(&mut map(&["--json"]))["zones"].as_array().unwrap().clone();
    let sum = |of: &dyn Fn(&serde_json::Value) -> Option<u64>| zones.iter().filter_map(of).sum::<u64>();
    let stored = |zone: &serde_json::Value| zone["volumes"][0]["bytes"].as_u64();
    let (live, snapshots) = (sum(&stored), sum(&|zone| zone["snapshots"].as_u64()));
    assert!((1 << 20..=4 << 20).contains(&live) && (1 << 20..=4 << 20).contains(&snapshots), "{live}, {snapshots}");
    good(&mut map(&["--svg", "disk.svg"]));
    let drawing = std::fs::read_to_string(scratch.path("disk.svg")).unwrap();
    assert!(drawing.starts_with("<svg") && drawing.contains("&lt;data&gt;&amp;<tspan"), "names are escaped");
    well_formed(&scratch.path("disk.svg"));
    bad(&mut map(&["--svg", "disk.svg"]), 7);
    bad(&mut map(&["--svg", "disk.lode", "--force"]), 2);
    good(&mut map(&["--svg", "disk.svg", "--force"]));
    let socket = scratch.socket();
    let serving = Serving::start(&disk, &socket.0, &[]);
    assert!(good(&mut map(&["--svg", "-"])).starts_with("<svg"));
    good(&mut map(&["--svg", "served.svg"]));
    serving.stop();
    well_formed(&scratch.path("served.svg"));
}

fn well_formed(path: &Path) {
    let script = "import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])";
    good(Command::new("python3").args(["-c", script]).arg(path));
}

#[test]
fn shells_take_the_completions() {
    let scratch = Scratch::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = good(&mut lode(&["completions", shell]));
        assert!(script.contains("snapshot") && script.contains("recluster"), "{script}");
    }
    let path = scratch.path("lode.bash");
    std::fs::write(&path, good(&mut lode(&["completions", "bash"]))).unwrap();
    let ask = "source \"$1\"; COMP_WORDS=(lode snap); COMP_CWORD=1; _lode lode snap lode; echo \"${COMPREPLY[@]}\"";
    let found = good(Command::new("bash").args(["-ec", ask, "bash"]).arg(&path));
    assert_eq!(found.trim(), "snapshot");
    bad_shell();
}

fn bad_shell() {
    let output = crate::support::run(&mut lode(&["completions", "tcsh"]));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_socket_of_systemd_is_served() {
    let scratch = Scratch::new();
    let disk = scratch.disk("256MiB");
    good(lode(&["volume", "create"]).arg(&disk).args(["data", "--size", "1MiB"]));
    let socket = scratch.socket();
    let listener = UnixListener::bind(&socket.0).unwrap();
    // The client comes first, as it does with systemd.
    let path = socket.0.clone();
    let client = std::thread::spawn(move || Client::connect(&path, "data").unwrap().write(0, &[1; 4096], true));
    let start = |count: u32| {
        let script = format!("exec 3<&0 4<&0 </dev/null; LISTEN_FDS={count} LISTEN_PID=$$ exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_lode"), "serve"]).arg(&disk);
        command.stdin(OwnedFd::from(listener.try_clone().unwrap()));
        Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let mut serving = start(1);
    // It stays open: the server says a last word.
    let mut out = BufReader::new(serving.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let lines: Vec<String> = out.by_ref().take_while(|line| line != "ready").collect();
    let uri = format!("nbd+unix:///data?socket={}", socket.0.display());
    assert!(lines.contains(&uri), "{lines:?}");
    client.join().unwrap().unwrap();
    let id = rustix::process::Pid::from_raw(i32::try_from(serving.0.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert!(wait(&mut serving.0, Duration::from_secs(20)).unwrap().success());
    assert!(socket.0.exists(), "the socket is systemd's");
    let mut both = start(2);
    assert_eq!(wait(&mut both.0, Duration::from_secs(20)).unwrap().code(), Some(2));
    let mut words = String::new();
    both.0.stderr.take().unwrap().read_to_string(&mut words).unwrap();
    assert!(words.contains("expected one socket of systemd, found 2"), "{words}");
    // Variables that are meant for another process are not heeded.
    let mut other = lode(&["serve"]);
    let error = bad(other.arg(&disk).env("LISTEN_FDS", "1").env("LISTEN_PID", "1"), 2);
    assert!(error.contains("--socket, --listen or a socket of systemd"), "{error}");
}
