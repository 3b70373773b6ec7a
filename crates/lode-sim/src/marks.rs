//! Which branches of the engine a run must reach.
//!
//! The engine counts how often its rare branches are taken ([`lode::marks`]). An enumeration that never meets one of
//! them proves nothing about it, so `torture --must-reach` fails if one on its lists was not. A test holds the lists
//! against the engine's sources: every mark is on one of them.

use crate::torture::Plan;

/// Reached by every crash of the scripts.
pub const CRASHES: &[&str] = &[
    "cleaner: blocks put in the order of their lists",
    "lists: read ahead",
    "cleaner: cold block compressed",
    "cleaner: cold leaf loaded",
    "cleaner: scattered blocks brought together",
    "discard: space of free zones given back",
    "discard: zone made real again",
    "grow: a root names more zones",
    "lists: a unit looked again",
    "lists: looked for free numbers",
    "load: replayed discard on a cold leaf",
    "reader: valid batch behind the end",
    "read: window on the log",
    "receive: gone on with what was kept",
    "receive: what a crash left removed",
    "recovery: announced zone goes on behind the end",
    "recovery: announced zone holds no next segment",
    "recovery: block torn behind the witness",
    "recovery: nothing to replay",
    "recovery: operation without its end dropped",
    "recovery: sealed segment behind the witness",
    "recovery: segment walked",
    "roots: on to the other pair",
    "roots: root of an older filling",
    "schedule: snapshot deleted",
    "schedule: snapshot taken",
    "snapshot: layer handed to an older snapshot",
    "snapshot: layer made",
    "snapshot: layers merged",
    "space: checkpoint forced",
    "space: deleted list gone",
    "space: level told",
    "state: a section lacks a record older than those it lacked",
    "tables: cleaned",
    "unit: a block cut at the commit",
    "unit: a block folded since another change follows",
    "unit: a snapshot taken by a commit",
    "unit: barrier",
    "unit: base of a partial write changed meanwhile",
    "unit: committed in a chain of batches",
    "unit: conflict on an ordered list",
    "unit: conflict with a volume cut short",
    "unit: conflict with what others changed",
    "unit: its last block cut at the commit",
    "unit: reserved space on a full disk",
    "unit: shadow of a barrier that was never whole",
    "volume: stretches exchanged",
];

/// Reached by the runs on media that fail, whose scripts are longer.
pub const FAULTS: &[&str] = &[
    "checkpoint: sections given back",
    "cleaner: spilled block moved",
    "cleaner: zone set aside",
    "discard: failed, and given up",
    "latched after a failed append or sync",
    "open: refused, since a demanded position is missing",
    "open: refused, since the log is damaged",
    "reader: end of a zone unreadable",
    "reader: zone read sector by sector",
    "recovery: batch of an epoch newer than the root",
    "recovery: ended segment cut short",
    "recovery: log ends before what was durable",
    "recovery: newest root lost",
    "recovery: segment known by its footer",
    "repair: usage counted anew",
    "roots: both zones of a pair unreadable",
    "roots: zone unreadable",
    "space: flush forced",
    "tables: a copy is damaged",
    "tables: both copies damaged",
];

