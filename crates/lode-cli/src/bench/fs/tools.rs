//! Programs that a bench uses, and what it says if one is missing.

use super::super::scratch::Victim;
use super::Settings;
use crate::failure::{Code, Failure, Result};
use crate::image;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What `scripts/setup-bench-fs.sh` brings under that name.
pub fn brought(settings: &Settings, name: &str) -> Result<PathBuf> {
    brought_to(&settings.tools, name)
}

/// The same, by the directory.
pub fn brought_to(tools: &Path, name: &str) -> Result<PathBuf> {
    let path = std::path::absolute(tools.join(name)).unwrap_or_default();
    if path.is_file() {
        return Ok(path);
    }
    let words = format!("bench-fs: expected {}, found none: `make bench-fs` brings it", image::show(&path));
    Err(Failure::new(Code::NotFound, words))
}

/// Fails, naming the package, if a program is not installed.
pub fn require(programs: &[(&str, &str)]) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = || std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    for (program, package) in programs {
        if !places().any(|directory| directory.join(program).is_file()) {
            let words = format!(
                "bench-fs: expected the program {program}, found none: `make bench-fs` installs it (package {package})"
            );
            return Err(Failure::new(Code::NotFound, words));
        }
    }
    Ok(())
}

/// A program, also one of root's, which are not on everybody's path; it asks nothing and speaks English.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Runs a program to its end, and gives back what it prints. It dies with the bench.
pub fn run(command: &mut Command) -> Result<String> {
    let name = image::show(command.get_program().as_ref());
    let failed = |words: String| Failure::new(Code::Io, format!("bench-fs: {name}: {words}"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Victim::new(command.spawn().map_err(|error| failed(error.to_string()))?);
    let (out, errors) = (child.0.stdout.take(), child.0.stderr.take());
    let listener = std::thread::spawn(move || all_of(errors));
    let printed = all_of(out);
    let errors = listener.join().unwrap_or_default();
    let status = child.0.wait().map_err(|error| failed(error.to_string()))?;
    if status.success() {
        return Ok(printed);
    }
    let tail: Vec<&str> = errors.trim().lines().rev().take(5).collect();
    Err(failed(format!("{status}: {}", tail.into_iter().rev().collect::<Vec<_>>().join("; "))))
}

fn all_of(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    // What cannot be read is not there to be shown.
    let _ = from.map(|mut from| from.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}
