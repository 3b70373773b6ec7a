//! POSIX lists of who may what (POSIX.1e draft 17, section 23): they are extended attributes, and the mode of an inode is
//! part of them. Who may what is enforced by who calls; here the two are kept in step.
//!
//! ```text
//!   version 2: 4 bytes; then for each entry  tag: 2 bytes, permissions: 2 bytes, who: 4 bytes
//!   tags: 1 owner, 2 user, 4 owning group, 8 group, 16 mask, 32 others
//! ```

use crate::error::{Error, ErrorKind, Result};
use crate::inodes::Inode;
use crate::types::{Kind, MODE_BITS};

/// Who may what with the inode itself.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// What comes into a directory begins with this.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const OWNER: u16 = 1;
const USER: u16 = 2;
const OWNING_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHERS: u16 = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    who: u32,
}

fn decode(value: &[u8]) -> Result<Vec<Entry>> {
    let wrong = || Error::new(ErrorKind::Invalid, "a list of who may what that is none");
    let (version, rest) = value.split_first_chunk::<4>().ok_or_else(wrong)?;
    let (entries, rest) = rest.as_chunks::<8>();
    if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() {
        return Err(wrong());
    }
    let entries: Vec<Entry> = entries
        .iter()
        .map(|&[a, b, c, d, e, f, g, h]| Entry {
            tag: u16::from_le_bytes([a, b]),
            permissions: u16::from_le_bytes([c, d]),
            who: u32::from_le_bytes([e, f, g, h]),
        })
        .collect();
    let count = |tag| entries.iter().filter(|entry| entry.tag == tag).count();
    let known = entries
        .iter()
        .all(|entry| [OWNER, USER, OWNING_GROUP, GROUP, MASK, OTHERS].contains(&entry.tag) && entry.permissions <= 7);
    let single = [OWNER, OWNING_GROUP, OTHERS].iter().all(|tag| count(*tag) == 1);
    let masked = count(MASK) == 1 || (count(MASK) == 0 && count(USER) + count(GROUP) == 0);
    if known && single && masked { Ok(entries) } else { Err(wrong()) }
}

fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut value = VERSION.to_le_bytes().to_vec();
    for entry in entries {
        value.extend_from_slice(&entry.tag.to_le_bytes());
        value.extend_from_slice(&entry.permissions.to_le_bytes());
        value.extend_from_slice(&entry.who.to_le_bytes());
    }
    value
}

/// The tags whose permissions are those of the mode: of the owner, the group (or the mask, if there is one), the others.
fn of_mode(entries: &[Entry]) -> [(u16, u32); 3] {
    let group = if entries.iter().any(|entry| entry.tag == MASK) { MASK } else { OWNING_GROUP };
    [(OWNER, 6), (group, 3), (OTHERS, 0)]
}

fn mode_of(entries: &[Entry]) -> u32 {
    let bits = |(tag, shift): (u16, u32)| {
        entries.iter().filter(|entry| entry.tag == tag).map(|entry| u32::from(entry.permissions) << shift).sum::<u32>()
    };
    of_mode(entries).into_iter().map(bits).sum()
}

/// Whether a mode says all that a list says.
fn is_plain(entries: &[Entry]) -> bool {
    entries.iter().all(|entry| matches!(entry.tag, OWNER | OWNING_GROUP | OTHERS))
}

/// A list as it is once the mode has been set.
pub(crate) fn with_mode(value: &[u8], mode: u32) -> Result<Vec<u8>> {
    let mut entries = decode(value)?;
    for (tag, shift) in of_mode(&entries) {
        for entry in entries.iter_mut().filter(|entry| entry.tag == tag) {
            entry.permissions = u16::try_from(mode >> shift & 7).expect("three bits");
        }
    }
    Ok(encode(&entries))
}

/// What something new gets from the default list of its directory: its mode, and its list if that says more.
pub(crate) fn inherited(default: &[u8], mode: u32) -> Result<(u32, Option<Vec<u8>>)> {
    let mut entries = decode(default)?;
    for (tag, shift) in of_mode(&entries) {
        let asked = u16::try_from(mode >> shift & 7).expect("three bits");
        for entry in entries.iter_mut().filter(|entry| entry.tag == tag) {
            entry.permissions &= asked;
        }
    }
    let mode = mode & !0o777 | mode_of(&entries);
    Ok((mode, (!is_plain(&entries)).then(|| encode(&entries))))
}

/// What becomes of an extended attribute that is set.
pub(crate) enum Settled {
    Keep(Vec<u8>),
    Drop,
}

/// A list that is set changes the mode; one that says no more than the mode is not kept.
pub(crate) fn settled(name: &[u8], value: &[u8], inode: &mut Inode) -> Result<Settled> {
    if name == DEFAULT {
        if inode.kind() != Kind::Directory {
            return Err(Error::new(ErrorKind::NotPermitted, "only a directory has a default list"));
        }
        return Ok(if decode(value)?.is_empty() { Settled::Drop } else { Settled::Keep(value.to_vec()) });
    }
    if name == ACCESS {
        let entries = decode(value)?;
        inode.head.mode = inode.head.mode & !(MODE_BITS & 0o777) | mode_of(&entries);
        return Ok(if is_plain(&entries) { Settled::Drop } else { Settled::Keep(value.to_vec()) });
    }
    Ok(Settled::Keep(value.to_vec()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        encode(&entries.iter().map(|&(tag, permissions, who)| Entry { tag, permissions, who }).collect::<Vec<_>>())
    }

    #[test]
    fn mode_and_list_are_in_step() {
        let access = list(&[(OWNER, 7, 0), (USER, 6, 1000), (OWNING_GROUP, 5, 0), (MASK, 7, 0), (OTHERS, 4, 0)]);
        assert_eq!(mode_of(&decode(&access).unwrap()), 0o774);
        let changed = with_mode(&access, 0o640).unwrap();
        assert_eq!(
            changed,
            list(&[(OWNER, 6, 0), (USER, 6, 1000), (OWNING_GROUP, 5, 0), (MASK, 4, 0), (OTHERS, 0, 0)])
        );
        let (mode, inherited_list) = inherited(&access, 0o100_666).unwrap();
        assert_eq!(mode, 0o100_664);
        assert_eq!(
            inherited_list.unwrap(),
            list(&[(OWNER, 6, 0), (USER, 6, 1000), (OWNING_GROUP, 5, 0), (MASK, 6, 0), (OTHERS, 4, 0)])
        );
        let plain = list(&[(OWNER, 7, 0), (OWNING_GROUP, 5, 0), (OTHERS, 5, 0)]);
        assert_eq!(inherited(&plain, 0o40_777).unwrap(), (0o40_755, None));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let good = list(&[(OWNER, 7, 0), (OWNING_GROUP, 5, 0), (OTHERS, 5, 0)]);
        for bad in [
            good[..good.len() - 1].to_vec(),
            good[..20].to_vec(),
            list(&[(OWNER, 7, 0), (USER, 5, 1), (OWNING_GROUP, 5, 0), (OTHERS, 5, 0)]),
            list(&[(OWNER, 8, 0), (OWNING_GROUP, 5, 0), (OTHERS, 5, 0)]),
            list(&[(OWNER, 7, 0), (OWNER, 7, 0), (OWNING_GROUP, 5, 0), (OTHERS, 5, 0)]),
            Vec::new(),
        ] {
            assert_eq!(decode(&bad).err().map(|error| error.kind()), Some(ErrorKind::Invalid));
        }
    }
}
