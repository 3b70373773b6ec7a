//! The model, on cases small enough to see.

use super::{Committed, Model, Since};

fn read(model: &Model, name: &str) -> Vec<u8> {
    let volume = model.volume(name).expect("the volume was made");
    let mut bytes = vec![1; usize::try_from(volume.bytes).expect("small")];
    volume.read(0, &mut bytes);
    bytes
}

#[test]
fn a_write_over_an_edge_changes_both_blocks_and_no_other_byte() {
    let mut model = Model::new();
    model.create("v", 12, 4, false);
    model.write("v", 3, &[7, 8]);
    assert_eq!(read(&model, "v"), [0, 0, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0]);
    model.discard("v", 4, 4);
    assert_eq!(read(&model, "v"), [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn what_a_shrink_cut_off_reads_as_zeros_after_growing() {
    let mut model = Model::new();
    model.create("v", 8, 4, false);
    model.write("v", 0, &[1; 8]);
    model.resize("v", 2);
    model.resize("v", 8);
    assert_eq!(read(&model, "v"), [1, 1, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_unit_sees_its_writes_and_nobody_else_does_before_the_commit() {
    let mut model = Model::new();
    model.create("v", 8, 4, false);
    model.begin(1);
    model.unit_write(1, "v", 1, &[9]);
    model.write("v", 0, &[5; 8]);
    let mut own = [0; 8];
    model.unit_read(1, "v", 0, &mut own);
    assert_eq!(own, [0, 9, 0, 0, 5, 5, 5, 5]);
    assert_eq!(read(&model, "v"), [5; 8]);
    assert_eq!(model.commit(1), Committed::Applied);
    assert_eq!(read(&model, "v"), own);
}

#[test]
fn an_aborted_unit_leaves_nothing() {
    let mut model = Model::new();
    model.create("v", 8, 4, false);
    let before = model.appended();
    model.begin(1);
    model.unit_resize(1, "v", 4);
    model.abort(1);
    assert_eq!(model.appended(), before);
}

#[test]
fn a_write_beyond_the_end_at_the_commit_is_a_conflict() {
    let mut model = Model::new();
    model.create("v", 8, 4, false);
    model.begin(1);
    model.unit_write(1, "v", 4, &[9]);
    model.resize("v", 4);
    let before = model.appended();
    assert_eq!(model.commit(1), Committed::Conflict);
    assert_eq!(model.appended(), before);
}

#[test]
fn equal_contents_have_equal_hashes_whatever_their_history() {
    let mut one = Model::new();
    one.create("v", 8, 4, false);
    let mut other = one.clone();
    one.write("v", 0, &[1; 8]);
    other.write("v", 0, &[2; 8]);
    assert_ne!(one.hashes().last(), other.hashes().last());
    other.write("v", 4, &[1; 4]);
    other.write("v", 0, &[1; 4]);
    assert_eq!(one.hashes().last(), other.hashes().last());
}

#[test]
fn a_flush_narrows_what_a_crash_may_leave() {
    let mut model = Model::new();
    model.create("v", 8, 4, false);
    model.write("v", 0, &[1]);
    assert_eq!(model.allowed(), 0..=2);
    model.flush(1);
    model.write("v", 0, &[2]);
    assert_eq!(model.allowed(), 1..=3);
}

#[test]
fn an_exchange_is_one_state() {
    let mut model = Model::new();
    model.create("v", 40, 8, false);
    model.write("v", 0, &[1; 10]);
    model.write("v", 20, &[2; 10]);
    let before = model.appended();
    model.swap(("v", 0), ("v", 20), 10);
    assert_eq!(model.appended(), before + 1);
    let mut found = [9; 40];
    model.now().volumes["v"].read(0, &mut found);
    assert_eq!((found[..10].to_vec(), found[10..20].to_vec()), (vec![2; 10], vec![0; 10]));
    assert_eq!((found[20..30].to_vec(), found[30..].to_vec()), (vec![1; 10], vec![0; 10]));
}

#[test]
fn what_came_in_a_stream_is_known_by_where_it_was_taken() {
    let mut model = Model::new();
    model.create("v", 40, 8, false);
    model.write("v", 0, &[1; 40]);
    model.take_snapshot("s", &[]);
    let seen = std::sync::Arc::clone(&model.now().snapshots["s"]);
    let identity = seen.identity("v", false).expect("it is of v");
    let before = model.appended();
    model.received("w", "t", &seen.volumes["v"], identity, 7);
    assert_eq!(model.appended(), before + 1, "the volume and its snapshot come at one instant");
    let base = std::sync::Arc::clone(model.base_of("w", identity, false).expect("it came with it"));
    assert_eq!((base.made, model.since("w", &base)), (7, Since::Untouched));
    model.write("w", 8, &[2; 8]);
    assert_eq!(model.since("w", &base), Since::Changed);
    model.write("w", 8, &[1; 8]);
    assert_eq!(model.since("w", &base), Since::Perhaps);
    // Taken here, of the same content: another one.
    model.take_snapshot("u", &[]);
    assert_ne!(model.now().snapshots["u"].identity("w", false), Some(identity));
    assert!(model.base_of("v", identity, true).is_none(), "it was not taken on the other disk");
}

#[test]
fn a_schedule_deletes_its_own_snapshots_only_and_each_by_itself() {
    let mut model = Model::new();
    model.create("v", 40, 8, false);
    model.set_schedule("q", 10, 1, &["v".to_owned()]);
    model.take_snapshot_at("q-5", &[], 5);
    assert_eq!(model.run_schedules(100, |_| true).taken, ["q-100"]);
    assert_eq!(model.run_schedules(105, |_| true).taken, [""; 0]);
    let before = model.appended();
    let stepped = model.run_schedules(110, |_| true);
    assert_eq!((stepped.taken, stepped.deleted), (vec!["q-110".to_owned()], vec!["q-100".to_owned()]));
    assert_eq!(model.appended(), before + 2);
    model.take_snapshot_at("q-120", &[], 120);
    assert_eq!(model.run_schedules(120, |_| true).exist, ["q-120"]);
    assert_eq!(model.run_schedules(130, |_| false).lacking, ["q-130"]);
    assert!(model.now().snapshots.contains_key("q-5") && model.now().snapshots.contains_key("q-120"));
    // Of a volume that is gone nothing is taken.
    model.delete("v");
    model.create("v", 40, 8, false);
    assert_eq!(model.run_schedules(200, |_| true).taken, [""; 0]);
}
