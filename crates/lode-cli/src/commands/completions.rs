//! `lode completions`: what a shell needs to complete command lines.

use crate::failure::{Code, Result};
use crate::{arguments, output};
use clap::CommandFactory;
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  lode completions bash > ~/.local/share/bash-completion/completions/lode
  lode completions zsh > \"${fpath[1]}/_lode\"
  lode completions fish > ~/.config/fish/completions/lode.fish";

/// What `lode completions` takes.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub fn run(arguments: &Arguments) -> Result<Code> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut arguments::Arguments::command(), "lode", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Code::Done)
}
