//! Walking over ordered lists: where a block is, what is beside it, what comes next.

use super::{Attributes, Chain, Links, Outcome, Row, Staged, leads_back, meaningless};
use crate::state::{Pool, State};
use crate::types::{BlockId, OrderedId};

/// Where a block is: its pool, its list, and what that is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    pub pool: Pool,
    pub attributes: Attributes,
}

/// The list of a block, and the chain through it.
fn place_of(state: &State, staged: &Staged, block: BlockId) -> Outcome<(u32, Attributes, Chain, Links)> {
    let (shift, number) = block.parts();
    let table = state.tables.pool(shift).unwrap_or_default().table;
    let links = match number {
        0 => Links::default(),
        _ => staged.get(state, Row { table, at: number.into() })?,
    };
    if links.is_none() {
        return meaningless(format!("block {} is in no ordered list, or no more", block.0));
    }
    let attributes = staged.alive(state, links.value)?;
    Ok((links.value, attributes, Chain::of_blocks(state, links.value, shift), links))
}

/// See [`Owner`].
pub(crate) fn owner(state: &State, staged: &Staged, block: BlockId) -> Outcome<Owner> {
    let (_, attributes, ..) = place_of(state, staged, block)?;
    Ok(Owner { pool: state.tables.pool(attributes.shift).unwrap_or_default(), attributes })
}

/// The neighbour of a block.
pub(crate) fn beside(state: &State, staged: &Staged, block: BlockId, behind: bool) -> Outcome<Option<BlockId>> {
    let (_, _, _, links) = place_of(state, staged, block)?;
    let number = if behind { links.behind } else { links.before };
    Ok((number != 0).then(|| BlockId::new(block.parts().0, number)))
}

/// Up to `most` blocks of a list, in order, from the one behind `after` on. False: there are no more behind them.
pub(crate) fn blocks(
    state: &State,
    staged: &Staged,
    list: OrderedId,
    after: Option<BlockId>,
    most: usize,
    into: &mut Vec<BlockId>,
) -> Outcome<bool> {
    let shift = staged.alive(state, list.0)?.shift;
    let chain = Chain::of_blocks(state, list.0, shift);
    let (mut before, mut number) = match after.map(|after| after.parts().1) {
        None => (0, staged.get(state, chain.row(0))?.behind),
        Some(after) => (after, staged.block(state, &chain, list.0, after)?.behind),
    };
    while number != 0 {
        if into.len() >= most {
            return Ok(true);
        }
        into.push(BlockId::new(shift, number));
        let links = staged.block(state, &chain, list.0, number)?;
        leads_back(number, before, links)?;
        (before, number) = (number, links.behind);
    }
    Ok(false)
}

/// All lists, in order.
pub(crate) fn lists(state: &State, staged: &Staged) -> Outcome<Vec<OrderedId>> {
    let chain = Chain::of_lists(state, false);
    let mut lists = Vec::new();
    let (mut before, mut number) = (0, staged.get(state, chain.row(0))?.behind);
    while number != 0 {
        lists.push(OrderedId(number));
        let links = staged.get(state, chain.row(number))?;
        leads_back(number, before, links)?;
        (before, number) = (number, links.behind);
    }
    Ok(lists)
}

/// Blocks that are read one after the other from this one on, itself included, at most so many: those behind it, and
/// then those of lists that are to be near its list, as long as their blocks have its size.
pub(crate) fn following(state: &State, staged: &Staged, block: BlockId, most: usize) -> Outcome<Vec<BlockId>> {
    let (mut list, attributes, mut chain, mut links) = place_of(state, staged, block)?;
    let mut found = vec![block];
    let mut empty = 0;
    while found.len() < most {
        while links.behind == 0 {
            let order = Chain::of_lists(state, false);
            list = staged.get(state, order.row(list))?.behind;
            let next = if list == 0 { return Ok(found) } else { staged.alive(state, list)? };
            empty += 1;
            if !next.near || next.shift != attributes.shift || empty > NEAR_MOST {
                return Ok(found);
            }
            chain = Chain::of_blocks(state, list, next.shift);
            links = staged.get(state, chain.row(0))?;
        }
        let number = links.behind;
        links = staged.block(state, &chain, list, number)?;
        found.push(BlockId::new(attributes.shift, number));
    }
    Ok(found)
}

/// So many lists that are to be near each other are looked at to find where they begin.
const NEAR_MOST: usize = 64;

/// Where the blocks of a list belong: behind those of the list with this number, as the so-manieth list behind it. A
/// list that is to be near no other stands by itself.
pub(crate) fn stands_by(state: &State, staged: &Staged, list: u32) -> Outcome<(u32, usize)> {
    let order = Chain::of_lists(state, false);
    let mut at = list;
    for step in 0..NEAR_MOST {
        let near = staged.alive(state, at)?.near;
        let before = if near { staged.get(state, order.row(at))?.before } else { 0 };
        if before == 0 {
            return Ok((at, step));
        }
        at = before;
    }
    Ok((at, NEAR_MOST))
}
