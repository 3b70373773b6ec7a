//! Looking at everything without believing any of it: the conditions of `docs/FILES.md`, by their numbers.

use crate::error::Result;
use crate::files::{FileSystem, Files};
use crate::format::{BLOCK, FIRST, INODE_BLOCK, Owner, SHARE, SMALL_BLOCK};
use crate::inodes::{BEHIND, Inode};
use crate::names::HASH_END;
use crate::op::{Op, u64_of, usize_of};
use crate::types::{Ino, Kind, Which};
use lode::ListId;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Zeros are looked for in pieces of so many bytes.
const PIECE: u64 = 1 << 20;

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
    /// What is not as it must be, each in words with the inode or the path.
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
    report: Report,
}

impl FileSystem {
    /// Verifies everything that must be so, but for the content of files. Others wait meanwhile. `progress` is told how many
    /// inodes of how many were looked at, and may end it. Cost: reads all inodes, directories and the map of all content.
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<Option<Report>> {
        let gate = self.files.gate.write();
        let op = self.files.alone();
        let mut check = Check { op, files: &self.files, known: BTreeMap::new(), report: Report::default() };
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
        drop(gate);
        Ok(Some(check.report))
    }
}

impl Check<'_> {
    fn problem(&mut self, what: String) {
        self.report.problems.push(what);
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
                Ok(None) => self.problem(format!("{ino}: expected an inode, found zeros")),
                Err(error) => self.problem(format!("{ino}: {error}")),
            }
        }
        self.report.inodes = u64_of(self.known.len());
        Ok(())
    }

    fn look_at(&mut self, ino: Ino) -> Result<()> {
        let inode = self.known[&ino].inode.clone();
        if let Err(error) = self.op.pairs(&inode) {
            self.problem(format!("{ino}: {error}"));
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
            self.problem(format!("{}: expected list {list} to be its own, found the owner {owner:?}", inode.ino()));
        }
        if self.files.volume(Which::Own(ListId(list))).is_err() {
            self.problem(format!("{}: expected a list {list}, found none", inode.ino()));
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
            let (names, next) = match self.op.names_from(directory, from) {
                Ok(found) => found,
                Err(error) => {
                    self.problem(format!("directory {ino}: {error}"));
                    return Ok(());
                }
            };
            buckets += 1;
            for named in names {
                entries += 1;
                bytes += u64_of(named.bytes());
                let name = String::from_utf8_lossy(&named.name).into_owned();
                if self.files.hash(&named.name) != named.hash {
                    self.problem(format!("{name} in directory {ino}: expected its hash, found another"));
                }
                let Some(known) = self.known.get_mut(&named.ino) else {
                    self.problem(format!("{name} in directory {ino}: expected {}, found none", named.ino));
                    continue;
                };
                known.names += 1;
                let (kind, parent) = (known.inode.kind(), Ino(known.inode.head.parent));
                if kind != named.kind {
                    self.problem(format!("{name} in directory {ino}: expected a {:?}, found a {kind:?}", named.kind));
                }
                if kind == Kind::Directory {
                    if parent != ino {
                        self.problem(format!("{name} in directory {ino}: expected it as the parent, found {parent}"));
                    }
                    self.known.get_mut(&ino).expect("looked at").directories += 1;
                }
            }
            from = next;
        }
        self.report.names += entries;
        let stored = self.blocks_of(directory)?;
        let counted = (directory.head.entries, directory.head.size, directory.head.blocks);
        if counted != (entries, bytes, buckets) || stored != buckets {
            self.problem(format!(
                "directory {ino}: expected {counted:?} entries, bytes and buckets, found {:?}, {stored} blocks stored",
                (entries, bytes, buckets)
            ));
        }
        Ok(())
    }

    /// Conditions 4 and 6.
    fn look_at_content(&mut self, inode: &Inode) -> Result<()> {
        let (ino, block) = (inode.ino(), u64::from(BLOCK));
        let stored = self.blocks_of(inode)?;
        if stored != inode.head.blocks {
            self.problem(format!("{ino}: expected {} blocks, found {stored}", inode.head.blocks));
        }
        // The end of the last block, and blocks behind it.
        let mut all = inode.clone();
        all.head.size = self.files.file_max();
        let mut at = inode.head.size;
        while let Some(start) = self.op.seek_content(&all, false, at)? {
            let stop = self.op.seek_content(&all, true, start)?.unwrap_or(all.head.size);
            let mut piece = vec![0; usize_of((stop - start).min(PIECE))];
            if let Err(error) = self.op.read_content(&all, start, &mut piece) {
                self.problem(format!("{ino}: {error}"));
            } else if piece.iter().any(|byte| *byte != 0) {
                self.problem(format!("{ino}: expected zeros behind its {} bytes, found others", inode.head.size));
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
        } else {
            self.problem("expected a root, found none".to_owned());
        }
        // Towards the root; what leads in a circle is not reached.
        let directories: Vec<Ino> =
            self.known.iter().filter(|(_, known)| known.inode.is_directory()).map(|(ino, _)| *ino).collect();
        for ino in directories {
            let (mut way, mut at) = (Vec::new(), ino);
            let reached = loop {
                match self.known.get(&at) {
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
            let expected = match known.inode.is_directory() {
                true if head.links == 0 => 0,
                true => 2 + known.directories,
                false => known.names,
            };
            if head.links != expected {
                problems.push(format!("{ino}: expected {} links, found {expected}", head.links));
            }
            if known.inode.is_directory() && head.links > 0 && (known.names != 1 || !known.reached) {
                problems.push(format!("directory {ino}: expected one name in a tree, found {}", known.names));
            }
        }
        self.report.problems.append(&mut problems);
    }

    /// Conditions 1 and 5: what belongs to nothing.
    fn look_at_strays(&mut self) -> Result<()> {
        let orphans = self.stored(Which::Orphans)?;
        self.report.orphans = u64_of(orphans.len());
        for orphan in &orphans {
            if self.known.get(&Ino(*orphan)).is_some_and(|known| known.inode.head.links > 0) {
                self.problem(format!("{}: expected no name, since it is listed as one without", Ino(*orphan)));
            }
        }
        let nameless = self.known.iter().filter(|(_, known)| known.inode.head.links == 0).map(|(ino, _)| *ino);
        let lost: Vec<Ino> = nameless.filter(|ino| orphans.binary_search(&ino.0).is_err()).collect();
        for ino in lost {
            self.problem(format!("{ino}: expected a name, or to be listed as one without"));
        }
        let share = SHARE * u64::from(BLOCK);
        let mut at = 0;
        while let Some(start) = self.op.seek(Which::Content, false, at..u64::MAX)? {
            let ino = Ino(start / share);
            let behind = start % share >= share / 2;
            match self.known.get(&ino) {
                None => self.problem(format!("{ino}: expected none, found content")),
                Some(known) if behind && usize_of(known.inode.head.attributes.into()) <= BEHIND => {
                    self.problem(format!("{ino}: expected no blocks of extended attributes, found some"));
                }
                Some(_) => {}
            }
            at = if behind { (ino.0 + 1) * share } else { ino.0 * share + share / 2 };
        }
        for list in self.stored(Which::Owners)? {
            let list = ListId(u32::try_from(list).unwrap_or(u32::MAX));
            let owner = self.owner(list)?;
            let known = owner.and_then(|owner| self.known.get(&owner));
            if known.is_none_or(|known| known.inode.head.list != list.0) {
                self.problem(format!("list {}: expected its owner {owner:?} to have it", list.0));
            }
        }
        let beyond = self.files.inodes_max() * u64::from(INODE_BLOCK);
        if self.op.seek(Which::Inodes, false, beyond..u64::MAX)?.is_some() {
            self.problem("expected no inode with so large a number".to_owned());
        }
        Ok(())
    }
}
