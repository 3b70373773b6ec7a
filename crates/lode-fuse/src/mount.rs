//! A mounted file system: threads that answer the kernel, and one that tells it what has changed.

use crate::device::Device;
use crate::door::{Door, News, REQUEST_MAX};
use crate::forgotten::Forgotten;
use crate::forgotten::Pause;
use crate::node::{SNAPSHOTS, node};
use crate::ring::{self, Ring};
use crate::views::Views;
use fuser::{BackgroundSession, Config, INodeNo, MountOption, Notifier, Session, SessionACL};
use lode_fs::FileSystem;
use lode_fuse_ring::Queues;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags, unmount};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// So long others have who still use it when it is unmounted.
const PATIENCE: Duration = Duration::from_millis(500);

/// So many threads answer over the device what does not come over a ring.
const BESIDE_RING: usize = 2;
/// The kernel reads ahead so many KiB of what is read in order.
const READ_AHEAD_KIB: &str = "4096";

/// In which order what programs write reaches the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As it is written: what survives a crash is a prefix of what programs did.
    #[default]
    Strict,
    /// The kernel keeps written pages for a while and brings them in an order of its own; `fsync` is needed as on other
    /// file systems.
    Relaxed,
}

/// How requests of the kernel come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Over a ring where the kernel offers that, else over the device.
    #[default]
    Either,
    /// Over a ring (io_uring, Linux 6.14 or later): no processor has to wake another.
    Ring,
    /// Over the device.
    Device,
}

/// How a file system is mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What is mounted, as it is listed.
    pub source: String,
    /// In which order it is written.
    pub order: Order,
    /// Also other users may use it.
    pub allow_other: bool,
    /// Programs run with the rights of their files' owners.
    pub suid: bool,
    /// Devices are devices.
    pub dev: bool,
    /// No programs are run from it.
    pub noexec: bool,
    /// Nothing is changed.
    pub read_only: bool,
    /// Snapshots are shown in `.snapshots`: making a directory there makes one, removing it deletes it.
    pub snapshots: bool,
    /// It is unmounted when this process ends, however that comes.
    pub auto_unmount: bool,
    /// So many threads answer what comes over the device.
    pub threads: usize,
    /// How requests come.
    pub transport: Transport,
}

/// A mounted file system.
pub struct Mount {
    session: BackgroundSession,
    /// Who answers what comes over rings, and whether that is so.
    queues: Option<Queues>,
    ring: bool,
    views: Arc<Views>,
    forgotten: Arc<Forgotten>,
    /// The one that tells the kernel what has changed, and the one that lets go of what it has forgotten.
    helpers: Vec<JoinHandle<()>>,
    /// Where it is, if it was mounted without help.
    point: Option<PathBuf>,
}

/// What fuser is to do; `helped`: it mounts, too.
fn config(options: &MountOptions, helped: bool, ring: bool) -> Config {
    let mut config = Config::default();
    if helped {
        let either = |so: bool, yes: MountOption, no: MountOption| if so { yes } else { no };
        config.mount_options = vec![
            MountOption::FSName(options.source.clone()),
            MountOption::Subtype("lode".to_owned()),
            MountOption::DefaultPermissions,
            either(options.suid, MountOption::Suid, MountOption::NoSuid),
            either(options.dev, MountOption::Dev, MountOption::NoDev),
            either(options.read_only, MountOption::RO, MountOption::RW),
            either(options.noexec, MountOption::NoExec, MountOption::Exec),
        ];
        config.mount_options.extend(options.auto_unmount.then_some(MountOption::AutoUnmount));
    }
    // Ending by itself needs that of fusermount3.
    config.acl = if options.allow_other || options.auto_unmount { SessionACL::All } else { SessionACL::Owner };
    // Beside a ring little comes over the device.
    config.n_threads = Some(if ring { BESIDE_RING } else { options.threads.max(2) });
    config.clone_fd = true;
    config
}

