//! What can go wrong behind the door (an export's error) and in front of it (a peer that breaks the protocol).
//!
//! Both are translated into the protocol's error numbers here and nowhere else.

use std::{error::Error, fmt};

use crate::wire::{Errno, OptionReply};

/// What a server can act on when a call of an export fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExportErrorKind {
    /// There is no export of that name.
    Unknown,
    /// Not allowed: the export is read-only, or the caller lacks a right.
    Denied,
    /// The storage failed, or what it holds is damaged.
    Io,
    /// There is not enough memory now.
    NoMemory,
    /// The request makes no sense for this export.
    Invalid,
    /// There is no space left.
    NoSpace,
    /// The request is too large to be done at once.
    TooLarge,
    /// The export cannot do that.
    Unsupported,
    /// The export is being closed.
    ShuttingDown,
}

/// An error of an export: a kind to act on, words to read, and the cause below.
#[derive(Debug)]
pub struct ExportError {
    kind: ExportErrorKind,
    context: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ExportError {
    /// An error with its words: what was done, what was expected, what was found.
    pub fn new(kind: ExportErrorKind, context: impl Into<String>) -> Self {
        ExportError { kind, context: context.into(), source: None }
    }

    /// The same error with its cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What a server can act on.
    pub fn kind(&self) -> ExportErrorKind {
        self.kind
    }

    pub(crate) fn errno(&self) -> Errno {
        match self.kind {
            ExportErrorKind::Unknown | ExportErrorKind::Invalid => Errno::Invalid,
            ExportErrorKind::Denied => Errno::NotPermitted,
            ExportErrorKind::Io => Errno::Io,
            ExportErrorKind::NoMemory => Errno::NoMemory,
            ExportErrorKind::NoSpace => Errno::NoSpace,
            ExportErrorKind::TooLarge => Errno::Overflow,
            ExportErrorKind::Unsupported => Errno::NotSupported,
            ExportErrorKind::ShuttingDown => Errno::Shutdown,
        }
    }

    pub(crate) fn option_reply(&self) -> OptionReply {
        match self.kind {
            ExportErrorKind::Denied => OptionReply::ErrPolicy,
            ExportErrorKind::ShuttingDown => OptionReply::ErrShutdown,
            _ => OptionReply::ErrUnknown,
        }
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.context)
    }
}

impl Error for ExportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| -> &(dyn Error + 'static) { source })
    }
}

/// How a peer broke the protocol, so that its connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The client's flags hold bits that the server did not offer.
    ClientFlags(u32),
    /// An option does not begin with the magic number.
    OptionMagic(u64),
    /// An option's data is far longer than any option needs.
    OptionLength(u32),
    /// More options than a handshake may have.
    OptionCount,
    /// A request does not begin with the magic number.
    RequestMagic(u32),
    /// A write's payload is so long that even skipping it is refused.
    PayloadLength(u32),
    /// EXPORT_NAME named no export that can be opened; the option has no way to say so but to hang up.
    ExportName,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtocolError::ClientFlags(found) => write!(f, "client flags {found:#x} were not offered"),
            ProtocolError::OptionMagic(found) => write!(f, "option begins with {found:#x}"),
            ProtocolError::OptionLength(found) => write!(f, "option of {found} bytes"),
            ProtocolError::OptionCount => write!(f, "too many options"),
            ProtocolError::RequestMagic(found) => write!(f, "request begins with {found:#x}"),
            ProtocolError::PayloadLength(found) => write!(f, "payload of {found} bytes"),
            ProtocolError::ExportName => write!(f, "export name cannot be opened"),
        }
    }
}

impl Error for ProtocolError {}
