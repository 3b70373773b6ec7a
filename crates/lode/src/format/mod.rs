//! Records as bytes, and nothing else: no I/O, no state.
//!
//! A format is written once, as [`record!`] structs with the byte offset beside each field. Sizes and
//! offsets are proven at compile time, integers are little-endian, there is no padding that is not named.
//! `docs/FORMAT.md` is printed from these declarations by [`describe`].

mod describe;
mod kinds;
pub(crate) mod header;
pub(crate) mod object;
pub(crate) mod records;
pub(crate) mod root;
pub(crate) mod stream;
pub(crate) mod unit;

pub use describe::describe;

/// The version of the format that this code writes.
pub(crate) const VERSION: u16 = 1;

/// An integer that has one form on the medium.
pub(crate) trait Field: Copy {
    const SIZE: usize;
    const NAME: &'static str;
    fn put(self, into: &mut [u8]);
    fn get(from: &[u8]) -> Self;
}

macro_rules! field {
    ($($int:ty),*) => {$(
        impl Field for $int {
            const SIZE: usize = size_of::<$int>();
            const NAME: &'static str = stringify!($int);
            fn put(self, into: &mut [u8]) {
                into.copy_from_slice(&self.to_le_bytes());
            }
            fn get(from: &[u8]) -> Self {
                <$int>::from_le_bytes(from.try_into().expect("sliced to the field's size"))
            }
        }
    )*};
}
field!(u8, u16, u32, u64, u128);

/// Declares a fixed-size struct of the format, with the byte offset beside each field.
macro_rules! record {
    ($(#[doc = $doc:literal])* $name:ident: $size:literal {
        $($(#[doc = $fdoc:literal])* $offset:literal $field:ident: $ty:ty,)*
    }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct $name { $($(#[doc = $fdoc])* pub $field: $ty,)* }

        impl $name {
            pub const SIZE: usize = $size;
            pub const ABOUT: &'static [&'static str] = &[$($doc),*];
            pub const FIELDS: &'static [(usize, &'static str, &'static str, &'static [&'static str])] =
                &[$(($offset, stringify!($field), <$ty as $crate::format::Field>::NAME, &[$($fdoc),*]),)*];

            pub fn encode(&self, into: &mut [u8]) {
                $($crate::format::Field::put(self.$field, &mut into[$offset..$offset + <$ty as $crate::format::Field>::SIZE]);)*
            }

            pub fn decode(from: &[u8]) -> Self {
                $name { $($field: <$ty as $crate::format::Field>::get(&from[$offset..$offset + <$ty as $crate::format::Field>::SIZE]),)* }
            }

            #[allow(dead_code)]
            pub fn push_to(&self, into: &mut Vec<u8>) {
                let start = into.len();
                into.resize(start + Self::SIZE, 0);
                self.encode(&mut into[start..]);
            }
        }

        const _: () = {
            let mut at = 0;
            $(assert!(at == $offset, "a field does not start where the one before ends"); at += <$ty as $crate::format::Field>::SIZE;)*
            assert!(at == $size, "the fields do not add up to the size");
        };
    };
}
pub(crate) use record;

/// Reads structs one after another from bytes that may be damaged: every step is checked.
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Cursor { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn left(&self) -> usize {
        self.rest.len()
    }

    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }

    pub fn int<F: Field>(&mut self) -> Option<F> {
        self.take(F::SIZE).map(F::get)
    }
}

/// The checksum of everything on the medium: CRC-32C (Castagnoli).
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    u32::try_from(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes)).expect("a 32-bit checksum")
}

/// The checksum of several pieces as if they were one.
pub(crate) fn crc_of(pieces: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    for piece in pieces {
        digest.update(piece);
    }
    u32::try_from(digest.finalize()).expect("a 32-bit checksum")
}
