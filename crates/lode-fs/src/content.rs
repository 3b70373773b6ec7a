//! The content of a file: the first sixteen blocks in the common list, the others in a list of its own.
//!
//! Invariant C1: behind the size of a file nothing is stored but zeros, so a file that grows shows zeros.

use crate::error::{Error, ErrorKind, Result};
use crate::format::{BLOCK, FIRST, InodeHead, SHARE};
use crate::inodes::Inode;
use crate::op::{Op, u64_of, usize_of};
use crate::planted::{self, Bug};
use crate::types::Which;
use lode::ListId;
use smallvec::SmallVec;
use std::ops::Range;

/// Bytes in the common list.
pub(crate) const FIRST_BYTES: u64 = FIRST << 12;

/// Where block `n` of an inode's content is.
pub(crate) fn place_of(head: &InodeHead, n: u64) -> (Which, u64) {
    if n < FIRST { (Which::Content, head.number * SHARE + n) } else { (Which::Own(ListId(head.list)), n) }
}

/// A part of a stretch of a file: where it is, and which bytes of the stretch.
struct Part {
    which: Which,
    offset: u64,
    range: Range<u64>,
}

/// The parts of a stretch, the first in the common list. What would lie in a list of its own is left out if there is none.
fn parts(head: &InodeHead, stretch: Range<u64>) -> SmallVec<[Part; 2]> {
    let mut parts = SmallVec::new();
    let first = stretch.start..stretch.end.min(FIRST_BYTES);
    if !first.is_empty() {
        let offset = head.number * SHARE * u64::from(BLOCK) + first.start;
        parts.push(Part { which: Which::Content, offset, range: first });
    }
    let own = stretch.start.max(FIRST_BYTES)..stretch.end;
    if !own.is_empty() && head.list != 0 {
        parts.push(Part { which: Which::Own(ListId(head.list)), offset: own.start, range: own });
    }
    parts
}

fn part_of<T>(bytes: &[T], start: u64, range: &Range<u64>) -> Range<usize> {
    debug_assert!(range.end - start <= u64_of(bytes.len()), "within what is read or written");
    usize_of(range.start - start)..usize_of(range.end - start)
}

impl Op<'_> {
    /// Fills `into` from a place of the content on. Holes, and what is behind the end, read as zeros.
    pub fn read_content(&self, inode: &Inode, offset: u64, into: &mut [u8]) -> Result<()> {
        let stretch = offset..offset + u64_of(into.len());
        let mut done = offset;
        for Part { which, offset: at, range } in parts(&inode.head, stretch) {
            let part = part_of(into, offset, &range);
            self.read_at(which, at, &mut into[part])?;
            done = range.end;
        }
        into[usize_of(done.max(offset) - offset)..].fill(0);
        Ok(())
    }

    /// Blocks of a stretch that are stored.
    fn stored_blocks(&self, inode: &Inode, stretch: Range<u64>) -> Result<u64> {
        let mut blocks = 0;
        for Part { which, offset, range } in parts(&inode.head, stretch) {
            blocks += self.stored(which, offset..offset + (range.end - range.start))?;
        }
        Ok(blocks)
    }

    /// A list of its own, if the stretch needs one.
    fn reach(&mut self, inode: &mut Inode, end: u64) -> Result<()> {
        if end > self.files.file_max() {
            let most = self.files.file_max();
            return Err(Error::new(ErrorKind::TooLarge, format!("a file of {end} bytes: expected at most {most}")));
        }
        if end > FIRST_BYTES && inode.head.list == 0 {
            inode.head.list = self.take_list(inode.ino())?.0;
        }
        Ok(())
    }
}

impl<'a> Op<'a> {
    /// The inode is to be put by the caller, here and below.
    pub fn write_content(&mut self, inode: &mut Inode, offset: u64, bytes: &'a [u8]) -> Result<()> {
        let end = offset.saturating_add(u64_of(bytes.len()));
        self.reach(inode, end)?;
        let stretch = offset..end;
        let block = u64::from(BLOCK);
        let blocks = end.div_ceil(block) - offset / block;
        // Behind the end nothing is stored, unless it was asked for.
        inode.head.blocks += blocks - self.stored_blocks(inode, stretch.clone())?;
        for Part { which, offset: at, range } in parts(&inode.head, stretch) {
            self.write(which, at, &bytes[part_of(bytes, offset, &range)]);
        }
        inode.head.size = inode.head.size.max(end);
        Ok(())
    }

