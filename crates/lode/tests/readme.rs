//! The program that the README shows is the one that is compiled (`examples/first.rs`) and run (the crate's page).

fn read(path: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What counts of a program: its lines without indentation, empty lines and the page it opens with.
fn program(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//!")).collect()
}

#[test]
fn the_readme_shows_the_example() {
    let readme = read("../../README.md");
    let (_, rest) = readme.split_once("```rust\n").expect("the README has a program");
    let (shown, _) = rest.split_once("```").expect("the program has an end");
    let example = read("examples/first.rs");
    assert_eq!(program(shown), program(&example));
}

#[test]
fn the_crates_page_runs_the_example() {
    let page = read("src/lib.rs");
    let lines: Vec<&str> = page.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
    let (_, rest) = lines.split_at(lines.iter().position(|line| *line == "```").expect("the page has a program") + 1);
    let shown = &rest[..rest.iter().position(|line| *line == "```").expect("the program has an end")];
    let run: Vec<&str> = shown.iter().map(|line| line.strip_prefix("# ").unwrap_or(line)).collect();
    let example = read("examples/first.rs");
    assert_eq!(program(&run.join("\n")), program(&example));
}
