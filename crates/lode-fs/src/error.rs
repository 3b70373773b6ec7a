//! The one error type: what kind, in words, and what caused it.

use std::borrow::Cow;

/// What went wrong, for who decides by it. The doors have a number for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// There is none of that name or number.
    NotFound,
    /// There is one of that name already.
    Exists,
    /// A directory is needed here.
    NotDirectory,
    /// A directory is not possible here.
    IsDirectory,
    /// The directory has entries.
    NotEmpty,
    /// There is no space for it.
    Full,
    /// The file would be larger than a file can be.
    TooLarge,
    /// The name is longer than 255 bytes, or the target of a symbolic link than 4095.
    NameTooLong,
    /// It makes no sense.
    Invalid,
    /// It has no such extended attribute.
    NoAttribute,
    /// It does not fit in what the caller has room for, or in what there may be at most.
    Range,
    /// It has as many names as it can have.
    TooManyLinks,
    /// It may not be done, by whomever.
    NotPermitted,
    /// What is seen here never changes.
    ReadOnly,
    /// There is no data, or no hole, behind this place.
    NoData,
    /// It is not offered.
    Unsupported,
    /// Others have changed what the transaction changed or read.
    Conflict,
    /// The transaction has ended.
    Ended,
    /// The disk has no file system, or one that this version does not know.
    NotOurs,
    /// What is stored is not what was written. Everything else can be used.
    Damaged,
    /// The disk failed.
    Failed,
}

/// An error of the file system.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    context: Cow<'static, str>,
    source: Option<lode::Error>,
}

/// What most calls give back.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error in words. Whoever shows the file system to others may have some of his own.
    pub fn new(kind: ErrorKind, context: impl Into<Cow<'static, str>>) -> Error {
        Error { kind, context: context.into(), source: None }
    }

    pub(crate) fn damaged(what: impl std::fmt::Display, expected: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Damaged, format!("{what}: expected {expected}"))
    }

    /// What kind it is of.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.source {
            None => f.write_str(&self.context),
            Some(source) if self.context.is_empty() => write!(f, "{source}"),
            Some(source) => write!(f, "{}: {source}", self.context),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

impl From<lode::Error> for Error {
    fn from(source: lode::Error) -> Error {
        let kind = match source.kind() {
            lode::ErrorKind::Full => ErrorKind::Full,
            lode::ErrorKind::ReadOnly => ErrorKind::ReadOnly,
            lode::ErrorKind::Corrupt => ErrorKind::Damaged,
            lode::ErrorKind::Conflict => ErrorKind::Conflict,
            _ => ErrorKind::Failed,
        };
        Error { kind, context: Cow::Borrowed(""), source: Some(source) }
    }
}
