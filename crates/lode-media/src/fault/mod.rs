//! A medium that fails in every way that devices were seen to fail, from one seed.
//!
//! [`FaultMedium`] stands before another medium and keeps what was appended and erased since the last sync in a
//! **volatile cache**. Only a sync that succeeds passes it on. So the death of a process loses nothing (M6: open
//! the same `FaultMedium` again), and a **power cut** ([`FaultMedium::crash_now`]) decides for everything in the
//! cache what is left of it (M3, M4).
//!
//! Beside that, by chance or on demand: calls that fail once or for ever, syncs that fail and lose data, appends
//! written at a wrong place, bits that rot where they lie, sectors that cannot be read, reads that go wrong once.
//! What every one of them may do is said in [`FaultPlan`] and [`FaultPoint`].

use parking_lot::Mutex;

use crate::ram::RamMedium;
use crate::{ErrorKind, Geometry, Medium, Position, Result, ZoneId};

mod cells;
mod cut;
mod inject;
mod plan;
mod rng;
mod state;

pub use plan::{FaultPlan, FaultPoint, Lasting};
pub use rng::Rng;

use state::State;

/// A medium whose bytes can be changed in place, behind the contract's back.
pub trait Backing: Medium {
    /// Puts bytes in place, at any offset and of any length inside one zone.
    fn overwrite(&self, at: Position, bytes: &[u8]) -> Result<()>;
}

impl Backing for RamMedium {
    fn overwrite(&self, at: Position, bytes: &[u8]) -> Result<()> {
        RamMedium::overwrite(self, at, bytes)
    }
}

impl<M: Backing + ?Sized> Backing for std::sync::Arc<M> {
    fn overwrite(&self, at: Position, bytes: &[u8]) -> Result<()> {
        (**self).overwrite(at, bytes)
    }
}

/// A medium before `M` that fails as its plan says. See the page of the module.
///
/// ```
/// use lode_media::fault::{FaultMedium, FaultPlan};
/// use lode_media::{Geometry, Medium, Position, ZoneId, ram::RamMedium};
///
/// let ram = RamMedium::new(Geometry { zones: 4, zone_bytes: 4096, append_align: 512, devices: 1 });
/// let medium = FaultMedium::new(ram, FaultPlan::new(42));
/// let start = Position { zone: ZoneId(0), offset: 0 };
/// medium.append(start, &[&[1; 512]])?;
/// medium.sync()?;
/// medium.append(Position { offset: 512, ..start }, &[&[2; 1024]])?;
/// medium.crash_now();
/// medium.power_on();
/// let mut synced = [0; 512];
/// medium.read(start, &mut synced)?;
/// assert_eq!(synced, [1; 512]); // of the other 1024 bytes nothing is known
/// # Ok::<(), lode_media::Error>(())
/// ```
pub struct FaultMedium<M> {
    inner: M,
    state: Mutex<State>,
}

impl<M: Medium> FaultMedium<M> {
    /// A medium before `inner`, with the power on and nothing in the cache.
    pub fn new(inner: M, plan: FaultPlan) -> Self {
        FaultMedium { inner, state: Mutex::new(State::new(plan)) }
    }

