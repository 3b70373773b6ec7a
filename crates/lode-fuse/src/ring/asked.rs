//! Requests as bytes, decoded: nothing that they say of their own length is believed.
//!
//! A request over a ring has a header, the fixed part of its operation (128 bytes, of which it has as many as it needs), and a
//! payload: names with a zero behind each, values, what is to be written. Shapes: `include/uapi/linux/fuse.h`.

use crate::door::{Answer, Asker};
use crate::node::Node;
use lode_fs::{Changes, Time};
use rustix::io::Errno;

/// `enum fuse_opcode`, those that are answered here.
mod op {
    pub const LOOKUP: u32 = 1;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// Flags of `struct fuse_setattr_in`: what is to be set.
mod attribute {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Of `struct fuse_write_in`: who writes may not leave a program with its owner's rights.
const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// Who asks, about what, and which operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub operation: u32,
    pub node: Node,
    pub asker: Asker,
}

/// What is asked, of the node of the header.
#[derive(Debug)]
pub(crate) enum Asked<'a> {
    Lookup(&'a [u8]),
    Attributes,
    /// With the time of its making.
    Statx,
    /// `drops`: nobody is to run the file with its owner's rights any more.
    SetAttributes {
        changes: Changes,
        drops: bool,
        /// When the kernel has it changed.
        changed: Option<Time>,
    },
    ReadLink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    /// Mode and mask.
    MakeNode {
        name: &'a [u8],
        modes: (u32, u32),
        device: u32,
    },
    MakeDirectory {
        name: &'a [u8],
        modes: (u32, u32),
    },
    MakeNameless {
        modes: (u32, u32),
    },
    Unlink(&'a [u8]),
    RemoveDirectory(&'a [u8]),
    Rename {
        name: &'a [u8],
        to: Node,
        new_name: &'a [u8],
        flags: u32,
    },
    Link {
        node: Node,
        name: &'a [u8],
    },
    Read {
        offset: u64,
        size: usize,
    },
    Write {
        offset: u64,
        bytes: &'a [u8],
        drops: bool,
    },
    Statistics,
    Flush,
    FlushAll,
    SetExtended {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
    },
    Extended {
        name: &'a [u8],
        size: u32,
    },
    ExtendedNames {
        size: u32,
    },
    RemoveExtended(&'a [u8]),
    List {
        offset: u64,
        size: usize,
        looked_up: bool,
    },
    Allocate {
        offset: u64,
        length: u64,
        mode: u32,
    },
    Seek {
        offset: u64,
        whence: u32,
    },
    /// `wide`: the answer has 64 bits.
    Copy {
        offset: u64,
        to: Node,
        to_offset: u64,
        length: u64,
        wide: bool,
    },
    /// Nothing is to be done.
    Nothing,
}

/// Numbers at their places.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(self, at: usize) -> Answer<u32> {
        let bytes = self.0.get(at..).and_then(<[u8]>::first_chunk).ok_or(Errno::INVAL)?;
        Ok(u32::from_ne_bytes(*bytes))
    }

    fn u64(self, at: usize) -> Answer<u64> {
        let bytes = self.0.get(at..).and_then(<[u8]>::first_chunk).ok_or(Errno::INVAL)?;
        Ok(u64::from_ne_bytes(*bytes))
    }

    fn len(self, at: usize) -> Answer<usize> {
        usize::try_from(self.u32(at)?).map_err(|_| Errno::INVAL)
    }
}

/// A name, and what stands behind its zero.
fn name(payload: &[u8]) -> Answer<(&[u8], &[u8])> {
    let end = payload.iter().position(|byte| *byte == 0).ok_or(Errno::INVAL)?;
    Ok((&payload[..end], &payload[end + 1..]))
}

/// Two names.
fn names(payload: &[u8]) -> Answer<(&[u8], &[u8])> {
    let (first, behind) = name(payload)?;
    Ok((first, name(behind)?.0))
}

fn only(payload: &[u8]) -> Answer<&[u8]> {
    Ok(name(payload)?.0)
}

/// `struct fuse_in_header`.
pub(crate) fn header(bytes: &[u8]) -> Answer<Header> {
    let fields = Fields(bytes);
    let asker = Asker { uid: fields.u32(24)?, gid: fields.u32(28)?, pid: fields.u32(32)? };
    Ok(Header { operation: fields.u32(4)?, node: Node(fields.u64(16)?), asker })
}

/// `struct fuse_setattr_in`.
fn changes(fields: Fields<'_>, now: Time) -> Answer<Asked<'static>> {
    let valid = fields.u32(0)?;
    let set = |flag: u32| valid & flag != 0;
    let time = |flag, now_flag, seconds: usize, nanoseconds: usize| -> Answer<Option<Time>> {
        Ok(match (set(flag), set(now_flag)) {
            (false, _) => None,
            (true, true) => Some(now),
            (true, false) => {
                Some(Time::new(fields.u64(seconds)?.cast_signed(), fields.u32(nanoseconds)?.min(999_999_999)))
            }
        })
    };
    let number =
        |flag, at: usize| -> Answer<Option<u32>> { if set(flag) { fields.u32(at).map(Some) } else { Ok(None) } };
    let changes = Changes {
        permissions: number(attribute::MODE, 68)?.map(|mode| mode & 0o7777),
        uid: number(attribute::UID, 76)?,
        gid: number(attribute::GID, 80)?,
        size: if set(attribute::SIZE) { Some(fields.u64(16)?) } else { None },
        accessed: time(attribute::ATIME, attribute::ATIME_NOW, 32, 56)?,
        modified: time(attribute::MTIME, attribute::MTIME_NOW, 40, 60)?,
    };
    let changed = time(attribute::CTIME, 0, 48, 64)?;
    Ok(Asked::SetAttributes { changes, drops: set(attribute::KILL_SUIDGID), changed })
}

/// `struct fuse_copy_file_range_in`.
fn copy(fields: Fields<'_>, wide: bool) -> Answer<Asked<'static>> {
    let to = Node(fields.u64(16)?);
    Ok(Asked::Copy { offset: fields.u64(8)?, to, to_offset: fields.u64(32)?, length: fields.u64(40)?, wide })
}

/// What an operation asks. `INVAL`: it is not shaped as its operation is. `NOSYS`: there is no such operation here.
pub(crate) fn decode<'a>(operation: u32, arguments: &[u8], payload: &'a [u8], now: Time) -> Answer<Asked<'a>> {
    let fields = Fields(arguments);
    Ok(match operation {
        op::LOOKUP => Asked::Lookup(only(payload)?),
        op::GETATTR => Asked::Attributes,
        op::STATX => Asked::Statx,
        op::SETATTR => changes(fields, now)?,
        op::READLINK => Asked::ReadLink,
        op::SYMLINK => {
            let (name, target) = names(payload)?;
            Asked::Symlink { name, target }
        }
        op::MKNOD => {
            let modes = (fields.u32(0)?, fields.u32(8)?);
            Asked::MakeNode { name: only(payload)?, modes, device: fields.u32(4)? }
        }
        op::MKDIR => Asked::MakeDirectory { name: only(payload)?, modes: (fields.u32(0)?, fields.u32(4)?) },
        op::TMPFILE => Asked::MakeNameless { modes: (fields.u32(4)?, fields.u32(8)?) },
        op::UNLINK => Asked::Unlink(only(payload)?),
        op::RMDIR => Asked::RemoveDirectory(only(payload)?),
        op::RENAME | op::RENAME2 => {
            let (name, new_name) = names(payload)?;
            let flags = if operation == op::RENAME2 { fields.u32(8)? } else { 0 };
            Asked::Rename { name, to: Node(fields.u64(0)?), new_name, flags }
        }
        op::LINK => Asked::Link { node: Node(fields.u64(0)?), name: only(payload)? },
        op::READ => Asked::Read { offset: fields.u64(8)?, size: fields.len(16)? },
        op::WRITE => {
            let bytes = payload.get(..fields.len(16)?).ok_or(Errno::INVAL)?;
            Asked::Write { offset: fields.u64(8)?, bytes, drops: fields.u32(20)? & WRITE_KILL_SUIDGID != 0 }
        }
        op::STATFS => Asked::Statistics,
        op::FSYNC => Asked::Flush,
        op::FSYNCDIR => Asked::FlushAll,
        op::SETXATTR => {
            let (name, behind) = name(payload)?;
            let value = behind.get(..fields.len(0)?).ok_or(Errno::INVAL)?;
            Asked::SetExtended { name, value, flags: fields.u32(4)? }
        }
        op::GETXATTR => Asked::Extended { name: only(payload)?, size: fields.u32(0)? },
        op::LISTXATTR => Asked::ExtendedNames { size: fields.u32(0)? },
        op::REMOVEXATTR => Asked::RemoveExtended(only(payload)?),
        op::READDIR | op::READDIRPLUS => {
            let looked_up = operation == op::READDIRPLUS;
            Asked::List { offset: fields.u64(8)?, size: fields.len(16)?, looked_up }
        }
        op::FALLOCATE => Asked::Allocate { offset: fields.u64(8)?, length: fields.u64(16)?, mode: fields.u32(24)? },
        op::LSEEK => Asked::Seek { offset: fields.u64(8)?, whence: fields.u32(16)? },
        op::COPY_FILE_RANGE => copy(fields, false)?,
        op::COPY_FILE_RANGE_64 => copy(fields, true)?,
        op::RELEASE | op::RELEASEDIR => Asked::Nothing,
        // Among them opening, closing and `create`: the kernel need not ask again.
        _ => return Err(Errno::NOSYS),
    })
}

#[cfg(test)]
mod tests;
