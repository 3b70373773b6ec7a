#![allow(clippy::unwrap_used)]

use rustix::io::Errno;

use super::*;
use crate::AlignedBuffer;
use crate::file::CreateOptions;
use crate::file::scripted::{Call, Scripted, Step};
use crate::scratch::Scratch;

mod direct;
mod ring;

const ZONE: u32 = 64 << 10;
const ZONES: u32 = 8;

fn at(zone: u32, offset: u32) -> Position {
    Position { zone: ZoneId(zone), offset }
}

/// Makes an image and opens it over a scripted kernel.
fn scripted(scratch: &Scratch, io: Io) -> (FileMedium, Scripted) {
    let path = scratch.path("image");
    let bytes = u64::from(ZONE) * u64::from(ZONES);
    drop(RawImage::create(&path, &CreateOptions { bytes, force: false }).unwrap());
    let calls = Scripted::default();
    (reopen(scratch, io, &calls), calls)
}

fn reopen(scratch: &Scratch, io: Io, calls: &Scripted) -> FileMedium {
    let image = RawImage::open_with(&scratch.path("image"), Access::ReadWrite, io, calls.boxed()).unwrap();
    image.into_medium(ZONE).unwrap()
}

fn open(scratch: &Scratch, access: Access) -> FileMedium {
    RawImage::open(scratch.path("image"), access, Io::Auto).unwrap().into_medium(ZONE).unwrap()
}

fn filled(fill: u8, len: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::new(len);
    buffer.fill(fill);
    buffer
}

fn read(medium: &FileMedium, from: Position, len: usize) -> Vec<u8> {
    let mut into = vec![0; len];
    medium.read(from, &mut into).unwrap();
    into
}

#[test]
fn what_is_appended_is_read_also_after_reopening() {
    for scratch in Scratch::everywhere() {
        let (medium, _) = scripted(&scratch, Io::Auto);
        medium.erase(ZoneId(3)).unwrap();
        medium.append(at(3, 0), &[&filled(1, 4096), &filled(2, 8192)]).unwrap();
        medium.append(at(3, 12288), &[&[3; 1000], &[4; 3096]]).unwrap();
        medium.sync().unwrap();
        drop(medium);
        let medium = open(&scratch, Access::ReadOnly);
        assert_eq!(medium.geometry().zones, ZONES);
        assert_eq!(read(&medium, at(3, 4095), 2), [1, 2]);
        assert_eq!(read(&medium, at(3, 13287), 2), [3, 4]);
        assert_eq!(read(&medium, at(2, ZONE - 1), 1), [0]);
    }
}

#[test]
fn requests_outside_of_the_medium_are_refused_and_do_not_latch() {
    let scratch = Scratch::new();
    let (medium, _) = scripted(&scratch, Io::Auto);
    let kind = |result: Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(medium.read(at(ZONES, 0), &mut [0])), ErrorKind::OutOfBounds);
    assert_eq!(kind(medium.read(at(0, ZONE), &mut [0])), ErrorKind::OutOfBounds);
    assert_eq!(kind(medium.read(at(0, u32::MAX), &mut [0])), ErrorKind::OutOfBounds);
    assert_eq!(kind(medium.append(at(0, 0), &[&[0; 100]])), ErrorKind::OutOfBounds);
    assert_eq!(kind(medium.append(at(0, 512), &[&[0; 4096]])), ErrorKind::OutOfBounds);
    assert_eq!(kind(medium.append(at(0, ZONE - 4096), &[&[0; 8192]])), ErrorKind::OutOfBounds);
    assert_eq!(kind(medium.erase(ZoneId(ZONES))), ErrorKind::OutOfBounds);
    assert_eq!(kind(medium.discard(ZoneId(ZONES))), ErrorKind::OutOfBounds);
    medium.append(at(0, 0), &[&filled(1, 4096)]).unwrap();
}

