//! `large-file`: a file of a gibibyte is written and read in pieces of 8 KiB, in order and at random, and read in order
//! again: at once, and when nobody has worked for a while, in which Lode is mounted with `-o reorganize`. Every piece is
//! written once in each order. Nothing is in a cache when reading begins, everything is durable when writing ends.

use super::super::memory::scattered;
use super::super::report::{Better, Case, Report, Samples};
use super::super::subject::Data;
use super::super::{figure, seconds, wide};
use super::compare::{Figure, measure};
use super::mounted::Mounted;
use super::side::Side;
use super::stage::Stage;
use super::{Settings, tree};
use crate::failure::Result;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

const PIECE: usize = 8 << 10;
/// The last reading in order, compared with the first.
const AGAIN: f64 = 0.9;
/// Which phases that are.
const FIRST: usize = 1;
const LAST: [usize; 2] = [4, 5];
/// So long nobody works before the last one: twice as long as Lode waits before it makes use of that.
const REST: Duration = Duration::from_secs(20);

/// Which piece is next.
type Order = fn(u64, u64) -> u64;

fn in_order(turn: u64, _: u64) -> u64 {
    turn
}

/// What is done, in turn.
const PHASES: [(&str, bool, Order); 6] = [
    ("write in order", true, in_order),
    ("read in order", false, in_order),
    ("write at random", true, scattered),
    ("read at random", false, scattered),
    ("read in order again", false, in_order),
    ("read in order after a rest", false, in_order),
];

/// Runs the bench.
pub fn run(stage: &Stage, settings: &Settings) -> Result<Report> {
    let bytes: u64 = settings.pick(1 << 30, 32 << 20);
    let figures: Vec<Figure> =
        PHASES.iter().map(|(phase, ..)| Figure::high(format!("{phase}, {} MiB", bytes >> 20), "MB/s", 1.0)).collect();
    let judge = settings.against.unwrap_or(Side::Passthrough);
    let sides = stage.sides(&Side::ALL, judge)?;
    let data = Data::new();
    let measured = measure(stage, settings, &sides, figures.len(), |mounted| {
        phases(mounted, bytes, settings.pick(REST, Duration::ZERO), &data)
    })?;
    let mut report = Report::new("large-file");
    measured.report(&mut report, &figures, judge);
    for (side, at) in measured.lode().flat_map(|side| LAST.map(|at| (side, at))) {
        let (Some(first), Some(last)) = (measured.samples(side, FIRST), measured.samples(side, at)) else { continue };
        let again: Samples = last.iter().zip(first.iter()).map(|(last, first)| last / first).collect();
        let case = format!("{}, of the first, {}", PHASES[at].0, side.name());
        report.cases.push(Case::absolute(case, "ratio", again, None, Better::Higher, AGAIN));
    }
    Ok(report)
}

fn phases(mounted: &mut Mounted<'_>, bytes: u64, rest: Duration, data: &Data) -> Result<Vec<f64>> {
    let path = mounted.path().join("large");
    let pieces = bytes / wide(PIECE);
    let mut found = Vec::new();
    for (phase, (_, writes, order)) in PHASES.into_iter().enumerate() {
        if phase == PHASES.len() - 1 && !rest.is_zero() {
            mounted.rest(rest)?;
        }
        mounted.cool()?;
        let failed = tree::failed(&path);
        let file = if writes {
            File::options().write(true).create(true).truncate(false).open(&path).map_err(&failed)?
        } else {
            File::open(&path).map_err(&failed)?
        };
        let mut into = vec![0; PIECE];
        let took = seconds(|| {
            for turn in 0..pieces {
                let at = order(turn, pieces) * wide(PIECE);
                let done = if writes {
                    file.write_all_at(data.piece(turn, PIECE), at)
                } else {
                    file.read_exact_at(&mut into, at)
                };
                done.map_err(&failed)?;
            }
            if writes { file.sync_all().map_err(&failed) } else { Ok(()) }
        })?;
        found.push(figure(bytes) / 1e6 / took);
    }
    Ok(found)
}
