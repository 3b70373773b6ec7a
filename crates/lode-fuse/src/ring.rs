//! The transport over io_uring: requests of a ring as calls of the door, and its answers.
//!
//! A commit is answered when the kernel knows what has changed, which another thread tells it: that may have to wait for the
//! lock of a directory which somebody holds who waits for an answer of ours. So a commit that waits must never hold the last
//! entry of a queue: only so many may be under way, and others are asked to come again (`control::ask` does).

mod asked;
mod told;

use crate::control::{self, Question};
use crate::door::{Answer, Answered, Door, Value, fitted, now};
use asked::{Asked, Header};
use lode_fs::{Committed, New};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use told::Told;

/// See the file's head.
pub(crate) struct Ring {
    door: Arc<Door>,
    commits: Places,
}

/// So many places, taken and given back.
struct Places {
    taken: AtomicUsize,
    max: usize,
}

/// One of them, until it is dropped.
struct Place<'a>(&'a Places);

impl Places {
    fn take(&self) -> Option<Place<'_>> {
        let more = |taken: usize| (taken < self.max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok().map(|_| Place(self))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Why a ring cannot be had here, and what to do. None: it can.
pub(crate) fn refusal() -> Option<String> {
    const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
    match std::fs::read_to_string(SWITCH) {
        Err(_) => Some("this kernel has no FUSE over io_uring: expected Linux 6.14 or later, with CONFIG_FUSE_IO_URING".into()),
        Ok(switch) if switch.trim() != "Y" => {
            Some(format!("FUSE over io_uring is switched off: as root, echo Y > {SWITCH} (or boot with fuse.enable_uring=1)"))
        }
        Ok(_) => lode_fuse_ring::probe().err().map(|error| {
            format!("this process may not use io_uring ({error}): see /proc/sys/kernel/io_uring_disabled, and what a container forbids")
        }),
    }
}

impl lode_fuse_ring::Serve for Ring {
    fn serve(&self, asked: lode_fuse_ring::Asked<'_>) -> Result<usize, i32> {
        self.answer(asked).map_err(Errno::raw_os_error)
    }
}

impl Ring {
    /// `entries`: how many requests of a queue are worked on at once.
    pub fn new(door: Arc<Door>, entries: usize) -> Ring {
        Ring { door, commits: Places { taken: AtomicUsize::new(0), max: (entries / 2).max(1) } }
    }

    fn answer(&self, asked: lode_fuse_ring::Asked<'_>) -> Answer<usize> {
        let lode_fuse_ring::Asked { header, arguments, payload, given } = asked;
        let header = asked::header(header)?;
        let request = asked::decode(header.operation, arguments, payload.get(..given).ok_or(Errno::INVAL)?, now())?;
        match request {
            // These are answered where they stand.
            Asked::Read { offset, size } => {
                self.door.read(header.node, offset, payload.get_mut(..size).ok_or(Errno::INVAL)?)
            }
            Asked::List { offset, size, looked_up } => {
                let told = Told::new(payload.get_mut(..size).ok_or(Errno::INVAL)?);
                self.list(&header, offset, told, looked_up)
            }
            request => {
                let found = self.ask(&header, request)?;
                let mut told = Told::new(payload);
                found.tell(&mut told)?;
                told.done()
            }
        }
    }

    fn list(&self, header: &Header, offset: u64, mut told: Told<'_>, looked_up: bool) -> Answer<usize> {
        if looked_up {
            let tell = &mut |known: &_, entry: &_| told.dirent_looked_up(known, entry);
            self.door.list_looked_up(header.node, offset, tell)?;
        } else {
            self.door.list(header.node, offset, &mut |node, entry| told.dirent(node, entry))?;
        }
        told.done()
    }

    /// Everything whose answer does not stand where the request does.
    fn ask(&self, header: &Header, asked: Asked<'_>) -> Answer<Found> {
        let Header { node, asker, .. } = *header;
        let door = &self.door;
        let done = |()| Found::Nothing;
        match asked {
            Asked::Lookup(name) => door.lookup(asker, node, name).map(Found::Looked),
            Asked::Attributes => door.attributes(node).map(Found::Attributes),
            Asked::Statx => door.attributes(node).map(Found::Statx),
            Asked::SetAttributes { changes, drops, changed } => {
                door.set_attributes(node, &changes, drops, changed).map(Found::Attributes)
            }
            Asked::ReadLink => door.read_link(node).map(Found::Bytes),
            Asked::Symlink { name, target } => door.make(asker, node, name, &New::link(target), 0).map(Found::Entry),
            Asked::MakeNode { name, modes, device } => {
                door.make_node(asker, node, name, modes, device).map(Found::Entry)
            }
            Asked::MakeDirectory { name, modes: (mode, umask) } => {
                door.make(asker, node, name, &New::directory(mode & 0o7777), umask).map(Found::Entry)
            }
            Asked::MakeNameless { modes: (mode, umask) } => {
                door.make_nameless(asker, node, mode, umask).map(Found::Opened)
            }
            Asked::Unlink(name) => door.unlink(node, name).map(done),
            Asked::RemoveDirectory(name) => door.remove_directory(node, name).map(done),
            Asked::Rename { name, to, new_name, flags } => door.rename((node, name), (to, new_name), flags).map(done),
            Asked::Link { node: of, name } => door.link(of, node, name).map(Found::Entry),
            Asked::Write { offset, bytes, drops } => door.write(node, offset, bytes, drops).map(Found::Count),
            Asked::Statistics => door.statistics().map(Found::Statistics),
            Asked::Flush => door.flush(node).map(done),
            Asked::FlushAll => door.flush_all(node).map(done),
            Asked::SetExtended { name, value, flags } => door.set_extended(node, name, value, flags).map(done),
            Asked::Extended { name, size } => self.extended(header, name, size).map(Found::Value),
            Asked::ExtendedNames { size } => {
                door.extended_names(node).and_then(|names| fitted(size, names)).map(Found::Value)
            }
            Asked::RemoveExtended(name) => door.remove_extended(node, name).map(done),
            Asked::Allocate { offset, length, mode } => door.allocate(node, offset, length, mode).map(done),
            Asked::Seek { offset, whence } => door.seek(node, offset, whence).map(Found::Number),
            Asked::Copy { offset, to, to_offset, length, wide } => {
                let copied = door.copy((node, offset), (to, to_offset), length)?;
                Ok(if wide { Found::Number(copied.into()) } else { Found::Count(copied) })
            }
            Asked::Nothing => Ok(Found::Nothing),
            Asked::Read { .. } | Asked::List { .. } => Err(Errno::IO),
        }
    }

    fn extended(&self, header: &Header, name: &[u8], size: u32) -> Answer<Value> {
        let commit = size > 0 && matches!(Question::of(name), Some(Ok(Question::Commit(_))));
        let place = if commit { self.commits.take() } else { None };
        if commit && place.is_none() {
            let why = "others are committing: ask again";
            return fitted(size, control::refused(Errno::AGAIN.raw_os_error(), why));
        }
        match self.door.extended(header.asker, header.node, name, size) {
            Answered::Now(value) => value,
            Answered::Later(committed) => {
                self.wait_until_told(committed);
                fitted(size, control::done(0, b""))
            }
        }
    }

    fn wait_until_told(&self, committed: Committed) {
        let (told, wait) = channel();
        self.door.tell(
            committed,
            Box::new(move || {
                let _ = told.send(());
            }),
        );
        // Whoever should tell may have ended: then the mount has, too.
        let _ = wait.recv();
    }
}

/// What an answer says.
enum Found {
    Looked(crate::door::Looked),
    Entry(crate::door::Known),
    Opened(crate::door::Known),
    Attributes(crate::door::Known),
    Statx(crate::door::Known),
    Bytes(Vec<u8>),
    Value(Value),
    Statistics(lode_fs::Statistics),
    /// 32 bits, and as many zeros.
    Count(u32),
    /// 64 bits.
    Number(u64),
    Nothing,
}

impl Found {
    fn tell(&self, told: &mut Told<'_>) -> Answer<()> {
        match self {
            Found::Looked(looked) => told.looked(looked),
            Found::Entry(known) => told.entry(known),
            Found::Opened(known) => told.opened(known),
            Found::Attributes(known) => told.attributes(known),
            Found::Statx(known) => told.statx(known),
            Found::Bytes(bytes) | Found::Value(Value::Bytes(bytes)) => told.bytes(bytes),
            Found::Value(Value::Length(count)) | Found::Count(count) => told.count(*count),
            Found::Statistics(found) => told.statistics(found),
            Found::Number(number) => told.u64(*number),
            Found::Nothing => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_commits_that_wait_there_are_never_as_many_as_entries() {
        let places = Places { taken: AtomicUsize::new(0), max: 2 };
        let (first, second) = (places.take(), places.take());
        assert!(first.is_some() && second.is_some() && places.take().is_none());
        drop(first);
        assert!(places.take().is_some() && places.take().is_some());
    }
}
