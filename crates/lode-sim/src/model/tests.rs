//! The model, on cases small enough to see.

use super::{Committed, Model};

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
