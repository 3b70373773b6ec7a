//! Requests that bring a payload: written from where it was received, or skipped.

use std::time::Instant;

use super::{End, Flow, Reader};
use crate::{
    crew::Job,
    error::ProtocolError,
    export::Durability,
    request::Request,
    wire::{Errno, REQUEST_BYTES, narrow, wide},
};

impl Reader<'_> {
    /// A write that was admitted; its payload is in the inbox if it fits.
    pub(super) fn write(
        &mut self,
        request: &Request,
        offset: u64,
        until: Durability,
        first: bool,
    ) -> Result<Flow, End> {
        let Some(whole) = self.whole(request) else {
            self.inbox.consume(REQUEST_BYTES);
            self.write_large(request, offset, until, first)?;
            return Ok(Flow::Next);
        };
        let data = &self.inbox.filled()[REQUEST_BYTES..whole];
        let single = first && self.inbox.filled().len() == whole;
        let cookie = request.cookie;
        let result = if single && (self.busy == 0 || until == Durability::Process) {
            self.export.write(offset, data, until).map(|()| None)
        } else {
            self.export.write_unwaited(offset, data).map(Some)
        };
        self.link.shared.counters.bytes_written.add(match result {
            Ok(_) => wide(data.len()),
            Err(_) => 0,
        });
        self.inbox.consume(whole);
        match (result, until) {
            (Ok(Some(ticket)), Durability::Process) => self.replies.written(cookie, ticket),
            (Ok(Some(ticket)), Durability::Power) => {
                if !self.crew.settle(cookie, Some(ticket)) {
                    let waited = self.export.wait(ticket, until);
                    self.reply(cookie, waited);
                }
            }
            (Ok(None), _) => self.reply(cookie, Ok(())),
            (Err(error), _) => self.reply(cookie, Err(error)),
        }
        Ok(Flow::Next)
    }

    /// A write whose payload does not fit the inbox: received into a buffer of its own.
    fn write_large(&mut self, request: &Request, offset: u64, until: Durability, first: bool) -> Result<(), End> {
        // The replies so far must not wait for this payload.
        self.finish()?;
        let (cookie, bytes) = (request.cookie, narrow(request.length));
        let Some(mut arena) = self.crew.arenas.take(bytes) else {
            self.link.shared.counters.budget_refusals.add(1);
            self.skip(request.length)?;
            self.fail(request, Errno::NoMemory);
            return Ok(());
        };
        self.inbox.expect_large();
        let here = self.inbox.filled();
        let here = here.len().min(bytes);
        arena.bytes[..here].copy_from_slice(&self.inbox.filled()[..here]);
        self.inbox.consume(here);
        self.link.receive_payload(&mut arena.bytes[here..bytes])?;
        let alone = self.is_alone(first);
        let job = Job::Write { cookie, offset, bytes, until, arena };
        if alone {
            self.crew.work(job);
        } else if let Err(back) = self.crew.submit(job) {
            self.crew.work(back);
        }
        Ok(())
    }

    /// Skips a refused payload.
    pub(super) fn skip(&mut self, payload: u32) -> Result<(), End> {
        if payload > self.terms.payload_bytes_max.saturating_mul(2) {
            return Err(ProtocolError::PayloadLength(payload).into());
        }
        let mut left = narrow(payload);
        let here = left.min(self.inbox.filled().len());
        self.inbox.consume(here);
        left -= here;
        let deadline = Instant::now() + self.link.shared.limits.time_for(left);
        while left > 0 {
            if Instant::now() > deadline {
                return Err(End::Socket);
            }
            let some = left.min(self.inbox.capacity());
            self.link.receive_payload(&mut self.inbox.space(some)[..some])?;
            left -= some;
        }
        Ok(())
    }
}
