//! Histories made by hand: each anomaly that has a name is found, and what only looks like one is not.

use super::{Act, Anomaly, End, History, Place, Rule, Span, Summary, Unit, Value, check};
use lode::{UnitConflicts, UnitOptions, UnitView};

const PLAIN: UnitOptions = UnitOptions { view: UnitView::Moving, conflicts: UnitConflicts::Allowed };
const FROZEN: UnitOptions = UnitOptions { view: UnitView::Frozen, conflicts: UnitConflicts::Allowed };
const SNAPSHOT: UnitOptions = UnitOptions { view: UnitView::Frozen, conflicts: UnitConflicts::Written };
const SERIAL: UnitOptions = UnitOptions { view: UnitView::Moving, conflicts: UnitConflicts::Read };
const BLIND: UnitOptions = UnitOptions { view: UnitView::Committed, conflicts: UnitConflicts::Allowed };

fn at(position: u64) -> Span {
    Span { from: position, until: position }
}

fn wrote(register: u32, value: Value) -> Act {
    Act::Wrote { register, value }
}

fn read(moment: u64, register: u32, value: Value) -> Act {
    Act::Read { call: at(moment), first: register, values: vec![value] }
}

fn looked(moment: u64, blocks: &[u64]) -> Act {
    Act::Looked { call: at(moment), list: 0, blocks: blocks.to_vec() }
}

fn inserted(place: Place, block: u64) -> Act {
    Act::Inserted { list: 0, place, block }
}

/// A unit that begins at one position and is committed at a later one.
fn committed(options: UnitOptions, begun: u64, position: u64, acts: Vec<Act>) -> Unit {
    let end = End::Committed { at: position, call: Span { from: position - 1, until: position } };
    Unit { name: format!("[{begun}-{position}]"), options, begun: at(begun), acts, end }
}

/// One that only reads: its commit writes nothing.
fn reader(options: UnitOptions, begun: u64, position: u64, acts: Vec<Act>) -> Unit {
    let end = End::Committed { at: position, call: at(position) };
    Unit { end, ..committed(options, begun, position, acts) }
}

fn dropped(options: UnitOptions, begun: u64, acts: Vec<Act>) -> Unit {
    Unit { end: End::Aborted, ..committed(options, begun, begun + 1, acts) }
}

fn refused(options: UnitOptions, begun: u64, until: u64, acts: Vec<Act>) -> Unit {
    Unit { end: End::Refused { call: at(until) }, ..committed(options, begun, until, acts) }
}

fn judged(units: Vec<Unit>) -> Result<Summary, Anomaly> {
    check(&History { units })
}

fn found(units: Vec<Unit>, rule: Rule, part: &str) {
    let anomaly = judged(units).expect_err("this history is not as it should be");
    assert_eq!(anomaly.rule, rule, "{anomaly}");
    assert!(anomaly.words.contains(part), "expected words on {part:?}, found: {anomaly}");
}

fn sound(units: Vec<Unit>) -> Summary {
    judged(units).unwrap_or_else(|anomaly| panic!("nothing is wrong with this history: {anomaly}"))
}

#[test]
fn units_one_after_the_other_are_sound() {
    let first = committed(SERIAL, 1, 5, vec![wrote(0, 10), read(2, 0, 10), wrote(1, 11)]);
    let second = committed(SERIAL, 6, 9, vec![read(6, 0, 10), read(7, 1, 11), wrote(0, 20)]);
    let looks = reader(SERIAL, 9, 9, vec![read(9, 0, 20)]);
    let gone = dropped(PLAIN, 3, vec![read(4, 0, 0), wrote(0, 99)]);
    let summary = sound(vec![second, gone, looks, first]);
    assert_eq!(summary, Summary { committed: 3, refused: 0, aborted: 1, reads: 5 });
}

