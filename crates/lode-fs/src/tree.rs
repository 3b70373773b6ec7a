//! Operations on names: finding, making, linking, removing, renaming, listing.

use crate::error::{Error, ErrorKind, Result};
use crate::inodes::Inode;
use crate::names::{HASH_END, Named, check_name};
use crate::op::{Op, u64_of};
use crate::types::{Attributes, Caller, Entry, Ino, Kind, MODE_BITS, MODE_SETGID, Renaming, Time, Which};
use crate::view::View;

/// The target of a symbolic link has at most so many bytes.
const TARGET_MAX: usize = 4095;

/// What is to be made.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// What kind.
    pub kind: Kind,
    /// Who may what, before what the caller's mask or the directory's default list takes away.
    pub permissions: u32,
    /// A device: which.
    pub device: u32,
    /// A symbolic link: where to.
    pub target: &'a [u8],
}

impl New<'_> {
    /// A file.
    pub fn file(permissions: u32) -> New<'static> {
        New { kind: Kind::File, permissions, device: 0, target: b"" }
    }

    /// A directory.
    pub fn directory(permissions: u32) -> New<'static> {
        New { kind: Kind::Directory, ..New::file(permissions) }
    }

    /// A symbolic link.
    pub fn link(target: &[u8]) -> New<'_> {
        New { kind: Kind::Link, target, ..New::file(0o777) }
    }
}

fn none() -> Error {
    Error::new(ErrorKind::NotFound, "there is none of that name")
}

impl Op<'_> {
    /// A directory that has a name.
    fn directory(&self, ino: Ino) -> Result<Inode> {
        let directory = self.inode(ino)?.directory()?;
        if directory.head.links == 0 { Err(View::stale(ino)) } else { Ok(directory) }
    }

    fn named(&self, directory: &Inode, name: &[u8]) -> Result<Named> {
        self.find_name(directory, name)?.ok_or_else(none)
    }

    /// A new inode in a directory, without a name yet.
    fn new_inode(&mut self, directory: &Inode, new: &New<'_>, caller: &Caller) -> Result<Inode> {
        if new.target.len() > TARGET_MAX {
            let what = format!("a target of {} bytes: expected at most {TARGET_MAX}", new.target.len());
            return Err(Error::new(ErrorKind::NameTooLong, what));
        }
        let ino = self.take_number()?;
        let mut permissions = new.permissions & MODE_BITS;
        let mut caller = *caller;
        if directory.head.mode & MODE_SETGID != 0 {
            caller.gid = directory.head.gid;
            if new.kind == Kind::Directory {
                permissions |= MODE_SETGID;
            }
        }
        let generation = self.files.disk.position().0;
        let mut inode = Inode::new(ino, new.kind.bits() | permissions, &caller, generation);
        inode.head.parent = directory.head.number;
        inode.head.device = new.device;
        self.inherit(directory, &mut inode, caller.umask)?;
        match new.kind {
            Kind::Directory => {
                inode.head.links = 2;
                self.make_buckets(&mut inode)?;
            }
            Kind::Link => {
                inode.head.size = u64_of(new.target.len());
                inode.head.blocks = 1;
                let (which, block) = crate::content::place_of(&inode.head, 0);
                self.stage(which, block, Some(new.target.to_vec()));
            }
            _ => {}
        }
        Ok(inode)
    }
}

impl View {
    /// What a name in a directory means. `NotFound`, `NotDirectory`.
    pub fn lookup(&self, directory: Ino, name: &[u8]) -> Result<Attributes> {
        if name.len() > crate::names::NAME_MAX {
            check_name(name)?;
        }
        self.look_for(&[directory], |op| {
            let directory = op.inode(directory)?.directory()?;
            match name {
                b"." => Ok(directory),
                b".." => op.inode(Ino(directory.head.parent)),
                name => match op.find_name(&directory, name)? {
                    Some(named) => op.inode(named.ino),
                    None => Err(none()),
                },
            }
        })
    }

