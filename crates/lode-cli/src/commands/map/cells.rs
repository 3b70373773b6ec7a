//! The zones of a disk as cells to draw: of a large disk several zones make one.

use lode::{DiskMap, ZoneMap};
use std::collections::BTreeMap;

/// More than these are too small to see.
const CELLS_MAX: usize = 4096;

/// So many lists have colours of their own; the rest has one together.
pub const LISTS: usize = 9;

/// What bytes of a zone are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Live data of one of the largest lists.
    List(usize),
    /// Live data of all other lists.
    Others,
    /// Seen by snapshots alone.
    Snapshots,
    /// Of open units.
    Shadow,
    /// Tables that the newest root names.
    Tables,
    /// The zones of the roots.
    Roots,
    /// Dead data, and the records of the log.
    Dead,
    /// What is left of zones that are being filled.
    Filling,
    /// In zones that are set aside, since they hold damage.
    Aside,
    /// In zones that hold nothing.
    Free,
}

/// One cell.
pub struct Cell {
    /// The first zone, and the one behind the last.
    pub zones: (usize, usize),
    /// What the first one is for.
    pub holds: &'static str,
    /// Bytes of each part, in its order.
    pub parts: BTreeMap<Part, u64>,
    /// How old it is: 0 the youngest, 1000 the oldest of all filled ones.
    pub age: Option<u32>,
}

/// All of them.
pub struct Cells {
    /// The cells.
    pub all: Vec<Cell>,
    /// Bytes of a zone.
    pub zone_bytes: u64,
    /// Zones in a cell.
    pub zones_each: usize,
    /// The names of the largest lists, the largest first.
    lists: Vec<String>,
}

impl Cells {
    /// The cells of a disk.
    pub fn new(map: &DiskMap) -> Cells {
        let zones_each = map.zones.len().div_ceil(CELLS_MAX).max(1);
        let ranks = ranks(map);
        let mut ages: Vec<u64> = map.zones.iter().filter(|zone| is_filled(zone)).map(|zone| zone.age).collect();
        ages.sort_unstable();
        let cell = |(number, zones): (usize, &[ZoneMap])| {
            let mut parts = BTreeMap::new();
            for zone in zones {
                add(&mut parts, zone, map.zone_bytes, &ranks);
            }
            let age = zones.iter().filter(|zone| is_filled(zone)).map(|zone| rank(&ages, zone.age)).max();
            let first = number * zones_each;
            Cell { zones: (first, first + zones.len()), holds: zones[0].holds, parts, age }
        };
        let all = map.zones.chunks(zones_each).enumerate().map(cell).collect();
        let mut lists = vec![String::new(); ranks.len().min(LISTS)];
        for (list, rank) in &ranks {
            if let Some(name) = lists.get_mut(*rank) {
                name.clone_from(&map.lists[*list]);
            }
        }
        Cells { all, zone_bytes: map.zone_bytes, zones_each, lists }
    }

    /// The bytes of every part that there is, of the whole disk.
    pub fn sums(&self) -> BTreeMap<Part, u64> {
        let mut sums = BTreeMap::new();
        for (part, bytes) in self.all.iter().flat_map(|cell| &cell.parts) {
            *sums.entry(*part).or_insert(0) += bytes;
        }
        sums
    }

    /// The bytes of the whole disk.
    pub fn total(&self) -> u64 {
        self.sums().values().sum()
    }

    /// What a part is called.
    pub fn name(&self, part: Part) -> String {
        match part {
            Part::List(list) => self.lists[list].clone(),
            Part::Others => "other volumes and lists".into(),
            Part::Snapshots => "seen by snapshots only".into(),
            Part::Shadow => "open units".into(),
            Part::Tables => "tables".into(),
            Part::Roots => "roots".into(),
            Part::Dead => "dead, and records".into(),
            Part::Filling => "being filled".into(),
            Part::Aside => "set aside: damaged".into(),
            Part::Free => "free".into(),
        }
    }
}

impl Cell {
    /// The cell as one character.
    pub fn character(&self) -> char {
        let bytes = |wanted: fn(&Part) -> bool| -> u64 {
            self.parts.iter().filter(|(part, _)| wanted(part)).map(|(_, bytes)| bytes).sum()
        };
        let all = bytes(|_| true).max(1);
        let lives = bytes(|part| matches!(part, Part::List(_) | Part::Others | Part::Snapshots | Part::Shadow));
        match () {
            () if bytes(|part| *part == Part::Aside) > 0 => '!',
            () if lives > 0 => {
                let eighth = u32::try_from((lives * 8).div_ceil(all).clamp(1, 8)).expect("at most eight");
                char::from_u32(0x2580 + eighth).unwrap_or('#')
            }
            () if bytes(|part| *part == Part::Roots) > 0 => 'R',
            () if bytes(|part| *part == Part::Tables) > 0 => 'T',
            () if bytes(|part| *part == Part::Filling) > 0 => '+',
            () if bytes(|part| *part == Part::Free) == all => '.',
            () => '-',
        }
    }
}

