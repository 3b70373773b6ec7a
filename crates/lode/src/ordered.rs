//! Ordered lists: blocks in an order that their clients chose, and the lists in an order of their own (*The Logical
//! Disk*, section 2). Pure: reads the tables, and says which rows change.
//!
//! ```text
//!  the table of lists, two rows each          the table of a pool, a row for each block
//!  ─────────────────────────────────          ─────────────────────────────────────────
//!  0     the graveyard: last, first
//!  1     all lists: last, first
//!  2 L   its blocks: last, first       ───>   b    before, behind; L
//!  2 L+1 before, behind; its attributes
//! ```
//! A row is an entry of the map: two numbers where the place would be, a third one where the checksum would be. So the
//! tables are logged, checkpointed, loaded, kept for snapshots and checked as every list is, and rows of blocks that
//! were inserted one behind the other are stored as runs.
//!
//! Every chain is a ring through a row that stands for its list (number 0), so that no end is a special case. Removal
//! never searches (architecture, section 5).
//!
//! Invariants, which `check` asks:
//! * O1 `behind` of `before` of a row is the row itself, and the other way round.
//! * O2 a block names the list whose ring it is in; a list without attributes is none, and has no blocks.
//! * O3 only blocks that have a row are stored in a pool.

mod walk;

use crate::format::records::Compression;
use crate::state::{ColdLeaf, State};
use crate::types::{ListId, Location, SnapshotId};
use std::collections::HashMap;
pub(crate) use walk::{Owner, beside, blocks, following, lists, owner, stands_by};

/// Where in an order something goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<T> {
    /// Before all others.
    First,
    /// Behind all others, whichever these are when it counts.
    Last,
    /// Right behind this one.
    After(T),
}

impl<T> Place<T> {
    /// The same place in other words.
    pub(crate) fn map<U>(self, into: impl FnOnce(T) -> U) -> Place<U> {
        match self {
            Place::First => Place::First,
            Place::Last => Place::Last,
            Place::After(other) => Place::After(into(other)),
        }
    }
}

/// One row of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Row {
    pub table: ListId,
    pub at: u64,
}

/// What a row holds. All zero: there is no such row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Links {
    pub before: u32,
    pub behind: u32,
    pub value: u32,
}

impl Links {
    pub fn new((place, value): (Location, u32)) -> Links {
        let (before, behind) = place.as_neighbours().unwrap_or_default();
        Links { before, behind, value }
    }

    pub fn is_none(self) -> bool {
        self == Links::default()
    }

    /// As the map holds it.
    pub fn place(self) -> Location {
        if self.is_none() { Location::NONE } else { Location::neighbours(self.before, self.behind) }
    }
}

/// What a list is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub shift: u8,
    pub compression: Compression,
    /// Deleted, and its blocks are freed in bounded steps.
    pub dead: bool,
    /// Its blocks are brought together in their order.
    pub cluster: bool,
    /// They belong behind those of the list before it.
    pub near: bool,
}

impl Attributes {
    const DEAD: u32 = 1 << 16;
    const LOOSE: u32 = 1 << 17;
    const NEAR: u32 = 1 << 18;

    pub fn encode(self) -> u32 {
        let flags = [(self.dead, Self::DEAD), (!self.cluster, Self::LOOSE), (self.near, Self::NEAR)];
        let flags: u32 = flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum();
        u32::from(self.shift) | u32::from(self.compression.code()) << 8 | flags
    }

    pub fn decode(value: u32) -> Attributes {
        Attributes {
            shift: value.to_le_bytes()[0],
            compression: Compression::from_code(value.to_le_bytes()[1]).unwrap_or_default(),
            dead: value & Self::DEAD != 0,
            cluster: value & Self::LOOSE == 0,
            near: value & Self::NEAR != 0,
        }
    }
}

/// A ring of rows through the one that stands for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    anchor: Row,
    table: ListId,
    /// 1 for blocks; 2 for lists, which have odd rows.
    stride: u64,
}

impl Chain {
    /// All lists, or those that are deleted and not drained yet.
    pub fn of_lists(state: &State, dead: bool) -> Chain {
        let table = state.tables.lists;
        Chain { anchor: Row { table, at: u64::from(!dead) }, table, stride: 2 }
    }

    /// The blocks of a list.
    pub fn of_blocks(state: &State, list: u32, shift: u8) -> Chain {
        let anchor = Row { table: state.tables.lists, at: u64::from(list) * 2 };
        Chain { anchor, table: state.tables.pool(shift).unwrap_or_default().table, stride: 1 }
    }

