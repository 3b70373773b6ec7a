//! Commands on a disk that is being served. `lode serve` listens on a *control socket*; any other `lode COMMAND DISK`
//! that finds one sends its arguments there and is run by the server, on the disk that it has open.
//!
//! ```text
//!  client                                server
//!    │<── Ready ────────────────────────────│  who is it? is there a place?
//!    │── Request, standard input, output ──>│  is it this image? (if not: Other)
//!    │<── Input: standard input is wanted ──│  commands::run, in a thread with a session::Session
//!    │<── Progress ─────────────────────────│
//!    │<── Ask: are you still there? ────────│
//!    │─── one byte ────────────────────────>│
//!    │<── Done: exit code, words ───────────│
//! ```
//!
//! **A new command needs nothing for this**, as long as
//! * its argument for the disk has the name `disk`, and it opens it by `image::open` or `image::open_read_only`;
//! * it reads and prints by `session::stdin`, `output` or `session::stdout`, and asks `session::path` for the path of
//!   every other file (`clippy.toml` forbids the calls that would be the server's own);
//! * what takes long calls `Progress::set` or `advance`, and heeds them.
//!
//! A command that must not run there is named in `Command::needs_the_disk_alone`.
//!
//! The socket lies beside the image and belongs to its server (`place`). Whoever connects must be the server's user, or
//! root; the client wants the same of the server. Files are opened by the server: same user, same rights. A client that
//! sees other files than the server (a container) may use standard input and output alone.
//!
//! The files are handed over only once the server has spoken: one that hangs would hold them, and whoever waits at the
//! other end of a pipe would hang with it.
//!
//! Bounds: [`CLIENTS_MAX`] commands at once, [`wire::REQUEST_MAX`] bytes of arguments, [`ANSWER_TIME`] for either side to
//! begin. A client that ends, for whatever reason, ends its command at the next `Progress::set`, read or write. A command
//! that reads standard input to its end is told of that end only once the client has said that it is still there: if
//! both ends of a pipe are interrupted, half of what was to come is not taken for all of it.

pub mod client;
pub mod peer;
mod place;
pub mod server;
pub mod wire;

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Commands that one server runs at the same time.
pub const CLIENTS_MAX: usize = 16;

/// How long a request, or the first word of the server, may take.
pub const ANSWER_TIME: Duration = Duration::from_secs(10);

/// The files that this process sees: its mounts and its root. Paths mean the same to two processes if this is the same.
fn world() -> String {
    let mounts = std::fs::read_link("/proc/self/ns/mnt").unwrap_or_default();
    let root = std::fs::metadata("/").map_or((0, 0), |root| (root.dev(), root.ino()));
    format!("{} {}:{}", mounts.to_string_lossy(), root.0, root.1)
}
