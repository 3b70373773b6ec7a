//! What goes over a control socket, as bytes.
//!
//! A request is the magic, the length of what follows, and texts that end with 0, as the kernel passes arguments. An
//! answer is its kind, the length of what follows, and that. Numbers are little-endian.

use crate::failure::Code;
use std::ffi::{OsStr, OsString};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The last digit is the version of all this.
const MAGIC: &[u8; 8] = b"lodectl1";

/// The magic and the length.
pub const HEAD: usize = 12;

/// No request is longer; the kernel's own limit for arguments is of this order.
pub const REQUEST_MAX: usize = 1 << 20;

/// No answer is longer.
const ANSWER_MAX: usize = 1 << 16;

/// What a client asks for. Its standard input and output come with the first bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// The files that it sees, see [`super::world`].
    pub world: String,
    /// The permissions that its new files do not get.
    pub umask: u32,
    /// Device and inode of the image that it means.
    pub image: (u64, u64),
    /// Its working directory.
    pub directory: PathBuf,
    /// The command line, from the name of the program on.
    pub arguments: Vec<OsString>,
}

/// What a server says.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The request may come.
    Ready,
    /// This server has another image open.
    Other,
    /// Standard input is going to be read.
    Input,
    /// The client is to send a byte.
    Ask,
    /// How far the command has come.
    Progress {
        /// The bytes done.
        done: u64,
        /// The bytes to do, if that is known.
        total: Option<u64>,
        /// What is being done.
        what: String,
    },
    /// The command has ended.
    Done {
        /// Its exit code.
        code: Code,
        /// Why it failed.
        words: Option<String>,
    },
}

fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("malformed {what}"))
}

impl Request {
    /// The whole request.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let image = format!("{}:{}", self.image.0, self.image.1);
        let umask = format!("{:o}", self.umask);
        let fields = [OsStr::new(&self.world), OsStr::new(&umask), OsStr::new(&image), self.directory.as_os_str()];
        let mut body = Vec::new();
        for text in fields.into_iter().chain(self.arguments.iter().map(OsString::as_os_str)) {
            body.extend_from_slice(text.as_bytes());
            body.push(0);
        }
        let length = u32::try_from(body.len()).ok().filter(|_| body.len() <= REQUEST_MAX);
        let length = length.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "the arguments are too long"))?;
        Ok([&MAGIC[..], &length.to_le_bytes(), &body].concat())
    }

    /// How long the body is, from the first bytes.
    pub fn body(head: &[u8; HEAD]) -> Result<usize> {
        let (magic, length) = head.split_at(MAGIC.len());
        let length: [u8; 4] = length.try_into().expect("a head is twelve bytes");
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if magic != MAGIC || length > REQUEST_MAX { Err(malformed("request")) } else { Ok(length) }
    }

    /// The request with this body.
    pub fn decode(body: &[u8]) -> Result<Request> {
        let mut texts = body.strip_suffix(b"\0").ok_or_else(|| malformed("request"))?.split(|byte| *byte == 0);
        let mut field = || texts.next().ok_or_else(|| malformed("request"));
        let words = |text: &[u8]| String::from_utf8(text.to_vec()).map_err(|_| malformed("request"));
        let world = words(field()?)?;
        let umask = u32::from_str_radix(&words(field()?)?, 8).map_err(|_| malformed("request"))?;
        let image = words(field()?)?;
        let image = image.split_once(':').and_then(|(device, inode)| Some((device.parse().ok()?, inode.parse().ok()?)));
        let directory = PathBuf::from(OsStr::from_bytes(field()?));
        Ok(Request {
            world,
            umask,
            image: image.ok_or_else(|| malformed("request"))?,
            directory,
            arguments: texts.map(|text| OsString::from_vec(text.to_vec())).collect(),
        })
    }
}

impl Answer {
    /// The whole answer. Words that are too long are cut.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, body) = match self {
            Answer::Ready => (0, Vec::new()),
            Answer::Other => (1, Vec::new()),
            Answer::Input => (2, Vec::new()),
            Answer::Ask => (3, Vec::new()),
            Answer::Progress { done, total, what } => {
                let total = total.unwrap_or(u64::MAX);
                (4, [&done.to_le_bytes()[..], &total.to_le_bytes(), what.as_bytes()].concat())
            }
            Answer::Done { code, words } => {
                let words = words.as_deref().unwrap_or_default();
                (5, [&[code.number()][..], words.as_bytes()].concat())
            }
        };
        let body = &body[..body.len().min(ANSWER_MAX)];
        let length = u32::try_from(body.len()).expect("an answer is short");
        [&[kind][..], &length.to_le_bytes(), body].concat()
    }

    /// The next answer.
    pub fn read(from: &mut impl Read) -> Result<Answer> {
        let mut head = [0; 5];
        from.read_exact(&mut head)?;
        let [kind, length @ ..] = head;
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > ANSWER_MAX {
            return Err(malformed("answer"));
        }
        let mut body = vec![0; length];
        from.read_exact(&mut body)?;
        Answer::decode(kind, &body).ok_or_else(|| malformed("answer"))
    }

    fn decode(kind: u8, body: &[u8]) -> Option<Answer> {
        Some(match (kind, body) {
            (0, []) => Answer::Ready,
            (1, []) => Answer::Other,
            (2, []) => Answer::Input,
            (3, []) => Answer::Ask,
            (4, body) => {
                let (done, rest) = body.split_first_chunk()?;
                let (total, what) = rest.split_first_chunk()?;
                let total = Some(u64::from_le_bytes(*total)).filter(|total| *total != u64::MAX);
                let what = String::from_utf8_lossy(what).into_owned();
                Answer::Progress { done: u64::from_le_bytes(*done), total, what }
            }
            (5, [code, words @ ..]) => {
                let words = Some(String::from_utf8_lossy(words).into_owned()).filter(|words| !words.is_empty());
                Answer::Done { code: Code::from_number(*code)?, words }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