    /// Makes something new with a name. `Exists`, `NotFound` (the directory has no name any more), `Full`, `NameTooLong`.
    pub fn make(&self, directory: Ino, name: &[u8], new: &New<'_>, caller: &Caller) -> Result<Attributes> {
        check_name(name)?;
        let mut op = self.change(&[directory]);
        let mut parent = op.directory(directory)?;
        if op.find_name(&parent, name)?.is_some() {
            return Err(Error::new(ErrorKind::Exists, "there is one of that name already"));
        }
        let inode = op.new_inode(&parent, new, caller)?;
        if new.kind == Kind::Directory {
            parent.add_link()?;
        }
        op.insert_name(&mut parent, name, inode.ino(), new.kind)?;
        parent.turn_entries(caller.now);
        op.put_inode(&parent);
        op.put_inode(&inode);
        op.finish_then(|| self.hand_out(&inode))
    }

    /// Makes a file without a name, which is gone once nobody holds it, unless it gets one by [`View::link`].
    pub fn make_nameless(&self, directory: Ino, new: &New<'_>, caller: &Caller) -> Result<Attributes> {
        let mut op = self.change(&[directory]);
        let parent = op.directory(directory)?;
        let mut inode = op.new_inode(&parent, new, caller)?;
        inode.head.links = 0;
        op.put_inode(&inode);
        op.stage(Which::Orphans, inode.ino().0, Some(vec![1]));
        op.finish_then(|| self.hand_out(&inode))
    }

    /// Gives an inode, not a directory, one more name.
    pub fn link(&self, ino: Ino, directory: Ino, name: &[u8], now: Time) -> Result<Attributes> {
        check_name(name)?;
        let mut op = self.change(&[ino, directory]);
        let mut parent = op.directory(directory)?;
        let mut inode = op.inode(ino)?;
        if inode.is_directory() {
            return Err(Error::new(ErrorKind::NotPermitted, "a directory has one name"));
        }
        if inode.head.links == 0 {
            op.stage(Which::Orphans, ino.0, None);
        }
        inode.add_link()?;
        inode.turn(now);
        inode.head.parent = directory.0;
        op.insert_name(&mut parent, name, ino, inode.kind())?;
        parent.turn_entries(now);
        op.put_inode(&parent);
        op.put_inode(&inode);
        op.finish_then(|| self.hand_out(&inode))
    }

    /// What a name means, to be looked at again once it is locked.
    fn peek(&self, directory: Ino, name: &[u8]) -> Result<Named> {
        self.look(&[directory], |op| {
            let directory = op.inode(directory)?.directory()?;
            op.named(&directory, name)
        })
    }

    /// Takes a name away from a file; without any it is gone, once nobody holds it. `IsDirectory`.
    pub fn unlink(&self, directory: Ino, name: &[u8], now: Time) -> Result<()> {
        check_name(name)?;
        loop {
            let Named { ino, .. } = self.peek(directory, name)?;
            let mut op = self.change(&[directory, ino]);
            let mut parent = op.inode(directory)?.directory()?;
            let found = op.named(&parent, name)?;
            if found.ino != ino {
                continue;
            }
            if found.kind == Kind::Directory {
                return Err(Error::new(ErrorKind::IsDirectory, "a directory"));
            }
            op.remove_name(&mut parent, name)?;
            parent.turn_entries(now);
            op.put_inode(&parent);
            if let Some(inode) = op.sound(ino)? {
                op.lose_name(self, inode, now)?;
            }
            op.frees = true;
            return op.finish().map(drop);
        }
    }

