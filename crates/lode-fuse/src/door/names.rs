//! Names: looking them up, making, linking, removing, renaming, listing them; and letting go of what they gave.

use super::{ASKED, Answer, Asker, Door, Known, known, made_up, now, told, unreadable};
use crate::node::{Node, SNAPSHOTS, SNAPSHOTS_NAME, TRANSACTIONS, TRANSACTIONS_NAME, node, parts};
use lode_fs::{Entry, ErrorKind, Ino, Kind, New, Renaming, View};
use rustix::io::Errno;

/// Flags of `rename`, as the kernel has them.
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;

/// What a name means.
pub(crate) enum Looked {
    /// This.
    Here(Known),
    /// Nothing, and the kernel may remember that.
    Nothing,
}

impl Door {
    pub fn lookup(&self, asker: Asker, parent: Node, name: &[u8]) -> Answer<Looked> {
        let (number, directory) = parts(parent);
        match (directory, name) {
            (TRANSACTIONS, _) => return self.lookup_transaction(asker, name).map(Looked::Here),
            (SNAPSHOTS, _) => return self.lookup_snapshot(name),
            (Ino::ROOT, TRANSACTIONS_NAME) => return Ok(Looked::Here(made_up(node(number, TRANSACTIONS)))),
            // A snapshot has none in it.
            (Ino::ROOT, SNAPSHOTS_NAME) if self.views.shows_snapshots() && number == 0 => {
                return Ok(Looked::Here(made_up(node(0, SNAPSHOTS))));
            }
            _ => {}
        }
        let (number, view, parent) = self.at(parent)?;
        match view.lookup(parent, name) {
            Ok(found) => Ok(Looked::Here(known(number, found))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Looked::Nothing),
            Err(error) => match view.entry(parent, name) {
                Ok(entry) if error.kind() == ErrorKind::Damaged => Ok(Looked::Here(unreadable(number, &entry))),
                _ => told(Err(error)),
            },
        }
    }

    fn lookup_transaction(&self, asker: Asker, name: &[u8]) -> Answer<Known> {
        let number = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
        let number: u64 = number.filter(|number| self.may(asker, *number)).ok_or(Errno::NOENT)?;
        let view = self.views.view(number).ok_or(Errno::NOENT)?;
        // That it is there depends on who asks.
        Ok(Known { believed: ASKED, ..known(number, told(view.hold(Ino::ROOT))?) })
    }

    /// A snapshot that is gone must not be remembered as there: its name is asked for each time.
    fn lookup_snapshot(&self, name: &[u8]) -> Answer<Looked> {
        let found = match std::str::from_utf8(name) {
            Ok(name) => told(self.views.snapshot(name))?,
            Err(_) => None,
        };
        let Some((number, view)) = found else { return Ok(Looked::Nothing) };
        Ok(Looked::Here(known(number, told(view.attributes(Ino::ROOT))?)))
    }

