//! Table objects: images and deltas of sections, and directory pages. Each is written twice, in two streams (R25).
//!
//! An object is an index (head, then one entry for each leaf) and leaf pages behind it, each with its own checksum, so
//! that one leaf is read without the others.

use super::{Cursor, crc, record};
use crate::types::{index, len_u32};

record! {
    /// Where an object lies: two copies.
    ObjectRef: 24 {
        /// Zone of the first copy. Zero: there is no object.
        0 zone_a: u32,
        /// Its offset.
        4 offset_a: u32,
        /// Zone of the second copy.
        8 zone_b: u32,
        /// Its offset.
        12 offset_b: u32,
        /// Bytes of the object.
        16 bytes: u32,
        /// CRC-32C of its index.
        20 checksum: u32,
    }
}

record! {
    /// The head of an object's index.
    ObjectHead: 16 {
        /// 1 image, 2 delta, 3 directory page.
        0 kind: u32,
        /// How many leaves.
        4 leaves: u32,
        /// Bytes of the index, this head included.
        8 index: u32,
        /// Zero.
        12 reserved: u32,
    }
}

record! {
    /// One leaf of an object.
    ObjectLeaf: 16 {
        /// The leaf's number in its section.
        0 leaf: u32,
        /// Where its page starts in the object.
        4 offset: u32,
        /// Bytes of its page.
        8 bytes: u32,
        /// CRC-32C of its page.
        12 checksum: u32,
    }
}

record! {
    /// In a directory page: one section. Followed by its deltas, oldest first.
    SectionEntry: 64 {
        /// 1 map, 2 lists, 3 zones.
        0 table: u32,
        /// Map: the list.
        4 list: u32,
        /// The section's number in its table or list.
        8 number: u32,
        /// Its slot in the directory.
        12 slot: u32,
        /// Every record below this one is included.
        16 lsn: u64,
        /// Map: which leaves of the section are there.
        24 leaves: u64,
        /// Zone of the image's first copy; zero: no image.
        32 zone_a: u32,
        /// Its offset.
        36 offset_a: u32,
        /// Zone of the second copy.
        40 zone_b: u32,
        /// Its offset.
        44 offset_b: u32,
        /// Bytes of the image.
        48 bytes: u32,
        /// CRC-32C of its index.
        52 checksum: u32,
        /// How many deltas follow.
        56 deltas: u32,
        /// Zero.
        60 reserved: u32,
    }
}

record! {
    /// In the zones table: one zone.
    ZoneEntry: 32 {
        /// 0 roots, 1 free, 2 record stream, 3 moved blocks, 4 and 5 tables, 6 set aside for damage.
        0 state: u8,
        /// Zero.
        1 reserved: u8,
        /// Zero.
        2 reserved_b: u16,
        /// Live bytes.
        4 live: u32,
        /// Live blocks.
        8 blocks: u32,
        /// Zero.
        12 reserved_c: u32,
        /// The segment that it holds.
        16 segment: u64,
        /// The number of a record written at about the time it was filled.
        24 age: u64,
    }
}

pub(crate) const IMAGE: u32 = 1;
pub(crate) const DELTA: u32 = 2;
pub(crate) const DIRECTORY: u32 = 3;

/// Builds an object out of leaf pages.
pub(crate) fn encode(kind: u32, leaves: &[(u32, Vec<u8>)]) -> (Vec<u8>, u32) {
    let index_bytes = ObjectHead::SIZE + leaves.len() * ObjectLeaf::SIZE;
    let mut bytes = Vec::with_capacity(index_bytes + leaves.iter().map(|(_, page)| page.len()).sum::<usize>());
    ObjectHead { kind, leaves: len_u32(leaves.len()), index: len_u32(index_bytes), reserved: 0 }.push_to(&mut bytes);
    let mut offset = index_bytes;
    for (leaf, page) in leaves {
        ObjectLeaf { leaf: *leaf, offset: len_u32(offset), bytes: len_u32(page.len()), checksum: crc(page) }
            .push_to(&mut bytes);
        offset += page.len();
    }
    let checksum = crc(&bytes);
    for (_, page) in leaves {
        bytes.extend_from_slice(page);
    }
    (bytes, checksum)
}

/// The index of an object whose first bytes are these, or the number of bytes that are needed to read it.
pub(crate) enum Index {
    Whole(u32, Vec<ObjectLeaf>),
    Needs(usize),
    Damaged,
}

/// Reads an index. `bytes` are the first of an object of `object_bytes`.
pub(crate) fn decode_index(bytes: &[u8], object_bytes: u32, checksum: u32) -> Index {
    let mut cursor = Cursor::new(bytes);
    let Some(head) = cursor.take(ObjectHead::SIZE) else { return Index::Needs(ObjectHead::SIZE) };
    let head = ObjectHead::decode(head);
    let expected = u64::try_from(ObjectHead::SIZE).expect("small") + u64::from(head.leaves) * 16;
    if expected != u64::from(head.index) || head.index > object_bytes {
        return Index::Damaged;
    }
    let Some(whole) = bytes.get(..index(head.index)) else { return Index::Needs(index(head.index)) };
    if crc(whole) != checksum {
        return Index::Damaged;
    }
    let mut leaves = Vec::new();
    for _ in 0..head.leaves {
        let Some(entry) = cursor.take(ObjectLeaf::SIZE) else { return Index::Damaged };
        let entry = ObjectLeaf::decode(entry);
        if u64::from(entry.offset) + u64::from(entry.bytes) > u64::from(object_bytes) {
            return Index::Damaged;
        }
        leaves.push(entry);
    }
    Index::Whole(head.kind, leaves)
}

impl ObjectRef {
    pub fn is_none(&self) -> bool {
        self.zone_a == 0
    }

    /// The two copies: zone and offset.
    pub fn copies(&self) -> [(u32, u32); 2] {
        [(self.zone_a, self.offset_a), (self.zone_b, self.offset_b)]
    }
}
