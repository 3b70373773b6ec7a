#![allow(clippy::unwrap_used)]

use rustix::io::Errno;

use super::*;
use crate::file::scripted::{Call, Scripted, Step};
use crate::scratch::Scratch;

const SECTOR: Alignment = Alignment { memory: 512, offset: 4096 };

/// A file of 64 KiB that says where it is, behind a scripted kernel. The page cache does not mind the alignment
/// that the handle keeps all the same.
fn open(scratch: &Scratch, alignment: Alignment) -> (Handle, Scripted) {
    let path = scratch.path("file");
    std::fs::write(&path, content()).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let calls = Scripted::default();
    (Handle::new(file.into(), &path, alignment, calls.boxed()), calls)
}

fn content() -> Vec<u8> {
    (0..16_384_u32).flat_map(u32::to_le_bytes).collect()
}

fn aligned(fill: u8, len: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::new(len);
    buffer.fill(fill);
    buffer
}

#[test]
fn reads_of_any_alignment_give_the_same() {
    let scratch = Scratch::new();
    for alignment in [Alignment::ANY, SECTOR] {
        let (handle, _) = open(&scratch, alignment);
        for (offset, len) in [(0, 65536), (0, 1), (4095, 2), (1, 65535), (8192, 4096), (65535, 1), (5000, 0)] {
            let mut into = vec![0xEE; len];
            handle.read(wide(offset), &mut into).unwrap();
            assert_eq!(into, content()[offset..offset + len], "offset {offset}, length {len}, {alignment:?}");
        }
    }
}

#[test]
fn a_long_unaligned_read_is_bounced_in_parts() {
    let scratch = Scratch::new();
    let (handle, _) = open(&scratch, SECTOR);
    let long: Vec<u8> = (0..3 * BOUNCE_MAX).map(|at| u8::try_from(at % 251).unwrap()).collect();
    std::fs::write(scratch.path("file"), &long).unwrap();
    let mut into = vec![0; long.len() - 7];
    handle.read(7, &mut into).unwrap();
    assert!(into == long[7..]);
}

#[test]
fn short_and_interrupted_reads_go_on() {
    let scratch = Scratch::new();
    for alignment in [Alignment::ANY, SECTOR] {
        let (handle, calls) = open(&scratch, alignment);
        let interrupted = Step::Fail(Errno::INTR);
        calls.next(Call::Read, &[interrupted, Step::Short(4096), interrupted, Step::Short(8192)]);
        let mut into = aligned(0, 65536);
        handle.read(0, &mut into).unwrap();
        assert!(into[..] == content());
        assert_eq!(calls.made(Call::Read), 5);
    }
}

#[test]
fn a_short_direct_read_goes_on_at_a_whole_sector() {
    let scratch = Scratch::new();
    let (handle, calls) = open(&scratch, SECTOR);
    calls.next(Call::Read, &[Step::Short(5000)]);
    let mut into = aligned(0, 16384);
    handle.read(0, &mut into).unwrap();
    assert!(into[..] == content()[..16384]);
}

#[test]
fn a_read_behind_the_end_says_how_far_it_got() {
    let scratch = Scratch::new();
    let (handle, _) = open(&scratch, SECTOR);
    let error = handle.read(65000, &mut [0; 1000]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfBounds);
    assert!(error.to_string().contains("found the end of the file"), "{error}");
}

#[test]
fn a_read_that_fails_says_why() {
    let scratch = Scratch::new();
    let (handle, calls) = open(&scratch, Alignment::ANY);
    calls.next(Call::Read, &[Step::Fail(Errno::IO)]);
    let error = handle.read(10, &mut [0; 5]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("reading 5 bytes at offset 10"), "{error}");
}

#[test]
fn endless_interruptions_are_an_error() {
    let scratch = Scratch::new();
    let (handle, calls) = open(&scratch, Alignment::ANY);
    calls.next(Call::Read, &[Step::Fail(Errno::INTR); 1000]);
    calls.next(Call::Write, &[Step::Fail(Errno::INTR); 1000]);
    assert_eq!(handle.read(0, &mut [0; 5]).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(handle.write(0, &[&[0; 5]]).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(calls.made(Call::Write), INTERRUPTIONS_MAX + 1);
}

#[test]
fn short_and_interrupted_writes_go_on() {
    let scratch = Scratch::new();
    let (handle, calls) = open(&scratch, SECTOR);
    let steps = [Step::Short(4096), Step::Fail(Errno::INTR), Step::Short(5000), Step::Short(12288)];
    calls.next(Call::Write, &steps);
    let (first, second) = (aligned(1, 8192), aligned(2, 24576));
    handle.write(4096, &[&first, &second]).unwrap();
    let mut expected = content();
    expected[4096..12288].fill(1);
    expected[12288..36864].fill(2);
    assert!(std::fs::read(scratch.path("file")).unwrap() == expected);
    assert_eq!(calls.made(Call::Write), 5);
}

#[test]
fn unaligned_pieces_are_gathered() {
    let scratch = Scratch::new();
    let (handle, calls) = open(&scratch, SECTOR);
    handle.write(8192, &[&[3; 100], &[4; 3996], &[5; 4096]]).unwrap();
    let found = std::fs::read(scratch.path("file")).unwrap();
    assert!(found[8192..8292].iter().all(|&byte| byte == 3));
    assert!(found[8292..12288].iter().all(|&byte| byte == 4));
    assert!(found[12288..16384].iter().all(|&byte| byte == 5));
    assert_eq!(found[16384..], content()[16384..]);
    assert_eq!(calls.made(Call::Write), 1);
}

#[test]
fn more_pieces_than_one_call_takes_are_written() {
    let scratch = Scratch::new();
    let (handle, calls) = open(&scratch, Alignment::ANY);
    let pieces: Vec<[u8; 2]> = (0..3000_u16).map(u16::to_le_bytes).collect();
    let slices: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
    handle.write(0, &slices).unwrap();
    assert_eq!(std::fs::read(scratch.path("file")).unwrap()[..6000], pieces.concat());
    assert_eq!(calls.made(Call::Write), 3);
}

#[test]
fn a_write_without_progress_is_an_error() {
    let scratch = Scratch::new();
    for said in [0, 4095] {
        let (handle, calls) = open(&scratch, SECTOR);
        calls.next(Call::Write, &[Step::Short(4096), Step::Short(said)]);
        let error = handle.write(0, &[&aligned(1, 8192)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("no progress after 4096"), "{error}");
    }
}
