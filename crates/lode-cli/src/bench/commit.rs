//! `commit1`, `commit1x4`, `commit16`, `batch16`: durable commits against a raw log.

use super::place::Places;
use super::raw::{Buffered, Raw, noise, together};
use super::report::{Better, Case, Report, Samples};
use super::subject::{Data, Subject};
use super::{Settings, figure, interleave, seconds, wide};
use crate::failure::Result;
use crate::random::Random;
use lode::Survive;

const BLOCK: u64 = 4096;
/// Logical size of the volume that is written to; the disk is so large that nothing has to be cleaned (`clean` and
/// `stall` measure that).
const VOLUME: u64 = 1 << 30;

/// The disk, and the raw log beside it.
struct Pair {
    subject: Subject,
    raw: Raw,
    data: Data,
    _places: [super::place::Place; 2],
}

fn pair(settings: &Settings, places: &mut Places) -> Result<Pair> {
    let disk = places.take("disk", settings.pick(8 << 30, 1 << 30))?;
    let log = places.take("raw", settings.pick(1 << 30, 64 << 20))?;
    let volume = settings.pick(VOLUME, 128 << 20);
    let (subject, raw) = (Subject::in_place(&disk, volume)?, Raw::new(&log)?);
    let data = Data::new();
    subject.write_in_order(&data)?;
    Ok(Pair { subject, raw, data, _places: [disk, log] })
}

impl Pair {
    fn block(&self, random: &mut Random) -> u64 {
        random.below(self.subject.volume.bytes() / BLOCK) * BLOCK
    }

    /// One random block, durable, `count` times.
    fn single(&self, count: u64, seed: u64) -> Result<()> {
        let mut random = Random::new(seed);
        for turn in 0..count {
            let at = self.block(&mut random);
            let position = self.subject.volume.write_at(at, self.data.piece(turn, 4096))?;
            self.subject.disk.flush_up_to(position, Survive::Power)?;
        }
        Ok(())
    }

    /// A unit of 16 random blocks.
    fn sixteen(&self, random: &mut Random, turn: u64) -> Result<lode::Unit> {
        let mut unit = self.subject.disk.begin()?;
        for block in 0..16 {
            unit.write_at(&self.subject.volume, self.block(random), self.data.piece(turn * 16 + block, 4096))?;
        }
        Ok(unit)
    }
}

/// `commit1`.
pub fn single(settings: &Settings) -> Result<Report> {
    let mut places = Places::new(settings);
    let pair = pair(settings, &mut places)?;
    let place = places.take("buffered", settings.pick(1 << 30, 64 << 20))?;
    let buffered = Buffered::new(&place)?;
    let count = settings.pick(4000, 200);
    let (mut lode, mut log, mut in_place) = (Samples::default(), Samples::default(), Samples::default());
    interleave(
        settings.rounds,
        |round| {
            lode.push(figure(count) / seconds(|| pair.single(count, round.into()))?);
            Ok(())
        },
        |round| {
            log.push(pair.raw.durable_appends(4096, count, 1)?);
            in_place.push(buffered.durable_writes(count, round.into())?);
            Ok(())
        },
    )?;
    let mut report = Report::new("commit1");
    let case = "one random 4 KiB block, durable";
    let peer = "4 KiB direct appends, fdatasync each";
    report.cases.push(Case::against(
        format!("{case}, raw log"),
        "commits/s",
        lode.clone(),
        (peer, log),
        Better::Higher,
        0.90,
    ));
    let peer = "buffered pwrite in place, fdatasync each";
    report.cases.push(Case::against(
        format!("{case}, in place"),
        "commits/s",
        lode,
        (peer, in_place),
        Better::Higher,
        1.0,
    ));
    pair.subject.close()?;
    Ok(report)
}

/// `commit1x4`.
pub fn four_threads(settings: &Settings) -> Result<Report> {
    let pair = pair(settings, &mut Places::new(settings))?;
    let count = settings.pick(2000, 100);
    let (mut lode, mut log) = (Samples::default(), Samples::default());
    interleave(
        settings.rounds,
        |round| {
            let seed = |thread: usize| u64::from(round) << 8 | wide(thread);
            let took = seconds(|| together(4, |thread| pair.single(count, seed(thread))))?;
            lode.push(figure(4 * count) / took);
            Ok(())
        },
        |_| {
            log.push(pair.raw.durable_appends(4096, count, 4)?);
            Ok(())
        },
    )?;
    let mut report = Report::new("commit1x4");
    let peer = "4 threads, 4 KiB direct appends, fdatasync each";
    report.cases.push(Case::against(
        "one random 4 KiB block, durable, 4 threads",
        "commits/s",
        lode,
        (peer, log),
        Better::Higher,
        0.70,
    ));
    pair.subject.close()?;
    Ok(report)
}

/// `commit16`.
pub fn sixteen(settings: &Settings) -> Result<Report> {
    let pair = pair(settings, &mut Places::new(settings))?;
    let count = settings.pick(3000, 100);
    let (mut lode, mut log) = (Samples::default(), Samples::default());
    interleave(
        settings.rounds,
        |round| {
            let mut random = Random::new(round.into());
            let took = seconds(|| {
                for turn in 0..count {
                    pair.sixteen(&mut random, turn)?.commit_and_flush(Survive::Power)?;
                }
                Ok(())
            })?;
            lode.push(figure(count) / took);
            Ok(())
        },
        |_| {
            log.push(pair.raw.durable_appends(64 << 10, count, 1)?);
            Ok(())
        },
    )?;
    let mut report = Report::new("commit16");
    let peer = "64 KiB direct appends, fdatasync each";
    report.cases.push(Case::against(
        "unit of 16 random blocks, durable",
        "units/s",
        lode,
        (peer, log),
        Better::Higher,
        0.85,
    ));
    pair.subject.close()?;
    Ok(report)
}

/// `batch16`.
pub fn batch(settings: &Settings) -> Result<Report> {
    const FLUSH_EVERY: u64 = 1000;
    let pair = pair(settings, &mut Places::new(settings))?;
    let count = settings.pick(12_000, 1000);
    let (mut lode, mut log) = (Samples::default(), Samples::default());
    interleave(
        settings.rounds,
        |round| {
            let mut random = Random::new(round.into());
            let took = seconds(|| {
                for turn in 1..=count {
                    pair.sixteen(&mut random, turn)?.commit()?;
                    if turn % FLUSH_EVERY == 0 {
                        pair.subject.disk.flush(Survive::Power)?;
                    }
                }
                Ok(())
            })?;
            lode.push(figure(count) / took);
            Ok(())
        },
        |_| {
            // 1,000 units are 62.5 MiB: appended a mebibyte at a time, as a log that gathers would.
            let buffer = noise(1 << 20);
            let took = seconds(|| {
                for turn in 1..=count / 16 {
                    pair.raw.append(&buffer)?;
                    if turn % (FLUSH_EVERY / 16) == 0 {
                        pair.raw.sync()?;
                    }
                }
                pair.raw.sync()
            })?;
            log.push(figure(count / 16 * 16) / took);
            Ok(())
        },
    )?;
    let mut report = Report::new("batch16");
    let peer = "as many bytes, 1 MiB direct appends, fdatasync as often";
    report.cases.push(Case::against(
        "units of 16 random blocks, flush every 1000",
        "units/s",
        lode,
        (peer, log),
        Better::Higher,
        0.80,
    ));
    pair.subject.close()?;
    Ok(report)
}
