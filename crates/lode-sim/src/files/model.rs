//! A file system as anybody would write it down: inodes in a map, names in maps, content as bytes.

use crate::rng::{hash_bytes, mix, narrow, wide};
use lode_fs::{ErrorKind, Kind, Renaming, Time};
use std::collections::{BTreeMap, BTreeSet};

/// Names an inode of the model; the root is 0.
pub type Node = usize;

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    pub kind: Kind,
    pub permissions: u32,
    pub uid: u32,
    pub gid: u32,
    pub device: u32,
    /// Names that are not those of a directory.
    pub names: u32,
    pub content: Vec<u8>,
    pub entries: BTreeMap<Vec<u8>, Node>,
    pub parent: Node,
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    pub accessed: Time,
    pub modified: Time,
    pub changed: Time,
    /// Counts changes of its content and attributes.
    pub version: u64,
    /// Counts changes of its entries and of the number of its names.
    pub turns: u64,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    pub inodes: BTreeMap<Node, Inode>,
    next: Node,
    /// Names that were given, taken away, or that mean something else.
    pub noted: BTreeSet<(Node, Vec<u8>)>,
}

type Done<T = ()> = Result<T, ErrorKind>;

impl Inode {
    pub fn new(kind: Kind, permissions: u32, now: Time) -> Inode {
        Inode {
            kind,
            permissions,
            uid: 0,
            gid: 0,
            device: 0,
            names: 1,
            content: Vec::new(),
            entries: BTreeMap::new(),
            parent: 0,
            attributes: BTreeMap::new(),
            accessed: now,
            modified: now,
            changed: now,
            version: 1,
            turns: 0,
        }
    }
}

impl Tree {
    /// With nothing but a root.
    pub fn new(now: Time) -> Tree {
        let inodes = BTreeMap::from([(0, Inode::new(Kind::Directory, 0o755, now))]);
        Tree { inodes, next: 1, noted: BTreeSet::new() }
    }

    /// The same as a transaction begins with it: what that makes has numbers of its own.
    pub fn begun(&self, transaction: usize) -> Tree {
        Tree { inodes: self.inodes.clone(), next: transaction * 1_000_000, noted: BTreeSet::new() }
    }

    /// What a transaction that began with `base` and has made `own` of it makes of this. None: it is in conflict.
    pub fn merged(&self, base: &Tree, own: &Tree) -> Option<Tree> {
        for (directory, name) in own.noted.iter().filter(|(directory, _)| base.inodes.contains_key(directory)) {
            let meaning = |tree: &Tree| {
                let directory = tree.inodes.get(directory).filter(|directory| directory.names > 0)?;
                Some(directory.entries.get(name).copied())
            };
            if meaning(base) != meaning(self) {
                return None;
            }
        }
        let mut merged = self.clone();
        for (node, before) in &base.inodes {
            let mine = &own.inodes[node];
            if (mine.version, mine.turns) == (before.version, before.turns) {
                continue;
            }
            let now = self.inodes.get(node)?;
            let touched = mine.version != before.version;
            let emptied = mine.names == 0 && mine.kind == Kind::Directory;
            if (touched && now.version != before.version) || (emptied && now.turns != before.turns) {
                return None;
            }
            let mut inode = if touched { mine.clone() } else { now.clone() };
            if (now.version, now.turns) == (before.version, before.turns) {
                merged.inodes.insert(*node, mine.clone());
                continue;
            }
            inode.names = now.names + mine.names - before.names;
            inode.turns = now.turns + 1;
            inode.version = if touched { mine.version } else { now.version };
            inode.changed = now.changed.max(mine.changed);
            inode.parent = if mine.parent == before.parent { now.parent } else { mine.parent };
            if inode.kind == Kind::Directory {
                inode.modified = now.modified.max(mine.modified);
                inode.entries = now.entries.clone();
                for (_, name) in own.noted.iter().filter(|(directory, _)| directory == node) {
                    match mine.entries.get(name) {
                        Some(entry) => drop(inode.entries.insert(name.clone(), *entry)),
                        None => drop(inode.entries.remove(name)),
                    }
                }
            }
            merged.inodes.insert(*node, inode);
        }
        let made = own.inodes.iter().filter(|(node, _)| !base.inodes.contains_key(node));
        merged.inodes.extend(made.map(|(node, inode)| (*node, inode.clone())));
        Some(merged)
    }

    pub fn get(&self, node: Node) -> &Inode {
        &self.inodes[&node]
    }

    fn at(&mut self, node: Node) -> &mut Inode {
        self.inodes.get_mut(&node).expect("asked before")
    }

    /// Links, as they are counted.
    pub fn links(&self, node: Node) -> u32 {
        let inode = self.get(node);
        if inode.kind != Kind::Directory || inode.names == 0 {
            return inode.names;
        }
        let within = inode.entries.values().filter(|entry| self.get(**entry).kind == Kind::Directory).count();
        2 + u32::try_from(within).expect("few")
    }

