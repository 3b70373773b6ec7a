//! Incremental backups by standard clients: the metadata context `lode:changed:SNAPSHOT`.

use crate::client::Client;
use crate::support::{Random, Scratch, Serving, good, json, lode, run, tool};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

const SIZE: u64 = 8 << 20;

fn snapshot(disk: &Path, command: &str, name: &str) {
    good(lode(&["snapshot", command]).arg(disk).arg(name));
}

/// What `nbdinfo` says has changed, merged; it goes through the whole export.
fn changed(uri: &str, since: &str) -> Vec<Range<u64>> {
    let map = format!("--map=lode:changed:{since}");
    let map = json(tool("nbdinfo", "libnbd-bin").args([&map, "--json", uri]));
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    for extent in map.as_array().unwrap() {
        let [offset, length, flags] = ["offset", "length", "type"].map(|key| extent[key].as_u64().unwrap());
        assert_eq!(offset, at, "without gaps");
        at += length;
        match (flags, found.last_mut()) {
            (0, _) => {}
            (1, Some(last)) if last.end == offset => last.end = at,
            (1, _) => found.push(offset..at),
            other => panic!("expected flags 0 or 1, found {other:?}"),
        }
    }
    assert_eq!(at, SIZE);
    found
}

/// The same by `qemu-img map`, which shows what a dirty bitmap marks as no data, and asks for one extent at a time.
fn changed_by_qemu(serving: &Serving, export: &str, since: &str) -> Vec<Range<u64>> {
    let socket = serving.socket.display();
    let options =
        format!("driver=nbd,export={export},server.type=unix,server.path={socket},x-dirty-bitmap=lode:changed:{since}");
    let map = json(tool("qemu-img", "qemu-utils").args(["map", "--output=json", "--image-opts", &options]));
    let extents = map.as_array().unwrap().iter();
    let dirty = extents.filter(|extent| extent["data"] == false);
    dirty
        .map(|extent| {
            extent["start"].as_u64().unwrap()..extent["start"].as_u64().unwrap() + extent["length"].as_u64().unwrap()
        })
        .collect()
}

fn whole(client: &mut Client) -> Vec<u8> {
    (0..8).flat_map(|piece| client.read(piece << 20, 1 << 20).unwrap()).collect()
}

#[test]
fn standard_clients_are_told_what_was_written_since_a_snapshot() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let disk = scratch.disk("256MiB");
    good(lode(&["volume", "create"]).arg(&disk).args(["data", "--size", "8MiB"]));
    good(lode(&["volume", "create"]).arg(&disk).args(["other", "--size", "8MiB"]));
    let serving = Serving::start(&disk, &socket.0, &[]);
    let mut client = Client::connect(&socket.0, "data").unwrap();
    client.write(0, &[1; 1 << 20], false).unwrap();
    snapshot(&disk, "create", "monday");
    assert_eq!(changed(&serving.uri("data"), "monday"), vec![]);
    client.write(65536, &[2; 8192], false).unwrap();
    client.write((3 << 20) + 100, &[2; 1], false).unwrap();
    client.trim(256 << 10, 4096).unwrap();
    let monday = vec![65536..73728, 262_144..266_240, 3 << 20..(3 << 20) + 4096];
    assert_eq!(changed(&serving.uri("data"), "monday"), monday);
    snapshot(&disk, "create", "tuesday");
    client.write(SIZE - 4096, &[3; 4096], false).unwrap();
    client.write(65536, &[3; 4096], false).unwrap();
    // Of the snapshot nothing changes; now there is more.
    let tuesday = vec![65536..69632, SIZE - 4096..SIZE];
    assert_eq!(changed(&serving.uri("data@tuesday"), "monday"), monday);
    assert_eq!(changed(&serving.uri("data"), "tuesday"), tuesday);
    let both = [&monday[..], &tuesday[1..]].concat();
    assert_eq!(changed(&serving.uri("data"), "monday"), both);
    assert_eq!(changed(&serving.uri("other"), "monday"), vec![]);

    assert_eq!(changed_by_qemu(&serving, "data@tuesday", "monday"), monday);
    assert_eq!(changed_by_qemu(&serving, "data", "monday"), both);

    // Offered are the older snapshots of this volume, and no others.
    let offered = |export: &str| {
        let info = json(tool("nbdinfo", "libnbd-bin").arg("--json").arg(serving.uri(export)));
        info["exports"][0]["contexts"].clone()
    };
    let all = serde_json::json!(["base:allocation", "lode:changed:monday", "lode:changed:tuesday"]);
    assert_eq!(offered("data"), all);
    assert_eq!(offered("data@tuesday"), serde_json::json!(["base:allocation", "lode:changed:monday"]));
    assert_eq!(offered("data@monday"), serde_json::json!(["base:allocation"]));
    assert_eq!(offered("data%3Funit=job"), serde_json::json!(["base:allocation"]));
    good(lode(&["volume", "delete"]).arg(&disk).arg("other"));
    good(lode(&["volume", "create"]).arg(&disk).args(["other", "--size", "8MiB"]));
    assert_eq!(offered("other"), serde_json::json!(["base:allocation"]), "another volume had that name");

    // The snapshot in between goes, and what changed before it is still told.
    snapshot(&disk, "delete", "tuesday");
    assert_eq!(changed(&serving.uri("data"), "monday"), both);
    snapshot(&disk, "delete", "monday");
    let unknown = run(tool("nbdinfo", "libnbd-bin").args(["--map=lode:changed:monday", &serving.uri("data")]));
    assert!(!unknown.status.success(), "nobody knows what changed since a snapshot that is gone");
    serving.stop();
}

