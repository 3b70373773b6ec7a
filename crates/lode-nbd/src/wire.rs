//! The protocol's numbers, and how integers are taken from bytes.
//!
//! Source: the NBD project's `doc/proto.md`. All integers are big-endian.

/// First eight bytes that a server sends: `NBDMAGIC`.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Begins every option, and follows the greeting: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Begins every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Begins every request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Begins every simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Begins every chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Bytes of an option before its data.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes of a request before its payload.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply before its payload.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of a chunk of a structured reply before its content.
pub const CHUNK_BYTES: usize = 20;

/// Handshake flags, the same bits from server and client.
pub mod handshake_flags {
    /// The peer speaks the fixed newstyle handshake.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// No 124 zeroes after EXPORT_NAME.
    pub const NO_ZEROES: u16 = 2;
}

/// Options of the handshake.
pub mod options {
    /// Choose an export and begin the transmission, without a way to refuse politely.
    pub const EXPORT_NAME: u32 = 1;
    /// End the handshake.
    pub const ABORT: u32 = 2;
    /// Name the exports.
    pub const LIST: u32 = 3;
    /// Begin TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Choose an export and begin the transmission.
    pub const GO: u32 = 7;
    /// Structured replies are understood.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Name the metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Items of information about an export.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The export's own name.
    pub const NAME: u16 = 1;
    /// Smallest and best sizes of a request, and the largest payload.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Replies to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OptionReply {
    /// Done.
    Ack = 1,
    /// One export's name.
    Server = 2,
    /// One item of information.
    Info = 3,
    /// One metadata context.
    MetaContext = 4,
    /// The server does not know the option.
    ErrUnsup = 0x8000_0001,
    /// The server knows it, and its owner forbids it.
    ErrPolicy = 0x8000_0002,
    /// The data is malformed, or the option comes at the wrong time.
    ErrInvalid = 0x8000_0003,
    /// There is no such export.
    ErrUnknown = 0x8000_0006,
    /// The server is going down.
    ErrShutdown = 0x8000_0007,
    /// The data is too long.
    ErrTooBig = 0x8000_0009,
}

impl OptionReply {
    /// The number on the wire.
    pub const fn code(self) -> u32 {
        // The numbers above are the protocol's; repr(u32) makes this exact.
        self as u32
    }
}

/// Transmission flags: what an export can do.
pub mod export_flags {
    /// The flags have a meaning at all.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH is known.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// FUA is known.
    pub const SEND_FUA: u16 = 1 << 3;
    /// TRIM is known.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES is known.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// "Do not fragment" is known.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers the writes of all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE is known.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// FAST_ZERO is known.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Commands of a request.
pub mod commands {
    /// Read bytes.
    pub const READ: u16 = 0;
    /// Write bytes.
    pub const WRITE: u16 = 1;
    /// End the connection.
    pub const DISC: u16 = 2;
    /// Make what was replied to durable.
    pub const FLUSH: u16 = 3;
    /// Forget bytes.
    pub const TRIM: u16 = 4;
    /// Read ahead.
    pub const CACHE: u16 = 5;
    /// Write zeroes without sending them.
    pub const WRITE_ZEROES: u16 = 6;
    /// Tell what is allocated.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of a request.
pub mod command_flags {
    /// Durable before the reply.
    pub const FUA: u16 = 1 << 0;
    /// Zeroes must stay allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// One chunk of data only.
    pub const DF: u16 = 1 << 2;
    /// One extent only.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Zero faster than writing, or fail at once.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Types of a chunk of a structured reply.
pub mod chunks {
    /// The last chunk's flag.
    pub const FLAG_DONE: u16 = 1;
    /// Nothing.
    pub const NONE: u16 = 0;
    /// An offset and bytes.
    pub const OFFSET_DATA: u16 = 1;
    /// An offset and a number of zeroes.
    pub const OFFSET_HOLE: u16 = 2;
    /// A context and its extents.
    pub const BLOCK_STATUS: u16 = 5;
    /// An error.
    pub const ERROR: u16 = 0x8001;
}

/// The metadata context that every export has.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// The number that stands for [`BASE_ALLOCATION`] in replies.
pub const BASE_ALLOCATION_ID: u32 = 1;
/// `base:allocation`: hole, and reads as zeroes.
pub const STATE_HOLE_ZERO: u32 = 3;

/// The protocol's error numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// EPERM.
    NotPermitted = 1,
    /// EIO.
    Io = 5,
    /// ENOMEM.
    NoMemory = 12,
    /// EINVAL.
    Invalid = 22,
    /// ENOSPC.
    NoSpace = 28,
    /// EOVERFLOW.
    Overflow = 75,
    /// ENOTSUP.
    NotSupported = 95,
    /// ESHUTDOWN.
    Shutdown = 108,
}

impl Errno {
    /// The number on the wire.
    pub const fn code(self) -> u32 {
        // As in `OptionReply::code`.
        self as u32
    }
}

/// A length in memory as a length on the wire.
pub(crate) fn wide(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("a usize has at most 64 bits")
}

/// A length on the wire as a length in memory.
pub(crate) fn narrow(bytes: u32) -> usize {
    usize::try_from(bytes).expect("a usize has at least 32 bits")
}

/// Takes a `u16` from the front of `bytes`.
pub fn take_u16(bytes: &mut &[u8]) -> Option<u16> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u16::from_be_bytes(*head))
}

/// Takes a `u32` from the front of `bytes`.
pub fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_be_bytes(*head))
}

/// Takes a `u64` from the front of `bytes`.
pub fn take_u64(bytes: &mut &[u8]) -> Option<u64> {
    let (head, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_be_bytes(*head))
}

/// Takes `count` bytes from the front of `bytes`, none if there are fewer.
pub fn take_bytes<'a>(bytes: &mut &'a [u8], count: u32) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(usize::try_from(count).ok()?)?;
    *bytes = rest;
    Some(head)
}