    fn make_snapshot(&self, name: &[u8]) -> Answer<Known> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::ILSEQ)?;
        told(self.views.fs.snapshot(name, now()))?;
        let (number, view) = told(self.views.snapshot(name))?.ok_or(Errno::NOENT)?;
        Ok(known(number, told(view.attributes(Ino::ROOT))?))
    }

    /// The names of the snapshots; the place of one is behind those in front of it.
    fn each_snapshot(&self, from: u64, tell: &mut dyn FnMut(u64, &View, &Entry) -> bool) -> Answer<()> {
        let snapshots = self.views.fs.snapshots().into_iter().map(|snapshot| snapshot.name);
        for (name, next) in snapshots.zip(1..).skip(usize::try_from(from).unwrap_or(usize::MAX)) {
            // One that was deleted meanwhile.
            let Some((number, view)) = told(self.views.snapshot(&name))? else { continue };
            let entry = Entry { name: name.into_bytes(), ino: Ino::ROOT, kind: Kind::Directory, next };
            if !tell(number, &view, &entry) {
                break;
            }
        }
        Ok(())
    }

    pub fn make(&self, asker: Asker, parent: Node, name: &[u8], new: &New<'_>, umask: u32) -> Answer<Known> {
        if parent == node(0, SNAPSHOTS) && new.kind == Kind::Directory {
            return self.make_snapshot(name);
        }
        let (number, view, parent) = self.at(parent)?;
        Ok(known(number, told(view.make(parent, name, new, &asker.caller(umask)))?))
    }

    /// Makes a file, a device, a fifo or a socket: what the mode says.
    pub fn make_node(&self, asker: Asker, parent: Node, name: &[u8], modes: (u32, u32), device: u32) -> Answer<Known> {
        let (mode, umask) = modes;
        let kind = Kind::of(mode).ok_or(Errno::INVAL)?;
        let new = New { kind, permissions: mode & 0o7777, device, target: b"" };
        self.make(asker, parent, name, &new, umask)
    }

    /// Makes a file without a name.
    pub fn make_nameless(&self, asker: Asker, parent: Node, mode: u32, umask: u32) -> Answer<Known> {
        let (number, view, parent) = self.at(parent)?;
        let new = New::file(mode & 0o7777);
        Ok(known(number, told(view.make_nameless(parent, &new, &asker.caller(umask)))?))
    }

    pub fn link(&self, node: Node, parent: Node, name: &[u8]) -> Answer<Known> {
        let (number, view, ino, parent) = self.both(node, parent)?;
        Ok(known(number, told(view.link(ino, parent, name, now()))?))
    }

    pub fn unlink(&self, parent: Node, name: &[u8]) -> Answer<()> {
        let (_, view, parent) = self.at(parent)?;
        told(view.unlink(parent, name, now()))
    }

    pub fn remove_directory(&self, parent: Node, name: &[u8]) -> Answer<()> {
        if parent == node(0, SNAPSHOTS) {
            return told(self.views.delete_snapshot(std::str::from_utf8(name).map_err(|_| Errno::NOENT)?));
        }
        let (_, view, parent) = self.at(parent)?;
        told(view.remove_directory(parent, name, now()))
    }

    pub fn rename(&self, from: (Node, &[u8]), to: (Node, &[u8]), flags: u32) -> Answer<()> {
        let how = match flags {
            0 => Renaming::Replace,
            RENAME_NOREPLACE => Renaming::Keep,
            RENAME_EXCHANGE => Renaming::Exchange,
            _ => return Err(Errno::INVAL),
        };
        let (_, view, parent, new_parent) = self.both(from.0, to.0)?;
        told(view.rename(parent, from.1, new_parent, to.1, how, now()))
    }

    fn each(&self, directory: Node, from: u64, tell: &mut dyn FnMut(u64, &View, &Entry) -> bool) -> Answer<()> {
        match parts(directory) {
            (_, TRANSACTIONS) => return Ok(()),
            (_, SNAPSHOTS) => return self.each_snapshot(from, tell),
            _ => {}
        }
        let (number, view, ino) = self.at(directory)?;
        told(view.list(ino, from, &mut |entry| tell(number, &view, entry)))
    }

    /// Names of a directory, until `tell` has no room for one.
    pub fn list(&self, directory: Node, from: u64, tell: &mut dyn FnMut(Node, &Entry) -> bool) -> Answer<()> {
        self.each(directory, from, &mut |number, _, entry| tell(node(number, entry.ino), entry))
    }

    /// The same, with what they mean, which is as if it had been looked up.
    pub fn list_looked_up(
        &self,
        directory: Node,
        from: u64,
        tell: &mut dyn FnMut(&Known, &Entry) -> bool,
    ) -> Answer<()> {
        self.each(directory, from, &mut |number, view, entry| {
            // The kernel counts neither of these as looked up.
            let dots = entry.name == b"." || entry.name == b"..";
            let found = if dots { view.attributes(entry.ino) } else { view.hold(entry.ino) };
            let (found, held) = match found {
                Ok(found) => (known(number, found), !dots),
                Err(error) if error.kind() == ErrorKind::Damaged => (unreadable(number, entry), false),
                // One that is gone by now.
                Err(_) => return true,
            };
            let fitted = tell(&found, entry);
            if !fitted && held {
                let _ = view.release(entry.ino, 1, now());
            }
            fitted
        })
    }

    /// The kernel has forgotten what it looked up so many times. That it is gone then need not be waited for.
    pub fn forget(&self, node: Node, times: u64) {
        if !node.is_made_up() {
            self.forgotten.add(node, times);
        }
    }
}
