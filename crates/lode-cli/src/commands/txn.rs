//! `lode txn`: transactions of a mounted file system that are open.

use crate::commands::run::{end_as, mounted, within};
use crate::failure::{Code, Failure, Result};
use crate::{chores, output, text};
use lode_fuse::control::{Question, ask, differences, list};
use similar::TextDiff;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  lode run /mnt --keep upgrade -- ./upgrade.sh
  lode txn diff /mnt upgrade --patch
  lode txn enter /mnt upgrade -- ls -l /mnt
  lode txn commit /mnt upgrade

A is what was added, D what was removed, M what was changed. `enter` runs a command, or a shell,
that sees what the transaction has, and goes on with it.";

/// A transaction.
#[derive(clap::Args)]
pub struct One {
    /// A directory of a mounted file system
    directory: PathBuf,
    /// The name of the transaction, or its number
    name: String,
}

/// What `lode txn` can do.
#[derive(clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Command {
    /// Show those that are open
    List {
        /// A directory of a mounted file system
        directory: PathBuf,
    },
    /// Show what one has changed
    Diff {
        #[command(flatten)]
        one: One,
        /// Show also how, of files with text
        #[arg(long, short)]
        patch: bool,
    },
    /// Run a command, or a shell, in one
    Enter {
        #[command(flatten)]
        one: One,
        /// The command [default: the shell]
        #[arg(last = true)]
        command: Vec<OsString>,
    },
    /// Let everything that it did count, in one step
    Commit(One),
    /// End it, as if it had never been
    Abort(One),
}

/// Larger files are not compared line by line.
const TEXT_MAX: u64 = 4 << 20;

impl One {
    fn find(&self) -> Result<(PathBuf, u64)> {
        let point = mounted(&self.directory)?;
        if let Ok(number) = self.name.parse::<u64>()
            && list(&point)?.iter().any(|listed| listed.number == number)
        {
            return Ok((point, number));
        }
        let (number, _) = ask(&point, &Question::Find(self.name.clone()))?;
        Ok((point, number))
    }
}

/// Does it.
pub fn run(command: &Command) -> Result<Code> {
    match command {
        Command::List { directory } => show(directory),
        Command::Diff { one, patch } => diff(one, *patch),
        Command::Enter { one, command } => {
            let (point, number) = one.find()?;
            let shell = || vec![std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())];
            let command = if command.is_empty() { shell() } else { command.clone() };
            let status = within(&point, number, &command)?;
            // What was done is kept as well.
            if list(&point)?.iter().any(|listed| listed.number == number && listed.name.as_deref() == Some(&one.name)) {
                ask(&point, &Question::Keep(number, one.name.clone()))?;
            }
            if status.success() { Ok(Code::Done) } else { end_as(status) }
        }
        Command::Commit(one) => {
            let (point, number) = one.find()?;
            ask(&point, &Question::Commit(number))?;
            Ok(Code::Done)
        }
        Command::Abort(one) => {
            let (point, number) = one.find()?;
            ask(&point, &Question::Abort(number))?;
            Ok(Code::Done)
        }
    }
}

fn show(directory: &Path) -> Result<Code> {
    let all = list(&mounted(directory)?)?;
    let mut rows = vec![["NAME", "NUMBER", "BEGUN", "CHANGED"].map(str::to_owned).to_vec()];
    for listed in all {
        let begun = chores::when(u64::try_from(listed.begun).unwrap_or(0));
        let name = listed.name.map_or_else(|| "-".to_owned(), |name| text::safe(&name));
        rows.push(vec![name, listed.number.to_string(), begun, listed.changed.to_string()]);
    }
    if rows.len() > 1 {
        output::print(&text::table(&rows))?;
    }
    Ok(Code::Done)
}

fn diff(one: &One, patch: bool) -> Result<Code> {
    let (point, number) = one.find()?;
    for (became, path) in differences(&point, number)? {
        let shown = String::from_utf8_lossy(path.strip_prefix(b"/").unwrap_or(&path)).into_owned();
        if !patch || shown.ends_with('/') {
            output::line(format!("{became} {}", text::safe(&shown)))?;
            continue;
        }
        let relative = PathBuf::from(OsString::from_vec(path.strip_prefix(b"/").unwrap_or(&path).to_vec()));
        let (old, new) = (point.join(&relative), point.join(".txn").join(number.to_string()).join(&relative));
        match (content(&old, became == 'A')?, content(&new, became == 'D')?) {
            (Some(old), Some(new)) => {
                let (from, to) = (format!("a/{shown}"), format!("b/{shown}"));
                let from = if became == 'A' { "/dev/null" } else { &from };
                let to = if became == 'D' { "/dev/null" } else { &to };
                let diff = TextDiff::from_lines(&old, &new);
                output::print(&diff.unified_diff().header(&text::safe(from), &text::safe(to)).to_string())?;
            }
            _ => output::line(format!("{became} {} (no text)", text::safe(&shown)))?,
        }
    }
    Ok(Code::Done)
}

/// The text of a file. None: it has none.
fn content(path: &Path, lacks: bool) -> Result<Option<String>> {
    let failed = |error| Failure::io(text::safe(&path.to_string_lossy()), error);
    if lacks {
        return Ok(Some(String::new()));
    }
    let found = std::fs::symlink_metadata(path).map_err(failed)?;
    if found.is_symlink() {
        let target = std::fs::read_link(path).map_err(failed)?;
        return Ok(Some(format!("{}\n", String::from_utf8_lossy(target.as_os_str().as_bytes()))));
    }
    if !found.is_file() || found.len() > TEXT_MAX {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let mut file = crate::session::open(path)?;
    std::io::Read::read_to_end(&mut file, &mut bytes).map_err(failed)?;
    Ok(String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')))
}