    pub fn find(&self, directory: Node, name: &[u8]) -> Done<Node> {
        let directory = self.get(directory);
        if directory.kind != Kind::Directory {
            return Err(ErrorKind::NotDirectory);
        }
        directory.entries.get(name).copied().ok_or(ErrorKind::NotFound)
    }

    /// A directory that something may come into.
    fn live(&self, directory: Node) -> Done {
        match self.get(directory) {
            directory if directory.kind != Kind::Directory => Err(ErrorKind::NotDirectory),
            directory if directory.names == 0 => Err(ErrorKind::NotFound),
            _ => Ok(()),
        }
    }

    fn turned(&mut self, directory: Node, now: Time) {
        let directory = self.at(directory);
        (directory.modified, directory.changed) = (now, now);
        directory.turns += 1;
    }

    fn note(&mut self, directory: Node, name: &[u8]) {
        self.noted.insert((directory, name.to_vec()));
    }

    pub fn make(&mut self, directory: Node, name: &[u8], mut inode: Inode, now: Time) -> Done<Node> {
        self.live(directory)?;
        if self.find(directory, name).is_ok() {
            return Err(ErrorKind::Exists);
        }
        inode.parent = directory;
        if self.get(directory).permissions & 0o2000 != 0 {
            inode.gid = self.get(directory).gid;
            inode.permissions |= if inode.kind == Kind::Directory { 0o2000 } else { 0 };
        }
        let node = self.next;
        self.next += 1;
        self.inodes.insert(node, inode);
        self.at(directory).entries.insert(name.to_vec(), node);
        self.note(directory, name);
        self.turned(directory, now);
        Ok(node)
    }

    pub fn link(&mut self, node: Node, directory: Node, name: &[u8], now: Time) -> Done {
        self.live(directory)?;
        if self.get(node).kind == Kind::Directory {
            return Err(ErrorKind::NotPermitted);
        }
        if self.find(directory, name).is_ok() {
            return Err(ErrorKind::Exists);
        }
        self.at(directory).entries.insert(name.to_vec(), node);
        self.note(directory, name);
        self.turned(directory, now);
        self.at(node).names += 1;
        self.at(node).turns += 1;
        self.at(node).parent = directory;
        self.at(node).changed = now;
        Ok(())
    }

    /// One name less.
    fn lose(&mut self, node: Node, now: Time) {
        self.at(node).names -= 1;
        self.at(node).turns += 1;
        self.at(node).changed = now;
    }

    pub fn unlink(&mut self, directory: Node, name: &[u8], now: Time) -> Done {
        let node = self.find(directory, name)?;
        if self.get(node).kind == Kind::Directory {
            return Err(ErrorKind::IsDirectory);
        }
        self.note(directory, name);
        self.at(directory).entries.remove(name);
        self.turned(directory, now);
        self.lose(node, now);
        Ok(())
    }

    pub fn remove_directory(&mut self, directory: Node, name: &[u8], now: Time) -> Done {
        let node = self.find(directory, name)?;
        if self.get(node).kind != Kind::Directory {
            return Err(ErrorKind::NotDirectory);
        }
        if !self.get(node).entries.is_empty() {
            return Err(ErrorKind::NotEmpty);
        }
        self.note(directory, name);
        self.at(directory).entries.remove(name);
        self.turned(directory, now);
        self.lose(node, now);
        Ok(())
    }

    /// Whether `node` is `within` or lies in it.
    fn is_within(&self, mut node: Node, within: Node) -> bool {
        loop {
            if node == within {
                return true;
            }
            if node == 0 {
                return false;
            }
            node = self.get(node).parent;
        }
    }

    pub fn rename(&mut self, from: Node, name: &[u8], to: Node, new: &[u8], how: Renaming, now: Time) -> Done {
        let node = self.find(from, name)?;
        let target = match self.find(to, new) {
            Ok(target) => Some(target),
            Err(ErrorKind::NotFound) => None,
            Err(error) => return Err(error),
        };
        self.live(to)?;
        if how == Renaming::Exchange && target.is_none() {
            return Err(ErrorKind::NotFound);
        }
        if how == Renaming::Keep && target.is_some() {
            return Err(ErrorKind::Exists);
        }
        if target == Some(node) {
            return Ok(());
        }
        let is_directory = |tree: &Tree, node: Node| tree.get(node).kind == Kind::Directory;
        if from != to && is_directory(self, node) && self.is_within(to, node) {
            return Err(ErrorKind::Invalid);
        }
        if let Some(target) = target {
            if how == Renaming::Exchange {
                if from != to && is_directory(self, target) && self.is_within(from, target) {
                    return Err(ErrorKind::Invalid);
                }
                self.at(from).entries.insert(name.to_vec(), target);
                self.at(to).entries.insert(new.to_vec(), node);
                (self.at(node).parent, self.at(target).parent) = (to, from);
                for node in [node, target] {
                    self.at(node).changed = now;
                    self.at(node).turns += 1;
                }
                self.both_turned((from, name), (to, new), now);
                return Ok(());
            }
            match (is_directory(self, node), is_directory(self, target)) {
                (true, false) => return Err(ErrorKind::NotDirectory),
                (false, true) => return Err(ErrorKind::IsDirectory),
                (true, true) if !self.get(target).entries.is_empty() => return Err(ErrorKind::NotEmpty),
                _ => {}
            }
            self.lose(target, now);
        }
        self.at(from).entries.remove(name);
        self.at(to).entries.insert(new.to_vec(), node);
        self.at(node).parent = to;
        self.at(node).changed = now;
        self.at(node).turns += 1;
        self.both_turned((from, name), (to, new), now);
        Ok(())
    }

