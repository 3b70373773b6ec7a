//! The file system from outside.
#![allow(clippy::unwrap_used)]

mod nested;
mod snapshots;
mod transactions;
mod tree;
