//! `stall`: how long a commit waits while the disk cleans and takes checkpoints, and beside the commit of a large unit.

use super::place::{Place, Places};
use super::raw::Raw;
use super::report::{Better, Case, Report, Samples};
use super::subject::{Data, Subject};
use super::{Settings, figure, interleave, narrow, wide};
use crate::failure::Result;
use crate::random::Random;
use lode::Survive;
use std::sync::atomic::{AtomicBool, Ordering};
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
    let beside = Beside::new(settings, &places.take("beside", settings.pick(2 << 30, 256 << 20))?, &data)?;
    let before = subject.disk.counters();
    let count = settings.pick(15_000, 1000);
    let (mut durable, mut plain, mut peer) = (Samples::default(), Samples::default(), Samples::default());
    let mut near = Samples::default();
    interleave(
        settings.rounds,
        |round| {
            durable.push(ms(slowest(&subject, &data, count, round.into(), true)?));
            plain.push(ms(slowest(&subject, &data, count, round.into(), false)?));
            near.push(ms(beside.slowest(&data, round.into())?));
            Ok(())
        },
        |_| {
            peer.push(ms(raw.slowest_append(4096, count)?));
            Ok(())
        },
    )?;
    let after = subject.disk.counters();
    subject.close()?;
    beside.subject.close()?;
    let mut report = Report::new("stall");
    report.notes.push(format!(
        "while measuring, {:.0} MB were written by the user, {:.0} MB moved by the cleaner, {:.0} MB of checkpoints",
        figure(after.user_bytes - before.user_bytes) / 1e6,
        figure(after.cleaned_bytes - before.cleaned_bytes) / 1e6,
        figure(after.checkpoint_bytes - before.checkpoint_bytes) / 1e6
    ));
    let cases = [
        ("durable commit at 80 % full".to_owned(), durable),
        ("commit at 80 % full".to_owned(), plain),
        (format!("write beside the commit of {} blocks", beside.blocks), near),
    ];
    for (case, samples) in cases {
        // Not medians: no commit at all may wait so long.
        let worst: Samples = [samples.largest() - peer.largest()].into_iter().collect();
        let twin: Samples = [peer.largest()].into_iter().collect();
        report.notes.push(format!("{case}: slowest {:.2} ms; raw twin {:.2} ms", samples.largest(), peer.largest()));
        let name = "slowest of as many 4 KiB direct appends with fdatasync";
        let mut case = Case::absolute(
            format!("slowest {case}, above the raw twin's"),
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

/// A disk on which a large unit is committed while somebody else writes.
struct Beside {
    subject: Subject,
    blocks: u64,
}

impl Beside {
    fn new(settings: &Settings, place: &Place, data: &Data) -> Result<Beside> {
        let blocks = settings.pick(100_000, 5_000);
        let subject = Subject::in_place(place, settings.pick(512 << 20, 32 << 20))?;
        subject.write_in_order(data)?;
        Ok(Beside { subject, blocks })
    }

    /// The slowest simple write during the commit of a unit of random blocks.
    fn slowest(&self, data: &Data, seed: u64) -> Result<Duration> {
        let (disk, volume) = (&self.subject.disk, &self.subject.volume);
        let mut random = Random::new(seed);
        let mut blocks: Vec<u64> = (0..volume.bytes() / BLOCK).collect();
        let mut unit = disk.begin()?;
        for at in 0..self.blocks {
            let other = at + random.below(wide(blocks.len()) - at);
            blocks.swap(narrow(at), narrow(other));
            unit.write_at(volume, blocks[narrow(at)] * BLOCK, data.piece(at, 4096))?;
        }
        disk.flush(Survive::Power)?;
        let done = AtomicBool::new(false);
        let slowest = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let (mut slowest, mut turn) = (Duration::ZERO, 0);
                while !done.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    volume.write_at(blocks[turn % blocks.len()] * BLOCK, data.piece(0, 4096))?;
                    slowest = slowest.max(start.elapsed());
                    turn += 997;
                    std::thread::sleep(Duration::from_micros(100));
                }
                Ok(slowest)
            });
            std::thread::sleep(Duration::from_millis(20));
            let committed = unit.commit();
            done.store(true, Ordering::Relaxed);
            let slowest = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            committed?;
            slowest
        });
        disk.flush(Survive::Power)?;
        slowest
    }
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
