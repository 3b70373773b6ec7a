//! The transmission of one connection: its reader takes what has come, does it, and replies.
//!
//! ```text
//!   receive ──▶ decode, admit ──▶ do it here ────────────▶ finish: reads, one wait, one send ──▶ receive
//!                     │      all that the inbox holds whole                                        ▲
//!                     └─ more in flight, and it may sleep ──▶ crew: does it, sends its reply       │
//!                                                              (the reader goes on) ───────────────┘
//! ```
//!
//! A client with one request in flight is served by the reader alone: a receive, the call, a send, and no other thread
//! is woken. A client with many in flight is *busy*: small reads and writes still are done here, as a batch; what may
//! sleep (flushes, waits for FUA, payloads beyond the buffers, large changes) goes to the [crew](crate::crew).

use std::{io, sync::Arc, time::Instant};

use crate::{
    contexts::Contexts,
    crew::{Crew, Job, change},
    error::{ExportError, ProtocolError},
    export::{Durability, Export},
    handshake::Chosen,
    inbox::Inbox,
    link::Link,
    reads::PendingRead,
    replies::Replies,
    request::{Cookie, Request, decode_request},
    terms::{Terms, Work, admit},
    wire::{Errno, REQUEST_BYTES, narrow},
};

/// Why a connection ended that did not end well.
#[derive(Debug)]
pub(crate) enum End {
    /// The peer broke the protocol.
    Protocol(ProtocolError),
    /// The socket failed, the peer left in the middle, or the watch ended it. Nothing acts on which of them it was.
    Socket,
    /// There was no memory for the connection.
    Budget,
}

impl From<ProtocolError> for End {
    fn from(error: ProtocolError) -> Self {
        End::Protocol(error)
    }
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        End::Socket
    }
}

/// A client stays busy for so many batches of one request.
const BUSY: u32 = 16;
/// Changes without payload up to so many bytes are done by the reader even if the client is busy.
const CHANGE_BYTES: u64 = 1 << 20;

struct Reader<'a> {
    link: &'a Arc<Link>,
    export: Arc<dyn Export>,
    terms: Terms,
    contexts: Contexts,
    inbox: Inbox,
    replies: Replies,
    crew: Arc<Crew>,
    concurrent_reads: usize,
    busy: u32,
    /// Since when the inbox holds a part of a request.
    partial: Option<Instant>,
}

#[derive(PartialEq, Eq)]
enum Flow {
    Next,
    Over,
}

/// Serves the chosen export until the client disconnects, the server drains, or something fails.
pub(crate) fn serve(link: &Arc<Link>, chosen: Chosen) -> Result<(), End> {
    let shared = &link.shared;
    let fixed = shared.limits.fixed_bytes();
    let _permit = shared.budget.acquire(fixed, shared.limits.budget_time).ok_or(End::Budget)?;
    let Chosen { export, terms, contexts } = chosen;
    let crew = Crew::new(link, &export, &terms);
    let mut reader = Reader {
        link,
        concurrent_reads: export.concurrent_reads().clamp(1, shared.limits.workers),
        inbox: Inbox::new(shared.limits.buffer_bytes),
        replies: Replies::new(shared.limits.buffer_bytes),
        crew: Arc::clone(&crew),
        export,
        terms,
        contexts,
        busy: 0,
        partial: None,
    };
    // Requests in flight are finished however the reader ends, also if it panics.
    let _closing = Closing(&crew);
    reader.run()
}

