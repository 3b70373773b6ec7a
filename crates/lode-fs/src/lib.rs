//! Files and directories on one logical disk, with no journal and no fsck: each operation is one unit.
#![forbid(unsafe_code)]

mod acl;
mod attributes;
mod changes;
mod check;
mod commit;
mod content;
mod error;
mod files;
mod format;
mod gathered;
mod inodes;
mod io;
mod joined;
mod labels;
mod locks;
mod names;
mod nested;
mod numbers;
mod op;
pub mod planted;
mod promise;
mod snapshots;
mod transaction;
mod tree;
mod types;
mod view;

pub use attributes::Setting;
pub use changes::{Became, Difference};
pub use check::Report;
pub use commit::Committed;
pub use error::{Error, ErrorKind, Result};
pub use files::{FileSystem, MakeOptions};
pub use format::describe;
pub use gathered::Gathering;
pub use labels::is_of_files;
pub use snapshots::{Retention, SnapshotInfo};
pub use transaction::{Conflicts, Transaction, TransactionInfo};
pub use tree::New;
pub use types::{Allocation, Attributes, Caller, Changes, Entry, Ino, Kind, Renaming, Statistics, Time};
pub use view::View;
