//! What the kernel calls a node: a transaction and an inode in it.
//!
//! ```text
//!   16 bits the transaction, 0: none   48 bits the inode
//! ```
//! Two nodes belong to no inode: the directory `.txn`, in which each open transaction is a directory by its number.

use lode_fs::Ino;

const INODE_BITS: u32 = 48;
const INODE_MASK: u64 = (1 << INODE_BITS) - 1;

/// See the file's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node(pub u64);

/// The root.
pub(crate) const ROOT: Node = Node(Ino::ROOT.0);
/// The directory of transactions.
pub(crate) const TRANSACTIONS: Node = Node(INODE_MASK);
/// Its name in the root.
pub(crate) const TRANSACTIONS_NAME: &[u8] = b".txn";

/// Numbers of transactions towards the kernel are smaller.
pub(crate) const VIEWS_MAX: u64 = 1 << (64 - INODE_BITS);

/// A node of a transaction.
pub(crate) fn node(view: u64, ino: Ino) -> Node {
    debug_assert!(view < VIEWS_MAX && ino.0 < INODE_MASK, "numbers are checked where they are given out");
    Node(view << INODE_BITS | ino.0)
}

/// Which transaction, and which inode.
pub(crate) fn parts(node: Node) -> (u64, Ino) {
    (node.0 >> INODE_BITS, Ino(node.0 & INODE_MASK))
}
