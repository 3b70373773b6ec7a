//! Ordered lists in the plainest words: rows of lists, each a row of blocks.

use crate::rng::{hash_bytes, index, mix, narrow, wide};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A list: its blocks in order, each with its content; `None`: zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListState {
    /// Its number, as the disk gave it.
    pub list: u32,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Whether blocks are compressed.
    pub compressed: bool,
    /// The blocks by their numbers.
    pub blocks: Vec<(u64, Option<Arc<[u8]>>)>,
}

/// All lists in order.
pub type Lists = Vec<Arc<ListState>>;

/// Where something goes.
#[derive(Clone, Copy, Debug)]
pub enum Where<T> {
    /// Before all.
    First,
    /// Behind all.
    Last,
    /// Behind this one.
    After(T),
}

/// An operation on lists.
#[derive(Clone, Debug)]
pub enum ListOp {
    /// Makes a list.
    Create(u32, Where<u32>, u32, bool),
    /// Deletes one with its blocks.
    Delete(u32),
    /// Moves a list.
    MoveList(u32, Where<u32>),
    /// Puts a block into a list.
    Insert(u32, Where<u64>, u64),
    /// Takes one out.
    Remove(u32, u64),
    /// Moves a stretch of blocks.
    Move(u32, u64, u64, u32, Where<u64>),
}

/// Where in a row something goes; `None`: what it is to be behind is not there.
fn place<T>(row: &[T], at: impl FnOnce(&[T]) -> Option<Option<usize>>) -> Option<usize> {
    match at(row)? {
        None => Some(row.len()),
        Some(at) => Some(at),
    }
}

fn place_of<T, K: PartialEq + Copy>(row: &[T], to: Where<K>, key: impl Fn(&T) -> K) -> Option<usize> {
    place(row, |row| match to {
        Where::First => Some(Some(0)),
        Where::Last => Some(None),
        Where::After(other) => row.iter().position(|item| key(item) == other).map(|at| Some(at + 1)),
    })
}

fn find(lists: &mut Lists, list: u32) -> Option<&mut ListState> {
    lists.iter_mut().find(|state| state.list == list).map(Arc::make_mut)
}

impl ListOp {
    /// Does it. `None`: it has no meaning; what is left is of no use. `gone`: blocks of deleted lists are added.
    pub fn apply(&self, lists: &mut Lists, gone: &mut BTreeSet<u64>) -> Option<()> {
        match *self {
            ListOp::Create(list, to, block_bytes, compressed) => {
                let at = place_of(lists, to, |state| state.list)?;
                lists.insert(at, Arc::new(ListState { list, block_bytes, compressed, blocks: Vec::new() }));
            }
            ListOp::Delete(list) => {
                let at = lists.iter().position(|state| state.list == list)?;
                gone.extend(lists.remove(at).blocks.iter().map(|(block, _)| *block));
            }
            ListOp::MoveList(list, to) => {
                let at = lists.iter().position(|state| state.list == list)?;
                let moved = lists.remove(at);
                let at = place_of(lists, to, |state| state.list)?;
                lists.insert(at, moved);
            }
            ListOp::Insert(list, to, block) => {
                let state = find(lists, list)?;
                let at = place_of(&state.blocks, to, |(block, _)| *block)?;
                state.blocks.insert(at, (block, None));
            }
            ListOp::Remove(list, block) => {
                let state = find(lists, list)?;
                let at = state.blocks.iter().position(|(found, _)| *found == block)?;
                state.blocks.remove(at);
            }
            ListOp::Move(from, first, last, to, place) => {
                let sizes = [from, to].map(|list| find(lists, list).map(|state| state.block_bytes));
                if sizes[0]? != sizes[1]? {
                    return None;
                }
                let state = find(lists, from)?;
                let first = state.blocks.iter().position(|(found, _)| *found == first)?;
                let last = state.blocks.iter().position(|(found, _)| *found == last)?;
                if last < first {
                    return None;
                }
                let moved: Vec<_> = state.blocks.drain(first..=last).collect();
                let state = find(lists, to)?;
                let at = place_of(&state.blocks, place, |(block, _)| *block)?;
                state.blocks.splice(at..at, moved);
            }
        }
        Some(())
    }
}

/// A block of whichever list it is in.
pub fn block_mut(lists: &mut Lists, block: u64) -> Option<(&mut Option<Arc<[u8]>>, u32)> {
    let state = lists.iter_mut().find(|state| state.blocks.iter().any(|(found, _)| *found == block))?;
    let state = Arc::make_mut(state);
    let size = state.block_bytes;
    state.blocks.iter_mut().find(|(found, _)| *found == block).map(|(_, content)| (content, size))
}

/// A block after a write to a part of it.
pub fn with_written(old: Option<&Arc<[u8]>>, size: u32, offset: u32, data: &[u8]) -> Arc<[u8]> {
    let mut bytes = old.map_or_else(|| vec![0; index(size)], |old| old.to_vec());
    bytes[index(offset)..index(offset) + data.len()].copy_from_slice(data);
    bytes.into()
}

/// The hash of one block's content.
pub fn content_of(bytes: &[u8]) -> u64 {
    if bytes.iter().all(|byte| *byte == 0) { 0 } else { hash_bytes(bytes) }
}

/// The hash of what a list is like.
pub fn head_hash(list: u32, block_bytes: u32, compressed: bool) -> u64 {
    mix(mix(list.into(), block_bytes.into()), compressed.into())
}

/// A hash of all that a client can see of the lists.
pub fn lists_hash(lists: &Lists) -> u64 {
    lists.iter().fold(wide(lists.len()), |hash, state| {
        let head = mix(hash, head_hash(state.list, state.block_bytes, state.compressed));
        state.blocks.iter().fold(head, |hash, (block, content)| {
            mix(mix(hash, *block), content.as_ref().map_or(0, |bytes| content_of(bytes)))
        })
    })
}

/// How many bytes the blocks have.
pub fn bytes_of(lists: &Lists) -> u64 {
    lists.iter().map(|state| u64::from(state.block_bytes) * wide(state.blocks.len())).sum()
}

/// The block's content as it is read.
pub fn read(content: Option<&Arc<[u8]>>, size: u32) -> Vec<u8> {
    content.map_or_else(|| vec![0; narrow(size.into())], |bytes| bytes.to_vec())
}
