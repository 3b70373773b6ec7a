//! What of a volume changed since an older snapshot of it, as the metadata context `lode:changed:SNAPSHOT`: flag 1 where
//! something may have, 0 where nothing has (as QEMU's `qemu:dirty-bitmap:`), so that standard clients copy only that.
//!
//! * Of `VOLUME@NEWER` it never changes, and so a few ranges may be kept for the client who asks for one extent at a time.
//! * Of a volume in use each reply is found anew: it tells every change that was replied to before the request. What was
//!   told as changed stays so.
//! * Once the older snapshot is deleted, what nobody remembers is an error, never "not changed".
//!
//! A connection holds at most [`KEPT`] ranges for each context; while a request runs, what [`BLOCKS`] blocks can be.

use super::{Outcome, refused};
use lode::{Disk, Volume};
use lode_nbd::{Context, ExportError, ExportErrorKind};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

const NAMESPACE: &str = "lode:changed:";

/// The flag of what has changed.
const DIRTY: u32 = 1;

/// A request is answered for so many blocks at most; the client asks again for what is behind.
const BLOCKS: u64 = 1 << 17;

/// So many ranges are kept from one request to the next.
const KEPT: usize = 1024;

/// The changes of a volume since a snapshot.
pub struct Changed {
    volume: Volume,
    since: Volume,
    /// What is known of one part, if it cannot change.
    kept: Mutex<Part>,
}

/// A part of a volume and its changes, in order.
#[derive(Clone, Default)]
struct Part {
    range: Range<u64>,
    changes: Vec<Range<u64>>,
}

/// The contexts of the export `name`: one for each older snapshot that `volume` is in.
pub fn names(disk: &Disk, volume: &Volume, name: &str) -> Vec<String> {
    let own = name.split_once('@').map(|(_, snapshot)| snapshot);
    let named = volume.name();
    let has = |snapshot: &lode::SnapshotInfo| snapshot.volumes.contains(&named) && own != Some(&*snapshot.name);
    let snapshots = disk.snapshots().into_iter().filter(has).map(|snapshot| snapshot.name);
    snapshots
        .filter(|since| since_snapshot(disk, volume, since).is_ok())
        .map(|name| NAMESPACE.to_owned() + &name)
        .collect()
}

fn since_snapshot(disk: &Disk, volume: &Volume, snapshot: &str) -> lode::Result<Volume> {
    let since = disk.volume_at(snapshot, &volume.name())?;
    // It may be newer, or of another volume that had the same name.
    volume.changes_within(&since, 0, 0)?;
    Ok(since)
}

impl Changed {
    /// The context of this name.
    pub fn open(disk: &Disk, volume: &Volume, context: &str) -> Outcome<Changed> {
        let unknown = || ExportError::new(ExportErrorKind::Unknown, format!("there is no metadata context {context}"));
        let snapshot = context.strip_prefix(NAMESPACE).ok_or_else(unknown)?;
        let since = since_snapshot(disk, volume, snapshot).map_err(refused)?;
        Ok(Changed { volume: volume.clone(), since, kept: Mutex::default() })
    }

    fn find(&self, offset: u64, bytes: u64) -> lode::Result<Part> {
        let bytes = bytes.min(BLOCKS * u64::from(self.volume.block_bytes()));
        let changes = self.volume.changes_within(&self.since, offset, bytes)?;
        Ok(Part { range: offset..offset + bytes, changes })
    }
}

impl Context for Changed {
    fn extents(&self, offset: u64, bytes: u64) -> Outcome<Vec<(u64, u32)>> {
        if !self.volume.is_snapshot() {
            return Ok(self.find(offset, bytes).map_err(refused)?.extents(offset, bytes));
        }
        // A panic while it was held has left it whole.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.range.contains(&offset) {
            let mut found = self.find(offset, bytes).map_err(refused)?;
            found.cut(KEPT);
            *kept = found;
        }
        Ok(kept.extents(offset, bytes))
    }
}

impl Part {
    /// Keeps what the first changes cover.
    fn cut(&mut self, changes_max: usize) {
        if self.changes.len() > changes_max {
            self.changes.truncate(changes_max);
            self.changes.shrink_to_fit();
            self.range.end = self.changes.last().map_or(self.range.end, |last| last.end);
        }
    }

    /// All of it from `offset` on, at most `bytes`.
    fn extents(&self, offset: u64, bytes: u64) -> Vec<(u64, u32)> {
        let end = self.range.end.min(offset.saturating_add(bytes));
        let first = self.changes.partition_point(|change| change.end <= offset);
        let mut extents = Vec::new();
        let mut at = offset;
        for change in self.changes[first..].iter().take_while(|change| change.start < end) {
            let (start, stop) = (change.start.max(at), change.end.min(end));
            extents.extend((start > at).then(|| (start - at, 0)));
            extents.push((stop - start, DIRTY));
            at = stop;
        }
        extents.extend((at < end).then(|| (end - at, 0)));
        extents
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(range: Range<u64>, changes: &[(u64, u64)]) -> Part {
        Part { range, changes: changes.iter().map(|&(start, end)| start..end).collect() }
    }

    #[test]
    fn a_part_is_told_from_any_place_in_it() {
        let part = part(10..100, &[(10, 20), (30, 40), (90, 100)]);
        assert_eq!(part.extents(10, 1000), [(10, 1), (10, 0), (10, 1), (50, 0), (10, 1)]);
        assert_eq!(part.extents(35, 10), [(5, 1), (5, 0)]);
        assert_eq!(part.extents(40, 1), [(1, 0)]);
        assert_eq!(part.extents(99, u64::MAX), [(1, 1)]);
    }

    #[test]
    fn what_is_kept_is_bounded_and_ends_where_it_is_known() {
        let mut part = part(0..1000, &[(1, 2), (3, 4), (5, 6)]);
        part.cut(3);
        assert_eq!(part.range, 0..1000);
        part.cut(2);
        assert_eq!((part.range.clone(), part.changes.len()), (0..4, 2));
        assert_eq!(part.extents(2, 1000), [(1, 0), (1, 1)]);
    }
}