#[test]
fn a_dirty_read_is_found() {
    let writer = dropped(PLAIN, 1, vec![wrote(0, 10)]);
    found(vec![writer, dropped(PLAIN, 1, vec![read(3, 0, 10)])], Rule::Moment, "aborted");
    let writer = committed(PLAIN, 1, 5, vec![wrote(0, 10)]);
    found(vec![writer, dropped(PLAIN, 1, vec![read(3, 0, 10)])], Rule::Moment, "committed at 5");
    let writer = refused(SNAPSHOT, 1, 5, vec![wrote(0, 10)]);
    let other = committed(PLAIN, 1, 3, vec![wrote(0, 20)]);
    found(vec![writer, other, dropped(PLAIN, 1, vec![read(4, 0, 10)])], Rule::Moment, "refused");
}

#[test]
fn a_value_from_nowhere_is_found() {
    found(vec![dropped(PLAIN, 1, vec![read(1, 0, 77)])], Rule::Moment, "nobody wrote");
}

#[test]
fn what_a_unit_wrote_over_itself_is_never_seen() {
    let writer = committed(PLAIN, 1, 5, vec![wrote(0, 10), wrote(0, 11)]);
    sound(vec![writer.clone(), dropped(PLAIN, 6, vec![read(6, 0, 11)])]);
    found(vec![writer, dropped(PLAIN, 6, vec![read(6, 0, 10)])], Rule::Moment, "register 0");
}

#[test]
fn a_stale_read_is_found() {
    let first = committed(PLAIN, 1, 5, vec![wrote(0, 10)]);
    let second = committed(PLAIN, 5, 8, vec![wrote(0, 20)]);
    let span = |from, until| Act::Read { call: Span { from, until }, first: 0, values: vec![10] };
    sound(vec![first.clone(), second.clone(), dropped(PLAIN, 6, vec![span(7, 9)])]);
    found(vec![first, second, dropped(PLAIN, 6, vec![span(8, 9)])], Rule::Moment, "10 of [1-5]");
}

#[test]
fn a_torn_read_is_found() {
    let both = committed(PLAIN, 1, 5, vec![wrote(0, 10), wrote(1, 11)]);
    let torn = |values: [Value; 2]| {
        let call = Span { from: 2, until: 9 };
        dropped(PLAIN, 1, vec![Act::Read { call, first: 0, values: values.to_vec() }])
    };
    sound(vec![both.clone(), torn([0, 0]), torn([10, 11])]);
    found(vec![both.clone(), torn([10, 0])], Rule::Moment, "register 1 with 0, as at first");
    found(vec![both, torn([0, 11])], Rule::Moment, "register 0 with 0, as at first");
}

#[test]
fn a_view_without_the_units_own_changes_is_one_only_if_asked_for() {
    let acts = |value| vec![wrote(0, 10), read(2, 0, value)];
    sound(vec![dropped(PLAIN, 1, acts(10))]);
    sound(vec![dropped(BLIND, 1, acts(0))]);
    found(vec![dropped(PLAIN, 1, acts(0))], Rule::Moment, "register 0");
    found(vec![dropped(BLIND, 1, acts(10))], Rule::Moment, "register 0");
    found(vec![dropped(FROZEN, 1, acts(0))], Rule::Frozen, "register 0");
}

#[test]
fn a_read_that_is_not_repeatable_is_found() {
    let writer = committed(PLAIN, 1, 5, vec![wrote(0, 10)]);
    let twice = |options| dropped(options, 2, vec![read(3, 0, 0), read(6, 0, 10)]);
    sound(vec![writer.clone(), twice(PLAIN)]);
    found(vec![writer, twice(FROZEN)], Rule::Frozen, "10 of [1-5]");
}

#[test]
fn a_frozen_view_begins_at_one_moment() {
    let first = committed(PLAIN, 1, 5, vec![wrote(0, 10)]);
    let second = committed(PLAIN, 1, 7, vec![wrote(1, 11)]);
    let sees = |zero, one| Unit {
        begun: Span { from: 3, until: 9 },
        ..dropped(FROZEN, 3, vec![read(12, 0, zero), read(13, 1, one)])
    };
    for (zero, one) in [(0, 0), (10, 0), (10, 11)] {
        sound(vec![first.clone(), second.clone(), sees(zero, one)]);
    }
    found(vec![first, second, sees(0, 11)], Rule::Frozen, "register 1 with 11 of [1-7]");
}

