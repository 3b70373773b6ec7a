//! Reads and their replies, made in place: data is read to where it is sent from.

use std::ops::Range;

use crate::{
    error::ExportError,
    export::{Export, ReadInto},
    reply::{self, DATA_HEADER_BYTES},
    request::Cookie,
    stats::Counters,
    terms::Terms,
    wire::{SIMPLE_REPLY_BYTES, wide},
};

/// A read that was admitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingRead {
    pub(crate) cookie: Cookie,
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
    /// Whether the reply may be a hole.
    pub(crate) holes: bool,
}

impl PendingRead {
    /// Bytes of its reply at most.
    pub(crate) fn reply_bytes(&self, terms: &Terms) -> usize {
        header_bytes(terms) + self.bytes
    }

    fn length(&self) -> u32 {
        u32::try_from(self.bytes).expect("it came as a u32")
    }
}

fn header_bytes(terms: &Terms) -> usize {
    if terms.structured { DATA_HEADER_BYTES } else { SIMPLE_REPLY_BYTES }
}

/// Does `reads` into `buffer`, which holds all their replies, and appends to `sent` which parts of it to send.
pub(crate) fn answer(
    export: &dyn Export,
    terms: &Terms,
    counters: &Counters,
    reads: &[PendingRead],
    mut buffer: &mut [u8],
    sent: &mut Vec<Range<usize>>,
) {
    let header = header_bytes(terms);
    let mut parts = Parts { terms, counters, sent, start: 0 };
    // One at a time is the most frequent case, and needs no lists.
    if let [read] = reads {
        let (head, body) = buffer[..header + read.bytes].split_at_mut(header);
        let result = export.read(read.offset, body);
        return parts.add(read, head, body, &result);
    }
    let mut heads = Vec::with_capacity(reads.len());
    let mut bodies = Vec::with_capacity(reads.len());
    for read in reads {
        let (head, rest) = buffer.split_at_mut(header);
        let (into, rest) = rest.split_at_mut(read.bytes);
        heads.push(head);
        bodies.push(ReadInto { offset: read.offset, into, result: Ok(()) });
        buffer = rest;
    }
    export.read_many(&mut bodies);
    for ((read, head), body) in reads.iter().zip(heads).zip(bodies) {
        parts.add(read, head, body.into, &body.result);
    }
}

/// The parts of a buffer that are to be sent; neighbours become one.
struct Parts<'a> {
    terms: &'a Terms,
    counters: &'a Counters,
    sent: &'a mut Vec<Range<usize>>,
    start: usize,
}

impl Parts<'_> {
    fn add(&mut self, read: &PendingRead, head: &mut [u8], body: &mut [u8], result: &Result<(), ExportError>) {
        self.counters.requests.add(1);
        let used = match result {
            Ok(()) => {
                self.counters.bytes_read.add(wide(read.bytes));
                self.write(read, head, body)
            }
            Err(error) => {
                self.counters.errors.add(1);
                let errno = error.errno();
                if self.terms.structured {
                    place(&reply::structured_error(read.cookie, errno), head, body)
                } else {
                    place(&reply::simple(read.cookie, Some(errno)), head, body)
                }
            }
        };
        match self.sent.last_mut() {
            Some(last) if last.end == self.start => last.end += used,
            _ => self.sent.push(self.start..self.start + used),
        }
        self.start += head.len() + body.len();
    }

    fn write(&self, read: &PendingRead, head: &mut [u8], body: &mut [u8]) -> usize {
        if read.holes && is_hole(body) {
            return place(&reply::hole(read.cookie, read.offset, read.length()), head, body);
        }
        if self.terms.structured {
            head.copy_from_slice(&reply::data_header(read.cookie, read.offset, read.length()));
        } else {
            head.copy_from_slice(&reply::simple(read.cookie, None));
        }
        head.len() + body.len()
    }
}

/// Puts a reply over head and body, and says how long it is.
fn place(reply: &[u8], head: &mut [u8], body: &mut [u8]) -> usize {
    let (first, rest) = reply.split_at(reply.len().min(head.len()));
    head[..first.len()].copy_from_slice(first);
    body[..rest.len()].copy_from_slice(rest);
    reply.len()
}

/// Zeroes so many that telling them costs less than sending them. What is not zero mostly shows in its first bytes.
fn is_hole(body: &[u8]) -> bool {
    const BYTES_MIN: usize = 512;
    body.len() >= BYTES_MIN && body.chunks(256).all(|chunk| chunk.iter().fold(0, |any, byte| any | byte) == 0)
}

#[cfg(test)]
mod tests;
