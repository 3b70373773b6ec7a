//! `lode map`: a drawing of the disk, zone by zone.

mod cells;
mod svg;

use super::export::target::Target;
use crate::failure::{Code, Result};
use crate::{image, output, size, text};
use cells::Cells;
use lode::{DiskMap, ZoneMap};
use serde::Serialize;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  lode map disk.lode
  lode map disk.lode --svg disk.svg && xdg-open disk.svg
  lode map disk.lode --json | jq '[.zones[].snapshots] | add'

Each character, or each cell of the drawing, is a zone (of a large disk, several): what lives in it
of which volume, what only snapshots see, what belongs to open units, tables, and what is dead and
will be cleaned. The drawing also shows how long ago each zone was filled. Reads all tables; the
disk is not written to.";

/// What `lode map` takes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The disk
    disk: PathBuf,
    /// Write a drawing to this file, or - for standard output
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    svg: Option<PathBuf>,
    /// Replace a file that exists
    #[arg(long, requires = "svg")]
    force: bool,
    /// Print JSON, all sizes in bytes
    #[arg(long)]
    json: bool,
}

/// Zones in a line of text.
const LINE: usize = 64;

/// Draws the disk.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let map = image::closing(image::open_read_only(&arguments.disk)?, |disk| Ok(disk.map()?))?;
    if arguments.json {
        output::json(&Shown::from(&map))?;
        return Ok(Code::Done);
    }
    let cells = Cells::new(&map);
    let Some(file) = &arguments.svg else {
        output::print(&describe(&cells))?;
        return Ok(Code::Done);
    };
    let name = arguments.disk.file_name().unwrap_or(arguments.disk.as_os_str());
    let drawing = svg::draw(&name.to_string_lossy(), &cells);
    let bytes = u64::try_from(drawing.len()).expect("a drawing is small");
    let mut target = Target::open(file, &arguments.disk, bytes, arguments.force)?;
    target.data(0, drawing.as_bytes())?;
    target.finish()?;
    Ok(Code::Done)
}

/// The map as characters, and what they add up to.
fn describe(cells: &Cells) -> String {
    let mut words = String::new();
    for line in cells.all.chunks(LINE) {
        words.extend(line.iter().map(cells::Cell::character));
        words.push('\n');
    }
    let each = match cells.zones_each {
        1 => format!("a zone of {}", size::show(cells.zone_bytes)),
        many => format!("{many} zones of {}", size::show(cells.zone_bytes)),
    };
    words.push_str(&format!("\neach character is {each}\n"));
    words.push_str(
        "R roots  T tables  . free  - dead  ! damaged  + being filled  \u{2581} to \u{2588} lives, up to all of it\n\n",
    );
    let mut rows = vec![["WHAT", "BYTES", "SHARE"].map(String::from).to_vec()];
    for (part, bytes) in cells.sums() {
        let share = percent(bytes, cells.total());
        rows.push(vec![text::safe(&cells.name(part)), size::show(bytes), share]);
    }
    words + &text::table(&rows)
}

/// A share with one digit.
fn percent(part: u64, of: u64) -> String {
    let tenths = u128::from(part) * 1000 / u128::from(of.max(1));
    format!("{}.{}%", tenths / 10, tenths % 10)
}

#[derive(Serialize)]
struct Shown<'a> {
    zone_bytes: u64,
    zones: Vec<ShownZone<'a>>,
}

#[derive(Serialize)]
struct ShownZone<'a> {
    zone: usize,
    holds: &'a str,
    filling: bool,
    /// Records written since about the time when it was filled.
    age: u64,
    volumes: Vec<Stored<'a>>,
    snapshots: u64,
    shadow: u64,
    tables: u64,
}

#[derive(Serialize)]
struct Stored<'a> {
    name: &'a str,
    bytes: u64,
}

impl<'a> From<&'a DiskMap> for Shown<'a> {
    fn from(map: &'a DiskMap) -> Self {
        let shown = |(number, zone): (usize, &'a ZoneMap)| ShownZone {
            zone: number,
            holds: zone.holds,
            filling: zone.filling,
            age: zone.age,
            volumes: zone.lists.iter().map(|(list, bytes)| Stored { name: &map.lists[*list], bytes: *bytes }).collect(),
            snapshots: zone.snapshots,
            shadow: zone.shadow,
            tables: zone.tables,
        };
        Shown { zone_bytes: map.zone_bytes, zones: map.zones.iter().enumerate().map(shown).collect() }
    }
}
