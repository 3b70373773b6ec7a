//! A finding as one printable string: the script, the cut, the choices, and the same of a second crash.

use crate::script::ScriptId;
use std::fmt;
use std::str::FromStr;

/// A second crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Second {
    /// The first crash was the death of the process only: what it had not synced may be lost in the second.
    pub kill: bool,
    /// Operations of the second life that happened.
    pub cut: usize,
    /// The choices.
    pub choices: Vec<u32>,
}

/// Makes a crash again. Written as `script`, or `script/cut/choices`, or `script/cut/choices/p` or `k` and
/// `cut/choices` of the second crash; choices are joined by dots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The script.
    pub script: ScriptId,
    /// Operations of the medium that happened; `None`: the script itself fails, or all of it is to be done.
    pub cut: Option<usize>,
    /// The choices.
    pub choices: Vec<u32>,
    /// The second crash, if there was one.
    pub second: Option<Second>,
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.script)?;
        if let Some(cut) = self.cut {
            write!(f, "/{cut}/{}", joined(&self.choices))?;
        }
        if let Some(second) = &self.second {
            let kind = if second.kill { "k" } else { "p" };
            write!(f, "/{kind}/{}/{}", second.cut, joined(&second.choices))?;
        }
        Ok(())
    }
}

fn joined(choices: &[u32]) -> String {
    choices.iter().map(u32::to_string).collect::<Vec<String>>().join(".")
}

fn parted(words: &str) -> Result<Vec<u32>, String> {
    let parts = words.split('.').filter(|part| !part.is_empty());
    parts.map(|part| part.parse().map_err(|_| format!("{part} is no choice"))).collect()
}

impl FromStr for Replay {
    type Err = String;
    fn from_str(words: &str) -> Result<Self, String> {
        let parts: Vec<&str> = words.trim().split('/').collect();
        let number = |word: &str| word.parse::<usize>().map_err(|_| format!("{word} is no number"));
        let script = parts[0].parse()?;
        match parts[..] {
            [_] => Ok(Replay { script, cut: None, choices: Vec::new(), second: None }),
            [_, cut, choices] => {
                Ok(Replay { script, cut: Some(number(cut)?), choices: parted(choices)?, second: None })
            }
            [_, cut, choices, kind @ ("k" | "p"), second_cut, second] => Ok(Replay {
                script,
                cut: Some(number(cut)?),
                choices: parted(choices)?,
                second: Some(Second { kill: kind == "k", cut: number(second_cut)?, choices: parted(second)? }),
            }),
            _ => Err(format!("{words} is no replay: script, script/cut/choices, or that and k|p/cut/choices")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Replay;

    #[test]
    fn what_is_printed_is_read_again() {
        for words in ["r17", "s4/12/", "r1/33/0.2.1", "s9/1/4/k/7/", "r9/1/4.4/p/7/1.2"] {
            let replay: Replay = words.parse().expect("it was printed");
            assert_eq!(replay.to_string(), words);
        }
    }
}
