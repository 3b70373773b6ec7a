//! The client of a control socket: asks the server of an image, if there is one, to run this very command line.

use super::wire::{Answer, HEAD, Request};
use super::{ANSWER_TIME, place, world};
use crate::failure::{Code, Failure, Result};
use crate::image::show;
use crate::progress::Progress;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    connect, sendmsg, socket_with, sockopt,
};
use std::ffi::OsString;
use std::io::{ErrorKind, IoSlice, IsTerminal, PipeWriter, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// How it went.
pub enum Outcome {
    /// A server has run the command.
    Done(Code),
    /// There is no server for this image; or there is a socket that was not used, and why.
    Alone(Option<String>),
}

/// Has the server of `image` run this command line, if there is one.
pub fn run(image: &Path, arguments: Vec<OsString>) -> Result<Outcome> {
    // Whatever is wrong with the path, opening it tells better.
    let (Ok(place), Ok(identity)) = (place::of(image, false), place::identity(image)) else {
        return Ok(Outcome::Alone(None));
    };
    let shown = show(&place.shown);
    let socket = match call(&place.path) {
        Ok(socket) => socket,
        Err(Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR) => return Ok(Outcome::Alone(None)),
        Err(Errno::AGAIN) => return Err(Failure::new(Code::Busy, format!("{shown}: its server does not answer"))),
        Err(error) => return Ok(Outcome::Alone(Some(format!("{shown}: {}", std::io::Error::from(error))))),
    };
    let server = sockopt::socket_peercred(&socket).map_err(|error| Failure::io(&shown, error.into()))?;
    let owner = image.metadata().map(|found| found.uid()).ok();
    let user = server.uid.as_raw();
    if user != 0 && user != rustix::process::geteuid().as_raw() && Some(user) != owner {
        return Ok(Outcome::Alone(Some(format!("{shown} belongs to user {user}, who is not trusted"))));
    }
    // The umask can be read only by setting it.
    let umask = rustix::process::umask(Mode::RWXU);
    rustix::process::umask(umask);
    let directory = std::env::current_dir().unwrap_or_default();
    let request = Request { world: world(), umask: umask.bits(), image: identity, directory, arguments };
    converse(&socket, &request, image, server.pid.as_raw_nonzero().get())
}

fn call(path: &Path) -> std::result::Result<UnixStream, Errno> {
    // Not blocking, or a server that hangs could keep this for ever.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket.into())
}

/// Asks, and does what the server says until it is done.
fn converse(socket: &UnixStream, request: &Request, image: &Path, process: i32) -> Result<Outcome> {
    let words = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::new(
            Code::Busy,
            format!("expected process {process}, which serves {}, to answer, it did not", show(image)),
        ),
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Failure::new(
            Code::Io,
            format!("process {process}, which served {}, has ended before the command was done", show(image)),
        ),
        _ => Failure::io(format!("asking process {process}, which serves {}", show(image)), error),
    };
    let mut input = Input::new().map_err(words)?;
    let (mut reader, mut progress) = (socket, None);
    socket.set_read_timeout(Some(ANSWER_TIME)).map_err(words)?;
    socket.set_write_timeout(Some(ANSWER_TIME)).map_err(words)?;
    loop {
        match Answer::read(&mut reader).map_err(words)? {
            Answer::Ready => {
                send(socket, request, &input).map_err(words)?;
                socket.set_read_timeout(None).map_err(words)?;
            }
            Answer::Other => return Ok(Outcome::Alone(None)),
            Answer::Input => input.wanted(),
            Answer::Ask => (&*socket).write_all(&[1]).map_err(words)?,
            Answer::Progress { done, total, what } => show_progress(&mut progress, what, done, total),
            Answer::Done { code, words: None } => return Ok(Outcome::Done(code)),
            Answer::Done { code, words: Some(words) } => return Err(Failure::new(code, words)),
        }
    }
}

fn send(mut socket: &UnixStream, request: &Request, input: &Input) -> std::io::Result<()> {
    let request = request.encode()?;
    let stdout = std::io::stdout();
    let passed = [input.fd(), stdout.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&passed));
    let sent = sendmsg(socket, &[IoSlice::new(&request[..HEAD])], &mut control, SendFlags::NOSIGNAL)?;
    socket.write_all(&request[sent..])
}

fn show_progress(shown: &mut Option<(String, Progress)>, what: String, done: u64, total: Option<u64>) {
    if shown.as_ref().is_none_or(|(now, _)| *now != what) {
        *shown = Some((what.clone(), Progress::bytes(what, total)));
    }
    let Some((_, progress)) = shown else { return };
    if let Some(total) = total {
        progress.set_total(total);
    }
    // It cannot be unwanted: this is where it is wanted.
    let _ = progress.set(done);
}

/// Standard input, as it is given to the server. A terminal is not given away: reading it would stop a server that runs
/// in its background. What is typed goes through a pipe instead, from when the server wants it.
enum Input {
    Given(std::io::Stdin),
    Typed { reader: OwnedFd, writer: Option<PipeWriter> },
}

impl Input {
    fn new() -> std::io::Result<Input> {
        if !std::io::stdin().is_terminal() {
            return Ok(Input::Given(std::io::stdin()));
        }
        let (reader, writer) = std::io::pipe()?;
        Ok(Input::Typed { reader: reader.into(), writer: Some(writer) })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Input::Given(stdin) => stdin.as_fd(),
            Input::Typed { reader, .. } => reader.as_fd(),
        }
    }

    fn wanted(&mut self) {
        if let Input::Typed { writer, .. } = self
            && let Some(mut writer) = writer.take()
        {
            // It ends with the input, or with this process.
            std::thread::spawn(move || std::io::copy(&mut std::io::stdin(), &mut writer));
        }
    }
}
