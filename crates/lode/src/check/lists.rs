//! The tables of ordered lists, walked ring by ring: O1, O2 and O3 of `ordered`, by reading the rows and nothing else.

use super::CheckReport;
use crate::disk::Inner;
use crate::error::Result;
use crate::types::{ListId, Location};
use std::collections::BTreeMap;

/// A table by its rows: before, behind, value.
type Rows = BTreeMap<u64, (u32, u32, u32)>;

const DEAD: u32 = 1 << 16;

impl Inner {
    fn rows_of(&self, table: ListId) -> Result<Vec<(u64, Location, u32)>> {
        let (mut rows, mut from) = (Vec::new(), 0);
        while let Some(number) = self.section_from(table, from) {
            from = number + 1;
            rows.extend(self.section_blocks(table, number)?);
        }
        Ok(rows)
    }

    fn table_rows(&self, table: ListId) -> Result<Rows> {
        let rows = self.rows_of(table)?.into_iter();
        Ok(rows.filter_map(|(at, place, value)| place.as_neighbours().map(|(a, b)| (at, (a, b, value)))).collect())
    }

    /// Verifies the tables of ordered lists. Damage of the tables themselves is told elsewhere.
    pub(super) fn check_lists(&self, report: &mut CheckReport) {
        let (table, pools) = {
            let core = self.core.lock();
            (core.state.tables.lists, core.state.tables.pools().collect::<Vec<_>>())
        };
        let Ok(lists) = self.table_rows(table) else { return };
        let mut owned: BTreeMap<u32, u32> = lists
            .iter()
            .filter(|(at, _)| *at % 2 == 1 && **at > 1)
            .map(|(at, (_, _, value))| (u32::try_from(at / 2).unwrap_or(u32::MAX), *value))
            .collect();
        report.ordered_lists = u64::try_from(owned.len()).unwrap_or(u64::MAX);
        for at in lists.keys().filter(|at| *at % 2 == 0 && **at > 0) {
            if !owned.contains_key(&u32::try_from(at / 2).unwrap_or(u32::MAX)) {
                report.problems.push(format!("ordered list {} has blocks, and is none (O2)", at / 2));
            }
        }
        let row_of_list = |number: u64| number * 2 + 1;
        for (anchor, dead) in [(1, false), (0, true)] {
            let what = if dead { "the deleted ordered lists" } else { "the ordered lists" };
            for list in ring(what, lists.get(&anchor), |number| lists.get(&row_of_list(number)), report) {
                let value = owned.remove(&list);
                if value.is_none_or(|value| (value & DEAD != 0) != dead) {
                    report
                        .problems
                        .push(format!("ordered list {list} is among {what}, with attributes {value:?} (O2)"));
                }
            }
        }
        for list in owned.keys() {
            report.problems.push(format!("ordered list {list} is in no order of lists (O1)"));
        }
        let mut blocks_of: BTreeMap<u8, Rows> = BTreeMap::new();
        for (shift, pool) in &pools {
            let Ok(rows) = self.table_rows(pool.table) else { return };
            let Ok(stored) = self.rows_of(pool.blocks) else { return };
            for (block, _, _) in stored.iter().filter(|(block, _, _)| !rows.contains_key(block)) {
                report.problems.push(format!("block {block} of the pool of 2^{shift} bytes is in no list (O3)"));
            }
            blocks_of.insert(*shift, rows);
        }
        for (at, (_, _, value)) in lists.iter().filter(|(at, _)| *at % 2 == 1 && **at > 1) {
            let (list, shift) = (u32::try_from(at / 2).unwrap_or(u32::MAX), value.to_le_bytes()[0]);
            let Some(rows) = blocks_of.get_mut(&shift) else {
                if lists.contains_key(&(at - 1)) {
                    report.problems.push(format!("ordered list {list} has blocks of 2^{shift} bytes: no such pool"));
                }
                continue;
            };
            let what = format!("the blocks of ordered list {list}");
            let found = ring(&what, lists.get(&(at - 1)), |number| rows.get(&number), report);
            for block in found {
                let owner = rows.remove(&u64::from(block)).map(|row| row.2);
                if owner != Some(list) {
                    report.problems.push(format!("block {block} is in list {list}, and names list {owner:?} (O2)"));
                }
            }
        }
        for (shift, rows) in &blocks_of {
            for (block, (_, _, list)) in rows {
                report
                    .problems
                    .push(format!("block {block} of 2^{shift} bytes names list {list}, and is not in it (O1)"));
            }
        }
    }
}

/// The numbers in a ring, as far as it is one.
fn ring<'a>(
    what: &str,
    anchor: Option<&(u32, u32, u32)>,
    row: impl Fn(u64) -> Option<&'a (u32, u32, u32)>,
    report: &mut CheckReport,
) -> Vec<u32> {
    let Some((last, first, _)) = anchor else { return Vec::new() };
    let mut numbers = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let (mut at, mut before) = (*first, 0);
    while at != 0 {
        let Some((found, behind, _)) = row(at.into()) else {
            report.problems.push(format!("{what}: {at} follows {before}, and has no row (O1)"));
            return numbers;
        };
        if *found != before || !seen.insert(at) {
            report.problems.push(format!("{what}: {at} follows {before}, and says that it follows {found} (O1)"));
            return numbers;
        }
        numbers.push(at);
        (before, at) = (at, *behind);
    }
    if before != *last {
        report.problems.push(format!("{what}: expected {last} to be the last one, found {before} (O1)"));
    }
    numbers
}
