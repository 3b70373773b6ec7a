//! The engine through its public calls, on media in memory.
#![allow(clippy::unwrap_used)]

mod barriers;
mod basics;
mod cold;
mod copies;
mod discard;
mod found;
mod grow;
mod hints;
mod kept_units;
mod large;
mod lists;
mod memory;
mod papers;
mod received;
mod resized;
mod rules_batch;
mod rules_footer;
mod rules_log;
mod rules_media;
mod rules_recovery;
mod rules_space;
mod rules_tables;
mod rules_threads;
mod rules_units;
mod rulings;
mod schedules;
mod sizes;
mod snapshots;
mod store;
mod streams;
mod tape;
mod units;
mod views;
mod warning;
mod watch;
