//! The image of a unit at its last barrier: all of it but its blocks, which lie in shadows of their lists.
//!
//! It is the content of a list of form *unit*: the head, the cookie, then for each list a [`UnitList`] with its
//! stretches and cuts, then operations and numbers.

use super::record;

record! {
    /// What the image of a unit begins with. The cookie follows.
    UnitImage: 32 {
        /// Bytes of the cookie: at most 64 if it is a client's. Of a unit that receives a stream it is a StreamKept with
        /// what follows that, which is more.
        0 cookie: u32,
        /// 0 moving, 1 frozen, 2 committed.
        4 view: u8,
        /// 0 allowed, 1 of what it wrote, 2 of what it read too.
        5 conflicts: u8,
        /// 1: it has looked at ordered lists, and reads count.
        6 looked: u8,
        /// Zero.
        7 reserved: u8,
        /// How many UnitList follow.
        8 lists: u32,
        /// How many UnitOperation follow these.
        12 operations: u32,
        /// How many UnitNumber follow these.
        16 numbers: u32,
        /// Zero.
        20 reserved_b: u32,
        /// Until when it is kept if nobody takes it up, in nanoseconds since 1970; zero: for ever.
        24 until: u64,
    }
}

record! {
    /// What a unit did to one list, but for its blocks. Followed by stretches of holes, stretches it has read, and cuts.
    UnitList: 40 {
        /// The list.
        0 list: u32,
        /// 1: it has a new size; 2: it was made shorter on the way.
        4 flags: u32,
        /// Its new size in bytes.
        8 bytes: u64,
        /// The smallest size on the way, in blocks.
        16 floor: u64,
        /// How many stretches of holes.
        24 holes: u32,
        /// How many stretches that it has read.
        28 reads: u32,
        /// How many cuts.
        32 cuts: u32,
        /// The list that has the blocks that it changed; zero: it changed none.
        36 kept: u32,
    }
}

record! {
    /// Blocks one behind the other.
    UnitStretch: 16 {
        /// The first.
        0 first: u64,
        /// The one behind the last.
        8 end: u64,
    }
}

record! {
    /// A block whose end is zero from a byte on.
    UnitCut: 16 {
        /// The block.
        0 block: u64,
        /// The byte.
        8 from: u64,
    }
}

record! {
    /// An operation on ordered lists, to be done again at the commit.
    UnitOperation: 24 {
        /// 1 insert, 2 remove, 3 move, 4 create, 5 delete, 6 move a list.
        0 kind: u8,
        /// Where to: 0 first, 1 last, 2 behind `after`.
        1 place: u8,
        /// Zero.
        2 reserved: u16,
        /// The list that it is done to.
        4 list: u32,
        /// What it is done with: a block; the first block that moves; attributes of a new list.
        8 what: u32,
        /// The last block that moves.
        12 last: u32,
        /// The list that blocks move to.
        16 to: u32,
        /// What it goes behind.
        20 after: u32,
    }
}

record! {
    /// A number that the unit has taken.
    UnitNumber: 8 {
        /// The table.
        0 table: u32,
        /// The number.
        4 number: u32,
    }
}
