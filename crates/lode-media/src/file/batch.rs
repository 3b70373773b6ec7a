//! A group of reads as one batch of a ring, with whatever the ring leaves undone finished by plain reads.

use std::io;

use crate::bounds::narrow;
use crate::{AlignedBuffer, Error, Geometry, ReadRequest, Result};

use super::handle::{BOUNCE_MAX, Handle};
use super::ring::{Operation, Rings};

/// One request on its way.
struct Job<'a> {
    /// Where the transfer starts, aligned if it has to be.
    base: u64,
    /// Where the wanted bytes start in the transfer.
    skip: usize,
    /// How long the transfer is.
    span: usize,
    /// Holds the transfer if `into` cannot.
    bounce: Option<AlignedBuffer>,
    into: &'a mut [u8],
    result: &'a mut Result<()>,
}

/// Does all requests, each with its own result.
pub(super) fn read(handle: &Handle, rings: &Rings, geometry: &Geometry, requests: &mut [ReadRequest<'_>]) {
    let mut jobs: Vec<Job<'_>> = requests.iter_mut().filter_map(|request| plan(handle, geometry, request)).collect();
    let mut operations: Vec<Operation<'_>> =
        jobs.iter_mut().map(|job| Operation { offset: job.base, into: job.target(), result: None }).collect();
    rings.read(handle.calls.as_ref(), handle.fd(), &mut operations);
    let said: Vec<Option<i32>> = operations.into_iter().map(|operation| operation.result).collect();
    for (job, said) in jobs.into_iter().zip(said) {
        job.finish(handle, said);
    }
}

/// Checks a request and finds it a buffer. Those that are wrong or too long for one bounce are done with here.
fn plan<'a>(handle: &Handle, geometry: &Geometry, request: &'a mut ReadRequest<'_>) -> Option<Job<'a>> {
    let ReadRequest { at, into, result } = request;
    if let Err(error) = geometry.check_range(*at, into.len()) {
        *result = Err(error);
        return None;
    }
    let offset = geometry.linear(*at);
    if handle.alignment.fits(offset, into) {
        let span = into.len();
        return Some(Job { base: offset, skip: 0, span, bounce: None, into, result });
    }
    if into.len() > BOUNCE_MAX {
        *result = handle.read(offset, into);
        return None;
    }
    let found = handle.bounce(offset, into.len());
    let bounce = Some(handle.spare.take(found.span));
    Some(Job { base: found.base, skip: found.skip, span: found.span, bounce, into, result })
}

impl Job<'_> {
    fn target(&mut self) -> &mut [u8] {
        match &mut self.bounce {
            Some(buffer) => &mut buffer[..self.span],
            None => self.into,
        }
    }

    fn finish(mut self, handle: &Handle, said: Option<i32>) {
        let (base, needed) = (self.base, self.skip + self.into.len());
        *self.result = match said.map_or(Ok(0), |said| taken(said, base, handle)) {
            // What is short, or was never tried, goes on as a plain read.
            Ok(have) => {
                let have = if have >= needed { have } else { handle.alignment.floor(have) };
                handle.fill(base, self.target(), have, needed)
            }
            Err(error) => Err(error),
        };
        if let Some(buffer) = self.bounce {
            if self.result.is_ok() {
                self.into.copy_from_slice(&buffer[self.skip..needed]);
            }
            handle.spare.give(buffer);
        }
    }
}

/// How much the ring read. A refusal that is about the ring and not about the device counts as nothing read.
fn taken(said: i32, base: u64, handle: &Handle) -> Result<usize> {
    if let Ok(bytes) = u64::try_from(said) {
        return Ok(narrow(bytes));
    }
    let error = io::Error::from_raw_os_error(-said);
    use io::ErrorKind::{Interrupted, InvalidInput, OutOfMemory, Unsupported, WouldBlock};
    match error.kind() {
        Interrupted | InvalidInput | OutOfMemory | Unsupported | WouldBlock => Ok(0),
        _ => Err(Error::io(format!("reading at offset {base} of {}", handle.name()), error)),
    }
}
