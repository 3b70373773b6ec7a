//! Batches, footers and segments as they lie on the medium. Reads, verifies, changes nothing.
//!
//! A [`Scanned`] segment is what could be read of one zone: its batches in order, each with its records, and where and
//! why reading ended. Block data is verified by [`Reader::verify_data`] where the witness asks for it (R7, R8).

use crate::error::{Error, Result};
use crate::format::header::{BatchKind, FLAG_CONTINUES, FooterEntry, Header, MAGIC, TRAILER_MAGIC, Trailer};
use crate::format::records::Record;
use crate::format::{Cursor, VERSION, crc};
use crate::planted::{self, Bug};
use crate::shape::Shape;
use crate::types::{Lsn, NUMBERS_MAX, SegmentId, Sequence, index, len_u32};
use lode_media::{AlignedBuffer, Medium, Position, ZoneId};

/// One batch as read.
#[derive(Clone)]
pub(crate) struct Batch {
    pub kind: BatchKind,
    pub sequence: Sequence,
    pub offset: u32,
    pub total: u32,
    pub first_lsn: Lsn,
    pub count: u32,
    pub continues: bool,
    pub records: Vec<u8>,
    pub next: [u32; 2],
}

impl Batch {
    /// A footer that is lost, and known by the segment that follows it.
    pub fn is_put_back(&self) -> bool {
        self.kind == BatchKind::Footer && self.total == 0
    }
}

/// One segment as read. See the file's head.
#[derive(Default)]
pub(crate) struct Scanned {
    pub batches: Vec<Batch>,
    /// It was read from its footer, so no batch was looked at.
    pub from_footer: bool,
    /// Where reading ended.
    pub end: u32,
    /// The highest witness of any valid header, also behind the end.
    pub witness: Sequence,
    /// What lies at the end could not be read, so there may be more.
    pub unreadable: Option<String>,
    /// Valid batches of the same epoch lie behind the end: sequence of the first.
    pub beyond: Option<Sequence>,
}

/// A zone as read.
pub(crate) struct ZoneBytes {
    bytes: AlignedBuffer,
    unreadable: Vec<(u32, Error)>,
}

impl std::ops::Deref for ZoneBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl ZoneBytes {
    /// Whether all of `start..end` could be read.
    pub fn readable(&self, start: u32, end: u32) -> Result<()> {
        match self.unreadable.iter().find(|(offset, _)| (start..end).contains(offset)) {
            None => Ok(()),
            Some((_, error)) => Err(error.clone()),
        }
    }
}

/// What the headers must name to be of this disk.
pub(crate) struct Reader<'a> {
    pub medium: &'a dyn Medium,
    pub shape: Shape,
    pub disk: u128,
}

