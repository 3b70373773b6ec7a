//! Free zones whose space is given back to the file system or the device below, as `OpenOptions::discard` asks for.
//!
//! ```text
//! free ──(many)──> discarded ──(few free are left)──> erased, so real again (R3) ──> free
//! ```
//! A zone that is free may be erased at any time, and to what recovery reads a discard does no more than that (M4). So
//! exactly the zones in `free` may be discarded: their freeing is durable (R26), no root names them, and those that are
//! ready or announced are not among them (R11).
//!
//! Only zones that are real count as available. Whoever waits for space, and all that decides by how much there is, knows
//! nothing of this; and when the file system below has no space left, what remains real is the reserve for commits,
//! deletes and the cleaner (R28).

use super::pace::PACED_ZONES;
use super::{Core, Inner};
use crate::error::Result;
use crate::types::{Lsn, index};
use crate::zones::Holds;
use lode_media::ZoneId;

/// At most so many zones in one step.
const AT_ONCE: usize = 8;

/// So often in a row the keeper finds that nothing was written before it makes dead zones free for discards alone.
const RESTING: u32 = 10;

/// Fewer dead zones are not worth a root.
const DEAD_MANY: usize = 16;

/// How long nothing has been written.
#[derive(Default)]
pub(crate) struct Rest {
    since: Lsn,
    looks: u32,
    /// There was nothing to gain.
    done: bool,
}

impl Rest {
    /// Whether it is time to look what is dead.
    fn is_due(&mut self, now: Lsn) -> bool {
        if self.since != now {
            *self = Rest { since: now, looks: 0, done: false };
        }
        self.looks = (self.looks + 1).min(RESTING);
        self.looks == RESTING && !self.done
    }
}

impl Core {
    /// Zones without a block that counts.
    fn dead_zones(&self) -> usize {
        let zones = self.state.zones.all.iter();
        let dead = zones.filter(|zone| !zone.open && matches!(zone.holds, Holds::Main | Holds::Moved));
        dead.filter(|zone| zone.live == 0 && zone.shadow == 0).count()
    }

    /// So many zones stay free and real: above where writers are paced, and some for writers who come and go.
    fn kept_real(&self) -> usize {
        PACED_ZONES + (index(self.state.shape.zones) / 32).max(4)
    }
}

impl Inner {
    /// What is dead becomes free when nobody writes, so that its space can be given back: until space is low nobody else
    /// needs it. Costs a root for sixteen zones or more. True: zones became free.
    pub(crate) fn free_for_discard(&self) -> Result<bool> {
        {
            let mut core = self.core.lock();
            let now = core.writer.lsn;
            if !self.options.discard || core.discard_failed || !core.discard_rest.is_due(now) {
                return Ok(false);
            }
            if core.dead_zones() < DEAD_MANY {
                core.discard_rest.done = true;
                return Ok(false);
            }
        }
        self.verify_dead()?;
        let gained = self.free_dead(true)?;
        let mut core = self.core.lock();
        // What was written for that is no work of others.
        core.discard_rest = Rest { since: core.writer.lsn, looks: RESTING, done: !gained };
        Ok(gained)
    }

    /// Gives back the space of some zones, if there are many free ones. True: it did.
    pub(crate) fn discard_some(&self) -> Result<bool> {
        let zones: Vec<u32> = {
            let mut core = self.core.lock();
            let many = core.available().saturating_sub(core.kept_real());
            if !self.options.discard || core.discard_failed || many == 0 {
                return Ok(false);
            }
            // The last ones: the first are taken first.
            crate::mark("discard: space of free zones given back");
            (0..many.min(AT_ONCE)).map_while(|_| core.free.pop_last()).collect()
        };
        let mut failed = None;
        for zone in &zones {
            self.forget_windows(*zone);
            let done = if failed.is_none() { self.medium.discard(ZoneId(*zone)) } else { Ok(()) };
            let mut core = self.core.lock();
            match done {
                Ok(()) if failed.is_none() => {
                    core.counters.zones_discarded += 1;
                    core.discarded.insert(*zone);
                }
                Ok(()) => drop(core.free.insert(*zone)),
                Err(error) => {
                    crate::mark("discard: failed, and given up");
                    core.discard_failed = true;
                    core.free.insert(*zone);
                    failed = Some(crate::Error::media(format!("giving back the space of zone {zone}"), error));
                }
            }
        }
        failed.map_or(Ok(!zones.is_empty()), Err)
    }

    /// Makes some zones real again whose space was given back, if few free ones are left. True: it did.
    pub(crate) fn reclaim_discarded(&self) -> Result<bool> {
        let mut did = false;
        for _ in 0..AT_ONCE {
            let zone = {
                let mut core = self.core.lock();
                if core.available() > PACED_ZONES {
                    break;
                }
                let Some(zone) = core.discarded.pop_first() else { break };
                zone
            };
            let erased = self.erase_zone(zone);
            let mut core = self.core.lock();
            if let Err(error) = erased {
                crate::mark("discard: no space to make a zone real again");
                core.discarded.insert(zone);
                return Err(error);
            }
            crate::mark("discard: zone made real again");
            core.free.insert(zone);
            did = true;
            self.space.notify_all();
        }
        Ok(did)
    }
}