#[test]
fn a_lost_update_is_found() {
    let one = |options| committed(options, 1, 5, vec![read(2, 0, 0), wrote(0, 10)]);
    let other = |options| committed(options, 1, 8, vec![read(3, 0, 0), wrote(0, 20)]);
    sound(vec![one(FROZEN), other(FROZEN)]);
    found(vec![one(SNAPSHOT), other(SNAPSHOT)], Rule::FirstCommitter, "both changed Register(0)");
    found(vec![one(SERIAL), other(SERIAL)], Rule::FirstCommitter, "[1-5] at 5");
    // Also one that a simple write has lost.
    found(vec![committed(PLAIN, 4, 5, vec![wrote(0, 10)]), other(SNAPSHOT)], Rule::FirstCommitter, "[4-5]");
    sound(vec![one(SNAPSHOT), refused(SNAPSHOT, 1, 8, vec![read(3, 0, 0), wrote(0, 20)])]);
}

#[test]
fn of_two_writes_only_those_between_begin_and_commit_count() {
    let before = committed(PLAIN, 1, 3, vec![wrote(0, 10)]);
    let after = committed(PLAIN, 6, 9, vec![wrote(0, 30)]);
    let unit = |begun| Unit { begun, ..committed(SNAPSHOT, 0, 6, vec![wrote(0, 20)]) };
    sound(vec![before.clone(), after.clone(), unit(at(3))]);
    // It may have begun before or after.
    sound(vec![before.clone(), after.clone(), unit(Span { from: 2, until: 3 })]);
    found(vec![before, after, unit(at(2))], Rule::FirstCommitter, "[1-3]");
}

#[test]
fn a_write_skew_is_found_where_units_are_to_be_serial() {
    let skewed = |options| {
        let one = committed(options, 1, 5, vec![read(2, 0, 0), read(2, 1, 0), wrote(0, 10)]);
        let other = committed(options, 1, 8, vec![read(2, 0, 0), read(2, 1, 0), wrote(1, 20)]);
        vec![one, other]
    };
    sound(skewed(SNAPSHOT));
    found(skewed(SERIAL), Rule::Serial, "register 0 with 0, as at first (committed: 10 at 7");
}

#[test]
fn a_reader_between_two_commits_is_found_where_units_are_to_be_serial() {
    let one = committed(SERIAL, 1, 3, vec![wrote(0, 10)]);
    let other = committed(SERIAL, 3, 5, vec![wrote(1, 20)]);
    // The second write is seen, the first not.
    let sees = |position| reader(SERIAL, 2, position, vec![read(2, 0, 0), read(6, 1, 20)]);
    found(vec![one.clone(), other.clone(), sees(6)], Rule::Serial, "register 0");
    let frozen = UnitOptions { view: UnitView::Frozen, ..SERIAL };
    let early = |position| reader(frozen, 2, position, vec![read(2, 0, 0), read(6, 1, 0)]);
    found(vec![one.clone(), other.clone(), early(6)], Rule::Serial, "register 0");
    sound(vec![one, other, early(2)]);
}

#[test]
fn a_refusal_without_a_reason_is_found() {
    let other = |register| committed(PLAIN, 1, 5, vec![wrote(register, 10)]);
    let writes = |options| refused(options, 2, 7, vec![read(3, 1, 0), wrote(0, 20)]);
    sound(vec![other(0), writes(SNAPSHOT)]);
    found(vec![other(1), writes(SNAPSHOT)], Rule::Refusal, "nobody else changed");
    sound(vec![other(1), writes(SERIAL)]);
    found(vec![other(2), writes(SERIAL)], Rule::Refusal, "nobody else changed");
    found(vec![other(0), writes(PLAIN)], Rule::Refusal, "nobody else changed");
    // What was changed before it began is no reason.
    found(vec![other(0), refused(SNAPSHOT, 6, 9, vec![wrote(0, 20)])], Rule::Refusal, "nobody else changed");
}