#[test]
fn zones_have_a_length_that_fits() {
    let scratch = Scratch::new();
    drop(scripted(&scratch, Io::Auto));
    for wrong in [0, 4095, 100, ZONE * ZONES + 4096] {
        let image = RawImage::open(scratch.path("image"), Access::ReadOnly, Io::Auto).unwrap();
        let error = image.into_medium(wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfBounds, "{error}");
    }
}

#[test]
fn erase_writes_a_zone_out_once() {
    for scratch in Scratch::everywhere() {
        let (medium, calls) = scripted(&scratch, Io::Auto);
        medium.erase(ZoneId(2)).unwrap();
        assert_eq!(medium.zeroed_bytes(), u64::from(ZONE));
        medium.erase(ZoneId(2)).unwrap();
        assert_eq!(medium.zeroed_bytes(), u64::from(ZONE));
        assert_eq!(calls.made(Call::Seek), 2, "the second erase knows it without asking");
        medium.sync().unwrap();
        drop(medium);
        let medium = open(&scratch, Access::ReadWrite);
        medium.erase(ZoneId(2)).unwrap();
        assert_eq!(medium.zeroed_bytes(), 0, "the file itself knows that the zone is written");
        medium.erase(ZoneId(1)).unwrap();
        assert_eq!(medium.zeroed_bytes(), u64::from(ZONE));
    }
}

#[test]
fn erase_writes_only_the_holes() {
    for scratch in Scratch::everywhere() {
        let (medium, _) = scripted(&scratch, Io::Auto);
        medium.append(at(0, 16384), &[&filled(7, 8192)]).unwrap();
        medium.append(at(0, 40960), &[&filled(7, 4096)]).unwrap();
        medium.sync().unwrap();
        medium.erase(ZoneId(0)).unwrap();
        assert_eq!(medium.zeroed_bytes(), u64::from(ZONE) - 12288);
        assert_eq!(read(&medium, at(0, 16384), 1), [7]);
        assert_eq!(read(&medium, at(1, 0), 1), [0], "the neighbour is left alone");
    }
}

#[test]
fn an_odd_answer_about_holes_does_not_stop_the_erase() {
    let scratch = Scratch::new();
    let (medium, calls) = scripted(&scratch, Io::Auto);
    // A hole that is said to be data at once: a sector of it is written, and the rest is looked at again.
    calls.next(Call::Seek, &[Step::Real, Step::Short(0)]);
    medium.erase(ZoneId(0)).unwrap();
    assert_eq!(medium.zeroed_bytes(), u64::from(ZONE));
}

#[test]
fn a_file_system_that_cannot_tell_holes_gets_the_whole_zone_written() {
    let scratch = Scratch::new();
    let (medium, calls) = scripted(&scratch, Io::Auto);
    calls.next(Call::Seek, &[Step::Fail(Errno::INVAL)]);
    medium.erase(ZoneId(0)).unwrap();
    assert_eq!(medium.zeroed_bytes(), u64::from(ZONE));
}

#[test]
fn an_erase_that_fails_for_want_of_space_can_be_done_again() {
    let scratch = Scratch::new();
    let (medium, calls) = scripted(&scratch, Io::Auto);
    calls.next(Call::Allocate, &[Step::Fail(Errno::NOSPC), Step::Real]);
    assert_eq!(medium.erase(ZoneId(0)).unwrap_err().kind(), ErrorKind::NoSpace);
    calls.next(Call::Write, &[Step::Fail(Errno::NOSPC)]);
    assert_eq!(medium.erase(ZoneId(0)).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(medium.zeroed_bytes(), 0);
    medium.erase(ZoneId(0)).unwrap();
    medium.append(at(0, 0), &[&filled(1, 4096)]).unwrap();
}

#[test]
fn a_discard_gives_space_back_and_the_next_erase_makes_it_real() {
    let scratch = Scratch::new();
    let (medium, _) = scripted(&scratch, Io::Auto);
    let blocks = || std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(scratch.path("image")).unwrap());
    medium.erase(ZoneId(0)).unwrap();
    let full = blocks();
    medium.discard(ZoneId(0)).unwrap();
    assert!(blocks() < full);
    medium.erase(ZoneId(0)).unwrap();
    assert_eq!(medium.zeroed_bytes(), 2 * u64::from(ZONE));
    assert_eq!(blocks(), full);
}

