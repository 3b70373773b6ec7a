use super::*;

#[test]
fn the_numbers_never_change() {
    // A change here makes every recorded seed mean something else.
    let mut rng = Rng::new(1);
    let first: [u64; 3] = std::array::from_fn(|_| rng.next_u64());
    assert_eq!(first, [0xB3F2_AF6D_0FC7_10C5, 0x853B_5596_4736_4CEA, 0x92F8_9756_082A_4514]);
}

#[test]
fn the_same_seed_says_the_same() {
    let (mut one, mut other, mut third) = (Rng::new(7), Rng::new(7), Rng::new(8));
    let (mut first, mut second, mut different) = ([0; 100], [0; 100], [0; 100]);
    one.bytes(&mut first);
    other.bytes(&mut second);
    third.bytes(&mut different);
    assert_eq!(first, second);
    assert_ne!(first, different);
    assert_eq!(one.fork().next_u64(), other.fork().next_u64());
}

#[test]
fn numbers_below_a_bound_are_spread_evenly() {
    let mut rng = Rng::new(3);
    let mut found = [0_u32; 7];
    for _ in 0..7000 {
        found[rng.index(7)] += 1;
    }
    assert!(found.iter().all(|&count| (850..1150).contains(&count)), "{found:?}");
    assert_eq!(rng.below(1), 0);
}

#[test]
fn chances_are_what_they_say() {
    let mut rng = Rng::new(4);
    let before = rng.clone();
    assert!(!rng.chance(0) && rng.chance(1000));
    assert_eq!(rng.next_u64(), before.clone().next_u64(), "certain things draw nothing");
    let found = (0..10_000).filter(|_| rng.chance(250)).count();
    assert!((2300..2700).contains(&found), "{found}");
}
