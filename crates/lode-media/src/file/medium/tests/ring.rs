//! Groups of reads, through a ring where the kernel makes one, and without.

use super::*;

/// A medium of which every word says where it is.
fn numbered(scratch: &Scratch, io: Io) -> (FileMedium, Scripted) {
    let (medium, calls) = scripted(scratch, io);
    for zone in 0..ZONES {
        let mut content = AlignedBuffer::new(usize::try_from(ZONE).unwrap());
        for (number, word) in (0..).zip(content.chunks_exact_mut(4)) {
            word.copy_from_slice(&(zone * ZONE + number * 4).to_le_bytes());
        }
        medium.append(at(zone, 0), &[&content]).unwrap();
    }
    (medium, calls)
}

fn expected(from: Position, len: usize) -> Vec<u8> {
    let start = from.zone.0 * ZONE + from.offset;
    let skip = usize::try_from(start % 4).unwrap();
    let words = (start / 4..).flat_map(|word| (word * 4).to_le_bytes());
    words.skip(skip).take(len).collect()
}

/// Reads a group in which aligned, unaligned, empty and impossible requests are mixed; more than a ring takes.
fn read_mixed(medium: &FileMedium) -> Vec<Result<()>> {
    let places: Vec<(Position, usize)> = (0..200_u32)
        .map(|number| match number % 4 {
            0 => (at(number % ZONES, (number % 16) * 4096), 4096),
            1 => (at(number % ZONES, number * 100 + 1), 777),
            2 => (at(number % ZONES, 0), usize::try_from(ZONE).unwrap()),
            _ => (at(number % ZONES, number), 0),
        })
        .collect();
    let mut buffers: Vec<AlignedBuffer> = places.iter().map(|(_, len)| AlignedBuffer::new(*len)).collect();
    let mut requests: Vec<ReadRequest<'_>> = places
        .iter()
        .zip(&mut buffers)
        .map(|((at, _), buffer)| ReadRequest { at: *at, into: buffer, result: Ok(()) })
        .collect();
    medium.read_many(&mut requests);
    let results: Vec<Result<()>> = requests.into_iter().map(|request| request.result).collect();
    for ((place, buffer), result) in places.iter().zip(&buffers).zip(&results) {
        if result.is_ok() {
            assert!(buffer[..] == expected(place.0, place.1), "{place:?}");
        }
    }
    results
}

fn all_ok(results: &[Result<()>]) -> bool {
    results.iter().all(Result::is_ok)
}

/// Whether this kernel makes rings at all.
fn rings_exist() -> bool {
    io_uring::IoUring::new(2).is_ok()
}

#[test]
fn a_group_is_read_with_and_without_a_ring() {
    for scratch in Scratch::everywhere() {
        let (medium, calls) = numbered(&scratch, Io::Auto);
        assert!(all_ok(&read_mixed(&medium)));
        assert_eq!(medium.ring_batches(), u64::from(rings_exist()));
        assert!(all_ok(&read_mixed(&medium)));
        assert_eq!(calls.made(Call::Ring), 1, "the ring is used again, or not asked for again");
    }
    let scratch = Scratch::new();
    let (medium, calls) = numbered(&scratch, Io::Plain);
    assert!(all_ok(&read_mixed(&medium)));
    assert_eq!((medium.ring_batches(), calls.made(Call::Ring)), (0, 0));
}

#[test]
fn a_single_read_needs_no_ring() {
    let scratch = Scratch::new();
    let (medium, calls) = numbered(&scratch, Io::Auto);
    let mut into = [0; 8];
    medium.read_many(&mut [ReadRequest { at: at(1, 4), into: &mut into, result: Ok(()) }]);
    assert_eq!(into[..], expected(at(1, 4), 8));
    assert_eq!(calls.made(Call::Ring), 0);
}

#[test]
fn a_kernel_without_rings_is_asked_once() {
    let scratch = Scratch::new();
    let (medium, calls) = numbered(&scratch, Io::Auto);
    calls.next(Call::Ring, &[Step::Fail(Errno::PERM)]);
    assert!(all_ok(&read_mixed(&medium)));
    assert!(all_ok(&read_mixed(&medium)));
    assert_eq!((medium.ring_batches(), calls.made(Call::Ring)), (0, 1));
}

#[test]
fn a_kernel_short_of_memory_is_asked_again() {
    let scratch = Scratch::new();
    let (medium, calls) = numbered(&scratch, Io::Auto);
    calls.next(Call::Ring, &[Step::Fail(Errno::NOMEM)]);
    assert!(all_ok(&read_mixed(&medium)));
    assert!(all_ok(&read_mixed(&medium)));
    assert_eq!(calls.made(Call::Ring), 2);
}

