//! Words for a terminal. Names come from images, and images come from anywhere: what a terminal would
//! obey is printed as an escape.

/// `text` with every control character, and every character that reorders a line, written as an escape.
pub fn safe(text: &str) -> String {
    let mut words = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || reorders(c) {
            words.extend(c.escape_unicode());
        } else {
            words.push(c);
        }
    }
    words
}

/// Bidirectional controls, invisible separators, the byte order mark.
fn reorders(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// For a column of a table.
pub fn yes_no(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

/// Rows as columns, the first row being the heading. Numbers (all but the first column) go to the right.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell: &String| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let line: Vec<String> = cells
            .map(|(i, (cell, &width))| if i == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") })
            .collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        assert_eq!(super::safe("a\u{1b}[2Jb\n\u{202e}c\u{9b}"), "a\\u{1b}[2Jb\\u{a}\\u{202e}c\\u{9b}");
        assert_eq!(super::safe("Größe 日本"), "Größe 日本");
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["name".into(), "size".into()], vec!["a".into(), "12345".into()]];
        assert_eq!(super::table(&rows), "name   size\na     12345\n");
    }
}