    /// Removes a directory without entries. `NotEmpty`, `NotDirectory`.
    pub fn remove_directory(&self, directory: Ino, name: &[u8], now: Time) -> Result<()> {
        match name {
            b"." => return Err(Error::new(ErrorKind::Invalid, "a directory removes no directory from within it")),
            b".." => return Err(Error::new(ErrorKind::NotEmpty, "the directory has entries")),
            name => check_name(name)?,
        }
        loop {
            let Named { ino, .. } = self.peek(directory, name)?;
            let mut op = self.change(&[directory, ino]);
            let mut parent = op.inode(directory)?.directory()?;
            let found = op.named(&parent, name)?;
            if found.ino != ino {
                continue;
            }
            if found.kind != Kind::Directory {
                return Err(Error::new(ErrorKind::NotDirectory, "not a directory"));
            }
            op.remove_name(&mut parent, name)?;
            op.lose_named_directory(self, &mut parent, ino, now)?;
            parent.turn_entries(now);
            op.put_inode(&parent);
            op.frees = true;
            return op.finish().map(drop);
        }
    }

    /// Calls `tell` for entries of a directory from a place on (0: from the beginning; [`Entry::next`] of the last one),
    /// until there are no more or it says no. What is there all the time is told once. There are no more when nothing is
    /// told: only then `Damaged` says that some of it cannot be read, and all the rest was told.
    pub fn list(&self, directory: Ino, from: u64, tell: &mut dyn FnMut(&Entry) -> bool) -> Result<()> {
        match self.list_on(directory, from, tell) {
            Err((_, true)) => Ok(()),
            done => done.map_err(|(error, _)| error),
        }
    }

    /// All entries of a directory, as [`View::list`] tells them from the beginning. `Damaged`: some of it cannot be read; all
    /// the rest was told.
    pub fn list_whole(&self, directory: Ino, tell: &mut dyn FnMut(&Entry)) -> Result<()> {
        let mut tell = |entry: &Entry| {
            tell(entry);
            true
        };
        self.list_on(directory, 0, &mut tell).map_err(|(error, _)| error)
    }

    /// What a name means, also if what it means is damaged, or not there. `NotFound`: the name is not there.
    pub fn entry(&self, directory: Ino, name: &[u8]) -> Result<Entry> {
        check_name(name)?;
        let named = self.peek(directory, name)?;
        let next = named.hash + 1;
        Ok(named.into_entry(next))
    }

    /// An error, and whether something was told before.
    fn list_on(
        &self,
        directory: Ino,
        from: u64,
        tell: &mut dyn FnMut(&Entry) -> bool,
    ) -> std::result::Result<(), (Error, bool)> {
        let mut told = false;
        let mut tell = |entry: &Entry| {
            told = true;
            tell(entry)
        };
        self.list_all(directory, from, &mut tell).map_err(|error| (error, told))
    }

    fn list_all(&self, directory: Ino, from: u64, tell: &mut dyn FnMut(&Entry) -> bool) -> Result<()> {
        if from == 0 {
            self.files.damaged.lock().remove(&directory);
        }
        let parent = self.look(&[directory], |op| Ok(Ino(op.inode(directory)?.directory()?.head.parent)))?;
        for (place, name, ino) in [(0, &b"."[..], directory), (1, &b".."[..], parent)] {
            let entry = Entry { name: name.to_vec(), ino, kind: Kind::Directory, next: place + 1 };
            if from <= place && !tell(&entry) {
                return Ok(());
            }
        }
        let mut from = from.max(2);
        while from < HASH_END {
            let (names, next) = self.look(&[directory], |op| {
                op.note_read(|read| {
                    read.lists.insert(directory);
                });
                let directory = op.inode(directory)?.directory()?;
                // One that has lost its name shows none.
                if directory.head.links == 0 {
                    return Ok((Ok(Vec::new()), HASH_END));
                }
                op.names_or_damage(&directory, from)
            })?;
            let names = names.unwrap_or_else(|damage| {
                self.files.damaged.lock().insert(directory, damage.to_string());
                Vec::new()
            });
            let mut names = names.into_iter().peekable();
            while let Some(named) = names.next() {
                // Of names with the same hash, all but the last say that it goes on with them.
                let more = names.peek().is_some_and(|next| next.hash == named.hash);
                let next = if more { named.hash } else { named.hash + 1 };
                if !tell(&named.into_entry(next)) {
                    return Ok(());
                }
            }
            from = next;
        }
        match self.files.damaged.lock().get(&directory) {
            Some(damage) => Err(Error::new(ErrorKind::Damaged, damage.clone())),
            None => Ok(()),
        }
    }

