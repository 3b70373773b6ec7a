//! The file system from outside.
#![allow(clippy::unwrap_used)]

mod transactions;
mod tree;
