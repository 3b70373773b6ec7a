//! What the kernel may ask, as calls of the file system. How a request comes and its answer goes is not known here: `device`
//! and `ring` bring them.
//!
//! What an answer may say is decided here once for both: how long it is believed, which nodes there are, who may look where.

mod attributes;
mod content;
mod names;
mod questions;

pub(crate) use names::Looked;
pub(crate) use questions::{Answered, Value, fitted};

use crate::errno::errno;
use crate::forgotten::Forgotten;
use crate::node::{Node, SNAPSHOTS, TRANSACTIONS, node, parts};
use crate::views::Views;
use lode_fs::{Attributes, Caller, Committed, Entry, Ino, Kind, Time, View};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The kernel may believe what it was told for so long: it is told when something changes behind its back.
pub(crate) const BELIEVED: Duration = Duration::from_secs(24 * 60 * 60);
/// What depends on who asks is asked each time.
pub(crate) const ASKED: Duration = Duration::ZERO;
/// Bytes of a block, as programs are told.
pub(crate) const BLOCK: u32 = 4096;
/// A name has at most so many bytes.
pub(crate) const NAME_MAX: u32 = 255;
/// Bytes that one request reads or writes at most.
pub(crate) const REQUEST_MAX: u32 = 1 << 20;

/// An answer, or the number of an error.
pub(crate) type Answer<T> = Result<T, Errno>;

/// Something that the kernel has copies of has changed; who asked for it goes on when the kernel knows.
pub(crate) struct News {
    pub committed: Committed,
    pub told: Box<dyn FnOnce() + Send>,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

impl Asker {
    pub fn caller(self, umask: u32) -> Caller {
        Caller { uid: self.uid, gid: self.gid, umask, now: now() }
    }
}

/// A node, as the kernel is told of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub node: Node,
    pub found: Attributes,
    /// How long that the name means this is believed, and the attributes are.
    pub believed: Duration,
}

/// See the file's head.
pub(crate) struct Door {
    pub views: Arc<Views>,
    /// What the kernel has forgotten, for who sees to it.
    pub forgotten: Arc<Forgotten>,
    /// What the kernel is to be told, for who tells it.
    pub news: parking_lot::Mutex<Sender<News>>,
}

pub(crate) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::new(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
}

fn told<T>(result: lode_fs::Result<T>) -> Answer<T> {
    result.map_err(|error| errno(&error))
}

/// A directory that belongs to no inode: that of transactions (whoever may look into one of them is asked there), or that of
/// snapshots, which belongs to who has mounted it all.
pub(crate) fn made_up(node: Node) -> Known {
    let (_, ino) = parts(node);
    let found = Attributes {
        ino,
        generation: 0,
        kind: Kind::Directory,
        permissions: if ino == SNAPSHOTS { 0o755 } else { 0o711 },
        links: 2,
        uid: rustix::process::getuid().as_raw(),
        gid: 0,
        device: 0,
        size: 0,
        stored: 0,
        accessed: Time(0),
        modified: Time(0),
        changed: Time(0),
        made: Time(0),
    };
    Known { node, found, believed: BELIEVED }
}

fn known(view: u64, found: Attributes) -> Known {
    Known { node: node(view, found.ino), found, believed: BELIEVED }
}

/// What a name means that cannot be read, so that the name can be seen and removed: what the name itself tells. Whoever asks
/// for more is told of the damage.
fn unreadable(view: u64, entry: &Entry) -> Known {
    let nothing = made_up(node(view, TRANSACTIONS)).found;
    let found = Attributes { ino: entry.ino, kind: entry.kind, permissions: 0, links: 1, ..nothing };
    Known { believed: ASKED, ..known(view, found) }
}

impl Door {
    fn at(&self, at: Node) -> Answer<(u64, View, Ino)> {
        let (view, ino) = parts(at);
        if at.is_made_up() {
            return Err(Errno::PERM);
        }
        Ok((view, self.views.view(view).ok_or(Errno::STALE)?, ino))
    }

    /// Two nodes that must be of one view.
    fn both(&self, first: Node, second: Node) -> Answer<(u64, View, Ino, Ino)> {
        let (number, view, first) = self.at(first)?;
        let (other, _, second) = self.at(second)?;
        if other == number { Ok((number, view, first, second)) } else { Err(Errno::XDEV) }
    }

    /// Whether somebody may look into a transaction, or end it.
    fn may(&self, asker: Asker, number: u64) -> bool {
        let owner = self.views.get(number).map(|open| open.uid);
        owner.is_some_and(|owner| asker.uid == 0 || asker.uid == owner)
    }
}
