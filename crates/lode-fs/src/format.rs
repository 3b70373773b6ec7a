//! What the blocks of the file system hold, declared once. `docs/FILES.md` is printed from here.

use lode::record;
use lode::record::table;

/// The version that this code writes.
pub(crate) const VERSION: u32 = 1;
pub(crate) const SUPER_MAGIC: u64 = u64::from_le_bytes(*b"LODEFILE");
pub(crate) const BUCKET_MAGIC: u32 = u32::from_le_bytes(*b"LDIR");

/// Bytes of a block of the list of inodes.
pub(crate) const INODE_BLOCK: u32 = 512;
/// Bytes of a block of content, and of a bucket.
pub(crate) const BLOCK: u32 = 4096;
/// The same two as lengths of memory.
pub(crate) const INODE_LEN: usize = 512;
pub(crate) const BLOCK_LEN: usize = 4096;
/// Bytes of a block of the other lists.
pub(crate) const SMALL_BLOCK: u32 = 64;
/// So many blocks of the list of content belong to each inode: the first half for content, ...
pub(crate) const SHARE: u64 = 32;
/// ... the second for extended attributes.
pub(crate) const FIRST: u64 = SHARE / 2;

record! {
    /// Block 0 of the list of inodes.
    Super: 64 {
        /// `LODEFILE`.
        0 magic: u64,
        /// Version of the format.
        8 version: u32,
        /// Features that a reader must know: none so far.
        12 features: u32,
        /// The key of the hashes of names.
        16 key: u128,
        /// When the file system was made.
        32 made: i64,
        /// The list of content.
        40 content: u32,
        /// The list of inodes without a name.
        44 orphans: u32,
        /// The list of owners of lists.
        48 owners: u32,
        /// Zero.
        52 reserved: u32,
        /// Zero.
        56 reserved_b: u64,
    }
}

record! {
    /// Block n of the list of inodes: inode n. Followed by its extended attributes, if they fit behind it.
    InodeHead: 144 {
        /// What it is and who may what, as POSIX has it.
        0 mode: u32,
        /// Owner.
        4 uid: u32,
        /// Group.
        8 gid: u32,
        /// Names that it has; of a directory two, and one for each directory in it.
        12 links: u32,
        /// Bytes of content. A directory: bytes of its entries.
        16 size: u64,
        /// Blocks of content that are stored.
        24 blocks: u64,
        /// When it was read, in nanoseconds since 1970.
        32 accessed: i64,
        /// When its content was changed.
        40 modified: i64,
        /// When anything was changed.
        48 changed: i64,
        /// When it was made.
        56 made: i64,
        /// The inode's number.
        64 number: u64,
        /// The position of the log when it was made.
        72 generation: u64,
        /// Counts changes of content and attributes.
        80 version: u64,
        /// Counts changes of its entries, or of its number of names.
        88 turns: u64,
        /// The directory that it has a name in: the only one, or one of them.
        96 parent: u64,
        /// A directory: how many entries.
        104 entries: u64,
        /// The list of its own; none.
        112 list: u32,
        /// A device: which.
        116 device: u32,
        /// Bytes of its extended attributes: behind this if they fit in the block, else in blocks of their own.
        120 attributes: u32,
        /// A directory: the greatest depth of its buckets.
        124 depth: u32,
        /// Zero.
        128 reserved: u64,
        /// Zero.
        136 reserved_b: u64,
    }
}

record! {
    /// A bucket: entries of a directory, ordered by hash and name. Followed by each entry's head and name.
    BucketHead: 24 {
        /// `LDIR`.
        0 magic: u32,
        /// How many entries.
        4 count: u32,
        /// The directory.
        8 directory: u64,
        /// Its number: 1 the root; 2n and 2n + 1 what n was divided into.
        16 node: u64,
    }
}

record! {
    /// What stands in front of a name.
    EntryHead: 18 {
        /// The upper 63 bits of the SipHash-2-4 of the name, at least 16.
        0 hash: u64,
        /// What it names.
        8 inode: u64,
        /// The upper four of the sixteen bits of its mode.
        16 kind: u8,
        /// Bytes of the name.
        17 length: u8,
    }
}

record! {
    /// What stands in front of an extended attribute: its name, then its value, follow.
    AttributeHead: 8 {
        /// Bytes of the name.
        0 name: u32,
        /// Bytes of the value.
        4 value: u32,
    }
}

record! {
    /// A block of the list of owners: list n belongs to this inode.
    Owner: 16 {
        /// The inode.
        0 inode: u64,
        /// Not zero.
        8 used: u64,
    }
}

/// The format as a page of Markdown.
pub fn describe() -> String {
    let mut text = String::from(include_str!("format.md"));
    macro_rules! tables {
        ($($name:ident),*) => {$( table(&mut text, stringify!($name), $name::SIZE, $name::ABOUT, $name::FIELDS); )*};
    }
    tables!(Super, InodeHead, BucketHead, EntryHead, AttributeHead, Owner);
    text
}
