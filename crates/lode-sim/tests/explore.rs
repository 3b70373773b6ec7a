//! Small meetings of clients under a schedule explorer.
//!
//! `cargo test -p lode-sim --release --features explore --test explore`. A finding prints the schedule that makes it
//! again: `LODE_MEETING=... LODE_SCHEDULE=... cargo test ... --test explore`.
#![cfg(feature = "explore")]

use lode::{Survive, UnitConflicts, UnitView};
use lode_sim::history::{Meeting, Setup, Step, Where, draw_short};

/// Schedules of each meeting, in each of two ways.
const SCHEDULES: usize = 4000;
/// Meetings drawn from seeds.
const DRAWN: u64 = 500;
/// Schedules of each of these, in each of two ways.
const DRAWN_SCHEDULES: usize = 50;

const SETUP: Setup = Setup {
    registers: 2,
    lists: 0,
    block_bytes: 64,
    zones: 40,
    background: false,
    unit_memory_bytes: 1 << 20,
    hesitates: false,
    seed: 1,
};

fn meeting(name: &str, setup: Setup, clients: &[&[Step]]) -> Meeting {
    Meeting { name: name.to_owned(), setup, clients: clients.iter().map(|steps| steps.to_vec()).collect() }
}

/// Explores it, and says how long that took.
fn explored(meeting: &Meeting) {
    let start = std::time::Instant::now();
    let tried = meeting.explore(SCHEDULES, 7);
    println!("{}: {tried} schedules in {:.1} s", meeting.name, start.elapsed().as_secs_f64());
}

/// Two units that read both registers and write one each; the same one, or not.
fn two_units(name: &str, view: UnitView, conflicts: UnitConflicts, other: u32) -> Meeting {
    let unit = |register| {
        [Step::Begin(view, conflicts), Step::Read(0, 2), Step::Write(register, 1), Step::Read(0, 2), Step::Commit]
    };
    let reader = [Step::Read(0, 2), Step::Begin(view, conflicts), Step::Read(0, 1), Step::Read(1, 1), Step::Commit];
    meeting(name, SETUP, &[&unit(0), &unit(other), &reader])
}

fn first_committer() -> Meeting {
    two_units("the first committer wins", UnitView::Frozen, UnitConflicts::Written, 0)
}

fn serial() -> Meeting {
    two_units("units are serial", UnitView::Moving, UnitConflicts::Read, 1)
}

fn torn() -> Meeting {
    let writes = [Step::Write(0, 2), Step::Write(0, 2)];
    let reads = [Step::Read(0, 2), Step::Read(0, 2)];
    meeting("both registers at one moment", SETUP, &[&writes, &reads])
}

#[test]
fn units_that_write_one_register() {
    for conflicts in [UnitConflicts::Allowed, UnitConflicts::Written, UnitConflicts::Read] {
        for view in [UnitView::Moving, UnitView::Frozen, UnitView::Committed] {
            explored(&two_units(&format!("{view:?} view, conflicts {conflicts:?}"), view, conflicts, 0));
        }
    }
    explored(&first_committer());
    explored(&serial());
}
#[test]
fn reads_of_two_registers() {
    explored(&torn());
}

fn flushes(background: bool) -> Meeting {
    let commits = [
        Step::Begin(UnitView::Moving, UnitConflicts::Allowed),
        Step::Write(0, 2),
        Step::CommitAndFlush,
        Step::Write(1, 1),
        Step::Flush(Survive::Power),
    ];
    let flushes = [Step::Flush(Survive::Power), Step::Write(0, 1), Step::Flush(Survive::Process)];
    let reads = [Step::Read(0, 2), Step::Read(0, 2), Step::Flush(Survive::Power)];
    let name = if background { "the same with threads of the disk" } else { "a commit, a flush and a read" };
    meeting(name, Setup { background, ..SETUP }, &[&commits, &flushes, &reads])
}

#[test]
fn a_commit_a_flush_and_a_read() {
    explored(&flushes(false));
    explored(&flushes(true));
}

#[test]
fn a_spill_and_the_cleaner() {
    let setup = Setup { registers: 8, block_bytes: 1024, unit_memory_bytes: 100, ..SETUP };
    let spills = [
        Step::Begin(UnitView::Frozen, UnitConflicts::Written),
        Step::Write(0, 4),
        Step::Write(2, 4),
        Step::Read(0, 8),
        Step::Commit,
        Step::Read(0, 8),
    ];
    let cleans = [Step::Clean, Step::Maintain, Step::Checkpoint, Step::Clean];
    let writes = [Step::Write(1, 3), Step::Flush(Survive::Power), Step::Read(0, 8)];
    explored(&meeting("a spill and the cleaner", setup, &[&spills, &cleans, &writes]));
}