    /// Makes a stretch zeros: whole blocks become holes, and a part of a block that is a hole stays one.
    fn clear(&mut self, inode: &mut Inode, stretch: Range<u64>) -> Result<()> {
        let block = u64::from(BLOCK);
        let whole = stretch.start.next_multiple_of(block)..stretch.end / block * block;
        let edges = if whole.start > whole.end {
            [stretch.clone(), 0..0]
        } else {
            [stretch.start..whole.start, whole.end..stretch.end]
        };
        for edge in edges.into_iter().filter(|edge| !edge.is_empty()) {
            if self.stored_blocks(inode, edge.clone())? > 0 {
                for Part { which, offset, range } in parts(&inode.head, edge) {
                    self.zeros(which, offset..offset + (range.end - range.start));
                }
            }
        }
        if whole.start < whole.end {
            let gone = self.stored_blocks(inode, whole.clone())?;
            inode.head.blocks = inode.head.blocks.saturating_sub(gone);
            for Part { which, offset, range } in parts(&inode.head, whole) {
                self.discard(which, offset..offset + (range.end - range.start));
            }
        }
        Ok(())
    }

    /// Makes the file so long. What comes to it is a hole.
    pub fn resize_content(&mut self, inode: &mut Inode, size: u64) -> Result<()> {
        if size > self.files.file_max() {
            return self.reach(inode, size);
        }
        let old = std::mem::replace(&mut inode.head.size, size);
        if size <= FIRST_BYTES && inode.head.list != 0 {
            // The list goes as a whole.
            let first = self.stored_blocks(inode, 0..FIRST_BYTES)?;
            self.condemn(ListId(std::mem::take(&mut inode.head.list)));
            inode.head.blocks = first;
        }
        if size >= old || planted::is(Bug::TailLeft) {
            return Ok(());
        }
        // Also what was stored behind the end.
        let end = if inode.head.list == 0 { FIRST_BYTES } else { self.files.file_max() };
        self.clear(inode, size..end)
    }

    /// A hole in a file, whose size stays.
    pub fn punch_content(&mut self, inode: &mut Inode, stretch: Range<u64>) -> Result<()> {
        let end = if inode.head.list == 0 { FIRST_BYTES } else { self.files.file_max() };
        let stretch = stretch.start..stretch.end.min(end);
        if stretch.is_empty() { Ok(()) } else { self.clear(inode, stretch) }
    }

    /// Stores zeros in a stretch.
    pub fn zero_content(&mut self, inode: &mut Inode, stretch: Range<u64>) -> Result<()> {
        self.reach(inode, stretch.end)?;
        let block = u64::from(BLOCK);
        let blocks = stretch.end.div_ceil(block) - stretch.start / block;
        inode.head.blocks += blocks - self.stored_blocks(inode, stretch.clone())?;
        for Part { which, offset, range } in parts(&inode.head, stretch) {
            self.zeros(which, offset..offset + (range.end - range.start));
        }
        Ok(())
    }

    /// Stores what is a hole in a stretch, and leaves the rest.
    pub fn fill_content(&mut self, inode: &mut Inode, stretch: Range<u64>) -> Result<()> {
        self.reach(inode, stretch.end)?;
        let block = u64::from(BLOCK);
        let stretch = stretch.start / block * block..stretch.end.next_multiple_of(block);
        for Part { which, offset, range } in parts(&inode.head, stretch) {
            let (mut at, end) = (offset, offset + (range.end - range.start));
            while let Some(hole) = self.seek(which, true, at..end)? {
                at = self.seek(which, false, hole..end)?.unwrap_or(end);
                inode.head.blocks += (at - hole) / block;
                self.zeros(which, hole..at);
            }
        }
        Ok(())
    }

    /// Nothing of the content is to be left.
    pub fn drop_content(&mut self, inode: &mut Inode) -> Result<()> {
        self.clear(inode, 0..FIRST_BYTES)?;
        if inode.head.list != 0 {
            self.condemn(ListId(std::mem::take(&mut inode.head.list)));
        }
        inode.head.blocks = 0;
        Ok(())
    }

    /// The first byte from `offset` on, in front of the end, that is stored (or in a hole; the end is one).
    pub fn seek_content(&self, inode: &Inode, hole: bool, offset: u64) -> Result<Option<u64>> {
        let size = inode.head.size;
        if offset >= size {
            return Ok(None);
        }
        let mut at = offset;
        for Part { which, offset: place, range } in parts(&inode.head, offset..size) {
            if let Some(found) = self.seek(which, hole, place..place + (range.end - range.start))? {
                return Ok(Some(range.start + (found - place)));
            }
            at = range.end;
        }
        // What no list reaches is a hole; so is the end.
        Ok(if hole { Some(at) } else { None })
    }
}
