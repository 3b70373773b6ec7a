//! Stretches of block numbers: in order, none touching another, so that what a unit drops again and again takes no more
//! memory than what is dropped in the end.

use std::collections::BTreeMap;

/// See the file's head. Each from its first block to the one behind its last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds the blocks `first..end`. Cost: what it swallows.
    pub fn insert(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        let (mut from, mut to) = (first, end);
        while let Some((start, stop)) = self.0.range(..=to).next_back().map(|(start, stop)| (*start, *stop)) {
            if stop < from {
                break;
            }
            (from, to) = (from.min(start), to.max(stop));
            self.0.remove(&start);
        }
        self.0.insert(from, to);
    }

    pub fn contains(&self, block: u64) -> bool {
        self.0.range(..=block).next_back().is_some_and(|(_, end)| block < *end)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().map(|(first, end)| (*first, *end))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// One stretch from the first to the last of all.
    pub fn join(&mut self) {
        if let (Some((first, _)), Some((_, end))) = (self.0.first_key_value(), self.0.last_key_value()) {
            self.0 = BTreeMap::from([(*first, *end)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;

    /// Against a plain set of numbers.
    #[test]
    fn ranges_are_what_was_put_in() {
        let mut seed = 1u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..300 {
            let (mut ranges, mut plain) = (Ranges::default(), [false; 64]);
            for _ in 0..next(24) {
                let first = next(60);
                let end = first + next(6);
                ranges.insert(first, end);
                (first..end).for_each(|n| plain[usize::try_from(n).expect("small")] = true);
            }
            let listed: Vec<(u64, u64)> = ranges.iter().collect();
            assert!(listed.windows(2).all(|pair| pair[0].1 < pair[1].0), "{listed:?} touch");
            for (n, there) in (0..).zip(plain) {
                assert_eq!(ranges.contains(n), there, "{n} of {listed:?}");
            }
        }
    }
}
