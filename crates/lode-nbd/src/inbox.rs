//! The buffer that a connection receives into: large, so that one call of the kernel brings many requests, and fixed,
//! so that no peer makes it grow. Requests are decoded and written from where they lie.

#[derive(Debug)]
pub(crate) struct Inbox {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    /// The next receive takes no more than this many bytes.
    appetite: usize,
}

/// Enough for some requests without payload: what is received after a large payload, of which then most need not be
/// copied out of here.
const APPETITE_SMALL: usize = 4 << 10;

impl Inbox {
    pub(crate) fn new(bytes: usize) -> Self {
        Inbox { bytes: vec![0; bytes].into_boxed_slice(), start: 0, end: 0, appetite: bytes }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// What was received and not consumed.
    pub(crate) fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        assert!(self.start <= self.end, "consumed what was not received");
        if self.is_empty() {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Where to receive the next bytes of a request of `whole` bytes, at most [`capacity`](Inbox::capacity).
    pub(crate) fn space(&mut self, whole: usize) -> &mut [u8] {
        if self.start + whole > self.capacity() {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let end = self.capacity().min(self.end + self.appetite.max(whole - (self.end - self.start)));
        &mut self.bytes[self.end..end]
    }

    /// Notes that `count` bytes were received into the space.
    pub(crate) fn received(&mut self, count: usize) {
        self.end += count;
        if count >= APPETITE_SMALL {
            self.appetite = self.capacity();
        }
    }

    /// Notes that a payload did not fit, so that the next one will probably not either.
    pub(crate) fn expect_large(&mut self) {
        self.appetite = APPETITE_SMALL;
    }
}

#[cfg(test)]
mod tests;
