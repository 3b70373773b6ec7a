//! Scripts made from a number: random ones, and every short one.
//!
//! A random script is drawn along a model of its own, so that most of its operations mean something: units interleave,
//! offsets collide, sizes lie near the edges of blocks and batches. The run compares against another model.

use crate::model::{Committed, Model};
use crate::rng::{Rng, index, mix, narrow};
use crate::script::{
    Fill, ListDraw, Op, Script, ScriptId, ScriptOptions, VolumeNumber, barriers, snapshot_name, volume_name,
};
use crate::trace::Erased;
use lode_media::Geometry;

mod later;
mod short;
use later::Later;
pub use short::short_scripts;

/// So that the scripts that are pinned in tests have no lists.
const LISTS_SEED: u64 = 0x4C49_0010;

/// So that the scripts that are pinned in tests give back no space.
const DISCARD_SEED: u64 = 0x4449_00b7;
/// So many zones more have disks that give back the space of free ones: they keep some.
const DISCARD_ZONES: u32 = 24;

/// The most units open at once in a script.
const UNITS_MAX: u32 = 3;

/// The script of an id.
pub fn script(id: ScriptId) -> Script {
    match id {
        ScriptId::Random(_) | ScriptId::Faults(_) | ScriptId::Concurrent(_) | ScriptId::History(_) => random(id),
        ScriptId::Short(number) => short::short(number),
    }
}

/// A tiny disk's shape.
fn tiny(rng: &mut Rng) -> Geometry {
    let append_align = *rng.pick(&[64, 128, 256, 512]);
    let sectors = *rng.pick(&[16, 24, 32, 64, 64]);
    let zone_bytes = (append_align * sectors).max(4096);
    let zones = lode::SMALLEST_ZONES + u32::try_from(rng.below(12)).expect("a small number");
    Geometry { zones, zone_bytes, append_align, devices: 1 }
}

fn options(rng: &mut Rng) -> ScriptOptions {
    ScriptOptions {
        cache_bytes: *rng.pick(&[0, 4096, 1 << 20]),
        write_buffer_bytes: *rng.pick(&[4096, 16 << 10, 1 << 20]),
        unit_memory_bytes: *rng.pick(&[512, 4096, 1 << 20]),
        checkpoint_window_bytes: *rng.pick(&[None, None, Some(8 << 10), Some(32 << 10)]),
        discard: false,
    }
}

/// How often each kind of operation comes, drawn per script (swarm testing): some kinds are missing altogether.
struct Weights([u32; 26]);

impl Weights {
    fn draw(rng: &mut Rng) -> Self {
        let usual = [2, 1, 2, 30, 5, 3, 8, 16, 4, 2, 4, 6, 4, 2, 2, 6, 2, 3, 6, 1, 2, 2, 1, 1, 1, 2];
        let mut weights = usual.map(|weight| if rng.percent(20) { 0 } else { weight * *rng.pick(&[1, 1, 1, 3]) });
        weights[3] = weights[3].max(10);
        if !rng.percent(15) {
            weights[24] = 0;
        }
        Weights(weights)
    }
}

/// Draws a script.
struct Draw {
    rng: Rng,
    model: Model,
    geometry: Geometry,
    next_unit: u32,
    ops: Vec<Op>,
    /// Bytes that all volumes together may have: what the disk surely holds.
    budget: u64,
}

/// A shape like that of a small real disk.
fn larger(rng: &mut Rng) -> Geometry {
    let append_align = *rng.pick(&[512, 4096]);
    let zone_bytes = (append_align * 32).max(*rng.pick(&[32 << 10, 64 << 10]));
    let zones = lode::SMALLEST_ZONES + u32::try_from(rng.below(40)).expect("a small number");
    Geometry { zones, zone_bytes, append_align, devices: 1 }
}

