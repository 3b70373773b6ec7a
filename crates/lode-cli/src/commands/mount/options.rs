//! What stands behind `-o`, on the command line and in `/etc/fstab`.

use super::Arguments;
use crate::failure::{Failure, Result};
use crate::serving::Where;
use crate::size;
use lode_fs::{Gathering, Retention};
use lode_fuse::{MountOptions, Order, Transport};
use std::time::Duration;

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

/// So many snapshots of one schedule may be kept; each costs two records at an opening.
const KEPT_MAX: usize = 10_000;
/// They are as far apart as the names of times can tell, at least.
const EVERY_MIN: Duration = Duration::from_secs(1);

/// All that was asked for.
pub struct Options {
    /// How it is mounted.
    pub mount: MountOptions,
    /// Snapshots that are made by themselves.
    pub retained: Vec<Retention>,
    /// What lies scattered is put in order when nobody works.
    pub reorganize: bool,
    /// Bytes that are held for files.
    pub hold: u64,
    /// Bytes of memory for what is written here and there in large files.
    pub gather: Option<u64>,
    /// Where volumes are served.
    pub at: Where,
}

fn wrong(option: &str, what: &str) -> Failure {
    Failure::usage(format!("-o {option}: {what}"))
}

/// `1h:24`: one every hour, and the last 24 are kept.
fn retention(often: &str) -> std::result::Result<Retention, String> {
    let what = || format!("expected how often and how many are kept, such as 1h:24, found {often:?}");
    let (every, keep) = often.split_once(':').ok_or_else(what)?;
    let keep = keep.parse().ok().filter(|keep| (1..=KEPT_MAX).contains(keep)).ok_or_else(what)?;
    let time = humantime::parse_duration(every).map_err(|_| what())?;
    let time = u64::try_from(time.as_nanos()).ok().filter(|_| time >= EVERY_MIN).ok_or_else(what)?;
    Ok(Retention { name: every.to_owned(), every: time, keep })
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
        let at = arguments.at.clone();
        let mut options = Options { mount, retained: Vec::new(), reorganize: false, hold: 0, gather: None, at };
        for option in arguments.option.iter().filter(|option| !option.is_empty()) {
            options.take(option, arguments.sloppy)?;
        }
        if options.at.socket.is_some() && options.at.listen.is_some() {
            return Err(wrong("socket,listen", "expected one of them, found both"));
        }
        Ok(options)
    }

    /// How much is gathered. Where the kernel keeps what is written for a while, it has put that in order already, but in
    /// shorter stretches.
    pub fn gathering(&self) -> Gathering {
        let bytes = self.gather.and_then(|bytes| usize::try_from(bytes).ok()).filter(|_| !self.mount.read_only);
        let most = if self.mount.read_only { 0 } else { Gathering::default().bytes };
        Gathering { bytes: bytes.unwrap_or(most), ..Gathering::default() }
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
                Some(("gather", bytes)) => {
                    self.gather = Some(size::parse(bytes).map_err(|what| wrong(option, &what))?);
                }
                Some(("snapshots", often)) => {
                    self.mount.snapshots = true;
                    self.retained.push(retention(often).map_err(|what| wrong(option, &what))?);
                }
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
