//! Ordered lists in a unit (*Atomic Recovery Units*, section 4.2).
//!
//! The unit keeps its operations in the order in which they were made, and what they change on top of what was
//! committed when it last looked. Reads look again if anybody has changed a list since. The commit executes the
//! operations once more, on what is committed then: what two units did to one list is there both, where that has a
//! meaning; where it has none, the commit is a `Conflict`, nothing is applied, and the unit stays open.

use super::Unit;
use crate::disk::load::Gathering;
use crate::disk::options::{ListOptions, UnitView};
use crate::disk::ordered::number_in;
use crate::disk::put::Again;
use crate::disk::space::Claim;
use crate::disk::{Core, Reserved};
use crate::error::{Error, ErrorKind, Result};
use crate::ordered::{Attributes, Chain, Op, Place, Refused, Staged};
use crate::shape::BLOCK_CHARGE;
use crate::state::State;
use crate::types::{BlockId, ListId, OrderedId, len_u64};
use crate::volume::Volume;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a unit has done to ordered lists.
#[derive(Default)]
pub(super) struct UnitLists {
    pub log: Vec<Op>,
    view: Staged,
    /// How often lists had been changed when `view` was made; `None`: it must be made anew.
    seen: Option<u64>,
    /// The list that was asked for last, and the size of its blocks: that stays while the unit is open (R4).
    last: Option<(OrderedId, u8)>,
    /// Numbers that are the unit's alone until it ends.
    pub taken: Vec<(ListId, u32)>,
    /// Space that was promised for its rows.
    pub promised: Reserved,
    /// Bytes of the records that the commit will write, about.
    pub records: u64,
}

/// Bytes of the records for so many rows.
fn records_of(rows: u64) -> u64 {
    rows * u64::from(crate::format::records::put_bytes(1))
}

impl UnitLists {
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// The lists that it deletes.
    pub fn deleted(&self) -> BTreeSet<u32> {
        let deleted = |op: &Op| if let Op::Delete { list } = op { Some(*list) } else { None };
        self.log.iter().filter_map(deleted).collect()
    }

    /// The operations executed on what is committed now.
    pub fn stage(&self, state: &State) -> std::result::Result<Staged, Again> {
        self.stage_on(state, Staged::default())
    }

    /// The same on another view of the state.
    fn stage_on(&self, state: &State, mut staged: Staged) -> std::result::Result<Staged, Again> {
        for op in &self.log {
            staged.apply(state, op).map_err(|refused| match refused {
                Refused::Cold(cold) => Again::from(cold),
                Refused::Meaningless(words) => {
                    crate::mark("unit: conflict on an ordered list");
                    Again::Never(Error::new(ErrorKind::Conflict, words))
                }
                damaged @ Refused::Damaged(_) => Again::from(damaged),
            })?;
        }
        Ok(staged)
    }

    /// The numbers that nothing committed names in the end.
    pub fn unused(&mut self, core: &Core, staged: &Staged) -> Vec<(ListId, u32)> {
        let mut taken = std::mem::take(&mut self.taken);
        taken.retain(|(table, number)| {
            let row = Chain::row_of(&core.state, *table, *number);
            staged.get(&core.state, row).is_ok_and(|links| links.is_none())
        });
        taken
    }

    /// About how many bytes of records its operations come to.
    pub fn count_again(&mut self) {
        self.records = records_of(len_u64(self.log.len()) * 6);
    }

    pub fn take_all(&mut self) -> Vec<(ListId, u32)> {
        std::mem::take(&mut self.taken)
    }
}

impl Unit {
    /// Runs `look` on what the unit sees of the lists. `fresh`: as of now; else as of some time since it last looked.
    fn on_lists<T>(
        &mut self,
        fresh: bool,
        mut look: impl FnMut(&mut Core, &mut UnitLists) -> std::result::Result<T, Refused>,
    ) -> Result<T> {
        let disk = Arc::clone(&self.disk);
        let at = self.sees();
        self.note_look();
        let lists = self.ordered.get_or_insert_default();
        let (mut gathering, mut fresh) = (None, fresh);
        loop {
            let mut core = disk.core.lock();
            // A frozen view does not move.
            let now = if at.is_some() { 0 } else { core.lists_changed };
            let made = if lists.seen.is_none() || (fresh && lists.seen != Some(now)) {
                lists.stage_on(&core.state, Staged::seen_by(at)).map(|view| {
                    (lists.view, lists.seen) = (view, Some(now));
                })
            } else {
                Ok(())
            };
            let refused = match made {
                Ok(()) => match look(&mut core, lists) {
                    Ok(found) => return Ok(found),
                    Err(refused) => refused,
                },
                Err(Again::Load(key)) => Refused::Cold(crate::state::ColdLeaf(key)),
                Err(Again::Never(error)) => return Err(error),
                Err(_) => unreachable!("staging only looks up"),
            };
            match refused {
                Refused::Cold(cold) => {
                    drop(core);
                    lists.seen = None; // It may be half done.
                    gathering.get_or_insert_with(|| Gathering::new(&disk));
                    disk.load(cold.0)?;
                }
                // On what was changed since the view was made nothing need fit together.
                Refused::Meaningless(_) | Refused::Damaged(_) if lists.seen != Some(now) => {
                    crate::mark("lists: a unit looked again");
                    lists.seen = None;
                    fresh = true;
                }
                Refused::Meaningless(words) => {
                    lists.seen = None;
                    return Err(Error::new(ErrorKind::NotFound, words));
                }
                Refused::Damaged(words) => {
                    lists.seen = None;
                    return Err(Error::new(ErrorKind::Corrupt, words));
                }
            }
        }
    }

