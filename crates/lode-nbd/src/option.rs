//! The handshake's bytes: pure decoders of what a client sends, and encoders of what it gets.
//!
//! The decoders take whatever bytes, never panic, and allocate no more than the bytes they were given.

use crate::{
    error::ProtocolError,
    wire::{
        GREETING_MAGIC, OPTION_HEADER_BYTES, OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionReply, handshake_flags,
        take_bytes, take_u16, take_u32, take_u64,
    },
};

/// An option before its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// One of [`options`](crate::wire::options), or unknown.
    pub code: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

/// Why an option's data is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionFault {
    /// Lengths do not add up, or a string is not UTF-8 without NUL.
    Malformed,
    /// A string is longer than it may be.
    TooLong,
}

/// The data of INFO and GO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoRequest<'a> {
    /// The export, or empty for the default one.
    pub name: &'a str,
    wanted: &'a [u8],
}

impl InfoRequest<'_> {
    /// Whether the client asked for this item of [`info`](crate::wire::info).
    pub fn wants(&self, item: u16) -> bool {
        self.wanted.chunks_exact(2).any(|found| found == item.to_be_bytes())
    }
}

/// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextRequest<'a> {
    /// The export, or empty for the default one.
    pub name: &'a str,
    /// What is asked for, in order.
    pub queries: Vec<&'a str>,
}

/// The greeting.
pub fn encode_greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(&GREETING_MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&(handshake_flags::FIXED_NEWSTYLE | handshake_flags::NO_ZEROES).to_be_bytes());
    bytes
}

/// Decodes the client's flags; the result says whether it wants NO_ZEROES.
pub fn decode_client_flags(bytes: [u8; 4]) -> Result<bool, ProtocolError> {
    let found = u32::from_be_bytes(bytes);
    let no_zeroes = u32::from(handshake_flags::NO_ZEROES);
    let offered = u32::from(handshake_flags::FIXED_NEWSTYLE) | no_zeroes;
    if found & !offered != 0 {
        return Err(ProtocolError::ClientFlags(found));
    }
    Ok(found & no_zeroes != 0)
}

/// Decodes what comes before an option's data; `None` if there are too few bytes.
pub fn decode_option(mut bytes: &[u8]) -> Result<Option<OptionHeader>, ProtocolError> {
    if bytes.len() < OPTION_HEADER_BYTES {
        return Ok(None);
    }
    let magic = take_u64(&mut bytes).unwrap_or_default();
    if magic != OPTION_MAGIC {
        return Err(ProtocolError::OptionMagic(magic));
    }
    Ok(take_u32(&mut bytes).zip(take_u32(&mut bytes)).map(|(code, length)| OptionHeader { code, length }))
}

/// Decodes a name that is an option's whole data.
pub fn decode_name(data: &[u8], string_bytes_max: u32) -> Result<&str, OptionFault> {
    let length = u32::try_from(data.len()).map_err(|_| OptionFault::TooLong)?;
    text(data, length, string_bytes_max)
}

/// Decodes the data of INFO and GO.
pub fn decode_info(mut data: &[u8], string_bytes_max: u32) -> Result<InfoRequest<'_>, OptionFault> {
    let name = take_text(&mut data, string_bytes_max)?;
    let count = take_u16(&mut data).ok_or(OptionFault::Malformed)?;
    if data.len() != usize::from(count) * 2 {
        return Err(OptionFault::Malformed);
    }
    Ok(InfoRequest { name, wanted: data })
}

/// Decodes the data of LIST_META_CONTEXT and SET_META_CONTEXT.
pub fn decode_contexts(mut data: &[u8], string_bytes_max: u32) -> Result<ContextRequest<'_>, OptionFault> {
    let name = take_text(&mut data, string_bytes_max)?;
    let count = take_u32(&mut data).ok_or(OptionFault::Malformed)?;
    // Not `with_capacity(count)`: the count is the peer's word, the bytes are there (N1).
    let mut queries = Vec::new();
    for _ in 0..count {
        queries.push(take_text(&mut data, string_bytes_max)?);
    }
    if data.is_empty() { Ok(ContextRequest { name, queries }) } else { Err(OptionFault::Malformed) }
}

fn take_text<'a>(data: &mut &'a [u8], bytes_max: u32) -> Result<&'a str, OptionFault> {
    let length = take_u32(data).ok_or(OptionFault::Malformed)?;
    let bytes = take_bytes(data, length).ok_or(OptionFault::Malformed)?;
    text(bytes, length, bytes_max)
}

fn text(bytes: &[u8], length: u32, bytes_max: u32) -> Result<&str, OptionFault> {
    if length > bytes_max {
        return Err(OptionFault::TooLong);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| OptionFault::Malformed)?;
    if text.contains('\0') { Err(OptionFault::Malformed) } else { Ok(text) }
}

/// Appends a reply to `option`, its data being the concatenation of `parts`.
pub fn encode_option_reply(to: &mut Vec<u8>, option: u32, reply: OptionReply, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let length = u32::try_from(length).expect("a reply's data is a name or a message of ours");
    to.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    to.extend_from_slice(&option.to_be_bytes());
    to.extend_from_slice(&reply.code().to_be_bytes());
    to.extend_from_slice(&length.to_be_bytes());
    for part in parts {
        to.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests;
