//! Writes here and there in large files: kept in memory for a while, then put into the log in the order of the files, all
//! in one unit.
//!
//! The log has what is written in the order in which it was written. A large file that is written over at random would lie
//! in it in that order, and to read it from front to back would be to read at random. A disk may decide where bytes lie
//! (*The Logical Disk*, section 3.5, lets its cleaner bring blocks into the order of their lists); this does it before they
//! are written at all, so it costs a copy in memory and no write.
//!
//! What is gathered comes before whatever anybody does behind it: who changes anything, and who looks at such a file, settles
//! it first. So there is still a prefix of what was done after a crash (P2), at the ends of what was gathered.
//!
//! Invariants:
//! * G1 Whole blocks are gathered that are stored in a file's own list: nothing of the inode changes but times and version.
//! * G2 A file is among the gathered only while nobody has it locked but who gathers. So settling takes no locks of inodes:
//!   who holds one may wait for it.
//! * G3 Space for all of it was promised before it was taken.

use crate::content::FIRST_BYTES;
use crate::error::{Error, Result};
use crate::files::{FileSystem, Files};
use crate::format::{BLOCK, BLOCK_LEN};
use crate::joined::Begun;
use crate::op::{Op, Seen, u64_of, usize_of, write_staged};
use crate::types::{Ino, Kind, Time, Which};
use lode::{ListId, Reservation};
use parking_lot::{Mutex, RwLockWriteGuard};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

/// A stretch of this length reads as fast in its place as in another.
const LONG: usize = 128 << 10;
/// So many files are gathered at once, and so many writers are watched.
const FILES_MAX: usize = 64;
/// Who settles before so many blocks were gathered has no use for it.
const FEW: usize = 64;

/// How much is gathered of writes here and there in large files.
#[derive(Clone, Copy, Debug)]
pub struct Gathering {
    /// Bytes that are kept in memory at most; 0: none.
    pub bytes: usize,
    /// So many times in a row a file is written elsewhere than where the last write ended, before its writes are gathered.
    pub after: u32,
}

/// 64 MiB. *Measured*: a file of 1 GiB that was written over at random, 8 KiB at a time, reads in order as fast as before
/// from 32 MiB on.
impl Default for Gathering {
    fn default() -> Self {
        Gathering { bytes: 64 << 20, after: 16 }
    }
}

/// What is gathered.
#[derive(Default)]
pub(crate) struct Gathered {
    /// Something may be.
    on: AtomicBool,
    /// Pieces of writes are kept that may go on.
    pub joins: AtomicBool,
    /// Something is gathered, or kept.
    pub any: AtomicBool,
    pub state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    /// Blocks that are gathered at most.
    most: usize,
    after: u32,
    trails: HashMap<Ino, Trail>,
    files: BTreeMap<Ino, File>,
    /// Where in `bytes` a block is.
    slots: BTreeMap<(ListId, u64), usize>,
    bytes: Vec<u8>,
    space: Option<Reservation>,
    pub begun: Option<Begun>,
    /// Nothing came since the last look.
    quiet: bool,
    /// What was told to nobody yet.
    failed: Option<Error>,
}

/// How a file is being written.
#[derive(Clone, Copy)]
struct Trail {
    /// Where the last write ended.
    end: u64,
    /// So many began elsewhere than where the one before ended.
    jumps: u32,
}

/// A file of which something is gathered.
#[derive(Clone, Copy)]
struct File {
    list: ListId,
    size: u64,
    modified: Time,
}

impl State {
    /// Whether a file is written here and there.
    fn is_scattered(&mut self, ino: Ino, offset: u64, end: u64) -> bool {
        if self.trails.len() >= FILES_MAX && !self.trails.contains_key(&ino) {
            self.trails.clear();
        }
        let trail = self.trails.entry(ino).or_insert(Trail { end: offset, jumps: 0 });
        trail.jumps = if trail.end == offset { 0 } else { trail.jumps.saturating_add(1) };
        trail.end = end;
        trail.jumps > self.after
    }

    /// Takes a write of whole blocks.
    fn take(&mut self, ino: Ino, file: File, offset: u64, bytes: &[u8]) {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(self.most * BLOCK_LEN);
        }
        for (block, content) in (offset / u64::from(BLOCK)..).zip(bytes.chunks_exact(BLOCK_LEN)) {
            let slot = *self.slots.entry((file.list, block)).or_insert(self.bytes.len() / BLOCK_LEN);
            let at = slot * BLOCK_LEN;
            if at == self.bytes.len() {
                self.bytes.extend_from_slice(content);
            } else {
                self.bytes[at..at + BLOCK_LEN].copy_from_slice(content);
            }
        }
        self.files.insert(ino, file);
        self.quiet = false;
    }

    /// Calls `write` with each stretch, in the order of the files.
    fn each(&self, mut write: impl FnMut(ListId, u64, &[u8]) -> Result<()>) -> Result<()> {
        let mut slots = self.slots.iter().peekable();
        while let Some((&(list, block), &slot)) = slots.next() {
            let mut count = 1;
            while slots.next_if(|next| *next == (&(list, block + u64_of(count)), &(slot + count))).is_some() {
                count += 1;
            }
            write(list, block * u64::from(BLOCK), &self.bytes[slot * BLOCK_LEN..(slot + count) * BLOCK_LEN])?;
        }
        Ok(())
    }

    fn clear(&mut self) {
        if self.slots.len() < FEW {
            self.trails.clear();
        }
        self.files.clear();
        self.slots.clear();
        self.bytes.clear();
        self.space = None;
    }
}

