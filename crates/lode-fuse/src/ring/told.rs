//! Answers as bytes. Shapes: `include/uapi/linux/fuse.h`.

use crate::door::{Answer, BELIEVED, BLOCK, Known, Looked, NAME_MAX};
use crate::node::Node;
use lode_fs::{Entry, Statistics, Time};
use rustix::io::Errno;

/// `struct fuse_entry_out`.
const ENTRY_LEN: usize = 128;
/// `struct fuse_dirent`, without the name.
const DIRENT_LEN: usize = 24;
/// `STATX_BASIC_STATS` and `STATX_BTIME`.
const STATX_MASK: u32 = 0xfff;

/// An answer that grows in the room that there is.
pub(crate) struct Told<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl<'a> Told<'a> {
    pub fn new(room: &'a mut [u8]) -> Told<'a> {
        Told { room, len: 0 }
    }

    /// How long it is.
    pub fn done(self) -> Answer<usize> {
        Ok(self.len)
    }

    fn left(&self) -> usize {
        self.room.len() - self.len
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> Answer<()> {
        let into = self.room.get_mut(self.len..self.len + bytes.len()).ok_or(Errno::RANGE)?;
        into.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    pub fn u32(&mut self, number: u32) -> Answer<()> {
        self.bytes(&number.to_ne_bytes())
    }

    pub fn u64(&mut self, number: u64) -> Answer<()> {
        self.bytes(&number.to_ne_bytes())
    }

    fn zeros(&mut self, len: usize) -> Answer<()> {
        self.bytes(&[0; 128][..len])
    }

    fn mode(known: &Known) -> u32 {
        known.found.kind.bits() | known.found.permissions
    }

    /// `struct fuse_attr`.
    fn attr(&mut self, known: &Known) -> Answer<()> {
        let found = &known.found;
        let times = [found.accessed, found.modified, found.changed].map(Time::parts);
        for number in [known.node.0, found.size, found.stored / 512] {
            self.u64(number)?;
        }
        for (seconds, _) in times {
            self.u64(seconds.cast_unsigned())?;
        }
        for (_, nanoseconds) in times {
            self.u32(nanoseconds)?;
        }
        for number in [Self::mode(known), found.links, found.uid, found.gid, found.device, BLOCK, 0] {
            self.u32(number)?;
        }
        Ok(())
    }

    /// `struct fuse_attr_out`.
    pub fn attributes(&mut self, known: &Known) -> Answer<()> {
        self.u64(known.believed.as_secs())?;
        self.u64(0)?;
        self.attr(known)
    }

    /// `struct fuse_entry_out`, with how long the name and the attributes are believed: what has a name.
    pub fn entry(&mut self, known: &Known) -> Answer<()> {
        let believed = known.believed.as_secs();
        for number in [known.node.0, known.found.generation, believed, believed, 0] {
            self.u64(number)?;
        }
        self.attr(known)
    }

    /// What a name means, also nothing.
    pub fn looked(&mut self, looked: &Looked) -> Answer<()> {
        match looked {
            Looked::Here(known) => self.entry(known),
            Looked::Nothing => {
                self.zeros(16)?;
                self.u64(BELIEVED.as_secs())?;
                self.zeros(ENTRY_LEN - 24)
            }
        }
    }

    /// `struct fuse_entry_out` and `struct fuse_open_out`: a new file, open.
    pub fn opened(&mut self, known: &Known) -> Answer<()> {
        self.entry(known)?;
        self.zeros(16)
    }

    fn time(&mut self, time: Time) -> Answer<()> {
        let (seconds, nanoseconds) = time.parts();
        self.u64(seconds.cast_unsigned())?;
        self.u64(nanoseconds.into())
    }

    /// `struct fuse_statx_out`.
    pub fn statx(&mut self, known: &Known) -> Answer<()> {
        let found = &known.found;
        self.u64(known.believed.as_secs())?;
        self.zeros(24)?;
        self.u32(STATX_MASK)?;
        self.u32(BLOCK)?;
        self.u64(0)?;
        for number in [found.links, found.uid, found.gid, Self::mode(known)] {
            self.u32(number)?;
        }
        for number in [known.node.0, found.size, found.stored / 512, 0] {
            self.u64(number)?;
        }
        for time in [found.accessed, found.made, found.changed, found.modified] {
            self.time(time)?;
        }
        self.u32(rustix::fs::major(found.device.into()))?;
        self.u32(rustix::fs::minor(found.device.into()))?;
        self.zeros(8 + 14 * 8)
    }

    /// `struct fuse_statfs_out`.
    pub fn statistics(&mut self, found: &Statistics) -> Answer<()> {
        let blocks = |bytes: u64| bytes / u64::from(BLOCK);
        let free = blocks(found.free);
        for number in [blocks(found.bytes), free, free, found.inodes, found.free_inodes] {
            self.u64(number)?;
        }
        for number in [BLOCK, NAME_MAX, BLOCK, 0] {
            self.u32(number)?;
        }
        self.zeros(24)
    }

    /// `struct fuse_write_out` and others that have a number of 32 bits.
    pub fn count(&mut self, count: u32) -> Answer<()> {
        self.u64(count.into())
    }

    /// `struct fuse_dirent`. Whether there was room.
    pub fn dirent(&mut self, node: Node, entry: &Entry) -> bool {
        let len = DIRENT_LEN + entry.name.len().next_multiple_of(8);
        len <= self.left() && self.put_dirent(node, entry).is_ok()
    }

    /// `struct fuse_direntplus`. Whether there was room.
    pub fn dirent_looked_up(&mut self, known: &Known, entry: &Entry) -> bool {
        let len = ENTRY_LEN + DIRENT_LEN + entry.name.len().next_multiple_of(8);
        len <= self.left() && self.entry(known).and_then(|()| self.put_dirent(known.node, entry)).is_ok()
    }

    fn put_dirent(&mut self, node: Node, entry: &Entry) -> Answer<()> {
        let len = entry.name.len();
        self.u64(node.0)?;
        self.u64(entry.next)?;
        self.u32(u32::try_from(len).map_err(|_| Errno::INVAL)?)?;
        self.u32(entry.kind.bits() >> 12)?;
        self.bytes(&entry.name)?;
        self.zeros(len.next_multiple_of(8) - len)
    }
}

#[cfg(test)]
mod tests;
