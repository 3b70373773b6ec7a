use proptest::prelude::*;

use super::*;
use crate::{memory::MemoryExport, request::Cookie};

fn terms() -> Terms {
    Terms {
        size: 1 << 20,
        read_only: false,
        minimum_block: 1,
        preferred_block: 4096,
        payload_bytes_max: 64 << 10,
        structured: true,
        status: true,
    }
}

fn request(command: u16, flags: u16, offset: u64, length: u32) -> Request {
    Request { flags, command, cookie: Cookie(1), offset, length }
}

#[test]
fn what_is_refused_and_how() {
    use command_flags as flag;
    use commands as command;
    let end = 1 << 20;
    let table = [
        (command::READ, 0, end, 1, Errno::Invalid),
        (command::READ, 0, u64::MAX, 1, Errno::Invalid),
        (command::READ, 0, u64::MAX - 100, u32::MAX, Errno::Invalid),
        (command::READ, 0, 0, 0, Errno::Invalid),
        (command::READ, 0, 0, (64 << 10) + 1, Errno::Overflow),
        (command::READ, flag::NO_HOLE, 0, 1, Errno::Invalid),
        (command::WRITE, 0, end - 1, 2, Errno::NoSpace),
        (command::WRITE, 0, u64::MAX, 2, Errno::NoSpace),
        (command::WRITE, flag::DF, 0, 2, Errno::Invalid),
        (command::WRITE, 1 << 5, 0, 2, Errno::Invalid),
        (command::WRITE, 0, 0, (64 << 10) + 1, Errno::Invalid),
        (command::WRITE_ZEROES, 0, end - 1, 2, Errno::NoSpace),
        (command::WRITE_ZEROES, flag::REQ_ONE, 0, 2, Errno::Invalid),
        (command::TRIM, 0, end - 1, 2, Errno::Invalid),
        (command::TRIM, flag::FAST_ZERO, 0, 2, Errno::Invalid),
        (command::CACHE, 0, end, 2, Errno::Invalid),
        (command::BLOCK_STATUS, 0, 0, 0, Errno::Invalid),
        (command::BLOCK_STATUS, 0, end, 1, Errno::Invalid),
        (command::FLUSH, 0, 1, 0, Errno::Invalid),
        (command::FLUSH, 0, 0, 1, Errno::Invalid),
        (8, 0, 0, 0, Errno::Invalid),
        (u16::MAX, u16::MAX, u64::MAX, u32::MAX, Errno::Invalid),
    ];
    for (command, flags, offset, length, errno) in table {
        let found = admit(&request(command, flags, offset, length), &terms());
        assert_eq!(found, Err(errno), "command {command} flags {flags} at {offset} bytes {length}");
    }
}

#[test]
fn the_whole_export_is_in_range() {
    let whole = u32::try_from(terms().size).expect("small");
    assert!(admit(&request(commands::TRIM, 0, 0, whole), &terms()).is_ok());
    assert!(admit(&request(commands::WRITE, command_flags::FUA, terms().size - 1, 1), &terms()).is_ok());
}

#[test]
fn without_structured_replies_there_is_no_df_and_no_status() {
    let simple = Terms { structured: false, status: false, ..terms() };
    assert_eq!(admit(&request(commands::READ, command_flags::DF, 0, 1), &simple), Err(Errno::Invalid));
    assert_eq!(admit(&request(commands::BLOCK_STATUS, 0, 0, 1), &simple), Err(Errno::Invalid));
    assert_eq!(simple.flags() & export_flags::SEND_DF, 0);
}

#[test]
fn read_only_refuses_every_change() {
    let terms = Terms { read_only: true, ..terms() };
    for command in [commands::WRITE, commands::TRIM, commands::WRITE_ZEROES] {
        assert_eq!(admit(&request(command, 0, 0, 1), &terms), Err(Errno::NotPermitted));
    }
    assert_eq!(admit(&request(commands::FLUSH, 0, 0, 0), &terms), Ok(Work::Flush));
    assert_ne!(terms.flags() & export_flags::READ_ONLY, 0);
    assert_eq!(terms.flags() & export_flags::SEND_TRIM, 0);
}

#[test]
fn what_an_export_says_wrongly_is_put_right() {
    struct Odd(MemoryExport);
    impl Export for Odd {
        fn size(&self) -> u64 {
            u64::MAX
        }
        fn read_only(&self) -> bool {
            false
        }
        fn preferred_block(&self) -> u32 {
            0
        }
        fn minimum_block(&self) -> u32 {
            1000
        }
        fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), crate::ExportError> {
            self.0.read(offset, into)
        }
        fn write(&self, offset: u64, data: &[u8], until: Durability) -> Result<(), crate::ExportError> {
            self.0.write(offset, data, until)
        }
        fn zero(&self, offset: u64, bytes: u64, punch: bool, until: Durability) -> Result<(), crate::ExportError> {
            self.0.zero(offset, bytes, punch, until)
        }
        fn trim(&self, offset: u64, bytes: u64, until: Durability) -> Result<(), crate::ExportError> {
            self.0.trim(offset, bytes, until)
        }
        fn flush(&self) -> Result<(), crate::ExportError> {
            Ok(())
        }
        fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<(u64, bool)>, crate::ExportError> {
            self.0.extents(offset, bytes)
        }
    }
    let terms = Terms::of(&Odd(MemoryExport::new(0)), 1 << 20, true, true);
    assert_eq!((terms.minimum_block, terms.preferred_block), (1024, 1024));
    assert!(terms.size < 1 << 63 && terms.size.is_multiple_of(1024));
}

proptest! {
    #[test]
    fn what_is_admitted_is_in_range(
        command in 0_u16..10, flags in 0_u16..64, offset: u64, near in 0_u64..(1 << 21), use_near: bool, length: u32,
    ) {
        let offset = if use_near { near } else { offset };
        let terms = Terms { minimum_block: 512, ..terms() };
        let request = request(command, flags, offset, length);
        let (at, bytes) = match admit(&request, &terms) {
            Ok(Work::Read { offset, bytes, .. }) => (offset, wide_of(bytes)),
            Ok(Work::Write { offset, .. }) => (offset, u64::from(length)),
            Ok(
                Work::Trim { offset, bytes, .. } | Work::Zero { offset, bytes, .. } | Work::Status { offset, bytes, .. },
            ) => (offset, bytes),
            _ => return Ok(()),
        };
        prop_assert!(bytes > 0 && at % 512 == 0 && bytes % 512 == 0);
        prop_assert!(at.checked_add(bytes).is_some_and(|end| end <= terms.size));
    }
}

fn wide_of(bytes: usize) -> u64 {
    crate::wire::wide(bytes)
}
