use super::*;
use crate::format::records::Compression;
use lode_media::Geometry;

/// The page of the older list was written before its deletion, the page of the newer one after: replay deletes the older.
#[test]
fn a_name_belongs_to_the_newer_list_after_the_older_is_deleted_again() {
    let geometry = Geometry { zones: 64, zone_bytes: 1 << 20, append_align: 4096, devices: 1 };
    let mut state = State::new(Shape::new(geometry).expect("a shape"));
    let meta = |list, there| ListMeta {
        list: ListId(list),
        block_shift: 12,
        compression: Compression::None,
        state: there,
        bytes: 4096,
        name: "v".to_owned(),
    };
    for order in [[2, 5], [5, 2]] {
        for list in order {
            state.install_list(meta(list, ListState::There));
        }
        state.apply(&Record::List(meta(2, ListState::Draining)), Lsn(9));
        state.name_lists();
        assert_eq!(state.names.get("v"), Some(&ListId(5)));
    }
}
