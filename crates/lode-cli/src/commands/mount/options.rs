//! What stands behind `-o`, on the command line and in `/etc/fstab`.

use super::Arguments;
use crate::failure::{Failure, Result};
use crate::serving::Where;
use crate::size;
use lode_fuse::{MountOptions, Order, Transport};

/// Options that mean something to `mount`, to who calls it, or to the kernel by itself.
const FOR_OTHERS: [&str; 23] = [
    "rw",
    "auto",
    "noauto",
    "user",
    "users",
    "nouser",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "defaults",
    "nofail",
    "exec",
    "nosuid",
    "nodev",
    "_netdev",
    "async",
    "atime",
    "noatime",
    "nodiratime",
    "relatime",
    "norelatime",
    "nomand",
];
/// The same with something behind it.
const FOR_OTHERS_WITH: [&str; 4] = ["x-", "X-", "comment=", "user="];

/// All that was asked for.
pub struct Options {
    /// How it is mounted.
    pub mount: MountOptions,
    /// What lies scattered is put in order when nobody works.
    pub reorganize: bool,
    /// Bytes that are held for files.
    pub hold: u64,
    /// Where volumes are served.
    pub at: Where,
}

fn wrong(option: &str, what: &str) -> Failure {
    Failure::usage(format!("-o {option}: {what}"))
}

impl Options {
    /// What the arguments say. One that is not known is an error, unless they are sloppy.
    pub fn new(arguments: &Arguments) -> Result<Options> {
        let processors = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        let mount = MountOptions {
            source: std::path::absolute(&arguments.disk).unwrap_or_default().to_string_lossy().into_owned(),
            order: Order::Strict,
            allow_other: arguments.allow_other,
            suid: false,
            dev: false,
            noexec: false,
            read_only: arguments.read_only,
            snapshots: false,
            auto_unmount: false,
            threads: arguments.threads.unwrap_or((2 * processors).clamp(4, 64)),
            transport: Transport::Either,
        };
        let mut options = Options { mount, reorganize: false, hold: 0, at: arguments.at.clone() };
        for option in arguments.option.iter().filter(|option| !option.is_empty()) {
            options.take(option, arguments.sloppy)?;
        }
        if options.at.socket.is_some() && options.at.listen.is_some() {
            return Err(wrong("socket,listen", "expected one of them, found both"));
        }
        Ok(options)
    }

    fn take(&mut self, option: &str, sloppy: bool) -> Result<()> {
        match option {
            "strict" => self.mount.order = Order::Strict,
            "relaxed" => self.mount.order = Order::Relaxed,
            "ring" => self.mount.transport = Transport::Ring,
            "noring" => self.mount.transport = Transport::Device,
            "suid" => self.mount.suid = true,
            "dev" => self.mount.dev = true,
            "noexec" => self.mount.noexec = true,
            "ro" => self.mount.read_only = true,
            "snapshots" => self.mount.snapshots = true,
            "reorganize" => self.reorganize = true,
            "allow_other" => self.mount.allow_other = true,
            "auto_unmount" => self.mount.auto_unmount = true,
            // The kernel always asks for permissions, and `lode` always may unmount.
            "default_permissions" | "silent" => {}
            "remount" => {
                return Err(wrong(option, "expected it to be unmounted first: options do not change meanwhile"));
            }
            other if FOR_OTHERS.contains(&other) => {}
            other if FOR_OTHERS_WITH.iter().any(|begins| other.starts_with(begins)) => {}
            other => match other.split_once('=') {
                Some(("hold", bytes)) => self.hold = size::parse(bytes).map_err(|what| wrong(option, &what))?,
                Some(("socket", path)) => self.at.socket = Some(path.into()),
                Some(("listen", address)) => self.at.listen = Some(address.to_owned()),
                Some(("threads", number)) => {
                    let number = number.parse().ok().filter(|number| (1..=1024).contains(number));
                    self.mount.threads = number.ok_or_else(|| wrong(option, "expected a number from 1 to 1024"))?;
                }
                Some(("uid" | "gid" | "umask" | "fmask" | "dmask", _)) if !sloppy => {
                    return Err(wrong(option, "files have owners and permissions of their own here: chown, chmod"));
                }
                _ if sloppy => {}
                _ => return Err(wrong(option, "there is no such option")),
            },
        }
        Ok(())
    }
}