    fn both_turned(&mut self, from: (Node, &[u8]), to: (Node, &[u8]), now: Time) {
        self.note(from.0, from.1);
        self.note(to.0, to.1);
        self.turned(from.0, now);
        if from.0 != to.0 {
            self.turned(to.0, now);
        }
    }

    fn file(&mut self, node: Node, now: Time) -> &mut Inode {
        let inode = self.at(node);
        (inode.modified, inode.changed) = (now, now);
        inode.version += 1;
        inode
    }

    pub fn write(&mut self, node: Node, offset: u64, bytes: &[u8], now: Time) {
        if bytes.is_empty() {
            return;
        }
        let inode = self.file(node, now);
        let end = narrow(offset) + bytes.len();
        if inode.content.len() < end {
            inode.content.resize(end, 0);
        }
        inode.content[narrow(offset)..end].copy_from_slice(bytes);
    }

    pub fn resize(&mut self, node: Node, size: u64, now: Time) {
        self.file(node, now).content.resize(narrow(size), 0);
    }

    /// Zeros in a stretch, as far as the content goes; `grow`: the content grows to it.
    pub fn clear(&mut self, node: Node, offset: u64, end: u64, zeros: bool, grow: bool, now: Time) {
        let inode = self.file(node, now);
        let len = wide(inode.content.len());
        if zeros {
            let (start, stop) = (offset.min(len), end.min(len));
            inode.content[narrow(start)..narrow(stop)].fill(0);
        }
        if grow && end > len {
            inode.content.resize(narrow(end), 0);
        }
    }

    /// Changes attributes.
    pub fn change(&mut self, node: Node, now: Time, change: impl FnOnce(&mut Inode)) {
        let inode = self.at(node);
        change(inode);
        inode.changed = now;
        inode.version += 1;
    }

    /// What is without a name and `keep` does not want is forgotten.
    pub fn forget(&mut self, keep: impl Fn(Node) -> bool) {
        self.inodes.retain(|node, inode| inode.names > 0 || keep(*node));
    }

    /// A hash of all that can be reached by name, however inodes are numbered.
    pub fn hash(&self) -> u64 {
        let mut seen = BTreeMap::new();
        self.hash_of(0, &mut seen)
    }

    /// All that can be reached by name, a line for each name.
    pub fn words(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.words_of(0, "", &mut BTreeMap::new(), &mut lines);
        lines
    }

    fn words_of(&self, node: Node, path: &str, seen: &mut BTreeMap<Node, u64>, lines: &mut Vec<String>) {
        let count = wide(seen.len());
        let number = *seen.entry(node).or_insert(count);
        if number < count {
            return lines.push(format!("{path}: as number {number}"));
        }
        let inode = self.get(node);
        lines.push(format!(
            "{path}: number {number} node {node} {:?} {:o} links {} owner {}:{} {} bytes {:?}",
            inode.kind,
            inode.permissions,
            self.links(node),
            inode.uid,
            inode.gid,
            inode.content.len(),
            [inode.accessed, inode.modified, inode.changed]
        ));
        for (name, entry) in &inode.entries {
            self.words_of(*entry, &format!("{path}/{}", String::from_utf8_lossy(name)), seen, lines);
        }
    }

    fn hash_of(&self, node: Node, seen: &mut BTreeMap<Node, u64>) -> u64 {
        let count = wide(seen.len());
        let number = *seen.entry(node).or_insert(count);
        if number < count {
            return mix(number, 77);
        }
        let inode = self.get(node);
        let content = if inode.kind == Kind::Directory { 0 } else { hash_bytes(&inode.content) };
        let mut hash = summary(
            number,
            inode.kind,
            &[inode.permissions, self.links(node), inode.uid, inode.gid, inode.device],
            content,
            &[inode.accessed, inode.modified, inode.changed],
        );
        for (name, value) in &inode.attributes {
            hash = mix(hash, mix(hash_bytes(name), hash_bytes(value)));
        }
        for (name, entry) in &inode.entries {
            hash = mix(hash, mix(hash_bytes(name), self.hash_of(*entry, seen)));
        }
        hash
    }
}

/// Everything about an inode as one number.
pub fn summary(number: u64, kind: Kind, values: &[u32], content: u64, times: &[Time]) -> u64 {
    let mut hash = mix(number, u64::from(kind.bits()));
    for value in values {
        hash = mix(hash, u64::from(*value));
    }
    for time in times {
        hash = mix(hash, time.0.cast_unsigned());
    }
    mix(hash, content)
}
