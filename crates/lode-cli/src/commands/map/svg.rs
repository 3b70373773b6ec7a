//! The drawing: a bar of the whole disk, every zone by what is in it, every zone by its age, and a legend.
//!
//! It is text that every browser shows; each cell tells its numbers when it is pointed at.

use super::cells::{Cell, Cells, LISTS, Part};
use super::percent;
use crate::size;
use crate::text::safe;
use std::fmt::Write;

/// The width of the drawing, and of the space at its left and right.
const WIDTH: usize = 1200;
const MARGIN: usize = 32;
const INNER: usize = WIDTH - 2 * MARGIN;

/// Colours of the lists: told apart also by those who see few colours (Okabe and Ito, Tol).
const COLOURS: [&str; LISTS] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6bb1", "#b8a200", "#44aa99"];

const STYLE: &str = "text{font-family:system-ui,'DejaVu Sans',sans-serif;fill:#24292f}\
    .h{font-size:24px;font-weight:600}.s{font-size:13px;fill:#57606a}.t{font-size:15px;font-weight:600}\
    .l{font-size:13px}.c:hover{stroke:#24292f;stroke-width:1.5}";

fn colour(part: Part) -> &'static str {
    match part {
        Part::List(list) => COLOURS[list],
        Part::Others => "#7f8c9b",
        Part::Snapshots => "url(#snapshots)",
        Part::Shadow => "url(#shadow)",
        Part::Tables => "#4a4e69",
        Part::Roots => "#1b1b1e",
        Part::Dead => "#ded9d2",
        Part::Filling => "#fdf3c4",
        Part::Aside => "#c1121f",
        Part::Free => "#eef1f4",
    }
}

/// `text` as the content of an element or of an attribute.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in safe(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The drawing as it grows downwards.
struct Page {
    body: String,
    /// Where the next thing begins.
    y: usize,
}

impl Page {
    fn text(&mut self, class: &str, x: usize, y: usize, words: &str) {
        let _ = writeln!(self.body, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escape(words));
    }

    /// A rectangle, in hundredths of a pixel.
    fn rectangle(&mut self, [x, y, width, height]: [usize; 4], fill: &str) {
        let _ = write!(
            self.body,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{fill}\"/>",
            fine(x),
            fine(y),
            fine(width),
            fine(height)
        );
    }
}

/// Hundredths as a number with a point, where one is needed.
fn fine(hundredths: usize) -> String {
    let (whole, rest) = (hundredths / 100, hundredths % 100);
    if rest == 0 { whole.to_string() } else { format!("{whole}.{rest:02}") }
}

/// The share of `of` that `part` is, of `length`.
fn scaled(length: usize, part: u64, of: u64) -> usize {
    let scaled = u128::from(part) * u128::try_from(length).unwrap_or(0) / u128::from(of.max(1));
    usize::try_from(scaled).unwrap_or(length).min(length)
}

/// Draws the cells of the disk `name`.
pub fn draw(name: &str, cells: &Cells) -> String {
    let mut page = Page { body: String::new(), y: 56 };
    heading(&mut page, name, cells);
    bar(&mut page, cells);
    legend(&mut page, cells);
    grid(
        &mut page,
        cells,
        "What is in each zone",
        "filled from below; in the order of the medium, row by row",
        content,
    );
    grid(&mut page, cells, "How long ago each zone was filled", "live data in full colour, the rest pale", aged);
    ages(&mut page);
    let height = page.y + MARGIN;
    let pattern = |name, ground, line| {
        format!(
            "<pattern id=\"{name}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
             patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"{ground}\"/>\
             <rect width=\"2.5\" height=\"6\" fill=\"{line}\"/></pattern>"
        )
    };
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n<title>{}: the zones of a Lode disk</title>\n\
         <style>{STYLE}</style>\n<defs>{}{}</defs>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n{}</svg>\n",
        escape(name),
        pattern("snapshots", "#c9b3e6", "#7b52ab"),
        pattern("shadow", "#f9c6c9", "#e5383b"),
        page.body
    )
}

