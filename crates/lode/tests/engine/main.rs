//! The engine through its public calls, on media in memory.
#![allow(clippy::unwrap_used)]

mod basics;
mod rules_space;
mod rules_tables;
mod rules_threads;
mod rules_units;
mod sizes;
mod units;
mod watch;
