//! Space that is the file system's before anything is written: a little, always, for operations that give space back, and
//! as much as somebody asks for, for files, on a disk that volumes share (*The Logical Disk*, section 2.2: reservations).
//!
//! What is held for files is the last of the free space: volumes are refused before they take of it, and files take of it
//! when nothing else is left. What they took is held again as soon as there is space.
//!
//! Invariant H1: no more is held than was asked for.

use crate::error::{Error, ErrorKind, Result};
use crate::files::{FileSystem, Files};
use crate::format::BLOCK;
use lode::{Disk, Reservation, Unit};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Space for so many blocks is held for operations that give space back.
const FREEING: u64 = 64;
/// More reservations than that are made one.
const PIECES_MAX: usize = 32;

/// All that is promised to the file system.
#[derive(Default)]
pub(crate) struct Promises {
    freeing: Mutex<Option<Reservation>>,
    hold: Mutex<Hold>,
    /// Less is held than was asked for.
    lacking: AtomicBool,
}

/// Where a unit has drawn space.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    Freeing,
    Hold,
}

/// What is held for files.
#[derive(Default)]
struct Hold {
    /// Blocks that were asked for.
    blocks: u64,
    pieces: Vec<Reservation>,
}

impl Hold {
    fn left(&self) -> u64 {
        self.pieces.iter().map(Reservation::blocks).sum()
    }

    /// Gives back all but so many blocks. What is over of a piece is held anew, unless somebody is faster.
    fn keep(&mut self, disk: &Disk, blocks: u64) {
        let mut left = self.left();
        while left > blocks
            && let Some(piece) = self.pieces.pop()
        {
            left -= piece.blocks();
            drop(piece);
            if left < blocks {
                self.pieces.extend(disk.reserve(blocks - left, BLOCK).ok());
                return;
            }
        }
    }

    /// Holds more, up to what was asked for, as far as there is space.
    fn fill(&mut self, disk: &Disk) {
        let missing = self.blocks.saturating_sub(self.left());
        if missing == 0 {
            return;
        }
        let piece = disk.reserve(missing, BLOCK).or_else(|full| {
            let charged = u64::from(BLOCK) + CHARGE_MAX;
            match disk.info()?.free / charged {
                0 => Err(full),
                blocks => disk.reserve(blocks.min(missing), BLOCK),
            }
        });
        self.pieces.extend(piece.ok());
        self.pieces.retain(|piece| piece.blocks() > 0);
        if self.pieces.len() > PIECES_MAX {
            let all = self.left();
            self.pieces.clear();
            self.pieces.extend(disk.reserve(all, BLOCK).ok());
        }
    }

    /// Gives a unit space for so many blocks, or for none.
    fn give(&mut self, unit: &mut Unit, mut blocks: u64) -> Result<bool> {
        if self.left() < blocks {
            return Ok(false);
        }
        for piece in &mut self.pieces {
            let some = blocks.min(piece.blocks());
            unit.draw_on(piece, some)?;
            blocks -= some;
        }
        Ok(true)
    }
}

/// A block is charged at most so much beside its bytes, also while there are snapshots.
const CHARGE_MAX: u64 = 256;

