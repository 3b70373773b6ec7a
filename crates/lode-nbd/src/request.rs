//! A request's bytes: a pure decoder, and an encoder for clients in tests.

use crate::{
    error::ProtocolError,
    wire::{REQUEST_BYTES, REQUEST_MAGIC, commands, take_u16, take_u32, take_u64},
};

/// What a client calls a request; its reply carries the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(pub u64);

/// A request as it was sent: not checked against anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bits of [`command_flags`](crate::wire::command_flags), or unknown ones.
    pub flags: u16,
    /// One of [`commands`], or unknown.
    pub command: u16,
    /// The client's name for it.
    pub cookie: Cookie,
    /// First byte in the export.
    pub offset: u64,
    /// Bytes in the export.
    pub length: u32,
}

impl Request {
    /// Bytes that follow the request.
    pub fn payload(&self) -> u32 {
        if self.command == commands::WRITE { self.length } else { 0 }
    }
}

/// Decodes a request from the front of `bytes`; `None` if there are too few.
pub fn decode_request(mut bytes: &[u8]) -> Result<Option<Request>, ProtocolError> {
    if bytes.len() < REQUEST_BYTES {
        return Ok(None);
    }
    let magic = take_u32(&mut bytes).unwrap_or_default();
    if magic != REQUEST_MAGIC {
        return Err(ProtocolError::RequestMagic(magic));
    }
    Ok(take_fields(&mut bytes))
}

fn take_fields(bytes: &mut &[u8]) -> Option<Request> {
    Some(Request {
        flags: take_u16(bytes)?,
        command: take_u16(bytes)?,
        cookie: Cookie(take_u64(bytes)?),
        offset: take_u64(bytes)?,
        length: take_u32(bytes)?,
    })
}

/// Encodes a request, for clients.
pub fn encode_request(request: &Request) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&request.flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&request.command.to_be_bytes());
    bytes[8..16].copy_from_slice(&request.cookie.0.to_be_bytes());
    bytes[16..24].copy_from_slice(&request.offset.to_be_bytes());
    bytes[24..].copy_from_slice(&request.length.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests;
