//! Where the bytes of a logical disk live, and every way they fail.
//!
//! A **medium** is an array of equal **zones**. A zone is erased, appended to front to back, read,
//! and erased again. An overwrite cannot be expressed, so one log runs on a file, a raw device,
//! flash or an object store.
//!
//! What every medium keeps, and what the engine relies on:
//!
//! * **M1** `append` is told where it goes: where the previous append of that zone was told to end.
//!   Several appends may be in flight; they may reach stable storage in any order.
//! * **M2** `sync` makes durable every append and erase that had completed before it was called.
//! * **M3** A synced byte is never damaged by a later append. A cut may leave any aligned sector of
//!   an unsynced append old, new, or garbage, each by itself.
//! * **M4** The content of an erased zone is undefined until it is appended to: old bytes, zeros or noise.
//! * **M5** Space is real once `erase` has returned: no later append into that zone fails for want of space.
//! * **M6** A completed append survives the death of this process, synced or not.
//!
//! This crate knows nothing of logs, blocks or units.

mod bounds;
mod buffer;
mod error;
pub mod fault;
pub mod file;
pub mod ram;
pub mod sparse;

#[cfg(test)]
mod scratch;

pub use buffer::AlignedBuffer;
pub use error::{Error, ErrorKind, Result};

/// The number of a zone, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneId(pub u32);

/// A byte of the medium: a zone, and how far into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The zone.
    pub zone: ZoneId,
    /// Bytes from the start of the zone.
    pub offset: u32,
}

/// The shape of a medium. While it is open nothing of it changes but the number of zones, by [`Medium::grow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// How many zones there are.
    pub zones: u32,
    /// Bytes in each zone: a multiple of `append_align`.
    pub zone_bytes: u32,
    /// Offsets and lengths of appends are multiples of this, at least the physical sector (M3).
    pub append_align: u32,
    /// How many devices the zones lie on (1 for all but arrays).
    pub devices: u16,
}

/// One read of a group given to [`Medium::read_many`].
pub struct ReadRequest<'a> {
    /// Where to read.
    pub at: Position,
    /// What to fill; its length is the length of the read.
    pub into: &'a mut [u8],
    /// How it went. Callers pass `Ok(())`.
    pub result: Result<()>,
}

/// An array of zones. See the crate's page for what is promised (M1-M6).
pub trait Medium: Send + Sync {
    /// The shape of the medium.
    fn geometry(&self) -> Geometry;

    /// Fills `into` from `at`. Any offset and length inside one zone; aligned ones are faster.
    fn read(&self, at: Position, into: &mut [u8]) -> Result<()>;

    /// Several reads that may be in flight together. Each request gets its own result.
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        for request in requests {
            request.result = self.read(request.at, request.into);
        }
    }

    /// Appends the pieces, one after another, as one append. The offset and the total length are
    /// multiples of `append_align`; pieces that are [`AlignedBuffer`]s of such lengths are not copied.
    fn append(&self, at: Position, pieces: &[&[u8]]) -> Result<()>;

    /// Makes `zone` ready to be appended to from its start, with its space real (M5).
    fn erase(&self, zone: ZoneId) -> Result<()>;

    /// Makes durable all appends and erases that had completed before this call (M2).
    fn sync(&self) -> Result<()>;

    /// Adds zones at the end until there are so many; `None`: as many as the device below has room for by now. When this
    /// returns they are there for good, also after a power cut, and [`Medium::geometry`] says so. Zones are never taken
    /// away: fewer than there are is no error and changes nothing. New zones are erased before they are appended to.
    fn grow(&self, zones: Option<u32>) -> Result<()> {
        let now = self.geometry().zones;
        match zones {
            Some(zones) if zones > now => {
                let words = format!("expected at most the {now} zones that this medium has for good, found {zones}");
                Err(Error::new(ErrorKind::Unsupported, words))
            }
            _ => Ok(()),
        }
    }

    /// Says that the content of `zone` is no longer needed, so that its space can be given back to whatever is below. A
    /// hint; what it reads as afterwards is undefined (M4), and it is erased before it is appended to again, which makes
    /// its space real again (M5).
    fn discard(&self, _zone: ZoneId) -> Result<()> {
        Ok(())
    }
}

/// A shared medium is a medium.
impl<M: Medium + ?Sized> Medium for std::sync::Arc<M> {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }

    fn read(&self, at: Position, into: &mut [u8]) -> Result<()> {
        (**self).read(at, into)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        (**self).read_many(requests);
    }

    fn append(&self, at: Position, pieces: &[&[u8]]) -> Result<()> {
        (**self).append(at, pieces)
    }

    fn erase(&self, zone: ZoneId) -> Result<()> {
        (**self).erase(zone)
    }

    fn sync(&self) -> Result<()> {
        (**self).sync()
    }

    fn grow(&self, zones: Option<u32>) -> Result<()> {
        (**self).grow(zones)
    }

    fn discard(&self, zone: ZoneId) -> Result<()> {
        (**self).discard(zone)
    }
}
