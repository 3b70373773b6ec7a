//! `fill`: random 4 KiB writes over 4 GiB, flushed every 4,096, against 1 MiB direct writes in order.

use super::place::Places;
use super::raw::Raw;
use super::report::{Better, Case, Report, Samples};
use super::subject::{Data, Subject};
use super::{Settings, figure, interleave, seconds};
use crate::failure::Result;
use crate::random::Random;
use lode::Survive;

const BLOCK: u64 = 4096;
const FLUSH_EVERY: u64 = 4096;

/// Runs the bench.
pub fn run(settings: &Settings) -> Result<Report> {
    let bytes = settings.pick(4 << 30, 128 << 20);
    let mut places = Places::new(settings);
    let disk = places.take("disk", bytes + bytes / 2)?;
    let raw = Raw::new(&places.take("raw", bytes)?)?;
    let data = Data::new();
    let mut lode = Samples::default();
    let mut peers = [1, 4, 8].map(|depth| (depth, Samples::default()));
    let mut limit = Samples::default();
    interleave(
        settings.rounds,
        |round| {
            let subject = Subject::in_place(&disk, bytes)?;
            let took = seconds(|| random_writes(&subject, &data, bytes, round.into()))?;
            lode.push(figure(bytes) / took / 1e6);
            subject.close()
        },
        |_| {
            for (depth, samples) in &mut peers {
                samples.push(raw.in_order(bytes, *depth)? / 1e6);
            }
            limit.push(raw.in_order_on_huge_pages(bytes)? / 1e6);
            Ok(())
        },
    )?;
    let mut report = Report::new("fill");
    for (depth, samples) in &peers {
        report.notes.push(format!("raw writes in order, depth {depth}: {:.0} MB/s", samples.median()));
    }
    report.notes.push(format!("raw writes in order out of huge pages, as lode's are: {:.0} MB/s", limit.median()));
    let best = peers.into_iter().max_by(|a, b| a.1.median().total_cmp(&b.1.median()));
    if let Some((depth, samples)) = best {
        let name = format!("1 MiB direct writes in order, depth {depth}, fdatasync every 16 MiB");
        report.cases.push(Case::against(
            "random 4 KiB, flush every 4096",
            "MB/s",
            lode,
            (&name, samples),
            Better::Higher,
            0.90,
        ));
    }
    Ok(report)
}

fn random_writes(subject: &Subject, data: &Data, bytes: u64, seed: u64) -> Result<()> {
    let mut random = Random::new(seed);
    for turn in 1..=bytes / BLOCK {
        let at = random.below(bytes / BLOCK) * BLOCK;
        subject.volume.write_at(at, data.piece(turn, 4096))?;
        if turn % FLUSH_EVERY == 0 {
            subject.disk.flush(Survive::Power)?;
        }
    }
    subject.disk.flush(Survive::Power)?;
    Ok(())
}
