//! Operations that the model learned later, in between: in about half of all scripts. Each kind is drawn by itself, so
//! that one more changes no script without it.

use super::Draw;
use crate::rng::{Rng, mix};
use crate::script::{Op, ScriptId, StreamDraw};

/// So that the scripts that are pinned in tests have none.
const LATER_SEED: u64 = 0x4C59_B59B;
/// Of a hundred scripts so many have some.
const SCRIPTS_PERCENT: u64 = 55;
/// Of a hundred of these so many have one kind.
const KIND_PERCENT: u64 = 35;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Growth,
    Streams,
}

/// With the numbers from which they are drawn.
const KINDS: [(Kind, u64); 2] = [(Kind::Growth, 1), (Kind::Streams, 2)];

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
