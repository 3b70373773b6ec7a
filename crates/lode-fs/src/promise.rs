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
pub(crate) const FREEING: u64 = 64;

/// All that is promised to the file system.
#[derive(Default)]
pub(crate) struct Promises {
    freeing: Mutex<Held>,
    hold: Mutex<Held>,
    /// Less is held for files than was asked for.
    lacking: AtomicBool,
}

/// Where a unit has drawn space.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    Freeing,
    Hold,
}

/// Space that is held.
#[derive(Default)]
struct Held {
    /// Blocks that are wanted.
    wanted: u64,
    space: Option<Reservation>,
}

impl Held {
    fn left(&self) -> u64 {
        self.space.as_ref().map_or(0, Reservation::blocks)
    }

    /// Holds so many blocks more. `Full`: it has what it had.
    fn grow(&mut self, disk: &Disk, blocks: u64) -> lode::Result<()> {
        match &mut self.space {
            Some(space) => space.grow(blocks),
            none => disk.reserve(blocks, BLOCK).map(|space| *none = Some(space)),
        }
    }

    /// Holds more, up to what is wanted, as far as there is space.
    fn fill(&mut self, disk: &Disk) {
        let mut missing = self.wanted.saturating_sub(self.left());
        while missing > 0 {
            match self.grow(disk, missing) {
                Ok(()) => missing = self.wanted.saturating_sub(self.left()).min(missing),
                Err(_) => missing /= 2,
            }
        }
    }

    /// Gives back so many blocks. False: less is held.
    fn give_back(&mut self, blocks: u64) -> bool {
        match &mut self.space {
            Some(space) if space.blocks() >= blocks => space.shrink(space.blocks() - blocks),
            _ => return false,
        }
        true
    }

    /// Gives a unit space for so many blocks, and keeps `but`; or gives it none.
    fn give(&mut self, unit: &mut Unit, blocks: u64, but: u64) -> Result<bool> {
        match &mut self.space {
            Some(space) if space.blocks() >= blocks.saturating_add(but) => unit.draw_on(space, blocks)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl FileSystem {
    /// Holds the last `bytes` of the disk's free space for files: volumes do not get it. Files take of it when nothing else
    /// is left; what they took is held again once there is space. 0 gives all of it back. It ends with the file system.
    /// `Full`: there is not so much free; then it is as it was.
    pub fn hold_space(&self, bytes: u64) -> Result<()> {
        let files = &self.files;
        let mut hold = files.promises.hold.lock();
        let blocks = bytes.div_ceil(u64::from(BLOCK));
        let left = hold.left();
        if left < blocks {
            hold.grow(&files.disk, blocks - left).map_err(|error| match error.kind() {
                lode::ErrorKind::Full => Error::new(ErrorKind::Full, format!("{bytes} bytes to be held: {error}")),
                _ => error.into(),
            })?;
        } else {
            hold.give_back(left - blocks);
        }
        hold.wanted = blocks;
        files.promises.lacking.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Bytes of files that are still held for, and what that takes of the disk.
    pub(crate) fn held(&self) -> (u64, u64) {
        let hold = self.files.promises.hold.lock();
        (hold.left() * u64::from(BLOCK), hold.space.as_ref().map_or(0, Reservation::held_bytes))
    }
}

impl Files {
    /// Holds space again for operations that give some back: as much as there is.
    pub fn fill_reserve(&self) {
        let mut freeing = self.promises.freeing.lock();
        if freeing.wanted == 0 {
            // The disk may be tiny.
            let usable = self.disk.info().map_or(0, |info| info.usable);
            freeing.wanted = FREEING.min(usable / 64 / u64::from(BLOCK)).max(8);
        }
        if freeing.left() < freeing.wanted / 2 {
            freeing.fill(&self.disk);
            // What gives space back goes before what takes some.
            let missing = freeing.wanted - freeing.left();
            if missing > 0 && self.lend(missing) {
                freeing.fill(&self.disk);
            }
        }
        drop(freeing);
        self.fill_hold();
    }

    /// Does what no unit can draw on anything for. If the disk is full otherwise, what is held for files makes room for it.
    pub fn lending<T>(&self, work: impl Fn() -> lode::Result<T>) -> lode::Result<T> {
        let mut blocks = 4;
        loop {
            match work() {
                Err(error) if error.kind() == lode::ErrorKind::Full && self.lend(blocks) => blocks *= 2,
                done => return done,
            }
        }
    }

    /// Gives back so many blocks of what is held for files. False: less is held.
    fn lend(&self, blocks: u64) -> bool {
        let lent = self.promises.hold.lock().give_back(blocks);
        if lent {
            self.promises.lacking.store(true, Ordering::Relaxed);
        }
        lent
    }

    /// After an operation: holds again what files have taken, if there is space now.
    pub fn fill_hold(&self) {
        if self.promises.lacking.load(Ordering::Relaxed) {
            let mut hold = self.promises.hold.lock();
            hold.fill(&self.disk);
            self.promises.lacking.store(hold.left() < hold.wanted, Ordering::Relaxed);
        }
    }

    /// Gives a unit that was refused as `full` space for so many blocks. `frees`: it gives some back itself, and draws on what
    /// is held for that but for so many blocks; else, or if that is less, from what is held for files. If that is less, too,
    /// it stays refused.
    pub fn draw(&self, unit: &mut Unit, blocks: u64, frees: Option<u64>, full: Error) -> Result<Source> {
        if let Some(but) = frees {
            let mut freeing = self.promises.freeing.lock();
            // It may be less than the most that could be needed.
            let some = if but == 0 { blocks.min(freeing.left()) } else { blocks };
            if some > 0 && freeing.give(unit, some, but)? {
                return Ok(Source::Freeing);
            }
        }
        if !self.promises.hold.lock().give(unit, blocks, 0)? {
            return Err(full);
        }
        self.promises.lacking.store(true, Ordering::Relaxed);
        Ok(Source::Hold)
    }

    /// What the unit has not used of it is held again.
    pub fn put_back(&self, unit: &mut Unit, from: Source) -> Result<()> {
        let held = match from {
            Source::Freeing => &self.promises.freeing,
            Source::Hold => &self.promises.hold,
        };
        let mut held = held.lock();
        let wanted = held.wanted;
        if let Some(space) = &mut held.space {
            unit.put_back(space)?;
            // With what it has drawn elsewhere before, it may be more.
            space.shrink(wanted.min(space.blocks()));
        }
        Ok(())
    }

    /// Gives a unit space for so many blocks before a commit writes them: from what is free, else from what is held. `Full`:
    /// nothing was given.
    pub fn room_for(&self, unit: &mut Unit, blocks: u64) -> Result<()> {
        match self.disk.reserve(blocks, BLOCK) {
            Ok(mut space) => Ok(unit.draw_on(&mut space, blocks)?),
            Err(error) if error.kind() == lode::ErrorKind::Full => {
                if self.promises.freeing.lock().give(unit, blocks, 0)? {
                    return Ok(());
                }
                self.draw(unit, blocks, None, error.into()).map(drop)
            }
            Err(error) => Err(error.into()),
        }
    }
}