/// Not demanded of any run, and why.
pub const ELSEWHERE: &[(&str, &str)] = &[
    (
        "checkpoint: many records",
        "needs more records than a script has: `crates/lode/tests/engine/rules_tables.rs` reaches it",
    ),
    (
        "discard: no space to make a zone real again",
        "an erase must fail at one moment of few: `crates/lode/tests/engine/discard.rs` reaches it",
    ),
    (
        "load: section written again meanwhile",
        "needs two threads at one moment: a race, not a branch that a seed reaches",
    ),
    (
        "map: leaves dropped from memory",
        "needs more leaves than a small disk has: `crates/lode/tests/engine/memory.rs` reaches it",
    ),
    (
        "read: along",
        "needs a list of more than 4 MiB that is read in order in long reads: `crates/lode/tests/engine/along.rs` reaches it",
    ),
    ("read: blocks moved under a read", "needs two threads at one moment: a race, not a branch that a seed reaches"),
    (
        "recovery: footer lost, its batches are there",
        "one sector of few must rot: `crates/lode/tests/engine/rules_footer.rs` reaches it",
    ),
    ("recovery: gap between batches", "needs a footer that was made by hand: see the fuzz targets"),
    ("recovery: segment out of turn", "needs a root that was made by hand: see the fuzz targets"),
    ("space: cleaning is fruitless", "a promise is refused before: only zones set aside bring the cleaner that far"),
    (
        "recovery: end of the log unreadable",
        "one sector of thousands must become unreadable; `crates/lode-sim/tests/crashes.rs` replays such a run",
    ),
    (
        "space: new data waits for a root",
        "needs more segments than a small disk has: `crates/lode/tests/engine/grow.rs` reaches it",
    ),
    ("space: draining waits for the cleaner", "needs a disk that snapshots have filled to the last zones"),
    ("space: freed zones flushed for", "only two of many thousand fault runs spend all zones but those being freed"),
    ("space: keeper makes do with fewer zones", "the reserve is larger than what the keeper takes in one step"),
    ("space: reserve drawn on", "a promise is refused before: only zones set aside bring the cleaner that far"),
    (
        "cleaner: zone never written to",
        "needs a crash between two appends of the cleaner, and cleaning in the next opening",
    ),
    (
        "open: zone of a dropped operation withheld",
        "needs a sync in the middle of a long commit: `crates/lode/tests/engine/found.rs` reaches it",
    ),
    (
        "space: cleaned for a large commit",
        "needs a unit of more zones of records than the keeper holds ready: `crates/lode/tests/engine/found.rs` reaches it",
    ),
    (
        "space: zones gained in the middle of a checkpoint",
        "needs tables that are a large part of a full disk: `crates/lode/tests/engine/rules_space.rs` reaches it",
    ),
    (
        "unit: image that cannot be read",
        "its bytes must rot behind a checkpoint: `crates/lode/tests/engine/kept_units.rs` reaches it",
    ),
    (
        "unit: back at its last barrier",
        "needs a read that fails while a unit writes a part of a block: `crates/lode/tests/engine/barriers.rs` reaches it",
    ),
    (
        "repair: ordered lists left as they are",
        "both copies of a page must rot: `crates/lode/tests/engine/found.rs` reaches such",
    ),
    (
        "repair: ordered lists mended",
        "needs a repair of a disk with lists whose tables are of different times: `crates/lode/tests/engine/lists.rs` reaches it",
    ),
    (
        "tables: a damaged section left where it is",
        "both copies of a page must rot: `crates/lode/tests/engine/found.rs` reaches it",
    ),
    (
        "space: deleted list with a damaged map left as it is",
        "both copies of a page must rot: `crates/lode/tests/engine/found.rs` reaches it",
    ),
    ("space: root written in the middle of a checkpoint", "the reserve is larger than what one checkpoint takes"),
    ("space: zone for tables freed on demand", "the reserve is larger than what one checkpoint takes"),
    (
        "space: dead zones looked through in the middle of a checkpoint",
        "the reserve is larger than what one checkpoint takes",
    ),
    (
        "unit: a block of a large commit changed while it was prepared",
        "needs two threads at one moment: `crates/lode-sim/tests/explore.rs` reaches it",
    ),
    (
        "unit: a large commit prepared again",
        "needs two threads at one moment: `crates/lode-sim/tests/explore.rs` reaches it",
    ),
    (
        "receive: what can never count dropped",
        "nothing changes between two streams of the model that follow each other: `crates/lode/tests/engine/received.rs` reaches it",
    ),
    (
        "receive: no room for a barrier",
        "nothing changes between two streams of the model that follow each other: `crates/lode/tests/engine/received.rs` reaches it",
    ),
    ("unit: cut block changed meanwhile", "needs two threads at one moment: a race, not a branch that a seed reaches"),
];

/// What a plan has to reach, as far as it runs such scripts, and did not.
pub fn missing(plan: &Plan) -> Vec<&'static str> {
    let reached = lode::marks();
    let crashes =
        if plan.faults_percent + plan.concurrent_percent + plan.histories_percent < 100 { CRASHES } else { &[] };
    let faults = if plan.faults_percent > 0 { FAULTS } else { &[] };
    let wanted = crashes.iter().chain(faults).copied();
    wanted.filter(|name| !reached.iter().any(|(mark, _)| mark == name)).collect()
}

#[cfg(test)]
mod tests {
    use super::{CRASHES, ELSEWHERE, FAULTS};
    use std::collections::BTreeSet;
    use std::path::Path;

    fn marked_in(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).expect("the engine's sources are there") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                marked_in(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = std::fs::read_to_string(&path).expect("sources are text");
                let names = text.split("mark(\"").skip(1).filter_map(|rest| rest.split('"').next());
                found.extend(names.map(str::to_owned));
            }
        }
    }

    #[test]
    fn every_mark_of_the_engine_is_listed_once() {
        let mut found = BTreeSet::new();
        marked_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../lode/src"), &mut found);
        let elsewhere = ELSEWHERE.iter().map(|(name, _)| *name);
        let listed: Vec<&str> = CRASHES.iter().chain(FAULTS).copied().chain(elsewhere).collect();
        let once: BTreeSet<String> = listed.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(once.len(), listed.len(), "a mark is listed twice");
        assert_eq!(found, once);
    }
}
