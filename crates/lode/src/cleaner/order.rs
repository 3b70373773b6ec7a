//! In which order survivors are written: list by list, and blocks of ordered lists as they stand in their list, so that
//! what is read one after the other comes to lie one behind the other (*The Logical Disk*, clustering by lists).

use super::Owner;
use crate::disk::Inner;
use crate::ordered::Links;
use crate::types::{ListId, low_u32};
use std::collections::BTreeMap;

/// So many blocks are looked up in one hold of the lock.
const AT_ONCE: usize = 1024;

/// Blocks with their neighbours, list by list, each stretch of a list in its order. What cannot be told comes by number.
fn chained(links: &BTreeMap<u32, Links>) -> Vec<u32> {
    let mut lists: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (block, link) in links {
        lists.entry(link.value).or_default().push(*block);
    }
    let mut order = Vec::with_capacity(links.len());
    let mut placed = std::collections::BTreeSet::new();
    for (list, blocks) in lists {
        let inside = |block: u32| links.get(&block).is_some_and(|link| link.value == list);
        // First the stretches, from where each begins; then what a torn ring would leave.
        let starts = blocks.iter().filter(|block| !inside(links[*block].before));
        for start in starts.chain(&blocks) {
            let mut at = *start;
            while inside(at) && placed.insert(at) {
                order.push(at);
                at = links[&at].behind;
            }
        }
    }
    order
}

impl Inner {
    /// Puts survivors in order. Cost: a lookup for each block of an ordered list.
    pub(super) fn in_list_order(&self, mut survivors: Vec<(Owner, Vec<u8>)>) -> Vec<(Owner, Vec<u8>)> {
        survivors.sort_by_key(|(owner, _)| (owner.list, owner.block));
        let mut rank: BTreeMap<(ListId, u64), usize> = BTreeMap::new();
        for some in survivors.chunk_by(|a, b| a.0.list == b.0.list) {
            let pool = some[0].0.list;
            let Some(table) = self.core.lock().state.tables.table_of(pool) else { continue };
            let mut links = BTreeMap::new();
            for few in some.chunks(AT_ONCE) {
                let core = self.core.lock();
                for (owner, _) in few {
                    // What is not in memory is not worth loading for this.
                    let found = core.state.lookup(table, owner.block).ok().flatten().unwrap_or_default();
                    links.insert(low_u32(owner.block), Links::new(found));
                }
            }
            crate::mark("cleaner: blocks put in the order of their lists");
            rank.extend(chained(&links).into_iter().zip(0..).map(|(block, n)| ((pool, u64::from(block)), n)));
        }
        if !rank.is_empty() {
            survivors.sort_by_key(|(owner, _)| {
                (owner.list, rank.get(&(owner.list, owner.block)).copied().unwrap_or(usize::MAX), owner.block)
            });
        }
        survivors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(value: u32, before: u32, behind: u32) -> Links {
        Links { before, behind, value }
    }

    #[test]
    fn blocks_stand_as_in_their_lists() {
        // List 1 is 5 3 9 (4) 2, of which 4 is not here; list 2 is 7 1; 6 and 8 name each other in a ring.
        let links = BTreeMap::from([
            (5, link(1, 0, 3)),
            (3, link(1, 5, 9)),
            (9, link(1, 3, 4)),
            (2, link(1, 4, 0)),
            (7, link(2, 0, 1)),
            (1, link(2, 7, 0)),
            (6, link(3, 8, 8)),
            (8, link(3, 6, 6)),
        ]);
        assert_eq!(chained(&links), [2, 5, 3, 9, 7, 1, 6, 8]);
    }
}
