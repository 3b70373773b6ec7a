//! Every sequence of one, two and three core operations over two or three blocks, from each start state.
//!
//! Studies of crash bugs found nearly all of them with three operations right after a point of persistence.

use super::{Erased, Fill, Geometry, Op, Script, ScriptId, ScriptOptions};
use crate::enumerate::guarded;
use crate::rng::{narrow, wide};
use crate::run::Run;
use crate::script::{ScheduleDraw, StreamDraw};
use crate::trace::{TraceOp, TracingMedium};
use lode_media::Medium;
use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};

/// The block of the short scripts' volume.
const BLOCK: u64 = 256;

/// The size of the volume: three blocks to work on, the rest to fill the disk with.
const BYTES: u64 = 160 * BLOCK;

/// The core operations: [`CORE`] of them. Some are a few calls, which make one step only together.
fn core(unit: u32) -> Vec<Vec<Op>> {
    let write = |block: u64, blocks: u64| Op::Write(0, block * BLOCK, blocks * BLOCK, Fill::Noise);
    let begun = |last: Op| {
        let first = Op::UnitWrite(unit, 0, 0, BLOCK, Fill::Noise);
        vec![Op::Begin(unit), first, Op::UnitWrite(unit, 0, 2 * BLOCK, BLOCK, Fill::Pattern), last]
    };
    vec![
        vec![write(0, 1)],
        vec![write(1, 1)],
        vec![write(0, 3)],
        vec![Op::Write(0, BLOCK - 3, 6, Fill::Noise)],
        vec![Op::Flush],
        begun(Op::Commit(unit)),
        begun(Op::CommitAndFlush(unit)),
        begun(Op::Abort(unit)),
        vec![Op::Discard(0, 0, 2 * BLOCK)],
        vec![Op::Maintain],
        vec![Op::Checkpoint],
        vec![Op::Resize(0, BLOCK), Op::Resize(0, BYTES)],
        vec![
            Op::Create { volume: 1, bytes: 2 * BLOCK, block_bytes: 128, compressed: true },
            Op::Write(1, 0, 300, Fill::Mixed),
        ],
        vec![Op::Delete(1)],
        // Cut short, then perhaps grown again; deleted, then perhaps made again: the commit is a conflict.
        vec![
            Op::Begin(unit),
            Op::UnitWrite(unit, 0, 2 * BLOCK, BLOCK, Fill::Noise),
            Op::Resize(0, 2 * BLOCK),
            Op::Commit(unit),
            Op::Resize(0, BYTES),
        ],
        vec![
            Op::Create { volume: 1, bytes: 2 * BLOCK, block_bytes: 128, compressed: false },
            Op::Begin(unit),
            Op::UnitWrite(unit, 0, 0, BLOCK, Fill::Noise),
            Op::UnitWrite(unit, 1, 0, 300, Fill::Mixed),
            Op::Delete(1),
            Op::Commit(unit),
        ],
        vec![Op::Kill],
        vec![Op::Reopen],
    ]
}

const CORE: u64 = 18;
const STARTS: u64 = 5;
const SEQUENCES: u64 = CORE + CORE * CORE + CORE * CORE * CORE;