    /// The row of a number of this table.
    pub fn row_of(state: &State, table: ListId, number: u32) -> Row {
        let stride = if table == state.tables.lists { 2 } else { 1 };
        Chain { anchor: Row::default(), table, stride }.row(number)
    }

    pub fn row(&self, number: u32) -> Row {
        match number {
            0 => self.anchor,
            _ => Row { table: self.table, at: u64::from(number) * self.stride + (self.stride - 1) },
        }
    }
}

/// Why something cannot be done.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Load this leaf first.
    Cold(ColdLeaf),
    /// It has no meaning on what is there (R15).
    Meaningless(String),
    /// The tables are not as they must be (O1, O2).
    Damaged(String),
}

impl From<ColdLeaf> for Refused {
    fn from(cold: ColdLeaf) -> Refused {
        Refused::Cold(cold)
    }
}

type Outcome<T = ()> = Result<T, Refused>;

/// A ring that goes on at `at` must lead back to `before`: so whoever follows it comes to an end, whatever the tables
/// hold (O1).
fn leads_back(at: u32, before: u32, links: Links) -> Outcome {
    if links.before == before {
        return Ok(());
    }
    Err(Refused::Damaged(format!(
        "the tables of ordered lists: expected {before} before {at}, found {} (O1)",
        links.before
    )))
}

fn meaningless<T>(words: String) -> Outcome<T> {
    Err(Refused::Meaningless(words))
}

/// An operation on lists, with numbers for names. Never an index, so that it can be done again on another state.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Insert { list: u32, place: Place<u32>, block: u32 },
    Remove { list: u32, block: u32 },
    Move { from: u32, first: u32, last: u32, to: u32, place: Place<u32> },
    Create { list: u32, place: Place<u32>, attributes: Attributes },
    Delete { list: u32 },
    MoveList { list: u32, place: Place<u32> },
}

impl Op {
    /// The lists and the blocks that it names.
    pub fn names(&self) -> (Vec<u32>, Vec<u32>) {
        let (mut lists, mut blocks, place) = match *self {
            Op::Insert { list, place, block } => (vec![list], vec![block], Some(place)),
            Op::Remove { list, block } => (vec![list], vec![block], None),
            Op::Move { from, first, last, to, place } => (vec![from, to], vec![first, last], Some(place)),
            Op::Create { list, place, .. } | Op::MoveList { list, place } => (vec![list], Vec::new(), Some(place)),
            Op::Delete { list } => (vec![list], Vec::new(), None),
        };
        if let Some(Place::After(other)) = place {
            let of_lists = matches!(self, Op::Create { .. } | Op::MoveList { .. });
            if of_lists { lists.push(other) } else { blocks.push(other) }
        }
        (lists, blocks)
    }
}

/// A row as it was and as it will be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub row: Row,
    pub old: Links,
    pub new: Links,
}

/// So many rows are searched one by one.
const FEW: usize = 16;

/// What operations change, on top of a state.
#[derive(Default)]
pub(crate) struct Staged {
    rows: Vec<Change>,
    /// Where each row is, once they are many.
    index: HashMap<Row, usize>,
    /// The state is what this snapshot sees.
    at: Option<SnapshotId>,
}

impl Staged {
    /// Nothing is changed in what a snapshot sees.
    pub fn seen_by(at: Option<SnapshotId>) -> Staged {
        Staged { at, ..Staged::default() }
    }

    /// These changes, each of another row.
    pub fn of(rows: Vec<Change>) -> Staged {
        Staged { rows, ..Staged::default() }
    }

    fn find(&self, row: Row) -> Option<usize> {
        if self.index.is_empty() {
            // Nearly all are of one table: the number tells them apart sooner.
            return self.rows.iter().position(|change| change.row.at == row.at && change.row.table == row.table);
        }
        self.index.get(&row).copied()
    }

    /// Takes a row in, to be changed.
    fn take(&mut self, state: &State, row: Row) -> Result<usize, ColdLeaf> {
        if let Some(found) = self.find(row) {
            return Ok(found);
        }
        let old = self.committed(state, row)?;
        self.rows.push(Change { row, old, new: old });
        let at = self.rows.len() - 1;
        if self.rows.len() > FEW {
            if self.index.is_empty() {
                self.index = self.rows.iter().map(|change| change.row).zip(0..).collect();
            }
            self.index.insert(row, at);
        }
        Ok(at)
    }

    fn committed(&self, state: &State, row: Row) -> Result<Links, ColdLeaf> {
        let found = match self.at {
            None => state.lookup(row.table, row.at)?,
            Some(snapshot) if !state.versions.is_of(snapshot, row.table) => None,
            Some(snapshot) => state.lookup_at(row.table, snapshot, row.at)?,
        };
        Ok(found.map_or(Links::default(), Links::new))
    }

