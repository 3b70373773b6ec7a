//! Zones in a regular file or on a block device.
//!
//! An **image** ([`RawImage`]) is the file as a row of bytes: whoever opens it looks for a header there, and
//! then turns it into a medium ([`FileMedium`]) by saying how long a zone is. Zone `n` lies at `n * zone_bytes`.
//!
//! * Direct I/O is used where the file system has it; one image never mixes direct and buffered I/O, since the
//!   kernel does not promise that they agree. [`FileMedium::direct`] tells which it is.
//! * One writer, or several readers: a lock on the open file, held until the image is dropped. A block device is
//!   opened exclusively for writing too, so that a mounted one is refused.
//! * Space is reserved when the image is made, and *written* when a zone is erased (M5): an extent that is only
//!   allocated needs a change of metadata at the first write, which can fail for want of space later.
//!   File systems that copy on write (Btrfs, ZFS) and thin devices promise nothing by either: there M5 holds as
//!   far as they do. On network file systems the lock is as good as theirs.
//! * After an append or a sync has failed, the kernel's idea of what is on the device can no longer be trusted
//!   (pages are marked clean by a failed fsync): every later append, erase and sync fails with the first error.
//!   Reads go on. Opening the image again starts anew.

mod batch;
mod calls;
mod create;
mod handle;
mod image;
mod lock;
mod medium;
mod real;
mod ring;
mod spare;

#[cfg(test)]
mod scripted;

pub use create::CreateOptions;
pub use image::RawImage;
pub use medium::FileMedium;

pub(crate) use calls::Kernel;
pub(crate) use create::sync_directory;
pub(crate) use handle::Handle;
pub(crate) use lock::lock;

/// What an image is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading only: shared with other readers, refused while there is a writer.
    ReadOnly,
    /// Reading and writing: nobody else may have the image open.
    ReadWrite,
}

/// How groups of reads are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// Together through io_uring if the kernel allows it, else one after another.
    #[default]
    Auto,
    /// One after another; io_uring is never used.
    Plain,
}
