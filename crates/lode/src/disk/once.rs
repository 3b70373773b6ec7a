//! Which blocks were read a short while ago, so that only what is read again takes room in the cache.

use crate::sync::{AtomicU32, Ordering};
use crate::types::{Location, index64};

/// So many blocks are remembered, about: what of 4 KiB a small part of a cache holds.
const REMEMBERED: usize = 8192;

/// A place's number in a table, and what tells it from most others there. No lock: what is lost by that is one reading.
pub(crate) struct Once(Box<[AtomicU32]>);

impl Once {
    pub fn new() -> Once {
        Once((0..REMEMBERED).map(|_| AtomicU32::new(0)).collect())
    }

    /// Whether the block at this place was read before. It is remembered.
    pub fn is_again(&self, place: Location) -> bool {
        let hash = place.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mark = crate::types::low_u32(hash >> 8) | 1;
        self.0[index64(hash >> 51)].swap(mark, Ordering::Relaxed) == mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Kind;

    #[test]
    fn a_block_is_read_again_the_second_time() {
        let once = Once::new();
        let places: Vec<Location> = (0..1000).map(|n| Location::new(n, 4096, 4096, Kind::Raw)).collect();
        assert!(places.iter().filter(|place| once.is_again(**place)).count() < 10, "nothing was");
        let again = places.iter().filter(|place| once.is_again(**place)).count();
        assert!(again > 850, "nearly all were: {again}");
    }
}
