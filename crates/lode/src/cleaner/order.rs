//! In which order survivors are written: list by list, and blocks of ordered lists as they stand in their list, lists
//! that are to be near others behind those, so that what is read one after the other comes to lie one behind the other
//! (*The Logical Disk*, clustering by lists, and of lists).

use super::Owner;
use crate::disk::Core;
use crate::disk::Inner;
use crate::ordered::{Links, Staged, stands_by};
use crate::types::{ListId, low_u32};
use std::collections::BTreeMap;

/// So many blocks are looked up in one hold of the lock.
const AT_ONCE: usize = 1024;

/// Where a list stands among those that are near each other: behind which, and how far.
type Stand = (u32, usize);

/// The blocks of one list with their neighbours, each stretch in its order. What cannot be told comes by number.
fn chained(links: &BTreeMap<u32, Links>) -> Vec<u32> {
    let mut order = Vec::with_capacity(links.len());
    let mut placed = std::collections::BTreeSet::new();
    // First the stretches, from where each begins; then what a torn ring would leave.
    let starts = links.iter().filter(|(_, link)| !links.contains_key(&link.before)).map(|(block, _)| block);
    for start in starts.chain(links.keys()) {
        let mut at = *start;
        while let Some(link) = links.get(&at)
            && placed.insert(at)
        {
            order.push(at);
            at = link.behind;
        }
    }
    order
}

/// Survivors of ordered lists, list by list.
#[derive(Default)]
struct Order {
    stands: BTreeMap<u32, Option<Stand>>,
    lists: BTreeMap<(Stand, u32), (ListId, BTreeMap<u32, Links>)>,
}

impl Order {
    /// A block of a pool, with its row. What is not in memory is not worth loading for this.
    fn note(&mut self, core: &Core, table: ListId, owner: &Owner) {
        let links = Links::new(core.state.lookup(table, owner.block).ok().flatten().unwrap_or_default());
        let list = links.value;
        let stand = *self.stands.entry(list).or_insert_with(|| {
            let staged = Staged::default();
            let cluster = staged.alive(&core.state, list).is_ok_and(|attributes| attributes.cluster);
            cluster.then(|| stands_by(&core.state, &staged, list).ok().unwrap_or((list, 0)))
        });
        if let Some(stand) = stand {
            let (_, blocks) = self.lists.entry((stand, list)).or_insert_with(|| (owner.list, BTreeMap::new()));
            blocks.insert(low_u32(owner.block), links);
        }
    }

    /// The rank of each block.
    fn ranks(&self) -> BTreeMap<(ListId, u64), usize> {
        let all = self
            .lists
            .values()
            .flat_map(|(pool, links)| chained(links).into_iter().map(|block| (*pool, u64::from(block))));
        all.zip(0..).collect()
    }
}

impl Inner {
    /// Puts survivors in order. Cost: a lookup for each block of an ordered list.
    pub(super) fn in_list_order(&self, mut survivors: Vec<(Owner, Vec<u8>)>) -> Vec<(Owner, Vec<u8>)> {
        survivors.sort_by_key(|(owner, _)| (owner.list, owner.block));
        let mut order = Order::default();
        for some in survivors.chunk_by(|a, b| a.0.list == b.0.list) {
            let Some(table) = self.core.lock().state.tables.table_of(some[0].0.list) else { continue };
            for few in some.chunks(AT_ONCE) {
                let core = self.core.lock();
                few.iter().for_each(|(owner, _)| order.note(&core, table, owner));
            }
        }
        let ranks = order.ranks();
        if !ranks.is_empty() {
            crate::mark("cleaner: blocks put in the order of their lists");
            survivors.sort_by_key(|(owner, _)| {
                (ranks.get(&(owner.list, owner.block)).copied().unwrap_or(usize::MAX), owner.list, owner.block)
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
    fn blocks_stand_as_in_their_list() {
        // 5 3 9 (4) 2, of which 4 is not here; 6 and 8 name each other in a ring.
        let links = BTreeMap::from([
            (5, link(1, 0, 3)),
            (3, link(1, 5, 9)),
            (9, link(1, 3, 4)),
            (2, link(1, 4, 0)),
            (6, link(1, 8, 8)),
            (8, link(1, 6, 6)),
        ]);
        assert_eq!(chained(&links), [2, 5, 3, 9, 6, 8]);
    }
}