/// Operations that were added later: [`LATER`] of them. Numbers of scripts without them stay what they were.
fn later() -> Vec<Vec<Op>> {
    let scheduled = |kind, picks| Op::Schedules(ScheduleDraw { kind, picks });
    let stream = |kind, picks| Op::Stream(StreamDraw { kind, picks });
    vec![
        vec![Op::Grow(2)],
        // A copy, and what has changed since, twice: a second time it is there already, or the disk is full.
        vec![
            Op::TakeSnapshot(0, Some(0)),
            stream(9, [0, 1, 1, 0, 1, 1]),
            Op::Write(0, BLOCK, BLOCK, Fill::Noise),
            Op::TakeSnapshot(1, Some(0)),
            stream(9, [0, 1, 2, 1, 1, 1]),
        ],
        vec![Op::Swap((0, 0), (0, 2 * BLOCK), 2 * BLOCK)],
        // Over two volumes, parts of blocks.
        vec![
            Op::Create { volume: 1, bytes: 2 * BLOCK, block_bytes: 128, compressed: false },
            Op::Swap((0, BLOCK - 9), (1, 60), 300),
        ],
        vec![Op::Recluster(0, 255)],
        // Reserved, then everything else taken by others.
        vec![
            Op::Reserve(0, 4, 256),
            Op::FillUp(0),
            Op::Spend { reservation: 0, volume: 0, first: 0, blocks: 3, each: 2 },
        ],
        // One is kept: the second run takes one and deletes one.
        vec![
            scheduled(0, [0, 0, 0, 0]),
            scheduled(5, [1, 1, 0, 0]),
            Op::Write(0, 0, BLOCK, Fill::Noise),
            scheduled(5, [1, 1, 0, 0]),
        ],
    ]
}

const LATER: u64 = 7;

/// The most operations of a sequence.
const LENGTH: u32 = 3;

/// How many sequences of a length have their first later operation at a place.
fn later_sequences(length: u32, place: u32) -> u64 {
    CORE.pow(place) * LATER * (CORE + LATER).pow(length - 1 - place)
}

/// How many short scripts there are.
pub fn short_scripts() -> u64 {
    let places = (1..=LENGTH).flat_map(|length| (0..length).map(move |place| later_sequences(length, place)));
    (SEQUENCES + places.sum::<u64>()) * STARTS
}

/// The short script of a number, which counts the starts fastest and one operation before two before three; those with
/// later operations follow.
pub(super) fn short(number: u64) -> Script {
    let number = number % short_scripts();
    let (start, sequence) = (number % STARTS, number / STARTS);
    let mut ops = prelude(start);
    let prelude = ops.len();
    let mut all = [core(0), core(1), core(2)].map(|core| core.into_iter().chain(later()).collect::<Vec<_>>());
    for (place, at) in sequence_of(sequence).into_iter().enumerate() {
        ops.append(&mut all[place][narrow(at)]);
    }
    ops.push(Op::ReadAll);
    shaped(ScriptId::Short(number), prelude, ops)
}

/// The operations of a sequence, by their numbers: those of the core, then the later ones.
fn sequence_of(mut sequence: u64) -> Vec<u64> {
    let digits = |mut number: u64, bases: &[u64]| {
        let digit = |base: &u64| {
            let digit = number % base;
            number /= base;
            digit
        };
        bases.iter().map(digit).collect::<Vec<u64>>()
    };
    for length in 1..=LENGTH {
        if sequence < CORE.pow(length) {
            return digits(sequence, &vec![CORE; narrow(length.into())]);
        }
        sequence -= CORE.pow(length);
    }
    for length in 1..=LENGTH {
        for first in 0..length {
            if sequence < later_sequences(length, first) {
                let base = |place: u32| match place.cmp(&first) {
                    Ordering::Less => CORE,
                    Ordering::Equal => LATER,
                    Ordering::Greater => CORE + LATER,
                };
                let bases: Vec<u64> = (0..length).map(base).collect();
                let mut found = digits(sequence, &bases);
                found[narrow(first.into())] += CORE;
                return found;
            }
            sequence -= later_sequences(length, first);
        }
    }
    unreachable!("numbers are taken modulo the number of scripts")
}

fn shaped(id: ScriptId, prelude: usize, ops: Vec<Op>) -> Script {
    let geometry = Geometry { zones: lode::SMALLEST_ZONES.max(16), zone_bytes: 4096, append_align: 128, devices: 1 };
    let options = ScriptOptions {
        cache_bytes: 0,
        write_buffer_bytes: 16 << 10,
        unit_memory_bytes: 300,
        checkpoint_window_bytes: Some(16 << 10),
        discard: false,
    };
    Script { id, geometry, erased: Erased::Old, options, prelude, ops }
}

