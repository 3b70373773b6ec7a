//! Words for a disk that runs out of space, and the line that a server prints when that changes.

use crate::{size, text};
use lode::{Disk, SpaceLevel, SpaceNews};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A change for the better, and one back to what was printed before, is printed at most so often.
const PAUSE: Duration = Duration::from_secs(30);
/// At most so many snapshots are named.
const NAMED: usize = 3;

/// A level as it is printed.
pub fn word(level: SpaceLevel) -> &'static str {
    match level {
        SpaceLevel::Ample => "ample",
        SpaceLevel::Low => "low",
        SpaceLevel::Critical => "critical",
    }
}

/// How much is left, and what could be dropped to get more.
pub fn warning(word: &str, free: u64, usable: u64, reserved: u64, held: &[(&str, u64)]) -> String {
    let percent = u128::from(free) * 100 / u128::from(usable.max(1));
    let mut words = format!("space is {word}: {} of {} are free ({percent} %)", size::show(free), size::show(usable));
    if reserved > 0 {
        words.push_str(&format!(", {} are reserved by open units and reservations", size::show(reserved)));
    }
    let all: u64 = held.iter().map(|(_, bytes)| bytes).sum();
    if !held.is_empty() {
        let named: Vec<String> = held
            .iter()
            .take(NAMED)
            .map(|(name, bytes)| format!("{} {}", text::safe(name), size::show(*bytes)))
            .collect();
        let more = if held.len() > NAMED { ", ..." } else { "" };
        let who = if held.len() == 1 {
            "one snapshot holds".into()
        } else {
            format!("{} snapshots hold at least", held.len())
        };
        words.push_str(&format!("; {who} {} ({}{more})", size::show(all), named.join(", ")));
    }
    words
}

fn line(disk: &Disk, news: &SpaceNews) -> String {
    if news.level == SpaceLevel::Ample {
        return format!("space is ample again: {} of {} are free", size::show(news.free), size::show(news.usable));
    }
    // What cannot be read is told when it is asked for; here it only lacks a number.
    let held = if news.snapshots > 0 { disk.held_by_snapshots().unwrap_or_default() } else { Vec::new() };
    let held: Vec<(&str, u64)> = held.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
    let words = warning(word(news.level), news.free, news.usable, news.reserved, &held);
    let lacking =
        if news.lacking { "; zones cannot be had for it: damage, or the file system below is full" } else { "" };
    format!("{words}{lacking}")
}

/// Prints to standard error when the level changes, as long as the process lives.
pub fn log(path: &Path, disk: &Disk) {
    let (sender, receiver) = channel();
    disk.watch_space(move |news| {
        // The other end goes only with the process.
        let _ = sender.send(news.clone());
    });
    let (name, disk) = (crate::image::show(path), disk.clone());
    std::thread::spawn(move || Log::default().run(&receiver, |news| eprintln!("lode: {name}: {}", line(&disk, news))));
}

/// What was printed last, and when.
#[derive(Default)]
struct Log {
    printed: SpaceLevel,
    at: Option<Instant>,
}

impl Log {
    /// Prints what comes: what is worse than was printed last at once; anything else when the pause is over, if it still
    /// holds then.
    fn run(&mut self, news: &Receiver<SpaceNews>, mut print: impl FnMut(&SpaceNews)) {
        let mut waiting: Option<SpaceNews> = None;
        loop {
            let left = self.at.map_or(Duration::ZERO, |at| PAUSE.saturating_sub(at.elapsed()));
            let next = if waiting.is_some() {
                news.recv_timeout(left)
            } else {
                news.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match next {
                Ok(news) => waiting = Some(news),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let Some(news) = waiting.take_if(|news| news.level > self.printed || self.pause_is_over()) else {
                continue;
            };
            if news.level != self.printed {
                self.printed = news.level;
                self.at = Some(Instant::now());
                print(&news);
            }
        }
    }

    fn pause_is_over(&self) -> bool {
        self.at.is_none_or(|at| at.elapsed() >= PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::{Log, warning};
    use lode::{SpaceLevel, SpaceNews};
    use std::sync::mpsc::channel;

    fn news(level: SpaceLevel) -> SpaceNews {
        SpaceNews { level, free: 1, usable: 10, reserved: 0, snapshots: 0, lacking: false }
    }

    #[test]
    fn what_gets_worse_is_printed_at_once_and_what_flaps_is_not() {
        use SpaceLevel::{Ample, Critical, Low};
        let (sender, receiver) = channel();
        for level in [Low, Ample, Low, Ample, Low, Critical, Low, Critical] {
            sender.send(news(level)).expect("there is a receiver");
        }
        drop(sender);
        let mut printed = Vec::new();
        Log::default().run(&receiver, |news| printed.push(news.level));
        assert_eq!(printed, [Low, Critical]);
    }

    #[test]
    fn a_warning_names_what_could_be_dropped() {
        let held = [("a\u{1b}", 3 << 20), ("b", 2 << 20), ("c", 1 << 20), ("d", 0)];
        assert_eq!(
            warning("low", 1 << 20, 20 << 20, 4096, &held),
            "space is low: 1 MiB of 20 MiB are free (5 %), 4 KiB are reserved by open units and reservations; \
             4 snapshots hold at least 6 MiB (a\\u{1b} 3 MiB, b 2 MiB, c 1 MiB, ...)"
        );
        assert_eq!(warning("critical", 0, 0, 0, &[]), "space is critical: 0 B of 0 B are free (0 %)");
    }
}
