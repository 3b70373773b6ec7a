//! Where roots lie, how the newest is found, and where the next one goes.
//!
//! ```text
//!   zones 0 and 1: pair 0      zones 2 and 3: pair 1
//!   number n, n+1, ... in both zones of one pair; when the pair is full, the other is erased and goes on.
//! ```
//! The pair that holds the newest durable root is never erased (R25).

use crate::error::{Error, ErrorKind, Result};
use crate::format::VERSION;
use crate::format::header::{BatchKind, Header, MAGIC, NO_ZONE};
use crate::format::root::RootImage;
use crate::shape::Shape;
use crate::types::{NUMBERS_MAX, SegmentId, index, len_u32};
use lode_media::{AlignedBuffer, Geometry, Medium, Position, ZoneId};

/// A pair takes at most this many roots, so that finding the newest stays cheap.
const ROOTS_PER_ZONE: u32 = 32;

/// Where the next root goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RootCursor {
    pub pair: u32,
    pub offset: u32,
    pub count: u32,
    pub segment: SegmentId,
}

/// The newest root and where it was found.
pub(crate) struct FoundRoot {
    pub image: RootImage,
    pub disk: u128,
    pub cursor: RootCursor,
}

fn shape_of(header: &Header, zone_bytes: u32) -> bool {
    header.head >= 128 && header.head.is_power_of_two() | header.head.is_multiple_of(128) && header.total <= zone_bytes
}

/// Reads one root at a place. `Ok(None)`: there is none.
fn read_root(medium: &dyn Medium, zone: u32, offset: u32) -> Result<Option<(Header, RootImage)>> {
    let geometry = medium.geometry();
    let head_bytes = 4096u32.min(geometry.zone_bytes - offset);
    if index(head_bytes) < Header::SIZE {
        return Ok(None);
    }
    let at = Position { zone: ZoneId(zone), offset };
    let mut head = AlignedBuffer::new(index(head_bytes));
    medium
        .read(at, &mut head)
        .map_err(|e| Error::media(format!("reading the root in zone {zone} at offset {offset}"), e))?;
    let header = Header::decode(&head[..Header::SIZE]);
    if header.magic != MAGIC || header.kind != BatchKind::Root.code() || header.zone != zone || header.offset != offset
    {
        return Ok(None);
    }
    if header.version > VERSION {
        return Err(Error::new(
            ErrorKind::NewerFormat,
            format!("the disk has format version {}; this program reads up to version {VERSION}", header.version),
        ));
    }
    if header.version != VERSION
        || !shape_of(&header, geometry.zone_bytes)
        || !header.lengths_fit(geometry.zone_bytes, geometry.append_align)
    {
        return Ok(None);
    }
    let mut whole = AlignedBuffer::new(index(header.total));
    medium
        .read(at, &mut whole)
        .map_err(|e| Error::media(format!("reading the root in zone {zone} at offset {offset}"), e))?;
    let (in_head, in_tail) = header.record_ranges();
    let records = [&whole[in_head], &whole[in_tail]];
    if header.seal(&records) != header.checksum {
        return Ok(None);
    }
    Ok(RootImage::decode(&records.concat()).map(|image| (header, image)))
}

