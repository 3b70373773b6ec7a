//! What goes to standard output: JSON for programs, lines for people. A closed pipe is an error, not a panic.

use crate::failure::{Failure, Result};
use crate::session;
use serde::Serialize;
use std::io::Write;

/// Prints `text` as it is.
pub fn print(text: &str) -> Result<()> {
    let mut out = session::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| Failure::io("writing to standard output", e))
}

/// Prints one line.
pub fn line(text: impl std::fmt::Display) -> Result<()> {
    print(&format!("{text}\n"))
}

/// Prints `value` as JSON.
pub fn json(value: &impl Serialize) -> Result<()> {
    let text =
        serde_json::to_string_pretty(value).map_err(|e| Failure::io("writing JSON", std::io::Error::other(e)))?;
    line(text)
}
