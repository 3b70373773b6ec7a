//! The command `lode` as scripts and standard clients use it: real processes, real sockets, real file systems.
//!
//! Every step has a deadline. A test that lacks a program fails and names the package that has it.
//! Processes are ended by their ids; mounts and loop devices are taken down in all cases.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros, missing_docs, reason = "tests")]
#![forbid(unsafe_code)]

mod bad_input;
mod bench;
mod changed;
mod client;
mod control;
mod disks;
mod file_systems;
mod import_export;
mod killed;
mod lists;
mod maps;
mod mounts;
mod reserve;
mod served_mounts;
mod serving;
mod snapshots;
mod streams;
mod support;
mod transports;
mod units;
