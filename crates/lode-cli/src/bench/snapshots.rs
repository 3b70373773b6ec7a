//! `snapshot`, `after-snapshot`, `snapshots-1000`, `diff`: what old versions cost.

use super::place::Places;
use super::report::{Better, Case, Report, Samples};
use super::scratch::Scratch;
use super::subject::{Data, Subject};
use super::{Settings, figure, interleave, seconds};
use crate::failure::{Code, Failure, Result};
use crate::random::{self, Random};
use lode::{Compression, Disk, FormatOptions, OpenOptions, SnapshotOptions, Survive, Volume, VolumeOptions};
use lode_media::sparse::SparseMedium;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCK: u64 = 4096;

fn subject(settings: &Settings, volume: u64) -> Result<(Subject, super::place::Place)> {
    let place = Places::new(settings).take("disk", settings.pick(8 << 30, 1 << 30))?;
    Ok((Subject::in_place(&place, volume)?, place))
}

fn take(disk: &Disk, name: &str, of: &[&str]) -> Result<()> {
    let volumes = of.iter().map(|name| (*name).to_owned()).collect();
    disk.take_snapshot(name, &SnapshotOptions { volumes, ..SnapshotOptions::default() })?;
    Ok(())
}

/// Deletes a snapshot and waits until its space is back.
fn forget(disk: &Disk, name: &str) -> Result<()> {
    disk.delete_snapshot(name)?;
    settle(disk)
}

/// Lets the keeper's work come to its end, so that neither side pays for what the other has left.
fn settle(disk: &Disk) -> Result<()> {
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

/// A disk on a medium that keeps only what is not zero, larger than the device below would hold.
struct Large {
    disk: Disk,
    volume: Volume,
    _file: Scratch,
}

impl Large {
    /// With an empty volume, and room for a second one and for what snapshots keep.
    fn new(settings: &Settings, bytes: u64) -> Result<Large> {
        let name = format!("lode-bench-{}-snapshots.sparse", std::process::id());
        let file = Scratch::new(settings.directory.join(name));
        let zone_bytes = lode::default_zone_bytes(bytes);
        let zones = u32::try_from(bytes / u64::from(zone_bytes) * 3 / 2 + 64).expect("a zone is not so small");
        let geometry = lode_media::Geometry { zones, zone_bytes, append_align: 4096, devices: 1 };
        let medium = Arc::new(SparseMedium::create(file.path(), geometry)?);
        Disk::format(medium.clone(), &FormatOptions { disk_id: random::identity()? })?;
        let disk = Disk::open(medium, &OpenOptions::default())?;
        let options = VolumeOptions { bytes, block_bytes: 4096, compression: Compression::None };
        let volume = disk.create_volume("bench", &options)?;
        Ok(Large { disk, volume, _file: file })
    }

    fn fill(&self) -> Result<()> {
        let zeros = vec![0; 1 << 20];
        for at in (0..self.volume.bytes()).step_by(1 << 20) {
            self.volume.write_at(at, &zeros)?;
        }
        self.disk.flush(Survive::Power)?;
        Ok(())
    }
}

/// Random overwrites with zeros until `done`. The longest that one took, in milliseconds.
fn slowest_write(large: &Large, done: &AtomicBool) -> Result<f64> {
    let (zeros, mut random, mut slowest) = (vec![0; 4096], Random::new(5), 0.0);
    while !done.load(Ordering::Relaxed) {
        let at = random.below(large.volume.bytes() / BLOCK) * BLOCK;
        slowest = f64::max(slowest, seconds(|| Ok(large.volume.write_at(at, &zeros).map(drop)?))?);
    }
    Ok(slowest * 1e3)
}

/// What `work` finds, and the slowest write of another thread meanwhile.
fn beside_writes<T: Send>(large: &Large, work: impl FnOnce() -> Result<T> + Send) -> Result<(T, f64)> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| slowest_write(large, &done));
        let worked = work();
        done.store(true, Ordering::Relaxed);
        let slowest = writer.join().map_err(|_| Failure::new(Code::Io, "bench snapshot: the writer panicked"))??;
        Ok((worked?, slowest))
    })
}

