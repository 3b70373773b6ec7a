//! The server's own thread: it accepts connections, and is the watch over the deadlines of all of them.
//!
//! It never waits for a peer, and goes on whatever accepting says: without file descriptors, connections wait in the
//! kernel's queue until there are some again.

use std::{
    collections::BTreeMap,
    io::Read,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use crate::{
    export::Exports,
    handshake::Greeting,
    link::{Link, Shared},
    listener::Listener,
    transmission::{self, End},
};

/// How often the watch looks at the deadlines.
const WATCH: Duration = Duration::from_millis(250);

/// The connections of a server.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    links: Mutex<BTreeMap<u64, Arc<Link>>>,
    left: Condvar,
}

impl Registry {
    /// All connections, and of these, how many have not chosen an export.
    pub(crate) fn count(&self) -> (usize, usize) {
        let links = self.links.lock();
        (links.len(), links.values().filter(|link| is_pending(link)).count())
    }

    pub(crate) fn for_each(&self, act: impl FnMut(&Arc<Link>)) {
        self.links.lock().values().for_each(act);
    }

    /// Waits until there is no connection; how many there still are at the deadline.
    pub(crate) fn wait_empty(&self, deadline: Instant) -> usize {
        let mut links = self.links.lock();
        while !links.is_empty() && !self.left.wait_until(&mut links, deadline).timed_out() {}
        links.len()
    }

    /// The handshake that lasts longest.
    fn eldest_pending(&self) -> Option<Arc<Link>> {
        self.links.lock().values().find(|link| is_pending(link)).cloned()
    }
}

fn is_pending(link: &Link) -> bool {
    !link.is_chosen() && !link.is_dead()
}

pub(crate) struct Acceptor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) exports: Arc<dyn Exports>,
    pub(crate) next: u64,
}

impl Acceptor {
    /// Accepts until draining, then drops the listener, and watches until the last connection has gone.
    pub(crate) fn run(mut self, listener: Listener, mut wake: UnixStream) {
        let mut listener = Some(listener);
        let mut watched = Instant::now();
        let mut patience = Duration::ZERO;
        loop {
            if self.shared.is_draining() {
                listener = None;
            }
            let empty = self.registry.count().0 == 0;
            if listener.is_none() && empty {
                return;
            }
            let accepting = listener.as_ref().filter(|_| patience.is_zero());
            let time = match (patience.is_zero(), empty) {
                (true, true) => None,
                (true, false) => Some(WATCH),
                (false, _) => Some(patience.min(WATCH)),
            };
            let ready = self.sleep(accepting, &mut wake, time);
            patience = match (&listener, ready) {
                (Some(listener), true) => self.accept(listener),
                _ => Duration::ZERO,
            };
            let now = Instant::now();
            if now - watched >= WATCH {
                watched = now;
                self.registry.for_each(|link| {
                    if link.watch(now) {
                        self.shared.counters.timeouts.add(1);
                    }
                });
            }
        }
    }

    /// Sleeps until a client connects, somebody wakes this thread, or the time is over; true in the first case.
    fn sleep(&self, listener: Option<&Listener>, wake: &mut UnixStream, time: Option<Duration>) -> bool {
        let time = time.map(|time| Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() });
        let mut polled = vec![PollFd::new(&*wake, PollFlags::IN)];
        polled.extend(listener.map(|listener| PollFd::new(listener, PollFlags::IN)));
        if poll(&mut polled, time.as_ref()).is_err() {
            return false;
        }
        let ready = polled.get(1).is_some_and(|polled| !polled.revents().is_empty());
        let woken = !polled[0].revents().is_empty();
        drop(polled);
        if woken {
            // It does not block; what is in it says nothing but "look".
            let _ = wake.read(&mut [0; 16]);
        }
        ready
    }

    /// Accepts one connection, unless that has to wait; how long to accept no more.
    fn accept(&mut self, listener: &Listener) -> Duration {
        let limits = &self.shared.limits;
        if self.registry.count().1 >= limits.handshakes_pending
            && let Some(eldest) = self.registry.eldest_pending()
        {
            let age = eldest.born.elapsed();
            if age < limits.handshake_grace {
                return limits.handshake_grace - age;
            }
            eldest.kill();
            self.shared.counters.evicted.add(1);
        }
        match listener.accept() {
            Ok(socket) => self.admit(socket),
            // The client was gone before it was accepted, or there was none.
            Err(Errno::CONNABORTED | Errno::INTR | Errno::AGAIN) => {}
            // EMFILE and its like: what is missing comes back when others let go of it.
            Err(_) => {
                self.shared.counters.accept_errors.add(1);
                return Duration::from_millis(50);
            }
        }
        Duration::ZERO
    }

    fn admit(&mut self, socket: OwnedFd) {
        self.shared.counters.accepted.add(1);
        if self.registry.count().0 >= self.shared.limits.connections {
            self.shared.counters.refused.add(1);
            return;
        }
        let id = self.next;
        self.next += 1;
        let link = Arc::new(Link::new(socket, Arc::clone(&self.shared)));
        self.registry.links.lock().insert(id, Arc::clone(&link));
        let connection =
            Connection { id, link, registry: Arc::clone(&self.registry), exports: Some(Arc::clone(&self.exports)) };
        // If there is no thread for it, the closure is dropped, and the connection with it.
        if thread::Builder::new().name("nbd-connection".into()).spawn(move || connection.run()).is_err() {
            self.shared.counters.refused.add(1);
        }
    }
}

/// One connection in its thread. Dropped, also by a panic, it closes the socket and leaves the registry (N5).
struct Connection {
    id: u64,
    link: Arc<Link>,
    registry: Arc<Registry>,
    /// There until the end: who finds the registry empty finds all exports let go as well.
    exports: Option<Arc<dyn Exports>>,
}

impl Connection {
    fn run(self) {
        if let Err(End::Protocol(error)) = self.serve() {
            self.link.shared.counters.protocol_errors.add(1);
            *self.link.shared.protocol_error.lock() = Some(error);
        }
    }

    fn serve(&self) -> Result<(), End> {
        let Some(exports) = &self.exports else { return Ok(()) };
        let Some(haggling) = Greeting::new(&self.link, &**exports).greet()? else { return Ok(()) };
        let Some(chosen) = haggling.haggle()? else { return Ok(()) };
        self.link.choose();
        let export = Arc::clone(&chosen.export);
        let read_only = chosen.terms.read_only;
        let served = transmission::serve(&self.link, chosen);
        if self.link.shared.draining.load(SeqCst) && !read_only {
            // Nobody waits for this flush; what fails here was not promised to anybody.
            let _ = export.flush();
        }
        served
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if thread::panicking() {
            self.link.shared.counters.panics.add(1);
        }
        self.link.kill();
        self.exports = None;
        self.registry.links.lock().remove(&self.id);
        self.registry.left.notify_all();
    }
}
