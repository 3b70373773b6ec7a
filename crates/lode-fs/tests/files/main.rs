//! The file system from outside.
#![allow(clippy::unwrap_used)]

mod nested;
mod snapshots;
mod released;
mod transactions;
mod tree;
