//! One line that says what went wrong, and the exit code that goes with it.
//!
//! The codes are part of what scripts may rely on; `lode --help` prints the same table.

use std::error::Error as _;
use std::fmt::Write as _;
use std::process::ExitCode;

/// The exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Done; for `check` and `scrub`: sound.
    Done = 0,
    /// Damage was found, or a bar of `bench` was missed.
    Damaged = 1,
    /// The arguments make no sense (also what clap uses).
    Usage = 2,
    /// There is no such disk, volume or file.
    NotFound = 3,
    /// The image is open elsewhere.
    Busy = 4,
    /// The disk, or the file system below it, is full.
    Full = 5,
    /// A device, a file or the network failed.
    Io = 6,
    /// The target holds something already.
    Exists = 7,
    /// Not a Lode disk, or one of a newer format.
    NotADisk = 8,
    /// Not allowed: a read-only file, a missing permission.
    Denied = 9,
    /// Others changed what this was made for. Nothing was done.
    Conflict = 10,
}

impl Code {
    /// All of them, each at its number.
    const ALL: [Code; 11] = [
        Code::Done,
        Code::Damaged,
        Code::Usage,
        Code::NotFound,
        Code::Busy,
        Code::Full,
        Code::Io,
        Code::Exists,
        Code::NotADisk,
        Code::Denied,
        Code::Conflict,
    ];

    /// The number that the process exits with.
    pub fn number(self) -> u8 {
        let number = Code::ALL.iter().position(|code| *code == self).expect("all codes are listed");
        u8::try_from(number).expect("there are few")
    }

    /// The code with this number.
    pub fn from_number(number: u8) -> Option<Code> {
        Code::ALL.get(usize::from(number)).copied()
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> ExitCode {
        ExitCode::from(code.number())
    }
}

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    code: Code,
    words: String,
}

/// The result of a command or of a part of it.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure with its code and its words.
    pub fn new(code: Code, words: impl Into<String>) -> Self {
        Failure { code, words: words.into() }
    }

    /// The arguments make no sense.
    pub fn usage(words: impl Into<String>) -> Self {
        Failure::new(Code::Usage, words)
    }

    /// The operating system failed while `doing`.
    pub fn io(doing: impl std::fmt::Display, error: std::io::Error) -> Self {
        lode_media::Error::io(doing.to_string(), error).into()
    }

    /// The exit code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// What to print.
    pub fn words(&self) -> &str {
        &self.words
    }

    /// Whoever asked for a command has gone, or the server that runs it is ending.
    pub fn unwanted(error: std::io::Error) -> Self {
        Failure::new(Code::Io, error.to_string())
    }

    /// The same failure with what was being done in front of it.
    pub fn during(mut self, doing: impl std::fmt::Display) -> Self {
        self.words = format!("{doing}: {}", self.words);
        self
    }
}

/// Adds what was being done to a failed result.
pub trait During<T> {
    /// Puts `doing` in front of the words of the failure.
    fn during(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Failure>> During<T> for std::result::Result<T, E> {
    fn during(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| error.into().during(doing()))
    }
}

/// The error and its causes on one line; a cause that the line already tells is not told again.
fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            let _ = write!(words, ": {more}");
        }
        cause = error.source();
    }
    words
}

fn media_code(kind: lode_media::ErrorKind) -> Code {
    use lode_media::ErrorKind as Kind;
    match kind {
        Kind::NoSpace => Code::Full,
        Kind::Busy => Code::Busy,
        Kind::Denied => Code::Denied,
        Kind::NotFound => Code::NotFound,
        Kind::NotEmpty => Code::Exists,
        // An image shorter than it should be.
        Kind::OutOfBounds => Code::Damaged,
        _ => Code::Io,
    }
}

impl From<lode_media::Error> for Failure {
    fn from(error: lode_media::Error) -> Self {
        Failure::new(media_code(error.kind()), chain(&error))
    }
}

impl From<lode::Error> for Failure {
    fn from(error: lode::Error) -> Self {
        use lode::ErrorKind as Kind;
        let below = error.source().and_then(|cause| cause.downcast_ref::<lode_media::Error>());
        let code = match error.kind() {
            Kind::NotADisk | Kind::NewerFormat => Code::NotADisk,
            Kind::Corrupt => Code::Damaged,
            Kind::Full => Code::Full,
            Kind::Exists => Code::Exists,
            Kind::NotFound => Code::NotFound,
            Kind::OutOfRange | Kind::InvalidArgument | Kind::Unsupported => Code::Usage,
            Kind::Conflict => Code::Conflict,
            Kind::ReadOnly => Code::Denied,
            Kind::Failed | Kind::Media => below.map_or(Code::Io, |below| media_code(below.kind())),
            #[allow(unreachable_patterns, reason = "the engine may learn new kinds")]
            _ => Code::Io,
        };
        Failure::new(code, chain(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn a_code_is_its_place_among_all() {
        for (number, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!(code as usize, number);
            assert_eq!(Code::from_number(code.number()), Some(code));
        }
        assert_eq!(Code::from_number(11), None);
    }
}
