//! Inodes as blocks, and back.

use crate::error::{Error, ErrorKind, Result};
use crate::format::{INODE_LEN, InodeHead};
use crate::op::{Op, u64_of, usize_of};
use crate::types::{Attributes, Caller, Ino, Kind, MODE_BITS, Time, Which};

/// So many bytes of extended attributes fit behind the head.
pub(crate) const BEHIND: usize = INODE_LEN - InodeHead::SIZE;
/// So many names an inode may have.
const LINKS_MAX: u32 = u32::MAX - 8;

/// An inode in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    pub head: InodeHead,
    /// What stands behind the head: all its extended attributes, or none.
    pub behind: Vec<u8>,
}

impl Inode {
    pub fn new(ino: Ino, mode: u32, caller: &Caller, generation: u64) -> Inode {
        let Time(now) = caller.now;
        let head = InodeHead {
            mode,
            uid: caller.uid,
            gid: caller.gid,
            links: 1,
            accessed: now,
            modified: now,
            changed: now,
            made: now,
            number: ino.0,
            generation,
            version: 1,
            ..InodeHead::default()
        };
        Inode { head, behind: Vec::new() }
    }

    /// What a block holds. None: nothing.
    fn decode(ino: Ino, block: &[u8]) -> Result<Option<Inode>> {
        let head = InodeHead::decode(&block[..InodeHead::SIZE]);
        if head == InodeHead::default() {
            return Ok(None);
        }
        if head.number != ino.0 || Kind::of(head.mode).is_none() {
            return Err(Error::damaged(ino, format!("itself, found {} of mode {:o}", head.number, head.mode)));
        }
        let behind = match usize_of(head.attributes.into()) {
            len if len <= BEHIND => block[InodeHead::SIZE..][..len].to_vec(),
            _ => Vec::new(),
        };
        Ok(Some(Inode { head, behind }))
    }

    fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(InodeHead::SIZE + self.behind.len());
        self.head.push_to(&mut block);
        block.extend_from_slice(&self.behind);
        block
    }

    pub fn ino(&self) -> Ino {
        Ino(self.head.number)
    }

    pub fn kind(&self) -> Kind {
        Kind::of(self.head.mode).expect("asked when it was read")
    }

    pub fn is_directory(&self) -> bool {
        self.kind() == Kind::Directory
    }

    /// Only a directory will do.
    pub fn directory(self) -> Result<Inode> {
        if self.is_directory() {
            return Ok(self);
        }
        Err(Error::new(ErrorKind::NotDirectory, "not a directory"))
    }

    pub fn attributes(&self) -> Attributes {
        let head = &self.head;
        Attributes {
            ino: self.ino(),
            generation: head.generation,
            kind: self.kind(),
            permissions: head.mode & MODE_BITS,
            links: head.links,
            uid: head.uid,
            gid: head.gid,
            device: head.device,
            size: head.size,
            stored: head.blocks * u64::from(crate::format::BLOCK),
            accessed: Time(head.accessed),
            modified: Time(head.modified),
            changed: Time(head.changed),
            made: Time(head.made),
        }
    }

    /// Its attributes or its content change.
    pub fn touch(&mut self, now: Time) {
        self.head.changed = now.0;
        self.head.version += 1;
    }

    /// Its content changes.
    pub fn modify(&mut self, now: Time) {
        self.head.modified = now.0;
        self.touch(now);
    }

    /// One of its names comes or goes.
    pub fn turn(&mut self, now: Time) {
        self.head.changed = now.0;
        self.head.turns += 1;
    }

    /// Its entries change.
    pub fn turn_entries(&mut self, now: Time) {
        self.head.modified = now.0;
        self.turn(now);
    }

    pub fn add_link(&mut self) -> Result<()> {
        if self.head.links >= LINKS_MAX {
            return Err(Error::new(ErrorKind::TooManyLinks, format!("{} has as many names as it can", self.ino())));
        }
        self.head.links += 1;
        Ok(())
    }
}

impl Op<'_> {
    /// An inode, if it is there.
    pub fn find_inode(&self, ino: Ino) -> Result<Option<Inode>> {
        if ino.0 == 0 || ino.0 >= self.files.inodes_max() {
            return Ok(None);
        }
        let mut block = [0; INODE_LEN];
        self.block(Which::Inodes, ino.0, &mut block)?;
        Inode::decode(ino, &block)
    }

    /// An inode. `NotFound`: it is not there any more. It counts as read.
    pub fn inode(&self, ino: Ino) -> Result<Inode> {
        self.note_read(|read| {
            read.inodes.insert(ino);
        });
        self.find_inode(ino)?.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("{ino} is not there any more")))
    }

    /// It is to be this.
    pub fn put_inode(&mut self, inode: &Inode) {
        debug_assert!(u64_of(inode.behind.len()) <= u64_of(BEHIND), "checked when they were set");
        self.stage(Which::Inodes, inode.head.number, Some(inode.encode()));
    }

    /// It is to be no more.
    pub fn remove_inode(&mut self, ino: Ino) {
        self.stage(Which::Inodes, ino.0, None);
        self.free_number(ino);
    }
}
