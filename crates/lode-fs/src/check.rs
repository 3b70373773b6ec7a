//! Looking at everything without believing any of it: the conditions of `docs/FILES.md`, by their numbers.

use crate::error::Result;
use crate::files::{FileSystem, Files};
use crate::format::{BLOCK, FIRST, INODE_BLOCK, Owner, SHARE, SMALL_BLOCK};
use crate::inodes::{BEHIND, Inode};
use crate::names::HASH_END;
use crate::op::{Op, u64_of, usize_of};
use crate::types::{Ino, Kind, Which};
use lode::ListId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Zeros are looked for in pieces of so many bytes.
const PIECE: u64 = 1 << 20;

/// For more problems than that no paths are looked for: that takes looks into directories.
const PATHS_MAX: usize = 1000;

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Inodes, directories and nameless ones among them.
    pub inodes: u64,
    /// Directories.
    pub directories: u64,
    /// Names.
    pub names: u64,
    /// Inodes without a name that somebody has open, or had.
    pub orphans: u64,
    /// What is not as it must be, each in words with the path and the inode.
    pub problems: Vec<String>,
}

/// What is known of an inode.
struct Known {
    inode: Inode,
    /// Names that were found of it.
    names: u32,
    /// Directories in it.
    directories: u32,
    /// It can be reached from the root.
    reached: bool,
}

/// A check under way.
struct Check<'a> {
    op: Op<'a>,
    files: &'a Files,
    known: BTreeMap<Ino, Known>,
    /// Inodes that cannot be read, and a name of each: the directory that it is in, and what is wrong.
    lost: BTreeMap<Ino, Lost>,
    /// Directories that cannot be read, or not all of them: what is in them may lack its name.
    broken: BTreeSet<Ino>,
    /// Of which inode, and what.
    problems: Vec<(Option<Ino>, String)>,
    report: Report,
}

/// An inode that cannot be read.
struct Lost {
    why: String,
    name: Option<(Ino, Vec<u8>)>,
}

impl FileSystem {
    /// Verifies everything that must be so, but for the content of files. Others wait meanwhile. `progress` is told how many
    /// inodes of how many were looked at, and may end it. Cost: reads all inodes, directories and the map of all content.
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<Option<Report>> {
        let gate = self.files.shut();
        let op = self.files.alone();
        let mut check = Check {
            op,
            files: &self.files,
            known: BTreeMap::new(),
            lost: BTreeMap::new(),
            broken: BTreeSet::new(),
            problems: Vec::new(),
            report: Report::default(),
        };
        check.read_inodes()?;
        let all = u64_of(check.known.len());
        let inodes: Vec<Ino> = check.known.keys().copied().collect();
        for (n, ino) in (0u64..).zip(inodes) {
            if n % 256 == 0 && progress(n, all).is_break() {
                return Ok(None);
            }
            check.look_at(ino)?;
        }
        check.look_at_names();
        check.look_at_strays()?;
        check.tell();
        drop(gate);
        Ok(Some(check.report))
    }
}

