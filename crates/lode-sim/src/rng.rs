//! Seeded numbers and hashes: the same on every machine, for ever, since a printed seed must replay.
//!
//! Not for secrets. The generator is splitmix64, the hash is multiply and rotate with its finish.

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The generator of `seed`.
    pub fn new(seed: u64) -> Self {
        Rng { state: mix(seed, 0x5EED) }
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        finish(self.state)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a number below 0 was asked for");
        self.word() % bound
    }

    /// A number from `low` up to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `percent` times in a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `items`, which is not empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let at = self.below(wide(items.len()));
        &items[narrow(at)]
    }

    /// An index by weight; the weights do not sum to 0.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let sum: u64 = weights.iter().map(|w| u64::from(*w)).sum();
        let mut left = self.below(sum);
        for (index, weight) in weights.iter().enumerate() {
            if left < u64::from(*weight) {
                return index;
            }
            left -= u64::from(*weight);
        }
        unreachable!("the rest is below the sum of the weights")
    }

    /// Fills `into` with noise.
    pub fn fill(&mut self, into: &mut [u8]) {
        for piece in into.chunks_mut(8) {
            let word = self.word().to_le_bytes();
            piece.copy_from_slice(&word[..piece.len()]);
        }
    }
}

/// Two numbers as one, well mixed; the order counts.
pub fn mix(a: u64, b: u64) -> u64 {
    finish(a.rotate_left(25) ^ finish(b.wrapping_add(0x9E37_79B9_7F4A_7C15)))
}

/// The hash of some bytes and their length.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut hash = wide(bytes.len()) ^ 0x517C_C1B7_2722_0A95;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = (hash.rotate_left(29) ^ u64::from_le_bytes(*word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    for byte in rest {
        hash = (hash.rotate_left(29) ^ u64::from(*byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    finish(hash)
}

fn finish(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// A length in memory as a 64-bit number. Lossless: no platform has addresses wider than 64 bits.
pub(crate) fn wide(len: usize) -> u64 {
    u64::try_from(len).expect("an address has at most 64 bits")
}

/// A length of something that fits memory.
pub(crate) fn narrow(len: u64) -> usize {
    usize::try_from(len).expect("the simulator's disks fit memory")
}

/// A 32-bit number as an index.
pub(crate) fn index(number: u32) -> usize {
    usize::try_from(number).expect("an address has at least 32 bits")
}

/// An index of something of which there are fewer than 2^32.
pub(crate) fn number(index: usize) -> u32 {
    u32::try_from(index).expect("the simulator's disks are small")
}
