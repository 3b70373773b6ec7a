//! Table objects on the medium: read from whichever of their two copies is good.

use crate::error::{Error, Result};
use crate::format::crc;
use crate::format::object::{Index, ObjectLeaf, ObjectRef, decode_index};
use crate::types::index;
use lode_media::{Medium, Position, ZoneId};

/// The first read of an object: most indexes fit in it.
const FIRST_READ: usize = 2048;

fn read(medium: &dyn Medium, (zone, offset): (u32, u32), at: u32, bytes: usize) -> Result<Vec<u8>> {
    let geometry = medium.geometry();
    let end = u64::from(offset) + u64::from(at) + u64::try_from(bytes).expect("small");
    if zone >= geometry.zones || end > u64::from(geometry.zone_bytes) {
        return Err(Error::corrupt(
            "a reference to a table object",
            "a place on the disk",
            format!("zone {zone} offset {offset}"),
        ));
    }
    let mut buffer = vec![0; bytes];
    medium
        .read(Position { zone: ZoneId(zone), offset: offset + at }, &mut buffer)
        .map_err(|e| Error::media(format!("reading tables in zone {zone} at offset {}", offset + at), e))?;
    Ok(buffer)
}

/// One copy's index, and the bytes that were read along with it.
fn read_index(medium: &dyn Medium, object: &ObjectRef, copy: (u32, u32)) -> Result<(u32, Vec<ObjectLeaf>, Vec<u8>)> {
    let mut wanted = FIRST_READ.min(index(object.bytes));
    loop {
        let bytes = read(medium, copy, 0, wanted)?;
        match decode_index(&bytes, object.bytes, object.checksum) {
            Index::Whole(kind, leaves) => return Ok((kind, leaves, bytes)),
            Index::Needs(more) if more > wanted && more <= index(object.bytes) => wanted = more,
            _ => {
                return Err(Error::corrupt(
                    format!("tables in zone {} at offset {}", copy.0, copy.1),
                    "an index of its checksum",
                    "another",
                ));
            }
        }
    }
}

fn read_page(medium: &dyn Medium, copy: (u32, u32), leaf: &ObjectLeaf, first: &[u8]) -> Result<Vec<u8>> {
    let bytes = match first.get(index(leaf.offset)..index(leaf.offset) + index(leaf.bytes)) {
        Some(bytes) => bytes.to_vec(),
        None => read(medium, copy, leaf.offset, index(leaf.bytes))?,
    };
    if crc(&bytes) != leaf.checksum {
        return Err(Error::corrupt(
            format!("tables in zone {} at offset {}", copy.0, copy.1 + leaf.offset),
            "a page of its checksum",
            "another",
        ));
    }
    Ok(bytes)
}

/// The first copy that reads well, or the error of the last.
fn from_copies<T>(object: &ObjectRef, what: &str, mut read: impl FnMut((u32, u32)) -> Result<T>) -> Result<T> {
    let mut failed = None;
    for copy in object.copies() {
        match read(copy) {
            Ok(found) => return Ok(found),
            Err(error) => {
                crate::mark("tables: a copy is damaged");
                failed = Some(error);
            }
        }
    }
    crate::mark("tables: both copies damaged");
    let why = failed.map_or_else(String::new, |error| error.to_string());
    Err(Error::corrupt(what, "one good copy of two", format!("none ({why})")))
}

/// All pages of an object.
pub(crate) fn read_whole(
    medium: &dyn Medium,
    object: &ObjectRef,
    kind: u32,
    what: &str,
) -> Result<Vec<(u32, Vec<u8>)>> {
    from_copies(object, what, |copy| {
        let (found, leaves, first) = read_index(medium, object, copy)?;
        if found != kind {
            return Err(Error::corrupt(what, format!("an object of kind {kind}"), format!("kind {found}")));
        }
        leaves.iter().map(|leaf| Ok((leaf.leaf, read_page(medium, copy, leaf, &first)?))).collect()
    })
}

/// One leaf's page of an object, if it has that leaf.
pub(crate) fn read_leaf(medium: &dyn Medium, object: &ObjectRef, leaf: u32, what: &str) -> Result<Option<Vec<u8>>> {
    from_copies(object, what, |copy| {
        let (_, leaves, first) = read_index(medium, object, copy)?;
        leaves.iter().find(|entry| entry.leaf == leaf).map(|entry| read_page(medium, copy, entry, &first)).transpose()
    })
}

/// An object as it lies there, verified.
pub(crate) fn read_bytes(medium: &dyn Medium, object: &ObjectRef, what: &str) -> Result<Vec<u8>> {
    from_copies(object, what, |copy| {
        let (_, leaves, _) = read_index(medium, object, copy)?;
        let bytes = read(medium, copy, 0, index(object.bytes))?;
        leaves.iter().try_for_each(|leaf| read_page(medium, copy, leaf, &bytes).map(drop))?;
        Ok(bytes)
    })
}

/// The copies of an object that do not read well: which, and why.
pub(crate) fn verify(medium: &dyn Medium, object: &ObjectRef) -> Vec<(usize, String)> {
    let mut problems = Vec::new();
    for (n, copy) in object.copies().into_iter().enumerate() {
        let read = read_index(medium, object, copy).and_then(|(_, leaves, first)| {
            leaves.iter().try_for_each(|leaf| read_page(medium, copy, leaf, &first).map(drop))
        });
        if let Err(error) = read {
            problems.push((n, error.to_string()));
        }
    }
    problems
}