struct Closing<'a>(&'a Crew);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Reader<'_> {
    fn run(&mut self) -> Result<(), End> {
        loop {
            let mut count = 0;
            let mut flow = Flow::Next;
            while flow == Flow::Next
                && let Some(request) = self.next_request()?
            {
                self.partial = None;
                flow = self.execute(&request, count == 0)?;
                count += 1;
            }
            self.finish()?;
            if flow == Flow::Next && self.inbox.is_empty() && !self.crew.is_busy() {
                self.export.at_rest();
            }
            if flow == Flow::Over || !self.refill()? {
                return Ok(());
            }
            self.busy = if count > 1 { BUSY } else { self.busy.saturating_sub(count) };
        }
    }

    /// The next request, if it is whole, or if its payload never will be as it does not fit.
    fn next_request(&self) -> Result<Option<Request>, ProtocolError> {
        let filled = self.inbox.filled();
        Ok(decode_request(filled)?.filter(|request| filled.len() >= self.whole(request).unwrap_or(REQUEST_BYTES)))
    }

    /// Bytes of the request with its payload, if they fit the inbox.
    fn whole(&self, request: &Request) -> Option<usize> {
        let whole = REQUEST_BYTES + narrow(request.payload());
        (whole <= self.inbox.capacity()).then_some(whole)
    }

    /// Receives more; false at the end.
    fn refill(&mut self) -> Result<bool, End> {
        if self.inbox.is_empty() {
            let crew = &self.crew;
            let mut tidy = || crew.arenas.release();
            let tidy: Option<&mut dyn FnMut()> = if crew.arenas.is_empty() { None } else { Some(&mut tidy) };
            let count = self.link.receive_next(self.inbox.space(REQUEST_BYTES), tidy)?;
            self.inbox.received(count);
            return Ok(count > 0);
        }
        let whole = decode_request(self.inbox.filled())?.and_then(|request| self.whole(&request));
        let whole = whole.unwrap_or(REQUEST_BYTES);
        let now = Instant::now();
        let limits = &self.link.shared.limits;
        let last = *self.partial.get_or_insert(now) + limits.time_for(whole);
        self.link.receive_until(Some(last.min(now + limits.stall_time)));
        let count = self.link.receive(self.inbox.space(whole))?;
        self.link.receive_until(None);
        self.inbox.received(count);
        if count == 0 { Err(End::Socket) } else { Ok(true) }
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.concurrent_reads > 1 && self.replies.reads.len() > 1 {
            self.share_reads();
        }
        self.replies.finish(self.link, &*self.export, &self.terms)
    }

    /// Hands the batch's reads to the crew, in as many groups as the export does at once.
    fn share_reads(&mut self) {
        let reads = self.replies.take_reads();
        for group in reads.chunks(reads.len().div_ceil(self.concurrent_reads)) {
            if let Err(Job::Reads(back)) = self.crew.submit(Job::Reads(group.to_vec())) {
                back.into_iter().for_each(|read| self.replies.read(read, read.reply_bytes(&self.terms)));
            }
        }
    }

    fn execute(&mut self, request: &Request, first: bool) -> Result<Flow, End> {
        if self.replies.is_full() {
            self.finish()?;
        }
        let cookie = request.cookie;
        let work = match admit(request, &self.terms) {
            Ok(Work::Write { offset, until }) => return self.write(request, offset, until, first),
            other => other,
        };
        self.inbox.consume(REQUEST_BYTES);
        if request.payload() > 0 {
            self.skip(request.payload())?;
        }
        let alone = self.is_alone(first);
        match work {
            Err(errno) => self.fail(request, errno),
            Ok(Work::Disconnect) => return Ok(Flow::Over),
            Ok(Work::Read { offset, bytes, holes }) => {
                self.read(PendingRead { cookie, offset, bytes, holes }, alone)?;
            }
            Ok(Work::Status { offset, bytes, one }) => match self.contexts.tell(&*self.export, offset, bytes, one) {
                Ok(told) => self.replies.status(self.link, cookie, &told),
                Err(error) => self.fail(request, error.errno()),
            },
            Ok(Work::Flush) if alone || !self.crew.settle(cookie, None) => self.change(cookie, &Work::Flush),
            Ok(Work::Zero { may_punch, fast: true, .. }) if !self.export.zero_is_fast(may_punch) => {
                self.fail(request, Errno::NotSupported);
            }
            Ok(work @ (Work::Zero { bytes, until, .. } | Work::Trim { bytes, until, .. })) => {
                let here = alone || (bytes <= CHANGE_BYTES && until == Durability::Process);
                if here || self.crew.submit(Job::Change { cookie, work }).is_err() {
                    self.change(cookie, &work);
                }
            }
            Ok(Work::Nothing) => self.replies.done(self.link, cookie, None),
            // Done by the crew, or above.
            Ok(Work::Flush | Work::Write { .. }) => {}
        }
        Ok(Flow::Next)
    }

    /// Whether nothing else is in flight as far as can be seen, so that nobody waits while this request sleeps. To be
    /// asked when it is out of the inbox.
    fn is_alone(&self, first: bool) -> bool {
        self.busy == 0 && first && self.inbox.is_empty() && !self.crew.is_busy()
    }

    fn change(&mut self, cookie: Cookie, work: &Work) {
        self.reply(cookie, change(&*self.export, work));
    }

    fn reply(&mut self, cookie: Cookie, result: Result<(), ExportError>) {
        self.replies.done(self.link, cookie, result.err().map(|error| error.errno()));
    }

    fn fail(&mut self, request: &Request, errno: Errno) {
        use crate::wire::commands::{BLOCK_STATUS, READ};
        if self.terms.structured && matches!(request.command, READ | BLOCK_STATUS) {
            self.replies.fail_structured(self.link, request.cookie, errno);
        } else {
            self.replies.done(self.link, request.cookie, Some(errno));
        }
    }

    fn read(&mut self, read: PendingRead, alone: bool) -> Result<(), End> {
        let bytes = read.reply_bytes(&self.terms);
        if self.replies.can_hold(bytes) {
            if !self.replies.has_room(bytes) {
                self.finish()?;
            }
            self.replies.read(read, bytes);
            return Ok(());
        }
        self.finish()?;
        let reads = vec![read];
        // Reads that do not sleep gain nothing from being done at once, and lose the processor's cache.
        if alone || self.concurrent_reads == 1 {
            self.crew.read(&reads);
        } else if let Err(Job::Reads(back)) = self.crew.submit(Job::Reads(reads)) {
            self.crew.read(&back);
        }
        Ok(())
    }
}

mod payload;
