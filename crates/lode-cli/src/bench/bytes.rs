//! `bytes`: what is written to the device for each byte of the user, while there is nothing to clean.

use super::memory::in_memory;
use super::report::{Better, Case, Report, Samples};
use super::subject::Subject;
use super::{Settings, figure, wide};
use crate::failure::Result;
use crate::random::Random;
use lode::Survive;

/// Runs the bench. The bytes are those that the medium is given, checkpoints and all.
pub fn run(settings: &Settings) -> Result<Report> {
    let rounds = settings.rounds.min(settings.pick(5, 1));
    let mut report = Report::new("bytes");
    let cases: [(&str, usize, bool, f64); 2] =
        [("4 KiB, durable one by one", 4096, true, 2.1), ("1 MiB writes", 1 << 20, false, 1.06)];
    for (case, piece, durable, bar) in cases {
        let count = settings.pick(if durable { 200_000 } else { 4096 }, if durable { 2000 } else { 256 });
        let ratios = (0..rounds).map(|round| amplification(piece, durable, count, round.into()));
        let samples: Samples = ratios.collect::<Result<Vec<f64>>>()?.into_iter().collect();
        report.cases.push(Case::absolute(case, "bytes/byte", samples, None, Better::Lower, bar));
    }
    Ok(report)
}

fn amplification(piece: usize, durable: bool, count: u64, seed: u64) -> Result<f64> {
    let volume = 1 << 30;
    let user = count * wide(piece);
    let subject: Subject = in_memory((user * 3 + 2 * volume).max(2 << 30), volume)?;
    let content = vec![0x5a; piece];
    let mut random = Random::new(seed);
    let before = subject.medium.appended();
    for _ in 0..count {
        let at = random.below(volume / wide(piece)) * wide(piece);
        let position = subject.volume.write_at(at, &content)?;
        if durable {
            subject.disk.flush_up_to(position, Survive::Power)?;
        }
    }
    subject.disk.flush(Survive::Power)?;
    let written = subject.medium.appended() - before;
    subject.close()?;
    Ok(figure(written) / figure(user))
}
