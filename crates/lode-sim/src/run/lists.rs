//! The part of a run that works on ordered lists, by themselves or in a unit.
//!
//! A script names lists and blocks by draws, which are taken modulo what there is: so nearly every operation has a
//! meaning. Some are made to have none, and must be refused.

use super::volumes::compression;
use super::{Run, Step, Stop};
use crate::content::first_byte;
use crate::model::lists::{ListOp, Lists, Where, bytes_of, read};
use crate::rng::{index, narrow, wide};
use crate::script::{Fill, ListDraw, UnitNumber, data};
use lode::{BlockId, Disk, ErrorKind, ListOptions, OrderedId, Place, Result, Unit};

/// At most so many lists, and blocks in all of them.
const LISTS_MAX: usize = 5;
const BLOCKS_MAX: usize = 48;

/// What a draw comes to on lists that are there.
enum Drawn {
    Op(ListOp),
    Write {
        block: u64,
        offset: u32,
        bytes: u32,
    },
    /// It must be refused: the block is not in this list.
    Wrong {
        list: u32,
        block: u64,
    },
}

/// Who does it.
enum On<'a> {
    /// The disk, as an operation by itself.
    Disk(Disk),
    /// An open unit.
    Unit(UnitNumber, &'a mut Unit),
}

impl On<'_> {
    /// Does an operation; gives it back with the numbers that were given out.
    fn change(&mut self, op: &ListOp) -> Result<ListOp> {
        match *op {
            ListOp::Create(_, to, size, packed) => {
                let (options, place) = (options(size, packed), list_place(to));
                let made = match self {
                    On::Disk(disk) => disk.create_list(&options, place),
                    On::Unit(_, unit) => unit.create_list(&options, place),
                };
                return made.map(|list| ListOp::Create(list.0, to, size, packed));
            }
            ListOp::Insert(list, to, _) => {
                let (of, place) = (OrderedId(list), block_place(to));
                let made = match self {
                    On::Disk(disk) => disk.insert_block(of, place),
                    On::Unit(_, unit) => unit.insert_block(of, place),
                };
                return made.map(|block| ListOp::Insert(list, to, block.0));
            }
            ListOp::Delete(list) => match self {
                On::Disk(disk) => disk.delete_list(OrderedId(list)).map(drop),
                On::Unit(_, unit) => unit.delete_list(OrderedId(list)),
            },
            ListOp::MoveList(list, to) => match self {
                On::Disk(disk) => disk.move_list(OrderedId(list), list_place(to)).map(drop),
                On::Unit(_, unit) => unit.move_list(OrderedId(list), list_place(to)),
            },
            ListOp::Remove(list, block) => self.remove(OrderedId(list), BlockId(block)),
            ListOp::Move(from, first, last, to, place) => {
                let (from, blocks, to) = (OrderedId(from), (BlockId(first), BlockId(last)), OrderedId(to));
                match self {
                    On::Disk(disk) => disk.move_blocks(from, blocks, to, block_place(place)).map(drop),
                    On::Unit(_, unit) => unit.move_blocks(from, blocks, to, block_place(place)),
                }
            }
        }
        .map(|()| op.clone())
    }

    fn remove(&mut self, list: OrderedId, block: BlockId) -> Result<()> {
        match self {
            On::Disk(disk) => disk.remove_block(list, block).map(drop),
            On::Unit(_, unit) => unit.remove_block(list, block),
        }
    }

    fn write(&mut self, block: BlockId, offset: u32, data: &[u8]) -> Result<()> {
        match self {
            On::Disk(disk) => disk.write_block(block, offset, data).map(drop),
            On::Unit(_, unit) => unit.write_block(block, offset, data),
        }
    }
}

fn place_of<T>(of: Where<T>, name: impl Fn(T) -> u64) -> Place<u64> {
    match of {
        Where::First => Place::First,
        Where::Last => Place::Last,
        Where::After(other) => Place::After(name(other)),
    }
}

fn list_place(place: Where<u32>) -> Place<OrderedId> {
    match place {
        Where::First => Place::First,
        Where::Last => Place::Last,
        Where::After(list) => Place::After(OrderedId(list)),
    }
}

fn block_place(place: Where<u64>) -> Place<BlockId> {
    match place_of(place, |block| block) {
        Place::First => Place::First,
        Place::Last => Place::Last,
        Place::After(block) => Place::After(BlockId(block)),
    }
}

