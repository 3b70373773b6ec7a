//! How a program begins, commits and looks at transactions of a mounted file system: by reading extended attributes of any
//! directory of it. The name is the question, the value the answer.
//!
//! ```text
//!   lode.begin  lode.begin-loose  lode.commit.N  lode.abort.N  lode.keep.N.NAME  lode.find.NAME
//!   lode.list  lode.differences.N.FROM                              for example  getfattr -n lode.begin /mnt
//!
//!   the value:   ok N          and behind the line what was asked for          or    error ERRNO WHY
//! ```
//! *Rejected: ioctls*: their calls are unsafe code for whoever makes them, and no program that is at hand can. *Rejected: files
//! to be written to*: an answer belongs to a question, and two who ask at once would have to be told apart.

use lode_fs::{Became, Difference, TransactionInfo};
use std::path::Path;

/// What all names begin with.
const PREFIX: &str = "lode.";
/// An extended attribute has at most so many bytes.
const VALUE_MAX: usize = 1 << 16;
/// So much is left for what is asked for.
const TEXT_MAX: usize = VALUE_MAX - 64;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Begin a transaction. `true`: only what both have changed is a conflict.
    Begin(bool),
    /// Commit it.
    Commit(u64),
    /// End it, as if it had never been.
    Abort(u64),
    /// Keep it under a name.
    Keep(u64, String),
    /// The number of the one that is kept under a name.
    Find(String),
    /// Those that are open.
    List,
    /// What one has changed, from so many changes on: as many as fit.
    Differences(u64, usize),
}

impl Question {
    /// What a name asks. None: it is an extended attribute as others are.
    pub(crate) fn of(name: &[u8]) -> Option<Result<Question, String>> {
        let name = std::str::from_utf8(name).ok()?.strip_prefix(PREFIX)?;
        let (what, of) = name.split_once('.').unwrap_or((name, ""));
        let number = |of: &str| of.parse().map_err(|_| format!("{of} is not the number of a transaction"));
        let pair = |of: &str| {
            let (first, second) = of.split_once('.').unwrap_or((of, ""));
            Ok::<_, String>((number(first)?, second.to_owned()))
        };
        Some(match what {
            "begin" => Ok(Question::Begin(false)),
            "begin-loose" => Ok(Question::Begin(true)),
            "commit" => number(of).map(Question::Commit),
            "abort" => number(of).map(Question::Abort),
            "keep" => pair(of).map(|(number, name)| Question::Keep(number, name)),
            "find" => Ok(Question::Find(of.to_owned())),
            "list" => Ok(Question::List),
            "differences" => pair(of).map(|(number, from)| Question::Differences(number, from.parse().unwrap_or(0))),
            other => Err(format!("{other} is nothing that can be asked")),
        })
    }

    fn name(&self) -> String {
        match self {
            Question::Begin(false) => "lode.begin".to_owned(),
            Question::Begin(true) => "lode.begin-loose".to_owned(),
            Question::Commit(number) => format!("lode.commit.{number}"),
            Question::Abort(number) => format!("lode.abort.{number}"),
            Question::Keep(number, name) => format!("lode.keep.{number}.{name}"),
            Question::Find(name) => format!("lode.find.{name}"),
            Question::List => "lode.list".to_owned(),
            Question::Differences(number, from) => format!("lode.differences.{number}.{from}"),
        }
    }
}

/// An answer.
pub(crate) fn done(number: u64, text: &[u8]) -> Vec<u8> {
    [format!("ok {number}\n").as_bytes(), text].concat()
}

/// A refusal.
pub(crate) fn refused(errno: i32, why: &str) -> Vec<u8> {
    format!("error {errno} {why}\n").into_bytes()
}

/// What was refused.
#[derive(Debug)]
pub enum Refused {
    /// There is no Lode file system here.
    NotOurs(std::io::Error),
    /// It has refused: a number of the kernel, and why.
    Status(std::io::Error, String),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::NotOurs(error) => write!(f, "not in a mounted file system of Lode ({error})"),
            Refused::Status(_, words) => f.write_str(words),
        }
    }
}

impl std::error::Error for Refused {}

/// Who is asked to ask again waits so long.
const AGAIN: std::time::Duration = std::time::Duration::from_millis(2);

