//! Requests of the kernel as calls of the file system, and its answers as replies.

use crate::control::{self, Question};
use crate::errno::errno;
use crate::node::{TRANSACTIONS, TRANSACTIONS_NAME, node, parts};
use crate::views::Views;
use fuser::{
    CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use lode_fs::{
    Allocation, Attributes, Caller, Changes, Committed, Conflicts, Entry, ErrorKind, Ino, Kind, New, Renaming, Setting,
    Time, View,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The kernel may believe what it was told for so long: it is told when something changes behind its back.
const BELIEVED: Duration = Duration::from_secs(24 * 60 * 60);
/// What depends on who asks is asked each time.
const ASKED: Duration = Duration::ZERO;
/// Bytes of a block, as programs are told.
const BLOCK: u32 = 4096;
/// Whence of `lseek`.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Something that the kernel has copies of has changed; who asked for it is told when it knows.
pub(crate) struct News {
    pub committed: Committed,
    pub reply: ReplyXattr,
}

/// See the file's head.
pub(crate) struct Door {
    pub views: Arc<Views>,
    pub relaxed: bool,
    /// Numbers of nodes of the kernel are the inode's own in what is committed.
    pub news: parking_lot::Mutex<Sender<News>>,
}

type Answer<T> = Result<T, Errno>;

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

pub(crate) fn now() -> Time {
    time_of(SystemTime::now())
}

fn caller(request: &Request, umask: u32) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), umask, now: now() }
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

