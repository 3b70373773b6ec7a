//! The memory of an entry: the headers and the payload, ours and the kernel's by turns.
//!
//! What keeps it sound (Q2): the kernel is given addresses, so while an entry is `lent` there is no reference to its memory,
//! which is why it is kept as addresses here, too. [`Memory::ours`] is the only way to it, and looks. Memory that is still
//! lent when nobody needs it any more is not freed: the kernel may yet write to it.

use std::ptr::NonNull;

/// Bytes of `struct fuse_in_header`.
pub const HEADER_LEN: usize = 40;
/// Bytes of the part for what belongs to an operation (`FUSE_URING_OP_IN_OUT_SZ`).
pub const ARGUMENTS_LEN: usize = 128;

/// `struct fuse_uring_req_header`: 128 bytes of header, 128 of arguments, and `struct fuse_uring_ent_in_out`.
const ARGUMENTS_AT: usize = 128;
const OWN_AT: usize = ARGUMENTS_AT + ARGUMENTS_LEN;
const HEADERS_LEN: usize = OWN_AT + 32;
/// In `struct fuse_uring_ent_in_out`: flags 8, what the answer is known by 8, bytes of payload 4.
const COMMIT_AT: usize = OWN_AT + 8;
const PAYLOAD_LEN_AT: usize = OWN_AT + 16;
/// `struct fuse_out_header`: length 4, error 4, which request 8.
const OUT_LEN: usize = 16;
/// In `struct fuse_in_header`: length 4, operation 4, which request 8.
const UNIQUE_AT: usize = 8;

/// `struct iovec`, as the kernel is given two of them.
#[repr(C)]
struct Stretch {
    address: *mut u8,
    len: usize,
}

/// See the file's head.
pub(crate) struct Memory {
    headers: NonNull<[u8; HEADERS_LEN]>,
    payload: NonNull<[u8]>,
    stretches: NonNull<[Stretch; 2]>,
    lent: bool,
}

// SAFETY: the memory belongs to this alone (it comes from boxes of its own), whichever thread has it.
unsafe impl Send for Memory {}

/// What an entry holds while it is ours.
pub(crate) struct Ours<'a> {
    headers: &'a mut [u8; HEADERS_LEN],
    pub payload: &'a mut [u8],
}

fn boxed<T: ?Sized>(memory: Box<T>) -> NonNull<T> {
    NonNull::from(Box::leak(memory))
}

impl Memory {
    /// Memory for payloads of so many bytes. It costs what is used of it.
    pub fn new(payload_len: usize) -> Memory {
        let headers = boxed(Box::new([0; HEADERS_LEN]));
        let payload = boxed(vec![0; payload_len].into_boxed_slice());
        let stretches = boxed(Box::new([
            Stretch { address: headers.as_ptr().cast(), len: HEADERS_LEN },
            Stretch { address: payload.as_ptr().cast(), len: payload_len },
        ]));
        Memory { headers, payload, stretches, lent: false }
    }

    /// It is the kernel's from now on. Gives back where it finds the addresses.
    pub fn lend(&mut self) -> u64 {
        self.lent = true;
        u64::try_from(self.stretches.as_ptr().addr()).expect("an address has 64 bits")
    }

    pub fn is_lent(&self) -> bool {
        self.lent
    }

    /// The kernel has said that it is ours.
    pub fn take_back(&mut self) {
        self.lent = false;
    }

    /// What is in it.
    pub fn ours(&mut self) -> Ours<'_> {
        assert!(!self.lent, "Q2: the memory of an entry is the kernel's");
        // SAFETY: both come from boxes that nobody else has, they live as long as this, and the kernel has let go of them (Q2).
        // The reference that is given out borrows this exclusively, so it cannot be lent meanwhile.
        unsafe { Ours { headers: self.headers.as_mut(), payload: self.payload.as_mut() } }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.lent {
            return;
        }
        // SAFETY: they come from boxes, nobody else has them, and the kernel has let go of them (Q2).
        unsafe {
            drop(Box::from_raw(self.headers.as_ptr()));
            drop(Box::from_raw(self.payload.as_ptr()));
            drop(Box::from_raw(self.stretches.as_ptr()));
        }
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Ours<'_> {
    /// What the kernel knows the answer by.
    pub fn commit_id(&self) -> u64 {
        number(self.headers, COMMIT_AT)
    }

