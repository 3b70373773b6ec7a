//! What a repair does for ordered lists: sections hold rows of different times then, so that rings may be torn.
//!
//! Every list and every block that still has a row is kept, in the order in which rows still lead from one to the
//! next; what no row leads to comes behind that, by number. Rows of lists that are not there are dropped. Where a part of
//! the tables cannot be read, nothing is mended: what is damaged must not spread to what is not (P6).

use super::Inner;
use super::space::Claim;
use crate::error::{ErrorKind, Result};
use crate::ordered::{Attributes, Chain, Change, Links, Row, Staged};
use crate::state::Pool;
use crate::types::{ListId, low_u32};
use std::collections::BTreeMap;

type Rows = BTreeMap<u64, Links>;

/// Numbers in the order in which rows lead from one to the next, then the rest.
fn order(first: u32, members: &mut BTreeMap<u32, Links>) -> Vec<(u32, u32)> {
    let mut order = Vec::with_capacity(members.len());
    let mut at = first;
    while let Some(links) = members.remove(&at) {
        order.push((at, links.value));
        at = links.behind;
        if !members.contains_key(&at)
            && let Some(next) = members.keys().next()
        {
            at = *next;
        }
    }
    if let Some(next) = members.keys().next().copied() {
        order.extend(self::order(next, members));
    }
    order
}

/// The rows of a ring of these members.
fn ring(chain: &Chain, members: &[(u32, u32)], into: &mut BTreeMap<Row, Links>) {
    let number = |at: Option<&(u32, u32)>| at.map_or(0, |(number, _)| *number);
    for (n, (member, value)) in members.iter().enumerate() {
        let before = n.checked_sub(1).map_or(0, |before| members[before].0);
        let behind = number(members.get(n + 1));
        into.insert(chain.row(*member), Links { before, behind, value: *value });
    }
    let anchor = Links { before: number(members.last()), behind: number(members.first()), value: 0 };
    if !anchor.is_none() {
        into.insert(chain.row(0), anchor);
    }
}

impl Inner {
    /// The rows of a table, all of them.
    fn rows_in(&self, table: ListId) -> Result<Rows> {
        let (mut rows, mut from) = (Rows::new(), 0);
        while let Some(number) = self.section_from(table, from) {
            from = number + 1;
            for (at, place, value) in self.section_blocks(table, number)? {
                rows.insert(at, Links::new((place, value)));
            }
        }
        Ok(rows)
    }

    /// Makes the tables of ordered lists whole again, if all of them can be read. Cost: reads all of them.
    pub(super) fn mend_lists(&self) -> Result<()> {
        match self.mend_readable() {
            Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Media) => {
                crate::mark("repair: ordered lists left as they are");
                self.core.lock().keeper_error = Some(error);
                Ok(())
            }
            done => done,
        }
    }

    fn mend_readable(&self) -> Result<()> {
        let (table, pools) = {
            let core = self.core.lock();
            (core.state.tables.lists, core.state.tables.pools().collect::<Vec<_>>())
        };
        let lists = self.rows_in(table)?;
        let mut old: BTreeMap<Row, Links> = lists.iter().map(|(at, links)| (Row { table, at: *at }, *links)).collect();
        let mut new = BTreeMap::new();
        let anchor = |at: u64| lists.get(&at).map_or(0, |links| links.behind);
        let (mut alive, mut dead) = (BTreeMap::new(), BTreeMap::new());
        for (at, links) in lists.iter().filter(|(at, links)| *at % 2 == 1 && **at > 1 && links.value != 0) {
            let of = if Attributes::decode(links.value).dead { &mut dead } else { &mut alive };
            of.insert(low_u32(at / 2), *links);
        }
        let mut found = Vec::new();
        {
            let core = self.core.lock();
            for (members, is_dead) in [(&mut alive, false), (&mut dead, true)] {
                let chain = Chain::of_lists(&core.state, is_dead);
                let members = order(anchor(u64::from(!is_dead)), members);
                ring(&chain, &members, &mut new);
                found.extend(members);
            }
        }
        for (shift, pool) in &pools {
            let (shift, pool) = (*shift, *pool);
            let rows = self.rows_in(pool.table)?;
            old.extend(rows.iter().map(|(at, links)| (Row { table: pool.table, at: *at }, *links)));
            let mut members: BTreeMap<u32, BTreeMap<u32, Links>> = BTreeMap::new();
            for (at, links) in rows {
                members.entry(links.value).or_default().insert(low_u32(at), links);
            }
            let core = self.core.lock();
            for (list, _) in found.iter().filter(|(_, value)| Attributes::decode(*value).shift == shift) {
                let mut blocks = members.remove(list).unwrap_or_default();
                let first = anchor(u64::from(*list) * 2);
                ring(&Chain::of_blocks(&core.state, *list, shift), &order(first, &mut blocks), &mut new);
            }
        }
        self.rewrite_rows(&old, &new)?;
        for (_, pool) in pools {
            self.free_unowned(pool, &new)?;
        }
        Ok(())
    }

    /// Frees what is stored in a pool without being in a list (O3).
    fn free_unowned(&self, pool: Pool, rows: &BTreeMap<Row, Links>) -> Result<()> {
        let mut from = 0;
        while let Some(number) = self.section_from(pool.blocks, from) {
            from = number + 1;
            for (at, _, _) in self.section_blocks(pool.blocks, number).unwrap_or_default() {
                if rows.contains_key(&Row { table: pool.table, at }) {
                    continue;
                }
                self.until_made(
                    0,
                    |core| core.with_kept(crate::format::records::put_bytes(1)),
                    Claim::Keeper,
                    |core| {
                        let rows = core.ask_freed(pool.blocks, at)?;
                        core.write_rows(&Staged::default(), &rows, |_, _| {});
                        Ok(())
                    },
                    || Ok(()),
                )?;
            }
        }
        Ok(())
    }

    /// Makes rows what they should be, some at a time.
    fn rewrite_rows(&self, old: &BTreeMap<Row, Links>, new: &BTreeMap<Row, Links>) -> Result<()> {
        let get = |of: &BTreeMap<Row, Links>, row| of.get(row).copied().unwrap_or_default();
        let mut changes: Vec<Change> = old
            .keys()
            .chain(new.keys())
            .map(|row| Change { row: *row, old: get(old, row), new: get(new, row) })
            .filter(|change| change.old != change.new)
            .collect();
        changes.sort_by_key(|change| change.row);
        changes.dedup_by_key(|change| change.row);
        if changes.is_empty() {
            return Ok(());
        }
        crate::mark("repair: ordered lists mended");
        let room = self.shape.batch_bytes - self.shape.head;
        let fits = crate::types::index(room / crate::format::records::put_bytes(1) / 4).max(1);
        for chunk in changes.chunks(fits) {
            let staged = Staged::of(chunk.to_vec());
            self.until_made(
                0,
                |_| room,
                Claim::Keeper,
                |core| {
                    let rows = core.ask_rows(&staged)?;
                    debug_assert!(rows.bytes() <= u64::from(room), "four records for each row");
                    core.write_rows(&staged, &rows, |_, _| {});
                    Ok(())
                },
                || Ok(()),
            )?;
        }
        Ok(())
    }
}
