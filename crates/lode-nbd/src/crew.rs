//! The worker threads of one connection: they do what would keep its reader from receiving while the client has more in
//! flight. They are started when there is work for them, and end when there was none for a second.
//!
//! *Settling* is to make writes durable against a power cut. All that wait for it are settled together by one call, and
//! while that runs the next ones gather: so a client that sends many FUA writes or flushes pays for few.
//!
//! Writes that the reader has done are settled after it has done them, and a flush covers all writes that were replied
//! to before it came: both are executed in the export before the job is queued.

use std::{collections::VecDeque, io::IoSlice, sync::Arc, thread, time::Duration};

use parking_lot::{Condvar, Mutex};

use crate::{
    arena::{Arena, Arenas},
    error::ExportError,
    export::{Durability, Export, Ticket},
    link::Link,
    reads::{self, PendingRead},
    replies::count,
    reply,
    request::Cookie,
    terms::{Terms, Work},
    wire::{Errno, wide},
};

/// How long a worker without work lives on.
const IDLE: Duration = Duration::from_secs(1);

/// What a worker can do.
#[derive(Debug)]
pub(crate) enum Job {
    /// Reads that are made and sent together.
    Reads(Vec<PendingRead>),
    /// A write whose payload has its own buffer.
    Write { cookie: Cookie, offset: u64, bytes: usize, until: Durability, arena: Arena },
    /// A change without payload.
    Change { cookie: Cookie, work: Work },
}

/// What waits to be settled.
#[derive(Debug, Default)]
struct Settle {
    cookies: Vec<Cookie>,
    ticket: Ticket,
    flush: bool,
}

enum Task {
    Job(Job),
    Settle(Settle),
}

pub(crate) struct Crew {
    link: Arc<Link>,
    export: Arc<dyn Export>,
    terms: Terms,
    pub(crate) arenas: Arenas,
    state: Mutex<State>,
    work: Condvar,
    room: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    settle: Settle,
    settling: bool,
    workers: usize,
    sleeping: usize,
    in_flight: usize,
    closed: bool,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Job {
    fn requests(&self) -> usize {
        if let Job::Reads(reads) = self { reads.len() } else { 1 }
    }
}

impl Crew {
    pub(crate) fn new(link: &Arc<Link>, export: &Arc<dyn Export>, terms: &Terms) -> Arc<Self> {
        let limits = &link.shared.limits;
        Arc::new(Crew {
            link: Arc::clone(link),
            export: Arc::clone(export),
            terms: terms.clone(),
            arenas: Arenas::new(limits.workers + 1, Arc::clone(&link.shared.budget), limits.budget_time),
            state: Mutex::default(),
            work: Condvar::new(),
            room: Condvar::new(),
        })
    }

    /// Whether anything is queued or being done.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.lock().in_flight > 0
    }

    /// Queues a job, waiting while too many requests are in flight. It comes back if there is nobody to do it.
    pub(crate) fn submit(self: &Arc<Self>, job: Job) -> Result<(), Job> {
        let mut state = self.admit(job.requests());
        if !self.staff(&mut state) {
            state.in_flight -= job.requests();
            return Err(job);
        }
        state.jobs.push_back(job);
        self.work.notify_one();
        Ok(())
    }

    /// Queues the rest of a write with FUA, or of a flush if there is no ticket; false if there is nobody to do it.
    pub(crate) fn settle(self: &Arc<Self>, cookie: Cookie, ticket: Option<Ticket>) -> bool {
        let mut state = self.admit(1);
        if !self.staff(&mut state) {
            state.in_flight -= 1;
            return false;
        }
        state.settle.cookies.push(cookie);
        match ticket {
            Some(ticket) => state.settle.ticket = state.settle.ticket.max(ticket),
            None => state.settle.flush = true,
        }
        self.work.notify_one();
        true
    }

