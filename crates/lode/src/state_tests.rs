use super::*;
use crate::format::records::Form;
use lode_media::Geometry;

/// A state without anything in it.
pub(crate) fn empty() -> State {
    let geometry = Geometry { zones: 64, zone_bytes: 1 << 20, append_align: 4096, devices: 1 };
    State::new(Shape::new(geometry).expect("a shape"))
}

/// A list named "v".
pub(crate) fn list(list: u32, state: ListState) -> ListMeta {
    let (name, bytes) = ("v".to_owned(), 1 << 20);
    ListMeta { state, bytes, name, ..ListMeta::new(ListId(list), Form::Indexed) }
}

/// The page of the older list was written before its deletion, the page of the newer one after: replay deletes the
/// older.
#[test]
fn a_name_belongs_to_the_newer_list_after_the_older_is_deleted_again() {
    let mut state = empty();
    for order in [[2, 5], [5, 2]] {
        for list in order {
            state.install_list(self::list(list, ListState::There));
        }
        state.apply(&Record::List(list(2, ListState::Draining)), Lsn(9));
        state.name_lists();
        assert_eq!(state.names.get("v"), Some(&ListId(5)));
    }
}

/// I3: a large commit is folded late. A section that a newer record has touched meanwhile lacks the older ones all the
/// same.
#[test]
fn what_is_folded_late_moves_the_replay_start_back() {
    let mut state = empty();
    state.install_list(list(1, ListState::There));
    let list = ListId(1);
    state.zone_opened(9, crate::zones::Holds::Main, crate::types::SegmentId(1), Lsn(1));
    for page in [SectionKey::Zones(0), SectionKey::Lists(0)] {
        state.clean(page);
    }
    let place = |n: u32| Location::new(9, 4096 * (n + 1), 4096, crate::types::Kind::Raw);
    let entry = crate::fold::Entry {
        list,
        block: 3,
        place: place(0),
        checksum: 1,
        old: Location::NONE,
        lsn: Lsn(10),
        reserved: 0,
        kept: false,
        taken_over: false,
        folded: false,
    };
    state.zones.get_mut(9).shadow += place(0).footprint();
    state.fold = crate::fold::Fold::new(vec![entry]);
    state.apply_put(list, 7, place(1), 2, Location::NONE, Lsn(20));
    assert_eq!(state.replay_from(), Some(Lsn(20)));
    while state.fold_some(1) {}
    assert_eq!(state.replay_from(), Some(Lsn(10)));
    assert!(state.dirty.contains(&(Lsn(10), SectionKey::Zones(0))), "{:?}", state.dirty);
    assert!(state.dirty.contains(&(Lsn(10), SectionKey::Map(list, 0))), "{:?}", state.dirty);
    assert_eq!(state.dirty.len(), 2, "{:?}", state.dirty);
}
