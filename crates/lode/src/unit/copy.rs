//! A unit that goes on where another one is: a clone of a clone. Both see the same and can be changed, committed and
//! dropped each by itself.
//!
//! What the first one has changed is copied, since each stored block is referred to once (R19) and each of the two may be
//! the first to end. *Rejected: a frozen shadow that both read through* (architecture, section 8): a commit takes over the
//! places of a shadow, so the first to commit would have to copy what the other still reads, in one hold; here whoever asks
//! for the copy waits for it, and nobody else.

use super::{Barrier, Unit};
use crate::disk::options::ListOptions;
use crate::disk::space::Claim;
use crate::error::{Error, ErrorKind, Result};
use crate::format::records::Form;
use crate::ordered::{Op, Place};
use crate::types::{BlockId, ListId, OrderedId, index64, len_u64, low_u32};
use crate::volume::Volume;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

/// At most so many bytes are read at once.
const PIECE: u64 = 256 << 10;

/// A unit that goes on where another one is.
pub struct UnitCopy {
    /// The unit.
    pub unit: Unit,
    /// Ordered lists that the other one has made, by what they are called in it, and what in the copy: a number belongs
    /// to one unit (R4).
    pub lists: BTreeMap<OrderedId, OrderedId>,
    /// Blocks that the other one has inserted, the same way.
    pub blocks: BTreeMap<BlockId, BlockId>,
}

/// How far it is, in bytes, of how many; and whether it is still wanted.
pub(crate) type Wanted<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// What is not there any more was changed by others.
fn conflict(error: Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::new(ErrorKind::Conflict, error.to_string()),
        _ => error,
    }
}

impl Unit {
    /// See `Unit::copy`.
    pub(crate) fn copy_as(&mut self, label: Barrier, progress: Wanted<'_>) -> Result<Option<UnitCopy>> {
        self.alive()?;
        if self.cookie().len() > super::COOKIE_BYTES_MAX {
            return Err(Error::new(ErrorKind::InvalidArgument, "the unit receives a stream: it cannot be copied"));
        }
        let mut unit = Unit::new(Arc::clone(&self.disk));
        // It names blocks that others may have removed since this one began (R4).
        let generations = &self.disk.generations;
        generations.leave(std::mem::replace(&mut unit.generation, generations.join(self.generation)));
        let mut copy = UnitCopy { unit, lists: BTreeMap::new(), blocks: BTreeMap::new() };
        match self.copy_into(&mut copy, label, progress) {
            Ok(ControlFlow::Continue(())) => Ok(Some(copy)),
            ended => {
                copy.unit.abort();
                ended.map(|_| None)
            }
        }
    }

    fn copy_into(&mut self, copy: &mut UnitCopy, label: Barrier, progress: Wanted<'_>) -> Result<ControlFlow<()>> {
        let into = &mut copy.unit;
        into.options = self.options;
        if let Some(snapshot) = self.frozen {
            into.see(snapshot, self.options);
        }
        into.set_label(label)?;
        let read = self.read.lock().clone();
        *into.read.lock() = read;
        if let Some(ordered) = &self.ordered {
            copy.replay(&ordered.log).map_err(conflict)?;
        }
        for (list, shadow) in self.lists.iter() {
            let into = copy.unit.lists.of(list);
            (into.bytes, into.floor) = (shadow.bytes, shadow.floor);
            (into.holes, into.cuts) = (shadow.holes.clone(), shadow.cuts.clone());
        }
        self.copy_blocks(copy, progress)
    }