#[test]
fn an_insertion_and_a_removal() {
    let setup = Setup { lists: 1, ..SETUP };
    let fills =
        [Step::Insert(0, Where::First), Step::Insert(0, Where::Last), Step::Look(0), Step::Insert(0, Where::Behind(0))];
    let removes = [Step::Insert(0, Where::Last), Step::Look(0), Step::Remove(0, 0), Step::Look(0)];
    let unit = [
        Step::Begin(UnitView::Frozen, UnitConflicts::Read),
        Step::Look(0),
        Step::Insert(0, Where::First),
        Step::Look(0),
        Step::Commit,
    ];
    explored(&meeting("an insertion and a removal", setup, &[&fills, &removes, &unit]));
}

#[test]
fn a_large_commit_and_a_write() {
    let setup = Setup { registers: 96, unit_memory_bytes: 1000, ..SETUP };
    let odd = (0..48).map(|n| Step::Write(n * 2, 1));
    let unit = |view, conflicts| {
        let begin = [Step::Begin(view, conflicts)];
        begin.into_iter().chain(odd.clone()).chain([Step::Commit]).collect::<Vec<_>>()
    };
    let writes = [Step::Write(2, 3), Step::Read(0, 96), Step::Write(90, 1), Step::Read(0, 96)];
    let large = unit(UnitView::Moving, UnitConflicts::Allowed);
    explored(&meeting("a large commit and a write", setup, &[&large, &writes]));
    let frozen = unit(UnitView::Frozen, UnitConflicts::Written);
    explored(&meeting("two large commits and a write", setup, &[&large, &frozen, &writes]));
    let reached = lode::marks();
    for mark in ["unit: a block of a large commit changed while it was prepared", "unit: a large commit prepared again"]
    {
        assert!(reached.iter().any(|(name, _)| *name == mark), "no schedule reached {mark:?}");
    }
}

#[test]
fn meetings_drawn_from_seeds() {
    let mut tried = 0;
    for seed in 0..DRAWN {
        let (setup, clients) = draw_short(seed);
        tried += Meeting { name: format!("drawn from {seed}"), setup, clients }.explore(DRAWN_SCHEDULES, seed);
    }
    println!("{DRAWN} drawn meetings: {tried} schedules");
}

#[cfg(feature = "planted")]
mod canaries {
    //! Bugs planted in the engine must be found, some of which real threads hardly ever meet.

    use super::*;
    use lode::planted::{Bug, set};

    fn must_be_found(bug: Bug, meeting: &Meeting, part: &str) {
        set(Some(bug));
        let finding = meeting.finding(SCHEDULES, 7);
        set(None);
        let Some(words) = finding else { panic!("{bug:?} was not found in {SCHEDULES} schedules") };
        println!("{bug:?}: {words}");
        assert!(words.contains(part), "{bug:?} was found as something else: {words}");
    }

    #[test]
    fn reads_that_are_not_noted() {
        must_be_found(Bug::ReadsNotNoted, &serial(), "Serial");
    }

    #[test]
    fn a_commit_that_does_not_ask_what_others_wrote() {
        must_be_found(Bug::WrittenNotAsked, &first_committer(), "FirstCommitter");
    }

    #[test]
    fn a_frozen_view_that_moves() {
        must_be_found(Bug::FrozenMoves, &first_committer(), "Frozen");
    }

    #[test]
    fn conflicts_asked_for_too_early() {
        must_be_found(Bug::ConflictsAskedEarly, &first_committer(), "FirstCommitter");
        must_be_found(Bug::ConflictsAskedEarly, &serial(), "Serial");
    }

    #[test]
    fn a_read_in_pieces() {
        must_be_found(Bug::ReadInPieces, &torn(), "Moment");
    }

    #[test]
    fn a_sync_that_wakes_nobody() {
        must_be_found(Bug::SyncWakesNobody, &flushes(false), "deadlock");
        // The disk's own threads go on for ever.
        must_be_found(Bug::SyncWakesNobody, &flushes(true), "max_steps");
    }
}