/// Where something goes in a row: the first draw says how, the second which.
fn place<T: Copy>(row: &[T], how: u16, which: u16) -> Where<T> {
    match how % 4 {
        0 => Where::First,
        1 => Where::Last,
        _ if row.is_empty() => Where::Last,
        _ => Where::After(row[usize::from(which) % row.len()]),
    }
}

impl Run<'_> {
    /// What a draw means here. `None`: nothing.
    fn drawn(&self, draw: &ListDraw, lists: &Lists) -> Option<Drawn> {
        let [a, b, c, d] = draw.picks;
        let ids: Vec<u32> = lists.iter().map(|state| state.list).collect();
        let state = lists.get(usize::from(a) % lists.len().max(1));
        let blocks: Vec<u64> =
            state.map(|state| state.blocks.iter().map(|(block, _)| *block).collect()).unwrap_or_default();
        let pick = |from: &[u64], with: u16| from.get(usize::from(with) % from.len().max(1)).copied();
        let zone_bytes = u64::from(self.script.geometry.zone_bytes);
        match draw.kind {
            0 | 1 if lists.len() < LISTS_MAX => {
                let most = (zone_bytes / 16).clamp(64, 4096).ilog2();
                let shift = 6 + u32::from(b) % (most - 5);
                let to = place(&ids, c, d);
                Some(Drawn::Op(ListOp::Create(0, to, 1 << shift, c % 3 == 0)))
            }
            2 => state.map(|state| Drawn::Op(ListOp::Delete(state.list))),
            3 => {
                let list = state?.list;
                let rest: Vec<u32> = ids.into_iter().filter(|other| *other != list).collect();
                Some(Drawn::Op(ListOp::MoveList(list, place(&rest, c, d))))
            }
            4 | 5 => Some(Drawn::Op(ListOp::Remove(state?.list, pick(&blocks, b)?))),
            6 | 7 => {
                let state = state?;
                let first = usize::from(b) % blocks.len().max(1);
                let last = (first + usize::from(c) % 4).min(blocks.len().checked_sub(1)?);
                let others: Vec<_> = lists.iter().filter(|other| other.block_bytes == state.block_bytes).collect();
                let to = others[usize::from(d) % others.len()];
                let moved = &blocks[first..=last];
                let row: Vec<u64> =
                    to.blocks.iter().map(|(block, _)| *block).filter(|block| !moved.contains(block)).collect();
                Some(Drawn::Op(ListOp::Move(state.list, moved[0], moved[moved.len() - 1], to.list, place(&row, a, d))))
            }
            8..=11 => {
                let size = state?.block_bytes;
                let (block, whole) = (pick(&blocks, b)?, c % 3 > 0);
                let offset = if whole { 0 } else { u32::from(d) % size };
                let bytes = if whole { size } else { 1 + u32::from(c) % (size - offset) };
                Some(Drawn::Write { block, offset, bytes })
            }
            12 => {
                let other = lists
                    .get(usize::from(c) % lists.len().max(1))
                    .filter(|other| other.list != state.map_or(0, |s| s.list))?;
                let (block, _) = other.blocks.get(usize::from(b) % other.blocks.len().max(1))?;
                Some(Drawn::Wrong { list: state?.list, block: *block })
            }
            _ => {
                let count: usize = lists.iter().map(|state| state.blocks.len()).sum();
                let room = bytes_of(lists) + u64::from(state?.block_bytes) < zone_bytes * 6;
                let op = Drawn::Op(ListOp::Insert(state?.list, place(&blocks, b, c), 0));
                (count < BLOCKS_MAX && room).then_some(op)
            }
        }
    }

    /// Does what is drawn, on the disk or in a unit, and compares.
    pub(super) fn in_lists(&mut self, draw: &ListDraw, at: usize) -> Step {
        let note = self.begin_call();
        match draw.unit {
            None => {
                let lists = self.model.now().lists.clone();
                if let Some(drawn) = self.drawn(draw, &lists) {
                    let disk = self.open_disk().clone();
                    self.do_drawn(&mut On::Disk(disk), drawn, at)?;
                }
            }
            Some(number) => {
                let Some(mut unit) = self.take_unit(number)? else { return Ok(()) };
                let done = self.unit_lists(number, &mut unit, draw, at);
                self.units.insert(number, unit);
                done?;
            }
        }
        self.end_call(note);
        Ok(())
    }

    fn do_drawn(&mut self, on: &mut On, drawn: Drawn, at: usize) -> Step {
        let what = "a change of an ordered list";
        match drawn {
            Drawn::Write { block, offset, bytes } => {
                let data = data(self.script.id.seed(), at, bytes.into(), Fill::Mixed);
                let result = on.write(BlockId(block), offset, &data);
                match on {
                    On::Disk(_) => {
                        self.tolerable(result, what, |model| model.list_write(block, offset, &data))?;
                    }
                    On::Unit(number, _) => {
                        if self.changed(what, result)?.is_some() {
                            self.model.unit_list_write(*number, block, offset, &data);
                        }
                    }
                }
            }
            Drawn::Wrong { list, block } => must_be_refused(on.remove(OrderedId(list), BlockId(block)))?,
            Drawn::Op(op) => {
                let result = on.change(&op);
                let deletes = matches!(op, ListOp::Remove(..) | ListOp::Delete(_));
                if deletes && matches!(&result, Err(error) if error.kind() == ErrorKind::Full) {
                    return Err(Stop::Finding(format!("{op:?} makes nothing new, and found the disk full (P5)")));
                }
                match on {
                    // The number that a refused one would have had is not known.
                    On::Disk(_) if matches!(op, ListOp::Create(..) | ListOp::Insert(..)) => {
                        if let Some(op) = self.changed(what, result)? {
                            self.model.list_op(&op);
                        }
                    }
                    On::Disk(_) => {
                        self.tolerable(result, what, |model| model.list_op(&op))?;
                    }
                    On::Unit(number, _) => {
                        if let Some(op) = self.changed(what, result)? {
                            self.model.unit_list_op(*number, op);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn unit_lists(&mut self, number: UnitNumber, unit: &mut Unit, draw: &ListDraw, at: usize) -> Step {
        let Some(lists) = self.model.unit_lists(number) else {
            return match unit.lists() {
                Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
                // Only a write has lost its block: that is seen by the commit.
                Ok(_) => Ok(()),
                Err(error) => Err(self.refused("looking at lists in a unit that has no meaning", error)),
            };
        };
        let Some(drawn) = self.drawn(draw, &lists) else { return Ok(()) };
        self.do_drawn(&mut On::Unit(number, unit), drawn, at)?;
        self.compare_unit_lists(number, unit)
    }

    pub(super) fn compare_unit_lists(&mut self, number: UnitNumber, unit: &mut Unit) -> Step {
        let shown = match self.model.unit_shows_committed(number) {
            true => Some(self.model.now().lists.clone()),
            false => self.model.unit_lists(number),
        };
        let Some(lists) = shown else { return Ok(()) };
        let wrong = |words: String| Err(Stop::Finding(format!("lists in a unit: {words}")));
        let found = unit.lists().map_err(|error| self.refused("the lists of a unit", error))?;
        let right: Vec<OrderedId> = lists.iter().map(|state| OrderedId(state.list)).collect();
        if found != right {
            return wrong(format!("{found:?}, expected {right:?}"));
        }
        for state in &lists {
            let found = unit.blocks(OrderedId(state.list)).map_err(|error| self.refused("a list of a unit", error))?;
            let right: Vec<BlockId> = state.blocks.iter().map(|(block, _)| BlockId(*block)).collect();
            if found != right {
                return wrong(format!("list {} has {found:?}, expected {right:?}", state.list));
            }
            for (block, content) in &state.blocks {
                let mut bytes = vec![0x66; index(state.block_bytes)];
                unit.read_block(BlockId(*block), 0, &mut bytes)
                    .map_err(|error| self.refused("a block of a list in a unit", error))?;
                let right = read(content.as_ref(), state.block_bytes);
                if let Some(at) = first_byte(&bytes, &right) {
                    return wrong(format!("block {block} of list {} differs at {at}", state.list));
                }
                self.counts.compared += wide(narrow(state.block_bytes.into()));
            }
        }
        Ok(())
    }
}

fn options(block_bytes: u32, packed: bool) -> ListOptions {
    ListOptions { block_bytes, compression: compression(packed, block_bytes.into()), cluster: true, near: packed }
}

fn must_be_refused<T>(result: lode::Result<T>) -> Step {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Stop::Finding(format!("expected NotFound, found {error} ({:?})", error.kind()))),
        Ok(_) => Err(Stop::Finding("a block was removed from a list that it is not in".to_owned())),
    }
}
