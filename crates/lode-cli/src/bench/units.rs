//! `units-many`: ten thousand units open at once, each of them writing.

use super::place::Places;
use super::report::{Better, Case, Report, Samples};
use super::subject::{Data, Subject};
use super::{Settings, figure, interleave, narrow, seconds};
use crate::failure::{Failure, Result};
use crate::random::Random;
use lode::{Survive, Unit};
use std::collections::VecDeque;

const BLOCK: u64 = 4096;
/// Units that end in a round.
const COUNT: u64 = 20_000;

/// Memory of this process that is not swapped out, in bytes.
fn resident() -> Result<f64> {
    let failed = |error| Failure::io("bench units-many: reading /proc/self/statm", error);
    let text = std::fs::read_to_string("/proc/self/statm").map_err(failed)?;
    let pages: u64 = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    Ok(figure(pages * 4096))
}

/// Units that stay open for a while: each writes one block when it begins.
struct Open<'a> {
    subject: &'a Subject,
    data: &'a Data,
    random: Random,
    units: VecDeque<Unit>,
}

impl Open<'_> {
    fn begin(&mut self) -> Result<()> {
        let at = self.random.below(self.subject.volume.bytes() / BLOCK) * BLOCK;
        let mut unit = self.subject.disk.begin()?;
        unit.write_at(&self.subject.volume, at, self.data.piece(at, 4096))?;
        self.units.push_back(unit);
        Ok(())
    }

    /// Units a second: the oldest is committed, a new one begins.
    fn round(&mut self, count: u64) -> Result<f64> {
        let took = seconds(|| {
            for _ in 0..count {
                if let Some(unit) = self.units.pop_front() {
                    unit.commit()?;
                }
                self.begin()?;
            }
            self.subject.disk.flush(Survive::Power)?;
            Ok(())
        })?;
        Ok(figure(count) / took)
    }
}

/// Runs the bench.
pub fn many(settings: &Settings) -> Result<Report> {
    let place = Places::new(settings).take("disk", settings.pick(4 << 30, 512 << 20))?;
    let subject = Subject::in_place(&place, settings.pick(1 << 30, 64 << 20))?;
    let data = Data::new();
    subject.write_in_order(&data)?;
    let open = |seed| Open { subject: &subject, data: &data, random: Random::new(seed), units: VecDeque::new() };
    let (mut one, mut many) = (open(1), open(2));
    let (units, count) = (settings.pick(10_000, 500), settings.pick(COUNT, 1000));
    one.begin()?;
    one.round(count)?; // What every disk needs is there by then.
    many.units.reserve(narrow(units) + 1);
    let before = resident()?;
    for _ in 0..units {
        many.begin()?;
    }
    let mut each = Samples::default();
    each.push((resident()? - before) / figure(units) - figure(BLOCK));
    let (mut with, mut alone) = (Samples::default(), Samples::default());
    interleave(
        settings.rounds,
        |_| {
            with.push(many.round(count)?);
            Ok(())
        },
        |_| {
            alone.push(one.round(count)?);
            Ok(())
        },
    )?;
    let mut report = Report::new("units-many");
    let case = format!("begin, write 4 KiB, commit, with {units} others open");
    report.cases.push(Case::against(case, "units/s", with, ("one at a time", alone), Better::Higher, 0.8));
    let case = format!("memory of each of {units} open units beyond the block that it wrote");
    report.cases.push(Case::absolute(case, "bytes", each, None, Better::Lower, 1024.0));
    drop((one, many));
    subject.close()?;
    Ok(report)
}
