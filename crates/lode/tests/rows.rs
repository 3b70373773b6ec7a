//! Every test that `docs/ROWS.md` and `docs/RULES.md` name is there.

use std::path::Path;

/// Looks for each test that a page names, and counts them.
fn named_by(page: &str) -> usize {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rows = std::fs::read_to_string(root.join(page)).expect("the page is there");
    let named = rows.split('`').skip(1).step_by(2).filter_map(|words| words.split_once(".rs::"));
    let mut count = 0;
    for (file, test) in named {
        let path = root.join(format!("{file}.rs"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(text.contains(&format!("fn {test}()")), "{page} names {file}.rs::{test}, which is not there");
        count += 1;
    }
    count
}

#[test]
fn the_rows_name_tests_that_exist() {
    let count = named_by("docs/ROWS.md");
    assert!(count > 50, "only {count} tests are named");
}

#[test]
fn the_rules_name_tests_that_exist() {
    let count = named_by("docs/RULES.md");
    assert!(count > 30, "only {count} tests are named");
}
