//! The transport over `/dev/fuse`, by fuser: its calls as those of the door, answers as its replies. It translates only.

use crate::door::{
    ASKED, Answer, Answered, Asker, BELIEVED, BLOCK, Door, Known, Looked, NAME_MAX, REQUEST_MAX, Value, fitted,
    made_up, now,
};
use crate::forgotten::Pause;
use crate::node::{Node, TRANSACTIONS, node};
use fuser::{
    CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use lode_fs::{Changes, Kind, New, Time};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// See the file's head.
pub(crate) struct Device {
    pub door: Arc<Door>,
    /// The kernel keeps written pages for a while.
    pub relaxed: bool,
    /// The kernel is asked for requests over a ring.
    pub ring: bool,
    /// Whether it has agreed.
    pub ring_agreed: Arc<AtomicBool>,
    pub pause: Pause,
}

fn time_of(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Time::new(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            Time(Time::new(-seconds, 0).0.saturating_sub(i64::from(before.subsec_nanos())))
        }
    }
}

fn system_time(time: Time) -> SystemTime {
    let (seconds, nanoseconds) = time.parts();
    let nanoseconds = Duration::from_nanos(u64::from(nanoseconds));
    match u64::try_from(seconds) {
        Ok(seconds) => UNIX_EPOCH + Duration::from_secs(seconds) + nanoseconds,
        Err(_) => UNIX_EPOCH - Duration::from_secs(seconds.unsigned_abs()) + nanoseconds,
    }
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Link => FileType::Symlink,
        Kind::CharacterDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
    }
}

fn attributes(known: &Known) -> FileAttr {
    let found = &known.found;
    FileAttr {
        ino: INodeNo(known.node.0),
        size: found.size,
        blocks: found.stored / 512,
        atime: system_time(found.accessed),
        mtime: system_time(found.modified),
        ctime: system_time(found.changed),
        crtime: system_time(found.made),
        kind: file_type(found.kind),
        perm: u16::try_from(found.permissions).expect("twelve bits"),
        nlink: found.links,
        uid: found.uid,
        gid: found.gid,
        rdev: found.device,
        blksize: BLOCK,
        flags: 0,
    }
}

fn generation(known: &Known) -> Generation {
    Generation(known.found.generation)
}

fn asker(request: &Request) -> Asker {
    Asker { uid: request.uid(), gid: request.gid(), pid: request.pid() }
}

fn at(node: INodeNo) -> Node {
    Node(node.0)
}

fn number(error: rustix::io::Errno) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

fn entry(reply: ReplyEntry, found: &Answer<Known>) {
    match found {
        Ok(known) => reply.entry(&known.believed, &attributes(known), generation(known)),
        Err(error) => reply.error(number(*error)),
    }
}

fn empty(reply: ReplyEmpty, done: Answer<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(number(error)),
    }
}

fn attr(reply: ReplyAttr, found: &Answer<Known>) {
    match found {
        Ok(known) => reply.attr(&known.believed, &attributes(known)),
        Err(error) => reply.error(number(*error)),
    }
}

fn written(reply: ReplyWrite, done: Answer<u32>) {
    match done {
        Ok(bytes) => reply.written(bytes),
        Err(error) => reply.error(number(error)),
    }
}

fn value(reply: ReplyXattr, value: Answer<Value>) {
    match value {
        Ok(Value::Bytes(bytes)) => reply.data(&bytes),
        Ok(Value::Length(len)) => reply.size(len),
        Err(error) => reply.error(number(error)),
    }
}

/// What is asked of the kernel, as far as it has it: what it does not have is done without.
fn wanted(relaxed: bool) -> impl Iterator<Item = InitFlags> {
    let always = [
        InitFlags::FUSE_DO_READDIRPLUS,
        InitFlags::FUSE_READDIRPLUS_AUTO,
        InitFlags::FUSE_PARALLEL_DIROPS,
        InitFlags::FUSE_POSIX_ACL,
        InitFlags::FUSE_DONT_MASK,
        InitFlags::FUSE_CACHE_SYMLINKS,
        InitFlags::FUSE_NO_OPEN_SUPPORT,
        InitFlags::FUSE_NO_OPENDIR_SUPPORT,
        InitFlags::FUSE_EXPORT_SUPPORT,
        InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    ];
    always.into_iter().chain(relaxed.then_some(InitFlags::FUSE_WRITEBACK_CACHE))
}