    /// The medium behind, without the cache and without the damage.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// Changes what goes wrong by chance from now on. The seed of `plan` starts a new row of random numbers.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.state.lock().set_plan(plan);
    }

    /// Appends and erases in the cache.
    pub fn pending(&self) -> usize {
        self.state.lock().pending_len()
    }

    /// Cuts the power. What was not synced is left as the plan and the seed decide; every call fails until
    /// [`power_on`](Self::power_on).
    pub fn crash_now(&self) {
        self.state.lock().cut_by_chance(&self.inner, self.geometry());
    }

    /// Cuts the power like [`crash_now`](Self::crash_now), but asks for each decision: `choose(n)` says a number
    /// below `n`. In the order they were made, an erase asks once (`n` = 3: not happened, zeros, noise) and an
    /// append once for each sector (`n` = 4: old, new, noise, zeros). With it all cuts can be enumerated.
    pub fn crash_choosing(&self, choose: &mut dyn FnMut(u32) -> u32) {
        self.state.lock().cut_by_choice(self.geometry(), choose);
    }

    /// Gives power again after a crash.
    pub fn power_on(&self) {
        self.state.lock().power_on();
    }

    /// Whether there is power.
    pub fn is_on(&self) -> bool {
        self.state.lock().is_on()
    }

    /// Makes the `nth` call of a kind from now on fail (1 is the next one), once or for ever.
    pub fn fail(&self, point: FaultPoint, nth: u64, lasting: Lasting, kind: ErrorKind) {
        self.state.lock().script.add(point, nth, lasting, kind);
    }

    /// Takes back all calls to [`fail`](Self::fail), [`misdirect_next`](Self::misdirect_next) and
    /// [`flip_reads`](Self::flip_reads) that have not had their effect. What is damaged stays damaged.
    pub fn heal(&self) {
        self.state.lock().heal();
    }

    /// Writes the next append at another place: at `to`, clipped to lie in its zone, or at one chosen by chance.
    pub fn misdirect_next(&self, to: Option<Position>) {
        self.state.lock().misdirect_next(to);
    }

    /// Flips one bit of each of the next `reads` reads. The medium itself stays right.
    pub fn flip_reads(&self, reads: u64) {
        self.state.lock().flip_reads(reads);
    }

    /// Flips the bits of `mask` in one byte where it durably lies. What is in the cache hides it until it is synced.
    pub fn rot(&self, at: Position, mask: u8) -> Result<()> {
        self.geometry().check_range(at, 1)?;
        self.state.lock().rot(&self.inner, self.geometry(), at, mask)
    }

    /// Flips one bit in something synced, chosen by chance, and says in which byte. None if nothing was synced.
    pub fn rot_somewhere(&self) -> Option<Position> {
        self.state.lock().rot_somewhere(&self.inner, self.geometry())
    }

    /// Makes reads of the sectors in a range fail until the range is appended to or its zone erased, and that synced.
    pub fn make_unreadable(&self, at: Position, len: usize) -> Result<()> {
        self.geometry().check_range(at, len)?;
        self.state.lock().make_unreadable(self.geometry(), at, len);
        Ok(())
    }
}

impl<M: Backing> FaultMedium<M> {
    /// Cuts the power and gives the medium behind back, with everything in it that is left, damage included
    /// (sectors that cannot be read are as they were).
    pub fn crash(self) -> M {
        self.crash_now();
        let geometry = self.inner.geometry();
        self.state.into_inner().settle(&self.inner, geometry);
        self.inner
    }
}

impl<M: Medium> Medium for FaultMedium<M> {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: Position, into: &mut [u8]) -> Result<()> {
        self.geometry().check_range(at, into.len())?;
        self.state.lock().read(&self.inner, self.geometry(), at, into)
    }

    fn append(&self, at: Position, pieces: &[&[u8]]) -> Result<()> {
        self.geometry().check_append(at, crate::bounds::total_len(pieces))?;
        self.state.lock().append(self.geometry(), at, pieces)
    }

    fn erase(&self, zone: ZoneId) -> Result<()> {
        self.geometry().check_zone(zone)?;
        self.state.lock().erase(zone)
    }

    fn sync(&self) -> Result<()> {
        self.state.lock().sync(&self.inner, self.geometry())
    }

    fn grow(&self, zones: Option<u32>) -> Result<()> {
        self.state.lock().grow(&self.inner, zones)
    }

    fn discard(&self, zone: ZoneId) -> Result<()> {
        self.geometry().check_zone(zone)?;
        self.state.lock().discard(zone)
    }
}

impl<M: std::fmt::Debug> std::fmt::Debug for FaultMedium<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultMedium").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