fn attributes(view: u64, found: &Attributes) -> FileAttr {
    FileAttr {
        ino: node(view, found.ino),
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

/// The directory of transactions. Whoever may look into one of them is asked there.
fn transactions_directory() -> FileAttr {
    let root = Attributes {
        ino: Ino(TRANSACTIONS.0),
        generation: 0,
        kind: Kind::Directory,
        permissions: 0o711,
        links: 2,
        uid: 0,
        gid: 0,
        device: 0,
        size: 0,
        stored: 0,
        accessed: Time(0),
        modified: Time(0),
        changed: Time(0),
        made: Time(0),
    };
    FileAttr { ino: TRANSACTIONS, ..attributes(0, &Attributes { ino: Ino(1), ..root }) }
}

/// A name that does not exist, to be remembered.
fn no_name() -> FileAttr {
    FileAttr { ino: INodeNo(0), ..transactions_directory() }
}

fn told<T>(result: lode_fs::Result<T>) -> Answer<T> {
    result.map_err(|error| errno(&error))
}

impl Door {
    fn at(&self, at: INodeNo) -> Answer<(u64, View, Ino)> {
        let (view, ino) = parts(at);
        if at == TRANSACTIONS {
            return Err(Errno::EPERM);
        }
        Ok((view, self.views.view(view).ok_or(Errno::ESTALE)?, ino))
    }

    /// Whether somebody may look into a transaction, or end it.
    fn may(&self, request: &Request, number: u64) -> bool {
        let owner = self.views.get(number).map(|open| open.uid);
        owner.is_some_and(|owner| request.uid() == 0 || request.uid() == owner)
    }

    fn lookup_transaction(&self, request: &Request, name: &OsStr) -> Answer<FileAttr> {
        let number = name.to_str().and_then(|name| name.parse().ok()).filter(|number| self.may(request, *number));
        let number: u64 = number.ok_or(Errno::ENOENT)?;
        let view = self.views.view(number).ok_or(Errno::ENOENT)?;
        Ok(attributes(number, &told(view.hold(Ino::ROOT))?))
    }

    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new: &New<'_>,
        umask: u32,
    ) -> Answer<(FileAttr, Generation)> {
        let (number, view, parent) = self.at(parent)?;
        let found = told(view.make(parent, name.as_bytes(), new, &caller(request, umask)))?;
        Ok((attributes(number, &found), Generation(found.generation)))
    }

    fn entry(reply: ReplyEntry, found: Answer<(FileAttr, Generation)>) {
        match found {
            Ok((found, generation)) => reply.entry(&BELIEVED, &found, generation),
            Err(error) => reply.error(error),
        }
    }

    fn empty(reply: ReplyEmpty, done: Answer<()>) {
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn listed(&self, ino: INodeNo, from: u64, tell: &mut dyn FnMut(u64, &View, &Entry) -> bool) -> Answer<()> {
        if ino == TRANSACTIONS {
            return Ok(());
        }
        let (number, view, ino) = self.at(ino)?;
        told(view.list(ino, from, &mut |entry| tell(number, &view, entry)))
    }

    /// What a program asks of transactions. None: it is answered once the kernel knows what has changed.
    fn answer(&self, request: &Request, question: &Question) -> Result<Answered, lode_fs::Error> {
        let views = &self.views;
        Ok(Answered::Now(match question {
            Question::Begin(loose) => {
                let conflicts = if *loose { Conflicts::Changed } else { Conflicts::Read };
                control::done(views.begin(conflicts, request.uid(), request.pid(), now())?, b"")
            }
            Question::Find(name) => {
                let number = views.named(name, request.uid())?;
                if !self.may(request, number) {
                    return Ok(Answered::Now(control::refused(
                        Errno::EACCES.code(),
                        "the transaction is somebody else's",
                    )));
                }
                control::done(number, b"")
            }
            Question::List => {
                let mut text = String::new();
                for info in views.fs.transactions() {
                    let number = match (views.number_of(info.number), &info.name) {
                        (None, Some(name)) => Some(views.named(name, 0)?),
                        (known, _) => known,
                    };
                    if let Some(number) = number.filter(|number| self.may(request, *number)) {
                        text.push_str(&control::listed_as_text(number, &info));
                    }
                }
                control::done(0, text.as_bytes())
            }
            Question::Commit(number)
            | Question::Abort(number)
            | Question::Keep(number, _)
            | Question::Differences(number, _) => {
                let Some(open) = views.get(*number) else { return Ok(Answered::Now(no_transaction(*number))) };
                match question {
                    Question::Commit(_) => {
                        let committed = open.transaction.commit(now())?;
                        views.forget(*number);
                        // A command that succeeds is durable.
                        views.fs.sync()?;
                        return Ok(Answered::Later(committed));
                    }
                    Question::Keep(_, name) => open.transaction.keep(name)?,
                    Question::Differences(_, from) => {
                        let all = open.transaction.differences()?;
                        return Ok(Answered::Now(control::done(*number, &control::differences_as_text(&all, *from))));
                    }
                    _ => {
                        views.forget(*number);
                        open.transaction.abort();
                    }
                }
                control::done(*number, b"")
            }
        }))
    }

    /// `within`: the transaction that who asks is in.
    fn control(
        &self,
        request: &Request,
        within: u64,
        question: Result<Question, String>,
        size: u32,
        reply: ReplyXattr,
    ) {
        let question = match question {
            Ok(question) => question,
            Err(why) => return sized(reply, size, Ok(control::refused(Errno::EINVAL.code(), &why))),
        };
        // Who asks how long the answer is gets the most that it can be: nothing is done for that.
        if size == 0 {
            return reply.size(1 << 16);
        }
        if within != 0 && matches!(question, Question::Begin(_)) {
            let why = format!("this is transaction {within} already: there are none within one");
            return sized(reply, size, Ok(control::refused(Errno::EOPNOTSUPP.code(), &why)));
        }
        if let Some(number) = question.about().filter(|number| !self.may(request, *number)) {
            return sized(reply, size, Ok(no_transaction(number)));
        }
        match self.answer(request, &question) {
            Ok(Answered::Now(answer)) => sized(reply, size, Ok(answer)),
            Ok(Answered::Later(committed)) => {
                if let Err(unsent) = self.news.lock().send(News { committed, reply }) {
                    unsent.0.reply.data(&control::done(0, b""));
                }
            }
            Err(error) => sized(reply, size, Ok(control::refused(errno(&error).code(), &error.to_string()))),
        }
    }
}

/// When a question is answered.
enum Answered {
    Now(Vec<u8>),
    /// Once the kernel has forgotten what was changed.
    Later(Committed),
}

fn no_transaction(number: u64) -> Vec<u8> {
    control::refused(Errno::ENOENT.code(), &format!("there is no transaction {number}"))
}

impl Filesystem for Door {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let wanted = [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_POSIX_ACL,
            InitFlags::FUSE_DONT_MASK,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_NO_OPEN_SUPPORT,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
            InitFlags::FUSE_EXPORT_SUPPORT,
        ];
        for flag in wanted {
            // What a kernel does not have is done without.
            let _ = config.add_capabilities(flag);
        }
        if self.relaxed {
            let _ = config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE);
        }
        let _ = config.set_max_write(1 << 20);
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == TRANSACTIONS {
            return match self.lookup_transaction(request, name) {
                Ok(found) => reply.entry_with_ttls(&BELIEVED, &ASKED, &found, Generation(0)),
                Err(error) => reply.error(error),
            };
        }
        if parent == node(0, Ino::ROOT) && name.as_bytes() == TRANSACTIONS_NAME {
            return reply.entry(&BELIEVED, &transactions_directory(), Generation(0));
        }
        let (number, view, parent) = match self.at(parent) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        match view.lookup(parent, name.as_bytes()) {
            Ok(found) => reply.entry(&BELIEVED, &attributes(number, &found), Generation(found.generation)),
            // The kernel remembers that, too.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                reply.entry_with_ttls(&ASKED, &BELIEVED, &no_name(), Generation(0));
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn forget(&self, _request: &Request, ino: INodeNo, times: u64) {
        // Of a transaction that has ended nothing is held.
        if let Ok((_, view, ino)) = self.at(ino) {
            let _ = view.release(ino, times, now());
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        if ino == TRANSACTIONS {
            return reply.attr(&BELIEVED, &transactions_directory());
        }
        match self.at(ino).and_then(|(number, view, ino)| Ok(attributes(number, &told(view.attributes(ino))?))) {
            Ok(found) => reply.attr(&BELIEVED, &found),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
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
        let done = self
            .at(ino)
            .and_then(|(number, view, ino)| Ok(attributes(number, &told(view.set_attributes(ino, &changes, now))?)));
        match done {
            Ok(found) => reply.attr(&BELIEVED, &found),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.at(ino).and_then(|(_, view, ino)| told(view.read_link(ino))) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
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
        let Some(kind) = Kind::of(mode) else { return reply.error(Errno::EINVAL) };
        let new = New { kind, permissions: mode & 0o7777, device, target: b"" };
        Self::entry(reply, self.make(request, parent, name, &new, umask));
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        Self::entry(reply, self.make(request, parent, name, &New::directory(mode & 0o7777), umask));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let new = New::link(target.as_os_str().as_bytes());
        Self::entry(reply, self.make(request, parent, name, &new, 0));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.make(request, parent, name, &New::file(mode & 0o7777), umask) {
            Ok((found, generation)) => {
                reply.created(&BELIEVED, &found, generation, FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(error) => reply.error(error),
        }
    }

    fn link(&self, _request: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let done = self.at(ino).and_then(|(number, view, ino)| {
            let (other, _, parent) = self.at(parent)?;
            if other != number {
                return Err(Errno::EXDEV);
            }
            let found = told(view.link(ino, parent, name.as_bytes(), now()))?;
            Ok((attributes(number, &found), Generation(found.generation)))
        });
        Self::entry(reply, done);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        Self::empty(
            reply,
            self.at(parent).and_then(|(_, view, parent)| told(view.unlink(parent, name.as_bytes(), now()))),
        );
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.at(parent);
        let done = done.and_then(|(_, view, parent)| told(view.remove_directory(parent, name.as_bytes(), now())));
        Self::empty(reply, done);
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
        let how = match flags {
            flags if flags.is_empty() => Renaming::Replace,
            RenameFlags::RENAME_NOREPLACE => Renaming::Keep,
            RenameFlags::RENAME_EXCHANGE => Renaming::Exchange,
            _ => return reply.error(Errno::EINVAL),
        };
        let done = self.at(parent).and_then(|(number, view, parent)| {
            let (other, _, to) = self.at(to)?;
            if other != number {
                return Err(Errno::EXDEV);
            }
            told(view.rename(parent, name.as_bytes(), to, new_name.as_bytes(), how, now()))
        });
        Self::empty(reply, done);
    }

    // Nothing is done at an opening: the kernel need not ask again.
    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn flush(&self, _request: &Request, _ino: INodeNo, _handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; usize::try_from(size).expect("32 bits fit in an address")];
        match self.at(ino).and_then(|(_, view, ino)| told(view.read(ino, offset, &mut bytes))) {
            Ok(len) => reply.data(&bytes[..len]),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        _write: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.at(ino).and_then(|(_, view, ino)| told(view.write(ino, offset, bytes, now()))) {
            Ok(()) => reply.written(u32::try_from(bytes.len()).expect("a request is small")),
            Err(error) => reply.error(error),
        }
    }

    fn fsync(&self, _request: &Request, ino: INodeNo, _handle: FileHandle, _data: bool, reply: ReplyEmpty) {
        Self::empty(reply, self.at(ino).and_then(|(_, view, ino)| told(view.flush(ino))));
    }

    fn fsyncdir(&self, _request: &Request, ino: INodeNo, _handle: FileHandle, _data: bool, reply: ReplyEmpty) {
        Self::empty(reply, self.at(ino).and_then(|(_, view, ino)| told(view.flush(ino))));
    }

    fn readdir(&self, _request: &Request, ino: INodeNo, _handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let done = self.listed(ino, offset, &mut |number, _, entry| {
            let at = node(number, entry.ino);
            !reply.add(at, entry.next, file_type(entry.kind), OsStr::from_bytes(&entry.name))
        });
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let done = self.listed(ino, offset, &mut |number, view, entry| {
            let name = OsStr::from_bytes(&entry.name);
            // The kernel counts neither of these as looked up.
            let dots = entry.name == b"." || entry.name == b"..";
            let found = if dots { view.attributes(entry.ino) } else { view.hold(entry.ino) };
            // One that is gone by now.
            let Ok(found) = found else { return true };
            let full = reply.add(
                node(number, entry.ino),
                entry.next,
                name,
                &BELIEVED,
                &attributes(number, &found),
                Generation(found.generation),
            );
            if full && !dots {
                let _ = view.release(entry.ino, 1, now());
            }
            !full
        });
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        match self.views.fs.statistics() {
            Ok(found) => {
                let blocks = |bytes: u64| bytes / u64::from(BLOCK);
                let free = blocks(found.free);
                reply.statfs(blocks(found.bytes), free, free, found.inodes, found.free_inodes, BLOCK, 255, BLOCK);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn setxattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let how = match flags {
            0 => Setting::Any,
            1 => Setting::Create,
            2 => Setting::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        if name.as_bytes().starts_with(b"lode.") {
            return reply.error(Errno::EPERM);
        }
        let done = self.at(ino);
        let done = done.and_then(|(_, view, ino)| told(view.set_attribute(ino, name.as_bytes(), value, how, now())));
        Self::empty(reply, done);
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if let Some(question) = Question::of(name.as_bytes()) {
            let (within, _) = parts(ino);
            return self.control(request, within, question, size, reply);
        }
        sized(reply, size, self.at(ino).and_then(|(_, view, ino)| told(view.attribute(ino, name.as_bytes()))));
    }

    fn listxattr(&self, _request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.at(ino).and_then(|(_, view, ino)| told(view.attribute_names(ino)));
        let names = names.map(|names| names.into_iter().flat_map(|name| [name, vec![0]]).flatten().collect());
        sized(reply, size, names);
    }

    fn removexattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.at(ino);
        Self::empty(reply, done.and_then(|(_, view, ino)| told(view.remove_attribute(ino, name.as_bytes(), now()))));
    }

    fn fallocate(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let how = match mode {
            0 => Allocation::Grow,
            1 => Allocation::Keep,
            3 => Allocation::Punch,
            0x10 => Allocation::Zero,
            0x11 => Allocation::ZeroKeep,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        Self::empty(
            reply,
            self.at(ino).and_then(|(_, view, ino)| told(view.allocate(ino, how, offset, length, now()))),
        );
    }

    fn lseek(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let hole = match whence {
            SEEK_DATA => false,
            SEEK_HOLE => true,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        match self.at(ino).and_then(|(_, view, ino)| told(view.seek(ino, hole, offset))) {
            Ok(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
            Err(error) => reply.error(error),
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
        let done = self.at(from).and_then(|(number, view, from)| {
            let (other, _, to) = self.at(to)?;
            if other != number {
                return Err(Errno::EXDEV);
            }
            told(view.copy(from, offset, to, to_offset, length.min(1 << 30), now()))
        });
        match done {
            Ok(done) => reply.written(u32::try_from(done).expect("cut to a gibibyte")),
            Err(error) => reply.error(error),
        }
    }
}

/// A value for who has room for `size` bytes; for who has none, how long it is.
fn sized(reply: ReplyXattr, size: u32, value: Answer<Vec<u8>>) {
    match value {
        Err(error) => reply.error(error),
        Ok(value) => match u32::try_from(value.len()) {
            Ok(len) if size == 0 => reply.size(len),
            Ok(len) if len <= size => reply.data(&value),
            _ => reply.error(Errno::ERANGE),
        },
    }
}
