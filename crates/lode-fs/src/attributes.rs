//! Attributes of inodes, as POSIX has them, and extended ones.
//!
//! The extended attributes of an inode are one string of bytes: behind its head if they fit there, else in the second half
//! of its share of the list of content.

use crate::acl;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{AttributeHead, BLOCK_LEN, FIRST, SHARE};
use crate::inodes::{BEHIND, Inode};
use crate::op::{Op, u64_of, usize_of};
use crate::types::{Attributes, Changes, Ino, Kind, MODE_BITS, MODE_KIND, Time, Which};
use crate::view::View;
use lode::record::Cursor;

/// Bytes of all extended attributes of an inode, at most.
const ALL_MAX: usize = 16 * BLOCK_LEN;
/// Bytes of the name of one, at most.
const NAME_MAX: usize = 255;
/// Bytes of the value of one, at most.
const VALUE_MAX: usize = 1 << 16;

/// How an extended attribute is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Setting {
    /// Whether it is there or not.
    #[default]
    Any,
    /// It must not be there.
    Create,
    /// It must be there.
    Replace,
}

/// Names and values, in the order in which they came.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn decode(ino: Ino, bytes: &[u8]) -> Result<Pairs> {
    let short = || Error::damaged(format!("the extended attributes of {ino}"), "names and values");
    let mut cursor = Cursor::new(bytes);
    let mut pairs = Vec::new();
    while !cursor.is_empty() {
        let head = AttributeHead::decode(cursor.take(AttributeHead::SIZE).ok_or_else(short)?);
        let name = cursor.take(usize_of(head.name.into())).ok_or_else(short)?;
        let value = cursor.take(usize_of(head.value.into())).ok_or_else(short)?;
        pairs.push((name.to_vec(), value.to_vec()));
    }
    Ok(pairs)
}

fn encode(pairs: &Pairs) -> Vec<u8> {
    let mut bytes = Vec::new();
    let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("checked when it was set");
    for (name, value) in pairs {
        AttributeHead { name: len(name), value: len(value) }.push_to(&mut bytes);
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(value);
    }
    bytes
}

impl Op<'_> {
    /// The extended attributes.
    pub fn pairs(&self, inode: &Inode) -> Result<Pairs> {
        let len = usize_of(inode.head.attributes.into());
        if len <= BEHIND {
            return decode(inode.ino(), &inode.behind);
        }
        if len > ALL_MAX {
            return Err(Error::damaged(format!("the extended attributes of {}", inode.ino()), "fewer bytes"));
        }
        let mut bytes = vec![0; len.next_multiple_of(BLOCK_LEN)];
        for (block, into) in (attributes_at(inode)..).zip(bytes.chunks_mut(BLOCK_LEN)) {
            self.block(Which::Content, block, into)?;
        }
        decode(inode.ino(), &bytes[..len])
    }

    /// Sets all of them. The inode is to be put by the caller.
    pub fn set_pairs(&mut self, inode: &mut Inode, pairs: &Pairs) -> Result<()> {
        let bytes = encode(pairs);
        if bytes.len() > ALL_MAX {
            let what = format!("{} bytes of extended attributes: expected at most {ALL_MAX}", bytes.len());
            return Err(Error::new(ErrorKind::Full, what));
        }
        let apart = |len: usize| if len > BEHIND { len.div_ceil(BLOCK_LEN) } else { 0 };
        let old = apart(usize_of(inode.head.attributes.into()));
        let new = apart(bytes.len());
        for n in 0..old.max(new) {
            let piece = bytes.chunks(BLOCK_LEN).nth(n).filter(|_| n < new);
            self.stage(Which::Content, attributes_at(inode) + u64_of(n), piece.map(<[u8]>::to_vec));
        }
        inode.head.attributes = u32::try_from(bytes.len()).expect("checked above");
        inode.behind = if new == 0 { bytes } else { Vec::new() };
        Ok(())
    }

    /// None of them is to be left.
    pub fn drop_attributes(&mut self, inode: &mut Inode) {
        if usize_of(inode.head.attributes.into()) > BEHIND {
            let first = attributes_at(inode) * u64_of(BLOCK_LEN);
            self.discard(Which::Content, first..first + u64_of(ALL_MAX));
        }
        inode.head.attributes = 0;
        inode.behind = Vec::new();
    }

    /// What a new inode gets from its directory: the lists of who may what, or the caller's mask.
    pub fn inherit(&mut self, directory: &Inode, inode: &mut Inode, umask: u32) -> Result<()> {
        if inode.kind() == Kind::Link {
            return Ok(());
        }
        let pairs = if directory.head.attributes == 0 { Vec::new() } else { self.pairs(directory)? };
        let Some((_, default)) = pairs.into_iter().find(|(name, _)| name == acl::DEFAULT) else {
            inode.head.mode &= !(umask & 0o777);
            return Ok(());
        };
        let (mode, access) = acl::inherited(&default, inode.head.mode)?;
        inode.head.mode = mode;
        let mut pairs = Pairs::new();
        pairs.extend(access.map(|access| (acl::ACCESS.to_vec(), access)));
        if inode.kind() == Kind::Directory {
            pairs.push((acl::DEFAULT.to_vec(), default));
        }
        self.set_pairs(inode, &pairs)
    }
}

