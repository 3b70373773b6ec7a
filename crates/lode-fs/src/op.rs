//! One operation: what it reads through, what it gathers to be changed, and its end as one unit.
//!
//! ```text
//!   begin (locks) ──> read, stage ──> finish: everything in one unit (or into the transaction)
//!                          └────────> drop: as if it had never been
//! ```
//! What is staged is read back by the operation itself; stretches of content are not, and no operation needs that.
//!
//! Invariants:
//! * O1 nothing is changed before [`Op::finish`]: an operation that fails leaves no trace.
//! * O2 numbers and lists that were taken for an operation that fails are given back.

#[cfg(feature = "unbracketed")]
mod plain;

use crate::error::{Error, ErrorKind, Result};
use crate::files::Files;
use crate::format::{BLOCK, BLOCK_LEN, INODE_BLOCK, SMALL_BLOCK};
use crate::locks::Locked;
use crate::planted::{self, Bug};
use crate::promise::FREEING;
use crate::transaction::{Guard, ReadSet, Txn};
use crate::types::{Ino, Which};
#[cfg(not(feature = "unbracketed"))]
use lode::Whole;
use lode::{ListId, Lsn, Unit, Volume};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::Range;

/// A whole block of a list, or a hole.
pub(crate) type Staged = (Which, u64, Option<Vec<u8>>);

/// Shorter stretches are looked at block by block.
const LOOKED_AT: u64 = 4 << 20;

/// What is to be done with a stretch of a list.
enum Step<'a> {
    Write(Which, u64, &'a [u8]),
    Zeros(Which, Range<u64>),
    Discard(Which, Range<u64>),
}

