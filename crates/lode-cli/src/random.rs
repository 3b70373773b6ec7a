//! Random numbers: from the system for identities, from a seed for workloads.

use crate::failure::{Failure, Result};
use std::fs::File;
use std::io::Read;

/// An identity that no other disk has.
pub fn identity() -> Result<u128> {
    let mut bytes = [0; 16];
    let source = "/dev/urandom";
    File::open(source)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Failure::io(format!("drawing a random disk id from {source}"), error))?;
    Ok(u128::from_le_bytes(bytes))
}

/// A seeded sequence (splitmix64): enough to scatter writes, and the same on every run.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, each about as likely.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.draw()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("the product of two 64-bit numbers has 128 bits")
    }

    /// Fills `bytes` with noise.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            let noise = self.draw().to_le_bytes();
            piece.copy_from_slice(&noise[..piece.len()]);
        }
    }
}