impl Reader<'_> {
    fn at(zone: u32, offset: u32) -> Position {
        Position { zone: ZoneId(zone), offset }
    }

    /// Reads a whole zone.
    pub fn zone(&self, zone: u32) -> ZoneBytes {
        self.zone_from(zone, 0)
    }

    /// Reads a zone from `from` on; the bytes before it are zeros. What cannot be read is remembered, and is an error
    /// only where a batch is expected to lie.
    pub fn zone_from(&self, zone: u32, from: u32) -> ZoneBytes {
        let mut bytes = AlignedBuffer::new(index(self.shape.zone_bytes));
        let mut unreadable = Vec::new();
        let chunk = index((1u32 << 20).min(self.shape.zone_bytes));
        for (n, piece) in bytes[index(from)..].chunks_mut(chunk).enumerate() {
            let offset = from + len_u32(n * chunk);
            if self.medium.read(Self::at(zone, offset), piece).is_ok() {
                continue;
            }
            crate::mark("reader: zone read sector by sector");
            for (n, sector) in piece.chunks_mut(index(self.shape.align)).enumerate() {
                let offset = offset + len_u32(n) * self.shape.align;
                if let Err(error) = self.medium.read(Self::at(zone, offset), sector) {
                    sector.fill(0);
                    unreadable.push((offset, Error::media(format!("reading zone {zone} at offset {offset}"), error)));
                }
            }
        }
        ZoneBytes { bytes, unreadable }
    }

    /// The header at the start of `bytes`, if it is valid but for its segment (R7 without the epoch chain).
    /// Says why not, for people.
    pub fn header(
        &self,
        bytes: &[u8],
        zone: u32,
        offset: u32,
    ) -> std::result::Result<(Header, BatchKind), &'static str> {
        let Some(fixed) = bytes.get(..Header::SIZE) else {
            return Err("a header does not fit in what is left of the zone");
        };
        let header = Header::decode(fixed);
        if header.magic != MAGIC {
            return Err("no header");
        }
        if header.version != VERSION {
            return Err("a header of another format version");
        }
        if header.disk != self.disk {
            return Err("a header of another disk");
        }
        if header.zone != zone || header.offset != offset {
            return Err("a header of another place");
        }
        if !header.lengths_fit(self.shape.zone_bytes, self.shape.align) {
            return Err("a header whose lengths do not fit");
        }
        if header.sequence >= NUMBERS_MAX || header.first_lsn >= NUMBERS_MAX {
            return Err("a header with numbers that no disk reaches");
        }
        let Some(kind) = BatchKind::from_code(header.kind) else { return Err("a header of unknown kind") };
        let (in_head, in_tail) = header.record_ranges();
        let (Some(head), Some(tail)) = (bytes.get(in_head), bytes.get(in_tail)) else {
            return Err("a batch that is cut off");
        };
        if header.seal(&[head, tail]) != header.checksum {
            return Err("a header whose checksum does not match");
        }
        Ok((header, kind))
    }

    fn batch(&self, header: &Header, kind: BatchKind, bytes: &[u8]) -> Batch {
        let (in_head, in_tail) = header.record_ranges();
        let mut records = bytes[in_head].to_vec();
        records.extend_from_slice(&bytes[in_tail]);
        Batch {
            kind,
            sequence: Sequence(header.sequence),
            offset: header.offset,
            total: header.total,
            first_lsn: Lsn(header.first_lsn),
            count: header.count,
            continues: header.flags & FLAG_CONTINUES != 0,
            records,
            next: [header.next_a, header.next_b],
        }
    }

    /// The footer of a sealed segment, if the zone ends with a valid one of this segment.
    pub fn footer(&self, zone: u32, segment: SegmentId) -> Result<Option<Scanned>> {
        Ok(self.any_footer(zone)?.filter(|(found, _)| *found == segment).map(|(_, scanned)| scanned))
    }

    /// The footer at the end of a zone, of whatever segment it is.
    pub fn any_footer(&self, zone: u32) -> Result<Option<(SegmentId, Scanned)>> {
        let tail_bytes = index(self.shape.zone_bytes.min((256 << 10).max(self.shape.align)));
        let tail_at = self.shape.zone_bytes - len_u32(tail_bytes);
        let mut tail = AlignedBuffer::new(tail_bytes);
        if self.medium.read(Self::at(zone, tail_at), &mut tail).is_err() {
            crate::mark("reader: end of a zone unreadable");
            return Ok(None);
        }
        let trailer = Trailer::decode(&tail[tail_bytes - Trailer::SIZE..]);
        let fits = u64::from(trailer.footer) + u64::from(trailer.total) == u64::from(self.shape.zone_bytes)
            && index(trailer.total) >= Header::SIZE;
        if trailer.magic != TRAILER_MAGIC || trailer.checksum != trailer.seal() || !fits {
            return Ok(None);
        }
        let whole;
        let bytes: &[u8] = if trailer.footer >= tail_at {
            &tail[index(trailer.footer - tail_at)..]
        } else {
            let mut buffer = AlignedBuffer::new(index(trailer.total));
            if self.medium.read(Self::at(zone, trailer.footer), &mut buffer).is_err() {
                return Ok(None);
            }
            whole = buffer;
            &whole
        };
        let Ok((header, BatchKind::Footer)) = self.header(bytes, zone, trailer.footer) else { return Ok(None) };
        if header.segment != trailer.segment {
            return Ok(None);
        }
        let footer = self.batch(&header, BatchKind::Footer, bytes);
        let Some(mut batches) = entries(&footer) else { return Ok(None) };
        let witness = Sequence(header.durable);
        batches.push(Batch { records: Vec::new(), ..footer });
        let scanned = Scanned { batches, from_footer: true, end: self.shape.zone_bytes, witness, ..Scanned::default() };
        Ok(Some((SegmentId(header.segment), scanned)))
    }

    /// Whether all of a zone can be read, and no batch of a segment is in it anywhere.
    pub fn is_without(&self, bytes: &ZoneBytes, zone: u32, segment: SegmentId) -> bool {
        let mut scanned = Scanned::default();
        self.look_beyond(bytes, zone, 0, |header| header.segment == segment.0, &mut scanned);
        bytes.readable(0, self.shape.zone_bytes).is_ok() && scanned.beyond.is_none()
    }

    /// Reads a segment batch by batch, from `from` on, where the batch of sequence `wanted` starts.
    /// Behind the end, looks for valid headers of the same segment at every append alignment (R11).
    pub fn walk(&self, bytes: &ZoneBytes, zone: u32, segment: SegmentId, wanted: Sequence, from: u32) -> Scanned {
        let mut scanned = Scanned { end: from, ..Scanned::default() };
        let mut sequence = wanted;
        while scanned.end < self.shape.zone_bytes {
            if let Err(error) = bytes.readable(scanned.end, scanned.end + self.shape.head) {
                scanned.unreadable = Some(error.to_string());
                break;
            }
            let Ok((header, kind)) = self.header(&bytes[index(scanned.end)..], zone, scanned.end) else { break };
            let old = header.segment != segment.0 && !planted::is(Bug::OldBatchAccepted);
            if old || header.sequence != sequence.0 {
                break;
            }
            scanned.witness = scanned.witness.max(Sequence(header.durable));
            scanned.batches.push(self.batch(&header, kind, &bytes[index(scanned.end)..]));
            scanned.end += header.total;
            sequence = sequence.next();
        }
        self.look_beyond(
            bytes,
            zone,
            scanned.end,
            |header| header.segment == segment.0 && header.sequence >= sequence.0,
            &mut scanned,
        );
        scanned
    }

    /// Looks at every alignment from `from` on for valid headers that `of_interest` admits.
    pub fn look_beyond(
        &self,
        bytes: &[u8],
        zone: u32,
        from: u32,
        of_interest: impl Fn(&Header) -> bool,
        scanned: &mut Scanned,
    ) {
        let mut offset = from;
        while offset < self.shape.zone_bytes {
            if let Ok((header, BatchKind::Main | BatchKind::Footer)) =
                self.header(&bytes[index(offset)..], zone, offset)
                && of_interest(&header)
            {
                scanned.witness = scanned.witness.max(Sequence(header.durable));
                crate::mark("reader: valid batch behind the end");
                let first = Sequence(header.sequence);
                scanned.beyond = Some(scanned.beyond.map_or(first, |other| other.min(first)));
                offset += header.total;
            } else {
                offset += self.shape.align;
            }
        }
    }

    /// Whether every block of a batch matches its checksum. `bytes` is the zone.
    pub fn verify_data(&self, bytes: &[u8], zone: u32, batch: &Batch) -> std::result::Result<(), String> {
        for record in records_of(batch).ok_or_else(|| "records that cannot be read".to_owned())? {
            let (place, checksums): (_, Vec<u32>) = match &record {
                Record::Put { place, entries, .. } => (*place, entries.iter().map(|(_, checksum)| *checksum).collect()),
                Record::Data { place, checksums, .. } => (*place, checksums.clone()),
                _ => continue,
            };
            let within =
                place.zone() == zone && place.offset() >= batch.offset && place.offset() < batch.offset + batch.total;
            if !within {
                continue;
            }
            let mut at = place;
            for checksum in checksums {
                let start = index(at.offset());
                let stored = bytes
                    .get(start..start + index(at.stored()))
                    .ok_or_else(|| "a block that reaches beyond its zone".to_owned())?;
                if crc(stored) != checksum {
                    return Err(format!("the block at offset {start} does not match its checksum"));
                }
                at = at.step(1);
            }
        }
        Ok(())
    }
}

