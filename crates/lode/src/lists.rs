//! Ordered lists of an open disk: simple operations, each atomic (*The Logical Disk*, section 2.2).

use crate::disk::Inner;
use crate::disk::open::Disk;
use crate::disk::options::{ListInfo, ListOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::ordered::{self, Op, Owner, Place};
use crate::types::{BlockId, Lsn, OrderedId, SnapshotId, index, len_u64};
use crate::unit::Unit;
use crate::volume::Volume;
use std::sync::Arc;

/// So many blocks of a list are walked over in one hold of the lock.
const WALK_STEP: usize = 1024;
/// So often a walk begins again because lists have changed, before it is done in one hold.
const PATIENCE: usize = 8;

impl Inner {
    fn all_blocks(&self, list: OrderedId, at: Option<SnapshotId>) -> Result<Vec<BlockId>> {
        for turn in 0.. {
            let (most, before) =
                if turn < PATIENCE { (WALK_STEP, self.core.lock().lists_changed) } else { (usize::MAX, 0) };
            let mut blocks: Vec<BlockId> = Vec::new();
            loop {
                let mut step = Vec::new();
                let more = self.look(at, |state, staged| {
                    step.clear();
                    ordered::blocks(state, staged, list, blocks.last().copied(), most, &mut step)
                });
                blocks.extend(step);
                let same = at.is_some() || most == usize::MAX || self.core.lock().lists_changed == before;
                match more {
                    _ if !same => break,
                    Ok(true) => {}
                    Ok(false) => return Ok(blocks),
                    Err(error) => return Err(error),
                }
            }
        }
        unreachable!("the last turn is done in one hold")
    }
}

impl Disk {
    fn as_unit<T>(&self, change: impl FnOnce(&mut Unit) -> Result<T>) -> Result<(T, Lsn)> {
        let mut unit = Unit::simple(Arc::clone(self.inner()));
        let made = change(&mut unit)?;
        Ok((made, unit.try_commit()?))
    }

    fn change(&self, op: Op, otherwise: impl FnOnce(&mut Unit) -> Result<()>) -> Result<Lsn> {
        let inner = self.inner();
        if inner.lists_fit() { inner.change_list(&op) } else { self.as_unit(otherwise).map(|((), lsn)| lsn) }
    }

    /// Makes an ordered list, at a place in the order of lists. `InvalidArgument`, `Full`, `NotFound`.
    pub fn create_list(&self, options: &ListOptions, place: Place<OrderedId>) -> Result<OrderedId> {
        let inner = self.inner();
        if !inner.lists_fit() {
            return self.as_unit(|unit| unit.create_list(options, place)).map(|(list, _)| list);
        }
        let (list, _) = inner.create_list(place.map(|list| list.0), options.attributes()?)?;
        Ok(OrderedId(list))
    }

    /// Deletes an ordered list with its blocks. The same few records whatever is in it; its space comes back in the
    /// background. Works on a full disk. `NotFound`.
    pub fn delete_list(&self, list: OrderedId) -> Result<Lsn> {
        let done = self.change(Op::Delete { list: list.0 }, |unit| unit.delete_list(list))?;
        self.inner().lists_deleted()?;
        Ok(done)
    }

    /// Moves an ordered list to another place in the order of lists. `NotFound`.
    pub fn move_list(&self, list: OrderedId, place: Place<OrderedId>) -> Result<Lsn> {
        let op = Op::MoveList { list: list.0, place: place.map(|list| list.0) };
        self.change(op, |unit| unit.move_list(list, place))
    }

    /// All ordered lists, in their order. Cost: their number.
    pub fn lists(&self) -> Result<Vec<OrderedId>> {
        self.inner().look(None, ordered::lists)
    }

    /// What an ordered list is like. `NotFound`.
    pub fn list(&self, list: OrderedId) -> Result<ListInfo> {
        let attributes = self.inner().look(None, |state, staged| staged.alive(state, list.0))?;
        Ok(ListInfo::new(list, attributes))
    }

    /// As [`Disk::list`], as a snapshot sees it. `NotFound`.
    pub fn list_at(&self, snapshot: &str, list: OrderedId) -> Result<ListInfo> {
        let at = Some(self.snapshot_id(snapshot)?);
        let attributes = self.inner().look(at, |state, staged| staged.alive(state, list.0))?;
        Ok(ListInfo::new(list, attributes))
    }

    /// Puts a new block into a list: first, last, or behind another. It reads as zeros until it is written. `NotFound`,
    /// `Full`.
    pub fn insert_block(&self, list: OrderedId, place: Place<BlockId>) -> Result<BlockId> {
        let inner = self.inner();
        if !inner.lists_fit() {
            return self.as_unit(|unit| unit.insert_block(list, place)).map(|(block, _)| block);
        }
        inner.insert_block(list.0, place).map(|(block, _)| block)
    }

    /// Takes a block out of its list; what it holds is gone. Never searches. `NotFound`: it is not in this list.
    pub fn remove_block(&self, list: OrderedId, block: BlockId) -> Result<Lsn> {
        let inner = self.inner();
        if !inner.lists_fit() {
            return self.as_unit(|unit| unit.remove_block(list, block)).map(|((), lsn)| lsn);
        }
        inner.remove_block(list.0, block)
    }

    /// Moves the blocks from `first` to `last`, as they hang together, behind another block of the same or of another
    /// list with blocks of this size. One operation; cost: the number of blocks. `NotFound`.
    pub fn move_blocks(
        &self,
        from: OrderedId,
        blocks: (BlockId, BlockId),
        to: OrderedId,
        place: Place<BlockId>,
    ) -> Result<Lsn> {
        self.as_unit(|unit| unit.move_blocks(from, blocks, to, place)).map(|((), lsn)| lsn)
    }

    /// The block behind another one in its list. `NotFound`.
    pub fn block_after(&self, block: BlockId) -> Result<Option<BlockId>> {
        self.inner().look(None, |state, staged| ordered::beside(state, staged, block, true))
    }

    /// The block before another one in its list. `NotFound`.
    pub fn block_before(&self, block: BlockId) -> Result<Option<BlockId>> {
        self.inner().look(None, |state, staged| ordered::beside(state, staged, block, false))
    }

    /// The blocks of a list in order, as they are at one instant. `NotFound`.
    pub fn blocks(&self, list: OrderedId) -> Result<Vec<BlockId>> {
        self.inner().all_blocks(list, None)
    }

    /// Reads from a block of an ordered list. What was never written is zeros. `NotFound`, `OutOfRange`.
    pub fn read_block(&self, block: BlockId, offset: u32, into: &mut [u8]) -> Result<()> {
        let inner = self.inner();
        let _same = inner.generations.guard();
        let found = inner.look(None, |state, staged| ordered::owner(state, staged, block))?;
        let (volume, at) = Volume::of_pool(inner, &found, block, offset, into.len())?;
        inner.read_ahead(&found, block, None);
        volume.read_at(at, into)
    }

    /// Writes into a block of an ordered list, as one operation. `NotFound`, `OutOfRange`, `Full`.
    pub fn write_block(&self, block: BlockId, offset: u32, data: &[u8]) -> Result<Lsn> {
        let inner = self.inner();
        // Its number stays its own until the write is done, should it be removed meanwhile.
        let _same = inner.generations.guard();
        let found = inner.look(None, |state, staged| ordered::owner(state, staged, block))?;
        let (volume, at) = Volume::of_pool(inner, &found, block, offset, data.len())?;
        volume.write_at(at, data)
    }

    fn snapshot_id(&self, snapshot: &str) -> Result<SnapshotId> {
        Ok(SnapshotId(self.inner().core.lock().state.snapshot_named(snapshot)?.0))
    }

    /// As [`Disk::lists`], as a snapshot sees them. `NotFound`.
    pub fn lists_at(&self, snapshot: &str) -> Result<Vec<OrderedId>> {
        self.inner().look(Some(self.snapshot_id(snapshot)?), ordered::lists)
    }

    /// As [`Disk::blocks`], as a snapshot sees them. `NotFound`.
    pub fn blocks_at(&self, snapshot: &str, list: OrderedId) -> Result<Vec<BlockId>> {
        self.inner().all_blocks(list, Some(self.snapshot_id(snapshot)?))
    }

    /// As [`Disk::read_block`], as a snapshot sees it. `NotFound`, `OutOfRange`.
    pub fn read_block_at(&self, snapshot: &str, block: BlockId, offset: u32, into: &mut [u8]) -> Result<()> {
        let (inner, id) = (self.inner(), self.snapshot_id(snapshot)?);
        let found = inner.look(Some(id), |state, staged| ordered::owner(state, staged, block))?;
        let (volume, at) = Volume::of_pool(inner, &found, block, offset, into.len())?;
        inner.read_ahead(&found, block, Some(id));
        volume.seen_by(id).read_at(at, into)
    }
}

impl Volume {
    /// The blocks of an ordered list's pool, and where in it the bytes lie.
    pub(crate) fn of_pool(
        disk: &Arc<Inner>,
        owner: &Owner,
        block: BlockId,
        offset: u32,
        bytes: usize,
    ) -> Result<(Volume, u64)> {
        let block_bytes = 1u32 << owner.attributes.shift;
        if index(offset).saturating_add(bytes) > index(block_bytes) {
            return Err(Error::new(
                ErrorKind::OutOfRange,
                format!("{bytes} bytes at offset {offset} of block {}, which has {block_bytes}", block.0),
            ));
        }
        let volume = Volume::new(
            Arc::clone(disk),
            owner.pool.blocks,
            "blocks of ordered lists",
            block_bytes,
            owner.attributes.compression,
        );
        let at = u64::from(block.parts().1) * u64::from(block_bytes) + u64::from(offset);
        debug_assert!(len_u64(bytes) <= u64::from(block_bytes));
        Ok((volume, at))
    }
}
