//! One connection's socket, and the deadlines of its peer.
//!
//! Sockets block. A deadline is a number that the server's watch compares with the clock a few times each second; when
//! it has passed, the watch shuts the socket, which wakes whoever sleeps in it (N6). So nothing in the fast path asks
//! for the time, and no call needs a time-out of its own.
//!
//! States: *new* → *chosen* (an export, by the handshake) → *dead* (by anybody, once). While chosen it is *idle* when
//! its reader waits for the next request and holds none: only then may a drain shut it at once.

use std::{
    io::{self, IoSlice},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, retry_on_intr},
    net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, sendmsg, shutdown},
};

use crate::{budget::Budget, error::ProtocolError, limits::Limits, stats::Counters};

/// What all connections of a server share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) budget: Arc<Budget>,
    pub(crate) counters: Counters,
    pub(crate) draining: AtomicBool,
    /// The last one.
    pub(crate) protocol_error: Mutex<Option<ProtocolError>>,
    epoch: Instant,
}

#[derive(Debug)]
pub(crate) struct Link {
    socket: OwnedFd,
    pub(crate) shared: Arc<Shared>,
    pub(crate) born: Instant,
    sending: Mutex<()>,
    receive_by: Deadline,
    send_by: Deadline,
    chosen: AtomicBool,
    idle: AtomicBool,
    dead: AtomicBool,
}

/// Milliseconds since the server's epoch, or 0 for none.
#[derive(Debug, Default)]
struct Deadline(AtomicU64);

impl Shared {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        let budget = Budget::new(limits.budget_bytes);
        Arc::new(Shared {
            limits,
            budget,
            counters: Counters::default(),
            draining: AtomicBool::new(false),
            protocol_error: Mutex::new(None),
            epoch: Instant::now(),
        })
    }

    fn milliseconds(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(SeqCst)
    }
}

impl Link {
    /// A new connection, whose handshake must end in time.
    pub(crate) fn new(socket: OwnedFd, shared: Arc<Shared>) -> Self {
        let link = Link {
            socket,
            shared,
            born: Instant::now(),
            sending: Mutex::new(()),
            receive_by: Deadline::default(),
            send_by: Deadline::default(),
            chosen: AtomicBool::new(false),
            idle: AtomicBool::new(false),
            dead: AtomicBool::new(false),
        };
        link.receive_until(Some(link.born + link.shared.limits.handshake_time));
        link
    }

    /// Ends the handshake's deadline.
    pub(crate) fn choose(&self) {
        self.chosen.store(true, SeqCst);
        self.receive_until(None);
        self.shared.counters.chosen.add(1);
    }

    pub(crate) fn is_chosen(&self) -> bool {
        self.chosen.load(SeqCst)
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(SeqCst)
    }

    /// Ends the connection; true for the first who does.
    pub(crate) fn kill(&self) -> bool {
        let first = !self.dead.swap(true, SeqCst);
        if first {
            // It fails only if the peer was faster.
            let _ = shutdown(&self.socket, Shutdown::Both);
        }
        first
    }

    /// Lets the reader finish what it has and end, at once if it only waits for a request.
    pub(crate) fn drain(&self) {
        if !self.is_chosen() {
            self.kill();
        } else if self.idle.load(SeqCst) {
            let _ = shutdown(&self.socket, Shutdown::Read);
        }
    }

    /// Ends the connection if its peer is too slow; true if so.
    pub(crate) fn watch(&self, now: Instant) -> bool {
        let now = self.shared.milliseconds(now);
        (self.receive_by.is_over(now) || self.send_by.is_over(now)) && self.kill()
    }

    /// Sets or ends the deadline for what is being received.
    pub(crate) fn receive_until(&self, deadline: Option<Instant>) {
        self.receive_by.set(deadline.map(|at| self.shared.milliseconds(at)));
    }

    /// Receives some bytes, 0 at the end.
    pub(crate) fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        let (_, count) = retry_on_intr(|| recv(&self.socket, &mut *into, RecvFlags::empty()))?;
        Ok(count)
    }

    /// Receives some bytes of a next request, 0 at the end or when the server drains. `tidy` is called when none came
    /// for a second.
    pub(crate) fn receive_next(&self, into: &mut [u8], tidy: Option<&mut dyn FnMut()>) -> io::Result<usize> {
        self.idle.store(true, SeqCst);
        if self.shared.is_draining() {
            return Ok(0);
        }
        if let Some(tidy) = tidy
            && !self.is_readable_within(Duration::from_secs(1))?
        {
            tidy();
        }
        let count = self.receive(into)?;
        self.idle.store(false, SeqCst);
        Ok(count)
    }

    fn is_readable_within(&self, time: Duration) -> io::Result<bool> {
        let time = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut polled, Some(&time)) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives exactly `into`; false if the peer ended before the first byte.
    pub(crate) fn receive_all(&self, mut into: &mut [u8]) -> io::Result<bool> {
        let whole = into.len();
        while !into.is_empty() {
            let left = into.len();
            match self.receive(into)? {
                0 if left == whole => return Ok(false),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => into = &mut into[count..],
            }
        }
        Ok(true)
    }

    /// Receives exactly `into`, in the middle of a request, within the peer's time for it.
    pub(crate) fn receive_payload(&self, mut into: &mut [u8]) -> io::Result<()> {
        let last = Instant::now() + self.shared.limits.time_for(into.len());
        while !into.is_empty() {
            self.receive_until(Some(last.min(Instant::now() + self.shared.limits.stall_time)));
            match self.receive(into)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => into = &mut into[count..],
            }
        }
        self.receive_until(None);
        Ok(())
    }

    /// Sends all of `parts`, whole and not mixed with what other threads send. A failure ends the connection.
    ///
    /// The caller is in no call of an export, nor holds a lock (N3).
    pub(crate) fn send(&self, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let _turn = self.sending.lock();
        // Most replies fit the socket's buffer: only if not, the peer gets a deadline.
        let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut last = None;
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            let some = &parts[..parts.len().min(512)];
            match sendmsg(&self.socket, some, &mut SendAncillaryBuffer::default(), flags) {
                Ok(count) => IoSlice::advance_slices(&mut parts, count),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => flags = SendFlags::NOSIGNAL,
                Err(error) => {
                    self.kill();
                    return Err(error.into());
                }
            }
            if !parts.is_empty() {
                let left = parts.iter().map(|part| part.len()).sum();
                let now = Instant::now();
                let last = *last.get_or_insert_with(|| now + self.shared.limits.time_for(left));
                self.send_by.set(Some(self.shared.milliseconds(last.min(now + self.shared.limits.stall_time))));
                flags = SendFlags::NOSIGNAL;
            }
        }
        if last.is_some() {
            self.send_by.set(None);
        }
        Ok(())
    }

    /// Sends `bytes` as [`send`](Link::send) does.
    pub(crate) fn send_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        self.send(&mut [IoSlice::new(bytes)])
    }
}

impl Deadline {
    fn set(&self, milliseconds: Option<u64>) {
        self.0.store(milliseconds.map_or(0, |at| at.max(1)), SeqCst);
    }

    fn is_over(&self, now: u64) -> bool {
        let at = self.0.load(SeqCst);
        at != 0 && at < now
    }
}