/// Finds the newest valid root.
pub(crate) fn find(medium: &dyn Medium) -> Result<FoundRoot> {
    let mut newest: Option<FoundRoot> = None;
    let mut failed: [Option<Error>; 4] = [const { None }; 4];
    for zone in 0..4u32 {
        let mut offset = 0;
        let mut segment = None;
        while offset < medium.geometry().zone_bytes {
            // Behind the last root there is none; but a read that went wrong must not look like that, so it is read
            // again.
            let read = match read_root(medium, zone, offset) {
                Ok(None) => read_root(medium, zone, offset),
                other => other,
            };
            let (header, image) = match read {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(error) => {
                    crate::mark("roots: zone unreadable");
                    failed[index(zone)] = Some(error);
                    break;
                }
            };
            if *segment.get_or_insert(header.segment) != header.segment {
                crate::mark("roots: root of an older filling");
                break;
            }
            offset += header.total;
            // R10: what was written before this opening is not appended to again, so the other pair is next.
            let cursor =
                RootCursor { pair: zone / 2, offset, count: ROOTS_PER_ZONE, segment: SegmentId(header.segment) };
            if newest.as_ref().is_none_or(|newest| {
                image.root.number > newest.image.root.number
                    || (image.root.number == newest.image.root.number && cursor.offset > newest.cursor.offset)
            }) {
                newest = Some(FoundRoot { image, disk: header.disk, cursor });
            }
        }
    }
    // One zone of a pair that cannot be read is what its twin is for; of both, the newest root may have been there.
    for pair in failed.chunks_mut(2) {
        if let [a @ Some(_), Some(_)] = pair {
            crate::mark("roots: both zones of a pair unreadable");
            return Err(a.take().expect("matched above"));
        }
    }
    let Some(found) = newest else {
        let missing = Error::new(
            ErrorKind::NotADisk,
            "there is no Lode disk here: expected a root in one of the first four zones, found none",
        );
        return Err(failed.into_iter().flatten().next().unwrap_or(missing));
    };
    let geometry = medium.geometry();
    let root = &found.image.root;
    // More of them: it was made larger, and a root that says so is not written yet, or never will be.
    if root.zones > geometry.zones
        || root.zone_bytes != geometry.zone_bytes
        || root.append_align != geometry.append_align
    {
        return Err(Error::corrupt(
            "the medium's geometry",
            format!(
                "at least {} zones of {} bytes, appended to in multiples of {}",
                root.zones, root.zone_bytes, root.append_align
            ),
            format!(
                "{} zones of {} bytes, appended to in multiples of {}",
                geometry.zones, geometry.zone_bytes, geometry.append_align
            ),
        ));
    }
    // Numbers that no disk reaches: counting on from them would overflow.
    let numbers = [root.number, root.epoch_start, root.durable, root.replay_lsn, root.next_lsn, root.next_sequence];
    if root.epoch >= 1 << 31 || numbers.iter().any(|number| *number >= NUMBERS_MAX) {
        return Err(Error::corrupt("the root", "numbers that a disk can reach", "larger ones"));
    }
    for span in &found.image.segments {
        let inside = (crate::shape::ROOT_ZONES..root.zones).contains(&span.zone) && span.offset < root.zone_bytes;
        if !inside || span.first >= NUMBERS_MAX || span.first_lsn >= NUMBERS_MAX {
            return Err(Error::corrupt(
                "the root",
                "segments that lie on the disk",
                format!("one in zone {}", span.zone),
            ));
        }
    }
    Ok(found)
}

impl RootCursor {
    pub fn start() -> RootCursor {
        RootCursor { pair: 1, offset: u32::MAX, count: ROOTS_PER_ZONE, segment: SegmentId(0) }
    }

    /// Appends a root in both zones of the pair whose turn it is. Syncs before and after are the caller's.
    pub fn write(
        &mut self,
        medium: &dyn Medium,
        shape: &Shape,
        disk: u128,
        image: &RootImage,
        fresh: SegmentId,
    ) -> Result<u64> {
        let payload = image.encode();
        let content = Header::content_bytes(shape.head, 0, len_u32(payload.len()));
        let total = content.next_multiple_of(u64::from(shape.align));
        if total > u64::from(shape.zone_bytes) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("a root of {total} bytes does not fit in a zone of {} bytes", shape.zone_bytes),
            ));
        }
        let total = u32::try_from(total).expect("within a zone");
        if self.count >= ROOTS_PER_ZONE || u64::from(self.offset) + u64::from(total) > u64::from(shape.zone_bytes) {
            crate::mark("roots: on to the other pair");
            *self = RootCursor { pair: 1 - self.pair, offset: 0, count: 0, segment: fresh };
            for zone in [self.pair * 2, self.pair * 2 + 1] {
                medium.erase(ZoneId(zone)).map_err(|e| Error::media(format!("erasing root zone {zone}"), e))?;
            }
        }
        for zone in [self.pair * 2, self.pair * 2 + 1] {
            let mut header = Header {
                magic: MAGIC,
                version: VERSION,
                kind: BatchKind::Root.code(),
                disk,
                segment: self.segment.0,
                sequence: u64::from(self.count),
                durable: image.root.durable,
                zone,
                offset: self.offset,
                total,
                records: len_u32(payload.len()),
                next_a: NO_ZONE,
                next_b: NO_ZONE,
                head: shape.head,
                ..Header::default()
            };
            header.checksum = header.seal(&[&payload]);
            let mut buffer = AlignedBuffer::new(index(total));
            header.encode(&mut buffer[..Header::SIZE]);
            buffer[Header::SIZE..Header::SIZE + payload.len()].copy_from_slice(&payload);
            medium
                .append(Position { zone: ZoneId(zone), offset: self.offset }, &[&buffer])
                .map_err(|e| Error::media(format!("writing a root into zone {zone}"), e))?;
        }
        self.offset += total;
        self.count += 1;
        Ok(2 * u64::from(total))
    }
}

