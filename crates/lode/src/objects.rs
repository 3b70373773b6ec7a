//! Table objects on the medium: read from whichever of their two copies is good.

use crate::error::{Error, Result};
use crate::format::crc;
use crate::format::object::{Index, ObjectLeaf, ObjectRef, decode_index};
use crate::types::index;
use lode_media::{Medium, Position, ReadRequest, ZoneId};
use std::ops::Range;

/// The first read of an object: most indexes fit in it.
const FIRST_READ: usize = 2048;
/// Pages of so many bytes are read along with those of a leaf that is wanted.
const ALONG_BYTES: usize = 64 << 10;

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
fn read_leaf(medium: &dyn Medium, object: &ObjectRef, leaf: u32, what: &str) -> Result<Option<Vec<u8>>> {
    from_copies(object, what, |copy| {
        let (_, leaves, first) = read_index(medium, object, copy)?;
        leaves.iter().find(|entry| entry.leaf == leaf).map(|entry| read_page(medium, copy, entry, &first)).transpose()
    })
}

/// An object's index, and what of it was read.
struct Indexed {
    leaves: Vec<ObjectLeaf>,
    first: Vec<u8>,
    /// From where on its pages of the leaves that are wanted lie, as far as they are not in `first`.
    from: u32,
    pages: Vec<u8>,
}

impl Indexed {
    fn of(&self, leaves: Range<u32>) -> impl Iterator<Item = &ObjectLeaf> {
        self.leaves.iter().filter(move |entry| leaves.contains(&entry.leaf))
    }

    /// The page of an entry, if it was read and is right.
    fn page(&self, entry: &ObjectLeaf) -> Option<&[u8]> {
        let stretch = |from: u32| {
            let at = index(entry.offset.checked_sub(from)?);
            Some(at..at + index(entry.bytes))
        };
        let found = self.first.get(stretch(0)?).or_else(|| self.pages.get(stretch(self.from)?));
        found.filter(|page| crc(page) == entry.checksum)
    }
}

/// The pages that some objects have of each of these leaves, in the order of the objects: of the first leaf, and of those
/// behind it for as long as all together is little. Two rounds of reads, however many objects; what of it goes wrong is
/// read again from whichever copy is good.
pub(crate) fn read_leaves(
    medium: &dyn Medium,
    objects: &[ObjectRef],
    mut leaves: Range<u32>,
    what: &str,
) -> Vec<Result<Vec<Vec<u8>>>> {
    let copy = |object: &ObjectRef| object.copies()[0];
    let mut firsts: Vec<Vec<u8>> = objects.iter().map(|object| vec![0; FIRST_READ.min(index(object.bytes))]).collect();
    let read = read_many(medium, objects.iter().map(copy).map(|copy| (copy, 0)), &mut firsts);
    let indexed = objects.iter().zip(firsts).zip(read).map(|((object, first), read)| {
        let (leaves, first) = match decode_index(&first, object.bytes, object.checksum) {
            Index::Whole(_, leaves) if read => (leaves, first),
            _ => {
                let (_, leaves, first) = from_copies(object, what, |copy| read_index(medium, object, copy))?;
                (leaves, first)
            }
        };
        Ok(Indexed { leaves, first, from: 0, pages: Vec::new() })
    });
    let mut indexed: Vec<Indexed> = match indexed.collect() {
        Ok(indexed) => indexed,
        Err(error) => return vec![Err(error)],
    };
    let mut bytes = 0;
    let last = leaves.clone().take_while(|leaf| {
        bytes += indexed.iter().flat_map(|of| of.of(*leaf..leaf + 1)).map(|entry| index(entry.bytes)).sum::<usize>();
        *leaf == leaves.start || bytes <= ALONG_BYTES
    });
    leaves.end = last.last().map_or(leaves.start, |last| last + 1);
    let mut pages: Vec<Vec<u8>> = Vec::new();
    for of in &mut indexed {
        let missing =
            || of.of(leaves.clone()).filter(|entry| of.first.len() < index(entry.offset) + index(entry.bytes));
        let from = missing().map(|entry| entry.offset).min().unwrap_or(0);
        let end = missing().map(|entry| entry.offset + entry.bytes).max().unwrap_or(0);
        of.from = from;
        pages.push(vec![0; index(end - from)]);
    }
    let places = objects.iter().zip(&indexed).map(|(object, of)| (copy(object), of.from));
    let read = read_many(medium, places, &mut pages);
    for ((of, pages), read) in indexed.iter_mut().zip(pages).zip(read) {
        of.pages = if read { pages } else { Vec::new() };
    }
    let of_leaf = |leaf: u32| {
        let pages = objects.iter().zip(&indexed).filter_map(|(object, of)| {
            let entry = of.leaves.iter().find(|entry| entry.leaf == leaf)?;
            let again = || read_leaf(medium, object, leaf, what).transpose();
            of.page(entry).map_or_else(again, |page| Some(Ok(page.to_vec())))
        });
        pages.collect()
    };
    leaves.map(of_leaf).collect()
}

/// Fills each of `into` with bytes of a copy, from an offset in it on. Says of each whether that was done.
fn read_many(medium: &dyn Medium, from: impl Iterator<Item = ((u32, u32), u32)>, into: &mut [Vec<u8>]) -> Vec<bool> {
    let mut all = vec![true; into.len()];
    let wanted = all.iter_mut().zip(from).zip(into).filter(|(_, into)| !into.is_empty());
    let (mut requests, done): (Vec<_>, Vec<_>) = wanted
        .map(|((done, ((zone, offset), at)), into)| {
            let at = Position { zone: ZoneId(zone), offset: offset.saturating_add(at) };
            (ReadRequest { at, into: &mut into[..], result: Ok(()) }, done)
        })
        .unzip();
    medium.read_many(&mut requests);
    requests.iter().zip(done).for_each(|(request, done)| *done = request.result.is_ok());
    all
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