fn heading(page: &mut Page, name: &str, cells: &Cells) {
    page.text("h", MARGIN, page.y, name);
    let zones = cells.all.last().map_or(0, |cell| cell.zones.1);
    let mut words = format!("{} in {zones} zones of {}", size::show(cells.total()), size::show(cells.zone_bytes));
    if cells.zones_each > 1 {
        let _ = write!(words, "; each cell is {} zones", cells.zones_each);
    }
    page.text("s", MARGIN, page.y + 24, &words);
    page.y += 48;
}

/// The whole disk as one bar.
fn bar(page: &mut Page, cells: &Cells) {
    const HEIGHT: usize = 34;
    let total = cells.total();
    let (mut x, mut before) = (0, 0);
    page.body.push_str("<g>");
    for (part, bytes) in cells.sums() {
        before += bytes;
        let end = scaled(INNER * 100, before, total);
        page.rectangle([MARGIN * 100 + x, page.y * 100, end - x, HEIGHT * 100], colour(part));
        x = end;
    }
    let _ = writeln!(
        page.body,
        "</g><rect x=\"{MARGIN}\" y=\"{}\" width=\"{INNER}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#8c959f\"/>",
        page.y
    );
    page.y += HEIGHT + 18;
}

/// What the colours mean, with the bytes of each.
fn legend(page: &mut Page, cells: &Cells) {
    const COLUMNS: usize = 3;
    const ROW: usize = 24;
    let (sums, total) = (cells.sums(), cells.total());
    let rows = sums.len().div_ceil(COLUMNS);
    for (number, (part, bytes)) in sums.into_iter().enumerate() {
        let (x, y) = (MARGIN + number / rows * (INNER / COLUMNS), page.y + number % rows * ROW);
        let _ = write!(
            page.body,
            "<rect x=\"{x}\" y=\"{y}\" width=\"15\" height=\"15\" fill=\"{}\" stroke=\"#8c959f\" stroke-width=\".6\"/>",
            colour(part)
        );
        let name = escape(&shorten(&cells.name(part)));
        let _ = writeln!(
            page.body,
            "<text class=\"l\" x=\"{}\" y=\"{}\">{name}<tspan class=\"s\" dx=\"10\">{}, {}</tspan></text>",
            x + 23,
            y + 12,
            size::show(bytes),
            percent(bytes, total)
        );
    }
    page.y += rows * ROW + 30;
}

/// A name that fits into its column.
fn shorten(name: &str) -> String {
    const LENGTH: usize = 36;
    if name.chars().count() <= LENGTH {
        return name.to_owned();
    }
    name.chars().take(LENGTH - 1).chain(['\u{2026}']).collect()
}

/// All cells in rows, each drawn by `cell`.
fn grid(page: &mut Page, cells: &Cells, title: &str, more: &str, cell: fn(&mut Page, &Cell, [usize; 4])) {
    page.text("t", MARGIN, page.y, title);
    page.text("s", MARGIN, page.y + 20, more);
    page.y += 34;
    // Three cells wide for each one high, roughly; in hundredths of a pixel.
    let columns = (1..=cells.all.len()).find(|columns| columns * columns >= cells.all.len() * 3).unwrap_or(1).max(24);
    let step = INNER * 100 / columns;
    let gap = if step > 1000 { 200 } else { 60 };
    for (number, drawn) in cells.all.iter().enumerate() {
        let (x, y) = (MARGIN * 100 + number % columns * step, page.y * 100 + number / columns * step);
        let _ = write!(page.body, "<g class=\"c\"><title>{}</title>", words(drawn, cells));
        cell(page, drawn, [x, y, step - gap, step - gap]);
        page.body.push_str("</g>\n");
    }
    page.y += (cells.all.len().div_ceil(columns) * step).div_ceil(100) + 36;
}

/// A cell, filled from below with its parts.
fn content(page: &mut Page, cell: &Cell, [x, y, width, height]: [usize; 4]) {
    let total: u64 = cell.parts.values().sum();
    let (mut bottom, mut before) = (0, 0);
    for (part, bytes) in &cell.parts {
        before += bytes;
        let top = scaled(height, before, total);
        if top > bottom {
            page.rectangle([x, y + height - top, width, top - bottom], colour(*part));
        }
        bottom = top;
    }
}