    /// What a row holds by now.
    pub fn get(&self, state: &State, row: Row) -> Result<Links, ColdLeaf> {
        match self.find(row) {
            Some(at) => Ok(self.rows[at].new),
            None => self.committed(state, row),
        }
    }

    /// The rows that change.
    pub fn changes(&self) -> impl Iterator<Item = &Change> + Clone {
        self.rows.iter().filter(|change| change.old != change.new)
    }

    /// Forgets the rows that do not change.
    pub fn trim(&mut self) {
        if self.rows.iter().all(|change| change.old != change.new) {
            return;
        }
        self.rows.retain(|change| change.old != change.new);
        self.index.clear();
        if self.rows.len() > FEW {
            self.index = self.rows.iter().map(|change| change.row).zip(0..).collect();
        }
    }

    /// The attributes of a list that is there.
    pub fn alive(&self, state: &State, list: u32) -> Outcome<Attributes> {
        let row = Chain::of_lists(state, false).row(list);
        let links = self.get(state, row)?;
        let attributes = Attributes::decode(links.value);
        if list == 0 || links.is_none() || attributes.dead {
            return meaningless(format!("there is no ordered list {list}, or no more"));
        }
        if state.tables.pool(attributes.shift).is_none() {
            return Err(Refused::Damaged(format!(
                "ordered list {list}: expected blocks of a size that there is a pool for, found 2^{} (O2)",
                attributes.shift
            )));
        }
        Ok(attributes)
    }

    /// The row of a block, if it is in this list.
    pub fn block(&self, state: &State, chain: &Chain, list: u32, block: u32) -> Outcome<Links> {
        let links = if block == 0 { Links::default() } else { self.get(state, chain.row(block))? };
        if links.value != list {
            return meaningless(format!("block {block} is not in the ordered list {list}, or no more"));
        }
        Ok(links)
    }

    fn unlink(&mut self, state: &State, chain: &Chain, before: u32, behind: u32) -> Outcome {
        let at = self.take(state, chain.row(before))?;
        self.rows[at].new.behind = behind;
        let at = self.take(state, chain.row(behind))?;
        self.rows[at].new.before = before;
        Ok(())
    }

    /// Puts the stretch `first..=last`, which hangs together, behind `before`.
    fn link(&mut self, state: &State, chain: &Chain, before: u32, first: u32, last: u32) -> Outcome {
        let at = self.take(state, chain.row(before))?;
        let behind = std::mem::replace(&mut self.rows[at].new.behind, first);
        let at = self.take(state, chain.row(behind))?;
        self.rows[at].new.before = last;
        let at = self.take(state, chain.row(first))?;
        self.rows[at].new.before = before;
        let at = self.take(state, chain.row(last))?;
        self.rows[at].new.behind = behind;
        Ok(())
    }

    /// The one behind which something goes: 0 stands for the beginning.
    fn before(
        &mut self,
        state: &State,
        chain: &Chain,
        place: Place<u32>,
        is_there: impl FnOnce(&Self, u32) -> Outcome,
    ) -> Outcome<u32> {
        match place {
            Place::First => Ok(0),
            Place::Last => Ok(self.get(state, chain.row(0))?.before),
            Place::After(other) => is_there(self, other).map(|()| other),
        }
    }

    fn before_block(&mut self, state: &State, chain: &Chain, list: u32, place: Place<u32>) -> Outcome<u32> {
        self.before(state, chain, place, |staged, other| staged.block(state, chain, list, other).map(drop))
    }

    fn before_list(&mut self, state: &State, chain: &Chain, place: Place<u32>) -> Outcome<u32> {
        self.before(state, chain, place, |staged, other| staged.alive(state, other).map(drop))
    }

