//! How much may still be promised, and telling it before anybody gets `Full`.
//!
//! The level is looked at whenever new data is admitted, before it can be refused, and by the keeper. Whoever finds that it
//! changed tells all that watch, without the core's lock; others who find it too wait until that is done. So every `Full`
//! comes after the warning, but for one request of more than all that was left while there was plenty.
//!
//! Lock order: `telling`, then `core`.

use super::open::Disk;
use super::options::OpenOptions;
use super::{Core, Inner};
use crate::shape::RESERVE_ZONES;
use crate::sync::{AtomicU8, Mutex, MutexGuard, Ordering, ReentrantMutex};
use crate::types::index;
use std::sync::Arc;

/// How much of the space may still be promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SpaceLevel {
    /// Enough.
    #[default]
    Ample,
    /// Less than [`OpenOptions::low_percent`].
    Low,
    /// Less than [`OpenOptions::critical_percent`], or zones are lacking for what is promised. `Full` is next.
    Critical,
}

impl SpaceLevel {
    fn from_code(code: u8) -> SpaceLevel {
        match code {
            0 => SpaceLevel::Ample,
            1 => SpaceLevel::Low,
            _ => SpaceLevel::Critical,
        }
    }

    fn code(self) -> u8 {
        match self {
            SpaceLevel::Ample => 0,
            SpaceLevel::Low => 1,
            SpaceLevel::Critical => 2,
        }
    }
}

/// What is told of the space, in bytes: the level, and what holds the space beside the volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceNews {
    /// The level now.
    pub level: SpaceLevel,
    /// What can still be promised.
    pub free: u64,
    /// What could be promised on an empty disk.
    pub usable: u64,
    /// Held by open units and reservations: comes back when they end.
    pub reserved: u64,
    /// How many snapshots there are; [`Disk::snapshot_space`] says what each holds.
    pub snapshots: usize,
    /// Space was promised that cannot be had: zones hold damage, or the file system below is full.
    pub lacking: bool,
}

type Watcher = Arc<dyn Fn(&SpaceNews) + Send + Sync>;

/// Who is told.
#[derive(Default)]
pub(crate) struct Watchers {
    all: Mutex<Vec<Watcher>>,
    told: AtomicU8,
    telling: ReentrantMutex<()>,
}

impl Watchers {
    fn told(&self) -> SpaceLevel {
        SpaceLevel::from_code(self.told.load(Ordering::Acquire))
    }
}

impl Core {
    /// The level, `before` being what it was: it gets better only once there is a little more than the limit.
    pub(crate) fn space_level(&self, before: SpaceLevel, options: &OpenOptions) -> SpaceLevel {
        let usable = self.state.shape.promisable();
        let free = usable.saturating_sub(self.promised());
        let below = |level: SpaceLevel, percent: u8| {
            let percent = u64::from(percent);
            let more = if before >= level && percent > 0 { (percent / 5).max(1) } else { 0 };
            u128::from(free) * 100 < u128::from(usable) * u128::from(percent + more)
        };
        if self.hopeless || below(SpaceLevel::Critical, options.critical_percent) {
            SpaceLevel::Critical
        } else if below(SpaceLevel::Low, options.low_percent) {
            SpaceLevel::Low
        } else {
            SpaceLevel::Ample
        }
    }
}

impl Inner {
    fn space_news(&self, core: &Core) -> SpaceNews {
        let usable = core.state.shape.promisable();
        SpaceNews {
            level: core.space_level(self.watchers.told(), &self.options),
            free: usable.saturating_sub(core.promised()),
            usable,
            reserved: core.reserves(core.reserved),
            snapshots: core.state.versions.names.len(),
            lacking: core.hopeless,
        }
    }

    /// Tells those who watch if the level is another than they were told.
    pub(crate) fn tell_space<'a>(&'a self, mut core: MutexGuard<'a, Core>) -> MutexGuard<'a, Core> {
        core.hopeless &= core.available() <= index(RESERVE_ZONES);
        let told = self.watchers.told();
        if core.space_level(told, &self.options) == told {
            return core;
        }
        drop(core);
        self.tell_watchers();
        self.core.lock()
    }

    fn tell_watchers(&self) {
        if self.watchers.telling.is_owned_by_current_thread() {
            return; // A watcher uses the disk.
        }
        let _one = self.watchers.telling.lock();
        let news = self.space_news(&self.core.lock());
        if news.level == self.watchers.told() {
            return;
        }
        crate::mark("space: level told");
        self.watchers.told.store(news.level.code(), Ordering::Release);
        let all = self.watchers.all.lock().clone();
        for watcher in &all {
            watcher(&news);
        }
    }
}

impl Disk {
    /// Calls `watcher` whenever the level of the space changes, in both directions, as long as the disk is open; at once if
    /// it is not ample now. It is called in the thread of whoever found out, before anybody gets `Full`, and others wait
    /// for it: it should hand the news on and return. It may ask the disk, and must not write to it.
    pub fn watch_space(&self, watcher: impl Fn(&SpaceNews) + Send + Sync + 'static) {
        let inner = self.inner();
        inner.tell_watchers();
        let _one = inner.watchers.telling.lock();
        let news = SpaceNews { level: inner.watchers.told(), ..inner.space_news(&inner.core.lock()) };
        if news.level != SpaceLevel::Ample {
            watcher(&news);
        }
        inner.watchers.all.lock().push(Arc::new(watcher));
    }

    /// What snapshots hold, each by itself, the largest first: what would come back if it alone were deleted. Cost: reads
    /// what they keep.
    pub fn held_by_snapshots(&self) -> crate::Result<Vec<(String, u64)>> {
        let mut held = Vec::new();
        for snapshot in self.snapshots() {
            match self.snapshot_space(&snapshot.name) {
                Ok(bytes) => held.push((snapshot.name, bytes)),
                // Deleted meanwhile.
                Err(error) if error.kind() == crate::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        held.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        Ok(held)
    }
}
