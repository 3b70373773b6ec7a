//! Zones for those who write: taken from the free ones, erased before use, waited for when they run low (R28, R29).

use super::options::Survive;
use super::{Core, Inner};
use crate::error::{Error, Result};
use crate::shape::RESERVE_ZONES;
use crate::sync::MutexGuard;
use crate::types::index;
use lode_media::ZoneId;
use std::time::Duration;

/// The keeper cleans when fewer zones than this, beyond the reserve, are free.
pub(crate) const LOW_ZONES: usize = 10;
/// So many must be ready before a segment is opened: it and the two that it announces (R11).
const READY_ZONES: usize = 3;
/// So many fruitless attempts in a row, and a waiting writer gets `Full` instead of waiting for ever.
const HOPELESS: u32 = 64;

impl Core {
    /// Zones that may be taken, erased or not.
    pub fn available(&self) -> usize {
        self.free.len() + self.writer.ready.len()
    }

    /// Takes a free zone, which is real. The caller erases it.
    pub fn take_zone(&mut self) -> Option<u32> {
        self.free.pop_first()
    }

    /// As `take_zone`, for the keeper: at the worst one of those that are ready and not announced yet (R11).
    pub fn take_spare_zone(&mut self) -> Option<u32> {
        self.take_zone().or_else(|| (self.writer.ready.len() > READY_ZONES).then(|| self.writer.ready.pop_back())?)
    }

    /// How many there are for the keeper.
    pub fn spare_zones(&self) -> usize {
        self.free.len() + self.writer.ready.len().saturating_sub(READY_ZONES)
    }
}

/// Who wants a zone, and so how many he must leave to others (R28, R29).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// New data: waits for the cleaner, or learns that the disk is full.
    Data,
    /// Commits and deletes: give the cleaner a chance, then draw on the reserve.
    Urgent,
    /// The keeper's own records: never wait for the keeper.
    Keeper,
}

/// What a round of cleaning is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    /// Zones that can be freed sooner or later.
    Any,
    /// Zones that a flush frees: in the middle of a checkpoint, whose root is still to come.
    WithoutRoot,
}

impl Claim {
    fn leaves(self) -> usize {
        match self {
            Claim::Data => index(RESERVE_ZONES),
            Claim::Urgent => index(RESERVE_ZONES / 4 * 3),
            Claim::Keeper => 0,
        }
    }

    /// So many zones must be ready before a segment is opened: it and the two that it announces (R11). The keeper makes
    /// do with fewer when there are no more: it is about to free some.
    pub fn ready_min(self, available: usize) -> usize {
        if self == Claim::Keeper { available.clamp(1, READY_ZONES) } else { READY_ZONES }
    }

    fn patience(self) -> u32 {
        match self {
            Claim::Data => HOPELESS,
            Claim::Urgent => HOPELESS / 8,
            Claim::Keeper => 0,
        }
    }
}

impl Inner {
    /// Before anything is taken in: waits until more zones are available than the claim must leave.
    pub fn admit<'a>(&'a self, mut core: MutexGuard<'a, Core>, claim: Claim) -> Result<MutexGuard<'a, Core>> {
        if claim == Claim::Data {
            core = self.tell_space(self.await_root(core)?);
        }
        // Zones come and go while the cleaner works: only more of them than ever before is a gain.
        let (mut most, mut fruitless) = (core.available(), 0);
        while core.available() <= claim.leaves() && claim != Claim::Keeper {
            core.alive()?;
            if fruitless > claim.patience() {
                if claim == Claim::Urgent {
                    crate::mark("space: reserve drawn on");
                    return Ok(core);
                }
                crate::mark("space: cleaning is fruitless");
                core.hopeless = true;
                core = self.tell_space(core);
                return Err(self.full(&core, 0));
            }
            // Volumes may outlive the threads, which end with the last handle of the disk: then the caller does the
            // work.
            if self.options.background && !core.stop {
                let rounds = core.rounds;
                self.keeper.notify_all();
                self.space.wait_for(&mut core, Duration::from_millis(100));
                fruitless += u32::from(core.rounds > rounds);
            } else {
                drop(core);
                self.maintain_for_space()?;
                core = self.core.lock();
                fruitless += 1;
            }
            if core.available() > most {
                (most, fruitless) = (core.available(), 0);
            }
        }
        core.alive()?;
        Ok(core)
    }

    /// New data waits while more segments than fit in a root lack one. Should none come all the same, it goes on.
    fn await_root<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> Result<MutexGuard<'a, Core>> {
        for _ in 0..HOPELESS {
            if core.writer.segments.len() < self.shape.segments_most() {
                break;
            }
            core.alive()?;
            crate::mark("space: new data waits for a root");
            if self.options.background && !core.stop {
                self.keeper.notify_all();
                self.space.wait_for(&mut core, Duration::from_millis(100));
            } else {
                drop(core);
                self.maintain(false)?;
                core = self.core.lock();
            }
        }
        Ok(core)
    }

    /// Makes at least `count` zones ready for the record stream.
    pub fn prepare_zones(&self, count: usize, claim: Claim) -> Result<()> {
        let mut core = self.core.lock();
        let (mut most, mut fruitless) = (core.available(), 0);
        while core.writer.ready.len() < count {
            core = self.admit(core, claim)?;
            let Some(zone) = core.take_zone() else {
                // Zones whose freeing is recorded lack only a flush.
                if !core.freeing.is_empty() {
                    crate::mark("space: freed zones flushed for");
                    let target = core.writer.lsn;
                    drop(core);
                    self.flush_to(target, Survive::Power)?;
                    let gained = self.collect_freed();
                    core = self.core.lock();
                    if gained {
                        continue;
                    }
                }
                if claim != Claim::Keeper {
                    // So many at once are more than the keeper makes for others.
                    crate::mark("space: cleaned for a large commit");
                    drop(core);
                    self.maintain_for_space()?;
                    core = self.core.lock();
                    fruitless = if core.available() > most { 0 } else { fruitless + 1 };
                    most = most.max(core.available());
                    if fruitless > HOPELESS {
                        return Err(self.full(&core, 0));
                    }
                    continue;
                }
                crate::mark("space: keeper makes do with fewer zones");
                // The keeper makes do with what there is: it is about to free more.
                let enough = core.writer.ready.len() >= claim.ready_min(core.available());
                return if enough { Ok(()) } else { Err(self.full(&core, 0)) };
            };
            drop(core);
            let erased = self.erase_zone(zone);
            core = self.core.lock();
            if let Err(error) = erased {
                core.free.insert(zone);
                return Err(error);
            }
            core.writer.ready.push_back(zone);
        }
        Ok(())
    }

    /// Erases a zone that was taken from the free ones.
    pub fn erase_zone(&self, zone: u32) -> Result<()> {
        self.forget_windows(zone);
        self.medium.erase(ZoneId(zone)).map_err(|e| Error::media(format!("erasing zone {zone}"), e))
    }
}
