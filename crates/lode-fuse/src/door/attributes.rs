//! Attributes, and the extended ones.

use super::{Answer, Door, Known, known, made_up, now, told};
use crate::node::Node;
use lode_fs::{Changes, Setting, Statistics, Time};
use rustix::io::Errno;

/// Flags of `setxattr`, as the kernel has them.
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
/// What the kernel says was changed no longer before or behind what is noted was noted already, in nanoseconds.
const NOTED: u64 = 1_000_000_000;

impl Door {
    pub fn attributes(&self, node: Node) -> Answer<Known> {
        if node.is_made_up() {
            return Ok(made_up(node));
        }
        let (number, view, ino) = self.at(node)?;
        Ok(known(number, told(view.attributes(ino))?))
    }

    /// `drops`: nobody is to run the file with its owner's rights any more. `changed`: when it was changed last, by a kernel
    /// that keeps times itself. Behind a renaming and the like it tells only that, and it was noted when that was done.
    pub fn set_attributes(&self, node: Node, changes: &Changes, drops: bool, changed: Option<Time>) -> Answer<Known> {
        let (number, view, ino) = self.at(node)?;
        let of_times = *changes == Changes { modified: changes.modified, ..Changes::default() };
        if let Some(changed) = changed.filter(|_| of_times && !drops) {
            let found = told(view.attributes(ino))?;
            if Some(found.modified) == changes.modified && changed.0.abs_diff(found.changed.0) < NOTED {
                return Ok(known(number, found));
            }
        }
        if drops || changes.size.is_some() {
            told(view.drop_privileges(ino, drops, now()))?;
        }
        Ok(known(number, told(view.set_attributes(ino, changes, now()))?))
    }

    pub fn statistics(&self) -> Answer<Statistics> {
        told(self.views.fs.statistics())
    }

    pub fn set_extended(&self, node: Node, name: &[u8], value: &[u8], flags: u32) -> Answer<()> {
        let how = match flags {
            0 => Setting::Any,
            XATTR_CREATE => Setting::Create,
            XATTR_REPLACE => Setting::Replace,
            _ => return Err(Errno::INVAL),
        };
        if name.starts_with(b"lode.") {
            return Err(Errno::PERM);
        }
        let (_, view, ino) = self.at(node)?;
        told(view.set_attribute(ino, name, value, how, now()))
    }

    /// The names, a zero behind each.
    pub fn extended_names(&self, node: Node) -> Answer<Vec<u8>> {
        if node.is_made_up() {
            return Ok(Vec::new());
        }
        let (_, view, ino) = self.at(node)?;
        let names = told(view.attribute_names(ino))?;
        Ok(names.into_iter().flat_map(|name| [name, vec![0]]).flatten().collect())
    }

    pub fn remove_extended(&self, node: Node, name: &[u8]) -> Answer<()> {
        let (_, view, ino) = self.at(node)?;
        told(view.remove_attribute(ino, name, now()))
    }
}
