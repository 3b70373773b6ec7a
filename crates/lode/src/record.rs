//! Fixed-size structs as bytes: declared once, with the byte offset beside each field, for every layer that has a format.
//! Sizes and offsets are proven at compile time, integers are little-endian, there is no padding that is not named.

use std::fmt::Write;

/// An integer that has one form on the medium.
pub trait Field: Copy {
    /// Bytes that it takes.
    const SIZE: usize;
    /// What its type is called.
    const NAME: &'static str;
    /// Puts it down.
    fn put(self, into: &mut [u8]);
    /// Reads it.
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
field!(u8, u16, u32, u64, u128, i64);

/// Declares a fixed-size struct of the format, with the byte offset beside each field.
#[doc(hidden)]
#[macro_export]
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
                &[$(($offset, stringify!($field), <$ty as $crate::record::Field>::NAME, &[$($fdoc),*]),)*];

            pub fn encode(&self, into: &mut [u8]) {
                $($crate::record::Field::put(self.$field, &mut into[$offset..$offset + <$ty as $crate::record::Field>::SIZE]);)*
            }

            pub fn decode(from: &[u8]) -> Self {
                $name { $($field: <$ty as $crate::record::Field>::get(&from[$offset..$offset + <$ty as $crate::record::Field>::SIZE]),)* }
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
            $(assert!(at == $offset, "a field does not start where the one before ends"); at += <$ty as $crate::record::Field>::SIZE;)*
            assert!(at == $size, "the fields do not add up to the size");
        };
    };
}

/// Reads structs one after another from bytes that may be damaged: every step is checked.
pub struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Begins with the first.
    pub fn new(bytes: &'a [u8]) -> Self {
        Cursor { rest: bytes }
    }

    /// Nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next bytes, if there are so many.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }

    /// The next integer.
    pub fn int<F: Field>(&mut self) -> Option<F> {
        self.take(F::SIZE).map(F::get)
    }
}

/// Offset, name, type and meaning of each field.
type Fields = &'static [(usize, &'static str, &'static str, &'static [&'static str])];

/// Prints one struct as a table of Markdown.
pub fn table(into: &mut String, name: &str, size: usize, about: &[&str], fields: Fields) {
    let lines: Vec<&str> = about.iter().map(|line| line.trim()).collect();
    let _ = write!(
        into,
        "\n### {name} ({size} bytes)\n\n{}\n\n| offset | field | type | meaning |\n|---:|---|---|---|\n",
        lines.join(" ")
    );
    for (offset, field, ty, doc) in fields {
        let meaning: Vec<&str> = doc.iter().map(|line| line.trim()).collect();
        let _ = writeln!(into, "| {offset} | `{field}` | {ty} | {} |", meaning.join(" "));
    }
}