impl Check<'_> {
    fn problem(&mut self, of: impl Into<Option<Ino>>, what: impl Into<String>) {
        self.problems.push((of.into(), what.into()));
    }

    /// The problems in words.
    fn tell(&mut self) {
        for (ino, Lost { why, .. }) in &self.lost {
            let why = why.strip_prefix(&format!("{ino}: ")).unwrap_or(why);
            self.problems.push((Some(*ino), why.to_owned()));
        }
        let problems = std::mem::take(&mut self.problems);
        for (n, (of, what)) in problems.into_iter().enumerate() {
            let path = of.filter(|_| n < PATHS_MAX).and_then(|ino| self.path(ino));
            self.report.problems.push(match (path, of) {
                (Some(path), Some(ino)) => format!("{path} ({ino}): {what}"),
                (None, Some(ino)) => format!("{ino}: {what}"),
                (_, None) => what,
            });
        }
    }

    /// A path of an inode. What of it is in a directory that cannot be read is a question mark.
    fn path(&self, ino: Ino) -> Option<String> {
        let (mut path, mut at, mut passed) = (String::new(), ino, BTreeSet::new());
        while at != Ino::ROOT {
            if !passed.insert(at) {
                return None;
            }
            let (directory, name) = match (self.lost.get(&at), self.known.get(&at)) {
                (Some(lost), _) => lost.name.clone()?,
                (None, Some(known)) => {
                    let directory = Ino(known.inode.head.parent);
                    let name = self.name_in(directory, at);
                    // Without a name nothing is known of where it was, unless that is what is damaged.
                    (directory, name.or_else(|| self.broken.contains(&directory).then(|| b"?".to_vec()))?)
                }
                (None, None) => return None,
            };
            path = format!("/{}{path}", String::from_utf8_lossy(&name));
            at = directory;
        }
        Some(if path.is_empty() { "/".to_owned() } else { path })
    }

    fn name_in(&self, directory: Ino, ino: Ino) -> Option<Vec<u8>> {
        let directory = self.known.get(&directory).map(|known| &known.inode).filter(|inode| inode.is_directory())?;
        let mut from = 0;
        while from < HASH_END {
            let (names, next) = self.op.names_or_damage(directory, from).ok()?;
            if let Some(named) = names.unwrap_or_default().into_iter().find(|named| named.ino == ino) {
                return Some(named.name);
            }
            from = next;
        }
        None
    }

    /// Each stored block of a list, by number.
    fn stored(&self, which: Which) -> Result<Vec<u64>> {
        let block = u64::from(crate::op::block_bytes(which));
        let (mut all, mut at) = (Vec::new(), 0);
        while let Some(start) = self.op.seek(which, false, at..u64::MAX)? {
            at = self.op.seek(which, true, start..u64::MAX)?.unwrap_or(u64::MAX);
            all.extend(start / block..at / block);
        }
        Ok(all)
    }

    fn read_inodes(&mut self) -> Result<()> {
        for number in self.stored(Which::Inodes)?.into_iter().filter(|number| *number > 0) {
            let ino = Ino(number);
            match self.op.find_inode(ino) {
                Ok(Some(inode)) => {
                    self.known.insert(ino, Known { inode, names: 0, directories: 0, reached: false });
                }
                Ok(None) => self.problem(ino, "expected an inode, found zeros"),
                Err(error) => {
                    self.broken.insert(ino);
                    self.lost.insert(ino, Lost { why: error.to_string(), name: None });
                }
            }
        }
        self.report.inodes = u64_of(self.known.len());
        Ok(())
    }

    fn look_at(&mut self, ino: Ino) -> Result<()> {
        let inode = self.known[&ino].inode.clone();
        if let Err(error) = self.op.pairs(&inode) {
            self.problem(ino, error.to_string());
        }
        self.look_at_list(&inode)?;
        if inode.is_directory() {
            self.report.directories += 1;
            return self.look_at_directory(&inode);
        }
        self.look_at_content(&inode)
    }

    /// Condition 5: the list of its own is its own.
    fn look_at_list(&mut self, inode: &Inode) -> Result<()> {
        let list = inode.head.list;
        if list == 0 {
            return Ok(());
        }
        let owner = self.owner(ListId(list))?;
        if owner != Some(inode.ino()) {
            self.problem(inode.ino(), format!("expected list {list} to be its own, found the owner {owner:?}"));
        }
        if self.files.volume(Which::Own(ListId(list))).is_err() {
            self.problem(inode.ino(), format!("expected a list {list}, found none"));
        }
        Ok(())
    }

    fn owner(&self, list: ListId) -> Result<Option<Ino>> {
        let mut block = [0; Owner::SIZE];
        self.op.read_at(Which::Owners, u64::from(list.0) * u64::from(SMALL_BLOCK), &mut block)?;
        let owner = Owner::decode(&block);
        Ok((owner.used != 0).then_some(Ino(owner.inode)))
    }

    /// How many blocks of an inode's share and list are stored.
    fn blocks_of(&self, inode: &Inode) -> Result<u64> {
        let block = u64::from(BLOCK);
        let first = inode.head.number * SHARE * block;
        let mut blocks = self.op.stored(Which::Content, first..first + FIRST * block)?;
        if inode.head.list != 0 && self.files.volume(Which::Own(ListId(inode.head.list))).is_ok() {
            blocks += self.op.stored(Which::Own(ListId(inode.head.list)), 0..self.files.file_max())?;
        }
        Ok(blocks)
    }

    /// Conditions 1 to 3.
    fn look_at_directory(&mut self, directory: &Inode) -> Result<()> {
        let ino = directory.ino();
        let (mut from, mut entries, mut bytes, mut buckets) = (0, 0, 0, 0);
        while from < HASH_END {
            let (names, next) = match self.op.names_or_damage(directory, from) {
                Ok((Ok(names), next)) => (names, next),
                Ok((Err(error), next)) => {
                    self.problem(ino, error.to_string());
                    self.broken.insert(ino);
                    (Vec::new(), next)
                }
                Err(error) => {
                    self.problem(ino, error.to_string());
                    self.broken.insert(ino);
                    return Ok(());
                }
            };
            buckets += 1;
            for named in names {
                entries += 1;
                bytes += u64_of(named.bytes());
                let name = String::from_utf8_lossy(&named.name).into_owned();
                if let Some(lost) = self.lost.get_mut(&named.ino) {
                    lost.name.get_or_insert((ino, named.name));
                    if named.kind == Kind::Directory {
                        self.known.get_mut(&ino).expect("looked at").directories += 1;
                    }
                    continue;
                }
                if self.files.hash(&named.name) != named.hash {
                    self.problem(ino, format!("{name} in it: expected its hash, found another"));
                }
                let Some(known) = self.known.get_mut(&named.ino) else {
                    self.problem(ino, format!("{name} in it: expected {}, found none", named.ino));
                    continue;
                };
                known.names += 1;
                let (kind, parent) = (known.inode.kind(), Ino(known.inode.head.parent));
                if kind != named.kind {
                    self.problem(ino, format!("{name} in it: expected a {:?}, found a {kind:?}", named.kind));
                }
                if kind == Kind::Directory {
                    if parent != ino {
                        self.problem(ino, format!("{name} in it: expected it as the parent, found {parent}"));
                    }
                    self.known.get_mut(&ino).expect("looked at").directories += 1;
                }
            }
            from = next;
        }
        self.report.names += entries;
        let stored = self.blocks_of(directory)?;
        let counted = (directory.head.entries, directory.head.size, directory.head.blocks);
        if !self.broken.contains(&ino) && (counted != (entries, bytes, buckets) || stored != buckets) {
            let found = (entries, bytes, buckets);
            let what = "entries, bytes and buckets";
            self.problem(ino, format!("expected {counted:?} {what}, found {found:?}, {stored} blocks stored"));
        }
        Ok(())
    }

    /// Conditions 4 and 6.
    fn look_at_content(&mut self, inode: &Inode) -> Result<()> {
        let (ino, block) = (inode.ino(), u64::from(BLOCK));
        let stored = self.blocks_of(inode)?;
        if stored != inode.head.blocks {
            self.problem(ino, format!("expected {} blocks, found {stored}", inode.head.blocks));
        }
        // The end of the last block, and blocks behind it.
        let mut all = inode.clone();
        all.head.size = self.files.file_max();
        let mut at = inode.head.size;
        while let Some(start) = self.op.seek_content(&all, false, at)? {
            let stop = self.op.seek_content(&all, true, start)?.unwrap_or(all.head.size);
            let mut piece = vec![0; usize_of((stop - start).min(PIECE))];
            if let Err(error) = self.op.read_content(&all, start, &mut piece) {
                self.problem(ino, error.to_string());
            } else if piece.iter().any(|byte| *byte != 0) {
                self.problem(ino, format!("expected zeros behind its {} bytes, found others", inode.head.size));
            }
            at = (start + PIECE).min(stop).next_multiple_of(block);
        }
        Ok(())
    }

    /// Conditions 1, 2 and 6, of all that was found.
    fn look_at_names(&mut self) {
        if let Some(root) = self.known.get_mut(&Ino::ROOT) {
            root.names += 1;
            root.reached = true;
        } else if !self.lost.contains_key(&Ino::ROOT) {
            self.problem(None, "expected a root, found none");
        }
        // Towards the root; what leads in a circle is not reached.
        let directories: Vec<Ino> =
            self.known.iter().filter(|(_, known)| known.inode.is_directory()).map(|(ino, _)| *ino).collect();
        for ino in directories {
            let (mut way, mut at) = (Vec::new(), ino);
            let reached = loop {
                match self.known.get(&at) {
                    _ if self.broken.contains(&at) => break true,
                    Some(known) if known.reached => break true,
                    Some(known) if way.len() <= self.known.len() => {
                        way.push(at);
                        at = Ino(known.inode.head.parent);
                    }
                    _ => break false,
                }
            };
            for ino in way.into_iter().filter(|_| reached) {
                self.known.get_mut(&ino).expect("on the way").reached = true;
            }
        }
        let mut problems = Vec::new();
        for (ino, known) in &self.known {
            let head = &known.inode.head;
            // Names of it may be in what cannot be read, or of what is in it.
            let hidden = [head.number, head.parent].into_iter().any(|ino| self.broken.contains(&Ino(ino)));
            if hidden && head.links > 0 {
                continue;
            }
            let expected = match known.inode.is_directory() {
                true if head.links == 0 => 0,
                true => 2 + known.directories,
                false => known.names,
            };
            if head.links != expected {
                problems.push((Some(*ino), format!("expected {} links, found {expected}", head.links)));
            }
            if known.inode.is_directory() && head.links > 0 && (known.names != 1 || !known.reached) {
                problems.push((Some(*ino), format!("expected one name in a tree, found {}", known.names)));
            }
        }
        self.problems.append(&mut problems);
    }

    /// Conditions 1 and 5: what belongs to nothing.
    fn look_at_strays(&mut self) -> Result<()> {
        let orphans = self.stored(Which::Orphans)?;
        self.report.orphans = u64_of(orphans.len());
        for orphan in &orphans {
            if self.known.get(&Ino(*orphan)).is_some_and(|known| known.inode.head.links > 0) {
                self.problem(Ino(*orphan), "expected no name, since it is listed as one without");
            }
        }
        let nameless = self.known.iter().filter(|(_, known)| known.inode.head.links == 0).map(|(ino, _)| *ino);
        let lost: Vec<Ino> = nameless.filter(|ino| orphans.binary_search(&ino.0).is_err()).collect();
        for ino in lost {
            self.problem(ino, "expected a name, or to be listed as one without");
        }
        let share = SHARE * u64::from(BLOCK);
        let mut at = 0;
        while let Some(start) = self.op.seek(Which::Content, false, at..u64::MAX)? {
            let ino = Ino(start / share);
            let behind = start % share >= share / 2;
            match self.known.get(&ino) {
                None if self.lost.contains_key(&ino) => {}
                None => self.problem(ino, "expected none, found content"),
                Some(known) if behind && usize_of(known.inode.head.attributes.into()) <= BEHIND => {
                    self.problem(ino, "expected no blocks of extended attributes, found some");
                }
                Some(_) => {}
            }
            at = if behind { (ino.0 + 1) * share } else { ino.0 * share + share / 2 };
        }
        for list in self.stored(Which::Owners)? {
            let list = ListId(u32::try_from(list).unwrap_or(u32::MAX));
            let owner = self.owner(list)?;
            let known = owner.and_then(|owner| self.known.get(&owner));
            let lost = owner.is_some_and(|owner| self.lost.contains_key(&owner));
            if !lost && known.is_none_or(|known| known.inode.head.list != list.0) {
                self.problem(
                    owner,
                    format!("expected list {} to be its own, as the list's owner, found another", list.0),
                );
            }
        }
        let beyond = self.files.inodes_max() * u64::from(INODE_BLOCK);
        if self.op.seek(Which::Inodes, false, beyond..u64::MAX)?.is_some() {
            self.problem(None, "expected no inode with so large a number");
        }
        Ok(())
    }
}
