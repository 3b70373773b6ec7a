//! Coverage marks: how often the rare branches were taken, so that a test can demand that all were.

use std::collections::BTreeMap;
use std::sync::Mutex;

static MARKS: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

/// Counts that this branch was taken.
pub(crate) fn mark(name: &'static str) {
    if let Ok(mut marks) = MARKS.lock() {
        *marks.entry(name).or_default() += 1;
    }
}

/// How often each branch was taken by this process.
pub fn marks() -> Vec<(&'static str, u64)> {
    MARKS.lock().map(|marks| marks.iter().map(|(name, count)| (*name, *count)).collect()).unwrap_or_default()
}