/// What an operation sees and holds.
pub(crate) enum Seen<'a> {
    /// What is committed; nobody else changes what was locked.
    Now { locked: Locked<'a>, _gate: Option<parking_lot::RwLockReadGuard<'a, ()>> },
    /// What is committed, to be looked at only.
    Look,
    /// What a transaction sees.
    Within(&'a Txn, Guard<'a>),
    /// The same, to be looked at without that being noted.
    Beside(Guard<'a>),
    /// What was committed when a transaction began.
    Before(Guard<'a>),
}

/// See the file's head.
pub(crate) struct Op<'a> {
    pub files: &'a Files,
    seen: Seen<'a>,
    staged: SmallVec<[Staged; 4]>,
    steps: SmallVec<[Step<'a>; 2]>,
    /// Inodes whose numbers were taken.
    numbers: SmallVec<[Ino; 1]>,
    freed: SmallVec<[Ino; 1]>,
    /// Lists that were taken.
    lists: SmallVec<[ListId; 1]>,
    condemned: SmallVec<[ListId; 1]>,
    /// Names that it changes.
    names: Vec<(Ino, Vec<u8>)>,
    /// It gives space back: it is not refused for want of it.
    pub frees: bool,
}

/// Bytes of a block of a list.
pub(crate) fn block_bytes(which: Which) -> u32 {
    match which {
        Which::Inodes => INODE_BLOCK,
        Which::Content | Which::Own(_) => BLOCK,
        Which::Orphans | Which::Owners => SMALL_BLOCK,
    }
}

pub(crate) fn usize_of(bytes: u64) -> usize {
    usize::try_from(bytes).expect("checked to fit in memory")
}

pub(crate) fn u64_of(len: usize) -> u64 {
    u64::try_from(len).expect("an address fits in 64 bits")
}

impl<'a> Op<'a> {
    pub fn new(files: &'a Files, seen: Seen<'a>) -> Op<'a> {
        Op {
            files,
            seen,
            staged: SmallVec::new(),
            steps: SmallVec::new(),
            numbers: SmallVec::new(),
            freed: SmallVec::new(),
            lists: SmallVec::new(),
            condemned: SmallVec::new(),
            names: Vec::new(),
            frees: false,
        }
    }

    fn volume(&self, which: Which) -> Result<Cow<'a, Volume>> {
        let volume = self.files.volume(which)?;
        match &self.seen {
            Seen::Before(unit) => {
                let before = unit.get()?.before(&volume);
                Ok(Cow::Owned(before.expect("a transaction has a frozen view")))
            }
            _ => Ok(volume),
        }
    }

    /// Reads bytes of a list, without what is staged.
    pub fn read_at(&self, which: Which, offset: u64, into: &mut [u8]) -> Result<()> {
        let volume = self.volume(which)?;
        match &self.seen {
            Seen::Within(_, unit) | Seen::Beside(unit) => unit.get()?.read_at(&volume, offset, into)?,
            _ => volume.read_at(offset, into)?,
        }
        Ok(())
    }

    /// Reads a block, as the operation has left it so far.
    pub fn block(&self, which: Which, block: u64, into: &mut [u8]) -> Result<()> {
        if let Some((.., staged)) = self.staged.iter().find(|(list, n, _)| (*list, *n) == (which, block)) {
            match staged {
                Some(bytes) => {
                    let (head, rest) = into.split_at_mut(bytes.len());
                    head.copy_from_slice(bytes);
                    rest.fill(0);
                }
                None => into.fill(0),
            }
            return Ok(());
        }
        self.read_at(which, block * u64::from(block_bytes(which)), into)
    }

    /// The first byte of a stretch that is stored (or in a hole), without what is staged.
    pub fn seek(&self, which: Which, hole: bool, within: Range<u64>) -> Result<Option<u64>> {
        let volume = self.volume(which)?;
        Ok(match (&self.seen, hole) {
            (Seen::Within(_, unit) | Seen::Beside(unit), false) => unit.get()?.next_stored(&volume, within)?,
            (Seen::Within(_, unit) | Seen::Beside(unit), true) => unit.get()?.next_hole(&volume, within)?,
            (_, false) => volume.next_stored(within)?,
            (_, true) => volume.next_hole(within)?,
        })
    }

    /// How many blocks are stored that a stretch touches, without what is staged.
    pub fn stored(&self, which: Which, stretch: Range<u64>) -> Result<u64> {
        let block = u64::from(block_bytes(which));
        let (mut at, end) = (stretch.start / block * block, stretch.end.next_multiple_of(block));
        let mut bytes = 0;
        if end - at <= LOOKED_AT {
            let volume = self.volume(which)?;
            let extents = match &self.seen {
                Seen::Within(_, unit) | Seen::Beside(unit) => unit.get()?.extents(&volume, at, end - at)?,
                _ => volume.extents(at, end - at)?,
            };
            bytes = extents.iter().filter(|extent| extent.allocated).map(|extent| extent.bytes).sum();
        } else {
            while let Some(start) = self.seek(which, false, at..end)? {
                at = self.seek(which, true, start..end)?.unwrap_or(end);
                bytes += at - start;
            }
        }
        Ok(bytes / block)
    }

    /// The block is to be this; what is not given of it zeros.
    pub fn stage(&mut self, which: Which, block: u64, bytes: Option<Vec<u8>>) {
        match self.staged.iter_mut().find(|(list, n, _)| (*list, *n) == (which, block)) {
            Some((.., staged)) => *staged = bytes,
            None => self.staged.push((which, block, bytes)),
        }
    }

    pub fn write(&mut self, which: Which, offset: u64, bytes: &'a [u8]) {
        self.steps.push(Step::Write(which, offset, bytes));
    }

    pub fn zeros(&mut self, which: Which, stretch: Range<u64>) {
        self.steps.push(Step::Zeros(which, stretch));
    }

    pub fn discard(&mut self, which: Which, stretch: Range<u64>) {
        self.steps.push(Step::Discard(which, stretch));
    }

    /// Takes the number of a new inode.
    pub fn take_number(&mut self) -> Result<Ino> {
        let ino = self.files.take_number()?;
        self.numbers.push(ino);
        Ok(ino)
    }

    /// The inode is no more.
    pub fn free_number(&mut self, ino: Ino) {
        self.freed.push(ino);
    }

    /// Takes an empty list for an inode.
    pub fn take_list(&mut self, ino: Ino) -> Result<ListId> {
        let list = self.files.take_list()?;
        self.lists.push(list);
        self.own(list, Some(ino));
        Ok(list)
    }

    /// The list is nobody's any more: it is deleted once that is so.
    pub fn condemn(&mut self, list: ListId) {
        self.own(list, None);
        if planted::is(Bug::ListGoesEarly) {
            return self.files.condemn(&[list]);
        }
        self.condemned.push(list);
    }

    fn own(&mut self, list: ListId, ino: Option<Ino>) {
        let owner = ino.map(|ino| {
            let mut bytes = Vec::new();
            crate::format::Owner { inode: ino.0, used: 1 }.push_to(&mut bytes);
            bytes
        });
        self.stage(Which::Owners, u64::from(list.0), owner);
    }

    /// Everything that was staged counts from now on, in one step. Gives back a position to flush up to.
    pub fn finish(self) -> Result<Lsn> {
        let mut at = Lsn(0);
        self.finish_at(|lsn| at = lsn)?;
        Ok(at)
    }

    /// The same; what it gives back is asked before anybody else can see what was done.
    pub fn finish_then<T>(self, then: impl FnOnce() -> T) -> Result<T> {
        self.finish_at(|_| then())
    }

    fn finish_at<T>(mut self, then: impl FnOnce(Lsn) -> T) -> Result<T> {
        let mut seen = std::mem::replace(&mut self.seen, Seen::Look);
        let lsn = match &mut seen {
            Seen::Now { locked, .. } => {
                let lsn = self.finish_now()?;
                locked.changed(lsn);
                self.files.locks.changed(&self.numbers, lsn);
                self.files.free_numbers(&self.freed);
                lsn
            }
            Seen::Within(txn, guard) => self.finish_within(txn, guard.get_mut()?)?,
            Seen::Look | Seen::Beside(_) | Seen::Before(_) => {
                return Err(Error::new(ErrorKind::ReadOnly, "what is seen here never changes"));
            }
        };
        self.numbers.clear();
        self.lists.clear();
        let told = then(lsn);
        let within = matches!(seen, Seen::Within(..));
        drop(seen);
        if !within {
            self.files.condemn(&self.condemned);
        }
        Ok(told)
    }

    #[cfg(not(feature = "unbracketed"))]
    fn finish_now(&self) -> Result<Lsn> {
        if let Some(done) = self.finish_together() {
            return done;
        }
        let mut unit = self.files.disk.begin()?;
        match self.write_into(&mut unit) {
            Err(error) if error.kind() == ErrorKind::Full => {
                unit = self.files.disk.begin()?;
                let from = self.files.draw(&mut unit, self.blocks(), self.frees.then_some(0), error)?;
                self.write_into(&mut unit)?;
                self.files.put_back(&mut unit, from)?;
            }
            other => other?,
        }
        let lsn = unit.commit()?;
        self.fill();
        Ok(lsn)
    }

    /// The same as [`Op::finish`] in space that was promised, for who sees to it that nobody else changes the same.
    pub fn finish_promised(mut self, space: &mut lode::Reservation) -> Result<Lsn> {
        let mut unit = self.files.disk.begin()?;
        unit.draw_on(space, space.blocks())?;
        self.write_noting(&mut unit, &mut false)?;
        let lsn = unit.commit()?;
        self.numbers.clear();
        self.lists.clear();
        Ok(lsn)
    }

    /// What it has taken of what is held, or given back to others, is held again.
    fn fill(&self) {
        if self.frees { self.files.fill_reserve() } else { self.files.fill_hold() }
    }

    /// At most so many blocks are written.
    fn blocks(&self) -> u64 {
        u64_of(self.staged.len()) + self.steps.iter().map(Step::blocks).sum::<u64>()
    }

    /// If it is blocks and nothing else: in one step without a unit. None: it is more, or space must be drawn on.
    #[cfg(not(feature = "unbracketed"))]
    fn finish_together(&self) -> Option<Result<Lsn>> {
        if !self.steps.is_empty() || self.staged.iter().any(|(.., bytes)| bytes.is_none()) {
            return None;
        }
        let volumes: Result<SmallVec<[_; 4]>> =
            self.staged.iter().map(|(which, ..)| self.files.volume(*which)).collect();
        let volumes = match volumes {
            Ok(volumes) => volumes,
            Err(error) => return Some(Err(error)),
        };
        let whole: SmallVec<[Whole<'_>; 4]> = (self.staged.iter().zip(&volumes))
            .map(|((_, block, bytes), volume)| Whole {
                volume,
                block: *block,
                bytes: bytes.as_deref().unwrap_or_default(),
            })
            .collect();
        if planted::is(Bug::OperationInParts) {
            let mut parts = whole.chunks(1);
            return Some(parts.try_fold(Lsn(0), |_, part| Ok(self.files.disk.write_together(part)?)));
        }
        match self.files.disk.write_together(&whole) {
            Err(error) if error.kind() == lode::ErrorKind::Full => None,
            done => {
                self.fill();
                Some(done.map_err(Error::from))
            }
        }
    }

    /// Space for all of it is promised first, so that the transaction has all of the operation or nothing.
    fn finish_within(&mut self, txn: &Txn, unit: &mut Unit) -> Result<Lsn> {
        let blocks = self.blocks();
        match self.files.disk.reserve(blocks, BLOCK) {
            Ok(mut space) => {
                unit.draw_on(&mut space, blocks)?;
                let done = self.write_promised(txn, unit);
                let back = unit.put_back(&mut space);
                done?;
                back?;
            }
            Err(error) if error.kind() == lode::ErrorKind::Full => {
                // It gives back nothing before its commit: half of what is held for removals is left for others.
                let from = self.files.draw(unit, blocks, self.frees.then_some(FREEING / 2), error.into())?;
                let done = self.write_promised(txn, unit);
                let back = self.files.put_back(unit, from);
                done?;
                back?;
            }
            Err(error) => return Err(error.into()),
        }
        let mut state = txn.state.lock();
        let inodes = self.staged.iter().filter(|(which, ..)| *which == Which::Inodes);
        state.changed.extend(inodes.map(|(_, ino, _)| Ino(*ino)));
        state.made.extend(&self.numbers);
        state.freed.extend(&self.freed);
        state.lists.extend(&self.lists);
        state.condemned.extend(&self.condemned);
        state.names.extend(self.names.iter().cloned());
        Ok(self.files.disk.position())
    }

    /// Within a transaction. What fails with a part of it done must never count.
    fn write_promised(&self, txn: &Txn, unit: &mut Unit) -> Result<()> {
        let mut begun = false;
        let done = self.write_noting(unit, &mut begun);
        if done.is_err() && (begun || unit.is_broken()) {
            txn.spoil();
        }
        done
    }

    #[cfg(not(feature = "unbracketed"))]
    fn write_into(&self, unit: &mut Unit) -> Result<()> {
        self.write_noting(unit, &mut false)
    }

    /// `begun`: something was done.
    fn write_noting(&self, unit: &mut Unit, begun: &mut bool) -> Result<()> {
        // Stretches first: what is staged has the last word on its blocks.
        for step in &self.steps {
            match step {
                Step::Write(which, offset, bytes) => unit.write_at(&*self.files.volume(*which)?, *offset, bytes)?,
                Step::Zeros(which, stretch) => {
                    let volume = self.files.volume(*which)?;
                    unit.write_zeros(&volume, stretch.start, stretch.end - stretch.start)?;
                }
                Step::Discard(which, stretch) => {
                    let volume = self.files.volume(*which)?;
                    unit.discard(&volume, stretch.start, stretch.end - stretch.start)?;
                }
            }
            *begun = true;
        }
        write_staged(self.files, unit, &self.staged, begun)
    }

    /// What it has staged, to be written by somebody else, and the lists that it took for that.
    pub fn into_staged(mut self) -> (Vec<Staged>, Vec<ListId>) {
        self.numbers.clear();
        (std::mem::take(&mut self.staged).into_vec(), std::mem::take(&mut self.lists).into_vec())
    }

    /// A name is given, taken away, or means something else.
    pub fn note_name(&mut self, directory: Ino, name: &[u8]) {
        if matches!(self.seen, Seen::Within(..)) {
            self.names.push((directory, name.to_vec()));
        }
    }

    /// Something is looked at.
    pub fn note_read(&self, note: impl FnOnce(&mut ReadSet)) {
        if let Seen::Within(txn, _) = &self.seen {
            txn.note_read(note);
        }
    }
}

