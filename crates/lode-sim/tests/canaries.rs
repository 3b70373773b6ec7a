//! Bugs planted in the engine and in the file system must be found: a simulator that finds none of them proves nothing.
//!
//! Run with `cargo test --release -p lode-sim --features planted --test canaries`. A bug is planted in one thread, so
//! each test runs its scripts in its own.
#![cfg(all(feature = "planted", not(feature = "explore")))]

use lode::planted::{Bug, set};
use lode_sim::files::enumerate;
use lode_sim::history::{Rule, check, draw, run};
use lode_sim::torture::{Plan, torture};

/// States that may be opened before the bug must have been found.
const BUDGET: u64 = 300_000;

/// Runs of the file system in which a bug must have been found, and the crashed disks of each.
const FILES_RUNS: u64 = 400;
const FILES_STATES: u64 = 150;

/// Runs on failing media in which a bug of reading must have been found.
const FAULT_RUNS: u64 = 500;

fn must_be_found(bug: Bug) {
    set(Some(bug));
    let plan = Plan {
        seed: 11,
        threads: 1,
        short_percent: 50,
        faults_percent: 10,
        concurrent_percent: 0,
        histories_percent: 0,
        ordered: true,
        begins: |_| {},
    };
    let outcome = torture(&plan, &|counts| counts.states + counts.second_states >= BUDGET);
    set(None);
    let states = outcome.counts.states + outcome.counts.second_states;
    let Some(finding) = outcome.findings.first() else {
        panic!("{bug:?} was not found in {states} states");
    };
    println!("{bug:?}: found after {states} states of {} scripts: {}", outcome.counts.scripts, finding.replay);
    println!("    {}", finding.words);
}

#[test]
fn a_flush_that_does_not_sync_is_found() {
    must_be_found(Bug::SkipSync);
}

#[test]
fn block_data_believed_unseen_is_found() {
    must_be_found(Bug::ChecksumMissesData);
}

#[test]
fn batches_of_ended_epochs_are_found() {
    must_be_found(Bug::OldBatchAccepted);
}

#[test]
fn a_zone_erased_too_early_is_found() {
    must_be_found(Bug::EraseTooEarly);
}

#[test]
fn zones_that_no_root_names_are_found() {
    must_be_found(Bug::GrowWithoutRoot);
}

#[test]
fn a_snapshot_apart_from_what_it_came_with_is_found() {
    must_be_found(Bug::EndingApart);
}

#[test]
fn a_snapshot_that_was_sent_and_is_lost_is_found() {
    must_be_found(Bug::SentNotDurable);
}

#[test]
fn an_exchange_in_two_commits_is_found() {
    must_be_found(Bug::SwapInTwo);
}

#[test]
fn blocks_referred_to_before_they_are_durable_are_found() {
    must_be_found(Bug::MovedNotSynced);
}

#[test]
fn reserved_space_that_is_refused_is_found() {
    must_be_found(Bug::ReservedAgain);
}

#[test]
fn snapshots_of_people_that_a_schedule_deletes_are_found() {
    must_be_found(Bug::SchedulesDeleteAll);
}

#[test]
fn blocks_read_unchecked_are_found() {
    set(Some(Bug::ReadUnchecked));
    let plan = Plan {
        seed: 11,
        threads: 1,
        short_percent: 0,
        faults_percent: 100,
        concurrent_percent: 0,
        histories_percent: 0,
        ordered: true,
        begins: |_| {},
    };
    let outcome = torture(&plan, &|counts| counts.fault_runs >= FAULT_RUNS);
    set(None);
    let runs = outcome.counts.fault_runs;
    let Some(finding) = outcome.findings.first() else { panic!("not found in {runs} runs on failing media") };
    println!("{:?}: found after {runs} runs on failing media: {}", Bug::ReadUnchecked, finding.replay);
    println!("    {}", finding.words);
}

/// Histories of clients in threads in which a bug of units must have been found. The explorer finds these too, and one
/// that real threads never meet (`tests/explore.rs`).
const HISTORIES: u64 = 3000;

fn history_must_tell(bug: Bug, rules: &[Rule]) {
    set(Some(bug));
    let anomaly = (0..HISTORIES).find_map(|seed| {
        let (setup, steps) = draw(seed);
        let history = run(&setup, &steps).unwrap_or_else(|words| panic!("seed {seed}: {words}"));
        check(&history).err().map(|anomaly| (seed, anomaly))
    });
    set(None);
    let Some((seed, anomaly)) = anomaly else { panic!("{bug:?} was not found in {HISTORIES} histories") };
    println!("{bug:?}: found in history {seed}: {anomaly}");
    assert!(rules.contains(&anomaly.rule), "{bug:?} was found as something else: {anomaly}");
}

#[test]
fn reads_that_are_not_noted_are_found() {
    history_must_tell(Bug::ReadsNotNoted, &[Rule::Serial]);
}

#[test]
fn a_commit_that_does_not_ask_what_others_wrote_is_found() {
    history_must_tell(Bug::WrittenNotAsked, &[Rule::FirstCommitter]);
}

#[test]
fn a_frozen_view_that_moves_is_found() {
    history_must_tell(Bug::FrozenMoves, &[Rule::Frozen]);
}

#[test]
fn conflicts_asked_for_too_early_are_found() {
    history_must_tell(Bug::ConflictsAskedEarly, &[Rule::FirstCommitter, Rule::Serial]);
}

#[test]
fn bugs_of_the_file_system_are_found() {
    use lode_fs::planted::{Bug, set};
    let all = [
        Bug::OperationInParts,
        Bug::OrphanNotMarked,
        Bug::TailLeft,
        Bug::ListGoesEarly,
        Bug::VersionsNotAsked,
        Bug::NamesNotAsked,
        Bug::BucketsNotTakenBack,
        Bug::MergedApart,
        Bug::WithinNotAsked,
        Bug::GatheredComesLate,
        Bug::GatheredNotSeen,
        Bug::NewNotFlushed,
        Bug::PiecesApart,
    ];
    for bug in all {
        set(Some(bug));
        let found = (0..FILES_RUNS).find_map(|seed| enumerate(seed, FILES_STATES).err());
        set(None);
        let Some(words) = found else { panic!("{bug:?} was not found in {FILES_RUNS} runs") };
        println!("{bug:?}: {}", words.chars().take(150).collect::<String>());
    }
}
