//! The root: what opening begins with. Written twice, in two zones of a pair; two pairs take turns, so that a usable
//! root stays while a pair is erased (R25). Zones 0 to 3 hold roots and nothing else.
//!
//! A root is a batch of kind Root whose records area is this struct, then segments, then references to directory pages.

use super::object::ObjectRef;
use super::{Cursor, record};
use crate::types::len_u32;

record! {
    /// The fixed part of a root.
    Root: 128 {
        /// Counts the roots of this disk.
        0 number: u64,
        /// The epoch that this root belongs to (R9).
        8 epoch: u64,
        /// The sequence at which the epoch begins.
        16 epoch_start: u64,
        /// Everything below this sequence was durable when the root was built (R8).
        24 durable: u64,
        /// Replay begins at this record.
        32 replay_lsn: u64,
        /// The record number that comes next, as of this root.
        40 next_lsn: u64,
        /// Bytes of a zone.
        48 zone_bytes: u32,
        /// Zones of the medium.
        52 zones: u32,
        /// The alignment of appends.
        56 append_align: u32,
        /// The next list number.
        60 next_list: u32,
        /// Next zone of the record stream.
        64 next_a: u32,
        /// The one after it.
        68 next_b: u32,
        /// How many segments follow.
        72 segments: u32,
        /// How many references to directory pages follow.
        76 pages: u32,
        /// 1: closed cleanly, with nothing to replay.
        80 clean: u32,
        /// The sequence that comes next, as of this root.
        84 next_sequence: u64,
        /// Zero.
        92 reserved: u32,
        /// Zero.
        96 reserved_b: u128,
        /// Zero.
        112 reserved_c: u128,
    }
}

record! {
    /// A segment of the record stream that replay may need.
    RootSegment: 40 {
        /// Its zone.
        0 zone: u32,
        /// Its name: epoch and counter.
        4 segment: u64,
        /// The first sequence that replay needs.
        12 first: u64,
        /// The sequence at which it ends for good, when its epoch has ended; the largest number if it goes on.
        20 end: u64,
        /// The number of that batch's first record.
        28 first_lsn: u64,
        /// Where that batch starts.
        36 offset: u32,
    }
}

/// A root, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RootImage {
    pub root: Root,
    pub segments: Vec<RootSegment>,
    pub pages: Vec<ObjectRef>,
}

impl RootImage {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        Root { segments: len_u32(self.segments.len()), pages: len_u32(self.pages.len()), ..self.root }
            .push_to(&mut bytes);
        for segment in &self.segments {
            segment.push_to(&mut bytes);
        }
        for page in &self.pages {
            page.push_to(&mut bytes);
        }
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<RootImage> {
        let mut cursor = Cursor::new(bytes);
        let root = Root::decode(cursor.take(Root::SIZE)?);
        let mut segments = Vec::new();
        for _ in 0..root.segments {
            segments.push(RootSegment::decode(cursor.take(RootSegment::SIZE)?));
        }
        let mut pages = Vec::new();
        for _ in 0..root.pages {
            pages.push(ObjectRef::decode(cursor.take(ObjectRef::SIZE)?));
        }
        cursor.is_empty().then_some(RootImage { root, segments, pages })
    }
}
