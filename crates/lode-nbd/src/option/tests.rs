use proptest::prelude::*;

use super::*;

fn info_data(name: &[u8], length: u32, infos: &[u16]) -> Vec<u8> {
    let mut data = length.to_be_bytes().to_vec();
    data.extend_from_slice(name);
    data.extend_from_slice(&u16::try_from(infos.len()).expect("few").to_be_bytes());
    infos.iter().for_each(|item| data.extend_from_slice(&item.to_be_bytes()));
    data
}

#[test]
fn info_with_its_items() {
    let data = info_data(b"disk", 4, &[1, 3]);
    let request = decode_info(&data, 4096).expect("well-formed");
    assert_eq!(request.name, "disk");
    assert!(request.wants(1) && request.wants(3) && !request.wants(0));
}

#[test]
fn info_whose_lengths_do_not_add_up() {
    // A name length of 0xffffffff made another server allocate 0 bytes and overflow them.
    for length in [3, 5, 6, 7, 1000, u32::MAX - 4, u32::MAX] {
        assert_eq!(decode_info(&info_data(b"disk", length, &[]), 4096), Err(OptionFault::Malformed), "{length}");
    }
    let mut trailing = info_data(b"disk", 4, &[1]);
    trailing.push(0);
    assert_eq!(decode_info(&trailing, 4096), Err(OptionFault::Malformed));
    assert_eq!(decode_info(&[], 4096), Err(OptionFault::Malformed));
}

#[test]
fn names_that_are_no_names() {
    assert_eq!(decode_name(b"a\0b", 4096), Err(OptionFault::Malformed));
    assert_eq!(decode_name(b"\xff\xfe", 4096), Err(OptionFault::Malformed));
    assert_eq!(decode_name(&[b'a'; 4097], 4096), Err(OptionFault::TooLong));
    assert_eq!(decode_name(&[b'a'; 4096], 4096).map(str::len), Ok(4096));
}

#[test]
fn contexts_claim_more_queries_than_there_are() {
    let mut data = 0_u32.to_be_bytes().to_vec();
    data.extend_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(decode_contexts(&data, 4096), Err(OptionFault::Malformed));
    data.truncate(4);
    data.extend_from_slice(&1_u32.to_be_bytes());
    data.extend_from_slice(&15_u32.to_be_bytes());
    data.extend_from_slice(b"base:allocation");
    let request = decode_contexts(&data, 4096).expect("well-formed");
    assert_eq!((request.name, request.queries.as_slice()), ("", &["base:allocation"][..]));
}

#[test]
fn client_flags() {
    assert_eq!(decode_client_flags([0, 0, 0, 3]), Ok(true));
    assert_eq!(decode_client_flags([0, 0, 0, 0]), Ok(false));
    assert_eq!(decode_client_flags([0, 0, 0, 4]), Err(ProtocolError::ClientFlags(4)));
    assert_eq!(decode_client_flags([0x80, 0, 0, 1]), Err(ProtocolError::ClientFlags(0x8000_0001)));
}

proptest! {
    #[test]
    fn no_bytes_panic(data in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = decode_option(&data);
        let _ = decode_name(&data, 16);
        let _ = decode_info(&data, 16);
        let _ = decode_contexts(&data, 16);
    }

    #[test]
    fn small_lengths_panic_neither(data in proptest::collection::vec(0_u8..4, 0..64)) {
        let _ = decode_info(&data, 16);
        if let Ok(request) = decode_contexts(&data, 16) {
            prop_assert!(request.queries.len() * 4 <= data.len());
        }
    }
}
