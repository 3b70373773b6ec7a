//! What the server serves, as two traits: [`Exports`] finds a disk by its name, [`Export`] is that disk.
//!
//! The server calls an [`Export`] from many threads at once. It has checked every range against [`Export::size`] and
//! every right against [`Export::read_only`] before.

use std::sync::Arc;

use crate::error::{ExportError, ExportErrorKind};

/// Which failures a request survives once it has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// The end of this process at any instruction.
    Process,
    /// A power cut of the machine too.
    Power,
}

/// A write that was made but not yet waited for. Waiting for a ticket covers every smaller one of the same export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// One read of many: where from, where to, and how it went.
#[derive(Debug)]
pub struct ReadInto<'a> {
    /// First byte in the export.
    pub offset: u64,
    /// Filled whole, or not to be looked at if the result is an error.
    pub into: &'a mut [u8],
    /// Set by [`Export::read_many`]; `Ok` before.
    pub result: Result<(), ExportError>,
}

/// The exports of a server, found by name.
pub trait Exports: Send + Sync {
    /// The names, in the order in which they are shown.
    fn list(&self) -> Result<Vec<String>, ExportError>;

    /// Opens an export for one connection (N4). The server drops it when the connection ends.
    fn open(&self, name: &str) -> Result<Arc<dyn Export>, ExportError>;

    /// The metadata contexts that an export offers beside `base:allocation`: `NAMESPACE:LEAF` each, none twice, in the
    /// order in which they are shown. Opens nothing (N4). [`Export::context`] knows the same names.
    fn contexts(&self, name: &str) -> Result<Vec<String>, ExportError> {
        let _ = name;
        Ok(Vec::new())
    }
}

/// A metadata context of an open export: what its name meant when the export was opened, for as long as the connection
/// lasts.
pub trait Context: Send {
    /// What the context says from `offset` on, as lengths in bytes and flags. At least one, none empty; together they may
    /// cover less than `bytes`, and what is beyond is cut off.
    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<(u64, u32)>, ExportError>;
}

/// A disk as a client sees it.
///
/// Required are the calls that a disk cannot do without. The provided ones have slow but right defaults; an engine
/// overrides [`read_many`](Export::read_many) if it can have many reads in flight, and
/// [`write_unwaited`](Export::write_unwaited) with [`wait`](Export::wait) if one wait can make many writes durable.
pub trait Export: Send + Sync {
    /// Bytes. Asked once for each connection, when it chooses the export: a new size is seen by new connections.
    fn size(&self) -> u64;

    /// Whether every change is refused.
    fn read_only(&self) -> bool;

    /// The size in bytes, a power of two, of requests that are done best.
    fn preferred_block(&self) -> u32;

    /// The size in bytes, a power of two up to 64 KiB, that offsets and lengths must be multiples of.
    fn minimum_block(&self) -> u32 {
        1
    }

    /// Fills `into` from `offset`.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ExportError>;

    /// Does many reads, in any order and as much at once as it can, and sets the result of each.
    fn read_many(&self, reads: &mut [ReadInto<'_>]) {
        for read in reads {
            read.result = self.read(read.offset, read.into);
        }
    }

    /// How many calls of [`read_many`](Export::read_many) or [`read`](Export::read) are worth running at once for one
    /// connection: 1 if reads come from memory or are batched inside, more if each call sleeps in the kernel. With 1
    /// the connection's reader does all of them; with more, worker threads share what a client has in flight.
    fn concurrent_reads(&self) -> usize {
        1
    }

    /// Writes `data` at `offset`, all or nothing whatever its length, and returns when it survives `until`.
    fn write(&self, offset: u64, data: &[u8], until: Durability) -> Result<(), ExportError>;

    /// Writes `data` at `offset` as [`write`](Export::write) does, seen by reads at once, but returns before it
    /// survives anything.
    fn write_unwaited(&self, offset: u64, data: &[u8]) -> Result<Ticket, ExportError> {
        self.write(offset, data, Durability::Process).map(|()| Ticket::default())
    }

    /// Returns when the write of `ticket`, and every one with a smaller ticket, survives `until`.
    fn wait(&self, ticket: Ticket, until: Durability) -> Result<(), ExportError> {
        let _ = ticket;
        match until {
            Durability::Process => Ok(()),
            Durability::Power => self.flush(),
        }
    }

    /// Makes `bytes` from `offset` read as zeroes. Without `may_punch` the space must stay allocated.
    fn zero(&self, offset: u64, bytes: u64, may_punch: bool, until: Durability) -> Result<(), ExportError>;

    /// Whether [`zero`](Export::zero) is much faster than a write of as many bytes.
    fn zero_is_fast(&self, may_punch: bool) -> bool {
        may_punch
    }

    /// Forgets `bytes` from `offset`: afterwards they may read as anything until they are written.
    fn trim(&self, offset: u64, bytes: u64, until: Durability) -> Result<(), ExportError>;

    /// Returns when every write that had returned before the call survives a power cut, whichever connection made it.
    fn flush(&self) -> Result<(), ExportError>;

    /// All that the connection has asked for is done and replied to. What it is likely to ask for next may be done
    /// before it does; what it asks for meanwhile waits.
    fn at_rest(&self) {}

    /// What is allocated from `offset` on, as lengths in bytes and whether each is allocated; what is not reads as
    /// zeroes. At least one, none empty; together they may cover less than `bytes`, and what is beyond is cut off.
    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<(u64, bool)>, ExportError>;

    /// One of the metadata contexts that [`Exports::contexts`] names. Asked for once for each connection that chose it.
    fn context(&self, name: &str) -> Result<Box<dyn Context>, ExportError> {
        Err(ExportError::new(ExportErrorKind::Unknown, format!("there is no metadata context {name}")))
    }
}