#[test]
fn short_and_refused_completions_are_finished_by_plain_reads() {
    let scratch = Scratch::new();
    let (medium, calls) = numbered(&scratch, Io::Auto);
    let before = calls.made(Call::Read);
    let refusals = [Errno::INTR, Errno::AGAIN, Errno::INVAL].map(Step::Fail);
    calls.next(Call::Completion, &refusals);
    calls.next(Call::Completion, &[Step::Short(0), Step::Short(100), Step::Short(512), Step::Real]);
    assert!(all_ok(&read_mixed(&medium)));
    if rings_exist() {
        assert!(calls.made(Call::Read) > before);
    }
}

#[test]
fn a_failed_completion_fails_only_its_request() {
    let scratch = Scratch::new();
    let (medium, calls) = numbered(&scratch, Io::Auto);
    calls.next(Call::Completion, &[Step::Real, Step::Fail(Errno::IO)]);
    let failed = read_mixed(&medium).into_iter().filter_map(Result::err).collect::<Vec<_>>();
    assert_eq!(failed.len(), usize::from(rings_exist()));
    assert!(failed.iter().all(|error| error.kind() == ErrorKind::Io));
    assert!(all_ok(&read_mixed(&medium)), "the ring is sound");
}

#[test]
fn requests_outside_of_the_medium_do_not_disturb_the_others() {
    let scratch = Scratch::new();
    let (medium, _) = numbered(&scratch, Io::Auto);
    let (mut first, mut second, mut third) = ([0; 8], [0; 8], [0; 8]);
    let mut requests = [
        ReadRequest { at: at(1, 4), into: &mut first, result: Ok(()) },
        ReadRequest { at: at(ZONES, 0), into: &mut second, result: Ok(()) },
        ReadRequest { at: at(0, 16), into: &mut third, result: Ok(()) },
    ];
    medium.read_many(&mut requests);
    let kinds = requests.map(|request| request.result.err().map(|error| error.kind()));
    assert_eq!(kinds, [None, Some(ErrorKind::OutOfBounds), None]);
    assert_eq!(first[..], expected(at(1, 4), 8));
    assert_eq!(third[..], expected(at(0, 16), 8));
}

#[test]
fn threads_read_groups_side_by_side() {
    let scratch = Scratch::new();
    let (medium, _) = numbered(&scratch, Io::Auto);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| (0..5).for_each(|_| assert!(all_ok(&read_mixed(&medium)))));
        }
    });
}

#[test]
fn a_file_cut_short_fails_the_reads_behind_its_end() {
    let scratch = Scratch::new();
    let (medium, _) = numbered(&scratch, Io::Auto);
    std::fs::File::options().write(true).open(scratch.path("image")).unwrap().set_len(u64::from(ZONE)).unwrap();
    let (mut first, mut second) = ([0; 8], [0; 8]);
    let mut requests = [
        ReadRequest { at: at(0, 4), into: &mut first, result: Ok(()) },
        ReadRequest { at: at(5, 0), into: &mut second, result: Ok(()) },
    ];
    medium.read_many(&mut requests);
    let kinds = requests.map(|request| request.result.err().map(|error| error.kind()));
    assert_eq!(kinds, [None, Some(ErrorKind::OutOfBounds)]);
}

#[test]
fn a_ring_that_fails_with_reads_in_flight_is_drained_and_given_up() {
    let scratch = Scratch::new();
    let (medium, calls) = numbered(&scratch, Io::Auto);
    for _ in 0..20 {
        calls.next(Call::Submit, &[Step::Fail(Errno::BADF)]);
        assert!(all_ok(&read_mixed(&medium)));
    }
    assert_eq!(medium.ring_batches(), 0);
    assert!(all_ok(&read_mixed(&medium)));
    assert_eq!(medium.ring_batches(), u64::from(rings_exist()));
    assert_eq!(calls.made(Call::Ring), if rings_exist() { 21 } else { 1 });
}

#[test]
fn a_ring_that_is_busy_is_asked_again() {
    let scratch = Scratch::new();
    let (medium, calls) = numbered(&scratch, Io::Auto);
    calls.next(Call::Submit, &[Errno::BUSY, Errno::INTR, Errno::AGAIN].map(Step::Fail));
    assert!(all_ok(&read_mixed(&medium)));
    assert_eq!(medium.ring_batches(), u64::from(rings_exist()));
}