/// Mounts it, and gives back the kernel's end.
fn mount(at: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let kernel = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOEXEC, options.noexec);
    flags.set(MountFlags::RDONLY, options.read_only);
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let other = if options.allow_other { ",allow_other" } else { "" };
    let fd = kernel.as_raw_fd();
    let data = format!("fd={fd},rootmode=40000,user_id={uid},group_id={gid},default_permissions{other}");
    let data = CString::new(data).expect("numbers and words");
    rustix::mount::mount(options.source.as_str(), at, "fuse.lode", flags, data.as_c_str())?;
    Ok(kernel)
}

/// A session of fuser on what is mounted, agreed upon with the kernel; and whether over a ring.
fn begin(
    door: &Arc<Door>,
    at: &Path,
    options: &MountOptions,
    ring: bool,
) -> io::Result<(Session<Device>, Option<PathBuf>, bool)> {
    let ring_agreed = Arc::new(AtomicBool::new(false));
    let relaxed = options.order == Order::Relaxed;
    let pause = Pause::default();
    let device = Device { door: Arc::clone(door), relaxed, ring, ring_agreed: Arc::clone(&ring_agreed), pause };
    let direct = rustix::process::geteuid().is_root() && !options.auto_unmount;
    let config = config(options, !direct, ring);
    let (session, point) = if direct {
        let kernel = mount(at, options)?;
        let session = Session::from_fd(device, kernel, config.acl, config).inspect_err(|_| taken_away(at))?;
        (session, Some(at.canonicalize().unwrap_or_else(|_| at.to_owned())))
    } else {
        (Session::new(device, at, &config)?, None)
    };
    Ok((session, point, ring_agreed.load(Ordering::Acquire)))
}

/// A mount that came to nothing.
fn taken_away(at: &Path) {
    let _ = unmount(at, UnmountFlags::DETACH);
}

/// Whether a ring is to be had. An error: it was asked for, and is not.
fn ring_offered(options: &MountOptions) -> io::Result<bool> {
    let refusal = match options.transport {
        Transport::Device => return Ok(false),
        // fusermount3 looks once whether the process is no more, and while the kernel takes back its rings it is told otherwise.
        _ if options.auto_unmount => Some("not together with auto_unmount, which needs /dev/fuse alone".to_owned()),
        _ => ring::refusal(),
    };
    match refusal {
        Some(why) if options.transport == Transport::Ring => Err(io::Error::new(io::ErrorKind::Unsupported, why)),
        refusal => Ok(refusal.is_none()),
    }
}

/// Answers over rings from now on; not so: the kernel sends over the device after all.
fn answer_rings(door: &Arc<Door>, session: &Session<Device>, transport: Transport) -> io::Result<(Queues, bool)> {
    let server = Arc::new(Ring::new(Arc::clone(door), lode_fuse_ring::entries()?));
    let payload_len = usize::try_from(REQUEST_MAX).expect("32 bits fit in an address");
    let (queues, began) = Queues::start(session.as_fd(), payload_len, &server)?;
    match began {
        Err(error) if transport == Transport::Ring => Err(error),
        began => Ok((queues, began.is_ok())),
    }
}

/// What is read in order is read ahead further. For root; others do without.
fn read_ahead(at: &Path) {
    let Ok(found) = rustix::fs::stat(at) else { return };
    let (major, minor) = (rustix::fs::major(found.st_dev), rustix::fs::minor(found.st_dev));
    let _ = std::fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), READ_AHEAD_KIB);
}

impl Mount {
    /// Mounts it on a directory: by a call of the kernel for root, by fusermount3 for others. `Unsupported`: a ring was asked
    /// for and cannot be had; the error says what to do.
    pub fn new(fs: FileSystem, at: &Path, options: &MountOptions) -> io::Result<Mount> {
        let ring = ring_offered(options)?;
        let views = Arc::new(Views::new(fs, options.snapshots));
        let forgotten = Arc::new(Forgotten::default());
        let (news, told) = channel();
        let news = parking_lot::Mutex::new(news);
        let door = Arc::new(Door { views: Arc::clone(&views), forgotten: Arc::clone(&forgotten), news });
        let (session, point, agreed) = begin(&door, at, options, ring)?;
        let queues = agreed.then(|| answer_rings(&door, &session, options.transport)).transpose();
        let (queues, ring) = queues.inspect_err(|_| taken_away(at))?.unzip();
        let session = session.spawn().inspect_err(|_| taken_away(at))?;
        let notifier = session.notifier();
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let of = Arc::clone(&views);
        let teller = named("lode-teller").spawn(move || tell(&of, &told, &notifier))?;
        let (of, all) = (Arc::clone(&views), Arc::clone(&forgotten));
        let forgetter = named("lode-forgetter").spawn(move || all.run(&of))?;
        read_ahead(at);
        Ok(Mount {
            session,
            queues,
            ring: ring == Some(true),
            views,
            forgotten,
            helpers: vec![teller, forgetter],
            point,
        })
    }