#[test]
fn a_copy_of_what_changed_makes_an_old_backup_new() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let disk = scratch.disk("256MiB");
    let image = scratch.file("image", usize::try_from(SIZE).unwrap(), 5);
    good(lode(&["import"]).arg(&disk).args(["data"]).arg(&image));
    let serving = Serving::start(&disk, &socket.0, &[]);
    snapshot(&disk, "create", "monday");
    let backup = scratch.path("backup");
    good(tool("nbdcopy", "libnbd-bin").arg(serving.uri("data@monday")).arg(&backup));
    // More ranges than one reply tells, and than are kept between two.
    let mut client = Client::connect(&socket.0, "data").unwrap();
    let mut random = Random(7);
    for block in (0..SIZE / 512).step_by(16) {
        let byte = random.draw().to_le_bytes()[0];
        client.write(block * 512 + random.draw() % 4096, &[byte; 100], false).unwrap();
    }
    client.trim(1 << 20, 64 << 10).unwrap();
    snapshot(&disk, "create", "tuesday");
    client.write(0, &[9; 4096], false).unwrap();
    let mut newer = Client::connect(&socket.0, "data@tuesday").unwrap();
    let ranges = changed(&serving.uri("data@tuesday"), "monday");
    let file = std::fs::OpenOptions::new().write(true).open(&backup).unwrap();
    let found = whole(&mut newer);
    for range in &ranges {
        let [start, end] = [range.start, range.end].map(|at| usize::try_from(at).unwrap());
        file.write_all_at(&found[start..end], range.start).unwrap();
    }
    assert!(std::fs::read(&backup).unwrap() == found, "something changed and was not told");
    assert_eq!(ranges, changed_by_qemu(&serving, "data@tuesday", "monday"));
    serving.stop();
}

#[test]
fn a_connection_goes_on_when_the_snapshot_is_deleted_and_is_told_no_lies() {
    let scratch = Scratch::new();
    let socket = scratch.socket();
    let disk = scratch.disk("256MiB");
    good(lode(&["volume", "create"]).arg(&disk).args(["data", "--size", "8MiB"]));
    snapshot(&disk, "create", "monday");
    let serving = Serving::start(&disk, &socket.0, &[]);
    let script = format!(
        r#"
h.add_meta_context("lode:changed:monday")
h.add_meta_context("base:allocation")
h.connect_uri({uri:?})
def changed():
    found = {{}}
    h.block_status(8 << 20, 0, lambda context, offset, entries, error: found.update({{context: entries}}))
    return found
assert changed() == {{"lode:changed:monday": [8 << 20, 0], "base:allocation": [8 << 20, 3]}}, changed()
h.pwrite(b"x" * 4096, 4096)
assert changed()["lode:changed:monday"] == [4096, 0, 4096, 1, (8 << 20) - 8192, 0], changed()
import subprocess
for command in ["delete", "create"]:
    subprocess.run([{lode:?}, "snapshot", command, {disk:?}, "monday"], check=True, stdout=subprocess.DEVNULL)
    try:
        found = changed()
        assert False, found
    except nbd.Error:
        pass
assert h.pread(4096, 4096) == b"x" * 4096
"#,
        uri = serving.uri("data"),
        lode = env!("CARGO_BIN_EXE_lode"),
        disk = disk.display().to_string(),
    );
    let mut nbdsh = tool("nbdsh", "python3-libnbd");
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let own = Path::new(nbdsh.get_program()).parent().unwrap().to_owned();
    // It needs the Python that was packaged with it.
    let paths = std::env::join_paths(std::iter::once(own).chain(std::env::split_paths(&paths))).unwrap();
    good(nbdsh.env("PATH", paths).args(["-c", &script]));
    serving.stop();
}
