//! Writes that a kernel hands over in two pieces.
//!
//! Linux asks a FUSE file system twice for a `write` that begins within a page of which it does not have the rest: up to the
//! end of that page (of a large folio, if it has one there), and for what is behind it. Each would be a unit, and a crash
//! could leave half a write. So a piece that begins within a block and ends with one is kept in memory until it is known
//! what comes next: what goes on where it ended is one operation with it, everything else comes behind it. What is kept is
//! settled as what is gathered is, by the same invariants (`gathered.rs`); the two are never there together.

use crate::content::FIRST_BYTES;
use crate::error::Result;
use crate::files::{FileSystem, Files};
use crate::format::BLOCK;
use crate::op::{Op, Seen, u64_of};
use crate::planted::{self, Bug};
use crate::types::{Ino, Kind, Time};
use lode::Reservation;
use std::sync::atomic::Ordering;

/// What an operation writes besides content at most: its inode, who owns its list, the blocks at the ends of a piece and of
/// the file.
const BESIDES: u64 = 8;

/// A piece that may go on.
pub(crate) struct Begun {
    pub ino: Ino,
    offset: u64,
    bytes: Vec<u8>,
    now: Time,
    space: Reservation,
}

impl FileSystem {
    /// From now on a write that begins within a block of 4096 bytes and ends with one is one operation with that which goes
    /// on where it ended, if that comes next. As for [`FileSystem::gather`], somebody calls [`FileSystem::settle`] now and
    /// then.
    pub fn join_writes(&self) {
        self.files.gathered.joins.store(!planted::is(Bug::PiecesApart), Ordering::Relaxed);
    }
}

impl Files {
    /// Whether this write was done along with the piece before it, or is kept as one that may go on.
    pub fn join(&self, ino: Ino, offset: u64, bytes: &[u8], now: Time) -> Result<bool> {
        if !self.gathered.joins.load(Ordering::Relaxed) || bytes.is_empty() {
            return Ok(false);
        }
        let is_cut = |at: u64| at.is_multiple_of(u64::from(BLOCK));
        let end = offset + u64_of(bytes.len());
        let goes_on = is_cut(offset) && self.gathered.any.load(Ordering::Acquire);
        let may_go_on = !is_cut(offset) && is_cut(end);
        if !goes_on && !may_go_on {
            return Ok(false);
        }
        let gate = self.gate.read();
        let locked = self.locks.write(&[ino]);
        let mut state = self.gathered.state.lock();
        if may_go_on {
            self.settle_all(&mut state);
            state.begun = self.begin(ino, offset, bytes, now);
            self.gathered.any.store(state.begun.is_some(), Ordering::Release);
            return Ok(state.begun.is_some());
        }
        let is_next = |begun: &mut Begun| (begun.ino, begun.offset + u64_of(begun.bytes.len())) == (ino, offset);
        let Some(begun) = state.begun.take_if(is_next) else { return Ok(false) };
        // Whoever does something meanwhile comes behind it: he waits for the state.
        let both = || {
            let mut op = Op::new(self, Seen::Now { locked, _gate: Some(gate) });
            let mut inode = op.file(ino)?;
            op.write_content(&mut inode, begun.offset, &begun.bytes)?;
            op.write_content(&mut inode, offset, bytes)?;
            inode.modify(now);
            op.put_inode(&inode);
            op.finish().map(drop)
        };
        let done = both();
        if done.is_err() {
            // The first piece is done: that was said.
            state.begun = Some(begun);
            self.settle_all(&mut state);
        }
        self.gathered.any.store(false, Ordering::Release);
        done.map(|()| true)
    }

    /// None: it cannot be kept. What is wrong is told by the write itself.
    fn begin(&self, ino: Ino, offset: u64, bytes: &[u8], now: Time) -> Option<Begun> {
        let end = offset + u64_of(bytes.len());
        let inode = Op::new(self, Seen::Look).find_inode(ino).ok()??;
        if inode.kind() != Kind::File || end > self.file_max() {
            return None;
        }
        if inode.head.list == 0 && end > FIRST_BYTES {
            // So that there is one for it.
            self.give_back_lists(&[self.take_list().ok()?]);
        }
        let blocks = u64_of(bytes.len()) / u64::from(BLOCK) + BESIDES;
        let space = self.disk.reserve(blocks, BLOCK).ok()?;
        Some(Begun { ino, offset, bytes: bytes.to_vec(), now, space })
    }

    /// Hands it to the disk. Nobody else changes the file meanwhile.
    pub fn settle_begun(&self, begun: Begun) -> Result<()> {
        let Begun { ino, offset, bytes, now, mut space } = begun;
        let mut op = Op::new(self, Seen::Look);
        let mut inode = op.file(ino)?;
        op.write_content(&mut inode, offset, &bytes)?;
        inode.modify(now);
        op.put_inode(&inode);
        let at = op.finish_promised(&mut space)?;
        self.locks.changed(&[ino], at);
        Ok(())
    }
}
