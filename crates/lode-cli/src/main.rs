//! The command `lode`: arguments in, words out. It decides nothing that the engine decides.
//!
//! `arguments` says what can be typed, `commands` has one file per sub-command, `bench` measures.
//! Everything that fails comes back as a [`failure::Failure`], which carries the exit code; only this
//! file prints it and ends the process.
#![forbid(unsafe_code)]

mod arguments;
mod bench;
mod commands;
mod exports;
mod failure;
mod image;
mod output;
mod progress;
mod random;
mod size;
mod text;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = arguments::Arguments::parse();
    match commands::run(arguments.command) {
        Ok(code) => code.into(),
        Err(failure) => {
            eprintln!("lode: {}", text::safe(failure.words()));
            failure.code().into()
        }
    }
}
