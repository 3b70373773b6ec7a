//! `docs/FORMAT.md` is what the declarations of the format print.
//!
//! After a change of the format: `LODE_WRITE_FORMAT=1 cargo test -p lode --test format_page`.

#[test]
fn the_format_page_is_what_the_declarations_print() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FORMAT.md");
    let printed = lode::describe();
    if std::env::var_os("LODE_WRITE_FORMAT").is_some_and(|value| value == "1") {
        std::fs::write(&path, &printed).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let page = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let differing = page.lines().zip(printed.lines()).position(|(page, printed)| page != printed);
    assert!(
        page == printed,
        "docs/FORMAT.md is out of date from line {} on; rewrite it with LODE_WRITE_FORMAT=1",
        differing.map_or(page.lines().count().min(printed.lines().count()) + 1, |line| line + 1)
    );
}