impl Filesystem for Device {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        for flag in wanted(self.relaxed) {
            let _ = config.add_capabilities(flag);
        }
        if self.ring && config.add_capabilities(InitFlags::FUSE_OVER_IO_URING).is_ok() {
            self.ring_agreed.store(true, Ordering::Release);
        }
        let _ = config.set_max_write(REQUEST_MAX);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.door.lookup(asker(request), at(parent), name.as_bytes()) {
            Ok(Looked::Here(known)) => {
                reply.entry(&known.believed, &attributes(&known), generation(&known));
            }
            Ok(Looked::Nothing) => {
                let nothing = FileAttr { ino: INodeNo(0), ..attributes(&made_up(node(0, TRANSACTIONS))) };
                reply.entry_with_ttls(&ASKED, &BELIEVED, &nothing, Generation(0));
            }
            Err(error) => reply.error(number(error)),
        }
    }

    fn forget(&self, _request: &Request, node: INodeNo, times: u64) {
        self.door.forget(at(node), times);
        // Beside a ring little else comes.
        if self.ring_agreed.load(Ordering::Relaxed) {
            self.pause.take();
        }
    }

    fn getattr(&self, _request: &Request, node: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        attr(reply, &self.door.attributes(at(node)));
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        changed: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _made: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _archived: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let now = now();
        let time = |time: TimeOrNow| match time {
            TimeOrNow::SpecificTime(time) => time_of(time),
            TimeOrNow::Now => now,
        };
        let changes = Changes {
            permissions: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            accessed: accessed.map(time),
            modified: modified.map(time),
        };
        // The kernel says whether privileges are to go, but fuser does not pass it on: they go by a change of owner, and when
        // anybody but root cuts the file.
        let drops = uid.is_some() || gid.is_some() || (size.is_some() && request.uid() != 0);
        attr(reply, &self.door.set_attributes(at(node), &changes, drops, changed.map(time_of)));
    }

    fn readlink(&self, _request: &Request, node: INodeNo, reply: ReplyData) {
        match self.door.read_link(at(node)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(number(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        entry(reply, &self.door.make_node(asker(request), at(parent), name.as_bytes(), (mode, umask), device));
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let new = New::directory(mode & 0o7777);
        entry(reply, &self.door.make(asker(request), at(parent), name.as_bytes(), &new, umask));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let new = New::link(target.as_os_str().as_bytes());
        entry(reply, &self.door.make(asker(request), at(parent), name.as_bytes(), &new, 0));
    }

    // The kernel uses `mknod`, and need not tell that a file is closed.
    fn create(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn link(&self, _request: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(reply, &self.door.link(at(node), at(parent), name.as_bytes()));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.door.unlink(at(parent), name.as_bytes()));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.door.remove_directory(at(parent), name.as_bytes()));
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        empty(reply, self.door.rename((at(parent), name.as_bytes()), (at(to), new_name.as_bytes()), flags.bits()));
    }

    // Nothing is done at an opening: the kernel need not ask again.
    fn open(&self, _request: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _request: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn flush(&self, _request: &Request, _node: INodeNo, _handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; usize::try_from(size).expect("32 bits fit in an address")];
        match self.door.read(at(node), offset, &mut bytes) {
            Ok(len) => reply.data(&bytes[..len]),
            Err(error) => reply.error(number(error)),
        }
    }

    fn write(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        write: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let drops = write.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        written(reply, self.door.write(at(node), offset, bytes, drops));
    }

    fn fsync(&self, _request: &Request, node: INodeNo, _handle: FileHandle, _data: bool, reply: ReplyEmpty) {
        empty(reply, self.door.flush(at(node)));
    }

    fn fsyncdir(&self, _request: &Request, node: INodeNo, _handle: FileHandle, _data: bool, reply: ReplyEmpty) {
        empty(reply, self.door.flush_all(at(node)));
    }

    fn readdir(&self, _request: &Request, node: INodeNo, _handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let done = self.door.list(at(node), offset, &mut |node, entry| {
            !reply.add(INodeNo(node.0), entry.next, file_type(entry.kind), OsStr::from_bytes(&entry.name))
        });
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(number(error)),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let done = self.door.list_looked_up(at(node), offset, &mut |known, entry| {
            let name = OsStr::from_bytes(&entry.name);
            let node = INodeNo(known.node.0);
            !reply.add(node, entry.next, name, &known.believed, &attributes(known), generation(known))
        });
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(number(error)),
        }
    }

    fn statfs(&self, _request: &Request, _node: INodeNo, reply: ReplyStatfs) {
        match self.door.statistics() {
            Ok(found) => {
                let blocks = |bytes: u64| bytes / u64::from(BLOCK);
                let free = blocks(found.free);
                let (inodes, free_inodes) = (found.inodes, found.free_inodes);
                reply.statfs(blocks(found.bytes), free, free, inodes, free_inodes, BLOCK, NAME_MAX, BLOCK);
            }
            Err(error) => reply.error(number(error)),
        }
    }

    fn setxattr(
        &self,
        _request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        empty(reply, self.door.set_extended(at(node), name.as_bytes(), value, flags.cast_unsigned()));
    }

    fn getxattr(&self, request: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        match self.door.extended(asker(request), at(node), name.as_bytes(), size) {
            Answered::Now(found) => value(reply, found),
            Answered::Later(committed) => {
                self.door.tell(committed, Box::new(move || reply.data(&crate::control::done(0, b""))));
            }
        }
    }

    fn listxattr(&self, _request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        value(reply, self.door.extended_names(at(node)).and_then(|names| fitted(size, names)));
    }

    fn removexattr(&self, _request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.door.remove_extended(at(node), name.as_bytes()));
    }

    fn fallocate(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        empty(reply, self.door.allocate(at(node), offset, length, mode.cast_unsigned()));
    }

    fn lseek(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.door.seek(at(node), offset.cast_unsigned(), whence.cast_unsigned()) {
            Ok(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
            Err(error) => reply.error(number(error)),
        }
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        from: INodeNo,
        _from_handle: FileHandle,
        offset: u64,
        to: INodeNo,
        _to_handle: FileHandle,
        to_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        written(reply, self.door.copy((at(from), offset), (at(to), to_offset), length));
    }
}
