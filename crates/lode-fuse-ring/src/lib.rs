//! FUSE over io_uring: requests of the kernel as bytes, and answers to them. What they mean is not known here.
//!
//! A FUSE connection that was agreed upon with `FUSE_OVER_IO_URING` has a **queue** for each processor that there may ever be;
//! a request goes to that of the processor on which it is made. In a queue there are **entries**: memory that we lend the kernel
//! until it has put a request into it. Each entry has a thread and a ring of its own, which stays on the queue's processor: so
//! nothing is handed from thread to thread, no other processor is woken, and a request that takes long holds up nobody while
//! the queue has another entry. The kernel gives a request to the entry that was answered last: of many entries few are hot.
//!
//! ```text
//!            REGISTER                     a request (CQE 0)
//!   ours ───────────────▶ the kernel's ─────────────────────▶ ours, to be answered
//!                           ▲   │                                │
//!                           │   │ the end (CQE < 0)              │
//!                           │   ▼                                │
//!                           │  ours, over                        │
//!                           └────────────────────────────────────┘
//!                                      COMMIT_AND_FETCH
//! ```
//! * **Q1** Every request that was put into an entry is answered: by who serves, by `EIO` if that panics.
//! * **Q2** Nobody but the kernel touches the memory of an entry while it is the kernel's, and it is not given back to the
//!   allocator either: rather it is lost.
//! * **Q3** When the connection ends, all threads end.
//!
//! Over the device come still: the agreement itself, what is forgotten, interrupts; and what we tell the kernel on our own.
//! The shapes are those of `include/uapi/linux/fuse.h` from Linux 6.14 on (FUSE 7.42).

mod entry;
mod memory;
mod queues;
mod seat;

pub use memory::{ARGUMENTS_LEN, HEADER_LEN};
pub use queues::{Queues, entries, processors};

/// A request, and where its answer goes.
pub struct Asked<'a> {
    /// `struct fuse_in_header`.
    pub header: &'a [u8; HEADER_LEN],
    /// What stands in front of the arguments of most operations, as `struct fuse_write_in`. Bytes that an operation does not have
    /// may be left from another.
    pub arguments: &'a [u8; ARGUMENTS_LEN],
    /// First what belongs to the request: names, or what is to be written. The answer is put in its place.
    pub payload: &'a mut [u8],
    /// So many bytes of that belong to the request.
    pub given: usize,
}

/// Who answers.
pub trait Serve: Send + Sync + 'static {
    /// Answers a request: how many bytes of the payload are the answer, or the number of an error. Called by several threads
    /// at once. A panic is answered with `EIO`.
    fn serve(&self, asked: Asked<'_>) -> Result<usize, i32>;
}

/// Whether this process may make such rings at all: the kernel, an administrator or a container may forbid it.
pub fn probe() -> std::io::Result<()> {
    entry::new_ring().map(drop)
}
