//! An entry of a queue: a ring, the memory that is lent, and the thread that answers what comes in it.

use crate::memory::Memory;
use crate::seat::Seat;
use crate::{Asked, Serve};
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// `enum fuse_uring_cmd`: lends an entry for the first time; answers, and lends it again.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// In `struct fuse_uring_cmd_req`: flags 8, what the answer is known by 8, the queue 2.
const COMMIT_AT: usize = 8;
const QUEUE_AT: usize = 16;
/// Where `len` is in an SQE (`struct io_uring_sqe`), and what the kernel wants it to be: the number of stretches.
const SQE_LEN_AT: usize = 24;
const STRETCHES: u32 = 2;

/// How often the kernel may refuse in a row before an entry is given up.
const REFUSALS_MAX: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

type Ring = IoUring<Entry128, cqueue::Entry>;

/// A ring for commands that are as long as those of FUSE, used by the thread that makes it. The kernel puts a request into it
/// when that thread waits for one, and at no other time: measured, that is as fast as any other way and varies least.
pub(crate) fn new_ring() -> io::Result<Ring> {
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().dontfork().build(4)
}

/// See the file's head.
pub(crate) struct Entry {
    ring: Ring,
    device: Arc<OwnedFd>,
    queue: u16,
    memory: Memory,
    seat: Seat,
}

impl Entry {
    /// To be called by the thread that answers.
    pub fn new(device: Arc<OwnedFd>, queue: u16, payload_len: usize) -> io::Result<Entry> {
        let memory = Memory::new(payload_len);
        Ok(Entry { ring: new_ring()?, device, queue, memory, seat: Seat::take(queue) })
    }

    /// Lends the entry for the first time.
    pub fn register(&mut self) -> io::Result<()> {
        self.lend(REGISTER, 0)?;
        self.enter(0)?;
        // A refusal is there at once; so may be a request, which waits.
        match self.ring.completion().next() {
            Some(completion) if completion.result() < 0 => {
                self.memory.take_back();
                Err(io::Error::from_raw_os_error(-completion.result()))
            }
            Some(_) => {
                self.memory.take_back();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Answers what comes, until the connection ends.
    pub fn run(mut self, server: &dyn Serve) {
        let mut refusals = 0;
        // An entry that the kernel has lost is registered anew. When the connection is over that fails, too.
        while let Err(error) = self.answer_all(server) {
            let over = error.raw_os_error().is_some_and(is_over);
            refusals += 1;
            if over || self.memory.is_lent() || refusals > REFUSALS_MAX {
                return;
            }
            std::thread::sleep(PAUSE);
            if self.register().is_err() {
                return;
            }
        }
    }

    fn answer_all(&mut self, server: &dyn Serve) -> io::Result<()> {
        loop {
            if self.memory.is_lent() {
                self.wait()?;
            }
            let mut ours = self.memory.ours();
            let commit_id = ours.commit_id();
            let asked = ours.asked();
            let given = asked.given;
            let answer = served(server, asked);
            ours.answer(answer);
            self.seat.next(given.max(answer.unwrap_or(0)));
            self.lend(COMMIT_AND_FETCH, commit_id)?;
        }
    }

    /// Until there is a request.
    fn wait(&mut self) -> io::Result<()> {
        loop {
            if let Some(completion) = self.ring.completion().next() {
                self.memory.take_back();
                return match completion.result() {
                    result if result < 0 => Err(io::Error::from_raw_os_error(-result)),
                    _ => Ok(()),
                };
            }
            self.enter(1)?;
        }
    }

    /// Puts a command into the ring.
    fn lend(&mut self, command: u32, commit_id: u64) -> io::Result<()> {
        let mut more = [0; 80];
        more[COMMIT_AT..COMMIT_AT + 8].copy_from_slice(&commit_id.to_ne_bytes());
        more[QUEUE_AT..QUEUE_AT + 2].copy_from_slice(&self.queue.to_ne_bytes());
        let device = types::Fd(self.device.as_raw_fd());
        let mut entry = opcode::UringCmd80::new(device, command).cmd(more).addr(Some(self.memory.lend())).build();
        set_stretches(&mut entry);
        // SAFETY: the kernel is given the address of the stretches of memory of this entry, which live until it has let go of
        // them, or for ever (Q2); and a descriptor that is open as long as the ring is.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| {
            self.memory.take_back();
            io::Error::from(io::ErrorKind::WouldBlock)
        })
    }

    /// Hands over what is in the ring, and waits for so many completions.
    fn enter(&mut self, want: usize) -> io::Result<()> {
        let mut refusals = 0;
        loop {
            match self.ring.submit_and_wait(want) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if refusals >= REFUSALS_MAX => return Err(error),
                Err(_) => {
                    refusals += 1;
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }
}

/// Always an answer (Q1). Whatever state a panic leaves behind belongs to who serves, who has to expect that.
fn served(server: &dyn Serve, asked: Asked<'_>) -> Result<usize, i32> {
    catch_unwind(AssertUnwindSafe(|| server.serve(asked))).unwrap_or(Err(rustix::io::Errno::IO.raw_os_error()))
}

/// What the kernel says when a connection has ended.
fn is_over(errno: i32) -> bool {
    use rustix::io::Errno;
    [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED, Errno::NODEV].map(Errno::raw_os_error).contains(&errno)
}

/// The library sets every field of such a command but this one.
fn set_stretches(entry: &mut Entry128) {
    const { assert!(size_of::<Entry128>() == 128 && align_of::<Entry128>() >= align_of::<u32>()) };
    let len = std::ptr::from_mut(entry).cast::<u8>().wrapping_add(SQE_LEN_AT).cast::<u32>();
    // SAFETY: an entry is `repr(C)` and is what the kernel reads, a `struct io_uring_sqe` of 128 bytes: `len` is a `u32` there,
    // at a multiple of four, and any number is a value of it.
    unsafe { len.write(STRETCHES) };
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Panics;

    impl Serve for Panics {
        fn serve(&self, asked: Asked<'_>) -> Result<usize, i32> {
            assert!(asked.given > 0, "a request without anything");
            Ok(asked.given)
        }
    }

    #[test]
    fn who_panics_has_answered_that_it_failed() {
        let mut memory = Memory::new(64);
        assert_eq!(served(&Panics, memory.ours().asked()), Err(5));
        let asked = Asked { header: &[0; 40], arguments: &[0; 128], payload: &mut [0; 8], given: 3 };
        assert_eq!(served(&Panics, asked), Ok(3));
    }

    #[test]
    fn the_length_is_set_and_nothing_else_is() {
        let bytes = |entry: &Entry128| {
            // SAFETY: 128 bytes of plain numbers.
            unsafe { std::ptr::from_ref(entry).cast::<[u8; 128]>().read() }
        };
        let mut entry = opcode::UringCmd80::new(types::Fd(7), REGISTER).cmd([9; 80]).addr(Some(u64::MAX)).build();
        let mut before = bytes(&entry);
        set_stretches(&mut entry);
        before[SQE_LEN_AT] = 2;
        assert_eq!(bytes(&entry), before);
        assert_eq!(before[16..24], [0xff; 8], "the address stands in front of it");
        assert_eq!(before[48..], [9; 80]);
    }
}
