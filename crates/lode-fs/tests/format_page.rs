//! `docs/FILES.md` is what the declarations of the format print.
//!
//! After a change of the format: `LODE_WRITE_FORMAT=1 cargo test -p lode-fs --test format_page`.

#[test]
fn the_page_of_files_is_what_the_declarations_print() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FILES.md");
    let printed = lode_fs::describe();
    if std::env::var_os("LODE_WRITE_FORMAT").is_some_and(|value| value == "1") {
        std::fs::write(&path, &printed).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let page = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(page == printed, "docs/FILES.md is out of date; rewrite it with LODE_WRITE_FORMAT=1");
}