/// Finds the geometry of an image by reading it at absolute offsets.
///
/// Errors: `NotADisk`, `NewerFormat`; `Corrupt` if the image is shorter than the disk in it. Cost: a few reads.
pub fn probe(image_bytes: u64, read_at: &mut dyn FnMut(u64, &mut [u8]) -> lode_media::Result<()>) -> Result<Geometry> {
    let mut newer = None;
    let mut sizes: Vec<u64> = vec![0];
    let mut failed = None;
    sizes.extend((11..=28).map(|shift| 1u64 << shift).flat_map(|bytes| [bytes, 2 * bytes, 3 * bytes]));
    for offset in sizes {
        let mut bytes = vec![0; Header::SIZE];
        if offset + 4096 > image_bytes {
            continue;
        }
        if let Err(error) = read_at(offset, &mut bytes) {
            failed = Some(error);
            continue;
        }
        let header = Header::decode(&bytes);
        if header.magic != MAGIC || header.kind != BatchKind::Root.code() {
            continue;
        }
        if header.version > VERSION {
            newer = Some(header.version);
            continue;
        }
        let total = index(header.total);
        if header.version != VERSION
            || !(Header::SIZE..=1 << 28).contains(&total)
            || u64::from(header.total) + offset > image_bytes
        {
            continue;
        }
        let mut whole = AlignedBuffer::new(total);
        if read_at(offset, &mut whole).is_err()
            || header.head < 128
            || header.data != 0
            || !header.lengths_fit(u32::MAX, header.head.max(1))
        {
            continue;
        }
        let payload = &whole[Header::SIZE..];
        let Some(payload) = payload.get(..index(header.records)) else { continue };
        if header.seal(&[payload]) != header.checksum {
            continue;
        }
        let Some(image) = RootImage::decode(payload) else { continue };
        let geometry = Geometry {
            zones: image.root.zones,
            zone_bytes: image.root.zone_bytes,
            append_align: image.root.append_align,
            devices: 1,
        };
        if Shape::new(geometry).is_err() {
            continue;
        }
        let expected = u64::from(geometry.zones) * u64::from(geometry.zone_bytes);
        if expected > image_bytes {
            return Err(Error::corrupt(
                "the image's length",
                format!("at least {expected} bytes for the disk in it"),
                format!("{image_bytes} bytes: it was cut off"),
            ));
        }
        if u64::from(header.zone) * u64::from(geometry.zone_bytes) + u64::from(header.offset) == offset {
            return Ok(geometry);
        }
    }
    if let Some(version) = newer {
        return Err(Error::new(
            ErrorKind::NewerFormat,
            format!("the disk has format version {version}; this program reads up to version {VERSION}"),
        ));
    }
    if let Some(error) = failed {
        return Err(Error::media("reading the image to find its geometry", error));
    }
    Err(Error::new(
        ErrorKind::NotADisk,
        "this is no Lode disk: expected a root at the start of one of the first four zones, found none",
    ))
}
