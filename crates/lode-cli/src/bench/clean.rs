//! `clean`: write amplification of a full disk that is overwritten, and the share of checkpoints.
//!
//! The medium is memory, so that only the engine is measured. A disk is filled to a share of `usable`,
//! then overwritten at random until two windows in a row agree; the figures are of the last windows.

use super::memory::in_memory;
use super::report::{Better, Case, Report, Samples};
use super::subject::Subject;
use super::{Settings, figure, narrow, wide};
use crate::failure::Result;
use crate::random::Random;
use crate::size;
use lode::Survive;
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;
/// The engine promises this share of the bytes left for blocks and their records (R28); *full* is measured against all.
const PROMISED: f64 = 0.95;
/// Windows that a figure is the median of.
const WINDOWS: usize = 5;

/// What one window of overwriting cost.
#[derive(Clone, Copy)]
struct Window {
    /// All bytes given to the medium, over the user's.
    amplification: f64,
    /// The share of them that checkpoints are.
    checkpoints: f64,
}

/// Runs the bench.
pub fn run(settings: &Settings) -> Result<Report> {
    // Amplification depends on the number of zones, not on their size: the smaller image settles four times as soon.
    let (whole, image) = settings.pick((16 << 30, 4 << 30), (1 << 30, 256 << 20));
    let budget = Duration::from_secs(settings.pick(34, 5));
    let mut report = Report::new("clean");
    report.cases.push(overhead(whole, &mut report.notes)?);
    let cases = [("uniform", 0.70, 2.0), ("uniform", 0.80, 2.9), ("uniform", 0.90, 5.7), ("skewed", 0.80, 2.0)];
    for (kind, full, bar) in cases {
        let skewed = kind == "skewed";
        let windows = overwrite(image, full, skewed, budget, &mut report.notes).unwrap_or_else(|failure| {
            // A case without figures is a missed one; the others still count.
            report.notes.push(format!("{kind} {:.0} %: FAILED: {}", full * 100.0, failure.words()));
            Vec::new()
        });
        let percent = full * 100.0;
        let case = match skewed {
            false => format!("uniform overwrites, {percent:.0} % full"),
            true => format!("90 % of overwrites to 10 % of blocks, {percent:.0} % full"),
        };
        let samples = windows.iter().map(|window| window.amplification).collect();
        report.cases.push(Case::absolute(case, "bytes/byte", samples, None, Better::Lower, bar));
        if !skewed {
            let case = format!("checkpoints, {percent:.0} % full");
            let samples = windows.iter().map(|window| window.checkpoints * 100.0).collect();
            report.cases.push(Case::absolute(case, "% of bytes written", samples, None, Better::Lower, 2.0));
        }
    }
    Ok(report)
}

/// How many blocks there is room for, once everything else is off.
fn room(image: u64) -> Result<u64> {
    let subject = in_memory(image, 1 << 30)?;
    let block = [0x5a; 4096];
    for at in 0..1024 {
        subject.volume.write_at(at * BLOCK, &block)?;
    }
    let info = subject.disk.info()?;
    subject.close()?;
    // A block is charged with its records and its share of the tables.
    let charge = figure(info.live) / figure(info.blocks.max(1));
    Ok(share(info.usable, 1.0 / PROMISED / charge))
}

/// What of an image is not left for block data.
fn overhead(image: u64, notes: &mut Vec<String>) -> Result<Case> {
    let left = room(image)? * BLOCK;
    let percent = figure(image - left) * 100.0 / figure(image);
    let (all, left) = (size::show(image), size::show(left));
    notes.push(format!("of an image of {all}, {left} are left for block data; full means full of that"));
    notes.push("overwrites are measured on an image of as many zones, a quarter as large".into());
    let samples: Samples = [percent].into_iter().collect();
    Ok(Case::absolute(
        "roots, reserves, sections, headers, footers",
        "% of the image",
        samples,
        None,
        Better::Lower,
        7.0,
    ))
}

fn overwrite(image: u64, full: f64, skewed: bool, budget: Duration, notes: &mut Vec<String>) -> Result<Vec<Window>> {
    let start = Instant::now();
    let blocks = share(room(image)?, full);
    let subject = in_memory(image, blocks * BLOCK)?;
    fill(&subject)?;
    let mut random = Random::new(5);
    let mut windows: Vec<Window> = Vec::new();
    // A window is a tenth of what lives; the first ones still see the order of the filling.
    while !(settled(&windows) || start.elapsed() > budget && windows.len() >= WINDOWS) {
        windows.push(window(&subject, &mut random, blocks, skewed)?);
    }
    let (figures, seconds) = (windows.len(), start.elapsed().as_secs_f64());
    let kind = if skewed { "skewed" } else { "uniform" };
    let how = if settled(&windows) { "settled" } else { "NOT SETTLED, out of time" };
    notes.push(format!(
        "{kind} {:.0} %: {how} after {figures} windows of 10 % of the data, {seconds:.0} s",
        full * 100.0
    ));
    subject.close()?;
    Ok(windows.split_off(windows.len() - WINDOWS))
}

/// Whether the last windows agree with those before them.
fn settled(windows: &[Window]) -> bool {
    let mean = |windows: &[Window]| {
        windows.iter().map(|window| window.amplification).sum::<f64>() / figure(wide(windows.len()))
    };
    let n = windows.len();
    n >= 30 && (mean(&windows[n - WINDOWS..]) / mean(&windows[n - 2 * WINDOWS..n - WINDOWS]) - 1.0).abs() < 0.005
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count is a count")]
fn share(count: u64, of: f64) -> u64 {
    (figure(count) * of) as u64
}

fn fill(subject: &Subject) -> Result<()> {
    const PIECE: u64 = 1 << 20;
    let content = vec![0x5a; narrow(PIECE)];
    let mut at = 0;
    while at < subject.volume.bytes() {
        let piece = PIECE.min(subject.volume.bytes() - at);
        subject.volume.write_at(at, &content[..narrow(piece)])?;
        at += piece;
    }
    subject.disk.flush(Survive::Power)?;
    Ok(())
}

fn window(subject: &Subject, random: &mut Random, blocks: u64, skewed: bool) -> Result<Window> {
    let content = [0x5a; 4096];
    let (appended, counters) = (subject.medium.appended(), subject.disk.counters());
    let writes = blocks / 10;
    for _ in 0..writes {
        let hot = skewed && random.below(10) < 9;
        let block = match (skewed, hot) {
            (false, _) => random.below(blocks),
            (true, true) => random.below(blocks / 10),
            (true, false) => blocks / 10 + random.below(blocks - blocks / 10),
        };
        subject.volume.write_at(block * BLOCK, &content)?;
    }
    subject.disk.flush(Survive::Power)?;
    let appended = figure(subject.medium.appended() - appended);
    let checkpoints = figure(subject.disk.counters().checkpoint_bytes - counters.checkpoint_bytes);
    Ok(Window { amplification: appended / figure(writes * BLOCK), checkpoints: checkpoints / appended })
}
