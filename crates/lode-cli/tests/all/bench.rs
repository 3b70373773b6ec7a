//! `lode bench` runs, and its JSON is what scripts expect. The figures of a short run mean nothing.

use crate::support::{Scratch, bad, lode, run};

#[test]
fn a_quick_bench_prints_the_promised_json() {
    let scratch = Scratch::new();
    for name in ["commit1", "read-hot", "unit", "unit-overhead", "bytes"] {
        let mut command = lode(&["bench", name, "--json", "--quick", "--rounds", "2", "--dir"]);
        let output = run(command.arg(scratch.path(".")));
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["name"], name);
        let cases = report["cases"].as_array().unwrap();
        assert!(!cases.is_empty());
        for case in cases {
            assert!(case["lode"].as_f64().unwrap() >= 0.0 || name.starts_with("unit"), "{case}");
            assert!(case["pass"].is_boolean() && case["bar"].is_number() && case["ratio"].is_number(), "{case}");
            assert!(["higher", "lower"].contains(&case["better"].as_str().unwrap()), "{case}");
        }
    }
    assert_eq!(std::fs::read_dir(scratch.path(".")).unwrap().count(), 0, "scratch files are gone");
}

#[test]
fn an_unknown_bench_is_refused() {
    assert!(bad(&mut lode(&["bench", "nonsense"]), 2).contains("commit1x4"));
}

/// One of file systems, with its report checked as far as scripts rely on it.
fn file_systems(scratch: &Scratch, name: &str, more: &[&str]) -> serde_json::Value {
    let mut command = lode(&["bench-fs", name, "--json", "--quick", "--rounds", "1", "--dir"]);
    let output = run(command.arg(scratch.path(".")).args(more));
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["name"], name);
    let cases = report["cases"].as_array().unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        assert!(case["lode"].as_f64().unwrap() > 0.0 && case["pass"].is_boolean(), "{case}");
        assert!(case["bar"].is_number() && case["ratio"].is_number(), "{case}");
    }
    assert_eq!(std::fs::read_dir(scratch.path(".")).unwrap().count(), 0, "scratch files are gone");
    report
}

#[test]
fn file_systems_are_measured_in_the_library() {
    let scratch = Scratch::new();
    let bytes = file_systems(&scratch, "bytes", &[]);
    let each = bytes["cases"][0]["lode"].as_f64().unwrap();
    assert!((1024.0..10_240.0).contains(&each), "a file of 1 KiB takes {each} bytes");
    file_systems(&scratch, "fs-memory", &[]);
    file_systems(&scratch, "fs-open", &[]);
}

#[test]
fn mounted_file_systems_are_measured_side_by_side() {
    let scratch = Scratch::new();
    for name in ["append-fsync", "small-files", "unpack"] {
        let report = file_systems(&scratch, name, &["--judged", "--against", "ext4"]);
        for case in report["cases"].as_array().unwrap() {
            assert_eq!(case["peer_name"], "ext4");
            let of = case["case"].as_str().unwrap();
            assert!(of.ends_with("lode strict") || of.ends_with("lode relaxed"), "{case}");
        }
    }
    assert_eq!(left_in(&scratch), Vec::<String>::new());
}

/// Mounts in a scratch directory, and loop devices over files there.
fn left_in(scratch: &Scratch) -> Vec<String> {
    let place = scratch.path(".").canonicalize().unwrap().to_str().unwrap().to_owned();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut left: Vec<String> = mounts.lines().map(String::from).collect();
    for entry in std::fs::read_dir("/sys/block").unwrap() {
        left.extend(std::fs::read_to_string(entry.unwrap().path().join("loop/backing_file")));
    }
    left.retain(|line| line.contains(&place));
    left
}

#[test]
fn a_bench_of_file_systems_that_is_broken_off_leaves_nothing_mounted() {
    let scratch = Scratch::new();
    let mut command = lode(&["bench-fs", "append-fsync", "--judged", "--against", "ext4", "--quick", "--dir"]);
    command.arg(scratch.path(".")).args(["--rounds", "1000"]).stdout(std::process::Stdio::null());
    let mut bench = command.spawn().unwrap();
    let until = |done: &mut dyn FnMut() -> bool, what: &str| {
        let start = std::time::Instant::now();
        while !done() {
            assert!(start.elapsed() < std::time::Duration::from_secs(60), "waiting until {what}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    until(&mut || left_in(&scratch).iter().any(|line| line.contains("ext4")), "it has mounted something");
    let pid = rustix::process::Pid::from_child(&bench);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(bench.wait().unwrap().code(), Some(128 + 15));
    until(&mut || left_in(&scratch).is_empty(), "nothing is left");
    assert_eq!(std::fs::read_dir(scratch.path(".")).unwrap().count(), 0, "scratch files are gone");
}

#[test]
fn benches_of_file_systems_say_what_they_are_and_what_they_need() {
    let help = String::from_utf8(run(&mut lode(&["bench-fs", "--help"])).stdout).unwrap();
    let names = ["small-files", "large-file", "postmark", "append-fsync", "replace", "build", "unpack", "bytes"];
    for name in names.iter().chain(&["fs-memory", "fs-open", "fs-bracket"]) {
        assert!(help.contains(&format!("\n  {name} ")), "{name}");
        assert!(bad(&mut lode(&["bench-fs", "nonsense"]), 2).contains(name));
    }
    let scratch = Scratch::new();
    for name in ["fs-bracket", "postmark", "build"] {
        let mut command = lode(&["bench-fs", name, "--quick", "--dir"]);
        command.arg(scratch.path(".")).arg("--tools").arg(scratch.path("none"));
        let words = bad(&mut command, 3);
        assert!(words.contains("make bench-fs"), "{name}: {words}");
    }
}
