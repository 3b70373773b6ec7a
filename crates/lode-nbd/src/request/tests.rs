use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn a_request_survives_the_wire(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) {
        let request = Request { flags, command, cookie: Cookie(cookie), offset, length };
        let bytes = encode_request(&request);
        prop_assert_eq!(decode_request(&bytes), Ok(Some(request)));
        for cut in 0..bytes.len() {
            prop_assert_eq!(decode_request(&bytes[..cut]), Ok(None));
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = decode_request(&bytes);
    }
}

#[test]
fn a_wrong_magic_is_an_error() {
    assert_eq!(decode_request(&[7; REQUEST_BYTES]), Err(ProtocolError::RequestMagic(0x0707_0707)));
}
