//! The replies of one batch: gathered while its requests are done, sent together by one call of the kernel.
//!
//! Reads and waits are put off to the batch's end: reads so that an export can do them at once, and writes so that one
//! wait makes all of them durable. NBD leaves the order of requests in flight to the server.

use std::{
    io::{self, IoSlice},
    ops::Range,
};

use crate::{
    export::{Durability, Export, Ticket},
    link::Link,
    reads::{self, PendingRead},
    reply,
    request::Cookie,
    terms::Terms,
    wire::Errno,
};

#[derive(Debug)]
pub(crate) struct Replies {
    /// Where reads go.
    data: Box<[u8]>,
    data_used: usize,
    pub(crate) reads: Vec<PendingRead>,
    /// Writes that were done, not waited for.
    written: Vec<Cookie>,
    ticket: Ticket,
    /// Replies without data.
    small: Vec<u8>,
    parts: Vec<Range<usize>>,
}

/// Beyond, a batch ends.
const SMALL_BYTES: usize = 64 << 10;
/// Beyond, a batch ends.
const REQUESTS_MAX: usize = 256;

impl Replies {
    pub(crate) fn new(data_bytes: usize) -> Self {
        Replies {
            data: vec![0; data_bytes].into_boxed_slice(),
            data_used: 0,
            reads: Vec::new(),
            written: Vec::new(),
            ticket: Ticket::default(),
            small: Vec::new(),
            parts: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.written.is_empty() && self.small.is_empty()
    }

    /// Whether the batch has to be finished before more is added.
    pub(crate) fn is_full(&self) -> bool {
        self.small.len() > SMALL_BYTES || self.written.len() + self.reads.len() >= REQUESTS_MAX
    }

    /// Whether a reply of so many bytes can be in a batch at all.
    pub(crate) fn can_hold(&self, bytes: usize) -> bool {
        bytes <= self.data.len()
    }

    /// Whether a read whose reply has so many bytes can be added now.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        bytes <= self.data.len() - self.data_used
    }

    pub(crate) fn read(&mut self, read: PendingRead, reply_bytes: usize) {
        self.data_used += reply_bytes;
        self.reads.push(read);
    }

    /// Takes the reads out of the batch, for somebody else to do.
    pub(crate) fn take_reads(&mut self) -> Vec<PendingRead> {
        self.data_used = 0;
        std::mem::take(&mut self.reads)
    }

    pub(crate) fn written(&mut self, cookie: Cookie, ticket: Ticket) {
        self.written.push(cookie);
        self.ticket = self.ticket.max(ticket);
    }

    pub(crate) fn done(&mut self, link: &Link, cookie: Cookie, error: Option<Errno>) {
        count(link, error);
        self.small.extend_from_slice(&reply::simple(cookie, error));
    }

    /// Fails a request whose reply must be structured if that was agreed.
    pub(crate) fn fail_structured(&mut self, link: &Link, cookie: Cookie, error: Errno) {
        count(link, Some(error));
        self.small.extend_from_slice(&reply::structured_error(cookie, error));
    }

    pub(crate) fn status(&mut self, link: &Link, cookie: Cookie, contexts: &[reply::Told]) {
        count(link, None);
        reply::block_status(&mut self.small, cookie, contexts);
    }

    /// Does what was put off, and sends all replies (N2).
    pub(crate) fn finish(&mut self, link: &Link, export: &dyn Export, terms: &Terms) -> io::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let counters = &link.shared.counters;
        counters.batches.add(1);
        if !self.written.is_empty() {
            let waited = export.wait(self.ticket, Durability::Process);
            let error = waited.err().map(|error| error.errno());
            for &cookie in &self.written {
                count(link, error);
                self.small.extend_from_slice(&reply::simple(cookie, error));
            }
            self.written.clear();
        }
        if !self.reads.is_empty() {
            reads::answer(export, terms, counters, &self.reads, &mut self.data, &mut self.parts);
            self.reads.clear();
            self.data_used = 0;
        }
        let sent = self.send(link);
        self.parts.clear();
        self.small.clear();
        // A batch of many extents must not hold its memory for ever.
        self.small.shrink_to(SMALL_BYTES);
        sent
    }

    fn send(&self, link: &Link) -> io::Result<()> {
        match (self.parts.as_slice(), self.small.as_slice()) {
            ([], small) => link.send_bytes(small),
            ([part], []) => link.send_bytes(&self.data[part.clone()]),
            (parts, small) => {
                let data = parts.iter().map(|part| IoSlice::new(&self.data[part.clone()]));
                let mut all: Vec<_> = data.chain([IoSlice::new(small)]).collect();
                link.send(&mut all)
            }
        }
    }
}

/// Counts one answered request.
pub(crate) fn count(link: &Link, error: Option<Errno>) {
    link.shared.counters.requests.add(1);
    if error.is_some() {
        link.shared.counters.errors.add(1);
    }
}