/// A cell in the colour of its age, as far up as it lives.
fn aged(page: &mut Page, cell: &Cell, [x, y, width, height]: [usize; 4]) {
    let Some(age) = cell.age else {
        let free = cell.parts.contains_key(&Part::Free);
        return page.rectangle([x, y, width, height], colour(if free { Part::Free } else { Part::Roots }));
    };
    let lives = |part: &Part| !matches!(part, Part::Dead | Part::Filling | Part::Free | Part::Aside);
    let live: u64 = cell.parts.iter().filter(|(part, _)| lives(part)).map(|(_, bytes)| bytes).sum();
    let top = scaled(height, live, cell.parts.values().sum());
    let hue = of_age(age);
    page.rectangle([x, y, width, height], &mixed(hue, 75));
    page.rectangle([x, y + height - top, width, top], &mixed(hue, 0));
}

/// From the youngest (light green) to the oldest (deep violet).
fn of_age(age: u32) -> [u32; 3] {
    const STOPS: [[u32; 3]; 4] = [[0xb5, 0xde, 0x2b], [0x35, 0xb7, 0x79], [0x31, 0x68, 0x8e], [0x48, 0x28, 0x78]];
    let at = age.min(1000) * 3;
    let stop = usize::try_from(at / 1000).unwrap_or(3).min(2);
    let share = at - u32::try_from(stop).unwrap_or(0) * 1000;
    std::array::from_fn(|n| (STOPS[stop][n] * (1000 - share) + STOPS[stop + 1][n] * share) / 1000)
}

/// A colour with so many hundredths of white in it.
fn mixed(colour: [u32; 3], white: u32) -> String {
    let [r, g, b] = colour.map(|part| (part * (100 - white) + 255 * white) / 100);
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// What a cell says when it is pointed at, escaped.
fn words(cell: &Cell, cells: &Cells) -> String {
    let (first, end) = cell.zones;
    let mut words = match end - first {
        1 => format!("zone {first}: {}", cell.holds),
        _ => format!("zones {first} to {}", end - 1),
    };
    for (part, bytes) in &cell.parts {
        let _ = write!(words, "&#10;{}: {}", escape(&cells.name(*part)), size::show(*bytes));
    }
    words
}

/// The scale of the ages.
fn ages(page: &mut Page) {
    const STEPS: u32 = 40;
    page.text("l", MARGIN, page.y, "just now");
    let (mut x, y) = ((MARGIN + 70) * 100, (page.y - 12) * 100);
    page.body.push_str("<g>");
    for step in 0..STEPS {
        page.rectangle([x, y, 700, 1500], &mixed(of_age(step * 1000 / (STEPS - 1)), 0));
        x += 700;
    }
    page.body.push_str("</g>\n");
    page.text("l", x / 100 + 12, page.y, "long ago: by the records written since, in order");
}

#[cfg(test)]
mod tests {
    use super::*;
    use lode::{DiskMap, ZoneMap};

    #[test]
    fn names_are_escaped_and_the_drawing_is_well_formed() {
        let zone = ZoneMap {
            holds: "main",
            filling: false,
            age: 3,
            lists: vec![(0, 400)],
            snapshots: 100,
            shadow: 50,
            tables: 0,
        };
        let map = DiskMap { zone_bytes: 1000, lists: vec!["<script>&\"'\u{1b}".into()], zones: vec![zone; 30] };
        let drawing = draw("a<b>&c", &Cells::new(&map));
        assert!(drawing.contains("&lt;script&gt;&amp;&quot;&#39;\\u{1b}"), "{drawing}");
        assert!(!drawing.contains("<script") && drawing.contains("<title>a&lt;b&gt;&amp;c:"));
        let count = |what: &str| drawing.matches(what).count();
        assert_eq!(
            (count("<g"), count("<text"), count("<title>")),
            (count("</g>"), count("</text>"), count("</title>"))
        );
    }

    #[test]
    fn ages_go_from_one_colour_to_the_other() {
        assert_eq!((mixed(of_age(0), 0), mixed(of_age(1000), 0)), ("#b5de2b".into(), "#482878".into()));
        assert_eq!(mixed([0, 0, 0], 100), "#ffffff");
        assert_eq!(
            (fine(1234), fine(1200), scaled(100, 1, 3), scaled(100, 9, 3)),
            ("12.34".into(), "12".into(), 33, 100)
        );
    }
}
