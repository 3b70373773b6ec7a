//! `unit-overhead`: what a bracket round a set of operations adds to the same ones without it, in time and in
//! instructions (*Concurrent atomic recovery units*, section 5: creating and deleting small files).
//!
//! *Create-like*: a new list, four blocks of 4 KiB put into it one behind the other, each written. *Delete-like*: the
//! blocks taken out, then the list deleted.

use super::count::{Counted, count};
use super::place::Places;
use super::report::{Better, Case, Report, Samples};
use super::subject::{Data, Subject};
use super::{Settings, figure, interleave, seconds};
use crate::failure::Result;
use lode::{BlockId, Disk, ListOptions, OrderedId, Place, Survive, Unit};

/// What a bracket may add.
const NANOSECONDS_MAX: f64 = 300.0;
const INSTRUCTIONS_MAX: f64 = 1.05;
/// Blocks of a set.
const BLOCKS: usize = 4;
/// Sets of a round: less than a batch, so that appending and flushing, which are not measured, fall between rounds.
const SETS: u64 = 40;
/// Not measured either: what a flush has driven out of the processor's caches comes back.
const WARMING: u64 = 10;

/// The calls that a disk and a unit both have.
trait Operations {
    fn create(&mut self) -> lode::Result<OrderedId>;
    fn insert(&mut self, list: OrderedId, place: Place<BlockId>) -> lode::Result<BlockId>;
    fn write(&mut self, block: BlockId, data: &[u8]) -> lode::Result<()>;
    fn remove(&mut self, list: OrderedId, block: BlockId) -> lode::Result<()>;
    fn delete(&mut self, list: OrderedId) -> lode::Result<()>;
}

impl Operations for &Disk {
    fn create(&mut self) -> lode::Result<OrderedId> {
        self.create_list(&ListOptions::default(), Place::Last)
    }

    fn insert(&mut self, list: OrderedId, place: Place<BlockId>) -> lode::Result<BlockId> {
        self.insert_block(list, place)
    }

    fn write(&mut self, block: BlockId, data: &[u8]) -> lode::Result<()> {
        self.write_block(block, 0, data).map(drop)
    }

    fn remove(&mut self, list: OrderedId, block: BlockId) -> lode::Result<()> {
        self.remove_block(list, block).map(drop)
    }

    fn delete(&mut self, list: OrderedId) -> lode::Result<()> {
        self.delete_list(list).map(drop)
    }
}

impl Operations for Unit {
    fn create(&mut self) -> lode::Result<OrderedId> {
        self.create_list(&ListOptions::default(), Place::Last)
    }

    fn insert(&mut self, list: OrderedId, place: Place<BlockId>) -> lode::Result<BlockId> {
        self.insert_block(list, place)
    }

    fn write(&mut self, block: BlockId, data: &[u8]) -> lode::Result<()> {
        self.write_block(block, 0, data)
    }

    fn remove(&mut self, list: OrderedId, block: BlockId) -> lode::Result<()> {
        self.remove_block(list, block)
    }

    fn delete(&mut self, list: OrderedId) -> lode::Result<()> {
        self.delete_list(list)
    }
}

/// What a create-like set has made.
pub struct Made {
    list: OrderedId,
    blocks: [BlockId; BLOCKS],
}

fn created(on: &mut impl Operations, data: &[u8]) -> lode::Result<Made> {
    let list = on.create()?;
    let mut place = Place::First;
    let mut blocks = [BlockId(0); BLOCKS];
    for (block, data) in blocks.iter_mut().zip(data.chunks(4096)) {
        *block = on.insert(list, place)?;
        on.write(*block, data)?;
        place = Place::After(*block);
    }
    Ok(Made { list, blocks })
}

fn deleted(on: &mut impl Operations, made: &Made) -> lode::Result<()> {
    for block in &made.blocks {
        on.remove(made.list, *block)?;
    }
    on.delete(made.list)
}

/// Create-like sets, each in a bracket or not.
pub fn create(disk: &Disk, data: &Data, sets: u64, bracket: bool) -> lode::Result<Vec<Made>> {
    let mut made = Vec::new();
    for turn in 0..sets {
        let data = data.piece(turn, BLOCKS * 4096);
        made.push(if bracket {
            let mut unit = disk.begin()?;
            let set = created(&mut unit, data)?;
            unit.commit()?;
            set
        } else {
            created(&mut &*disk, data)?
        });
    }
    Ok(made)
}

/// Delete-like sets, each in a bracket or not.
pub fn delete(disk: &Disk, made: &[Made], bracket: bool) -> lode::Result<()> {
    for set in made {
        if bracket {
            let mut unit = disk.begin()?;
            deleted(&mut unit, set)?;
            unit.commit()?;
        } else {
            deleted(&mut &*disk, set)?;
        }
    }
    Ok(())
}

/// Nanoseconds of a set.
#[derive(Default)]
struct Times {
    create: Samples,
    delete: Samples,
}

impl Times {
    fn round(&mut self, disk: &Disk, data: &Data, bracket: bool) -> Result<()> {
        let per_set = 1e9 / figure(SETS);
        let warming = create(disk, data, WARMING, bracket)?;
        let mut made = Vec::new();
        let took = seconds(|| {
            made = create(disk, data, SETS, bracket)?;
            Ok(())
        })?;
        self.create.push(per_set * took);
        disk.flush(Survive::Power)?;
        delete(disk, &warming, bracket)?;
        self.delete.push(per_set * seconds(|| Ok(delete(disk, &made, bracket)?))?);
        disk.flush(Survive::Power)?;
        // What was deleted is drained before the next round.
        for _ in 0..4 * SETS {
            if !disk.maintain()? {
                break;
            }
        }
        Ok(())
    }
}

/// Runs the bench.
pub fn run(settings: &Settings) -> Result<Report> {
    let counted = count(settings)?; // First: it may find that nothing can be counted here.
    let place = Places::new(settings).take("disk", settings.pick(4 << 30, 512 << 20))?;
    let subject = Subject::in_place(&place, 64 << 20)?;
    let data = Data::new();
    let (mut bracket, mut simple) = (Times::default(), Times::default());
    // Many short rounds: the difference of two small figures needs them.
    interleave(
        settings.rounds * settings.pick(100, 2),
        |_| bracket.round(&subject.disk, &data, true),
        |_| simple.round(&subject.disk, &data, false),
    )?;
    subject.close()?;
    let mut report = Report::new("unit-overhead");
    let Counted { create, delete } = counted;
    let sides = [("create", bracket.create, simple.create, create), ("delete", bracket.delete, simple.delete, delete)];
    for (what, with, without, counted) in sides {
        let above: Samples = with.iter().zip(without.iter()).map(|(with, without)| with - without).collect();
        let share = 100.0 * above.median() / without.median();
        report.notes.push(format!("{what}-like: the bracket adds {share:.1} % of the time"));
        let case = format!("a bracket round a {what}-like set, above the simple operations");
        let peer = Some(("the same without a bracket", without));
        report.cases.push(Case::absolute(case, "ns", above, peer, Better::Lower, NANOSECONDS_MAX));
        let case = format!("a {what}-like set in a bracket, counted by valgrind");
        let peer = ("the same without a bracket", counted.1);
        report.cases.push(Case::against(case, "instructions", counted.0, peer, Better::Lower, INSTRUCTIONS_MAX));
    }
    Ok(report)
}