impl FileSystem {
    /// From now on writes here and there in large files are gathered, so that they can be read in order later. Whoever wants
    /// that calls [`FileSystem::settle`] now and then: what is gathered would stay in memory until somebody does something
    /// else. `Full` never comes late: space is promised first.
    pub fn gather(&self, gathering: Gathering) {
        let mut state = self.files.gathered.state.lock();
        self.files.settle_all(&mut state);
        state.most = gathering.bytes / BLOCK_LEN;
        state.after = gathering.after;
        state.bytes = Vec::new();
        self.files.gathered.on.store(state.most > 0, Ordering::Relaxed);
    }

    /// Hands to the disk what is gathered. The memory for it is given back if nothing was for a while.
    pub fn settle(&self) {
        let gathered = &self.files.gathered;
        if gathered.on.load(Ordering::Relaxed) || gathered.any.load(Ordering::Acquire) {
            let mut state = gathered.state.lock();
            self.files.settle_all(&mut state);
            if std::mem::replace(&mut state.quiet, true) {
                state.bytes = Vec::new();
            }
        }
    }
}

impl Files {
    /// Whether this write is gathered. If not, it is to be done.
    pub fn gather(&self, ino: Ino, offset: u64, bytes: &[u8], now: Time) -> bool {
        if !self.gathered.on.load(Ordering::Relaxed) || bytes.len() >= LONG || offset < FIRST_BYTES {
            return false;
        }
        let end = offset + u64_of(bytes.len());
        let whole = offset.is_multiple_of(u64::from(BLOCK)) && end.is_multiple_of(u64::from(BLOCK));
        if !self.gathered.state.lock().is_scattered(ino, offset, end) || !whole {
            return false;
        }
        let _gate = self.gate.read();
        let _locked = self.locks.write(&[ino]);
        let mut state = self.gathered.state.lock();
        if state.begun.is_some() {
            self.settle_all(&mut state);
        }
        // What is wrong with the file is told by the write itself.
        let Ok(Some(file)) = self.gathers(&mut state, ino, offset..end) else { return false };
        state.take(ino, File { modified: now, ..file }, offset, bytes);
        self.gathered.any.store(true, Ordering::Release);
        true
    }

    /// The file, if a stretch of it can be gathered. Room is made for it.
    fn gathers(&self, state: &mut State, ino: Ino, stretch: std::ops::Range<u64>) -> Result<Option<File>> {
        let op = Op::new(self, Seen::Look);
        let file = match state.files.get(&ino) {
            Some(file) => *file,
            None => match op.find_inode(ino)? {
                Some(inode) if inode.kind() == Kind::File && inode.head.list != 0 => {
                    File { list: ListId(inode.head.list), size: inode.head.size, modified: Time(0) }
                }
                _ => return Ok(None),
            },
        };
        let blocks = stretch.start / u64::from(BLOCK)..stretch.end / u64::from(BLOCK);
        let count = usize_of(blocks.end - blocks.start);
        let new = count - state.slots.range((file.list, blocks.start)..(file.list, blocks.end)).count();
        if stretch.end > file.size || (new > 0 && op.stored(Which::Own(file.list), stretch)? != u64_of(count)) {
            return Ok(None);
        }
        if state.slots.len() + new > state.most || state.files.len() >= FILES_MAX {
            self.settle_all(state);
        }
        if count > state.most {
            return Ok(None);
        }
        if state.space.is_none() {
            state.space = Some(self.disk.reserve(u64_of(state.most + FILES_MAX), BLOCK)?);
        }
        Ok(Some(file))
    }

    /// Whether something of these inodes is gathered.
    pub fn is_gathered(&self, inodes: &[Ino]) -> bool {
        self.gathered.any.load(Ordering::Acquire) && {
            let state = self.gathered.state.lock();
            let begun = state.begun.as_ref().map(|begun| begun.ino);
            inodes.iter().any(|ino| state.files.contains_key(ino) || begun == Some(*ino))
        }
    }

    /// Nothing is gathered that was when this was called.
    pub fn settle(&self) {
        if self.gathered.any.load(Ordering::Acquire) {
            self.settle_all(&mut self.gathered.state.lock());
        }
    }

    /// As `settle`. What could not be written, for whatever reason, is told once, to who wants it to be durable.
    pub fn settle_and_tell(&self) -> Result<()> {
        if !self.gathered.on.load(Ordering::Relaxed) && !self.gathered.joins.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut state = self.gathered.state.lock();
        self.settle_all(&mut state);
        state.failed.take().map_or(Ok(()), Err)
    }

    /// The gate for who wants it alone; nothing is gathered.
    pub fn shut(&self) -> RwLockWriteGuard<'_, ()> {
        let gate = self.gate.write();
        self.settle();
        gate
    }

    pub fn settle_all(&self, state: &mut State) {
        if let Some(Err(error)) = state.begun.take().map(|begun| self.settle_begun(begun)) {
            state.failed.get_or_insert(error);
        }
        if !state.slots.is_empty() {
            if let Err(error) = self.settle_as_one(state) {
                state.failed.get_or_insert(error);
            }
            state.clear();
        }
        self.gathered.any.store(false, Ordering::Release);
    }

    fn settle_as_one(&self, state: &mut State) -> Result<()> {
        let mut unit = self.disk.begin()?;
        if let Some(space) = &mut state.space {
            unit.draw_on(space, space.blocks())?;
        }
        state.each(|list, offset, bytes| Ok(unit.write_at(&*self.volume(Which::Own(list))?, offset, bytes)?))?;
        let mut op = Op::new(self, Seen::Look);
        for (ino, file) in &state.files {
            let mut inode = op.inode(*ino)?;
            inode.modify(file.modified);
            op.put_inode(&inode);
        }
        write_staged(self, &mut unit, &op.into_staged().0, &mut false)?;
        let at = unit.commit()?;
        state.files.keys().for_each(|ino| self.locks.changed(&[*ino], at));
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.settle();
    }
}
