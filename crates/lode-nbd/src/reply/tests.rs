use proptest::prelude::*;

use super::*;

fn status(bytes: u64, one: bool, extents: &[(u64, bool)]) -> Option<Vec<(u32, u32)>> {
    let extents: Vec<_> = extents.iter().map(|&(length, allocated)| (length, if allocated { 0 } else { 3 })).collect();
    let told = Told::of(7, bytes, if one { 1 } else { EXTENTS_MAX }, &extents)?;
    let mut out = Vec::new();
    block_status(&mut out, Cookie(9), &[told]);
    assert_eq!(out[4..6], chunks::FLAG_DONE.to_be_bytes());
    assert_eq!(out[16..20], u32::try_from(out.len() - CHUNK_BYTES).expect("small").to_be_bytes());
    let words: Vec<u32> =
        out[CHUNK_BYTES..].chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().expect("four"))).collect();
    assert_eq!(words[0], 7);
    Some(words[1..].chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}

#[test]
fn extents_are_merged_and_cut() {
    let extents = [(100, true), (50, true), (50, false), (1000, true)];
    assert_eq!(status(300, false, &extents), Some(vec![(150, 0), (50, 3), (100, 0)]));
    assert_eq!(status(300, true, &extents), Some(vec![(150, 0)]));
    assert_eq!(status(120, true, &extents), Some(vec![(120, 0)]));
    assert_eq!(status(u64::from(u32::MAX), false, &[(u64::MAX, false)]), Some(vec![(u32::MAX, 3)]));
}

#[test]
fn extents_that_tell_nothing_are_refused() {
    assert_eq!(status(300, false, &[]), None);
    assert_eq!(status(300, false, &[(0, true), (300, true)]), None);
}

#[test]
fn a_reply_tells_a_bounded_number_of_extents() {
    let extents: Vec<_> = (0..100_000).map(|at| (1, at % 2 == 0)).collect();
    assert_eq!(status(100_000, false, &extents).map(|told| told.len()), Some(EXTENTS_MAX));
}

proptest! {
    #[test]
    fn told_extents_are_what_the_export_says(
        extents in proptest::collection::vec((1_u64..100, any::<bool>()), 1..20), bytes in 1_u64..1000,
    ) {
        let told = status(bytes, false, &extents).expect("there are some");
        let naive: Vec<u32> = extents
            .iter()
            .flat_map(|&(length, allocated)| (0..length).map(move |_| if allocated { 0 } else { 3 }))
            .take(usize::try_from(bytes).expect("small"))
            .collect();
        let spread: Vec<u32> =
            told.iter().flat_map(|&(length, state)| (0..length).map(move |_| state)).collect();
        prop_assert_eq!(spread, naive);
        prop_assert!(told.windows(2).all(|pair| pair[0].1 != pair[1].1));
    }
}
