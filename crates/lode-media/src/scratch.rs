//! Folders for tests, removed when the test is done.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// An empty folder.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self::inside(&std::env::temp_dir())
    }

    /// One folder on each kind of file system that is at hand: where temporary files go, and in memory.
    pub(crate) fn everywhere() -> Vec<Self> {
        let memory = Path::new("/dev/shm");
        let mut folders = vec![Self::new()];
        if memory.is_dir() {
            folders.push(Self::inside(memory));
        }
        folders
    }

    fn inside(folder: &Path) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("lode-media-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a folder for the test");
        Scratch(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
