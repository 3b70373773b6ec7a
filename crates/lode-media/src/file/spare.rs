//! Aligned buffers kept for the next unaligned transfer: fresh memory costs a page fault for every 4096 bytes.

use parking_lot::Mutex;

use crate::AlignedBuffer;

/// Buffers up to this length are made this long, so that they fit one another.
const SMALL: usize = 64 << 10;
const SMALL_KEPT: usize = 64;
/// Longer buffers than this are not kept.
const LARGE: usize = 8 << 20;
const LARGE_KEPT: usize = 4;

/// The buffers that nobody uses now.
#[derive(Default)]
pub(crate) struct Spare {
    small: Mutex<Vec<AlignedBuffer>>,
    large: Mutex<Vec<AlignedBuffer>>,
}

impl Spare {
    /// A buffer of at least `len` bytes. What it holds is left from its last use.
    pub(crate) fn take(&self, len: usize) -> AlignedBuffer {
        if len <= SMALL {
            return self.small.lock().pop().unwrap_or_else(|| AlignedBuffer::new(SMALL));
        }
        let mut large = self.large.lock();
        match large.iter().position(|buffer| buffer.len() >= len) {
            Some(found) => large.swap_remove(found),
            None => AlignedBuffer::new(len),
        }
    }

    /// Keeps a buffer for later, unless there are enough. Of the large ones the longer stay.
    pub(crate) fn give(&self, buffer: AlignedBuffer) {
        if buffer.len() <= SMALL {
            let mut small = self.small.lock();
            if small.len() < SMALL_KEPT {
                small.push(buffer);
            }
            return;
        }
        if buffer.len() > LARGE {
            return;
        }
        let mut large = self.large.lock();
        if large.len() < LARGE_KEPT {
            large.push(buffer);
        } else if let Some(shortest) = large.iter_mut().min_by_key(|kept| kept.len())
            && shortest.len() < buffer.len()
        {
            *shortest = buffer;
        }
    }
}
