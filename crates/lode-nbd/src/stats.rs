//! What a server has done since it was started, as numbers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Numbers since the start of a server, and what it holds now.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
            /// Connections now.
            pub connections: u64,
            /// Of these, still in the handshake.
            pub handshakes_pending: u64,
            /// Bytes of the budget in use now.
            pub budget_bytes_used: u64,
            /// The most that ever were.
            pub budget_bytes_used_max: u64,
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: Counter,)* }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Stats {
                Stats { $($name: self.$name.get(),)* ..Stats::default() }
            }
        }
    };
}

counters! {
    /// Connections accepted.
    accepted,
    /// Connections closed at once because there were too many, or no thread for them.
    refused,
    /// Handshakes closed in favour of newer ones.
    evicted,
    /// Times that accepting failed, for example for want of file descriptors.
    accept_errors,
    /// Connections that chose an export.
    chosen,
    /// Connections ended because the peer broke the protocol.
    protocol_errors,
    /// Connections ended because the peer was too slow.
    timeouts,
    /// Connections ended by a panic in one of their threads.
    panics,
    /// Requests that were answered.
    requests,
    /// Of these, with an error.
    errors,
    /// Requests that failed because memory for them did not come in time.
    budget_refusals,
    /// Batches: how often the server turned to a connection and did all that it had sent.
    batches,
    /// Bytes that were read for peers.
    bytes_read,
    /// Bytes that were written for peers.
    bytes_written,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
