//! What a transaction has changed, by path.

use crate::error::Result;
use crate::inodes::Inode;
use crate::op::{Op, Seen};
use crate::transaction::Transaction;
use crate::types::{Ino, Kind};
use std::collections::BTreeMap;

/// What became of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Became {
    /// It is new.
    Added,
    /// It is no more.
    Removed,
    /// Its content or its attributes are others.
    Changed,
}

/// A change of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The path from the root of the file system, beginning with a slash.
    pub path: Vec<u8>,
    /// What became of it.
    pub became: Became,
    /// What it is, or was.
    pub directory: bool,
}

impl Op<'_> {
    /// A path that leads to an inode, if it has one: found by looking through the directories on the way.
    pub fn path_bytes(&self, ino: Ino) -> Result<Option<Vec<u8>>> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut at = ino;
        while at != Ino::ROOT {
            let Some(inode) = self.find_inode(at)?.filter(|inode| inode.head.links > 0) else { return Ok(None) };
            let parent = Ino(inode.head.parent);
            let Some(directory) = self.find_inode(parent)?.filter(Inode::is_directory) else { return Ok(None) };
            let Some(named) = self.all_names(&directory)?.into_iter().find(|named| named.ino == at) else {
                return Ok(None);
            };
            parts.push(named.name);
            if parts.len() > 4096 {
                return Ok(None);
            }
            at = parent;
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        Ok(Some(if path.is_empty() { b"/".to_vec() } else { path }))
    }

    /// The same in words.
    pub fn path(&self, ino: Ino) -> Option<String> {
        self.path_bytes(ino).ok().flatten().map(|path| String::from_utf8_lossy(&path).into_owned())
    }
}

impl Transaction {
    /// What it has changed so far, ordered by path. A file that has several names is told by one of them. Cost: reads what it
    /// changed, and the directories on the way there.
    pub fn differences(&self) -> Result<Vec<Difference>> {
        let own = Op::new(&self.files, Seen::Beside(self.txn.look()));
        let base = Op::new(&self.files, self.txn.before());
        let state = self.txn.state.lock();
        let mut all: BTreeMap<Vec<u8>, (Became, bool)> = BTreeMap::new();
        let mut paths: BTreeMap<(Ino, bool), Option<Vec<u8>>> = BTreeMap::new();
        let mut path_of = |directory: Ino, mine: bool, name: &[u8]| -> Result<Option<Vec<u8>>> {
            let path = match paths.get(&(directory, mine)) {
                Some(path) => path.clone(),
                None => {
                    let path = if mine { own.path_bytes(directory)? } else { base.path_bytes(directory)? };
                    paths.insert((directory, mine), path.clone());
                    path
                }
            };
            Ok(path.map(|path| {
                let path = if path == b"/" { Vec::new() } else { path };
                [&path[..], b"/", name].concat()
            }))
        };
        let find = |op: &Op<'_>, directory: Ino, name: &[u8]| match op.find_inode(directory)? {
            Some(inode) if inode.is_directory() && inode.head.links > 0 => op.find_name(&inode, name),
            _ => Ok(None),
        };
        for (directory, name) in &state.names {
            let (now, before) = (find(&own, *directory, name)?, find(&base, *directory, name)?);
            if now.as_ref().map(|named| named.ino) == before.as_ref().map(|named| named.ino) {
                continue;
            }
            let both = now.is_some() && before.is_some();
            for (named, mine, became) in [(before, false, Became::Removed), (now, true, Became::Added)] {
                let Some(named) = named else { continue };
                if let Some(path) = path_of(*directory, mine, name)? {
                    let became = if both { Became::Changed } else { became };
                    all.insert(path, (became, named.kind == Kind::Directory));
                }
            }
        }
        for ino in state.changed.iter().filter(|ino| !state.made.contains(ino)) {
            let (Some(now), Some(before)) = (own.find_inode(*ino)?, base.find_inode(*ino)?) else { continue };
            if now.head.version != before.head.version
                && let Some(path) = own.path_bytes(*ino)?
            {
                all.entry(path).or_insert((Became::Changed, now.is_directory()));
            }
        }
        Ok(all.into_iter().map(|(path, (became, directory))| Difference { path, became, directory }).collect())
    }
}
