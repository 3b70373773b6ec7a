//! The file system from outside.
#![allow(clippy::unwrap_used)]

mod damage;
mod flush;
mod gathered;
mod joined;
mod limits;
mod nested;
mod promise;
mod released;
mod snapshots;
mod transactions;
mod tree;
