//! The header of a batch: what one append writes begins with it.
//!
//! Layout of a batch: the head area (one append alignment, at least the header), whose rest holds the first records;
//! then block data; then the records that did not fit in the head area; zeros up to the alignment. Block data has a
//! known place as soon as it is written, since the head area has a fixed size.
//!
//! A header is valid *if and only if* (R7): 1. its magic and version match; 2. disk, zone, offset and segment are the
//! place's own; 3. its lengths fit in the zone and add up; 4. the checksum over header and records matches.

use super::{crc_of, record};
use crate::types::index;

/// What a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchKind {
    /// Records and block data of the record stream.
    Main,
    /// The last batch of a segment: all its records again.
    Footer,
    /// Block data that the cleaner moved, with descriptors.
    Moved,
    /// Images and deltas of sections.
    Table,
    /// A root.
    Root,
}

impl BatchKind {
    pub fn code(self) -> u8 {
        match self {
            BatchKind::Main => 1,
            BatchKind::Footer => 2,
            BatchKind::Moved => 3,
            BatchKind::Table => 4,
            BatchKind::Root => 5,
        }
    }

    pub fn from_code(code: u8) -> Option<BatchKind> {
        Some(match code {
            1 => BatchKind::Main,
            2 => BatchKind::Footer,
            3 => BatchKind::Moved,
            4 => BatchKind::Table,
            5 => BatchKind::Root,
            _ => return None,
        })
    }
}

pub(crate) const MAGIC: u32 = u32::from_le_bytes(*b"LODE");
pub(crate) const TRAILER_MAGIC: u32 = u32::from_le_bytes(*b"LFTR");
/// The operation that this batch is part of goes on in the next sequence: it counts only together with that.
pub(crate) const FLAG_CONTINUES: u8 = 1;
/// A zone number that names none.
pub(crate) const NO_ZONE: u32 = u32::MAX;

record! {
    /// The header of a batch.
    Header: 128 {
        /// `LODE`.
        0 magic: u32,
        /// Version of the format.
        4 version: u16,
        /// 1 main, 2 footer, 3 moved blocks, 4 tables, 5 root.
        6 kind: u8,
        /// Bit 0: the operation goes on in the next sequence.
        7 flags: u8,
        /// The disk, drawn at random when it was made.
        8 disk: u128,
        /// The filling of the zone that this batch belongs to: epoch and counter.
        24 segment: u64,
        /// Main and footer: consecutive over the disk. Others: consecutive in the segment.
        32 sequence: u64,
        /// Everything below this sequence was durable when the batch was built (R8).
        40 durable: u64,
        /// The number of the batch's first record.
        48 first_lsn: u64,
        /// The zone it lies in.
        56 zone: u32,
        /// Where in the zone it starts.
        60 offset: u32,
        /// Bytes of the batch, padding included.
        64 total: u32,
        /// Bytes of block data behind the head area.
        68 data: u32,
        /// Bytes of records.
        72 records: u32,
        /// How many records.
        76 count: u32,
        /// The next zone of the record stream, already erased (R11).
        80 next_a: u32,
        /// The one after it.
        84 next_b: u32,
        /// Bytes of the head area.
        88 head: u32,
        /// Zero.
        92 reserved_a: u32,
        /// Zero.
        96 reserved_b: u128,
        /// Zero.
        112 reserved_c: u64,
        /// Zero.
        120 reserved_d: u32,
        /// CRC-32C over the header with this field zero, then the records.
        124 checksum: u32,
    }
}

record! {
    /// The end of a sealed segment: the last bytes of its zone, so that the footer is found in one read.
    Trailer: 32 {
        /// `LFTR`.
        0 magic: u32,
        /// Where the footer starts.
        4 footer: u32,
        /// The segment.
        8 segment: u64,
        /// Bytes of the footer, this trailer included.
        16 total: u32,
        /// Zero.
        20 reserved: u64,
        /// CRC-32C over the fields above.
        28 checksum: u32,
    }
}

record! {
    /// In a footer: one batch of the segment; its records follow.
    FooterEntry: 40 {
        /// Its sequence.
        0 sequence: u64,
        /// The number of its first record.
        8 first_lsn: u64,
        /// Where it starts.
        16 offset: u32,
        /// Its bytes.
        20 total: u32,
        /// Bytes of its records.
        24 records: u32,
        /// How many records.
        28 count: u32,
        /// Its flags.
        32 flags: u32,
        /// Zero.
        36 reserved: u32,
    }
}

impl Header {
    /// Bytes of the head area for media with this alignment.
    pub fn head_bytes(append_align: u32) -> u32 {
        128u32.next_multiple_of(append_align)
    }

    /// The two places of the records: the rest of the head area, and behind the data. Relative to the batch's start.
    pub fn record_ranges(&self) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        let head = index(self.head);
        let in_head = index(self.records).min(head - Header::SIZE);
        let tail = head + index(self.data).next_multiple_of(16);
        (Header::SIZE..Header::SIZE + in_head, tail..tail + index(self.records) - in_head)
    }

    /// Bytes that a batch of this content takes before it is rounded up to the alignment.
    pub fn content_bytes(head: u32, data: u32, records: u32) -> u64 {
        let in_head = records.min(head - 128);
        u64::from(head) + u64::from(data).next_multiple_of(16) + u64::from(records - in_head)
    }

    /// Whether the lengths add up and stay within the zone. Part of validity; asked before any length is used.
    pub fn lengths_fit(&self, zone_bytes: u32, append_align: u32) -> bool {
        self.head == Header::head_bytes(append_align)
            && self.total.is_multiple_of(append_align)
            && u64::from(self.offset) + u64::from(self.total) <= u64::from(zone_bytes)
            && Header::content_bytes(self.head, self.data, self.records) <= u64::from(self.total)
    }

    /// The checksum that the header must carry, over itself and the records.
    pub fn seal(&self, records: &[&[u8]]) -> u32 {
        let mut bytes = [0; Header::SIZE];
        Header { checksum: 0, ..*self }.encode(&mut bytes);
        let mut pieces = vec![&bytes[..]];
        pieces.extend_from_slice(records);
        crc_of(&pieces)
    }
}

impl Trailer {
    pub fn seal(&self) -> u32 {
        let mut bytes = [0; Trailer::SIZE];
        self.encode(&mut bytes);
        super::crc(&bytes[..28])
    }
}
