//! What the kernel calls a node: a transaction and an inode in it.
//!
//! ```text
//!   16 bits the view: a transaction or a snapshot, 0: what is committed      48 bits the inode
//! ```
//! Two of each view belong to no inode: the directory `.txn`, in which each open transaction is a directory by its number
//! (also within a transaction, since a directory can be in one place only), and `.snapshots`.

use lode_fs::Ino;

const INODE_BITS: u32 = 48;
const INODE_MASK: u64 = (1 << INODE_BITS) - 1;

/// See the file's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node(pub u64);

/// In place of an inode: the directory of transactions.
pub(crate) const TRANSACTIONS: Ino = Ino(INODE_MASK);
/// In place of an inode: the directory of snapshots.
pub(crate) const SNAPSHOTS: Ino = Ino(INODE_MASK - 1);
/// Their names in a root.
pub(crate) const TRANSACTIONS_NAME: &[u8] = b".txn";
pub(crate) const SNAPSHOTS_NAME: &[u8] = b".snapshots";

/// Numbers of views towards the kernel are smaller.
pub(crate) const VIEWS_MAX: u64 = 1 << (64 - INODE_BITS);

/// A node of a view.
pub(crate) fn node(view: u64, ino: Ino) -> Node {
    debug_assert!(view < VIEWS_MAX && ino.0 <= INODE_MASK, "numbers are checked where they are given out");
    Node(view << INODE_BITS | ino.0)
}

impl Node {
    /// Whether it belongs to no inode.
    pub fn is_made_up(self) -> bool {
        parts(self).1.0 >= SNAPSHOTS.0
    }
}

/// Which view, and which inode.
pub(crate) fn parts(node: Node) -> (u64, Ino) {
    (node.0 >> INODE_BITS, Ino(node.0 & INODE_MASK))
}
