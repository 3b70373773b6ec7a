//! `compress`: what compression costs. The same content in order, to a list that compresses and to one that does not.

use super::place::Places;
use super::report::{Better, Case, Report, Samples};
use super::subject::Subject;
use super::{Settings, figure, interleave, narrow, seconds};
use crate::failure::Result;
use crate::random::Random;
use lode::{Compression, Survive, Volume, VolumeOptions};

const PIECE: u64 = 1 << 20;
const BLOCK: usize = 4096;

/// Runs the bench. *The Logical Disk*, section 5.3, loses 21 % of the write throughput and half of the read throughput,
/// for reads cannot overlap decompression.
pub fn run(settings: &Settings) -> Result<Report> {
    let bytes = settings.pick(512 << 20, 32 << 20);
    let place = Places::new(settings).take("disk", settings.pick(4 << 30, 256 << 20))?;
    let subject = Subject::in_place(&place, PIECE)?;
    let list =
        |name, compression| subject.disk.create_volume(name, &VolumeOptions { bytes, block_bytes: 4096, compression });
    let (packed, plain) = (list("packed", Compression::Lz4)?, list("plain", Compression::None)?);
    let data = half_noise();
    let mut figures: [Samples; 4] = Default::default();
    let [write_packed, write_plain, read_packed, read_plain] = &mut figures;
    let write = |volume: &Volume, into: &mut Samples| {
        let took = seconds(|| {
            for at in (0..bytes / PIECE).map(|n| n * PIECE) {
                volume.write_at(at, &data)?;
            }
            subject.disk.flush(Survive::Power)?;
            Ok(())
        })?;
        into.push(figure(bytes) / took / 1e6);
        Ok(())
    };
    interleave(settings.rounds, |_| write(&packed, write_packed), |_| write(&plain, write_plain))?;
    let read = |volume: &Volume, into: &mut Samples| {
        let mut buffer = vec![0; narrow(PIECE)];
        let took = seconds(|| {
            for at in (0..bytes / PIECE).map(|n| n * PIECE) {
                volume.read_at(at, &mut buffer)?;
            }
            Ok(())
        })?;
        into.push(figure(bytes) / took / 1e6);
        Ok(())
    };
    interleave(settings.rounds, |_| read(&packed, read_packed), |_| read(&plain, read_plain))?;
    drop((packed, plain));
    subject.close()?;
    let mut report = Report::new("compress");
    let [write_packed, write_plain, read_packed, read_plain] = figures;
    for (case, packed, plain, bar) in [
        ("1 MiB writes in order, lz4, half of it noise", write_packed, write_plain, 0.79),
        ("the same read", read_packed, read_plain, 0.5),
    ] {
        let peer = ("lode without compression", plain);
        report.cases.push(Case::against(case.to_owned(), "MB/s", packed, peer, Better::Higher, bar));
    }
    Ok(report)
}

/// A piece of which lz4 saves about half.
fn half_noise() -> Vec<u8> {
    let mut data = vec![0; narrow(PIECE)];
    let mut random = Random::new(17);
    for block in data.chunks_mut(BLOCK) {
        random.fill(&mut block[..BLOCK / 2]);
    }
    data
}
