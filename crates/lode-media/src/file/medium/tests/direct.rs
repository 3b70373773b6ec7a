//! Files that direct I/O cannot be had on.

use super::*;

/// All that a medium does, with pieces and reads of every alignment.
fn use_it(medium: &FileMedium) {
    medium.erase(ZoneId(1)).unwrap();
    medium.append(at(1, 0), &[&filled(1, 4096), &[2; 4095], &[3]]).unwrap();
    medium.sync().unwrap();
    assert_eq!(read(medium, at(1, 4095), 2), [1, 2]);
    assert_eq!(read(medium, at(1, 8191), 2), [3, 0]);
    let (mut first, mut second) = (filled(0, 4096), [0; 3]);
    let mut requests = [
        ReadRequest { at: at(1, 0), into: &mut first, result: Ok(()) },
        ReadRequest { at: at(1, 8190), into: &mut second, result: Ok(()) },
    ];
    medium.read_many(&mut requests);
    assert!(requests.iter().all(|request| request.result.is_ok()));
    assert_eq!((first[4095], second), (1, [2, 3, 0]));
}

#[test]
fn a_file_system_that_refuses_the_flag_gets_buffered_io() {
    let scratch = Scratch::new();
    let (medium, calls) = scripted(&scratch, Io::Auto);
    drop(medium);
    calls.next(Call::Flags, &[Step::Fail(Errno::INVAL)]);
    let medium = reopen(&scratch, Io::Auto, &calls);
    assert!(!medium.direct());
    assert_eq!(medium.geometry().append_align, 4096);
    use_it(&medium);
}

#[test]
fn a_file_system_that_refuses_the_first_read_gets_buffered_io() {
    let scratch = Scratch::new();
    let (medium, calls) = scripted(&scratch, Io::Auto);
    drop(medium);
    calls.next(Call::Read, &[Step::Fail(Errno::INVAL)]);
    let medium = reopen(&scratch, Io::Auto, &calls);
    assert!(!medium.direct());
    use_it(&medium);
}

#[test]
fn what_is_direct_does_the_same() {
    for scratch in Scratch::everywhere() {
        use_it(&scripted(&scratch, Io::Auto).0);
    }
}
