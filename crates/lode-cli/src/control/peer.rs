//! A client as its server sees it: its standard input and output, what it is told, and whether it is still there.
//!
//! Nothing here waits for longer than the client lives, or than the server runs: every read and write waits for the
//! other side by `poll`, with the client's socket beside it. Input and output stay as they are for other processes that
//! have them open, so they are not made non-blocking; what is written at a time is what a pipe takes that takes
//! anything at all.

use super::wire::Answer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{SendFlags, send, sockopt};
use std::cell::Cell;
use std::io::{Error, ErrorKind, IsTerminal, Read, Result, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the end of the server is looked for, in milliseconds.
const LOOK_MS: i64 = 250;

/// What a pipe takes at once if it takes anything (`PIPE_BUF`).
const PIPE: usize = 4096;

/// How often progress is told.
const TOLD: Duration = Duration::from_millis(100);

/// A client and its command.
pub struct Peer {
    socket: UnixStream,
    process: i32,
    stdin: OwnedFd,
    stdout: OwnedFd,
    /// Set when the server ends.
    stopping: Arc<AtomicBool>,
    told: Cell<Option<Instant>>,
    reading: Cell<bool>,
}

fn gone() -> Error {
    Error::new(ErrorKind::ConnectionAborted, "whoever asked for this has gone")
}

impl Peer {
    /// The client at `socket`.
    pub fn new(socket: UnixStream, stdin: OwnedFd, stdout: OwnedFd, stopping: Arc<AtomicBool>) -> Peer {
        let process = sockopt::socket_peercred(&socket).map_or(0, |peer| peer.pid.as_raw_nonzero().get());
        Peer { socket, process, stdin, stdout, stopping, told: Cell::default(), reading: Cell::default() }
    }

    /// Whether its standard input and output are terminals.
    pub fn terminals(&self) -> (bool, bool) {
        (self.stdin.is_terminal(), self.stdout.is_terminal())
    }

    /// The number of its process, as this process knows it.
    pub fn process(&self) -> i32 {
        self.process
    }

    /// Fails if the client has gone, or the server is ending.
    pub fn wanted(&self) -> Result<()> {
        self.poll(None, Timespec::default()).map(drop)
    }

    /// Tells how far the command has come, unless that was told just now; and looks whether it is still wanted.
    pub fn progress(&self, what: &str, done: u64, total: Option<u64>) -> Result<()> {
        if self.told.get().is_some_and(|told| told.elapsed() < TOLD) {
            return Ok(());
        }
        self.told.set(Some(Instant::now()));
        self.wanted()?;
        let bytes = Answer::Progress { done, total, what: what.to_owned() }.encode();
        // It is short, so it goes whole or not at all. A client that does not look need not be told.
        let _ = send(&self.socket, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        Ok(())
    }

    /// Tells the client something, as soon as it listens.
    pub fn tell(&self, answer: &Answer) -> Result<()> {
        let bytes = answer.encode();
        let mut left = &bytes[..];
        while !left.is_empty() {
            // First without waiting: also the end of the server is told.
            match send(&self.socket, left, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => left = &left[sent..],
                Err(Errno::AGAIN) => self.wait(self.socket.as_fd(), PollFlags::OUT)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Asks the client whether it is still there, and waits until it says so.
    fn ask(&self) -> Result<()> {
        self.tell(&Answer::Ask)?;
        self.wait(self.socket.as_fd(), PollFlags::IN)?;
        match (&self.socket).read(&mut [0])? {
            0 => Err(gone()),
            _ => Ok(()),
        }
    }

    /// Waits until `fd` is ready, or has failed, which the next call on it tells.
    fn wait(&self, fd: BorrowedFd<'_>, ready: PollFlags) -> Result<()> {
        let time = Timespec { tv_sec: 0, tv_nsec: LOOK_MS * 1_000_000 };
        while !self.poll(Some((fd, ready)), time)? {}
        Ok(())
    }

    /// Whether `fd` is ready within `time`.
    fn poll(&self, fd: Option<(BorrowedFd<'_>, PollFlags)>, time: Timespec) -> Result<bool> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::ConnectionAborted, "the server is ending"));
        }
        let mut polled = vec![PollFd::new(&self.socket, PollFlags::RDHUP)];
        polled.extend(fd.map(|(fd, ready)| PollFd::from_borrowed_fd(fd, ready)));
        match poll(&mut polled, Some(&time)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        if polled[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR) {
            return Err(gone());
        }
        Ok(polled.get(1).is_some_and(|polled| !polled.revents().is_empty()))
    }
}

/// The client's standard input, or a file that it reads.
pub struct Input {
    /// The client.
    pub peer: Rc<Peer>,
    /// The file; without one, standard input.
    pub file: Option<OwnedFd>,
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let peer = &self.peer;
        if self.file.is_none() && !peer.reading.replace(true) {
            peer.tell(&Answer::Input)?;
        }
        let file = self.file.as_ref().unwrap_or(&peer.stdin);
        loop {
            peer.wait(file.as_fd(), PollFlags::IN)?;
            match rustix::io::read(file, &mut *into) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Ok(0) if !into.is_empty() => return peer.ask().map(|()| 0),
                read => return Ok(read?),
            }
        }
    }
}

/// The client's standard output, or a file that it writes.
pub struct Output {
    /// The client.
    pub peer: Rc<Peer>,
    /// The file; without one, standard output.
    pub file: Option<OwnedFd>,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let peer = &self.peer;
        let file = self.file.as_ref().unwrap_or(&peer.stdout);
        let whole = rustix::fs::fstat(file).map(|stat| FileType::from_raw_mode(stat.st_mode).is_file())?;
        let piece = if whole { bytes } else { &bytes[..bytes.len().min(PIPE)] };
        loop {
            peer.wait(file.as_fd(), PollFlags::OUT)?;
            match rustix::io::write(file, piece) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
