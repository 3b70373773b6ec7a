//! Content.

use super::{Answer, Door, now, told};
use crate::node::Node;
use lode_fs::Allocation;
use rustix::io::Errno;

/// Whence of `lseek`.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// So much is copied in one request.
const COPY_MAX: u64 = 1 << 30;

impl Door {
    pub fn read(&self, node: Node, offset: u64, into: &mut [u8]) -> Answer<usize> {
        let (_, view, ino) = self.at(node)?;
        told(view.read(ino, offset, into))
    }

    /// `drops`: nobody is to run the file with its owner's rights any more.
    pub fn write(&self, node: Node, offset: u64, bytes: &[u8], drops: bool) -> Answer<u32> {
        let (_, view, ino) = self.at(node)?;
        told(view.drop_privileges(ino, drops, now()))?;
        told(view.write(ino, offset, bytes, now()))?;
        u32::try_from(bytes.len()).map_err(|_| Errno::INVAL)
    }

    pub fn read_link(&self, node: Node) -> Answer<Vec<u8>> {
        let (_, view, ino) = self.at(node)?;
        told(view.read_link(ino))
    }

    pub fn flush(&self, node: Node) -> Answer<()> {
        let (_, view, ino) = self.at(node)?;
        told(view.flush(ino))
    }

    /// Of a directory. Linux does not hand `sync` on to whoever serves a mount: this is what is done instead.
    pub fn flush_all(&self, node: Node) -> Answer<()> {
        let (_, view, _) = self.at(node)?;
        told(view.flush_all())
    }

    pub fn allocate(&self, node: Node, offset: u64, length: u64, mode: u32) -> Answer<()> {
        let how = match mode {
            0 => Allocation::Grow,
            1 => Allocation::Keep,
            3 => Allocation::Punch,
            0x10 => Allocation::Zero,
            0x11 => Allocation::ZeroKeep,
            _ => return Err(Errno::OPNOTSUPP),
        };
        let (_, view, ino) = self.at(node)?;
        told(view.allocate(ino, how, offset, length, now()))
    }

    pub fn seek(&self, node: Node, offset: u64, whence: u32) -> Answer<u64> {
        let hole = match whence {
            SEEK_DATA => false,
            SEEK_HOLE => true,
            _ => return Err(Errno::INVAL),
        };
        // One that is negative for the kernel.
        if i64::try_from(offset).is_err() {
            return Err(Errno::NXIO);
        }
        let (_, view, ino) = self.at(node)?;
        told(view.seek(ino, hole, offset))
    }

    pub fn copy(&self, from: (Node, u64), to: (Node, u64), length: u64) -> Answer<u32> {
        let (_, view, ino, to_ino) = self.both(from.0, to.0)?;
        let done = told(view.copy(ino, from.1, to_ino, to.1, length.min(COPY_MAX), now()))?;
        u32::try_from(done).map_err(|_| Errno::IO)
    }
}
