//! Random numbers that are the same on every machine and in every version: a failing seed has to stay failing.
//!
//! xoshiro256** seeded by SplitMix64 (Blackman and Vigna). Not for secrets.

use crate::bounds::{narrow, wide};

/// A generator. Two made from the same seed say the same for ever.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// A generator for a seed; every seed is as good as every other.
    pub fn new(seed: u64) -> Self {
        let mut word = seed;
        let state = std::array::from_fn(|_| {
            word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut mixed = word;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^ (mixed >> 31)
        });
        Rng { state }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let said = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        said
    }

    /// A number from 0 to `bound - 1`, each equally likely. Panics if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a number below 0 was asked for");
        // Numbers of the last, incomplete run of `bound` are drawn again, so that none is favoured.
        let incomplete = (u64::MAX % bound + 1) % bound;
        loop {
            let drawn = self.next_u64();
            if drawn <= u64::MAX - incomplete {
                return drawn % bound;
            }
        }
    }

    /// A place in something of `len` entries. Panics if `len` is 0.
    pub fn index(&mut self, len: usize) -> usize {
        narrow(self.below(wide(len)))
    }

    /// True in `per_mille` of a thousand cases. What is never or always so draws no number, so that asking for it
    /// more often changes nothing else.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        match per_mille {
            0 => false,
            1..1000 => self.below(1000) < u64::from(per_mille),
            _ => true,
        }
    }

    /// Fills `into`.
    pub fn bytes(&mut self, into: &mut [u8]) {
        for chunk in into.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// Another generator, whose numbers have nothing to do with the further ones of this.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests;