/// Brings the disk into a start state: fresh; in the middle of a segment; one operation before the next segment; one
/// before cleaning; full.
fn prelude(start: u64) -> Vec<Op> {
    let mut ops = vec![Op::Create { volume: 0, bytes: BYTES, block_bytes: 256, compressed: false }];
    match start {
        0 => {}
        1 => ops.extend((0..3).map(steady)),
        2 => ops.extend((0..turning_points().segment).map(steady)),
        3 => ops.extend((0..turning_points().cleaning).map(steady)),
        _ => ops.push(Op::FillUp(0)),
    }
    if start != 2 && start != 3 {
        ops.push(Op::Flush);
    }
    ops
}

/// The n-th of the writes that bring a disk to its turning points: half of the volume, again and again.
fn steady(at: u64) -> Op {
    Op::Write(0, (at * 7 % (BYTES / BLOCK / 2)) * BLOCK, BLOCK, Fill::Noise)
}

/// After how many of the steady writes the next one does something rare.
struct TurningPoints {
    segment: u64,
    cleaning: u64,
}

/// Found by trying, once: where the turning points lie is the engine's affair.
fn turning_points() -> &'static TurningPoints {
    static FOUND: OnceLock<TurningPoints> = OnceLock::new();
    FOUND.get_or_init(|| guarded(|| Ok(try_steadily())).unwrap_or(TurningPoints { segment: 10, cleaning: 90 }))
}

fn try_steadily() -> TurningPoints {
    let mut found = TurningPoints { segment: 10, cleaning: 90 };
    let mut ops = vec![Op::Create { volume: 0, bytes: BYTES, block_bytes: 256, compressed: false }];
    ops.extend((0..1500).map(steady));
    let script = shaped(ScriptId::Short(0), 0, ops);
    let recorder = Arc::new(TracingMedium::new(script.geometry, script.erased));
    let mut run = Run::new(&script, Arc::clone(&recorder) as Arc<dyn Medium>, Some(Arc::clone(&recorder)));
    let mut segment_seen = false;
    if run.start().is_err() {
        return found;
    }
    for at in 0..script.ops.len() {
        let before = recorder.recorded();
        if run.op(at).is_err() {
            break;
        }
        let erased = recorder.ops()[before..].iter().any(|op| matches!(op, TraceOp::Erase(_)));
        let writes = wide(at).saturating_sub(1);
        if erased && !segment_seen && writes >= 6 {
            segment_seen = true;
            found.segment = writes;
        }
        if run.disk().is_some_and(|disk| disk.counters().cleaned_bytes > 0) {
            found.cleaning = writes;
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{CORE, LATER, LENGTH, SEQUENCES, STARTS, core, later, sequence_of, short_scripts};
    use std::collections::BTreeSet;

    #[test]
    fn every_sequence_is_there_once_and_those_of_old_come_first() {
        assert_eq!((core(0).len(), later().len()), (18, usize::try_from(LATER).expect("few")));
        let all: Vec<Vec<u64>> = (0..short_scripts() / STARTS).map(sequence_of).collect();
        let (old, new) = all.split_at(usize::try_from(SEQUENCES).expect("few"));
        assert!(old.iter().flatten().all(|op| *op < CORE) && new.iter().all(|ops| ops.iter().any(|op| *op >= CORE)));
        assert_eq!(old[..2], [vec![0], vec![1]]);
        assert_eq!(old[18 + 18 * 18 + 5 + 18 * 3], [5, 3, 0]);
        let many = (1..=LENGTH).map(|length| (CORE + LATER).pow(length)).sum::<u64>();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), usize::try_from(many).expect("few"));
        assert_ne!(short_scripts() % 7919, 0, "a stride of this visits all of them");
    }
}
