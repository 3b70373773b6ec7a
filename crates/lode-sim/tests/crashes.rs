//! A little of everything that `torture` does, for every run of the tests. More: `torture --time 10m`.
#![cfg(not(feature = "explore"))]

use lode_sim::enumerate::{Replay, Settings, enumerate, replay};
use lode_sim::script::ScriptId;
use lode_sim::torture::{Outcome, Plan, torture};

fn quietly(plan: Plan, scripts: u64) -> Outcome {
    let outcome = torture(&plan, &|counts| counts.scripts + counts.fault_runs >= scripts);
    if let Some(finding) = outcome.findings.first() {
        panic!("{}\nreplay with: torture --replay {}", finding.words, finding.replay);
    }
    outcome
}

#[test]
fn random_scripts_survive_every_crash() {
    let outcome = quietly(
        Plan {
            seed: 1,
            threads: 2,
            short_percent: 0,
            faults_percent: 0,
            concurrent_percent: 0,
            histories_percent: 0,
            ordered: true,
            begins: |_| {},
        },
        24,
    );
    assert!(outcome.counts.images > 10_000, "only {} images", outcome.counts.images);
    assert!(outcome.counts.second_states > 1_000, "only {} second crashes", outcome.counts.second_states);
    assert!(outcome.counts.full > 0, "no disk was full");
    assert!(lode::marks().iter().any(|(mark, _)| *mark == "discard: space of free zones given back"));
}

#[test]
fn short_scripts_survive_every_crash() {
    let outcome = quietly(
        Plan {
            seed: 1,
            threads: 2,
            short_percent: 100,
            faults_percent: 0,
            concurrent_percent: 0,
            histories_percent: 0,
            ordered: true,
            begins: |_| {},
        },
        60,
    );
    assert!(outcome.counts.complete_cuts > 100, "only {} cuts exhausted", outcome.counts.complete_cuts);
}

#[test]
fn media_that_fail_are_survived() {
    let outcome = quietly(
        Plan {
            seed: 1,
            threads: 2,
            short_percent: 0,
            faults_percent: 100,
            concurrent_percent: 0,
            histories_percent: 0,
            ordered: true,
            begins: |_| {},
        },
        120,
    );
    assert!(outcome.counts.faults > 100, "only {} faults", outcome.counts.faults);
}

#[test]
fn the_same_script_gives_the_same_numbers() {
    let id = ScriptId::Random(77);
    let run = || enumerate(id, &Settings::of(id)).map(|counts| (counts.states, counts.images, counts.second_states));
    let (one, other) = (run().expect("no finding"), run().expect("no finding"));
    assert_eq!(one, other);
}

#[test]
fn a_crash_replays_from_its_string() {
    let words: Replay = "s3/60/".parse().expect("a replay");
    replay(&words, &Settings::of(words.script)).expect("no finding");
}

/// Each of these was a finding once.
#[test]
fn what_was_found_stays_fixed() {
    for found in [
        // A checkpoint ran out of zones for tables, and the root that it wrote to free some passed over what it was
        // writing. What a large commit folded late was lacking, and a newer record had touched the same section before:
        // the root began its replay behind it.
        "r134001234882594/312/0.0.0.0.0",
        "r199537327585942/232/0.0.0",
        // In the model: a unit held a block in which its volume came to end.
        "f269635929210128",
        // A volume was cut and grew again: an older snapshot saw what came later; then so after layers were merged.
        "f217491787321339",
        "f53703852197723",
        // Layers and snapshots took tables that nobody was charged for.
        "r146664133718450",
        "r192384296190834",
        "f224265056267379",
        // The cleaner did not know the blocks of a layer that was being drained.
        "r202972209794909",
        // A sector that could not be read where the next batch would be kept the disk from being opened read-only.
        "f43804649688376",
        // Tables found no zone while many were dead and only not looked through.
        "r118859355385388",
        // A footer that is lost was put back at the very end of the log, where the next opening could not do so.
        "f24628955007417",
        // The commit of a discard asked for twice the zones that it could need, which a full disk with a snapshot had not.
        "f157208475119511",
        // In the harness: no volume could be made after a crash on a full disk, and none was there.
        "r60064838975500/401/0.0.0.0.0.0/p/18/",
        // A unit took for damage what others had changed in a list since it last looked.
        "f28923187447355",
        // In the harness: the image of a unit was read wrong once, and its disk taken for another.
        "f269631634457116",
        // A barrier that a crash kept from being whole left a shadow of a deleted volume: the unit could not be committed.
        "r143747125759298",
        // A unit that made a volume longer and wrote behind its old end was refused, as if others had written there.
        "f42846119745785",
        // A root was written while a page of the directory found no room: what its old version names was freed.
        "r189878275232847",
    ] {
        let words: Replay = found.parse().expect("a replay");
        replay(&words, &Settings::of(words.script)).unwrap_or_else(|finding| panic!("{found}: {}", finding.words));
    }
}

#[test]
fn clients_in_threads_survive_every_crash() {
    let plan = Plan {
        seed: 1,
        threads: 2,
        short_percent: 0,
        faults_percent: 0,
        concurrent_percent: 100,
        histories_percent: 0,
        ordered: true,
        begins: |_| {},
    };
    let outcome = torture(&plan, &|counts| counts.concurrent_runs >= 20);
    println!("seed {}", plan.seed);
    if let Some(finding) = outcome.findings.first() {
        panic!("{}\nseed {}, try again with: torture --replay {}", finding.words, plan.seed, finding.replay);
    }
    assert!(outcome.counts.states > 1_000, "only {} images", outcome.counts.states);
}
