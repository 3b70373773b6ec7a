//! The file system against the model, and its crashes. More: `FILES_SEED=1000 FILES_COUNT=500 cargo test --release -p lode-sim
//! --test files -- --nocapture`.
#![allow(clippy::unwrap_used)]
#![cfg(not(feature = "explore"))]

use lode_sim::files::{Counts, enumerate};

#[test]
fn after_every_crash_the_tree_is_what_it_was_after_some_operation() {
    let (first, count) = match std::env::var("FILES_SEED") {
        Ok(seed) => (seed.parse().unwrap(), std::env::var("FILES_COUNT").map_or(1, |count| count.parse().unwrap())),
        Err(_) => (0, 100),
    };
    let mut all = Counts::default();
    for seed in first..first + count {
        let counts = enumerate(seed, 1200).unwrap_or_else(|words| panic!("{words}"));
        all.runs += counts.runs;
        all.ops += counts.ops;
        all.states += counts.states;
        all.images += counts.images;
        all.full += counts.full;
        all.checked += counts.checked;
        all.committed += counts.committed;
        all.conflicts += counts.conflicts;
        all.within += counts.within;
        all.gathered += counts.gathered;
    }
    println!("{all:?}");
    let enough = all.states >= 50_000 && all.committed > 50 && all.conflicts > 50 && all.within > 20;
    assert!(count < 100 || enough && all.gathered > 300, "{all:?}");
}

/// On a full disk a removal was refused: what is held for removals had been given up when it could not be filled whole.
#[test]
fn what_was_found_stays_fixed() {
    enumerate(1198, 50).unwrap_or_else(|words| panic!("{words}"));
}
