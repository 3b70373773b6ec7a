//! The file system from outside.
#![allow(clippy::unwrap_used)]

mod damage;
mod limits;
mod nested;
mod promise;
mod released;
mod snapshots;
mod transactions;
mod tree;
