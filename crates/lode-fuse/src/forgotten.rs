//! What the kernel has forgotten, gathered: a thread lets go of it, many inodes at once. Nobody waits for that.

use crate::door::now;
use crate::node::{Node, parts};
use crate::views::Views;
use lode_fs::Ino;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// So long it is gathered from the first one on: what programs remove, they mostly remove in numbers.
const GATHERED: Duration = Duration::from_millis(2);

/// So long after a pause there is no other.
const BETWEEN: Duration = Duration::from_millis(1);

/// Who is told by the kernel pauses: it gathers more meanwhile, and wakes nobody for each.
#[derive(Default)]
pub(crate) struct Pause {
    last: Mutex<Option<Instant>>,
}

impl Pause {
    /// Takes one. Not for each of many that are told together.
    pub fn take(&self) {
        let mut last = self.last.lock();
        if last.is_none_or(|last| last.elapsed() > BETWEEN) {
            std::thread::sleep(GATHERED);
            *last = Some(Instant::now());
        }
    }
}

#[derive(Default)]
struct Gathered {
    all: Vec<(Node, u64)>,
    over: bool,
}

/// See the file's head.
#[derive(Default)]
pub(crate) struct Forgotten {
    gathered: Mutex<Gathered>,
    some: Condvar,
}

impl Forgotten {
    pub fn add(&self, node: Node, times: u64) {
        let mut gathered = self.gathered.lock();
        gathered.all.push((node, times));
        if gathered.all.len() == 1 {
            self.some.notify_one();
        }
    }

    /// Nothing comes any more.
    pub fn end(&self) {
        self.gathered.lock().over = true;
        self.some.notify_one();
    }

    /// Lets go of what is gathered until nothing comes any more.
    pub fn run(&self, views: &Views) {
        while let Some(all) = self.take() {
            let mut by_view: BTreeMap<u64, Vec<(Ino, u64)>> = BTreeMap::new();
            for (node, times) in all {
                let (view, ino) = parts(node);
                by_view.entry(view).or_default().push((ino, times));
            }
            for (number, all) in by_view {
                // Of a transaction that has ended nothing is held. One that cannot be let go of now goes at the next opening.
                if let Some(view) = views.view(number) {
                    let _ = view.release_all(&all, now());
                }
            }
        }
    }

    /// Waits for some. None: it is over, and nothing is left.
    fn take(&self) -> Option<Vec<(Node, u64)>> {
        let mut gathered = self.gathered.lock();
        while gathered.all.is_empty() {
            if gathered.over {
                return None;
            }
            self.some.wait(&mut gathered);
        }
        if !gathered.over {
            drop(gathered);
            std::thread::sleep(GATHERED);
            gathered = self.gathered.lock();
        }
        Some(std::mem::take(&mut gathered.all))
    }
}