#[test]
fn a_failed_append_latches_and_reads_go_on() {
    for (errno, kind) in [(Errno::IO, ErrorKind::Io), (Errno::NOSPC, ErrorKind::NoSpace)] {
        let scratch = Scratch::new();
        let (medium, calls) = scripted(&scratch, Io::Auto);
        medium.append(at(0, 0), &[&filled(1, 4096)]).unwrap();
        calls.next(Call::Write, &[Step::Fail(errno)]);
        let first = medium.append(at(0, 4096), &[&filled(2, 4096)]).unwrap_err();
        assert_eq!(first.kind(), kind);
        let later =
            [medium.append(at(1, 0), &[&filled(3, 4096)]), medium.erase(ZoneId(1)), medium.sync(), medium.sync()];
        for result in later {
            let error = result.unwrap_err();
            assert_eq!((error.kind(), error.to_string()), (kind, first.to_string()));
        }
        assert_eq!(calls.made(Call::Sync), 0, "the kernel is not asked again");
        assert_eq!(read(&medium, at(0, 0), 1), [1]);
    }
}

#[test]
fn a_failed_sync_latches() {
    let scratch = Scratch::new();
    let (medium, calls) = scripted(&scratch, Io::Auto);
    medium.append(at(0, 0), &[&filled(1, 4096)]).unwrap();
    calls.next(Call::Sync, &[Step::Fail(Errno::IO)]);
    let first = medium.sync().unwrap_err().to_string();
    assert!(first.contains("syncing"), "{first}");
    assert_eq!(medium.sync().unwrap_err().to_string(), first);
    assert_eq!(calls.made(Call::Sync), 1);
    assert_eq!(medium.append(at(0, 4096), &[&filled(1, 4096)]).unwrap_err().to_string(), first);
    drop(medium);
    let again = open(&scratch, Access::ReadWrite);
    again.append(at(0, 4096), &[&filled(1, 4096)]).unwrap();
    again.sync().unwrap();
}

#[test]
fn syncs_side_by_side_all_succeed_or_all_fail_after_the_first_failure() {
    let scratch = Scratch::new();
    let (medium, calls) = scripted(&scratch, Io::Auto);
    calls.next(Call::Sync, &[Step::Real, Step::Real, Step::Fail(Errno::IO)]);
    let results: Vec<bool> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..8).map(|_| scope.spawn(|| (0..4).map(|_| medium.sync().is_ok()).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert!(results.contains(&false));
    assert_eq!(calls.made(Call::Sync), 3);
    assert!(medium.sync().is_err());
}

#[test]
fn a_second_opener_is_refused_and_readers_share() {
    let scratch = Scratch::new();
    let (medium, _) = scripted(&scratch, Io::Auto);
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let error = RawImage::open(scratch.path("image"), access, Io::Auto).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.to_string().contains("held by"), "{error}");
    }
    drop(medium);
    let (_first, _second) = (open(&scratch, Access::ReadOnly), open(&scratch, Access::ReadOnly));
}