    /// Moves a name. What has the new one loses it, if `how` says so; the two may be one inode: then nothing happens.
    /// `Invalid`: a directory would come to lie in itself.
    pub fn rename(
        &self,
        directory: Ino,
        name: &[u8],
        to: Ino,
        new_name: &[u8],
        how: Renaming,
        now: Time,
    ) -> Result<()> {
        for name in [name, new_name] {
            check_name(name)?;
        }
        loop {
            let source = self.peek(directory, name)?;
            let target = match self.peek(to, new_name) {
                Ok(named) => Some(named),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            let moves =
                source.kind == Kind::Directory || target.as_ref().is_some_and(|named| named.kind == Kind::Directory);
            let _moving = (moves && directory != to).then(|| self.files.moves.lock());
            let mut inodes = vec![directory, to, source.ino];
            inodes.extend(target.as_ref().map(|named| named.ino));
            let mut op = self.change(&inodes);
            let from = op.inode(directory)?.directory()?;
            let into = op.directory(to)?;
            let same = |found: Option<Named>, seen: Option<&Named>| {
                found.map(|named| (named.ino, named.kind)) == seen.map(|named| (named.ino, named.kind))
            };
            if !same(op.find_name(&from, name)?, Some(&source))
                || !same(op.find_name(&into, new_name)?, target.as_ref())
            {
                continue;
            }
            let mut renamed = Rename { view: self, from, into, source, target, now };
            if renamed.apply(&mut op, name, new_name, how)? {
                op.finish()?;
            }
            return Ok(());
        }
    }
}

/// A rename whose inodes are locked.
struct Rename<'a> {
    view: &'a View,
    from: Inode,
    into: Inode,
    source: Named,
    target: Option<Named>,
    now: Time,
}