/// The batches that a footer repeats.
fn entries(footer: &Batch) -> Option<Vec<Batch>> {
    let mut cursor = Cursor::new(&footer.records);
    let mut batches = Vec::new();
    while !cursor.is_empty() {
        let entry = FooterEntry::decode(cursor.take(FooterEntry::SIZE)?);
        let records = cursor.take(index(entry.records))?.to_vec();
        if entry.sequence >= footer.sequence.0 || entry.first_lsn >= NUMBERS_MAX {
            return None;
        }
        batches.push(Batch {
            kind: BatchKind::Main,
            sequence: Sequence(entry.sequence),
            offset: entry.offset,
            total: entry.total,
            first_lsn: Lsn(entry.first_lsn),
            count: entry.count,
            continues: entry.flags & u32::from(FLAG_CONTINUES) != 0,
            records,
            next: footer.next,
        });
    }
    Some(batches)
}

/// The records of a batch. `None`: they cannot be read as such.
pub(crate) fn records_of(batch: &Batch) -> Option<Vec<Record>> {
    if batch.kind == BatchKind::Footer {
        return Some(Vec::new());
    }
    let mut cursor = Cursor::new(&batch.records);
    let mut records = Vec::new();
    while !cursor.is_empty() {
        records.push(Record::decode(&mut cursor)?);
    }
    (len_u32(records.len()) == batch.count).then_some(records)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::side::Side;
    use lode_media::{Geometry, Medium, ram::RamMedium};

    /// A search with crafted images found one whose last batch has the largest number there is.
    #[test]
    fn numbers_that_no_disk_reaches_are_not_valid() {
        let geometry = Geometry { zones: 64, zone_bytes: 1 << 20, append_align: 4096, devices: 1 };
        let medium = RamMedium::new(geometry);
        let reader = Reader { medium: &medium as &dyn Medium, shape: Shape::new(geometry).expect("a shape"), disk: 7 };
        let mut side = Side::new(BatchKind::Moved);
        side.open(9, SegmentId(1));
        let bytes = side.begin(&reader.shape, 7, 0, Vec::new(), 0).head();
        let (header, _) = reader.header(&bytes, 9, 0).expect("as it was written");
        for (sequence, first_lsn) in [(u64::MAX, 0), (0, u64::MAX), (NUMBERS_MAX, 0)] {
            let mut header = Header { sequence, first_lsn, ..header };
            header.checksum = header.seal(&[]);
            let mut bytes = bytes.to_vec();
            header.encode(&mut bytes[..Header::SIZE]);
            assert!(reader.header(&bytes, 9, 0).is_err(), "{sequence} {first_lsn}");
        }
    }
}