    /// The request. What the kernel says of its length is not believed beyond the payload.
    pub fn asked(&mut self) -> crate::Asked<'_> {
        let given = &self.headers[PAYLOAD_LEN_AT..PAYLOAD_LEN_AT + 4];
        let given = u32::from_ne_bytes(given.try_into().expect("four bytes"));
        let given = usize::try_from(given).unwrap_or(usize::MAX).min(self.payload.len());
        crate::Asked {
            header: self.headers.first_chunk().expect("longer than that"),
            arguments: self.headers[ARGUMENTS_AT..].first_chunk().expect("longer than that"),
            payload: self.payload,
            given,
        }
    }

    /// Puts an answer in place of the request.
    pub fn answer(&mut self, answer: Result<usize, i32>) {
        let unique = number(self.headers, UNIQUE_AT);
        let (error, len) = match answer {
            Ok(len) => (0, len.min(self.payload.len())),
            Err(errno) => (-errno, 0),
        };
        let len = u32::try_from(len).expect("a payload is small");
        let total = u32::try_from(OUT_LEN).expect("few") + len;
        let mut place = |at: usize, bytes: &[u8]| self.headers[at..at + bytes.len()].copy_from_slice(bytes);
        place(0, &total.to_ne_bytes());
        place(4, &error.to_ne_bytes());
        place(8, &unique.to_ne_bytes());
        place(PAYLOAD_LEN_AT, &len.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry with what the kernel would have put into it.
    fn filled(payload_len: u32) -> Memory {
        let mut memory = Memory::new(4096);
        let ours = memory.ours();
        ours.headers[UNIQUE_AT..UNIQUE_AT + 8].copy_from_slice(&77u64.to_ne_bytes());
        ours.headers[COMMIT_AT..COMMIT_AT + 8].copy_from_slice(&78u64.to_ne_bytes());
        ours.headers[PAYLOAD_LEN_AT..PAYLOAD_LEN_AT + 4].copy_from_slice(&payload_len.to_ne_bytes());
        ours.headers[ARGUMENTS_AT] = 5;
        memory
    }

    #[test]
    fn a_request_is_what_the_kernel_put_in_and_never_longer_than_the_payload() {
        let mut memory = filled(100);
        assert_eq!(memory.ours().commit_id(), 78);
        let mut ours = memory.ours();
        let asked = ours.asked();
        assert_eq!((asked.given, asked.arguments[0], asked.header[UNIQUE_AT], asked.payload.len()), (100, 5, 77, 4096));
        assert_eq!(filled(u32::MAX).ours().asked().given, 4096);
    }

    #[test]
    fn an_answer_names_its_request_and_its_length_or_an_error() {
        let mut memory = filled(100);
        let mut ours = memory.ours();
        ours.answer(Ok(24));
        let expected = [40u32.to_ne_bytes(), 0i32.to_ne_bytes()].concat();
        assert_eq!((&ours.headers[..8], number(ours.headers, 8)), (&expected[..], 77));
        assert_eq!(ours.asked().given, 24);
        ours.answer(Err(5));
        let expected = [16u32.to_ne_bytes(), (-5i32).to_ne_bytes()].concat();
        assert_eq!(&ours.headers[..8], &expected[..]);
        assert_eq!(ours.asked().given, 0);
        ours.answer(Ok(5000));
        assert_eq!(ours.asked().given, 4096, "cut to the payload");
    }

    #[test]
    #[should_panic(expected = "Q2")]
    fn what_is_lent_is_not_touched() {
        let mut memory = Memory::new(64);
        memory.lend();
        memory.ours();
    }

    #[test]
    fn what_came_back_is_ours_again() {
        let mut memory = Memory::new(64);
        assert_ne!(memory.lend(), 0);
        memory.take_back();
        memory.ours().payload[63] = 1;
    }
}