impl Rename<'_> {
    /// False: there is nothing to do.
    fn apply(&mut self, op: &mut Op<'_>, name: &[u8], new_name: &[u8], how: Renaming) -> Result<bool> {
        let within = self.from.ino() == self.into.ino();
        let target = self.target.clone();
        match (&target, how) {
            (None, Renaming::Exchange) => return Err(none()),
            (Some(_), Renaming::Keep) => {
                return Err(Error::new(ErrorKind::Exists, "there is one of that name already"));
            }
            (Some(target), _) if target.ino == self.source.ino => return Ok(false),
            _ => {}
        }
        if !within {
            self.ask_loop(op, &self.source, self.into.ino())?;
            if let Some(target) = target.as_ref().filter(|_| how == Renaming::Exchange) {
                self.ask_loop(op, target, self.from.ino())?;
            }
        }
        if how == Renaming::Exchange {
            let target = target.expect("asked above");
            self.exchange(op, name, new_name, &target)?;
        } else {
            self.replace(op, name, new_name, target)?;
        }
        self.from.turn_entries(self.now);
        if !within {
            self.into.turn_entries(self.now);
            op.put_inode(&self.into);
        }
        op.put_inode(&self.from);
        Ok(true)
    }

    /// A directory must not come to lie in itself.
    fn ask_loop(&self, op: &Op<'_>, moved: &Named, into: Ino) -> Result<()> {
        if moved.kind != Kind::Directory {
            return Ok(());
        }
        let mut at = into;
        while at != Ino::ROOT {
            if at == moved.ino {
                return Err(Error::new(ErrorKind::Invalid, "the directory would come to lie in itself"));
            }
            op.note_read(|read| {
                read.places.insert(at);
            });
            at = Ino(op.inode(at)?.head.parent);
        }
        Ok(())
    }

    /// The directory that names come into: the same as they come from, or the other.
    fn into(&mut self) -> &mut Inode {
        if self.from.ino() == self.into.ino() { &mut self.from } else { &mut self.into }
    }

    fn moved(&mut self, op: &mut Op<'_>, ino: Ino, into: Ino) -> Result<()> {
        let mut inode = op.inode(ino)?;
        inode.head.parent = into.0;
        inode.turn(self.now);
        op.put_inode(&inode);
        Ok(())
    }

    fn exchange(&mut self, op: &mut Op<'_>, name: &[u8], new_name: &[u8], target: &Named) -> Result<()> {
        let source = self.source.clone();
        op.replace_name(&mut self.from, name, target.ino, target.kind)?;
        let into = self.into();
        op.replace_name(into, new_name, source.ino, source.kind)?;
        if self.from.ino() != self.into.ino() {
            let (out, back) = (source.kind == Kind::Directory, target.kind == Kind::Directory);
            if out && !back {
                self.from.head.links -= 1;
                self.into.add_link()?;
            }
            if back && !out {
                self.into.head.links -= 1;
                self.from.add_link()?;
            }
        }
        let (from, into) = (self.from.ino(), self.into.ino());
        self.moved(op, source.ino, into)?;
        self.moved(op, target.ino, from)
    }

    fn replace(&mut self, op: &mut Op<'_>, name: &[u8], new_name: &[u8], target: Option<Named>) -> Result<()> {
        let source = self.source.clone();
        let (view, now) = (self.view, self.now);
        if let Some(target) = &target {
            match (source.kind, target.kind) {
                (Kind::Directory, Kind::Directory) => {}
                (Kind::Directory, _) => {
                    return Err(Error::new(ErrorKind::NotDirectory, "the new name is no directory's"));
                }
                (_, Kind::Directory) => {
                    return Err(Error::new(ErrorKind::IsDirectory, "the new name is a directory's"));
                }
                _ => {}
            }
        }
        op.remove_name(&mut self.from, name)?;
        match target {
            None => op.insert_name(self.into(), new_name, source.ino, source.kind)?,
            Some(target) => {
                op.replace_name(self.into(), new_name, source.ino, source.kind)?;
                if target.kind == Kind::Directory {
                    op.lose_named_directory(view, self.into(), target.ino, now)?;
                } else if let Some(gone) = op.sound(target.ino)? {
                    op.lose_name(view, gone, now)?;
                }
            }
        }
        if source.kind == Kind::Directory && self.from.ino() != self.into.ino() {
            self.from.head.links -= 1;
            self.into.add_link()?;
        }
        let into = self.into.ino();
        self.moved(op, source.ino, into)
    }
}

impl Op<'_> {
    /// A file has one name less.
    fn lose_name(&mut self, view: &View, mut inode: Inode, now: Time) -> Result<()> {
        inode.head.links = inode.head.links.saturating_sub(1);
        inode.turn(now);
        if inode.head.links > 0 {
            self.put_inode(&inode);
            return Ok(());
        }
        self.unname(view, inode, now)
    }

    /// An inode that loses a name: none if it is damaged, or not there. It is left as it is, the name goes.
    fn sound(&self, ino: Ino) -> Result<Option<Inode>> {
        match self.inode(ino) {
            Err(error) if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NotFound) => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    /// What is said to be a directory loses its name.
    fn lose_named_directory(&mut self, view: &View, parent: &mut Inode, ino: Ino, now: Time) -> Result<()> {
        if let Some(inode) = self.sound(ino)? {
            return self.lose_directory(view, parent, inode.directory()?, now);
        }
        parent.head.links = parent.head.links.saturating_sub(1);
        Ok(())
    }

    /// A directory loses its name: it must have no entries.
    fn lose_directory(&mut self, view: &View, parent: &mut Inode, mut inode: Inode, now: Time) -> Result<()> {
        if inode.head.entries > 0 {
            return Err(Error::new(ErrorKind::NotEmpty, "the directory has entries"));
        }
        parent.head.links = parent.head.links.saturating_sub(1);
        inode.head.links = 0;
        inode.turn(now);
        self.unname(view, inode, now)
    }
}
