//! What a request to a medium must keep, checked in one place for all media, and the few conversions of numbers.

use crate::{Error, ErrorKind, Geometry, Position, Result, ZoneId};

/// A length in memory as a length on a medium. Lossless: no platform has addresses wider than 64 bits.
pub(crate) fn wide(len: usize) -> u64 {
    u64::try_from(len).expect("an address has at most 64 bits")
}

/// A length on a medium as one in memory, where it is known that memory of that length exists.
pub(crate) fn narrow(len: u64) -> usize {
    usize::try_from(len).expect("the length of a buffer that exists fits the address space")
}

/// A 32-bit length as one in memory: this crate is for platforms of at least 32 bits.
pub(crate) fn index(len: u32) -> usize {
    usize::try_from(len).expect("an address has at least 32 bits")
}

/// The length of all pieces together.
pub(crate) fn total_len(pieces: &[&[u8]]) -> usize {
    pieces.iter().map(|piece| piece.len()).sum()
}

impl Geometry {
    /// Bytes of all zones together.
    pub(crate) fn total_bytes(&self) -> u64 {
        u64::from(self.zones) * u64::from(self.zone_bytes)
    }

    /// Where a position lies when the zones are laid one after another.
    pub(crate) fn linear(&self, at: Position) -> u64 {
        u64::from(at.zone.0) * u64::from(self.zone_bytes) + u64::from(at.offset)
    }

    /// The shape must be one that a medium can have.
    pub(crate) fn check(&self) -> Result<()> {
        let shaped = self.zones > 0 && self.append_align > 0 && self.zone_bytes > 0;
        if shaped && self.zone_bytes.is_multiple_of(self.append_align) {
            return Ok(());
        }
        Err(out_of_bounds(format!(
            "expected at least one zone whose length is a multiple of the append alignment, \
             found {} zones of {} bytes with an alignment of {}",
            self.zones, self.zone_bytes, self.append_align
        )))
    }

    /// The zone must exist.
    pub(crate) fn check_zone(&self, zone: ZoneId) -> Result<()> {
        if zone.0 < self.zones {
            return Ok(());
        }
        Err(out_of_bounds(format!("expected a zone below {}, found zone {}", self.zones, zone.0)))
    }

    /// The range must lie in one zone that exists.
    pub(crate) fn check_range(&self, at: Position, len: usize) -> Result<()> {
        self.check_zone(at.zone)?;
        let end = u64::from(at.offset).checked_add(wide(len));
        if end.is_some_and(|end| end <= u64::from(self.zone_bytes)) {
            return Ok(());
        }
        Err(out_of_bounds(format!(
            "expected a range inside the {} bytes of zone {}, found {len} bytes at offset {}",
            self.zone_bytes, at.zone.0, at.offset
        )))
    }

    /// An append must lie in one zone and be aligned.
    pub(crate) fn check_append(&self, at: Position, len: usize) -> Result<()> {
        self.check_range(at, len)?;
        if at.offset.is_multiple_of(self.append_align) && len.is_multiple_of(index(self.append_align)) {
            return Ok(());
        }
        Err(out_of_bounds(format!(
            "expected an append whose offset and length are multiples of {}, found {len} bytes at offset {} of zone {}",
            self.append_align, at.offset, at.zone.0
        )))
    }
}

fn out_of_bounds(words: String) -> Error {
    Error::new(ErrorKind::OutOfBounds, words)
}
