//! The one error type of this crate: a kind to act on, words to read, and the cause below.

use std::fmt;

/// What a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The device or the file system below failed the operation.
    Io,
    /// There is no space left below.
    NoSpace,
    /// Another process holds the image.
    Busy,
    /// Not allowed: read-only file, missing permission.
    Denied,
    /// There is no such image.
    NotFound,
    /// The target holds something already.
    NotEmpty,
    /// The request lies outside of the medium, is not aligned, or breaks the order of appends: a bug of the caller
    /// or an image shorter than it should be.
    OutOfBounds,
    /// What is asked for cannot be had on this platform or this file.
    Unsupported,
}

/// An error of a medium.
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    context: String,
    source: Option<std::sync::Arc<std::io::Error>>,
}

/// The result of a medium's operation.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with its words: what was done, what was expected, what was found.
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Error { kind, context: context.into(), source: None }
    }

    /// An error that the operating system reported while `context` was done.
    pub fn io(context: impl Into<String>, source: std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        let kind = match source.kind() {
            Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => ErrorKind::NoSpace,
            Io::PermissionDenied | Io::ReadOnlyFilesystem => ErrorKind::Denied,
            Io::NotFound => ErrorKind::NotFound,
            Io::WouldBlock | Io::ResourceBusy => ErrorKind::Busy,
            _ => ErrorKind::Io,
        };
        Error { kind, context: context.into(), source: Some(std::sync::Arc::new(source)) }
    }

    /// What a caller can act on.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}
