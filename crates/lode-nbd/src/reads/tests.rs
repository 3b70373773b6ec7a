use super::*;
use crate::{
    ExportErrorKind,
    export::Durability,
    memory::MemoryExport,
    wire::{Errno, chunks},
};

/// Memory whose upper half cannot be read.
struct HalfBad(MemoryExport);

impl Export for HalfBad {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn preferred_block(&self) -> u32 {
        4096
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ExportError> {
        if offset >= self.size() / 2 {
            return Err(ExportError::new(ExportErrorKind::Io, "the upper half is bad"));
        }
        self.0.read(offset, into)
    }
    fn write(&self, offset: u64, data: &[u8], until: Durability) -> Result<(), ExportError> {
        self.0.write(offset, data, until)
    }
    fn zero(&self, offset: u64, bytes: u64, may_punch: bool, until: Durability) -> Result<(), ExportError> {
        self.0.zero(offset, bytes, may_punch, until)
    }
    fn trim(&self, offset: u64, bytes: u64, until: Durability) -> Result<(), ExportError> {
        self.0.trim(offset, bytes, until)
    }
    fn flush(&self) -> Result<(), ExportError> {
        Ok(())
    }
    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<(u64, bool)>, ExportError> {
        self.0.extents(offset, bytes)
    }
}

fn answered(structured: bool, reads: &[(u64, usize)]) -> (Vec<u8>, Vec<Range<usize>>) {
    let export = HalfBad(MemoryExport::new(1 << 20));
    export.write(0, &[7; 4096], Durability::Process).expect("in range");
    let terms = Terms::of(&export, 1 << 20, structured, false);
    let reads: Vec<_> = reads
        .iter()
        .zip(1..)
        .map(|(&(offset, bytes), cookie)| PendingRead { cookie: Cookie(cookie), offset, bytes, holes: structured })
        .collect();
    let mut buffer = vec![0xee; reads.iter().map(|read| read.reply_bytes(&terms)).sum()];
    let mut parts = Vec::new();
    answer(&export, &terms, &Counters::default(), &reads, &mut buffer, &mut parts);
    (parts.iter().flat_map(|part| buffer[part.clone()].to_vec()).collect(), parts)
}

#[test]
fn data_holes_and_errors_in_one_batch() {
    let (sent, parts) = answered(true, &[(0, 1000), (8192, 4096), (600 << 10, 512), (0, 1), (8192, 3)]);
    let mut expected = reply::data_header(Cookie(1), 0, 1000).to_vec();
    expected.extend_from_slice(&[7; 1000]);
    expected.extend_from_slice(&reply::hole(Cookie(2), 8192, 4096));
    expected.extend_from_slice(&reply::structured_error(Cookie(3), Errno::Io));
    expected.extend_from_slice(&reply::data_header(Cookie(4), 0, 1));
    expected.push(7);
    // Too few zeroes to be told as a hole.
    expected.extend_from_slice(&reply::data_header(Cookie(5), 8192, 3));
    expected.extend_from_slice(&[0; 3]);
    assert_eq!(sent, expected);
    assert_eq!(parts.len(), 3, "neighbours are one part: {parts:?}");
}

#[test]
fn simple_replies_have_no_holes() {
    let (sent, parts) = answered(false, &[(8192, 4096), (900 << 10, 512), (0, 2)]);
    let mut expected = reply::simple(Cookie(1), None).to_vec();
    expected.extend_from_slice(&[0; 4096]);
    expected.extend_from_slice(&reply::simple(Cookie(2), Some(Errno::Io)));
    expected.extend_from_slice(&reply::simple(Cookie(3), None));
    expected.extend_from_slice(&[7; 2]);
    assert_eq!(sent, expected);
    assert_eq!(parts.len(), 2);
}

#[test]
fn one_read_alone_is_answered_as_among_many() {
    for (offset, kind) in [(0, chunks::OFFSET_DATA), (8192, chunks::OFFSET_HOLE), (700 << 10, chunks::ERROR)] {
        let (sent, _) = answered(true, &[(offset, 4096)]);
        assert_eq!(sent[6..8], kind.to_be_bytes());
    }
}

#[test]
fn a_last_byte_that_is_not_zero_is_no_hole() {
    let mut body = vec![0; 4096];
    assert!(is_hole(&body));
    body[4095] = 1;
    assert!(!is_hole(&body));
    assert!(!is_hole(&[0; 511]));
}
