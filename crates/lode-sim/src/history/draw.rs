//! What clients do, drawn from a seed.

use super::{Setup, Step, Where};
use crate::rng::{Rng, mix, narrow};
use lode::{Survive, UnitConflicts, UnitView};

/// What all units of a run promise: most runs are of one kind, so that what one allows does not hide what another must
/// not.
#[derive(Clone, Copy)]
enum Kind {
    Serializable,
    FirstCommitter,
    Plain,
    Mixed,
}

fn options(rng: &mut Rng, kind: Kind) -> (UnitView, UnitConflicts) {
    let view = *rng.pick(&[UnitView::Moving, UnitView::Frozen, UnitView::Frozen, UnitView::Committed]);
    match kind {
        Kind::Serializable => (view, UnitConflicts::Read),
        Kind::FirstCommitter => (UnitView::Frozen, UnitConflicts::Written),
        Kind::Plain => (UnitView::Moving, UnitConflicts::Allowed),
        Kind::Mixed => (view, *rng.pick(&[UnitConflicts::Allowed, UnitConflicts::Written, UnitConflicts::Read])),
    }
}

/// The disk of a seed, and the steps of each client: for real threads.
pub fn draw(seed: u64) -> (Setup, Vec<Vec<Step>>) {
    drawn(Rng::new(mix(seed, 0x4157)), (2, 4), (20, 80))
}

/// Fewer clients that do less, for the schedule explorer.
pub fn draw_short(seed: u64) -> (Setup, Vec<Vec<Step>>) {
    let (setup, steps) = drawn(Rng::new(mix(seed, 0x4158)), (2, 3), (1, 3));
    (Setup { hesitates: false, ..setup }, steps)
}

fn drawn(mut rng: Rng, clients: (u64, u64), units: (u64, u64)) -> (Setup, Vec<Vec<Step>>) {
    let kind = *rng.pick(&[Kind::Serializable, Kind::FirstCommitter, Kind::Plain, Kind::Mixed]);
    let setup = Setup {
        registers: *rng.pick(&[2, 3, 6, 12]),
        lists: *rng.pick(&[0, 1, 2]),
        block_bytes: *rng.pick(&[64, 512, 1024]),
        zones: *rng.pick(&[40, 80]),
        background: rng.percent(60),
        unit_memory_bytes: *rng.pick(&[100, 1 << 20]),
        hesitates: rng.percent(80),
        seed: rng.word(),
    };
    let clients = rng.between(clients.0, clients.1);
    let steps = (0..clients).map(|_| {
        let mut rng = Rng::new(rng.word());
        let mut steps = Vec::new();
        for _ in 0..rng.between(units.0, units.1) {
            if rng.percent(70) { unit(&mut rng, &setup, kind, &mut steps) } else { steps.push(alone(&mut rng, &setup)) }
        }
        steps
    });
    let steps = steps.collect();
    (setup, steps)
}

fn range(rng: &mut Rng, setup: &Setup) -> (u32, u32) {
    let first = rng.below(u64::from(setup.registers));
    let most = *rng.pick(&[1, 1, 2, 4]);
    let count = rng.between(1, most.min(u64::from(setup.registers) - first));
    let small = |number: u64| u32::try_from(number).expect("few registers");
    (small(first), small(count))
}

fn list(rng: &mut Rng, setup: &Setup) -> u32 {
    u32::try_from(rng.below(u64::from(setup.lists))).expect("few lists")
}

fn small(rng: &mut Rng) -> u8 {
    u8::try_from(rng.below(8)).expect("below 8")
}

/// A read or a change.
fn act(rng: &mut Rng, setup: &Setup, steps: &mut Vec<Step>) {
    if setup.lists > 0 && rng.percent(25) {
        let list = list(rng, setup);
        steps.push(match rng.below(6) {
            0..=1 => Step::Look(list),
            2..=3 => Step::Insert(list, *rng.pick(&[Where::First, Where::Last, Where::Behind(0), Where::Behind(3)])),
            _ => Step::Remove(list, small(rng)),
        });
        return;
    }
    let (first, count) = range(rng, setup);
    steps.push(if rng.percent(55) { Step::Read(first, count) } else { Step::Write(first, count) });
}

fn unit(rng: &mut Rng, setup: &Setup, kind: Kind, steps: &mut Vec<Step>) {
    let (view, conflicts) = options(rng, kind);
    steps.push(Step::Begin(view, conflicts));
    for _ in 0..rng.between(1, 5) {
        act(rng, setup, steps);
    }
    steps.push(*rng.pick(&[Step::Commit, Step::Commit, Step::Commit, Step::Commit, Step::CommitAndFlush, Step::Abort]));
}

fn alone(rng: &mut Rng, setup: &Setup) -> Step {
    let mut steps = Vec::new();
    act(rng, setup, &mut steps);
    let upkeep =
        [Step::Maintain, Step::Clean, Step::Checkpoint, Step::Flush(Survive::Power), Step::Flush(Survive::Process)];
    if rng.percent(85) { steps[0] } else { upkeep[narrow(rng.below(5))] }
}
