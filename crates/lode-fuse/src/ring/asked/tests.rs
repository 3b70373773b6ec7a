#![allow(clippy::unwrap_used)]

use super::*;

/// Numbers at their places.
fn fields(of: &[(usize, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    for (at, number) in of {
        bytes[*at..at + 8].copy_from_slice(&number.to_ne_bytes());
    }
    bytes
}

fn asked<'a>(operation: u32, arguments: &[u8], payload: &'a [u8]) -> Answer<Asked<'a>> {
    decode(operation, arguments, payload, Time(7))
}

#[test]
fn a_header_says_who_asks_what_of_which_node() {
    let bytes = fields(&[(4, 16), (16, 99), (24, 1000 | 1001 << 32), (32, 77)]);
    let found = header(&bytes[..40]).unwrap();
    let Asker { uid, gid, pid } = found.asker;
    assert_eq!((found.operation, found.node, uid, gid, pid), (16, Node(99), 1000, 1001, 77));
    assert!(header(&bytes[..35]).is_err());
}

#[test]
fn operations_are_taken_from_their_places() {
    let Asked::Write { offset: 8192, bytes: b"abc", drops: true } =
        asked(op::WRITE, &fields(&[(8, 8192), (16, 3 | 4 << 32)]), b"abcd").unwrap()
    else {
        panic!("a write")
    };
    let Asked::Rename { name: b"a", to: Node(9), new_name: b"bb", flags: 2 } =
        asked(op::RENAME2, &fields(&[(0, 9), (8, 2)]), b"a\0bb\0").unwrap()
    else {
        panic!("a renaming")
    };
    // The flags of another operation may stand there.
    let Asked::Rename { flags: 0, .. } = asked(op::RENAME, &fields(&[(0, 9), (8, 2)]), b"a\0bb\0").unwrap() else {
        panic!("a renaming")
    };
    let Asked::SetExtended { name: b"user.x", value: b"v\0", flags: 1 } =
        asked(op::SETXATTR, &fields(&[(0, 2 | 1 << 32)]), b"user.x\0v\0").unwrap()
    else {
        panic!("an attribute")
    };
    let Asked::MakeNode { name: b"n", modes: (0o100_644, 0o22), device: 5 } =
        asked(op::MKNOD, &fields(&[(0, 0o100_644 | 5 << 32), (8, 0o22)]), b"n\0").unwrap()
    else {
        panic!("a node")
    };
    let Asked::Copy { offset: 1, to: Node(2), to_offset: 3, length: 4, wide: true } =
        asked(op::COPY_FILE_RANGE_64, &fields(&[(8, 1), (16, 2), (32, 3), (40, 4)]), b"").unwrap()
    else {
        panic!("a copy")
    };
}

#[test]
fn only_what_is_marked_as_valid_is_set() {
    let valid = |valid: u32| {
        let all = [
            (0, u64::from(valid)),
            (16, 5),
            (32, 10),
            (40, 11),
            (48, 12),
            (56, 1 | 2 << 32),
            (64, 3),
            (68, 0o104_755),
            (76, 1 | 2 << 32),
        ];
        match asked(op::SETATTR, &fields(&all), b"").unwrap() {
            Asked::SetAttributes { changes, drops, changed } => {
                assert_eq!(changed, (valid & attribute::CTIME != 0).then_some(Time::new(12, 3)));
                (changes, drops)
            }
            other => panic!("{other:?}"),
        }
    };
    let (nothing, drops) = valid(0);
    assert!(!drops && [nothing.permissions, nothing.uid, nothing.gid] == [None; 3] && nothing.size.is_none());
    assert_eq!((nothing.accessed, nothing.modified), (None, None));
    let (all, drops) = valid(0x3f | attribute::KILL_SUIDGID);
    assert_eq!((all.permissions, all.uid, all.gid, all.size, drops), (Some(0o4755), Some(1), Some(2), Some(5), true));
    assert_eq!((all.accessed, all.modified), (Some(Time::new(10, 1)), Some(Time::new(11, 2))));
    let (times, _) = valid(attribute::MTIME | attribute::CTIME);
    assert_eq!((times.accessed, times.modified), (None, Some(Time::new(11, 2))));
    let (now, _) = valid(attribute::MTIME | attribute::MTIME_NOW);
    assert_eq!((now.accessed, now.modified), (None, Some(Time(7))));
}

#[test]
fn names_that_do_not_end_and_lengths_that_are_too_long_are_refused() {
    for operation in [op::LOOKUP, op::MKNOD, op::MKDIR, op::UNLINK, op::RMDIR, op::LINK, op::GETXATTR, op::REMOVEXATTR]
    {
        assert_eq!(asked(operation, &[0; 128], b"abc").unwrap_err(), Errno::INVAL, "{operation}");
        assert_eq!(asked(operation, &[0; 128], b"").unwrap_err(), Errno::INVAL, "{operation}");
    }
    for operation in [op::SYMLINK, op::RENAME, op::RENAME2] {
        assert_eq!(asked(operation, &[0; 128], b"one\0two").unwrap_err(), Errno::INVAL, "{operation}");
    }
    assert_eq!(asked(op::WRITE, &fields(&[(16, 5)]), b"four").unwrap_err(), Errno::INVAL);
    assert_eq!(asked(op::SETXATTR, &fields(&[(0, 2)]), b"n\0v").unwrap_err(), Errno::INVAL);
    assert_eq!(asked(op::SETXATTR, &fields(&[(0, u64::from(u32::MAX))]), b"n\0v").unwrap_err(), Errno::INVAL);
    for operation in [0, 2, 14, 25, 26, 27, 35, 36, 42, 99, u32::MAX] {
        assert_eq!(asked(operation, &[0; 128], b"n\0").unwrap_err(), Errno::NOSYS, "{operation}");
    }
}

#[test]
fn whatever_the_bytes_and_however_few_it_is_an_answer_or_an_error() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut good = 0;
    for _ in 0..200_000 {
        let operation = u32::try_from(random() % 60).unwrap();
        let length = |random: u64, max: u64| usize::try_from(random % (max + 1)).unwrap();
        let mut bytes = vec![0; 256];
        for piece in bytes.chunks_mut(8) {
            // Often small numbers, so that lengths fit at times.
            let number = random() >> (random() % 64);
            piece.copy_from_slice(&number.to_ne_bytes()[..piece.len()]);
        }
        let (arguments, payload) = bytes.split_at(length(random(), 128));
        let payload = &payload[..length(random(), 128)];
        good += usize::from(asked(operation, arguments, payload).is_ok());
        let _ = header(&bytes[..length(random(), 40)]);
    }
    assert!(good > 20_000, "{good}");
}
