use super::*;
use crate::format::records::{Form, ListMeta, ListState, Record};
use crate::state::tests::{empty, list};
use crate::types::Lsn;
use crate::types::{BlockId, OrderedId};

/// A state with tables and a pool of 512-byte blocks, and these rows: table, row, what it holds.
fn with_rows(rows: &[(u32, u64, (u32, u32, u32))]) -> State {
    let mut state = empty();
    for (number, form) in [(1, Form::Lists), (2, Form::Blocks), (3, Form::Pool)] {
        let meta = ListMeta { form, block_shift: 9, name: String::new(), ..list(number, ListState::There) };
        state.apply(&Record::List(meta), Lsn(number.into()));
    }
    for (table, at, (before, behind, value)) in rows {
        let place = Location::neighbours(*before, *behind);
        state.apply_put(ListId(*table), *at, place, *value, Location::NONE, Lsn(10));
    }
    state
}

fn walked(state: &State) -> Outcome<Vec<BlockId>> {
    let mut found = Vec::new();
    blocks(state, &Staged::default(), OrderedId(1), None, usize::MAX, &mut found).map(|_| found)
}

/// Rows that lead in a circle past the beginning are damage, and nobody follows them for ever.
#[test]
fn rows_that_lead_in_a_circle_are_damage() {
    let list = [(1, 3, (0, 0, 9)), (1, 1, (1, 1, 0)), (1, 2, (3, 1, 0))];
    let sound = with_rows(&[&list[..], &[(2, 1, (0, 2, 1)), (2, 2, (1, 3, 1)), (2, 3, (2, 0, 1))]].concat());
    assert_eq!(walked(&sound).map_err(drop), Ok([1, 2, 3].map(|block| BlockId::new(9, block)).to_vec()));
    let circle = with_rows(&[&list[..], &[(2, 1, (0, 2, 1)), (2, 2, (1, 3, 1)), (2, 3, (2, 2, 1))]].concat());
    assert!(matches!(walked(&circle), Err(Refused::Damaged(_))));
    let mut staged = Staged::default();
    let moved = Op::Move { from: 1, first: 1, last: 9, to: 1, place: Place::Last };
    assert!(matches!(staged.apply(&circle, &moved), Err(Refused::Damaged(_))));
    assert!(staged.apply(&circle, &Op::Delete { list: 1 }).is_ok());
    let dead = with_rows(&[
        (1, 3, (0, 0, 9 | Attributes::DEAD)),
        (1, 0, (1, 1, 0)),
        (1, 2, (3, 1, 0)),
        (2, 1, (0, 2, 1)),
        (2, 2, (1, 1, 1)),
    ]);
    assert!(matches!(Staged::default().drain(&dead, 100), Err(Refused::Damaged(_))));
    let lists_in_circle = with_rows(&[(1, 1, (2, 1, 0)), (1, 3, (0, 2, 9)), (1, 5, (1, 1, 9))]);
    assert!(matches!(lists(&lists_in_circle, &Staged::default()), Err(Refused::Damaged(_))));
    let no_pool = with_rows(&[(1, 1, (1, 1, 0)), (1, 3, (0, 0, 200))]);
    assert!(matches!(walked(&no_pool), Err(Refused::Damaged(_))));
}

/// Many rows are found as few are, also behind rows that nobody asks for again.
#[test]
fn staged_rows_are_found_however_many_there_are() {
    let state = with_rows(&[(1, 1, (1, 1, 0)), (1, 3, (0, 0, 9))]);
    let mut staged = Staged::default();
    for block in 1..100 {
        staged.apply(&state, &Op::Insert { list: 1, place: Place::Last, block }).map_err(drop).expect("it has meaning");
        let mut found = Vec::new();
        blocks(&state, &staged, OrderedId(1), None, usize::MAX, &mut found).map_err(drop).expect("it has meaning");
        assert_eq!(found.len(), crate::types::index(block));
    }
    let rows: std::collections::HashSet<Row> = staged.rows.iter().map(|change| change.row).collect();
    assert_eq!(rows.len(), staged.rows.len(), "no row is staged twice");
}