#[test]
fn commits_lie_inside_of_their_calls_and_not_together() {
    let unit = |end| Unit { end, ..committed(PLAIN, 1, 5, vec![wrote(0, 10)]) };
    found(vec![unit(End::Committed { at: 5, call: Span { from: 6, until: 9 } })], Rule::Order, "outside of its call");
    found(vec![unit(End::Committed { at: 5, call: Span { from: 5, until: 9 } })], Rule::Order, "before its call");
    found(vec![unit(End::Committed { at: 5, call: Span { from: 2, until: 4 } })], Rule::Order, "outside of its call");
    let other = committed(PLAIN, 1, 5, vec![wrote(1, 20)]);
    found(vec![committed(PLAIN, 1, 5, vec![wrote(0, 10)]), other], Rule::Order, "were both committed");
    let same = committed(PLAIN, 1, 6, vec![wrote(1, 10)]);
    found(vec![committed(PLAIN, 1, 5, vec![wrote(0, 10)]), same], Rule::Order, "no value of its own");
}

#[test]
fn lists_are_what_commits_made_of_them_in_their_order() {
    let first = committed(PLAIN, 1, 3, vec![inserted(Place::Last, 1), looked(1, &[1])]);
    let second = committed(PLAIN, 1, 5, vec![inserted(Place::First, 2), looked(4, &[2, 1])]);
    let third = committed(PLAIN, 5, 7, vec![Act::Removed { list: 0, block: 1 }, inserted(Place::Behind(2), 3)]);
    let all = || vec![third.clone(), first.clone(), second.clone()];
    let with = |unit| all().into_iter().chain([unit]).collect::<Vec<_>>();
    sound(with(dropped(PLAIN, 8, vec![looked(8, &[2, 3])])));
    sound(with(dropped(FROZEN, 3, vec![looked(8, &[1])])));
    found(with(dropped(PLAIN, 8, vec![looked(8, &[2, 1, 3])])), Rule::Moment, "list 0 as [2, 1, 3]");
    found(with(dropped(FROZEN, 3, vec![looked(8, &[2, 3])])), Rule::Frozen, "list 0");
    found(with(committed(PLAIN, 8, 9, vec![inserted(Place::Behind(1), 4)])), Rule::Order, "has no meaning");
}

#[test]
fn two_that_insert_at_one_place_are_found() {
    let one = committed(SNAPSHOT, 1, 3, vec![inserted(Place::First, 1)]);
    let other = |place| committed(SNAPSHOT, 1, 5, vec![inserted(place, 2)]);
    found(vec![one.clone(), other(Place::First)], Rule::FirstCommitter, "Place(0, First)");
    sound(vec![one, committed(SNAPSHOT, 3, 5, vec![inserted(Place::First, 2)])]);
}

#[test]
fn a_phantom_is_found_where_units_are_to_be_serial() {
    let adds = committed(PLAIN, 1, 3, vec![inserted(Place::Last, 1)]);
    let counts = committed(SERIAL, 1, 5, vec![looked(2, &[]), wrote(0, 10)]);
    found(vec![adds, counts], Rule::Serial, "list 0 as []");
}

#[test]
fn a_unit_that_undoes_what_it_did_to_a_list_changes_nothing() {
    let undoes = reader(SNAPSHOT, 1, 5, vec![inserted(Place::First, 1), Act::Removed { list: 0, block: 1 }]);
    let other = committed(SNAPSHOT, 1, 5, vec![inserted(Place::First, 2)]);
    sound(vec![undoes, other, dropped(PLAIN, 6, vec![looked(6, &[2])])]);
}