    /// Runs `look` on what the unit shows: its own view, or only what is committed.
    fn show<T>(&mut self, mut look: impl FnMut(&State, &Staged) -> std::result::Result<T, Refused>) -> Result<T> {
        if self.options.view == UnitView::Committed {
            self.note_look();
            return self.disk.look(None, look);
        }
        self.on_lists(true, |core, lists| look(&core.state, &lists.view))
    }

    /// Does an operation in the unit's view. `rows`: what it changes; `new`: what it adds.
    fn do_op(&mut self, op: Op, rows: u64, new: u64) -> Result<()> {
        self.alive()?;
        // Deletes work on a full disk (P5).
        if !matches!(op, Op::Remove { .. } | Op::Delete { .. }) {
            self.promise_rows(rows, new)?;
        }
        self.on_lists(false, |core, lists| {
            let changed = lists.view.apply(&core.state, &op);
            changed?;
            lists.view.trim();
            lists.log.push(op);
            lists.records += records_of(rows);
            Ok(())
        })
    }

    /// Space for new rows, and for what snapshots see of those that change (R27).
    fn promise_rows(&mut self, rows: u64, new: u64) -> Result<()> {
        let core = self.disk.writable()?;
        let mut core = self.disk.admit(self.disk.pace(core), Claim::Data)?;
        let space = Reserved { bytes: new * BLOCK_CHARGE, blocks: rows };
        if !core.promises(core.reserves(space)) {
            return Err(self.disk.full(&core, core.reserves(space)));
        }
        core.reserved += space;
        self.reserved += space;
        self.ordered.get_or_insert_default().promised += space;
        Ok(())
    }

    fn new_number(&mut self, table: impl Fn(&State) -> ListId) -> Result<u32> {
        let disk = Arc::clone(&self.disk);
        loop {
            let taken = {
                let mut core = disk.core.lock();
                let table = table(&core.state);
                core.take_number(&disk, table).map(|number| (table, number))
            };
            match taken {
                Ok((table, number)) => {
                    self.ordered.get_or_insert_default().taken.push((table, number));
                    return Ok(number);
                }
                Err(Again::Numbers(table)) => disk.look_for_numbers(table)?,
                Err(Again::Never(error)) => return Err(error),
                Err(_) => unreachable!("taking a number looks up nothing"),
            }
        }
    }

    /// Makes an ordered list of blocks of this size. `InvalidArgument`, `Full`; `NotFound`: no list to be behind.
    pub fn create_list(&mut self, options: &ListOptions, place: Place<OrderedId>) -> Result<OrderedId> {
        self.alive()?;
        let attributes = options.attributes()?;
        self.disk.make_pool(attributes.shift)?;
        let list = self.new_number(|state| state.tables.lists)?;
        let place = place.map(|list| list.0);
        self.do_op(Op::Create { list, place, attributes }, 3, 1)?;
        Ok(OrderedId(list))
    }

    /// Deletes a list with all its blocks, as they are at the commit.
    pub fn delete_list(&mut self, list: OrderedId) -> Result<()> {
        self.do_op(Op::Delete { list: list.0 }, 6, 0)
    }

    /// Whether the block was in a list that the unit has deleted.
    pub(super) fn has_deleted(&mut self, block: BlockId) -> Result<bool> {
        self.on_lists(false, |core, lists| {
            let (shift, number) = block.parts();
            let table = core.state.tables.pool(shift).unwrap_or_default().table;
            let row = Chain::row_of(&core.state, table, number);
            Ok(lists.deleted().contains(&lists.view.get(&core.state, row)?.value))
        })
    }

    /// Moves a list to another place in the order of lists.
    pub fn move_list(&mut self, list: OrderedId, place: Place<OrderedId>) -> Result<()> {
        self.do_op(Op::MoveList { list: list.0, place: place.map(|list| list.0) }, 6, 0)
    }

    pub(super) fn attributes(&mut self, list: OrderedId) -> Result<Attributes> {
        self.on_lists(false, |core, lists| lists.view.alive(&core.state, list.0))
    }

    /// The size of a list's blocks. Whether it is still there is for the operation to ask.
    fn shift(&mut self, list: OrderedId) -> Result<u8> {
        match self.ordered.as_ref().and_then(|lists| lists.last) {
            Some((last, shift)) if last == list => Ok(shift),
            _ => {
                let shift = self.attributes(list)?.shift;
                self.ordered.get_or_insert_default().last = Some((list, shift));
                Ok(shift)
            }
        }
    }

