//! Streams of data only: blocks that the cleaner moved, and the two copies of the tables.
//!
//! What they hold becomes visible by a record of the record stream, or by a root, that is written only after a sync of
//! the data. So their tails need no finding: what nothing refers to is garbage, and their zones are never appended to
//! again after a restart (R10). A batch is built here and appended by the caller.

use crate::format::VERSION;
use crate::format::header::{BatchKind, Header, MAGIC, NO_ZONE};
use crate::shape::Shape;
use crate::types::{SegmentId, index, len_u32};
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

    /// Builds the next batch. It must fit.
    pub fn build(
        &mut self,
        shape: &Shape,
        disk: u128,
        data: &[u8],
        records: &[u8],
        count: u32,
    ) -> (Position, AlignedBuffer) {
        let zone = self.zone.expect("it fits, so there is a zone");
        let content = Header::content_bytes(shape.head, len_u32(data.len()), len_u32(records.len()));
        let total = u32::try_from(content).expect("within a zone").next_multiple_of(shape.align);
        let mut header = Header {
            magic: MAGIC,
            version: VERSION,
            kind: self.kind.code(),
            disk,
            segment: self.segment.0,
            sequence: self.sequence,
            zone,
            offset: self.offset,
            total,
            data: len_u32(data.len()),
            records: len_u32(records.len()),
            count,
            next_a: NO_ZONE,
            next_b: NO_ZONE,
            head: shape.head,
            ..Header::default()
        };
        header.checksum = header.seal(&[records]);
        let mut buffer = AlignedBuffer::new(index(total));
        header.encode(&mut buffer[..Header::SIZE]);
        let (in_head, in_tail) = header.record_ranges();
        let (first, rest) = records.split_at(in_head.len());
        buffer[in_head].copy_from_slice(first);
        buffer[in_tail].copy_from_slice(rest);
        let head = index(shape.head);
        buffer[head..head + data.len()].copy_from_slice(data);
        let at = Position { zone: ZoneId(zone), offset: self.offset };
        self.offset += total;
        self.sequence += 1;
        (at, buffer)
    }
}
