//! Zones for those who write: taken from the free ones, erased before use, waited for when they run low (R28, R29).

use super::{Core, Inner};
use crate::error::{Error, Result};
use crate::shape::RESERVE_ZONES;
use crate::types::index;
use lode_media::ZoneId;
use parking_lot::MutexGuard;

/// The keeper cleans when fewer zones than this, beyond the reserve, are free.
pub(crate) const LOW_ZONES: usize = 4;
/// So many fruitless attempts in a row, and a waiting writer gets `Full` instead of waiting for ever.
const HOPELESS: u32 = 64;

impl Core {
    /// Zones that may be taken, erased or not.
    pub fn available(&self) -> usize {
        self.free.len() + self.writer.ready.len()
    }

    /// Takes a free zone. The caller erases it.
    pub fn take_zone(&mut self) -> Option<u32> {
        self.free.pop_first()
    }
}

impl Inner {
    /// Before new data is taken in: waits until more zones than the reserve are available (R28, R29).
    pub fn admit<'a>(&'a self, core: MutexGuard<'a, Core>) -> Result<MutexGuard<'a, Core>> {
        if core.available() > index(RESERVE_ZONES) {
            return Ok(core);
        }
        drop(core);
        self.prepare_zone(false)?;
        Ok(self.core.lock())
    }

    /// Makes another zone ready for the record stream. Who is not urgent leaves the reserve alone and waits for the
    /// cleaner.
    pub fn prepare_zone(&self, urgent: bool) -> Result<()> {
        let mut core = self.core.lock();
        // Zones come and go while the cleaner works: only more of them than ever before is a gain.
        let (mut most, mut fruitless) = (core.available(), 0);
        loop {
            core.alive()?;
            if core.writer.ready.len() >= 3 && (urgent || core.available() > index(RESERVE_ZONES)) {
                return Ok(());
            }
            let enough = if urgent { !core.free.is_empty() } else { core.available() > index(RESERVE_ZONES) && !core.free.is_empty() };
            if enough {
                let zone = core.take_zone().expect("not empty");
                drop(core);
                let erased = self.erase_zone(zone);
                core = self.core.lock();
                if let Err(error) = erased {
                    core.latch(&error);
                    return Err(error);
                }
                core.writer.ready.push_back(zone);
                if core.writer.ready.len() >= 3 {
                    return Ok(());
                }
                continue;
            }
            if fruitless > HOPELESS {
                crate::mark("space: cleaning is fruitless");
                return Err(self.full(&core, 0));
            }
            if self.options.background {
                let rounds = core.rounds;
                self.keeper.notify_all();
                self.space.wait_for(&mut core, std::time::Duration::from_millis(100));
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
    }

    /// Erases a zone that was taken from the free ones.
    pub fn erase_zone(&self, zone: u32) -> Result<()> {
        self.medium.erase(ZoneId(zone)).map_err(|e| Error::media(format!("erasing zone {zone}"), e))
    }
}
