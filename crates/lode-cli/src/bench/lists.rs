//! `list-insert`, `list-delete`, `list-drop`: what ordered lists cost.

use super::place::{Place, Places};
use super::report::{Better, Case, Report, Samples};
use super::subject::{Data, Subject};
use super::{Settings, figure, narrow, seconds, wide};
use crate::failure::Result;
use crate::random::Random;
use lode::{BlockId, Disk, ListOptions, OrderedId, Survive};
use std::time::{Duration, Instant};

/// Insertions, or removals, in one round.
const COUNT: u64 = 16_384;

fn subject(settings: &Settings) -> Result<(Subject, Place)> {
    let place = Places::new(settings).take("disk", settings.pick(8 << 30, 1 << 30))?;
    Ok((Subject::in_place(&place, 64 << 20)?, place))
}

/// A list whose blocks were inserted at random places.
struct Grown {
    list: OrderedId,
    blocks: Vec<BlockId>,
    random: Random,
}

impl Grown {
    fn new(disk: &Disk, count: u64, block_bytes: u32) -> Result<Grown> {
        let options = ListOptions { block_bytes, ..ListOptions::default() };
        let list = disk.create_list(&options, lode::Place::Last)?;
        let mut grown = Grown { list, blocks: Vec::new(), random: Random::new(count) };
        grown.blocks.push(disk.insert_block(list, lode::Place::First)?);
        grown.insert(disk, count - 1)?;
        Ok(grown)
    }

    fn insert(&mut self, disk: &Disk, count: u64) -> Result<()> {
        for _ in 0..count {
            let after = self.blocks[narrow(self.random.below(wide(self.blocks.len())))];
            self.blocks.push(disk.insert_block(self.list, lode::Place::After(after))?);
        }
        Ok(())
    }

    fn remove(&mut self, disk: &Disk, count: u64) -> Result<()> {
        for _ in 0..count {
            let at = narrow(self.random.below(wide(self.blocks.len())));
            disk.remove_block(self.list, self.blocks.swap_remove(at))?;
        }
        Ok(())
    }
}

/// `list-insert` and `list-delete`: at random places of a short and of a long list.
fn at_random(settings: &Settings, name: &'static str, delete: bool) -> Result<Report> {
    let (subject, _place) = subject(settings)?;
    let mut report = Report::new(name);
    for (size, words) in [(10_000, "10^4"), (settings.pick(1_000_000, 50_000), "10^6")] {
        let mut list = Grown::new(&subject.disk, size, 4096)?;
        let mut samples = Samples::default();
        for _ in 0..settings.rounds * 2 {
            let count = COUNT.min(size / 2);
            subject.disk.flush(Survive::Power)?;
            let inserted = seconds(|| list.insert(&subject.disk, count))?;
            subject.disk.flush(Survive::Power)?;
            let removed = seconds(|| list.remove(&subject.disk, count))?;
            samples.push(if delete { removed } else { inserted } * 1e9 / figure(count));
        }
        let what = if delete { "remove a block" } else { "insert a block" };
        let case = format!("{what} at a random place, list of {words} blocks");
        report.cases.push(Case::absolute(case, "ns", samples, None, Better::Lower, 1000.0));
        subject.disk.delete_list(list.list)?;
    }
    subject.close()?;
    Ok(report)
}

/// `list-insert`.
pub fn insert(settings: &Settings) -> Result<Report> {
    at_random(settings, "list-insert", false)
}

/// `list-delete`.
pub fn delete(settings: &Settings) -> Result<Report> {
    at_random(settings, "list-delete", true)
}

/// `list-drop`: a list of a million blocks, all of them written, is deleted.
pub fn drop_list(settings: &Settings) -> Result<Report> {
    let (subject, _place) = subject(settings)?;
    let data = Data::new();
    let (mut waits, mut back) = (Samples::default(), Samples::default());
    for _ in 0..settings.rounds {
        let before = subject.disk.info()?.live;
        let list = Grown::new(&subject.disk, settings.pick(1_000_000, 20_000), 256)?;
        for (turn, block) in (0..).zip(&list.blocks) {
            subject.disk.write_block(*block, 0, data.piece(turn, 256))?;
        }
        subject.disk.flush(Survive::Power)?;
        let start = Instant::now();
        subject.disk.delete_list(list.list)?;
        waits.push(start.elapsed().as_secs_f64() * 1e3);
        // The tables of the pool stay.
        while subject.disk.info()?.live > before + (64 << 10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        back.push(start.elapsed().as_secs_f64());
    }
    let mut report = Report::new("list-drop");
    let case = |what: &str| format!("{what}, list of 10^6 written blocks");
    report.cases.push(Case::absolute(case("the caller waits"), "ms", waits, None, Better::Lower, 1.0));
    report.cases.push(Case::absolute(case("space is back"), "s", back, None, Better::Lower, 1.0));
    subject.close()?;
    Ok(report)
}
