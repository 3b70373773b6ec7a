//! Clients at once, in threads of their own: what they were told keeps every promise.
#![cfg(not(feature = "explore"))]

use lode_sim::history::{check, draw, run};

/// Histories of an ordinary run. More: `torture --histories 100`.
const HISTORIES: u64 = 150;

#[test]
fn clients_at_once_see_what_one_disk_may_show() {
    let (mut committed, mut refused, mut reads) = (0, 0, 0);
    for seed in 0..HISTORIES {
        let (setup, steps) = draw(seed);
        let history = run(&setup, &steps).unwrap_or_else(|words| panic!("seed {seed}: {words}"));
        let summary = check(&history).unwrap_or_else(|anomaly| panic!("seed {seed}, {setup:?}: {anomaly}"));
        committed += summary.committed;
        refused += summary.refused;
        reads += summary.reads;
    }
    println!("{committed} committed, {refused} refused, {reads} reads");
    assert!(refused > HISTORIES, "clients that never meet prove nothing: only {refused} commits were refused");
}
