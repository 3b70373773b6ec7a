//! The file system from outside.
#![allow(clippy::unwrap_used)]

mod damage;
mod limits;
mod promise;
mod transactions;
mod tree;
