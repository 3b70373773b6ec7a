//! Modules of the engine have a rank and use those of lower rank only.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The modules by rank, bottom up. `lib.rs` names the same ones; rustfmt sorts them there.
const ORDER: [&str; 32] = [
    "sync",
    "marks",
    "planted",
    "types",
    "error",
    "record",
    "format",
    "packed",
    "shape",
    "map",
    "zones",
    "log",
    "fold",
    "state",
    "ordered",
    "objects",
    "roots",
    "recovery",
    "disk",
    "checkpoint",
    "cleaner",
    "keeper",
    "unit",
    "volume",
    "lists",
    "file_lists",
    "reservation",
    "together",
    "units",
    "stream",
    "check",
    "inspect",
];

/// Files that may use a module that comes later. An entry that is not needed any more fails the test.
///
/// All are one knot: a disk hands out volumes and units, these hold the disk, a unit writes to volumes, and a long
/// write to a volume is a unit. The files in `disk` are its public calls; the rest of `disk` knows neither.
const UPWARD: [(&str, &str); 11] = [
    ("disk/open.rs", "unit"),
    ("disk/open.rs", "volume"),
    ("disk/units.rs", "unit"),
    ("disk/volumes.rs", "unit"),
    ("disk/volumes.rs", "volume"),
    ("unit.rs", "volume"),
    ("unit/commit.rs", "volume"),
    ("unit/copy.rs", "volume"),
    ("unit/lists.rs", "volume"),
    ("unit/read.rs", "volume"),
    ("unit/seek.rs", "volume"),
];

fn files(below: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(below).expect("the sources are there").map(|entry| entry.expect("readable").path()) {
        if entry.is_dir() {
            files(&entry, into);
        } else if entry.extension().is_some_and(|found| found == "rs") && !entry.ends_with("lib.rs") {
            into.push(entry);
        }
    }
}

/// The modules that a file names after `crate::`; a name that `lib.rs` exports stands for the module it comes from.
fn used<'a>(text: &'a str, lib: &'a str) -> impl Iterator<Item = &'a str> {
    let name = |text: &'a str| text.split(|c: char| c != '_' && !c.is_alphanumeric()).next().unwrap_or_default();
    let exported = move |name: &str| {
        let words = |line: &str| line.split(|c: char| c != '_' && !c.is_alphanumeric()).any(|word| word == name);
        let line = lib.lines().find(|line| line.starts_with("pub") && line.contains(" use ") && words(line));
        line.and_then(|line| line.split_once(" use ")?.1.split_once("::")).map(|(module, _)| module)
    };
    let names =
        text.split("crate::").skip(1).map(name).inspect(|name| assert!(!name.is_empty(), "a group after crate::"));
    names.map(move |name| exported(name).filter(|_| !lib.contains(&format!("mod {name};"))).unwrap_or(name))
}

#[test]
fn no_module_uses_one_that_comes_later() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lib = std::fs::read_to_string(source.join("lib.rs")).expect("the sources are there");
    let named = lib.lines().filter_map(|line| line.split_once("mod ")?.1.strip_suffix(';'));
    assert_eq!(
        named.collect::<BTreeSet<_>>(),
        BTreeSet::from(ORDER),
        "left: the modules of lib.rs; right: those with a rank"
    );
    let rank = |module: &str| ORDER.iter().position(|known| *known == module);
    let (mut paths, mut upward) = (Vec::new(), Vec::new());
    files(&source, &mut paths);
    for path in
        paths.iter().filter(|path| !path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests")))
    {
        let file = path.strip_prefix(&source).expect("below the sources").to_string_lossy().into_owned();
        let own = file.split(['/', '.']).next().and_then(rank).expect("every file belongs to a module");
        for module in used(&std::fs::read_to_string(path).expect("readable"), &lib) {
            let other = rank(module).unwrap_or_else(|| panic!("{file}: crate::{module} is no module of lib.rs"));
            if other > own && !upward.contains(&(file.clone(), module.to_owned())) {
                upward.push((file.clone(), module.to_owned()));
            }
        }
    }
    upward.sort();
    let allowed: Vec<(String, String)> = UPWARD.map(|(file, module)| (file.to_owned(), module.to_owned())).to_vec();
    assert_eq!(upward, allowed, "left: what is used upward now; right: what may be");
}
