//! `memory`: what the tables hold in memory for each gibibyte that is written.

use super::report::{Better, Case, Report, Samples};
use super::subject::{Counted, Subject};
use super::{Settings, figure};
use crate::failure::Result;
use lode::{OpenOptions, Survive};
use lode_media::Geometry;
use lode_media::ram::RamMedium;

const BLOCK: u64 = 4096;

/// A disk in memory. What is written to it must be the same everywhere, so that it takes little.
pub fn in_memory(image: u64, volume: u64) -> Result<Subject> {
    let zone_bytes = lode::default_zone_bytes(image);
    let zones = u32::try_from(image / u64::from(zone_bytes)).expect("a zone is not so small");
    let medium = RamMedium::new(Geometry { zones, zone_bytes, append_align: 4096, devices: 1 });
    Subject::new(Counted::new(medium), volume, &OpenOptions { cache_bytes: 0, ..OpenOptions::default() })
}

/// The `turn`-th of `count` numbers in an order that looks random, each exactly once. `count` is a power of two.
pub fn scattered(turn: u64, count: u64) -> u64 {
    let (mask, half) = (count - 1, count.trailing_zeros().div_ceil(2));
    let mut x = turn & mask;
    for factor in [0x9e37_79b9_7f4a_7c15_u64, 0xd6e8_feb8_6659_fd93] {
        x ^= x >> half;
        x = x.wrapping_mul(factor) & mask;
    }
    x ^ (x >> half)
}

/// Which of so many blocks is written in which turn.
type Order = fn(u64, u64) -> u64;

/// Runs the bench.
pub fn run(settings: &Settings) -> Result<Report> {
    let bytes = settings.pick(4 << 30, 256 << 20);
    let rounds = settings.rounds.min(settings.pick(5, 1));
    let mut report = Report::new("memory");
    let cases: [(&str, Order, f64); 2] =
        [("written at random", scattered, 3.4), ("written in order", |turn, _| turn, 1.2)];
    for (case, order, bar) in cases {
        let held: Samples =
            (0..rounds).map(|_| held(bytes, order)).collect::<Result<Vec<f64>>>()?.into_iter().collect();
        report.cases.push(Case::absolute(case, "MiB/GiB", held, None, Better::Lower, bar));
    }
    Ok(report)
}

/// Mebibytes of tables for each gibibyte.
fn held(bytes: u64, order: Order) -> Result<f64> {
    let subject = in_memory(bytes * 2, bytes)?;
    let block = vec![0x5a; 4096];
    for turn in 0..bytes / BLOCK {
        subject.volume.write_at(order(turn, bytes / BLOCK) * BLOCK, &block)?;
    }
    subject.disk.flush(Survive::Power)?;
    let tables = figure(subject.disk.counters().tables_bytes) / figure(1 << 20);
    subject.close()?;
    Ok(tables / (figure(bytes) / figure(1 << 30)))
}

#[cfg(test)]
mod tests {
    use super::scattered;

    #[test]
    fn the_scattered_order_visits_each_once() {
        for count in [2u64, 64, 4096, 8192] {
            let seen: std::collections::HashSet<u64> = (0..count).map(|turn| scattered(turn, count)).collect();
            assert_eq!(seen.len() as u64, count);
        }
        assert_ne!(scattered(2, 8192) - scattered(1, 8192).min(scattered(2, 8192)), 1, "not in order");
    }
}