fn random(id: ScriptId) -> Script {
    let mut rng = Rng::new(id.seed());
    let large = matches!(id, ScriptId::Faults(_));
    let mut geometry = if large { larger(&mut rng) } else { tiny(&mut rng) };
    let mut options = options(&mut rng);
    options.discard = Rng::new(mix(id.seed(), DISCARD_SEED)).percent(25);
    if options.discard {
        geometry.zones += DISCARD_ZONES;
    }
    let mut later = Later::draw(id);
    geometry.zones += later.zones();
    let erased = *rng.pick(&[Erased::Old, Erased::Old, Erased::Zeros, Erased::Noise]);
    let weights = Weights::draw(&mut rng);
    let length = if large { rng.between(100, 400) } else { rng.between(24, 200) };
    let budget = u64::from(geometry.zones) * u64::from(geometry.zone_bytes) / 4;
    let mut draw = Draw { rng, model: Model::new(), geometry, next_unit: 0, ops: Vec::new(), budget };
    draw.create();
    let mut snapshots = Snapshots::draw(id.seed());
    let mut lists = Lists::draw(id.seed());
    let mut barriers = Barriers { rng: Rng::new(mix(id.seed(), 0xBA44)), percent: barriers(id.seed()) };
    for _ in 1..length {
        draw.next(&weights);
        snapshots.next(&mut draw);
        lists.next(&mut draw);
        barriers.next(&mut draw);
        later.next(&mut draw);
    }
    Script { id, geometry, erased, options, prelude: 0, ops: draw.ops }
}

/// Snapshots come in between, drawn by themselves: in half of all scripts.
struct Snapshots {
    rng: Rng,
    percent: u32,
    /// Drawn by itself again: going back to one of them.
    back: Rng,
    back_percent: u32,
}

impl Snapshots {
    fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(mix(seed, 0x534e_4150));
        let percent = *rng.pick(&[0, 0, 0, 3, 6, 12]);
        let mut back = Rng::new(mix(seed, 0x4241_472d));
        let back_percent = *back.pick(&[0, 0, 4, 8]);
        Snapshots { rng, percent, back, back_percent }
    }

    fn next(&mut self, draw: &mut Draw) {
        if self.percent > 0 && self.back_percent > 0 && self.back.percent(self.back_percent.into()) {
            let (number, volume) = (self.back.below(4), self.back.below(4));
            let small = |number| u8::try_from(number).expect("small");
            draw.push(Op::RollBack(small(number), small(volume)));
        }
        if self.percent == 0 || !self.rng.percent(self.percent.into()) {
            return;
        }
        let number = u8::try_from(self.rng.below(4)).expect("small");
        if draw.model.now().snapshots.contains_key(&snapshot_name(number)) {
            return draw.push(Op::DeleteSnapshot(number));
        }
        let of = draw.volume().filter(|_| self.rng.percent(25)).map(|(volume, ..)| volume);
        draw.push(Op::TakeSnapshot(number, of));
    }
}

/// Ordered lists come in between, drawn by themselves: in a third of all scripts.
struct Lists {
    rng: Rng,
    percent: u64,
}

impl Lists {
    fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(mix(seed, LISTS_SEED));
        let percent = *rng.pick(&[0, 0, 0, 0, 30, 60]);
        Lists { rng, percent }
    }

    fn next(&mut self, draw: &mut Draw) {
        while self.percent > 0 && self.rng.percent(self.percent) {
            let units = draw.model.units();
            let unit = if units.is_empty() || self.rng.percent(50) { None } else { Some(*self.rng.pick(&units)) };
            let kind = u8::try_from(self.rng.below(18)).expect("small");
            let picks = [(); 4].map(|()| u16::try_from(self.rng.below(1 << 16)).expect("16 bits"));
            draw.push(Op::Lists(ListDraw { unit, kind, picks }));
        }
    }
}

/// Barriers of units come in between.
struct Barriers {
    rng: Rng,
    percent: u64,
}

impl Barriers {
    fn next(&mut self, draw: &mut Draw) {
        let units = draw.model.units();
        if self.percent > 0 && !units.is_empty() && self.rng.percent(self.percent) {
            draw.push(Op::Barrier(*self.rng.pick(&units)));
        }
    }
}

impl Draw {
    fn push(&mut self, op: Op) {
        track(&mut self.model, &op);
        self.ops.push(op);
    }

    fn volume(&mut self) -> Option<(VolumeNumber, u64, u64)> {
        let present: Vec<VolumeNumber> = (0..4).filter(|at| self.model.volume(&volume_name(*at)).is_some()).collect();
        let number = if present.is_empty() { return None } else { *self.rng.pick(&present) };
        let volume = self.model.volume(&volume_name(number))?;
        Some((number, volume.bytes, u64::from(volume.block_bytes)))
    }

    fn unit(&mut self) -> Option<u32> {
        let units = self.model.units();
        if units.is_empty() { None } else { Some(*self.rng.pick(&units)) }
    }

    fn fill(&mut self) -> Fill {
        *self.rng.pick(&[Fill::Noise, Fill::Noise, Fill::Pattern, Fill::Mixed, Fill::Mixed, Fill::Zeros])
    }

