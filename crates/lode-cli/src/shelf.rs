//! Units that several have in hand at once: connections that are bound to one, and commands that commit or abort it.
//!
//! The disk hands out a unit once. What is on the shelf is shared; when the last one lets go of it, the disk keeps it.

use lode::{Disk, ErrorKind, Result, Unit, UnitLabel, UnitOptions};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Whoever just let go of a unit has it this much longer, at most.
const PATIENCE: Duration = Duration::from_secs(2);

/// See the file's head.
#[derive(Default)]
pub struct Shelf(Mutex<BTreeMap<String, Weak<Shared>>>);

/// A unit that is shared; nothing once it has ended.
pub struct Shared(Mutex<Option<Unit>>);

impl Shared {
    /// The unit, for one at a time.
    pub fn lock(&self) -> MutexGuard<'_, Option<Unit>> {
        // A panic while it was held has left the unit as its own rules demand.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    /// The unit with this label. `NotFound`.
    pub fn resume(&self, disk: &Disk, label: &str) -> Result<Arc<Shared>> {
        self.get(label, || disk.resume(label))
    }

    /// The same; it begins if there is none.
    pub fn resume_or_begin(&self, disk: &Disk, label: &UnitLabel) -> Result<Arc<Shared>> {
        self.get(&label.label, || match disk.resume(&label.label) {
            Err(error) if error.kind() == ErrorKind::NotFound => disk.begin_labelled(label, &UnitOptions::default()),
            found => found,
        })
    }

    fn get(&self, label: &str, take: impl Fn() -> Result<Unit>) -> Result<Arc<Shared>> {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.retain(|_, shared| shared.strong_count() > 0);
        if let Some(shared) = shelf.get(label).and_then(Weak::upgrade)
            && shared.lock().is_some()
        {
            return Ok(shared);
        }
        let began = Instant::now();
        let unit = loop {
            match take() {
                Err(error) if error.kind() == ErrorKind::Exists && began.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                taken => break taken?,
            }
        };
        let shared = Arc::new(Shared(Mutex::new(Some(unit))));
        shelf.insert(label.to_owned(), Arc::downgrade(&shared));
        Ok(shared)
    }
}