    /// Puts a new block into a list. It reads as zeros until it is written. `NotFound`, `Full`.
    pub fn insert_block(&mut self, list: OrderedId, place: Place<BlockId>) -> Result<BlockId> {
        self.alive()?;
        let shift = self.shift(list)?;
        let place = number_in(shift, place)?;
        let block = self.new_number(|state| state.tables.pool(shift).unwrap_or_default().table)?;
        self.do_op(Op::Insert { list: list.0, place, block }, 4, 1)?;
        Ok(BlockId::new(shift, block))
    }

    /// Takes a block out of its list; what it holds is gone. `NotFound`: it is not in this list.
    pub fn remove_block(&mut self, list: OrderedId, block: BlockId) -> Result<()> {
        let shift = self.shift(list)?;
        let Place::After(number) = number_in(shift, Place::After(block))? else { unreachable!("it stays one") };
        self.do_op(Op::Remove { list: list.0, block: number }, 6, 0)?;
        let pool = self.disk.core.lock().state.tables.pool(shift).unwrap_or_default();
        self.take_out(pool.blocks, 1 << shift, u64::from(number), u64::from(number) + 1);
        Ok(())
    }

    /// Moves the blocks from `first` to `last` out of one list into another, or elsewhere in the same. Both have blocks
    /// of one size. Cost: the number of blocks that move. `NotFound`: they do not hang together so.
    pub fn move_blocks(
        &mut self,
        from: OrderedId,
        (first, last): (BlockId, BlockId),
        to: OrderedId,
        place: Place<BlockId>,
    ) -> Result<()> {
        let shift = self.attributes(from)?.shift;
        let inside = |block| match number_in(shift, Place::After(block)) {
            Ok(Place::After(number)) => Ok(number),
            Ok(_) => unreachable!("it stays one"),
            Err(error) => Err(error),
        };
        let op = Op::Move {
            from: from.0,
            first: inside(first)?,
            last: inside(last)?,
            to: to.0,
            place: number_in(shift, place)?,
        };
        let before = self.ordered.as_ref().map_or(0, |lists| len_u64(lists.view.changes().count()));
        self.do_op(op, 6, 0)?;
        // One row for each block that came into another list.
        let lists = self.ordered.as_mut().expect("made above");
        let rows = len_u64(lists.view.changes().count()).saturating_sub(before);
        lists.records += records_of(rows);
        self.promise_rows(rows, 0).inspect_err(|_| {
            let lists = self.ordered.as_mut().expect("made above");
            lists.log.pop();
            lists.seen = None; // The view is made anew without it.
        })
    }

    /// The neighbour of a block in its list as the unit sees it: the next one, or the one before.
    pub fn block_beside(&mut self, block: BlockId, behind: bool) -> Result<Option<BlockId>> {
        self.show(|state, staged| crate::ordered::beside(state, staged, block, behind))
    }

    /// The blocks of a list in order, as the unit sees them now.
    pub fn blocks(&mut self, list: OrderedId) -> Result<Vec<BlockId>> {
        self.show(|state, staged| {
            let mut blocks = Vec::new();
            crate::ordered::blocks(state, staged, list, None, usize::MAX, &mut blocks)?;
            Ok(blocks)
        })
    }

    /// All ordered lists in their order, as the unit sees them now.
    pub fn lists(&mut self) -> Result<Vec<OrderedId>> {
        self.show(crate::ordered::lists)
    }

    /// The blocks of the pool as a volume, and where in it the block starts.
    fn pool_of(&mut self, block: BlockId, offset: u32, bytes: usize) -> Result<(Volume, u64)> {
        let found = self.on_lists(true, |core, lists| crate::ordered::owner(&core.state, &lists.view, block))?;
        Volume::of_pool(&self.disk, &found, block, offset, bytes)
    }

    /// Reads from a block: the unit's own shadow, else the committed state. `NotFound`, `OutOfRange`.
    pub fn read_block(&mut self, block: BlockId, offset: u32, into: &mut [u8]) -> Result<()> {
        if self.options.view == UnitView::Committed {
            let found = self.show(|state, staged| crate::ordered::owner(state, staged, block))?;
            let (volume, at) = Volume::of_pool(&self.disk, &found, block, offset, into.len())?;
            return self.read_at(&volume, at, into);
        }
        let (volume, at) = self.pool_of(block, offset, into.len())?;
        self.read_at(&volume, at, into)
    }

    /// Writes into a block of an ordered list. `NotFound`, `OutOfRange`, `Full`.
    pub fn write_block(&mut self, block: BlockId, offset: u32, data: &[u8]) -> Result<()> {
        self.alive()?;
        let (volume, at) = self.pool_of(block, offset, data.len())?;
        self.write_at(&volume, at, data)
    }
}
