#![allow(clippy::unwrap_used)]

use super::*;
use crate::types::Kind;

/// Splitmix64: a seed in, numbers out.
struct Seeded(u64);
impl Seeded {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

fn place(n: u64) -> Location {
    Location::new(5, u32::try_from(n).unwrap() * 64, 64, Kind::Raw)
}

#[test]
fn a_leaf_agrees_with_an_array() {
    for seed in 0..200 {
        let mut seeded = Seeded(seed);
        let capacity = [16, 64, 1024][usize::try_from(seed % 3).unwrap()];
        let mut leaf = Leaf::new(capacity);
        let mut twin = vec![None; capacity as usize];
        let mut changed = vec![false; capacity as usize];
        for step in 0..2000u64 {
            let at = seeded.below(u64::from(capacity)) as usize;
            // Runs in order and single blocks, overwritten and cleared.
            let length = 1 + seeded.below(if seed % 2 == 0 { 12 } else { 1 }) as usize;
            let start = seeded.below(1 << 16);
            for (n, at) in (at..(at + length).min(capacity as usize)).enumerate() {
                let to = if seeded.below(10) == 0 { Location::NONE } else { place(start + n as u64) };
                let checksum = u32::try_from(step).unwrap();
                let old = leaf.set(u32::try_from(at).unwrap(), to, checksum);
                assert_eq!(old, twin[at].map_or(Location::NONE, |(old, _)| old), "seed {seed} step {step}");
                twin[at] = (!to.is_none()).then_some((to, checksum));
                changed[at] = true;
            }
            if seeded.below(50) == 0 {
                leaf.forget_changes();
                changed.fill(false);
            }
        }
        for (at, expected) in twin.iter().enumerate() {
            assert_eq!(leaf.get(u32::try_from(at).unwrap()), *expected, "seed {seed} block {at}");
        }
        for _ in 0..20 {
            let (from, to) = (seeded.below(u64::from(capacity) + 1), seeded.below(u64::from(capacity) + 1));
            let (from, to) = (from.min(to) as usize, from.max(to) as usize);
            let there = twin[from..to].iter().flatten().count() as u32;
            let stored = leaf.stored_in(from as u32..to as u32);
            // Long ranges of an array are not counted.
            let exact = to - from <= COUNTED as usize || !matches!(leaf.places, Places::Dense(_));
            assert!(stored == there || !exact && stored == (to - from) as u32, "seed {seed} {from}..{to}: {stored}");
        }
        let changes: Vec<u32> = leaf.changes().map(|(at, _, _)| at).collect();
        let expected: Vec<u32> = (0..capacity).filter(|at| changed[*at as usize]).collect();
        assert_eq!(changes, expected, "seed {seed}");
        // What is written is what is read again, as an image and as an image with deltas on it.
        let mut again = Leaf::new(capacity);
        crate::map::page::apply(&crate::map::page::image(&leaf), &mut again).unwrap();
        assert!(again.iter().eq(leaf.iter()), "seed {seed}");
        for at in 0..capacity / 2 {
            leaf.set(at, if at % 3 == 0 { Location::NONE } else { place(u64::from(at) + 99) }, at);
        }
        let mut sparse = Leaf::new(capacity);
        for (at, place, checksum) in again.iter() {
            sparse.set_unmarked(at, place, checksum);
        }
        leaf.forget_changes();
        for at in (0..capacity).step_by(7) {
            leaf.set(at, if at % 2 == 0 { Location::NONE } else { place(u64::from(at)) }, at + 1);
        }
        for at in 0..capacity / 2 {
            sparse.set_unmarked(at, if at % 3 == 0 { Location::NONE } else { place(u64::from(at) + 99) }, at);
        }
        crate::map::page::apply(&crate::map::page::delta(&leaf), &mut sparse).unwrap();
        assert!(sparse.iter().eq(leaf.iter()), "seed {seed}");
    }
}

#[test]
fn blocks_in_order_take_little_more_than_their_checksums() {
    let mut leaf = Leaf::new(1024);
    for at in 0..1024 {
        leaf.set(at, Location::new(9, at * 4096, 4096, Kind::Raw), 7);
    }
    leaf.forget_changes();
    assert!(leaf.memory() < 4096 + 512, "{} bytes", leaf.memory());
}

#[test]
fn few_blocks_take_little_wherever_they_lie() {
    let mut leaf = Leaf::new(1024);
    for n in 0..100 {
        leaf.set(n * 397 % 1024, place(u64::from(n)), n);
    }
    assert!(leaf.memory() < 2048 + 512, "{} bytes", leaf.memory());
    // Filled, it is an array.
    for at in 0..1024 {
        leaf.set(at, place(u64::from(at * 7 % 1024)), at);
    }
    assert!(leaf.memory() < 13 << 10, "{} bytes", leaf.memory());
    assert!(leaf.changes().eq(leaf.iter()));
}
