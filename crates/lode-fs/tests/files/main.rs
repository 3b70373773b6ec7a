//! The file system from outside.
#![allow(clippy::unwrap_used)]

mod released;
mod transactions;
mod tree;