/// `snapshot`: how long it takes to take one, idle and while somebody writes as fast as the disk can; and how long that
/// waits.
pub fn take_one(settings: &Settings) -> Result<Report> {
    let large = Large::new(settings, settings.pick(64 << 30, 128 << 20))?;
    let pause = || std::thread::sleep(std::time::Duration::from_millis(10));
    let takes = |count: u64, kind: &str| {
        let mut samples = Samples::default();
        for n in 0..count {
            let name = format!("{kind}{n}");
            samples.push(seconds(|| take(&large.disk, &name, &[]))? * 1e6);
            pause();
            large.disk.delete_snapshot(&name)?;
        }
        Ok::<Samples, Failure>(samples)
    };
    let count = settings.pick(100, 5);
    let empty = takes(count, "empty")?;
    large.fill()?;
    let full = takes(count, "full")?;
    let (mut busy, mut with, mut without) = (Samples::default(), Samples::default(), Samples::default());
    interleave(
        settings.rounds,
        |round| {
            let (samples, slowest) = beside_writes(&large, || takes(count / 2, &format!("busy{round}-")))?;
            busy.extend(&samples);
            with.push(slowest);
            Ok(())
        },
        |_| {
            let ((), slowest) = beside_writes(&large, || {
                (0..count / 2).for_each(|_| pause());
                Ok(())
            })?;
            without.push(slowest);
            Ok(())
        },
    )?;
    let mut report = Report::new("snapshot");
    let size = crate::size::show(large.volume.bytes());
    for (case, samples) in [
        ("take, empty disk".to_owned(), empty),
        (format!("take, {size} written"), full),
        ("take, while another thread overwrites".to_owned(), busy),
    ] {
        report.cases.push(Case::absolute(case, "us", samples, None, Better::Lower, 1000.0));
    }
    let more: Samples = with.iter().zip(without.iter()).map(|(with, without)| with - without).collect();
    let case = "slowest write while snapshots are taken, above the slowest without";
    report.cases.push(Case::absolute(case, "ms", more, Some(("without snapshots", without)), Better::Lower, 10.0));
    large.disk.close()?;
    Ok(report)
}

/// `diff`: what changed between two snapshots, 1 % of it.
pub fn diff(settings: &Settings) -> Result<Report> {
    let large = Large::new(settings, settings.pick(64 << 30, 128 << 20))?;
    large.fill()?;
    take(&large.disk, "a", &[])?;
    let (zeros, mut random) = (vec![0; 4096], Random::new(9));
    let blocks = large.volume.bytes() / BLOCK;
    for _ in 0..blocks / 100 {
        large.volume.write_at(random.below(blocks) * BLOCK, &zeros)?;
    }
    take(&large.disk, "b", &[])?;
    large.disk.checkpoint()?;
    let (old, new) = (large.disk.volume_at("a", "bench")?, large.disk.volume_at("b", "bench")?);
    let mut samples = Samples::default();
    for _ in 0..settings.rounds {
        let mut found = 0;
        samples.push(seconds(|| {
            found = new.changes_since(&old)?.iter().map(|range| range.end - range.start).sum::<u64>();
            Ok(())
        })?);
        if found < large.volume.bytes() / 120 {
            return Err(Failure::new(
                Code::Io,
                format!("bench diff: expected 1 % to have changed, found {found} bytes"),
            ));
        }
    }
    let mut report = Report::new("diff");
    let case = format!("two snapshots of {}, 1 % changed", crate::size::show(large.volume.bytes()));
    report.cases.push(Case::absolute(case, "s", samples, None, Better::Lower, 0.5));
    drop((old, new));
    large.disk.close()?;
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
            settle(&subject.disk)?;
            take(&subject.disk, "s", &[])?;
            after.push(overwrite(&subject.disk, &subject.volume, &data, count, round.into())?);
            forget(&subject.disk, "s")
        },
        |round| {
            settle(&subject.disk)?;
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