    /// Returns when nothing is in flight and the workers have gone: afterwards no thread of theirs holds the export.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        while state.in_flight > 0 {
            self.room.wait(&mut state);
        }
        state.closed = true;
        self.work.notify_all();
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        for thread in threads {
            // A panic in it was counted when it happened.
            let _ = thread.join();
        }
    }

    fn admit(&self, requests: usize) -> parking_lot::MutexGuard<'_, State> {
        let mut state = self.state.lock();
        while state.in_flight > 0 && state.in_flight + requests > self.link.shared.limits.requests {
            self.room.wait(&mut state);
        }
        state.in_flight += requests;
        state
    }

    /// Sees that there is somebody for one more task; false if there is nobody at all.
    fn staff(self: &Arc<Self>, state: &mut State) -> bool {
        let waiting = state.jobs.len() + usize::from(!state.settle.cookies.is_empty() && !state.settling);
        if state.sleeping <= waiting && state.workers < self.link.shared.limits.workers {
            let crew = Arc::clone(self);
            let spawned = thread::Builder::new().name("nbd-worker".into()).spawn(move || crew.run());
            state.workers += usize::from(spawned.is_ok());
            // Those that have ended need not be waited for.
            state.threads.retain(|thread| !thread.is_finished());
            state.threads.extend(spawned);
        }
        state.workers > 0
    }

    fn run(&self) {
        while let Some(task) = self.next() {
            let mut turn = Turn { crew: self, requests: 0, settling: false };
            match task {
                Task::Job(job) => {
                    turn.requests = job.requests();
                    self.work(job);
                }
                Task::Settle(settle) => {
                    turn.requests = settle.cookies.len();
                    turn.settling = true;
                    self.settle_all(&settle);
                }
            }
        }
    }

    fn next(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if !state.settle.cookies.is_empty() && !state.settling {
                state.settling = true;
                return Some(Task::Settle(std::mem::take(&mut state.settle)));
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(Task::Job(job));
            }
            state.sleeping += 1;
            let late = !state.closed && self.work.wait_for(&mut state, IDLE).timed_out();
            state.sleeping -= 1;
            let idle = state.jobs.is_empty() && (state.settle.cookies.is_empty() || state.settling);
            if idle && (late || state.closed) {
                state.workers -= 1;
                return None;
            }
        }
    }

    /// Does a job in the thread of the caller, and replies.
    pub(crate) fn work(&self, job: Job) {
        // Nobody hears of it any more, so nothing is promised.
        if self.link.is_dead() {
            return;
        }
        match job {
            Job::Reads(reads) => self.read(&reads),
            Job::Write { cookie, offset, bytes, until, arena } => {
                let result = self.export.write(offset, &arena.bytes[..bytes], until);
                self.arenas.put(arena);
                if result.is_ok() {
                    self.link.shared.counters.bytes_written.add(wide(bytes));
                }
                self.reply(&[cookie], result);
            }
            Job::Change { cookie, work } => self.reply(&[cookie], change(&*self.export, &work)),
        }
    }

    /// Does reads in the thread of the caller, and replies.
    pub(crate) fn read(&self, reads: &[PendingRead]) {
        let bytes = reads.iter().map(|read| read.reply_bytes(&self.terms)).sum();
        let Some(mut arena) = self.arenas.take(bytes) else {
            self.link.shared.counters.budget_refusals.add(1);
            for read in reads {
                self.fail_read(read.cookie, Errno::NoMemory);
            }
            return;
        };
        let mut parts = Vec::new();
        let counters = &self.link.shared.counters;
        reads::answer(&*self.export, &self.terms, counters, reads, &mut arena.bytes, &mut parts);
        let mut slices: Vec<_> = parts.into_iter().map(|part| IoSlice::new(&arena.bytes[part])).collect();
        // A failure has ended the connection, and the reader sees that.
        let _ = self.link.send(&mut slices);
        self.arenas.put(arena);
    }

    fn fail_read(&self, cookie: Cookie, error: Errno) {
        count(&self.link, Some(error));
        // As in `read`.
        let _ = if self.terms.structured {
            self.link.send_bytes(&reply::structured_error(cookie, error))
        } else {
            self.link.send_bytes(&reply::simple(cookie, Some(error)))
        };
    }

    fn settle_all(&self, settle: &Settle) {
        let result =
            if settle.flush { self.export.flush() } else { self.export.wait(settle.ticket, Durability::Power) };
        self.reply(&settle.cookies, result);
    }

    fn reply(&self, cookies: &[Cookie], result: Result<(), ExportError>) {
        let error = result.err().map(|error| error.errno());
        let mut replies = Vec::with_capacity(cookies.len() * 16);
        for &cookie in cookies {
            count(&self.link, error);
            replies.extend_from_slice(&reply::simple(cookie, error));
        }
        // As in `read`.
        let _ = self.link.send_bytes(&replies);
    }
}

/// Does a change without payload, or a flush.
pub(crate) fn change(export: &dyn Export, work: &Work) -> Result<(), ExportError> {
    match *work {
        Work::Flush => export.flush(),
        Work::Trim { offset, bytes, until } => export.trim(offset, bytes, until),
        Work::Zero { offset, bytes, may_punch, until, .. } => export.zero(offset, bytes, may_punch, until),
        Work::Read { .. } | Work::Write { .. } | Work::Nothing | Work::Status { .. } | Work::Disconnect => Ok(()),
    }
}

/// A task being done: its end is noted also when it panics, which ends the connection (N5).
struct Turn<'a> {
    crew: &'a Crew,
    requests: usize,
    settling: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.crew.link.kill();
            self.crew.link.shared.counters.panics.add(1);
        }
        let mut state = self.crew.state.lock();
        state.in_flight -= self.requests;
        if thread::panicking() {
            // This worker is gone, and nobody will hear of what is queued.
            state.workers -= 1;
            let queued: usize = state.jobs.drain(..).map(|job| job.requests()).sum();
            state.in_flight -= queued + std::mem::take(&mut state.settle).cookies.len();
        }
        if self.settling {
            state.settling = false;
            if !state.settle.cookies.is_empty() {
                self.crew.work.notify_one();
            }
        }
        self.crew.room.notify_all();
    }
}
