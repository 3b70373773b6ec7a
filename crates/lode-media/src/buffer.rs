//! Memory that direct I/O can use as it is.
//!
//! The only `unsafe` of this file is the allocation: the standard vector cannot promise an alignment.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of every buffer: the largest physical sector in use.
const ALIGN: usize = 4096;

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
    /// A zeroed buffer of `len` bytes. The memory is rounded up to a multiple of 4096.
    pub fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => AlignedBuffer { start, len },
            None => handle_alloc_error(layout),
        }
    }

    fn layout(len: usize) -> Layout {
        let size = len.max(1).next_multiple_of(ALIGN);
        Layout::from_size_align(size, ALIGN).expect("a buffer is smaller than half of the address space")
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) }
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