    /// Whether requests come over a ring.
    pub fn has_ring(&self) -> bool {
        self.ring
    }

    /// Whether the kernel has unmounted it.
    pub fn is_over(&self) -> bool {
        self.session.guard.is_finished()
    }

    /// Unmounts it, and gives back the file system once everything that was asked before is answered.
    pub fn unmount(self) -> io::Result<FileSystem> {
        let Mount { session, queues, views, forgotten, helpers, point, .. } = self;
        let fs = views.fs.clone();
        match &point {
            _ if session.guard.is_finished() => session.join()?,
            Some(point) => {
                end(point, &session)?;
                session.join()?;
            }
            None => session.umount_and_join()?,
        }
        if let Some(queues) = queues {
            queues.join();
        }
        forgotten.end();
        for helper in helpers {
            let _ = helper.join();
        }
        Ok(fs)
    }
}

/// Unmounts it; who still uses it gets an error from then on.
fn end(point: &Path, session: &BackgroundSession) -> io::Result<()> {
    let connection = rustix::fs::stat(point).map(|found| rustix::fs::minor(found.st_dev))?;
    unmount(point, UnmountFlags::empty()).or_else(|_| unmount(point, UnmountFlags::FORCE | UnmountFlags::DETACH))?;
    let patience = Instant::now() + PATIENCE;
    while !session.guard.is_finished() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(2));
    }
    if session.guard.is_finished() { Ok(()) } else { abort(connection) }
}

/// Ends a connection that other mount namespaces still have.
fn abort(connection: u32) -> io::Result<()> {
    let control = Path::new("/sys/fs/fuse/connections");
    let abort = control.join(connection.to_string()).join("abort");
    if !abort.exists() {
        rustix::mount::mount("fusectl", control, "fusectl", MountFlags::empty(), None)?;
    }
    std::fs::write(abort, "1")
}

/// Tells the kernel what a transaction has changed, and then who committed it. Ends transactions whose process has ended.
fn tell(views: &Views, told: &Receiver<News>, notifier: &Notifier) {
    let mut turns = views.fs.snapshot_turns();
    loop {
        // Those that nobody has made or deleted through the kernel.
        let now = views.fs.snapshot_turns();
        if std::mem::replace(&mut turns, now) != now {
            let _ = notifier.inval_inode(INodeNo(node(0, SNAPSHOTS).0), 0, 0);
        }
        match told.recv_timeout(Duration::from_millis(200)) {
            Ok(News { committed, told }) => {
                // Those of the transaction that it has become a part of, if it was within one.
                let view = committed.within.map_or(Some(0), |outer| views.number_of(outer));
                let node = |ino| INodeNo(node(view.unwrap_or(0), ino).0);
                for (directory, name) in &committed.names {
                    // What the kernel does not know need not be forgotten.
                    let _ = notifier.inval_entry(node(*directory), OsStr::from_bytes(name));
                    let _ = notifier.inval_inode(node(*directory), 0, 0);
                }
                for ino in &committed.inodes {
                    let _ = notifier.inval_inode(node(*ino), 0, 0);
                }
                told();
            }
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => end_orphans(views),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// A transaction that is not kept dies with its process.
fn end_orphans(views: &Views) {
    for number in views.numbers() {
        let Some(open) = views.get(number) else { continue };
        let kept = || {
            views.fs.transactions().iter().any(|info| info.number == open.transaction.number() && info.name.is_some())
        };
        let pid = i32::try_from(open.pid).ok().and_then(rustix::process::Pid::from_raw);
        let gone = pid.is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH));
        if gone && !kept() {
            views.forget(number);
            open.transaction.abort();
        }
    }
}
