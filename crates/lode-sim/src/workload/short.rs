//! Every sequence of one, two and three core operations over two or three blocks, from each start state.
//!
//! Studies of crash bugs found nearly all of them with three operations right after a point of persistence.

use super::{Erased, Fill, Geometry, Op, Script, ScriptId, ScriptOptions};
use crate::enumerate::guarded;
use crate::rng::{narrow, wide};
use crate::run::Run;
use crate::trace::{TraceOp, TracingMedium};
use lode_media::Medium;
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

/// How many short scripts there are.
pub fn short_scripts() -> u64 {
    SEQUENCES * STARTS
}

/// The short script of a number, which counts the starts fastest and one operation before two before three.
pub(super) fn short(number: u64) -> Script {
    let number = number % short_scripts();
    let start = number % STARTS;
    let mut sequence = number / STARTS;
    let mut length = 1;
    while sequence >= CORE.pow(length) {
        sequence -= CORE.pow(length);
        length += 1;
    }
    let mut ops = prelude(start);
    let prelude = ops.len();
    for place in 0..length {
        ops.extend(core(place).swap_remove(narrow(sequence % CORE)));
        sequence /= CORE;
    }
    ops.push(Op::ReadAll);
    shaped(ScriptId::Short(number), prelude, ops)
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