/// The first block of its extended attributes.
fn attributes_at(inode: &Inode) -> u64 {
    inode.head.number * SHARE + FIRST
}

fn lacking() -> Error {
    Error::new(ErrorKind::NoAttribute, "it has no such extended attribute")
}

impl View {
    /// Everything about an inode but its content. `NotFound`.
    pub fn attributes(&self, ino: Ino) -> Result<Attributes> {
        self.look(&[ino], |op| Ok(op.inode(ino)?.attributes()))
    }

    /// The same, and it is held as if it had been found by name.
    pub fn hold(&self, ino: Ino) -> Result<Attributes> {
        self.look_for(&[ino], |op| op.inode(ino))
    }

    /// Changes attributes in one step. `TooLarge`, `IsDirectory`, `Invalid`.
    pub fn set_attributes(&self, ino: Ino, changes: &Changes, now: Time) -> Result<Attributes> {
        let mut op = self.change(&[ino]);
        let mut inode = op.inode(ino)?;
        if let Some(size) = changes.size {
            match inode.kind() {
                Kind::File => {}
                Kind::Directory => return Err(Error::new(ErrorKind::IsDirectory, "a directory")),
                _ => return Err(Error::new(ErrorKind::Invalid, "not a file")),
            }
            op.frees = size < inode.head.size;
            op.resize_content(&mut inode, size)?;
            inode.head.modified = now.0;
        }
        if let Some(permissions) = changes.permissions {
            inode.head.mode = inode.head.mode & MODE_KIND | permissions & MODE_BITS;
            op.mode_to_list(&mut inode)?;
        }
        inode.head.uid = changes.uid.unwrap_or(inode.head.uid);
        inode.head.gid = changes.gid.unwrap_or(inode.head.gid);
        inode.head.accessed = changes.accessed.map_or(inode.head.accessed, |time| time.0);
        inode.head.modified = changes.modified.map_or(inode.head.modified, |time| time.0);
        inode.touch(now);
        op.put_inode(&inode);
        op.finish_then(|| inode.attributes())
    }

    /// The value of an extended attribute. `NoAttribute`.
    pub fn attribute(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.look(&[ino], |op| {
            let inode = op.inode(ino)?;
            let pairs = if inode.head.attributes == 0 { Vec::new() } else { op.pairs(&inode)? };
            let found = pairs.into_iter().find(|(known, _)| known == name);
            Ok(found.ok_or_else(lacking)?.1)
        })
    }

    /// The names of all extended attributes.
    pub fn attribute_names(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.look(&[ino], |op| Ok(op.pairs(&op.inode(ino)?)?.into_iter().map(|(name, _)| name).collect()))
    }

    /// Sets an extended attribute. `Exists`, `NoAttribute`, `Range`, `Full`.
    pub fn set_attribute(&self, ino: Ino, name: &[u8], value: &[u8], how: Setting, now: Time) -> Result<()> {
        if name.is_empty() || name.len() > NAME_MAX || value.len() > VALUE_MAX {
            let what = format!(
                "an extended attribute with a name of {} bytes and a value of {}: expected 1 to {NAME_MAX}, at most {VALUE_MAX}",
                name.len(),
                value.len()
            );
            return Err(Error::new(ErrorKind::Range, what));
        }
        let mut op = self.change(&[ino]);
        let mut inode = op.inode(ino)?;
        let mut pairs = op.pairs(&inode)?;
        let known = pairs.iter().position(|(known, _)| known == name);
        match (known, how) {
            (Some(_), Setting::Create) => {
                return Err(Error::new(ErrorKind::Exists, "it has this extended attribute already"));
            }
            (None, Setting::Replace) => return Err(lacking()),
            _ => {}
        }
        let value = match acl::settled(name, value, &mut inode)? {
            acl::Settled::Keep(value) => Some(value),
            acl::Settled::Drop => None,
        };
        match (known, value) {
            (Some(at), Some(value)) => pairs[at].1 = value,
            (Some(at), None) => drop(pairs.remove(at)),
            (None, Some(value)) => pairs.push((name.to_vec(), value)),
            (None, None) => {}
        }
        op.set_pairs(&mut inode, &pairs)?;
        inode.touch(now);
        op.put_inode(&inode);
        op.finish().map(drop)
    }

    /// Takes an extended attribute away. `NoAttribute`.
    pub fn remove_attribute(&self, ino: Ino, name: &[u8], now: Time) -> Result<()> {
        let mut op = self.change(&[ino]);
        op.frees = true;
        let mut inode = op.inode(ino)?;
        let mut pairs = op.pairs(&inode)?;
        let at = pairs.iter().position(|(known, _)| known == name).ok_or_else(lacking)?;
        pairs.remove(at);
        op.set_pairs(&mut inode, &pairs)?;
        inode.touch(now);
        op.put_inode(&inode);
        op.finish().map(drop)
    }
}

impl Op<'_> {
    /// The list of who may what follows the mode.
    fn mode_to_list(&mut self, inode: &mut Inode) -> Result<()> {
        if inode.head.attributes == 0 {
            return Ok(());
        }
        let mut pairs = self.pairs(inode)?;
        if let Some((_, access)) = pairs.iter_mut().find(|(name, _)| name == acl::ACCESS) {
            *access = acl::with_mode(access, inode.head.mode)?;
            self.set_pairs(inode, &pairs)?;
        }
        Ok(())
    }
}