    /// A range inside of a volume: one block mostly, often a part of one, sometimes longer than a batch.
    fn range(&mut self, bytes: u64, block: u64) -> Option<(u64, u64)> {
        if bytes == 0 {
            return None;
        }
        let blocks = bytes.div_ceil(block);
        let near = if self.rng.percent(50) { blocks.min(4) } else { blocks };
        let first = self.rng.below(near) * block;
        let (offset, length) = match self.rng.below(10) {
            0..=3 => (first, block),
            4..=5 => (first, block * self.rng.between(1, 4)),
            6 => (first, self.rng.between(1, u64::from(self.geometry.zone_bytes) * 2)),
            7 => (first + self.rng.below(block), self.rng.between(1, block)),
            8 => (self.rng.below(bytes), self.rng.between(1, 2 * block)),
            _ => ((first + block).saturating_sub(2), 4),
        };
        let offset = offset.min(bytes - 1);
        Some((offset, length.min(bytes - offset)))
    }

    fn whole(&mut self, bytes: u64, block: u64) -> Option<(u64, u64)> {
        let blocks = bytes / block;
        if blocks == 0 {
            return None;
        }
        let first = self.rng.below(blocks);
        Some((first * block, self.rng.between(1, (blocks - first).min(4)) * block))
    }

    fn size(&mut self, block: u64) -> u64 {
        let most = (self.budget / block).clamp(1, 96);
        let blocks = if self.rng.percent(60) { self.rng.between(1, most.min(12)) } else { self.rng.between(1, most) };
        blocks * block
    }

    fn create(&mut self) {
        let Some(volume) = (0..4).find(|at| self.model.volume(&volume_name(*at)).is_none()) else { return };
        let share = if self.rng.percent(20) { 8 } else { 16 };
        let most = (u64::from(self.geometry.zone_bytes) / share).min(4096);
        let sizes: Vec<u32> = (6..=12).map(|bits| 1 << bits).filter(|size| u64::from(*size) <= most).collect();
        let block_bytes = *self.rng.pick(&sizes);
        let bytes = self.size(u64::from(block_bytes));
        let odd = if self.rng.percent(15) { self.rng.below(u64::from(block_bytes)) } else { 0 };
        let compressed = self.rng.percent(40);
        self.push(Op::Create { volume, bytes: bytes - odd, block_bytes, compressed });
    }

    /// A unit writes behind where a volume then ends, or in a volume that then is gone, and is committed sooner or
    /// later.
    fn conflict(&mut self) {
        let Some((volume, bytes, block)) = self.volume() else { return };
        let Some((offset, length)) = self.range(bytes, block) else { return };
        if self.unit().is_none() {
            let unit = self.next_unit;
            self.push(Op::Begin(unit));
            self.next_unit += 1;
        }
        let Some(unit) = self.unit() else { return };
        let seen = self.model.unit_bytes(unit, &volume_name(volume));
        if offset + length > seen {
            return;
        }
        let fill = self.fill();
        self.push(Op::UnitWrite(unit, volume, offset, length, fill));
        // Now and then the cut leaves what was written just inside.
        let end = offset.next_multiple_of(block) + self.rng.below(3) * block;
        let cut = match self.rng.below(3) {
            0 => Op::Delete(volume),
            _ => Op::Resize(volume, end.max(block)),
        };
        self.push(cut);
        match self.rng.below(4) {
            0 => self.create(),
            1 if self.model.volume(&volume_name(volume)).is_some() => self.push(Op::Resize(volume, bytes)),
            1 | 2 => {}
            _ => self.push(Op::Commit(unit)),
        }
    }

    fn next(&mut self, weights: &Weights) {
        let kind = self.rng.weighted(&weights.0);
        let op = match kind {
            0 => return self.create(),
            1..=5 => self.simple(kind),
            6..=14 => self.in_unit(kind),
            15 => Some(Op::Flush),
            16 => Some(Op::FlushProcess),
            17 => Some(Op::FlushUpTo(u8::try_from(self.rng.below(6)).expect("small"))),
            18 => Some(Op::Maintain),
            19 => Some(Op::MaintainAll),
            20 => Some(Op::Checkpoint),
            21 => Some(Op::Reopen),
            22 => Some(Op::Kill),
            23 => Some(Op::ReadAll),
            25 => return self.conflict(),
            _ => self.volume().map(|(volume, ..)| Op::FillUp(volume)),
        };
        if let Some(op) = op {
            self.push(op);
        }
    }

