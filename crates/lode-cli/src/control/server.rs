//! The server of a control socket: takes requests, and runs each command in a thread of its own.

use super::peer::Peer;
use super::wire::{Answer, HEAD, Request};
use super::{ANSWER_TIME, CLIENTS_MAX, place, world};
use crate::arguments::Arguments;
use crate::commands;
use crate::failure::{Code, During, Failure, Result};
use crate::image::show;
use crate::reservations::Reservations;
use crate::session::{self, Session};
use crate::shelf::Shelf;
use lode::Disk;
use lode_nbd::Listener;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags, accept_with, recvmsg, send, sockopt,
};
use std::io::{Error, ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the accepting thread looks whether it is to end.
const LOOK_MS: i64 = 100;

/// Commands may be as deep as in a process of their own.
const STACK: usize = 8 << 20;

/// What the threads share.
struct Shared {
    disk: Disk,
    shelf: Arc<Shelf>,
    /// They end with this.
    reservations: Arc<Reservations>,
    image: (u64, u64),
    world: String,
    /// No more commands are accepted.
    closing: AtomicBool,
    /// Commands that run are to end.
    stopping: Arc<AtomicBool>,
    running: Mutex<usize>,
    ended: Condvar,
}

/// A control socket that is being listened on.
pub struct Control {
    shared: Arc<Shared>,
    shown: PathBuf,
    acceptor: Option<JoinHandle<()>>,
}

impl Control {
    /// Listens for commands on `disk`, which is in `image`.
    pub fn start(image: &Path, disk: &Disk, shelf: &Arc<Shelf>) -> Result<Control> {
        let place = place::of(image, true)?;
        let failed = |error| Failure::io(show(&place.shown), error);
        let shared = Arc::new(Shared {
            disk: disk.clone(),
            shelf: Arc::clone(shelf),
            reservations: Arc::default(),
            image: place::identity(image).map_err(failed)?,
            world: world(),
            closing: AtomicBool::new(false),
            stopping: Arc::default(),
            running: Mutex::new(0),
            ended: Condvar::new(),
        });
        // It is private, and takes the place of one that a killed server has left.
        let listener = Listener::unix(&place.path).map_err(failed)?;
        let (own, shown) = (Arc::clone(&shared), place.shown.clone());
        let accept = move || {
            own.accept(&listener);
            drop((listener, place));
        };
        let acceptor = std::thread::Builder::new().name("control".into()).spawn(accept);
        let acceptor = acceptor.map_err(|error| Failure::io("starting the control socket", error))?;
        Ok(Control { shared, shown, acceptor: Some(acceptor) })
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.shown
    }

    /// Takes no more commands, gives those that run so long to end, and then ends them at the next place where they can.
    pub fn drain(mut self, patience: Duration) {
        self.close();
        if !self.shared.wait(patience) {
            self.shared.stopping.store(true, Ordering::Relaxed);
            self.shared.wait(Duration::from_secs(2));
        }
    }

    fn close(&mut self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        if let Some(acceptor) = self.acceptor.take() {
            // It has no panic that could be acted on.
            let _ = acceptor.join();
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.close();
        self.shared.stopping.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    /// Waits until no command runs; false if that takes longer.
    fn wait(&self, patience: Duration) -> bool {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.ended.wait_timeout_while(running, patience, |running| *running > 0);
        *waited.unwrap_or_else(PoisonError::into_inner).0 == 0
    }

    fn accept(self: &Arc<Self>, listener: &Listener) {
        let time = Timespec { tv_sec: 0, tv_nsec: LOOK_MS * 1_000_000 };
        while !self.closing.load(Ordering::Relaxed) {
            let ready = poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&time));
            if !matches!(ready, Ok(1..)) {
                continue;
            }
            match accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(socket) => self.welcome(socket.into()),
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                // No file descriptors are left; there may be some again.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Begins with a client in a thread, if it may have one.
    fn welcome(self: &Arc<Self>, socket: UnixStream) {
        let own = rustix::process::geteuid().as_raw();
        let allowed = |user: u32| user == own || user == 0;
        if !sockopt::socket_peercred(&socket).is_ok_and(|peer| allowed(peer.uid.as_raw())) {
            return dismiss(&socket, Code::Denied, "the server of this disk obeys its own user and root only".into());
        }
        let Some(place) = Running::begin(self) else {
            let words = format!("the server of this disk runs {CLIENTS_MAX} commands already");
            return dismiss(&socket, Code::Busy, words);
        };
        let shared = Arc::clone(self);
        let serve = move || {
            // Who asks in no sound way gets no answer.
            let _ = shared.serve(socket);
            drop(place);
        };
        let _ = std::thread::Builder::new().name("control-command".into()).stack_size(STACK).spawn(serve);
    }

    fn serve(&self, socket: UnixStream) -> std::io::Result<()> {
        socket.set_write_timeout(Some(ANSWER_TIME))?;
        (&socket).write_all(&Answer::Ready.encode())?;
        let (request, stdin, stdout) = receive(&socket)?;
        let peer = Rc::new(Peer::new(socket, stdin, stdout, Arc::clone(&self.stopping)));
        if request.image != self.image {
            return peer.tell(&Answer::Other);
        }
        let run = || self.command(request, &peer);
        let outcome = catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|_| Err(Failure::new(Code::Io, "the command panicked, in the server of the disk")));
        let (code, words) = match outcome {
            Ok(code) => (code, None),
            Err(failure) => (failure.code(), Some(failure.words().to_owned())),
        };
        peer.tell(&Answer::Done { code, words })
    }

    fn command(&self, request: Request, peer: &Rc<Peer>) -> Result<Code> {
        let (arguments, image) = Arguments::parse(request.arguments)
            .map_err(|error| Failure::usage(error.to_string().lines().next().unwrap_or_default()))
            .during(|| format!("the disk is served by lode {}", env!("CARGO_PKG_VERSION")))?;
        let image = image.filter(|_| !arguments.command.needs_the_disk_alone());
        let image = image.ok_or_else(|| Failure::usage("this command does not run on a disk that is served"))?;
        let session = Session {
            peer: Rc::clone(peer),
            disk: self.disk.clone(),
            shelf: Arc::clone(&self.shelf),
            reservations: Arc::clone(&self.reservations),
            image,
            directory: request.directory,
            umask: request.umask,
            foreign: request.world != self.world,
        };
        session::within(session, || commands::run(arguments.command))
    }
}

/// Says why a client is not served.
fn dismiss(socket: &UnixStream, code: Code, words: String) {
    let answer = Answer::Done { code, words: Some(words) };
    // A new connection takes this at once, or not at all.
    let _ = send(socket, &answer.encode(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// A place among the commands that may run.
struct Running(Arc<Shared>);

impl Running {
    fn begin(shared: &Arc<Shared>) -> Option<Running> {
        let mut running = shared.running.lock().unwrap_or_else(PoisonError::into_inner);
        (*running < CLIENTS_MAX).then(|| {
            *running += 1;
            Running(Arc::clone(shared))
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *self.0.running.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.ended.notify_all();
    }
}

/// The request, and the client's standard input and output.
fn receive(socket: &UnixStream) -> std::io::Result<(Request, OwnedFd, OwnedFd)> {
    let until = Instant::now() + ANSWER_TIME;
    socket.set_read_timeout(Some(ANSWER_TIME))?;
    let mut head = [0; HEAD];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let found = recvmsg(socket, &mut [IoSliceMut::new(&mut head)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut passed = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(passed) => Some(passed),
        _ => None,
    });
    let mut passed = passed.next().into_iter().flatten();
    let (Some(stdin), Some(stdout), HEAD) = (passed.next(), passed.next(), found.bytes) else {
        return Err(Error::new(ErrorKind::InvalidData, "expected a head with two files"));
    };
    let mut body = vec![0; Request::body(&head)?];
    let mut filled = 0;
    while filled < body.len() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        match { socket }.read(&mut body[filled..])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            more => filled += more,
        }
    }
    socket.set_read_timeout(None)?;
    Ok((Request::decode(&body)?, stdin, stdout))
}
