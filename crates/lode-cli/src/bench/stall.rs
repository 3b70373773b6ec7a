//! `stall`: how long a commit waits while the disk cleans and takes checkpoints.

use super::place::Places;
use super::raw::Raw;
use super::report::{Better, Case, Report, Samples};
use super::subject::{Data, Subject};
use super::{Settings, figure, interleave};
use crate::failure::Result;
use crate::random::Random;
use lode::Survive;
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;
/// How much longer than the slowest write of the raw twin a commit may wait.
const BAR_MS: f64 = 10.0;

/// Runs the bench.
pub fn run(settings: &Settings) -> Result<Report> {
    let image = settings.pick(2 << 30, 512 << 20);
    let mut places = Places::new(settings);
    let place = places.take("disk", image)?;
    let raw_place = places.take("raw", settings.pick(1 << 30, 64 << 20))?;
    let raw = Raw::new(&raw_place)?;
    let usable = {
        let subject = Subject::in_place(&place, BLOCK)?;
        let usable = subject.disk.info()?.usable;
        subject.close()?;
        usable
    };
    let subject = Subject::in_place(&place, usable / 10 * 8 / BLOCK * BLOCK)?;
    let data = Data::new();
    subject.write_in_order(&data)?;
    overwrite_until_cleaning(&subject, &data, image)?;
    let before = subject.disk.counters();
    let count = settings.pick(15_000, 1000);
    let (mut durable, mut plain, mut peer) = (Samples::default(), Samples::default(), Samples::default());
    interleave(
        settings.rounds,
        |round| {
            durable.push(ms(slowest(&subject, &data, count, round.into(), true)?));
            plain.push(ms(slowest(&subject, &data, count, round.into(), false)?));
            Ok(())
        },
        |_| {
            peer.push(ms(raw.slowest_append(4096, count)?));
            Ok(())
        },
    )?;
    let after = subject.disk.counters();
    subject.close()?;
    let mut report = Report::new("stall");
    report.notes.push(format!(
        "while measuring, {:.0} MB were written by the user, {:.0} MB moved by the cleaner, {:.0} MB of checkpoints",
        figure(after.user_bytes - before.user_bytes) / 1e6,
        figure(after.cleaned_bytes - before.cleaned_bytes) / 1e6,
        figure(after.checkpoint_bytes - before.checkpoint_bytes) / 1e6
    ));
    for (case, samples) in [("durable commit", durable), ("commit", plain)] {
        // Not medians: no commit at all may wait so long.
        let worst: Samples = [samples.largest() - peer.largest()].into_iter().collect();
        let twin: Samples = [peer.largest()].into_iter().collect();
        report.notes.push(format!("{case}: slowest {:.2} ms; raw twin {:.2} ms", samples.largest(), peer.largest()));
        let name = "slowest of as many 4 KiB direct appends with fdatasync";
        let mut case = Case::absolute(
            format!("slowest {case} at 80 % full, above the raw twin's"),
            "ms",
            worst,
            Some((name, twin)),
            Better::Lower,
            BAR_MS,
        );
        case.rounds = usize::try_from(settings.rounds).unwrap_or(usize::MAX);
        report.cases.push(case);
    }
    Ok(report)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Writes as much as the image holds, so that no zone is left that was never used.
fn overwrite_until_cleaning(subject: &Subject, data: &Data, image: u64) -> Result<()> {
    let mut random = Random::new(9);
    for turn in 0..image / BLOCK {
        let at = random.below(subject.volume.bytes() / BLOCK) * BLOCK;
        subject.volume.write_at(at, data.piece(turn, 4096))?;
    }
    subject.disk.flush(Survive::Power)?;
    Ok(())
}

/// The slowest of `count` commits of one random block.
fn slowest(subject: &Subject, data: &Data, count: u64, seed: u64, durable: bool) -> Result<Duration> {
    let mut random = Random::new(seed);
    let mut slowest = Duration::ZERO;
    for turn in 0..count {
        let at = random.below(subject.volume.bytes() / BLOCK) * BLOCK;
        let start = Instant::now();
        let mut unit = subject.disk.begin()?;
        unit.write_at(&subject.volume, at, data.piece(turn, 4096))?;
        if durable {
            unit.commit_and_flush(Survive::Power)?;
        } else {
            unit.commit()?;
        }
        slowest = slowest.max(start.elapsed());
    }
    subject.disk.flush(Survive::Power)?;
    Ok(slowest)
}
