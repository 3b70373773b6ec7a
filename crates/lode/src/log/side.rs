//! Streams of data only: blocks that the cleaner moved, and the two copies of the tables.
//!
//! What they hold becomes visible by a record of the record stream, or by a root, that is written only after a sync of
//! the data. So their tails need no finding: what nothing refers to is garbage, and their zones are never appended to
//! again after a restart (R10). A batch is built here and appended by the caller.

use crate::format::VERSION;
use crate::format::header::{BatchKind, Header, MAGIC, NO_ZONE};
use crate::shape::Shape;
use crate::types::{GRANULE, SegmentId, index, len_u32};
use lode_media::{AlignedBuffer, Position, ZoneId};

/// One side stream: where its next batch goes.
pub(crate) struct Side {
    pub kind: BatchKind,
    pub zone: Option<u32>,
    segment: SegmentId,
    offset: u32,
    sequence: u64,
}

impl Side {
    pub fn new(kind: BatchKind) -> Side {
        Side { kind, zone: None, segment: SegmentId(0), offset: 0, sequence: 0 }
    }

    /// Whether a batch of this content goes into the zone that is being filled.
    pub fn fits(&self, shape: &Shape, data: u32, records: u32) -> bool {
        let total = Header::content_bytes(shape.head, data, records).next_multiple_of(u64::from(shape.align));
        self.zone.is_some() && u64::from(self.offset) + total <= u64::from(shape.zone_bytes)
    }

    /// Bytes that are left in the zone that is being filled.
    pub fn left(&self, shape: &Shape) -> u32 {
        if self.zone.is_some() { shape.zone_bytes - self.offset } else { 0 }
    }

    /// Goes on in another, erased zone. The one before is sealed.
    pub fn open(&mut self, zone: u32, segment: SegmentId) {
        *self = Side { kind: self.kind, zone: Some(zone), segment, offset: 0, sequence: 0 };
    }

    /// Where block data of the next batch starts.
    pub fn data_offset(&self, shape: &Shape) -> u32 {
        self.offset + shape.head
    }

    /// Takes the place of the next batch, with `data` bytes of data in front of its records. It must fit. What remains
    /// to be done, [`Batch::head`] and [`Batch::body`], needs no lock.
    pub fn begin(&mut self, shape: &Shape, disk: u128, data: u32, records: Vec<u8>, count: u32) -> Batch {
        let zone = self.zone.expect("it fits, so there is a zone");
        let content = Header::content_bytes(shape.head, data, len_u32(records.len()));
        let total = u32::try_from(content).expect("within a zone").next_multiple_of(shape.align);
        let header = Header {
            magic: MAGIC,
            version: VERSION,
            kind: self.kind.code(),
            disk,
            segment: self.segment.0,
            sequence: self.sequence,
            zone,
            offset: self.offset,
            total,
            data,
            records: len_u32(records.len()),
            count,
            next_a: NO_ZONE,
            next_b: NO_ZONE,
            head: shape.head,
            ..Header::default()
        };
        self.offset += total;
        self.sequence += 1;
        Batch { header, records }
    }
}

/// A batch of a side stream whose place is taken.
pub(crate) struct Batch {
    header: Header,
    records: Vec<u8>,
}

impl Batch {
    pub fn at(&self) -> Position {
        Position { zone: ZoneId(self.header.zone), offset: self.header.offset }
    }

    /// Where its data starts in the zone.
    pub fn data_offset(&self) -> u32 {
        self.header.offset + self.header.head
    }

    /// The head area: header and first records.
    pub fn head(&self) -> AlignedBuffer {
        let header = Header { checksum: self.header.seal(&[&self.records]), ..self.header };
        let mut head = AlignedBuffer::new(index(header.head));
        header.encode(&mut head[..Header::SIZE]);
        let (in_head, _) = header.record_ranges();
        let len = in_head.len();
        head[in_head].copy_from_slice(&self.records[..len]);
        head
    }

    /// What follows: data, of which each piece starts at a multiple of a granule, and the rest of the records.
    pub fn body<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) -> AlignedBuffer {
        let mut body = AlignedBuffer::new(index(self.header.total - self.header.head));
        let mut at = 0;
        for piece in pieces {
            body[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len().next_multiple_of(index(GRANULE));
        }
        let (in_head, tail) = self.header.record_ranges();
        let start = index(self.header.head);
        body[tail.start - start..tail.end - start].copy_from_slice(&self.records[in_head.len()..]);
        body
    }
}