    fn simple(&mut self, kind: usize) -> Option<Op> {
        let (volume, bytes, block) = self.volume()?;
        match kind {
            1 => Some(Op::Delete(volume)),
            2 => {
                let size = self.size(block);
                let odd = if self.rng.percent(30) && !self.model.shadowed(&volume_name(volume)) {
                    self.rng.below(block)
                } else {
                    0
                };
                Some(Op::Resize(volume, size - odd))
            }
            3 => {
                let (offset, length) = self.range(bytes, block)?;
                Some(Op::Write(volume, offset, length, self.fill()))
            }
            4 => self.range(bytes, block).map(|(offset, length)| Op::Discard(volume, offset, length)),
            _ => self.range(bytes, block).map(|(offset, length)| Op::Read(volume, offset, length)),
        }
    }

    fn in_unit(&mut self, kind: usize) -> Option<Op> {
        if kind == 6 {
            if self.model.units().len() >= index(UNITS_MAX) {
                return None;
            }
            self.next_unit += 1;
            return Some(Op::Begin(self.next_unit - 1));
        }
        let unit = self.unit()?;
        let (volume, _, block) = self.volume()?;
        let bytes = self.model.unit_bytes(unit, &volume_name(volume));
        match kind {
            7 => {
                let (offset, length) = self.range(bytes, block)?;
                Some(Op::UnitWrite(unit, volume, offset, length, self.fill()))
            }
            8 => self.whole(bytes, block).map(|(offset, length)| Op::UnitDiscard(unit, volume, offset, length)),
            9 => Some(Op::UnitResize(unit, volume, self.size(block))),
            10 => Some(Op::UnitRead(unit, volume)),
            11 => Some(Op::Commit(unit)),
            12 => Some(Op::CommitAndFlush(unit)),
            13 => Some(Op::Abort(unit)),
            _ => Some(Op::Drop(unit)),
        }
    }
}

/// Keeps the drawing model near what will happen. It need not be exact: the run skips what has no meaning.
fn track(model: &mut Model, op: &Op) {
    match op {
        Op::Create { volume, bytes, block_bytes, compressed } => {
            model.create(&volume_name(*volume), *bytes, *block_bytes, *compressed);
        }
        Op::Delete(volume) => model.delete(&volume_name(*volume)),
        Op::Resize(volume, bytes) => model.resize(&volume_name(*volume), *bytes),
        Op::Begin(unit) => model.begin(*unit),
        Op::UnitWrite(unit, volume, offset, bytes, _) => {
            model.unit_write(*unit, &volume_name(*volume), *offset, &vec![1; narrow(*bytes)]);
        }
        Op::UnitDiscard(unit, volume, offset, bytes) => {
            model.unit_discard(*unit, &volume_name(*volume), *offset, *bytes);
        }
        Op::UnitResize(unit, volume, bytes) => model.unit_resize(*unit, &volume_name(*volume), *bytes),
        Op::Commit(unit) | Op::CommitAndFlush(unit) if model.commit(*unit) == Committed::Conflict => {
            model.abort(*unit);
        }
        Op::Barrier(unit) => model.barrier(*unit, 0),
        Op::Drop(unit) if model.now().dormant.contains_key(unit) => {} // With a label it is kept.
        Op::Abort(unit) | Op::Drop(unit) => model.abort(*unit),
        Op::TakeSnapshot(snapshot, of) => {
            let of: Vec<String> = of.map(volume_name).into_iter().collect();
            model.take_snapshot(&snapshot_name(*snapshot), &of);
        }
        Op::DeleteSnapshot(snapshot) => model.delete_snapshot(&snapshot_name(*snapshot)),
        Op::RollBack(snapshot, volume)
            if model.volume_at(&snapshot_name(*snapshot), &volume_name(*volume)).is_some() =>
        {
            model.roll_back(&snapshot_name(*snapshot), &volume_name(*volume));
        }
        Op::Reopen | Op::Kill => model.reopened(),
        Op::Swap(one, other, bytes) => {
            let names = [one.0, other.0].map(volume_name);
            let inside = |(number, name): (&(VolumeNumber, u64), &String)| {
                model.volume(name).is_some_and(|volume| number.1 + bytes <= volume.bytes)
            };
            if inside((one, &names[0])) && inside((other, &names[1])) {
                model.swap((&names[0], one.1), (&names[1], other.1), *bytes);
            }
        }
        _ => {}
    }
}
