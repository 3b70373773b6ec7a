//! `unit`: what begin and commit cost above the same simple write.

use super::place::Places;
use super::raw::together;
use super::report::{Better, Case, Report, Samples};
use super::subject::{Data, Subject};
use super::{Settings, figure, interleave, seconds, wide};
use crate::failure::Result;
use crate::random::Random;
use lode::Survive;
use std::sync::{Barrier, Mutex, PoisonError};

const BLOCK: u64 = 4096;
/// Written over and over: small enough to stay in the write buffer's way of replacing blocks.
const VOLUME: u64 = 64 << 20;
/// By all threads in a round: less than a batch, so that appending and flushing, which are not measured, fall between
/// rounds.
const COUNT: u64 = 192;
/// Not measured either: what a flush has driven out of the processor's caches comes back.
const WARMING: u64 = 32;

/// Runs the bench.
pub fn run(settings: &Settings) -> Result<Report> {
    let place = Places::new(settings).take("disk", settings.pick(4 << 30, 256 << 20))?;
    let subject = Subject::in_place(&place, VOLUME)?;
    let data = Data::new();
    subject.write_in_order(&data)?;
    let mut report = Report::new("unit");
    let (bar_alone, bar_together) = (300.0, 600.0);
    for (threads, bar) in [(1, bar_alone), (2, bar_together)] {
        let (simple, unit) = measure(settings, &subject, &data, threads)?;
        let above: Samples = simple.iter().zip(&unit).map(|(simple, unit)| unit - simple).collect();
        report
            .notes
            .push(format!("{threads} threads: spread of what begin and commit add {above}", above = show(&above)));
        let case = format!("begin and commit, {threads} threads, above the simple write");
        let peer: Samples = simple.into_iter().collect();
        report.cases.push(Case::absolute(case, "ns", above, Some(("the same simple write", peer)), Better::Lower, bar));
    }
    subject.close()?;
    Ok(report)
}

fn show(samples: &Samples) -> String {
    format!("{:.0} to {:.0} ns", samples.least(), samples.largest())
}

/// Nanoseconds of a simple write and of a unit with one, for each round.
fn measure(settings: &Settings, subject: &Subject, data: &Data, threads: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    // Many short rounds: the difference of two small figures needs them.
    let rounds = settings.rounds * settings.pick(100, 2);
    let (mut simple, mut unit) = (Vec::new(), Vec::new());
    interleave(
        rounds,
        |round| {
            unit.push(slowest(threads, |thread, count| {
                units(subject, data, u64::from(round) << 8 | wide(thread), count)
            })?);
            subject.disk.flush(Survive::Power)?;
            Ok(())
        },
        |round| {
            simple.push(slowest(threads, |thread, count| {
                writes(subject, data, u64::from(round) << 8 | wide(thread), count)
            })?);
            subject.disk.flush(Survive::Power)?;
            Ok(())
        },
    )?;
    Ok((simple, unit))
}

/// Nanoseconds a write, for the slowest of the threads; all begin together.
fn slowest(threads: usize, work: impl Fn(usize, u64) -> Result<()> + Sync) -> Result<f64> {
    let count = COUNT / wide(threads);
    let (start, slowest) = (Barrier::new(threads), Mutex::new(0.0_f64));
    together(threads, |thread| {
        work(thread, WARMING / wide(threads))?;
        start.wait();
        let took = seconds(|| work(thread, count))?;
        let mut slowest = slowest.lock().unwrap_or_else(PoisonError::into_inner);
        *slowest = slowest.max(took);
        Ok(())
    })?;
    Ok(slowest.into_inner().unwrap_or_else(PoisonError::into_inner) * 1e9 / figure(count))
}

fn writes(subject: &Subject, data: &Data, seed: u64, count: u64) -> Result<()> {
    let mut random = Random::new(seed);
    for turn in 0..count {
        subject.volume.write_at(random.below(VOLUME / BLOCK) * BLOCK, data.piece(turn, 4096))?;
    }
    Ok(())
}

fn units(subject: &Subject, data: &Data, seed: u64, count: u64) -> Result<()> {
    let mut random = Random::new(seed);
    for turn in 0..count {
        let at = random.below(VOLUME / BLOCK) * BLOCK;
        let mut unit = subject.disk.begin()?;
        unit.write_at(&subject.volume, at, data.piece(turn, 4096))?;
        unit.commit()?;
    }
    Ok(())
}
