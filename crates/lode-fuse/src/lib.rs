//! A file system of a logical disk, mounted through FUSE: kernel requests become calls of `lode-fs`. It decides nothing.
//!
//! * [`Mount`]: a mounted file system, until it is unmounted.
//! * [`control`]: how a program on the other side of the mount begins, commits and looks at transactions.
#![forbid(unsafe_code)]

pub mod control;
mod device;
mod door;
mod errno;
mod forgotten;
mod mount;
mod node;
mod ring;
mod views;

pub use mount::{Mount, MountOptions, Order, Transport};
