//! Operations that the model learned later, in between: in about half of all scripts. Each kind is drawn by itself, so
//! that one more changes no script without it.

use super::Draw;
use crate::rng::{Rng, mix, narrow};
use crate::script::{Fill, Op, ScheduleDraw, ScriptId, StreamDraw, VolumeNumber, volume_name};

/// So that the scripts that are pinned in tests have none.
const LATER_SEED: u64 = 0x4C59_B59B;
/// Of a hundred scripts so many have some.
const SCRIPTS_PERCENT: u64 = 55;
/// Of a hundred of these so many have one kind.
const KIND_PERCENT: u64 = 35;

/// Of the volumes that scripts make, those below this number.
const FIRST: VolumeNumber = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Growth,
    Streams,
    Swaps,
    Reclustering,
    Reservations,
    Schedules,
}

/// With the numbers from which they are drawn.
const KINDS: [(Kind, u64); 6] = [
    (Kind::Growth, 1),
    (Kind::Streams, 2),
    (Kind::Swaps, 3),
    (Kind::Reclustering, 4),
    (Kind::Reservations, 5),
    (Kind::Schedules, 6),
];

/// One kind.
struct Drawn {
    kind: Kind,
    rng: Rng,
    /// How often it comes.
    percent: u64,
}

/// See the file's head.
pub(super) struct Later {
    kinds: Vec<Drawn>,
    zones: u32,
}

impl Later {
    pub(super) fn draw(id: ScriptId) -> Self {
        let mut rng = Rng::new(mix(id.seed(), LATER_SEED));
        let any = rng.percent(SCRIPTS_PERCENT) && !matches!(id, ScriptId::Concurrent(_) | ScriptId::History(_));
        if !any {
            return Later { kinds: Vec::new(), zones: 0 };
        }
        let zones = *rng.pick(&[0, 0, 8, 24]);
        let drawn = |(kind, number): (Kind, u64)| {
            let mut rng = Rng::new(mix(id.seed(), mix(LATER_SEED, number)));
            let wanted = rng.percent(KIND_PERCENT);
            let percent = *rng.pick(&[4, 8, 16]);
            wanted.then_some(Drawn { kind, rng, percent })
        };
        Later { kinds: KINDS.into_iter().filter_map(drawn).collect(), zones }
    }

    /// So many zones more has the disk, for operations that need some free ones.
    pub(super) fn zones(&self) -> u32 {
        self.zones
    }

    pub(super) fn next(&mut self, draw: &mut Draw) {
        for drawn in &mut self.kinds {
            if drawn.rng.percent(drawn.percent) {
                drawn.next(draw);
            }
        }
    }
}

impl Drawn {
    fn next(&mut self, draw: &mut Draw) {
        match self.kind {
            Kind::Growth => draw.push(Op::Grow(self.small(1, 6))),
            Kind::Streams => draw.push(Op::Stream(StreamDraw { kind: self.kind_of(16), picks: self.picks() })),
            Kind::Swaps => self.swap(draw),
            Kind::Reclustering => {
                if let Some((volume, bytes, block)) = self.volume(draw) {
                    self.scatter(draw, volume, bytes / block * block, block);
                    draw.push(Op::Recluster(volume, *self.rng.pick(&[1, 255, 255])));
                }
            }
            Kind::Reservations => self.reservation(draw),
            Kind::Schedules => draw.push(Op::Schedules(ScheduleDraw { kind: self.kind_of(12), picks: self.picks() })),
        }
    }

    /// A volume that is there, its bytes and its block.
    fn volume(&mut self, draw: &Draw) -> Option<(VolumeNumber, u64, u64)> {
        let there = (0..FIRST).filter_map(|number| Some((number, draw.model.volume(&volume_name(number))?)));
        let there: Vec<_> = there.map(|(number, volume)| (number, volume.bytes, volume.block_bytes.into())).collect();
        if there.is_empty() { None } else { Some(*self.rng.pick(&there)) }
    }

    /// Reserved, then spent bit by bit, between them a disk that is full now and then.
    fn reservation(&mut self, draw: &mut Draw) {
        let Some((volume, bytes, block)) = self.volume(draw) else { return };
        let number = u8::try_from(self.rng.below(2)).expect("few");
        let blocks = (bytes / block).max(1);
        match self.rng.below(8) {
            0..=2 => {
                let larger = if self.rng.percent(20) { block * 2 } else { block };
                let wanted = self.rng.between(1, blocks.min(24));
                draw.push(Op::Reserve(number, wanted, u32::try_from(larger).expect("a block")));
            }
            3 => draw.push(Op::CancelReservation(number)),
            4 if self.rng.percent(50) => {
                // Others fill the disk, and what was reserved is there all the same.
                let (first, most) = (self.rng.below(blocks), self.rng.between(1, 12));
                draw.push(Op::Reserve(number, most + 1, u32::try_from(block).expect("a block")));
                draw.push(Op::FillUp(volume));
                let each = self.rng.between(1, most);
                draw.push(Op::Spend { reservation: number, volume, first, blocks: most, each });
            }
            _ => {
                let (first, most) = (self.rng.below(blocks), self.rng.between(1, 12));
                let each = self.rng.between(1, most);
                draw.push(Op::Spend { reservation: number, volume, first, blocks: most, each });
            }
        }
    }

    /// Every second or third block is written, so that what lies between them is somewhere else.
    fn scatter(&mut self, draw: &mut Draw, volume: VolumeNumber, bytes: u64, block: u64) {
        let (step, first) = (self.rng.between(2, 3), self.rng.below(2));
        for at in (first..bytes / block).step_by(narrow(step)).take(12) {
            draw.push(Op::Write(volume, at * block, block, Fill::Noise));
        }
    }

    /// Mostly whole blocks, often a little more or less, now and then so much that they overlap.
    fn swap(&mut self, draw: &mut Draw) {
        let (Some(one), Some(other)) = (self.volume(draw), self.volume(draw)) else { return };
        let mut place = |(volume, bytes, block): (VolumeNumber, u64, u64)| {
            let at = self.rng.below(bytes.max(1));
            (volume, if self.rng.percent(60) { at / block * block } else { at })
        };
        let (here, there) = (place(one), place(other));
        let left = (one.1 - here.1.min(one.1)).min(other.1 - there.1.min(other.1));
        let apart = if here.0 == there.0 { here.1.abs_diff(there.1) } else { u64::MAX };
        let most = if self.rng.percent(5) { u64::MAX } else { apart };
        let wanted = one.2 * self.rng.between(1, 6) - if self.rng.percent(30) { self.rng.below(one.2) } else { 0 };
        let beyond = u64::from(self.rng.percent(3));
        let bytes = wanted.min(most).min(left) + beyond;
        if bytes > 0 {
            draw.push(Op::Swap(here, there, bytes));
        }
    }

    fn kind_of(&mut self, kinds: u64) -> u8 {
        u8::try_from(self.rng.below(kinds)).expect("few")
    }

    fn picks<const N: usize>(&mut self) -> [u16; N] {
        [(); N].map(|()| u16::try_from(self.rng.below(1 << 16)).expect("16 bits"))
    }

    fn small(&mut self, low: u32, high: u32) -> u32 {
        low + u32::try_from(self.rng.below(u64::from(high - low) + 1)).expect("small")
    }
}
