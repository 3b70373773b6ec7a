//! A running server: started on a listener, asked for its numbers, drained.

use std::{
    io::{self, Write},
    os::unix::net::UnixStream,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use crate::{
    accept::{Acceptor, Registry},
    error::ProtocolError,
    export::Exports,
    limits::Limits,
    link::Shared,
    listener::{Address, Listener},
    stats::Stats,
};

/// A server that accepts and serves connections in threads of its own.
///
/// Dropped without a [`drain`](Server::drain), it ends at once: all connections are closed, whatever is in flight.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    registry: Arc<Registry>,
    address: Address,
    wake: UnixStream,
    acceptor: Option<thread::JoinHandle<()>>,
}

/// How a drain went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Connections that ended by themselves: all that they had asked for is done and answered.
    pub finished: usize,
    /// Connections that were closed at the deadline.
    pub dropped: usize,
}

impl Server {
    /// Serves `exports` to whoever connects to `listener`.
    pub fn start(listener: Listener, exports: Arc<dyn Exports>, limits: Limits) -> io::Result<Self> {
        limits.check()?;
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let shared = Shared::new(limits);
        let registry = Arc::new(Registry::default());
        let address = listener.address().clone();
        let acceptor = Acceptor { shared: Arc::clone(&shared), registry: Arc::clone(&registry), exports, next: 0 };
        let acceptor = thread::Builder::new().name("nbd-accept".into()).spawn(move || acceptor.run(listener, woken))?;
        Ok(Server { shared, registry, address, wake, acceptor: Some(acceptor) })
    }

    /// Where clients connect to.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What the server has done, and what it holds now.
    pub fn stats(&self) -> Stats {
        let (connections, pending) = self.registry.count();
        let (used, used_max) = self.shared.budget.used();
        Stats {
            connections: u64::try_from(connections).unwrap_or(u64::MAX),
            handshakes_pending: u64::try_from(pending).unwrap_or(u64::MAX),
            budget_bytes_used: used,
            budget_bytes_used_max: used_max,
            ..self.shared.counters.snapshot()
        }
    }

    /// How a peer broke the protocol last, if one did.
    pub fn last_protocol_error(&self) -> Option<ProtocolError> {
        *self.shared.protocol_error.lock()
    }

    /// Ends the server in order: accepts no more, closes handshakes, lets each connection finish the requests that it
    /// has received, flushes its export, and closes it. Connections that are not done within `patience` are closed.
    ///
    /// A thread that is inside of a call of an export cannot be stopped: it ends when that call returns.
    pub fn drain(mut self, patience: Duration) -> DrainReport {
        self.stop_accepting();
        let all = self.registry.count().0;
        self.registry.for_each(|link| link.drain());
        let left = self.registry.wait_empty(Instant::now() + patience);
        self.registry.for_each(|link| {
            link.kill();
        });
        let dropped = left.min(all);
        if self.registry.wait_empty(Instant::now() + Duration::from_millis(200)) == 0 {
            self.join();
        }
        DrainReport { finished: all - dropped, dropped }
    }

    fn stop_accepting(&mut self) {
        self.shared.draining.store(true, SeqCst);
        // A full pipe wakes as well.
        let _ = self.wake.write(&[0]);
    }

    fn join(&mut self) {
        let _ = self.wake.write(&[0]);
        if let Some(acceptor) = self.acceptor.take() {
            // It has no panic that a caller could act on.
            let _ = acceptor.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.acceptor.is_some() {
            self.stop_accepting();
            self.registry.for_each(|link| {
                link.kill();
            });
        }
    }
}