fn is_filled(zone: &ZoneMap) -> bool {
    !matches!(zone.holds, "roots" | "free")
}

/// The place of each list among all, the one with the most bytes first.
fn ranks(map: &DiskMap) -> BTreeMap<usize, usize> {
    let mut sums = BTreeMap::new();
    for (list, bytes) in map.zones.iter().flat_map(|zone| &zone.lists) {
        *sums.entry(*list).or_insert(0u64) += bytes;
    }
    let mut lists: Vec<(u64, usize)> = sums.into_iter().map(|(list, bytes)| (bytes, list)).collect();
    lists.sort_unstable_by_key(|(bytes, list)| (std::cmp::Reverse(*bytes), *list));
    lists.into_iter().enumerate().map(|(rank, (_, list))| (list, rank)).collect()
}

/// Where `age` is among all, in thousandths.
fn rank(ages: &[u64], age: u64) -> u32 {
    let younger = ages.partition_point(|other| *other < age);
    u32::try_from(younger * 1000 / ages.len().saturating_sub(1).max(1)).unwrap_or(1000).min(1000)
}

/// Adds what a zone holds, so that it adds up to the bytes of the zone.
fn add(parts: &mut BTreeMap<Part, u64>, zone: &ZoneMap, zone_bytes: u64, ranks: &BTreeMap<usize, usize>) {
    // What changed while the map was made must not make a zone larger than it is.
    let mut left = zone_bytes;
    let mut add = |part, bytes: u64| {
        let bytes = bytes.min(left);
        left -= bytes;
        if bytes > 0 {
            *parts.entry(part).or_insert(0) += bytes;
        }
    };
    for (list, bytes) in &zone.lists {
        let part = ranks.get(list).filter(|rank| **rank < LISTS).map_or(Part::Others, |rank| Part::List(*rank));
        add(part, *bytes);
    }
    add(Part::Snapshots, zone.snapshots);
    add(Part::Shadow, zone.shadow);
    add(Part::Tables, zone.tables);
    let rest = match zone.holds {
        "roots" => Part::Roots,
        "free" => Part::Free,
        "aside" => Part::Aside,
        _ if zone.filling => Part::Filling,
        _ => Part::Dead,
    };
    add(rest, zone_bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(holds: &'static str, lists: &[(usize, u64)]) -> ZoneMap {
        ZoneMap { holds, filling: false, age: 0, lists: lists.to_vec(), snapshots: 0, shadow: 0, tables: 0 }
    }

    fn map(zones: Vec<ZoneMap>) -> DiskMap {
        let lists = (0..20).map(|list| format!("list {list}")).collect();
        DiskMap { zone_bytes: 1000, lists, zones }
    }

    #[test]
    fn what_a_zone_holds_adds_up_to_the_zone() {
        let mut zones = vec![zone("roots", &[]), zone("main", &[(3, 100), (5, 700)]), zone("free", &[])];
        zones.push(ZoneMap { snapshots: 900, shadow: 500, tables: 7, ..zone("moved", &[(3, 10)]) });
        zones.push(ZoneMap { filling: true, ..zone("main", &[(3, 10)]) });
        let cells = Cells::new(&map(zones));
        assert_eq!(cells.total(), 5000);
        let sums = cells.sums();
        assert_eq!((sums[&Part::List(0)], cells.name(Part::List(0))), (700, "list 5".into()));
        assert_eq!((sums[&Part::List(1)], cells.name(Part::List(1))), (120, "list 3".into()));
        assert_eq!((sums[&Part::Snapshots], sums[&Part::Shadow], sums.get(&Part::Tables)), (900, 90, None));
        assert_eq!((sums[&Part::Dead], sums[&Part::Filling], sums[&Part::Free]), (200, 990, 1000));
        let text: String = cells.all.iter().map(Cell::character).collect();
        assert_eq!(text, "R\u{2587}.\u{2588}\u{2581}");
    }

    #[test]
    fn many_zones_and_many_lists_stay_readable() {
        let zones: Vec<ZoneMap> = (0..20).map(|list| zone("main", &[(list, 20 + list as u64)])).collect();
        let sums = Cells::new(&map(zones)).sums();
        assert_eq!(sums.keys().filter(|part| matches!(part, Part::List(_))).count(), LISTS);
        assert_eq!(sums[&Part::Others], (20..31).sum::<u64>());
        let cells = Cells::new(&map(vec![zone("free", &[]); 10_000]));
        assert_eq!((cells.zones_each, cells.all.len(), cells.total()), (3, 3334, 10_000_000));
        assert_eq!(cells.all[3333].zones, (9999, 10_000));
    }
}
