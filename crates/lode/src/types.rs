//! Numbers that mean a place or an identity, each a type of its own.
//!
//! A [`Location`] says where one stored block lies: zone, offset, stored length, kind, in eight bytes.

use std::fmt;

/// Stored blocks start at multiples of this many bytes inside their zone.
pub(crate) const GRANULE: u32 = 16;

/// Sequences and record numbers stay below this: a disk that writes a million a second gets there in 146,000 years.
pub(crate) const NUMBERS_MAX: u64 = 1 << 62;

/// The largest block of any list.
pub const BLOCK_BYTES_MAX: u32 = 65536;
/// The smallest block of any list.
pub const BLOCK_BYTES_MIN: u32 = 64;

/// Names a list. Never given out twice on one disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListId(pub u32);

/// Names a snapshot. Lists and snapshots are counted together, so that a snapshot is of lists with smaller numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(pub u32);

/// Names an ordered list. Given out again only when nobody can mean the old one any more (R4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderedId(pub u32);

/// Names a block of an ordered list, wherever it moves: the power of two of its size in the upper half, its number in
/// the pool of blocks of that size below. Given out again only when nobody can mean the old one any more (R4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u64);

impl BlockId {
    pub(crate) fn new(shift: u8, number: u32) -> BlockId {
        BlockId(u64::from(shift) << 32 | u64::from(number))
    }

    /// The power of two of its size, and its number in the pool.
    pub(crate) fn parts(self) -> (u8, u32) {
        (u8::try_from(self.0 >> 32).unwrap_or(0), low_u32(self.0))
    }
}

/// A position of the merged stream: the number of the next record. Everything before it has a smaller one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// The number of a batch of the record stream, consecutive over the whole disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Sequence(pub u64);

impl Sequence {
    pub fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }
}

/// Names one filling of a zone: the epoch in the upper half, a counter below. Never used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SegmentId(pub u64);

impl SegmentId {
    pub fn new(epoch: u64, counter: u32) -> SegmentId {
        SegmentId((epoch << 32) | u64::from(counter))
    }

    pub fn epoch(self) -> u64 {
        self.0 >> 32
    }
}

/// Names a unit: the epoch of its begin in the upper bits, a counter below. Never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(pub u64);

/// How the bytes of a stored block are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The block as it is.
    Raw,
    /// Compressed: `packed.rs` says how.
    Packed,
}

/// Where a stored block lies: 22 bits zone, 24 bits offset in granules, 16 bits stored length less one, 2 bits kind.
/// Zone 0 holds roots only: what would lie there is no place.
///
/// What takes no bytes at all is counted in zone 0: a hole that a snapshot sees, and the neighbours of a block of an
/// ordered list: 31 bits before, 31 bits behind, kind 2.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Location(pub u64);

impl Location {
    /// A hole: no stored block.
    pub const NONE: Location = Location(0);
    /// In a layer: a snapshot sees a hole here, whatever came later. Takes no bytes.
    pub const HOLE: Location = Location(3);
    /// Numbers of neighbours are smaller than this.
    pub const NEIGHBOURS_MAX: u32 = 1 << 31;
    /// More zones than this cannot be named.
    pub const ZONES_MAX: u32 = 1 << 22;
    /// Larger zones than this cannot be named.
    pub const ZONE_BYTES_MAX: u32 = GRANULE << 24;

    pub fn new(zone: u32, offset: u32, stored: u32, kind: Kind) -> Location {
        debug_assert!(
            zone < Self::ZONES_MAX && offset.is_multiple_of(GRANULE) && (1..=BLOCK_BYTES_MAX).contains(&stored)
        );
        let kind = match kind {
            Kind::Raw => 0,
            Kind::Packed => 1,
        };
        Location((u64::from(zone) << 42) | (u64::from(offset / GRANULE) << 18) | (u64::from(stored - 1) << 2) | kind)
    }

    /// The neighbours of a block, or of a list, in their order; zero: none.
    pub fn neighbours(before: u32, behind: u32) -> Location {
        debug_assert!(before < Self::NEIGHBOURS_MAX && behind < Self::NEIGHBOURS_MAX);
        Location(u64::from(before) << 33 | u64::from(behind) << 2 | 2)
    }

    /// What [`Location::neighbours`] was made of.
    pub fn as_neighbours(self) -> Option<(u32, u32)> {
        (self.0 & 3 == 2).then(|| (low_u32(self.0 >> 33), low_u32(self.0 >> 2 & 0x7fff_ffff)))
    }

    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Takes no bytes of the medium.
    pub fn is_bare(self) -> bool {
        self.0 & 2 != 0
    }

    pub fn zone(self) -> u32 {
        if self.is_bare() { 0 } else { low_u32(self.0 >> 42) }
    }

    pub fn offset(self) -> u32 {
        low_u32((self.0 >> 18) & 0xff_ffff) * GRANULE
    }

    /// Bytes that the block takes as stored.
    pub fn stored(self) -> u32 {
        low_u32((self.0 >> 2) & 0xffff) + 1
    }

    /// Bytes that the block takes in its zone, up to the next granule.
    pub fn footprint(self) -> u32 {
        if self.is_bare() { 0 } else { self.stored().next_multiple_of(GRANULE) }
    }

    /// `None` for a kind that this version does not know.
    pub fn kind(self) -> Option<Kind> {
        match self.0 & 3 {
            0 => Some(Kind::Raw),
            1 => Some(Kind::Packed),
            _ => None,
        }
    }

    /// The place `n` blocks further on in a run of equal blocks; blocks that were inserted one behind the other are a
    /// run of neighbours.
    pub fn step(self, n: u32) -> Location {
        if self.0 & 3 == 2 {
            return Location(self.0.wrapping_add(u64::from(n) << 33).wrapping_add(u64::from(n) << 2));
        }
        Location(self.0.wrapping_add(u64::from(n).wrapping_mul(u64::from(self.footprint() / GRANULE)) << 18))
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() || *self == Self::HOLE {
            return f.write_str("hole");
        }
        if let Some((before, behind)) = self.as_neighbours() {
            return write!(f, "between {before} and {behind}");
        }
        write!(f, "zone {} offset {} stored {} kind {}", self.zone(), self.offset(), self.stored(), self.0 & 3)
    }
}

/// The lower 32 bits of a value that is known to fit in them.
pub(crate) fn low_u32(value: u64) -> u32 {
    u32::try_from(value & 0xffff_ffff).expect("masked to 32 bits")
}

/// A length of memory as a number of the format. Buffers are far smaller than 4 GiB.
pub(crate) fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("a buffer is smaller than 4 GiB")
}

/// A number of the format as an index. Lode needs 64-bit (or at least 32-bit) machines.
pub(crate) fn index(value: u32) -> usize {
    usize::try_from(value).expect("32 bits fit in an address")
}

/// A length in memory as 64 bits.
pub(crate) fn len_u64(len: usize) -> u64 {
    u64::try_from(len).expect("an address fits in 64 bits")
}

/// A 64-bit length that was checked to be within memory.
pub(crate) fn index64(value: u64) -> usize {
    usize::try_from(value).expect("checked to fit in memory")
}

#[cfg(test)]
mod tests;
