//! `mount.fuse.lode`: what mount(8) calls for `mount -t fuse.lode DISK DIR` and for lines of `/etc/fstab`. It is this
//! program by another name, with the arguments that mount(8) gives to its helpers.

use crate::failure::Code;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The names that it is called by.
const NAMES: [&str; 2] = ["mount.fuse.lode", "mount.lode"];

/// Whether a command line is one of mount(8).
pub fn is_one(line: &[OsString]) -> bool {
    let name = line.first().and_then(|name| Path::new(name).file_name());
    name.is_some_and(|name| NAMES.iter().any(|known| name == *known))
}

/// The command line of `lode mount` that means the same: `SPEC DIR [-sfnv] [-r|-w] [-t TYPE] [-o OPTIONS]`. What is not
/// known stays, to be refused.
pub fn translated(line: Vec<OsString>) -> Vec<OsString> {
    if !is_one(&line) {
        return line;
    }
    let mut line = line.into_iter();
    let mut new: Vec<OsString> = vec![line.next().unwrap_or_default(), "mount".into()];
    let mut verbose = false;
    while let Some(argument) = line.next() {
        let letters = match argument.as_bytes() {
            b"-o" => {
                new.push(argument);
                new.extend(line.next());
                continue;
            }
            b"-t" => {
                line.next();
                continue;
            }
            [b'-', letters @ ..] if !letters.is_empty() && letters.iter().all(|letter| b"sfnvrw".contains(letter)) => {
                letters
            }
            _ => {
                new.push(argument);
                continue;
            }
        };
        verbose |= letters.contains(&b'v');
        for (letter, meant) in [(b's', "--sloppy"), (b'f', "--fake"), (b'r', "--read-only")] {
            new.extend(letters.contains(&letter).then(|| meant.into()));
        }
    }
    new.extend((!verbose).then(|| "--quiet".into()));
    new
}

/// The exit code that mount(8) knows for one of ours.
pub fn exit_code(code: Code) -> u8 {
    match code {
        Code::Done => 0,
        Code::Usage | Code::Denied => 1,
        _ => 32,
    }
}

#[cfg(test)]
mod tests {
    use super::translated;

    #[test]
    fn a_line_of_mount_is_one_of_ours() {
        let ours = |line: &str| {
            let line = line.split(' ').map(Into::into).collect();
            translated(line).into_iter().map(|word| word.into_string().expect("text")).collect::<Vec<_>>().join(" ")
        };
        for (theirs, expected) in [
            ("/sbin/mount.fuse.lode d /m -o rw,relaxed", "/sbin/mount.fuse.lode mount d /m -o rw,relaxed --quiet"),
            ("mount.lode d /m -sfnv -o ro", "mount.lode mount d /m --sloppy --fake -o ro"),
            ("mount.lode d /m -v -r -t fuse.lode", "mount.lode mount d /m --read-only"),
            ("mount.lode d /m -N /ns", "mount.lode mount d /m -N /ns --quiet"),
            ("/usr/bin/lode mount d /m -v", "/usr/bin/lode mount d /m -v"),
        ] {
            assert_eq!(ours(theirs), expected);
        }
    }
}
