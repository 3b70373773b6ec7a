//! Operations on the content of files.

use crate::error::{Error, ErrorKind, Result};
use crate::format::BLOCK_LEN;
use crate::inodes::Inode;
use crate::op::{Op, u64_of, usize_of};
use crate::types::{Allocation, Ino, Kind, Time};
use crate::view::{Of, View};

/// So much is copied in one step from file to file.
const COPIED: u64 = 1 << 20;

impl Op<'_> {
    pub(crate) fn file(&self, ino: Ino) -> Result<Inode> {
        let inode = self.inode(ino)?;
        match inode.kind() {
            Kind::File => Ok(inode),
            Kind::Directory => Err(Error::new(ErrorKind::IsDirectory, "a directory")),
            _ => Err(Error::new(ErrorKind::Invalid, "not a file")),
        }
    }
}

/// The end of a stretch, if there can be one.
fn end_of(offset: u64, bytes: u64) -> Result<u64> {
    offset.checked_add(bytes).ok_or_else(|| {
        Error::new(ErrorKind::TooLarge, format!("{bytes} bytes from {offset} on: that is more than a file can have"))
    })
}

impl View {
    /// Fills `into` with the content from `offset` on, and gives back how much there is of it. A symbolic link has its
    /// target for content. Cost: a look at the inode, and the blocks.
    pub fn read(&self, ino: Ino, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.look_only(&[ino], |op| {
            let inode = op.inode(ino)?;
            if inode.is_directory() {
                return Err(Error::new(ErrorKind::IsDirectory, "a directory"));
            }
            let len = usize_of(inode.head.size.saturating_sub(offset).min(u64_of(into.len())));
            op.read_content(&inode, offset, &mut into[..len])?;
            Ok(len)
        })
    }

    /// The target of a symbolic link. `Invalid`: it is none.
    pub fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.look(&[ino], |op| {
            let inode = op.inode(ino)?;
            if inode.kind() != Kind::Link {
                return Err(Error::new(ErrorKind::Invalid, "not a symbolic link"));
            }
            if inode.head.size > u64_of(BLOCK_LEN) {
                return Err(Error::damaged(ino, format!("a target of a block, found {} bytes", inode.head.size)));
            }
            let mut target = vec![0; usize_of(inode.head.size)];
            op.read_content(&inode, 0, &mut target)?;
            Ok(target)
        })
    }

    /// Writes content as one step, whatever its length. `TooLarge`, `Full`.
    pub fn write(&self, ino: Ino, offset: u64, bytes: &[u8], now: Time) -> Result<()> {
        end_of(offset, u64_of(bytes.len()))?;
        if matches!(self.of, Of::Now)
            && (self.files.join(ino, offset, bytes, now)? || self.files.gather(ino, offset, bytes, now))
        {
            return Ok(());
        }
        let mut op = self.change(&[ino]);
        let mut inode = op.file(ino)?;
        if bytes.is_empty() {
            return Ok(());
        }
        op.write_content(&mut inode, offset, bytes)?;
        inode.modify(now);
        op.put_inode(&inode);
        op.finish().map(drop)
    }

    /// Writes content behind the end, wherever that is then: two who append never write over each other. Gives back where
    /// it begins.
    pub fn append(&self, ino: Ino, bytes: &[u8], now: Time) -> Result<u64> {
        let mut op = self.change(&[ino]);
        let mut inode = op.file(ino)?;
        let offset = inode.head.size;
        end_of(offset, u64_of(bytes.len()))?;
        op.write_content(&mut inode, offset, bytes)?;
        inode.modify(now);
        op.put_inode(&inode);
        op.finish_then(|| offset)
    }

    /// Makes a stretch stored, zeros, or a hole.
    pub fn allocate(&self, ino: Ino, how: Allocation, offset: u64, bytes: u64, now: Time) -> Result<()> {
        let end = end_of(offset, bytes)?;
        if bytes == 0 {
            return Err(Error::new(ErrorKind::Invalid, "a stretch of no bytes"));
        }
        let mut op = self.change(&[ino]);
        let mut inode = op.file(ino)?;
        match how {
            Allocation::Grow | Allocation::Keep => op.fill_content(&mut inode, offset..end)?,
            Allocation::Punch => op.punch_content(&mut inode, offset..end)?,
            Allocation::Zero | Allocation::ZeroKeep => op.zero_content(&mut inode, offset..end)?,
        }
        if matches!(how, Allocation::Grow | Allocation::Zero) {
            inode.head.size = inode.head.size.max(end);
        }
        inode.modify(now);
        op.put_inode(&inode);
        op.finish().map(drop)
    }

    /// Where the next data is from `offset` on, or the next hole (the end is one). `NoData`: there is none.
    pub fn seek(&self, ino: Ino, hole: bool, offset: u64) -> Result<u64> {
        self.look(&[ino], |op| {
            let inode = op.file(ino)?;
            let none = || Error::new(ErrorKind::NoData, "there is nothing behind this place");
            op.seek_content(&inode, hole, offset)?.ok_or_else(none)
        })
    }

    /// Copies content from one file into another, or within one; holes stay holes where the target has nothing. Each mebibyte
    /// is one step. Gives back how many bytes there were.
    pub fn copy(&self, from: Ino, offset: u64, to: Ino, to_offset: u64, bytes: u64, now: Time) -> Result<u64> {
        end_of(to_offset, bytes)?;
        let mut done = 0;
        let mut piece = Vec::new();
        while done < bytes {
            piece.resize(usize_of((bytes - done).min(COPIED)), 0);
            let len = self.read(from, offset.saturating_add(done), &mut piece)?;
            if len == 0 {
                break;
            }
            self.write(to, to_offset + done, &piece[..len], now)?;
            done += u64_of(len);
        }
        Ok(done)
    }

    /// Everything that was done so far survives the loss of power.
    pub fn flush_all(&self) -> Result<()> {
        match &self.of {
            Of::Now => self.files.sync(),
            Of::Transaction(_) | Of::Snapshot(_) => Ok(()),
        }
    }

    /// What was done to an inode survives the loss of power. Others' changes may, too.
    pub fn flush(&self, ino: Ino) -> Result<()> {
        match &self.of {
            Of::Now => self.files.sync_one(ino),
            // Nothing of a transaction counts before its commit.
            Of::Transaction(_) | Of::Snapshot(_) => Ok(()),
        }
    }
}
