//! Leaves of the map as bytes: images and deltas, each in whichever of three forms is smallest.

use super::leaf::Leaf;
use crate::format::Cursor;
use crate::types::{Location, index, len_u32};

const RUNS: u8 = 0;
const DENSE: u8 = 1;
const LIST: u8 = 2;

type Entry = (u32, Location, u32);

/// The whole leaf.
pub(crate) fn image(leaf: &Leaf) -> Vec<u8> {
    // Counted before anything is gathered: most leaves of lists that are written at random have too many runs.
    let (mut count, mut breaks) = (0, 0);
    let mut last = None;
    leaf.for_each(|at, place, checksum| {
        let entry = (at, place, checksum);
        count += 1;
        breaks += usize::from(last.is_none_or(|last| !joins(&last, &entry)));
        last = Some(entry);
    });
    let dense_bytes = 1 + index(leaf.capacity()).div_ceil(8) + count * 12;
    if runs_bytes(breaks, count) <= dense_bytes {
        as_runs(&leaf.iter().collect::<Vec<Entry>>())
    } else {
        as_dense(leaf, dense_bytes)
    }
}

/// What changed since the changes were last forgotten.
pub(crate) fn delta(leaf: &Leaf) -> Vec<u8> {
    let entries: Vec<Entry> = leaf.changes().collect();
    let list_bytes = 5 + entries.len() * 14;
    let breaks =
        entries.windows(2).filter(|pair| !joins(&pair[0], &pair[1])).count() + usize::from(!entries.is_empty());
    if runs_bytes(breaks, entries.len()) <= list_bytes { as_runs(&entries) } else { as_list(&entries) }
}

/// Whether `b` is stored right behind `a`, or both are holes, and they are neighbours.
fn joins(a: &Entry, b: &Entry) -> bool {
    a.0 + 1 == b.0 && (if a.1.is_none() { b.1.is_none() } else { a.1.step(1) == b.1 })
}

/// Bytes of [`as_runs`].
fn runs_bytes(runs: usize, entries: usize) -> usize {
    5 + runs * 12 + entries * 4
}

fn as_runs(entries: &[Entry]) -> Vec<u8> {
    let mut runs: Vec<(u32, u16, Location)> = Vec::new();
    for &(at, place, _) in entries {
        if let Some((start, count, first)) = runs.last_mut()
            && *start + u32::from(*count) == at
            && (if first.is_none() { place.is_none() } else { first.step(u32::from(*count)) == place })
        {
            *count += 1;
            continue;
        }
        runs.push((at, 1, place));
    }
    let mut bytes = vec![RUNS];
    bytes.extend_from_slice(&len_u32(runs.len()).to_le_bytes());
    for (start, count, place) in runs {
        bytes.extend_from_slice(&u16::try_from(start).expect("a leaf has at most 1024 blocks").to_le_bytes());
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&place.0.to_le_bytes());
    }
    for (_, _, checksum) in entries {
        bytes.extend_from_slice(&checksum.to_le_bytes());
    }
    bytes
}

fn as_dense(leaf: &Leaf, bytes: usize) -> Vec<u8> {
    let mut page = vec![0; bytes];
    page[0] = DENSE;
    let (bits, entries) = page[1..].split_at_mut(index(leaf.capacity()).div_ceil(8));
    let mut entries = entries.chunks_exact_mut(12);
    leaf.for_each(|at, place, checksum| {
        bits[index(at / 8)] |= 1 << (at % 8);
        let entry = entries.next().expect("counted before");
        entry[..8].copy_from_slice(&place.0.to_le_bytes());
        entry[8..].copy_from_slice(&checksum.to_le_bytes());
    });
    page
}

fn as_list(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = vec![LIST];
    bytes.extend_from_slice(&len_u32(entries.len()).to_le_bytes());
    for &(at, place, checksum) in entries {
        bytes.extend_from_slice(&u16::try_from(at).expect("a leaf has at most 1024 blocks").to_le_bytes());
        bytes.extend_from_slice(&place.0.to_le_bytes());
        bytes.extend_from_slice(&checksum.to_le_bytes());
    }
    bytes
}

/// Applies a page to a leaf. `None`: the bytes are no page of this version.
pub(crate) fn apply(bytes: &[u8], leaf: &mut Leaf) -> Option<()> {
    let mut cursor = Cursor::new(bytes);
    let capacity = leaf.capacity();
    match cursor.int::<u8>()? {
        RUNS => {
            let count: u32 = cursor.int()?;
            let mut runs = Vec::new();
            for _ in 0..count {
                runs.push((u32::from(cursor.int::<u16>()?), u32::from(cursor.int::<u16>()?), Location(cursor.int()?)));
            }
            for (start, count, place) in runs {
                if start + count > capacity {
                    return None;
                }
                for n in 0..count {
                    let checksum = cursor.int()?;
                    leaf.set_unmarked(start + n, if place.is_none() { place } else { place.step(n) }, checksum);
                }
            }
        }
        DENSE => {
            let bits = cursor.take(index(capacity).div_ceil(8))?;
            for at in (0..capacity).filter(|at| bits[index(at / 8)] >> (at % 8) & 1 == 1) {
                let place = Location(cursor.int()?);
                leaf.set_unmarked(at, place, cursor.int()?);
            }
        }
        LIST => {
            let count: u32 = cursor.int()?;
            for _ in 0..count {
                let at = u32::from(cursor.int::<u16>()?);
                if at >= capacity {
                    return None;
                }
                let place = Location(cursor.int()?);
                leaf.set_unmarked(at, place, cursor.int()?);
            }
        }
        _ => return None,
    }
    cursor.is_empty().then_some(())
}
