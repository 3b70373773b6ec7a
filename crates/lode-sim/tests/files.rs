//! The file system against the model, and its crashes.
#![allow(clippy::unwrap_used)]
#![cfg(not(feature = "explore"))]

use lode_sim::files::{Counts, enumerate};

#[test]
fn after_every_crash_the_tree_is_what_it_was_after_some_operation() {
    let (first, count) = match std::env::var("FILES_SEED") {
        Ok(seed) => (seed.parse().unwrap(), std::env::var("FILES_COUNT").map_or(1, |count| count.parse().unwrap())),
        Err(_) => (0, 60),
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
    }
    println!("{all:?}");
}