/// Asks the file system that a directory lies in. Gives back a number and what stands behind it.
pub fn ask(directory: &Path, question: &Question) -> Result<(u64, Vec<u8>), Refused> {
    loop {
        match ask_once(directory, question) {
            Err(Refused::Status(error, _)) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(AGAIN)
            }
            answer => return answer,
        }
    }
}

fn ask_once(directory: &Path, question: &Question) -> Result<(u64, Vec<u8>), Refused> {
    let mut value = vec![0; VALUE_MAX];
    let len = rustix::fs::getxattr(directory, question.name(), &mut value[..])
        .map_err(|error| Refused::NotOurs(error.into()))?;
    value.truncate(len);
    let strange = || Refused::NotOurs(std::io::ErrorKind::InvalidData.into());
    let end = value.iter().position(|byte| *byte == b'\n').ok_or_else(strange)?;
    let line = String::from_utf8_lossy(&value[..end]).into_owned();
    let mut words = line.splitn(3, ' ');
    match (words.next(), words.next().and_then(|word| word.parse::<u64>().ok()), words.next()) {
        (Some("ok"), Some(number), None) => Ok((number, value.split_off(end + 1))),
        (Some("error"), Some(errno), why) => {
            let error = std::io::Error::from_raw_os_error(i32::try_from(errno).map_err(|_| strange())?);
            Err(Refused::Status(error, why.unwrap_or_default().to_owned()))
        }
        _ => Err(strange()),
    }
}

/// What a transaction has changed: for each a letter, a space, the path, a zero.
pub(crate) fn differences_as_text(all: &[Difference], from: usize) -> Vec<u8> {
    let mut text = Vec::new();
    for Difference { path, became, directory } in all.iter().skip(from) {
        let letter = match became {
            Became::Added => b'A',
            Became::Removed => b'D',
            Became::Changed => b'M',
        };
        let slash: &[u8] = if *directory { b"/" } else { b"" };
        // A path that is longer than any program can use is cut, so that the others are told.
        let path = &path[..path.len().min(TEXT_MAX - 8)];
        if text.len() + path.len() + 8 > TEXT_MAX {
            break;
        }
        text.extend_from_slice(&[letter, b' ']);
        text.extend_from_slice(path);
        text.extend_from_slice(slash);
        text.push(0);
    }
    text
}

/// All that a transaction has changed: for each a letter (`A` added, `D` removed, `M` changed) and a path from the root of the
/// file system, with a slash behind a directory.
pub fn differences(directory: &Path, number: u64) -> Result<Vec<(char, Vec<u8>)>, Refused> {
    let mut all: Vec<(char, Vec<u8>)> = Vec::new();
    loop {
        let (_, text) = ask(directory, &Question::Differences(number, all.len()))?;
        let before = all.len();
        for line in text.split(|byte| *byte == 0).filter(|line| line.len() > 2) {
            all.push((char::from(line[0]), line[2..].to_vec()));
        }
        if all.len() == before {
            return Ok(all);
        }
    }
}

/// A transaction that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its number: it is the directory `.txn/NUMBER`.
    pub number: u64,
    /// When it began, in nanoseconds since 1970.
    pub begun: i64,
    /// How many inodes it has changed.
    pub changed: u64,
    /// Its name, if it is kept.
    pub name: Option<String>,
}

/// The same as a line.
pub(crate) fn listed_as_text(number: u64, info: &TransactionInfo) -> String {
    let name = info.name.as_deref().unwrap_or_default();
    format!("{number} {} {} {name}\n", info.begun.0, info.changed)
}

/// Those that are open, and the caller may look into.
pub fn list(directory: &Path) -> Result<Vec<Listed>, Refused> {
    let (_, text) = ask(directory, &Question::List)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let listed = |line: &str| {
        let mut words = line.splitn(4, ' ');
        let (number, begun, changed) = (words.next()?, words.next()?, words.next()?);
        let name = words.next().filter(|name| !name.is_empty()).map(str::to_owned);
        Some(Listed { number: number.parse().ok()?, begun: begun.parse().ok()?, changed: changed.parse().ok()?, name })
    };
    Ok(text.lines().filter_map(listed).collect())
}
