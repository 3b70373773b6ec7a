//! Memory that direct I/O can use as it is.
//!
//! Large buffers ask for huge pages: the kernel pins one instead of hundreds, and a device gets one segment instead of
//! hundreds, which makes large direct transfers up to half as fast again.
//!
//! The only `unsafe` of this file is the allocation: the standard vector cannot promise an alignment.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of every buffer: the largest physical sector in use.
const ALIGN: usize = 4096;
/// A huge page. Buffers of at least half of one are made of whole ones.
const HUGE: usize = 2 << 20;

/// A fixed-size buffer aligned to 4096 bytes, zeroed when made.
pub struct AlignedBuffer {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the buffer owns its memory exclusively, like a boxed slice.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// A zeroed buffer of `len` bytes. The memory is rounded up to a multiple of 4096; from half of a huge page on, to
    /// whole huge pages, which count as used once they are touched.
    pub fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        let start = if layout.align() == HUGE {
            map_huge(layout.size())
        } else {
            // SAFETY: the layout's size is not zero.
            NonNull::new(unsafe { alloc_zeroed(layout) })
        };
        let Some(start) = start else { handle_alloc_error(layout) };
        AlignedBuffer { start, len }
    }

    fn layout(len: usize) -> Layout {
        let align = if len < HUGE / 2 { ALIGN } else { HUGE };
        Layout::from_size_align(len.max(1).next_multiple_of(align), align)
            .expect("a buffer is smaller than half of the address space")
    }
}

/// Fresh zeroed memory that starts at a huge page: the advice must come before the first touch, so the allocator, which
/// may hand out memory that was touched before, is of no use.
fn map_huge(size: usize) -> Option<NonNull<u8>> {
    let mapped = size.checked_add(HUGE)?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private mapping at a place of the kernel's choice touches no other memory.
    let base = unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, protection, MapFlags::PRIVATE) }.ok()?;
    let head = base.addr().next_multiple_of(HUGE) - base.addr();
    // SAFETY: head + size + tail is what was mapped above; nobody else knows of the ends that are given back here, and
    // the advice does not change what the middle holds. A kernel without huge pages refuses it, and nothing is lost.
    unsafe {
        let start = base.byte_add(head);
        for (at, spare) in [(base, head), (start.byte_add(size), HUGE - head)] {
            if spare > 0 {
                let _ = munmap(at, spare);
            }
        }
        let _ = madvise(start, size, Advice::LinuxHugepage);
        NonNull::new(start.cast())
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        let layout = Self::layout(self.len);
        // SAFETY: made in `new` with the same layout, by the mapping or the allocator.
        unsafe {
            if layout.align() == HUGE {
                let _ = munmap(self.start.as_ptr().cast(), layout.size());
            } else {
                dealloc(self.start.as_ptr(), layout);
            }
        }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes are allocated and initialised (zeroed).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.len)
    }
}
