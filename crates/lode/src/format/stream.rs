//! What `send` writes and `receive` reads: a volume as a snapshot saw it, or what changed of it since an older one.
//!
//! ```text
//!   StreamHead, two StreamIdentity, names, checksum │ StreamPiece, bytes │ StreamPiece │ ... │ StreamEnd
//! ```
//! Pieces follow each other without a gap, from the position in the head to the end of the volume: what is not changed,
//! and what is a hole, are pieces too. So a piece that is missing, or stands in another place, shows at once.

use super::record;

/// "LODESEND".
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"LODESEND");
/// "SPIE".
pub(crate) const PIECE_MAGIC: u32 = u32::from_le_bytes(*b"SPIE");
/// "SEND".
pub(crate) const END_MAGIC: u32 = u32::from_le_bytes(*b"SEND");
/// The version of streams that this code writes, and the only one that it reads.
pub(crate) const VERSION: u16 = 1;
/// A piece brings at most so many bytes.
pub(crate) const PIECE_BYTES_MAX: u32 = 1 << 20;

record! {
    /// What a stream begins with. Followed by two StreamIdentity, of the snapshot sent and of the one that the receiver
    /// has (zeros in a full stream); by the names of the volume and of the snapshot; and by a u32, the CRC-32C of all
    /// of this.
    StreamHead: 40 {
        /// "LODESEND".
        0 magic: u64,
        /// 1.
        8 version: u16,
        /// Block size of the volume: 2 to this power.
        10 block_shift: u8,
        /// Compression of the volume, as in List.
        11 compression: u8,
        /// 0: a full stream. 1: what changed since the second snapshot.
        12 incremental: u32,
        /// Size of the volume in the snapshot sent, in bytes.
        16 bytes: u64,
        /// Where in the volume the first piece begins: not at 0 if the stream goes on with one that was cut.
        24 position: u64,
        /// Bytes of the volume's name.
        32 name: u32,
        /// Bytes of the snapshot's name.
        36 snapshot_name: u32,
    }
}

record! {
    /// Names the content of a volume in a snapshot, on whatever disk: a snapshot that came in a stream keeps what the
    /// stream says. A copy of a disk has the same id and may give the same numbers; the time tells them apart.
    StreamIdentity: 32 {
        /// The id of the disk where the snapshot was taken.
        0 disk: u128,
        /// The number of the volume's list there.
        16 list: u32,
        /// The number of the snapshot there; not 0.
        20 snapshot: u32,
        /// When it was taken, in nanoseconds since 1970.
        24 made: u64,
    }
}

record! {
    /// A piece of the volume. Followed by `stored` bytes.
    StreamPiece: 40 {
        /// "SPIE".
        0 magic: u32,
        /// 0 as in the older snapshot, 1 a hole, 2 bytes, 3 bytes compressed by lz4.
        4 kind: u32,
        /// Where it begins: where the one before has ended.
        8 offset: u64,
        /// Its length, not 0; with bytes at most 1 MiB.
        16 length: u64,
        /// How many bytes follow: none of kinds 0 and 1, `length` of kind 2, fewer than `length` of kind 3.
        24 stored: u32,
        /// CRC-32C of these.
        28 checksum: u32,
        /// Zero.
        32 reserved: u32,
        /// CRC-32C of the 36 bytes before.
        36 head_checksum: u32,
    }
}

record! {
    /// The end of a stream, behind the piece that ends with the volume.
    StreamEnd: 40 {
        /// "SEND".
        0 magic: u32,
        /// Zero.
        4 reserved: u32,
        /// How many pieces the stream has.
        8 pieces: u64,
        /// Bytes that its pieces bring, unpacked.
        16 data: u64,
        /// CRC-64/NVME of everything before the StreamEnd.
        24 checksum: u64,
        /// Zero.
        32 reserved_b: u32,
        /// CRC-32C of the 36 bytes before.
        36 head_checksum: u32,
    }
}

/// "LODEKEPT".
pub(crate) const KEPT_MAGIC: u64 = u64::from_le_bytes(*b"LODEKEPT");

record! {
    /// How far a stream was received: the cookie of the unit that takes it in, as of its last barrier. Followed by the
    /// head of the stream, as it is at position 0, from its StreamHead to its checksum; and by the name that the
    /// snapshot is to get. The unit's label is the name that the volume is to get, and `.receiving`.
    StreamKept: 32 {
        /// "LODEKEPT".
        0 magic: u64,
        /// Everything before this place in the volume is in the unit.
        8 position: u64,
        /// Bytes that the stream has brought so far.
        16 data: u64,
        /// The list that it is written into: the volume, or a new one that is empty until the commit.
        24 list: u32,
        /// Bytes of the snapshot's name.
        28 snapshot_name: u32,
    }
}

/// The checksum of everything, taken as the stream goes by.
pub(crate) struct Sum(crc_fast::Digest);

impl Sum {
    pub fn new() -> Sum {
        Sum(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme))
    }

    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn value(&self) -> u64 {
        self.0.finalize()
    }
}
