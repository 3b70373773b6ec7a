//! What the handshake fixed for one connection, and the check of every request against it.
//!
//! A [`Request`] is what a peer sent; [`Work`] is what may be done. Only [`admit`] makes one from the other, so code
//! that holds a `Work` needs no checks of its own.

use crate::{
    export::{Durability, Export},
    request::Request,
    wire::{Errno, command_flags, commands, export_flags, narrow},
};

/// What was agreed when the export was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Bytes of the export.
    pub size: u64,
    /// Every change is refused.
    pub read_only: bool,
    /// Offsets and lengths are multiples of this many bytes.
    pub minimum_block: u32,
    /// The best size of a request in bytes.
    pub preferred_block: u32,
    /// The largest payload in bytes.
    pub payload_bytes_max: u32,
    /// Structured replies were agreed.
    pub structured: bool,
    /// At least one metadata context was agreed.
    pub status: bool,
}

/// A request that may be done: known, allowed, in range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Read `bytes` at `offset`; a hole may be told as such if `holes`.
    Read {
        /// First byte.
        offset: u64,
        /// How many.
        bytes: usize,
        /// Whether the reply may be a hole.
        holes: bool,
    },
    /// Write the payload at `offset`.
    Write {
        /// First byte.
        offset: u64,
        /// What the reply promises.
        until: Durability,
    },
    /// Flush.
    Flush,
    /// Forget.
    Trim {
        /// First byte.
        offset: u64,
        /// How many.
        bytes: u64,
        /// What the reply promises.
        until: Durability,
    },
    /// Zero.
    Zero {
        /// First byte.
        offset: u64,
        /// How many.
        bytes: u64,
        /// Whether the space may be freed.
        may_punch: bool,
        /// Whether to fail rather than to be slow.
        fast: bool,
        /// What the reply promises.
        until: Durability,
    },
    /// Nothing to do, which was allowed.
    Nothing,
    /// Tell the extents of every metadata context that was agreed.
    Status {
        /// First byte.
        offset: u64,
        /// How many.
        bytes: u64,
        /// The first extent of each only.
        one: bool,
    },
    /// End the connection, without a reply.
    Disconnect,
}

impl Terms {
    /// The terms for an export, taken from it now.
    pub fn of(export: &dyn Export, payload_bytes_max: u32, structured: bool, status: bool) -> Self {
        // What an export says wrongly must not reach a client, which may trust it blindly.
        let minimum_block = export.minimum_block().clamp(1, 64 << 10).next_power_of_two();
        let preferred_block = export.preferred_block().clamp(512, 32 << 20).next_power_of_two().max(minimum_block);
        Terms {
            size: export.size().min(i64::MAX.unsigned_abs()) / u64::from(minimum_block) * u64::from(minimum_block),
            read_only: export.read_only(),
            minimum_block,
            preferred_block: preferred_block.min(payload_bytes_max.max(minimum_block)),
            payload_bytes_max,
            structured,
            status: status && structured,
        }
    }

    /// The transmission flags.
    pub fn flags(&self) -> u16 {
        use export_flags as flag;
        let mut flags = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::CAN_MULTI_CONN | flag::SEND_CACHE;
        flags |= if self.read_only {
            flag::READ_ONLY
        } else {
            flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO
        };
        if self.structured { flags | flag::SEND_DF } else { flags }
    }

    fn range(&self, request: &Request, beyond: Errno) -> Result<u64, Errno> {
        let bytes = u64::from(request.length);
        let block = u64::from(self.minimum_block);
        if bytes == 0 || !request.offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
            return Err(Errno::Invalid);
        }
        match request.offset.checked_add(bytes) {
            Some(end) if end <= self.size => Ok(bytes),
            _ => Err(beyond),
        }
    }

    fn change(&self, request: &Request, beyond: Errno) -> Result<(u64, Durability), Errno> {
        if self.read_only {
            return Err(Errno::NotPermitted);
        }
        let fua = request.flags & command_flags::FUA != 0;
        Ok((self.range(request, beyond)?, if fua { Durability::Power } else { Durability::Process }))
    }
}

/// Checks a request against the terms.
pub fn admit(request: &Request, terms: &Terms) -> Result<Work, Errno> {
    use command_flags::{DF, FAST_ZERO, FUA, NO_HOLE, REQ_ONE};
    // FUA is valid on every command once it is offered, also where it means nothing.
    let allowed = FUA
        | match request.command {
            commands::READ if terms.structured => DF,
            commands::WRITE_ZEROES => NO_HOLE | FAST_ZERO,
            commands::BLOCK_STATUS => REQ_ONE,
            _ => 0,
        };
    let has = |flag| request.flags & flag != 0;
    let offset = request.offset;
    if request.command == commands::DISC {
        return Ok(Work::Disconnect);
    }
    if has(!allowed) {
        return Err(Errno::Invalid);
    }
    match request.command {
        commands::READ => {
            terms.range(request, Errno::Invalid)?;
            if request.length > terms.payload_bytes_max {
                return Err(Errno::Overflow);
            }
            Ok(Work::Read { offset, bytes: narrow(request.length), holes: terms.structured && !has(DF) })
        }
        commands::WRITE => {
            let (_, until) = terms.change(request, Errno::NoSpace)?;
            if request.length > terms.payload_bytes_max {
                return Err(Errno::Invalid);
            }
            Ok(Work::Write { offset, until })
        }
        commands::FLUSH if offset == 0 && request.length == 0 => Ok(Work::Flush),
        commands::TRIM => {
            terms.change(request, Errno::Invalid).map(|(bytes, until)| Work::Trim { offset, bytes, until })
        }
        commands::WRITE_ZEROES => terms.change(request, Errno::NoSpace).map(|(bytes, until)| Work::Zero {
            offset,
            bytes,
            may_punch: !has(NO_HOLE),
            fast: has(FAST_ZERO),
            until,
        }),
        commands::CACHE => terms.range(request, Errno::Invalid).map(|_| Work::Nothing),
        commands::BLOCK_STATUS if terms.status => {
            terms.range(request, Errno::Invalid).map(|bytes| Work::Status { offset, bytes, one: has(REQ_ONE) })
        }
        _ => Err(Errno::Invalid),
    }
}

#[cfg(test)]
mod tests;
