//! `read-cold`, `read-hot`: random 4 KiB reads, from the device and from the block cache.

use super::place::Places;
use super::raw::{Raw, together};
use super::report::{Better, Case, Report, Samples};
use super::subject::{Data, Subject};
use super::{Settings, figure, interleave, seconds, wide};
use crate::failure::Result;
use crate::random::Random;
use lode::Volume;
use std::ops::ControlFlow;

const BLOCK: u64 = 4096;

fn reads(volume: &Volume, within: u64, count: u64, seed: u64) -> Result<()> {
    let mut random = Random::new(seed);
    let mut buffer = vec![0; 4096];
    for _ in 0..count {
        volume.read_at(random.below(within / BLOCK) * BLOCK, &mut buffer)?;
    }
    Ok(())
}

/// `read-cold`. The volume is far larger than the cache.
pub fn cold(settings: &Settings) -> Result<Report> {
    let bytes = settings.pick(4 << 30, 256 << 20);
    let mut places = Places::new(settings);
    let place = places.take("disk", bytes + bytes / 2)?;
    let peer_place = places.take("raw", bytes)?;
    let subject = Subject::in_place(&place, bytes)?;
    subject.write_in_order(&Data::new())?;
    let raw = Raw::new(&peer_place)?;
    let mut report = Report::new("read-cold");
    for depth in [1, 16] {
        let count = settings.pick(20_000, 500) / if depth == 1 { 1 } else { 4 };
        let (mut lode, mut peer) = (Samples::default(), Samples::default());
        let total = figure(count * wide(depth));
        interleave(
            settings.rounds,
            |round| {
                let seed = |thread: usize| u64::from(round) << 16 | wide(thread);
                let took = seconds(|| together(depth, |thread| reads(&subject.volume, bytes, count, seed(thread))))?;
                lode.push(total / took);
                Ok(())
            },
            |round| {
                peer.push(raw.random_reads(count, depth, round.into())?);
                Ok(())
            },
        )?;
        let name = format!("direct pread, {depth} at once");
        let case = format!("random 4 KiB, depth {depth}");
        report.cases.push(Case::against(case, "reads/s", lode, (&name, peer), Better::Higher, 0.90));
    }
    subject.close()?;
    Ok(report)
}

/// `recluster`. Reading in order, as it was written and after random overwrites and a pass that brings the volume
/// together again.
pub fn recluster(settings: &Settings) -> Result<Report> {
    let bytes = settings.pick(2 << 30, 128 << 20);
    let place = Places::new(settings).take("disk", settings.pick(8 << 30, 1 << 30))?;
    let subject = Subject::in_place(&place, bytes)?;
    let data = Data::new();
    let in_order = || {
        let mut samples = Samples::default();
        for _ in 0..settings.rounds {
            let took = seconds(|| {
                together(4, |thread| {
                    let mut piece = vec![0; 1 << 20];
                    for at in (wide(thread) << 20..bytes).step_by(4 << 20) {
                        subject.volume.read_at(at, &mut piece)?;
                    }
                    Ok(())
                })
            })?;
            samples.push(figure(bytes >> 20) / took);
        }
        Ok::<Samples, crate::failure::Failure>(samples)
    };
    subject.write_in_order(&data)?;
    let before = in_order()?;
    let mut random = Random::new(4);
    for turn in 0..bytes / BLOCK {
        subject.volume.write_at(random.below(bytes / BLOCK) * BLOCK, data.piece(turn, 4096))?;
    }
    subject.disk.flush(lode::Survive::Power)?;
    let scattered = in_order()?;
    subject.disk.recluster("bench", &mut |_, _| ControlFlow::Continue(()))?;
    subject.disk.flush(lode::Survive::Power)?;
    let after = in_order()?;
    let mut report = Report::new("recluster");
    report.notes.push(format!("scattered by random overwrites: {:.0} MiB/s", scattered.median()));
    let case = "read in order, 1 MiB, depth 4, after random overwrites and one pass";
    report.cases.push(Case::against(case, "MiB/s", after, ("the same before", before), Better::Higher, 0.90));
    subject.close()?;
    Ok(report)
}

/// `read-hot`. Everything read is in the cache.
pub fn hot(settings: &Settings) -> Result<Report> {
    const HOT: u64 = 16 << 20;
    let count = settings.pick(1_000_000, 20_000);
    let place = Places::new(settings).take("disk", settings.pick(1 << 30, 256 << 20))?;
    let subject = Subject::in_place(&place, HOT)?;
    subject.write_in_order(&Data::new())?;
    // Once over everything, so that the cache has seen each block.
    let mut buffer = vec![0; 4096];
    for _ in 0..2 {
        for block in 0..HOT / BLOCK {
            subject.volume.read_at(block * BLOCK, &mut buffer)?;
        }
    }
    let mut lode = Samples::default();
    for round in 0..settings.rounds {
        let took = seconds(|| reads(&subject.volume, HOT, count, round.into()))?;
        lode.push(took * 1e6 / figure(count));
    }
    let mut report = Report::new("read-hot");
    report.cases.push(Case::absolute("random 4 KiB from the cache", "us", lode, None, Better::Lower, 1.5));
    subject.close()?;
    Ok(report)
}