impl FileSystem {
    /// Holds the last `bytes` of the disk's free space for files: volumes do not get it. Files take of it when nothing else
    /// is left; what they took is held again once there is space. 0 gives all of it back. It ends with the file system.
    /// `Full`: there is not so much free; then it is as it was.
    pub fn hold_space(&self, bytes: u64) -> Result<()> {
        let files = &self.files;
        let mut hold = files.promises.hold.lock();
        let blocks = bytes.div_ceil(u64::from(BLOCK));
        let missing = blocks.saturating_sub(hold.left());
        if missing > 0 {
            let piece = files.disk.reserve(missing, BLOCK).map_err(|error| match error.kind() {
                lode::ErrorKind::Full => Error::new(ErrorKind::Full, format!("{bytes} bytes to be held: {error}")),
                _ => error.into(),
            })?;
            hold.pieces.push(piece);
        }
        hold.keep(&files.disk, blocks);
        hold.blocks = blocks;
        files.promises.lacking.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Bytes of files that are still held for, and what that takes of the disk.
    pub(crate) fn held(&self) -> (u64, u64) {
        let hold = self.files.promises.hold.lock();
        (hold.left() * u64::from(BLOCK), hold.pieces.iter().map(Reservation::held_bytes).sum())
    }
}

impl Files {
    /// Holds space again, if there is.
    pub fn fill_reserve(&self) {
        let mut freeing = self.promises.freeing.lock();
        if freeing.as_ref().is_none_or(|space| space.blocks() < FREEING / 2) {
            // The disk may be tiny.
            let usable = self.disk.info().map_or(0, |info| info.usable);
            let blocks = FREEING.min(usable / 64 / u64::from(BLOCK)).max(8);
            *freeing = None;
            *freeing = self.disk.reserve(blocks, BLOCK).ok();
            let mut hold = self.promises.hold.lock();
            if freeing.is_none() && hold.left() > 0 {
                // What gives space back goes before what takes some.
                let left = hold.left().saturating_sub(blocks);
                hold.keep(&self.disk, left);
                *freeing = self.disk.reserve(blocks, BLOCK).ok();
                self.promises.lacking.store(true, Ordering::Relaxed);
            }
        }
        drop(freeing);
        self.fill_hold();
    }

    /// Does what no unit can draw on anything for. If the disk is full otherwise, what is held for files makes room for it.
    pub fn lending<T>(&self, work: impl Fn() -> lode::Result<T>) -> Result<T> {
        let mut blocks = 4;
        loop {
            match work() {
                Err(error) if error.kind() == lode::ErrorKind::Full && self.lend(blocks) => blocks *= 2,
                done => return Ok(done?),
            }
        }
    }

    /// Gives back so many blocks of what is held for files. False: less is held.
    fn lend(&self, blocks: u64) -> bool {
        let mut hold = self.promises.hold.lock();
        let Some(left) = hold.left().checked_sub(blocks) else { return false };
        hold.keep(&self.disk, left);
        self.promises.lacking.store(true, Ordering::Relaxed);
        true
    }

    /// After an operation: holds again what files have taken, if there is space now.
    pub fn fill_hold(&self) {
        if self.promises.lacking.load(Ordering::Relaxed) {
            let mut hold = self.promises.hold.lock();
            hold.fill(&self.disk);
            self.promises.lacking.store(hold.left() < hold.blocks, Ordering::Relaxed);
        }
    }

    /// Gives a unit that was refused as `full` space for so many blocks: if it gives some back itself, all that is held for
    /// that; else from what is held for files. If that is less, it stays refused.
    pub fn draw(&self, unit: &mut Unit, blocks: u64, frees: bool, full: Error) -> Result<Source> {
        if frees && let Some(space) = self.promises.freeing.lock().as_mut().filter(|space| space.blocks() > 0) {
            let blocks = space.blocks();
            unit.draw_on(space, blocks)?;
            return Ok(Source::Freeing);
        }
        if !self.promises.hold.lock().give(unit, blocks)? {
            return Err(full);
        }
        self.promises.lacking.store(true, Ordering::Relaxed);
        Ok(Source::Hold)
    }

    /// What the unit has not used of it is held again.
    pub fn put_back(&self, unit: &mut Unit, from: Source) -> Result<()> {
        match from {
            Source::Freeing => self.promises.freeing.lock().as_mut().map(|space| unit.put_back(space)),
            Source::Hold => self.promises.hold.lock().pieces.last_mut().map(|space| unit.put_back(space)),
        }
        .transpose()?;
        Ok(())
    }

    /// Gives a unit all that is held for operations that give some back.
    pub fn draw_on_reserve(&self, unit: &mut Unit) -> Result<()> {
        if let Some(space) = self.promises.freeing.lock().as_mut() {
            let blocks = space.blocks();
            unit.draw_on(space, blocks)?;
        }
        Ok(())
    }
}
