//! The NBD protocol and a server for it: translates what network block clients ask into calls of two small traits.
//!
//! Words: an *export* is what a client sees as a disk; a client *haggles* over options until one export is chosen
//! (the handshake), then sends *requests* and gets *replies* (the transmission). A *permit* is the right to hold a
//! number of bytes of memory for a peer.
//!
//! The promise of this door: **a reply to a write means that it survives the end of the server's process
//! ([`Durability::Process`]); a reply to a request with FUA, or to FLUSH, means that it survives a power cut
//! ([`Durability::Power`])**. The implementation of [`Export`] does that work; the server only sends no reply before
//! it.
//!
//! Invariants, named by number in the code:
//!
//! * N1: no memory is allocated from a length that a peer sent before there is a permit for it from one
//!   [budget](Limits).
//! * N2: a reply is sent only after the export has done what the reply promises.
//! * N3: no call of an export is open in a thread that writes to a socket.
//! * N4: an export is opened by INFO, GO or EXPORT_NAME only, and kept by the latter two only.
//! * N5: whatever a peer sends, it can end its own connection only.
//! * N6: every wait for a peer has a deadline, except for the wait between two requests.
//!
//! What it does not do: TLS (STARTTLS is answered "unsupported"; use the Unix socket, or a tunnel), extended headers,
//! RESIZE, or remembering anything: a door translates words and decides nothing.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use lode_nbd::{Limits, Listener, Server, memory::MemoryExports};
//!
//! let exports = Arc::new(MemoryExports::with("demo", 1 << 20));
//! let listener = Listener::tcp("127.0.0.1:0", false)?;
//! let server = Server::start(listener, exports, Limits::default())?;
//! println!("nbd://{}/demo", server.address());
//! let report = server.drain(Duration::from_secs(1));
//! assert_eq!(report.dropped, 0);
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

mod accept;
mod arena;
mod budget;
mod contexts;
mod crew;
mod error;
mod export;
mod handshake;
mod inbox;
mod limits;
mod link;
mod listener;
pub mod memory;
pub mod option;
mod reads;
mod replies;
pub mod reply;
pub mod request;
mod server;
mod stats;
mod terms;
mod transmission;
pub mod wire;

pub use error::{ExportError, ExportErrorKind, ProtocolError};
pub use export::{Context, Durability, Export, Exports, ReadInto, Ticket};
pub use limits::Limits;
pub use listener::{Address, Listener};
pub use server::{DrainReport, Server};
pub use stats::Stats;
pub use terms::{Terms, Work, admit};
