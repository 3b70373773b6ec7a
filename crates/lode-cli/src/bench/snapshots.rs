//! `snapshot`, `after-snapshot`, `snapshots-1000`: what old versions cost.

use super::place::Places;
use super::raw::together;
use super::report::{Better, Case, Report, Samples};
use super::subject::{Data, Subject};
use super::{Settings, figure, interleave, seconds};
use crate::failure::Result;
use crate::random::Random;
use lode::{Compression, Disk, SnapshotOptions, Survive, Volume, VolumeOptions};
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCK: u64 = 4096;

fn subject(settings: &Settings, volume: u64) -> Result<(Subject, super::place::Place)> {
    let place = Places::new(settings).take("disk", settings.pick(8 << 30, 1 << 30))?;
    Ok((Subject::in_place(&place, volume)?, place))
}

fn take(disk: &Disk, name: &str, of: &[&str]) -> Result<()> {
    let volumes = of.iter().map(|name| (*name).to_owned()).collect();
    disk.take_snapshot(name, &SnapshotOptions { volumes, made: 0 })?;
    Ok(())
}

/// Deletes a snapshot and waits until its space is back.
fn forget(disk: &Disk, name: &str) -> Result<()> {
    disk.delete_snapshot(name)?;
    while disk.maintain()? {}
    Ok(())
}

/// Random overwrites of single blocks, then a flush.
fn overwrite(disk: &Disk, volume: &Volume, data: &Data, count: u64, seed: u64) -> Result<f64> {
    let mut random = Random::new(seed);
    let took = seconds(|| {
        for turn in 0..count {
            let at = random.below(volume.bytes() / BLOCK) * BLOCK;
            volume.write_at(at, data.piece(turn, 4096))?;
        }
        disk.flush(Survive::Power)?;
        Ok(())
    })?;
    Ok(figure(count) / took)
}

/// `snapshot`: how long it takes to take one, idle and while somebody writes as fast as the disk can.
pub fn take_one(settings: &Settings) -> Result<Report> {
    let (subject, _place) = subject(settings, settings.pick(2 << 30, 128 << 20))?;
    let data = Data::new();
    let takes = |count: u64, kind: &str, into: &mut Samples| {
        for n in 0..count {
            let name = format!("{kind}{n}");
            into.push(seconds(|| take(&subject.disk, &name, &[]))? * 1e6);
            std::thread::sleep(std::time::Duration::from_millis(2));
            forget(&subject.disk, &name)?;
        }
        Ok::<(), crate::failure::Failure>(())
    };
    let count = settings.pick(100, 5);
    let [mut empty, mut full, mut busy] = <[Samples; 3]>::default();
    takes(count, "empty", &mut empty)?;
    subject.write_in_order(&data)?;
    takes(count, "full", &mut full)?;
    let done = AtomicBool::new(false);
    let busy_samples = std::sync::Mutex::new(Samples::default());
    together(2, |thread| {
        if thread == 0 {
            while !done.load(Ordering::Relaxed) {
                overwrite(&subject.disk, &subject.volume, &data, 4096, 1)?;
            }
            return Ok(());
        }
        let mut samples = Samples::default();
        let taken = takes(count, "busy", &mut samples);
        *busy_samples.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = samples;
        done.store(true, Ordering::Relaxed);
        taken
    })?;
    std::mem::swap(&mut busy, &mut busy_samples.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    let mut report = Report::new("snapshot");
    for (case, samples) in
        [("take, empty disk", empty), ("take, volume written", full), ("take, while another thread overwrites", busy)]
    {
        report.cases.push(Case::absolute(case, "us", samples, None, Better::Lower, 1000.0));
    }
    subject.close()?;
    Ok(report)
}

/// `after-snapshot`: random overwrites right after a snapshot was taken, against before.
pub fn after(settings: &Settings) -> Result<Report> {
    let (subject, _place) = subject(settings, settings.pick(2 << 30, 128 << 20))?;
    let data = Data::new();
    subject.write_in_order(&data)?;
    let count = settings.pick(65_536, 2048);
    let (mut after, mut before) = (Samples::default(), Samples::default());
    interleave(
        settings.rounds,
        |round| {
            take(&subject.disk, "s", &[])?;
            after.push(overwrite(&subject.disk, &subject.volume, &data, count, round.into())?);
            forget(&subject.disk, "s")
        },
        |round| {
            before.push(overwrite(&subject.disk, &subject.volume, &data, count, round.into())?);
            Ok(())
        },
    )?;
    let mut report = Report::new("after-snapshot");
    let peer = ("lode without a snapshot", before);
    let case = "random 4 KiB overwrites, flushed at the end, right after a snapshot";
    report.cases.push(Case::against(case, "writes/s", after, peer, Better::Higher, 0.85));
    subject.close()?;
    Ok(report)
}

/// `snapshots-1000`: one volume with a thousand snapshots, one with none, on the same disk.
pub fn thousand(settings: &Settings) -> Result<Report> {
    let (subject, _place) = subject(settings, settings.pick(1 << 30, 64 << 20))?;
    let data = Data::new();
    subject.write_in_order(&data)?;
    let options = VolumeOptions { bytes: subject.volume.bytes(), block_bytes: 4096, compression: Compression::None };
    let many = subject.disk.create_volume("many", &options)?;
    for at in (0..many.bytes()).step_by(1 << 20) {
        many.write_at(at, data.piece(at, 1 << 20))?;
    }
    for n in 0..settings.pick(1000, 20) {
        take(&subject.disk, &format!("s{n}"), &["many"])?;
        overwrite(&subject.disk, &many, &data, 64, n)?;
    }
    let count = settings.pick(16_384, 512);
    let mut samples: [Samples; 4] = Default::default();
    let [write_many, write_none, read_many, read_none] = &mut samples;
    let read = |volume: &Volume, seed: u32| {
        let mut random = Random::new(seed.into());
        let mut block = vec![0; 4096];
        let took = seconds(|| {
            for _ in 0..count {
                volume.read_at(random.below(volume.bytes() / BLOCK) * BLOCK, &mut block)?;
            }
            Ok(())
        })?;
        Ok::<f64, crate::failure::Failure>(figure(count) / took)
    };
    interleave(
        settings.rounds,
        |round| {
            write_many.push(overwrite(&subject.disk, &many, &data, count, round.into())?);
            read_many.push(read(&many, round)?);
            Ok(())
        },
        |round| {
            write_none.push(overwrite(&subject.disk, &subject.volume, &data, count, round.into())?);
            read_none.push(read(&subject.volume, round)?);
            Ok(())
        },
    )?;
    let mut report = Report::new("snapshots-1000");
    let [write_many, write_none, read_many, read_none] = samples;
    for (case, unit, many, none) in [
        ("random 4 KiB overwrites, 1,000 snapshots", "writes/s", write_many, write_none),
        ("random 4 KiB reads, 1,000 snapshots", "reads/s", read_many, read_none),
    ] {
        report.cases.push(Case::against(case, unit, many, ("lode without snapshots", none), Better::Higher, 0.85));
    }
    drop(many);
    subject.close()?;
    Ok(report)
}
