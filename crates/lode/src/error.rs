//! The one error type of the engine: a kind to act on, words to read, the cause below.
//!
//! Errors are for the world: damaged media, full disks, wrong arguments. Bugs are assertions.

use std::fmt;

/// What a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The medium holds no Lode disk.
    NotADisk,
    /// The disk was written by a newer version.
    NewerFormat,
    /// Something on the medium is not what it was when written. The words name the place.
    Corrupt,
    /// There is no space for what was asked (P5).
    Full,
    /// The name is taken.
    Exists,
    /// There is no such volume.
    NotFound,
    /// The offset or length lies outside of the volume.
    OutOfRange,
    /// An argument has no meaning.
    InvalidArgument,
    /// The disk is open for reading only.
    ReadOnly,
    /// The disk cannot do this.
    Unsupported,
    /// The unit's operations have no meaning on the committed state.
    Conflict,
    /// An append or a sync failed earlier; writes are refused until the disk is opened again (P8).
    Failed,
    /// The medium failed this operation.
    Media,
    /// A stream could not be read or written.
    Stream,
    /// A stream ended before it was whole.
    Ended,
}

/// An error of the engine.
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    context: String,
    source: Option<lode_media::Error>,
}

/// The result of an operation of the engine.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Error { kind, context: context.into(), source: None }
    }

    pub(crate) fn corrupt(place: impl fmt::Display, expected: impl fmt::Display, found: impl fmt::Display) -> Self {
        Error::new(ErrorKind::Corrupt, format!("{place}: expected {expected}, found {found}"))
    }

    pub(crate) fn media(context: impl Into<String>, source: lode_media::Error) -> Self {
        Error { kind: ErrorKind::Media, context: context.into(), source: Some(source) }
    }

    /// What a caller can act on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| e as _)
    }
}
