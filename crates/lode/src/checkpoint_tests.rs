#![allow(clippy::unwrap_used)]

use super::*;
use crate::format::records::ListState;
use crate::state;
use crate::types::{Kind, ListId, Location, SegmentId};
use crate::zones::Holds;

#[test]
fn a_section_that_could_not_be_written_lacks_again_what_it_lacked() {
    let mut state = state::tests::empty();
    let (list, key) = (ListId(1), SectionKey::Map(ListId(1), 0));
    state.install_list(state::tests::list(1, ListState::There));
    state.zone_opened(9, Holds::Main, SegmentId(1), Lsn(1));
    for block in 0..4u32 {
        let place = Location::new(9, 4096 * (block + 1), 4096, Kind::Raw);
        state.apply_put(list, u64::from(block), place, block, Location::NONE, Lsn(10 + u64::from(block)));
    }
    let wanted = || Wanted { keys: [key].into(), before: Lsn(u64::MAX), images: true };
    let Next::Taken(first) = state.take_next(&mut wanted(), Lsn(20)) else { panic!("nothing to write") };
    assert_eq!(state.meta(key).unwrap().dirty, None);

    // Meanwhile another change comes; then the write fails.
    let place = Location::new(9, 4096 * 9, 4096, Kind::Raw);
    state.apply_put(list, 7, place, 7, Location::NONE, Lsn(25));
    state.give_back(first.key, first.before);
    assert_eq!(state.meta(key).unwrap().dirty, Some(Lsn(10)), "replay must begin before what is not written");
    assert!(state.dirty.contains(&(Lsn(10), key)) && !state.dirty.contains(&(Lsn(25), key)));

    // The next time everything is written, although the leaves have forgotten the first changes.
    let Next::Taken(second) = state.take_next(&mut wanted(), Lsn(30)) else { panic!("nothing to write") };
    let (kind, pages) = second.pages;
    assert_eq!(kind, IMAGE);
    let mut leaf = crate::map::leaf::Leaf::new(state.shape.leaf_blocks());
    page::apply(&pages[0].1, &mut leaf).unwrap();
    assert_eq!(leaf.iter().map(|(at, _, _)| at).collect::<Vec<_>>(), [0, 1, 2, 3, 7]);
}