#[test]
fn a_reader_changes_nothing() {
    let scratch = Scratch::new();
    drop(scripted(&scratch, Io::Auto));
    let medium = open(&scratch, Access::ReadOnly);
    assert_eq!(medium.append(at(0, 0), &[&filled(1, 4096)]).unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(medium.erase(ZoneId(0)).unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(medium.discard(ZoneId(0)).unwrap_err().kind(), ErrorKind::Denied);
    medium.sync().unwrap();
}

#[test]
fn an_image_that_is_cut_short_gives_errors() {
    let scratch = Scratch::new();
    let (medium, _) = scripted(&scratch, Io::Auto);
    std::fs::File::options().write(true).open(scratch.path("image")).unwrap().set_len(100_000).unwrap();
    assert_eq!(medium.read(at(7, 0), &mut [0; 10]).unwrap_err().kind(), ErrorKind::OutOfBounds);
    assert_eq!(medium.read(at(1, 34_000), &mut [0; 10_000]).unwrap_err().kind(), ErrorKind::OutOfBounds);
    drop(medium);
    let image = RawImage::open(scratch.path("image"), Access::ReadOnly, Io::Auto).unwrap();
    assert_eq!(image.len(), 100_000);
    let error = image.read_at(99_999, &mut [0; 2]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfBounds);
    image.read_at(99_990, &mut [0; 10]).unwrap();
    assert!(image.read_at(u64::MAX, &mut [0; 2]).is_err());
    assert_eq!(image.into_medium(ZONE).unwrap().geometry().zones, 1);
}

#[test]
fn what_cannot_be_opened_says_why() {
    let scratch = Scratch::new();
    let open = |path: &std::path::Path| RawImage::open(path, Access::ReadOnly, Io::Auto).unwrap_err();
    assert_eq!(open(&scratch.path("none")).kind(), ErrorKind::NotFound);
    assert_eq!(open(&scratch.path("")).kind(), ErrorKind::Unsupported);
    assert_eq!(open(std::path::Path::new("/dev/null")).kind(), ErrorKind::Unsupported);
    std::fs::write(scratch.path("empty"), "").unwrap();
    let empty = RawImage::open(scratch.path("empty"), Access::ReadOnly, Io::Auto).unwrap();
    assert!(empty.read_at(0, &mut [0]).is_err());
    assert_eq!(empty.into_medium(ZONE).unwrap_err().kind(), ErrorKind::OutOfBounds);
}

#[test]
fn a_file_grows_while_it_is_in_use_with_its_space_reserved() {
    let scratch = Scratch::new();
    let (medium, calls) = scripted(&scratch, Io::Auto);
    let found = || std::fs::metadata(scratch.path("image")).unwrap();
    medium.append(at(7, 0), &[&filled(7, 4096)]).unwrap();
    assert_eq!(medium.erase(ZoneId(8)).unwrap_err().kind(), ErrorKind::OutOfBounds);
    medium.grow(Some(100)).unwrap();
    let bytes = 100 * u64::from(ZONE);
    assert_eq!((medium.geometry().zones, found().len(), medium.image().len()), (100, bytes, bytes));
    assert!(std::os::unix::fs::MetadataExt::blocks(&found()) * 512 >= bytes);
    medium.erase(ZoneId(99)).unwrap();
    medium.append(at(99, 0), &[&filled(9, 4096)]).unwrap();
    medium.sync().unwrap();
    assert_eq!((read(&medium, at(7, 0), 1), read(&medium, at(99, 0), 1)), (vec![7], vec![9]));
    // Never shorter; and without a number, what is there.
    medium.grow(Some(3)).unwrap();
    medium.grow(None).unwrap();
    assert_eq!((medium.geometry().zones, found().len()), (100, bytes));
    std::fs::File::options().write(true).open(scratch.path("image")).unwrap().set_len(bytes + 2 * 65536 + 1).unwrap();
    medium.grow(None).unwrap();
    assert_eq!(medium.geometry().zones, 102);
    // Want of space changes nothing.
    calls.next(Call::Allocate, &[Step::Fail(Errno::NOSPC)]);
    let before = found().len();
    assert_eq!(medium.grow(Some(200)).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!((medium.geometry().zones, found().len()), (102, before));
    medium.append(at(101, 0), &[&filled(1, 4096)]).unwrap();
    drop(medium);
    assert_eq!(open(&scratch, Access::ReadOnly).grow(Some(200)).unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(open(&scratch, Access::ReadOnly).geometry().zones, 102);
}
