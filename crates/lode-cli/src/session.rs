//! Where a command runs: in a process of its own, or in the server of the disk, for a client of its control socket (see
//! `control`). A command reads, prints, and finds files through this, and need not know.
//!
//! A session belongs to the thread that runs the command: threads that a command starts have none.

use crate::control::peer::{Input, Output, Peer};
use crate::failure::{Failure, Result};
use crate::reservations::Reservations;
use crate::shelf::Shelf;
use lode::Disk;
use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// A command that is run for a client.
pub struct Session {
    /// The client.
    pub peer: Rc<Peer>,
    /// The disk that is served.
    pub disk: Disk,
    /// Units that connections are bound to.
    pub shelf: Arc<Shelf>,
    /// Space that its server holds.
    pub reservations: Arc<Reservations>,
    /// The argument that names it.
    pub image: PathBuf,
    /// The client's working directory.
    pub directory: PathBuf,
    /// The permissions that its new files do not get.
    pub umask: u32,
    /// Paths do not mean the same to the client and to this process.
    pub foreign: bool,
}

thread_local! {
    static SESSION: RefCell<Option<Rc<Session>>> = const { RefCell::new(None) };
}

fn current() -> Option<Rc<Session>> {
    SESSION.with_borrow(Clone::clone)
}

/// Runs `work` in this session.
pub fn within<T>(session: Session, work: impl FnOnce() -> T) -> T {
    /// Ends it, also if the work panics.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            SESSION.set(None);
        }
    }
    SESSION.set(Some(Rc::new(session)));
    let _end = End;
    work()
}

/// The disk that is served, if the argument `image` means it.
pub fn served(image: &Path) -> Option<Disk> {
    current().filter(|session| session.image == image).map(|session| session.disk.clone())
}

/// The units that connections of the server are bound to.
pub fn shelf() -> Option<Arc<Shelf>> {
    current().map(|session| Arc::clone(&session.shelf))
}

/// What the server holds; nothing without one.
pub fn reservations() -> Option<Arc<Reservations>> {
    current().map(|session| Arc::clone(&session.reservations))
}

/// Standard input.
pub fn stdin() -> Box<dyn Read> {
    match current() {
        Some(session) => Box::new(Input { peer: Rc::clone(&session.peer), file: None }),
        None => Box::new(std::io::stdin().lock()),
    }
}

/// Standard output.
pub fn stdout() -> Box<dyn Write> {
    match current() {
        Some(session) => Box::new(Output { peer: Rc::clone(&session.peer), file: None }),
        None => Box::new(std::io::stdout().lock()),
    }
}

/// Whether a person would type what is read.
pub fn stdin_is_terminal() -> bool {
    peer().map_or_else(|| std::io::stdin().is_terminal(), |peer| peer.terminals().0)
}

/// Whether a person would see what is written.
pub fn stdout_is_terminal() -> bool {
    peer().map_or_else(|| std::io::stdout().is_terminal(), |peer| peer.terminals().1)
}

/// The path of a file that was typed, as this process has to open it.
pub fn path(typed: &Path) -> Result<PathBuf> {
    let Some(session) = current() else { return Ok(typed.to_owned()) };
    if session.foreign {
        let words = "the server of this disk sees other files than you do; use - for standard input or output";
        return Err(Failure::usage(format!("{}: {words}", crate::image::show(typed))));
    }
    Ok(as_of(session.peer.process(), &session.directory.join(typed)))
}

/// A path that means a file which the client has open, as this process has to open it: `/dev/stdin`, and what a shell
/// makes of `<(command)`.
fn as_of(process: i32, path: &Path) -> PathBuf {
    let own = Path::new("/proc").join(process.to_string());
    for (name, number) in [("/dev/stdin", "0"), ("/dev/stdout", "1"), ("/dev/stderr", "2")] {
        if path == Path::new(name) {
            return own.join("fd").join(number);
        }
    }
    match path.strip_prefix("/dev/fd") {
        Ok(number) => own.join("fd").join(number),
        Err(_) => path.strip_prefix("/proc/self").map_or_else(|_| path.to_owned(), |rest| own.join(rest)),
    }
}

/// What comes out of `file`, as long as the client is there to want it.
pub fn reader(file: File) -> Box<dyn Read> {
    match peer() {
        Some(peer) => Box::new(Input { peer, file: Some(file.into()) }),
        None => Box::new(file),
    }
}

/// What goes into `file`, as long as the client is there to want it.
pub fn writer(file: File) -> Box<dyn Write> {
    match peer() {
        Some(peer) => Box::new(Output { peer, file: Some(file.into()) }),
        None => Box::new(file),
    }
}

/// Opens a file that was typed, for reading.
pub fn open(typed: &Path) -> Result<File> {
    let path = path(typed)?;
    File::open(path).map_err(|error| Failure::io(format!("opening {}", crate::image::show(typed)), error))
}

/// How a new file is made: with the permissions that the client wants.
pub fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    if let Some(session) = current() {
        options.mode(0o666 & !session.umask);
    }
    options
}

/// The client, if there is one.
pub fn peer() -> Option<Rc<Peer>> {
    current().map(|session| Rc::clone(&session.peer))
}

#[cfg(test)]
mod tests {
    use super::as_of;
    use std::path::Path;

    #[test]
    fn what_a_client_has_open_is_its_own() {
        let cases = [
            ("/dev/stdin", "/proc/7/fd/0"),
            ("/dev/stdout", "/proc/7/fd/1"),
            ("/dev/fd/63", "/proc/7/fd/63"),
            ("/proc/self/fd/3", "/proc/7/fd/3"),
            ("/dev/fda", "/dev/fda"),
            ("/home/a", "/home/a"),
        ];
        for (typed, meant) in cases {
            assert_eq!(as_of(7, Path::new(typed)), Path::new(meant));
        }
    }
}