/// Writes whole blocks into a unit. `begun`: something was written.
pub(crate) fn write_staged(files: &Files, unit: &mut Unit, staged: &[Staged], begun: &mut bool) -> Result<()> {
    for (which, block, bytes) in staged {
        let size = block_bytes(*which);
        let volume = files.volume(*which)?;
        let offset = block * u64::from(size);
        match bytes {
            None => unit.discard(&volume, offset, u64::from(size))?,
            Some(bytes) if bytes.len() == usize_of(size.into()) => unit.write_at(&volume, offset, bytes)?,
            Some(bytes) => {
                let mut whole = [0; BLOCK_LEN];
                whole[..bytes.len()].copy_from_slice(bytes);
                unit.write_at(&volume, offset, &whole[..usize_of(size.into())])?;
            }
        }
        *begun = true;
    }
    Ok(())
}

impl Step<'_> {
    /// At most so many blocks are written.
    fn blocks(&self) -> u64 {
        let (Step::Write(which, ..) | Step::Zeros(which, _) | Step::Discard(which, _)) = self;
        let bytes = match self {
            Step::Write(_, _, bytes) => u64_of(bytes.len()),
            Step::Zeros(_, stretch) => stretch.end - stretch.start,
            Step::Discard(..) => 0,
        };
        bytes / u64::from(block_bytes(*which)) + 2
    }
}

impl Drop for Op<'_> {
    fn drop(&mut self) {
        self.files.give_back_numbers(&self.numbers);
        self.files.give_back_lists(&self.lists);
    }
}