    /// The blocks of its own, of all lists.
    fn copy_blocks(&self, copy: &mut UnitCopy, progress: Wanted<'_>) -> Result<ControlFlow<()>> {
        self.disk.fold_all(); // Its last barrier may not be in the tables yet.
        let mut sections: Vec<(ListId, u32)> = Vec::new();
        let shift = self.disk.shape.section_blocks_shift();
        for (list, shadow) in self.lists.iter() {
            let mut own: BTreeSet<u32> = shadow.blocks.numbers().map(|block| low_u32(block >> shift)).collect();
            let mut from = 0;
            while let Some(section) = shadow.kept.and_then(|kept| self.disk.section_from(kept, from)) {
                own.insert(section);
                from = section + 1;
            }
            sections.extend(own.into_iter().map(|section| (list, section)));
        }
        let mut total = 0;
        for (list, section) in &sections {
            total += len_u64(self.own_blocks(*list, *section)?.len()) * u64::from(self.list_of(*list)?.0.block_bytes());
        }
        let mut done = 0;
        for (list, section) in sections {
            let (volume, form) = self.list_of(list)?;
            let (size, own) = (u64::from(volume.block_bytes()), self.own_blocks(list, section)?);
            let most = index64((PIECE / size).max(1));
            for run in own.chunk_by(|a, b| a + 1 == *b).flat_map(|run| run.chunks(most)) {
                let mut bytes = vec![0; run.len() * index64(size)];
                self.read_blocks(&volume, run[0], &mut bytes)?;
                match form {
                    Form::Pool => copy.write_to_lists(run, &bytes)?,
                    _ => copy.write_to(&volume, run, &bytes)?,
                }
                done += len_u64(bytes.len());
                if progress(done, total).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The blocks of a section of a list that it has a version of, in order.
    fn own_blocks(&self, list: ListId, section: u32) -> Result<Vec<u64>> {
        let Some(shadow) = self.lists.get(list) else { return Ok(Vec::new()) };
        let shift = self.disk.shape.section_blocks_shift();
        let mut own: Vec<u64> = shadow
            .blocks
            .range(u64::from(section) << shift, (u64::from(section) + 1) << shift)
            .map(|(n, _)| n)
            .collect();
        if let Some(kept) = shadow.kept {
            let stored = self.disk.section_blocks(kept, section)?.into_iter().map(|(block, ..)| block);
            own.extend(stored.filter(|block| !shadow.blocks.contains(*block) && !shadow.is_fresh(*block)));
        }
        own.sort_unstable();
        Ok(own)
    }

    fn list_of(&self, list: ListId) -> Result<(Volume, Form)> {
        let core = self.disk.core.lock();
        let meta = core.state.lists.get(&list).map(|list| &list.meta);
        let gone =
            || Error::new(ErrorKind::NotFound, format!("list {}, which the unit has changed, is no more", list.0));
        let meta = meta.ok_or_else(gone)?;
        let volume = Volume::new(Arc::clone(&self.disk), list, &meta.name, meta.block_bytes(), meta.compression);
        Ok((volume, meta.form))
    }
}

impl UnitCopy {
    fn list(&self, list: u32) -> OrderedId {
        self.lists.get(&OrderedId(list)).copied().unwrap_or(OrderedId(list))
    }

    fn block(&self, block: BlockId) -> BlockId {
        self.blocks.get(&block).copied().unwrap_or(block)
    }

    /// Does again what was done to ordered lists, with numbers of its own.
    fn replay(&mut self, log: &[Op]) -> Result<()> {
        for op in log {
            match *op {
                Op::Create { list, place, attributes } => {
                    let place = place.map(|list| self.list(list));
                    let made = self.unit.create_list(&ListOptions::of(attributes), place)?;
                    self.lists.insert(OrderedId(list), made);
                }
                Op::Delete { list } => self.unit.delete_list(self.list(list))?,
                Op::MoveList { list, place } => {
                    let place = place.map(|list| self.list(list));
                    self.unit.move_list(self.list(list), place)?;
                }
                Op::Insert { list, place, block } => {
                    let list = self.list(list);
                    let shift = self.unit.attributes(list)?.shift;
                    let made = self.unit.insert_block(list, self.place(shift, place))?;
                    self.blocks.insert(BlockId::new(shift, block), made);
                }
                Op::Remove { list, block } => {
                    let list = self.list(list);
                    let shift = self.unit.attributes(list)?.shift;
                    self.unit.remove_block(list, self.block(BlockId::new(shift, block)))?;
                }
                Op::Move { from, first, last, to, place } => {
                    let (from, to) = (self.list(from), self.list(to));
                    let shift = self.unit.attributes(from)?.shift;
                    let [first, last] = [first, last].map(|block| self.block(BlockId::new(shift, block)));
                    self.unit.move_blocks(from, (first, last), to, self.place(shift, place))?;
                }
            }
        }
        Ok(())
    }

    fn place(&self, shift: u8, place: Place<u32>) -> Place<BlockId> {
        place.map(|block| self.block(BlockId::new(shift, block)))
    }

    /// Neighbouring blocks of a volume.
    fn write_to(&mut self, volume: &Volume, run: &[u64], bytes: &[u8]) -> Result<()> {
        let size = u64::from(volume.block_bytes());
        self.unit.reserve(volume.list(), size, run[0], run[0] + len_u64(run.len()))?;
        self.unit.write_blocks(volume, run[0] * size, bytes, Claim::Data)
    }

    /// Blocks of ordered lists.
    fn write_to_lists(&mut self, run: &[u64], bytes: &[u8]) -> Result<()> {
        let size = bytes.len() / run.len();
        let shift = u8::try_from(size.ilog2()).expect("at most 16");
        for (block, bytes) in run.iter().zip(bytes.chunks(size)) {
            let block = self.block(BlockId::new(shift, low_u32(*block)));
            match self.unit.write_block(block, 0, bytes) {
                // The commit would drop it, too.
                Err(error) if error.kind() == ErrorKind::NotFound && self.unit.has_deleted(block)? => {}
                written => written.map_err(conflict)?,
            }
        }
        Ok(())
    }
}
