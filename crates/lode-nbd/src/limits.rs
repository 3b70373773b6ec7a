//! What a peer can make the server hold, and for how long.

use std::{io, time::Duration};

use crate::wire::wide;

/// The limits of a server. [`Limits::default`] suits a server for one machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The whole handshake, from accept to the chosen export.
    pub handshake_time: Duration,
    /// Connections that have not chosen an export yet. Beyond, the eldest is closed once it is older than
    /// [`handshake_grace`](Limits::handshake_grace); until then new ones wait in the kernel's queue.
    pub handshakes_pending: usize,
    /// How old a handshake is at least before it is closed in favour of a new one.
    pub handshake_grace: Duration,
    /// Connections in all; more are closed at once.
    pub connections: usize,
    /// Options of one handshake.
    pub options: usize,
    /// Bytes of an option's data. Up to sixteen times as many are skipped and refused; beyond, the connection ends.
    pub option_bytes: u32,
    /// Bytes of a name or another string.
    pub string_bytes: u32,
    /// Metadata contexts that one connection may choose; a choice of more is refused.
    pub contexts: usize,
    /// Bytes of a request's payload, either way; a power of two. A write of up to twice as many is skipped and refused;
    /// beyond, the connection ends.
    pub payload_bytes: u32,
    /// Bytes of memory that all peers together can make the server hold.
    pub budget_bytes: u64,
    /// How long a request waits for its bytes of the budget before it fails with ENOMEM.
    pub budget_time: Duration,
    /// Requests of one connection that are handed to its worker threads and not answered yet.
    pub requests: usize,
    /// Worker threads of one connection; they are started when needed and end when idle.
    pub workers: usize,
    /// Each of a connection's two fixed buffers, in bytes; so much is received at once, and so many requests batched.
    pub buffer_bytes: usize,
    /// How long a peer may send nothing in the middle of a request, or take nothing of a reply.
    pub stall_time: Duration,
    /// The bytes per second that a peer must send or take at least, beyond the first `stall_time`.
    pub rate_bytes_per_second_min: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            handshake_time: Duration::from_secs(10),
            handshakes_pending: 64,
            handshake_grace: Duration::from_secs(1),
            connections: 256,
            options: 32,
            option_bytes: 8 << 10,
            string_bytes: 4096,
            contexts: 16,
            payload_bytes: 32 << 20,
            budget_bytes: 256 << 20,
            budget_time: Duration::from_secs(15),
            requests: 64,
            workers: 8,
            buffer_bytes: 256 << 10,
            stall_time: Duration::from_secs(60),
            rate_bytes_per_second_min: 64 << 10,
        }
    }
}

impl Limits {
    /// Refuses limits that contradict each other: with them a connection could wait for ever for what it holds itself.
    pub(crate) fn check(&self) -> io::Result<()> {
        let fixed = self.fixed_bytes().saturating_mul(wide(self.connections));
        let largest = u64::from(self.payload_bytes) + Self::ARENA_OVERHEAD;
        let sound = self.buffer_bytes >= 4096
            && self.payload_bytes >= 4096
            && self.payload_bytes.is_power_of_two()
            && self.option_bytes >= 64
            && [self.handshakes_pending, self.connections, self.options, self.contexts, self.requests, self.workers]
                .iter()
                .all(|&count| count > 0)
            && fixed.saturating_add(largest) <= self.budget_bytes;
        if sound { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, format!("limits: {self:?}"))) }
    }

    /// What a large payload may hold beyond its own bytes: the reply's header, and rounding.
    const ARENA_OVERHEAD: u64 = 128 << 10;

    /// What a connection holds of the budget for as long as it lives.
    pub(crate) fn fixed_bytes(&self) -> u64 {
        2 * wide(self.buffer_bytes)
    }

    /// How long `bytes` may take in all.
    pub(crate) fn time_for(&self, bytes: usize) -> Duration {
        let rate = u64::from(self.rate_bytes_per_second_min.max(1));
        self.stall_time + Duration::from_secs(wide(bytes) / rate)
    }
}