    /// Does an operation. After a refusal what is staged is of no use any more.
    pub fn apply(&mut self, state: &State, op: &Op) -> Outcome {
        match *op {
            Op::Insert { list, place, block } => {
                let shift = self.alive(state, list)?.shift;
                let chain = Chain::of_blocks(state, list, shift);
                let before = self.before_block(state, &chain, list, place)?;
                let at = self.take(state, chain.row(block))?;
                if !self.rows[at].new.is_none() {
                    return meaningless(format!("block {block} is in a list already"));
                }
                self.rows[at].new.value = list;
                self.link(state, &chain, before, block, block)
            }
            Op::Remove { list, block } => {
                let shift = self.alive(state, list)?.shift;
                let chain = Chain::of_blocks(state, list, shift);
                let Links { before, behind, .. } = self.block(state, &chain, list, block)?;
                self.unlink(state, &chain, before, behind)?;
                let at = self.take(state, chain.row(block))?;
                self.rows[at].new = Links::default();
                Ok(())
            }
            Op::Move { from, first, last, to, place } => self.move_blocks(state, (from, first, last), to, place),
            Op::Create { list, place, attributes } => {
                let chain = Chain::of_lists(state, false);
                let before = self.before_list(state, &chain, place)?;
                let at = self.take(state, chain.row(list))?;
                if !self.rows[at].new.is_none() {
                    return meaningless(format!("there is an ordered list {list} already"));
                }
                self.rows[at].new.value = attributes.encode();
                self.link(state, &chain, before, list, list)
            }
            Op::Delete { list } => {
                let attributes = self.alive(state, list)?;
                let (alive, dead) = (Chain::of_lists(state, false), Chain::of_lists(state, true));
                let Links { before, behind, .. } = self.get(state, alive.row(list))?;
                self.unlink(state, &alive, before, behind)?;
                let at = self.take(state, alive.row(list))?;
                self.rows[at].new.value = Attributes { dead: true, ..attributes }.encode();
                let last = self.get(state, dead.row(0))?.before;
                self.link(state, &dead, last, list, list)
            }
            Op::MoveList { list, place } => {
                self.alive(state, list)?;
                if place == Place::After(list) {
                    return meaningless(format!("list {list} cannot be moved behind itself"));
                }
                let chain = Chain::of_lists(state, false);
                let Links { before, behind, .. } = self.get(state, chain.row(list))?;
                self.unlink(state, &chain, before, behind)?;
                let before = self.before_list(state, &chain, place)?;
                self.link(state, &chain, before, list, list)
            }
        }
    }

    /// Takes up to `most` blocks out of the first deleted list; the list itself once it has none. How many rows went;
    /// `None`: there is no deleted list.
    pub fn drain(&mut self, state: &State, most: usize) -> Outcome<Option<usize>> {
        let dead = Chain::of_lists(state, true);
        let list = self.get(state, dead.row(0))?.behind;
        if list == 0 {
            return Ok(None);
        }
        let links = self.get(state, dead.row(list))?;
        let chain = Chain::of_blocks(state, list, Attributes::decode(links.value).shift);
        let (mut block, mut before, mut drained) = (self.get(state, chain.row(0))?.behind, 0, 0);
        while block != 0 && drained < most {
            // Nobody asks for these rows again: they need not be found.
            let row = chain.row(block);
            let old = self.committed(state, row)?;
            leads_back(block, before, old)?;
            before = block;
            self.rows.push(Change { row, old, new: Links::default() });
            block = old.behind;
            drained += 1;
        }
        if drained > 0 {
            let at = self.take(state, chain.row(0))?;
            self.rows[at].new.behind = block;
            let at = self.take(state, chain.row(block))?;
            self.rows[at].new.before = 0;
            return Ok(Some(drained));
        }
        let at = self.take(state, dead.row(list))?;
        self.rows[at].new = Links::default();
        let at = self.take(state, dead.row(0))?;
        self.rows[at].new.behind = links.behind;
        let at = self.take(state, dead.row(links.behind))?;
        self.rows[at].new.before = 0;
        Ok(Some(1))
    }

    fn move_blocks(
        &mut self,
        state: &State,
        (from, first, last): (u32, u32, u32),
        to: u32,
        place: Place<u32>,
    ) -> Outcome {
        let (shift, other) = (self.alive(state, from)?.shift, self.alive(state, to)?.shift);
        if shift != other {
            return meaningless(format!("lists {from} and {to} have blocks of different sizes"));
        }
        let (source, target) = (Chain::of_blocks(state, from, shift), Chain::of_blocks(state, to, shift));
        let mut stretch = vec![first];
        let mut at = first;
        while at != last {
            let behind = self.block(state, &source, from, at)?.behind;
            if behind == 0 {
                return meaningless(format!("block {last} does not follow block {first} in list {from}, or no more"));
            }
            leads_back(behind, at, self.block(state, &source, from, behind)?)?;
            stretch.push(behind);
            at = behind;
        }
        if let Place::After(other) = place
            && stretch.contains(&other)
        {
            return meaningless(format!("blocks cannot be moved behind one of themselves, block {other}"));
        }
        let before = self.block(state, &source, from, first)?.before;
        let behind = self.block(state, &source, from, last)?.behind;
        self.unlink(state, &source, before, behind)?;
        let before = self.before_block(state, &target, to, place)?;
        if from != to {
            for block in &stretch {
                let at = self.take(state, source.row(*block))?;
                self.rows[at].new.value = to;
            }
        }
        self.link(state, &target, before, first, last)
    }
}

#[cfg(test)]
#[path = "ordered_tests.rs"]
mod tests;
