//! What all operations share: the lists, numbers of inodes, locks, what is held, transactions.

use crate::error::{Error, ErrorKind, Result};
use crate::format::{BLOCK, INODE_BLOCK, SHARE, SMALL_BLOCK, SUPER_MAGIC, Super, VERSION};
use crate::gathered::Gathered;
use crate::inodes::Inode;
use crate::locks::Locks;
use crate::numbers::Numbers;
use crate::op::{Op, Seen};
use crate::planted::{self, Bug};
use crate::promise::Promises;
use crate::snapshots::Snapshots;
use crate::transaction::Transactions;
use crate::types::{Caller, Ino, Kind, Statistics, Time, Which};
use crate::view::{Of, View};
use lode::{Disk, ListId, Survive, Volume, VolumeOptions};
use parking_lot::{Mutex, RwLock};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// By this name the first list is found.
const NAME: &str = "inodes";
/// Handles of so many lists are kept.
const HANDLES_MAX: usize = 1024;

/// What there can be, as its lists were made.
struct Most {
    /// Numbers of inodes are smaller.
    inodes: u64,
    /// Bytes of a list.
    content: u64,
}

/// The state of a file system that is open.
pub(crate) struct Files {
    pub disk: Disk,
    pub key: u128,
    most: Most,
    inodes: Volume,
    content: Volume,
    orphans: Volume,
    owners: Volume,
    own: Mutex<HashMap<ListId, Volume>>,
    numbers: Mutex<Numbers>,
    /// Empty lists that are nobody's.
    spare: Mutex<Vec<ListId>>,
    pub promises: Promises,
    pub locks: Locks,
    /// Held by whoever changes anything; a transaction that commits holds it alone.
    pub gate: RwLock<()>,
    /// Odd while the unit of a transaction is being committed.
    pub commits: AtomicU64,
    /// Directories change their places one at a time, so that none comes to lie in itself.
    pub moves: Mutex<()>,
    /// How often each inode was handed out to somebody who has not let go of it.
    pub held: Mutex<HashMap<Ino, u64>>,
    /// Directories of which something was found that cannot be read, and what.
    pub damaged: Mutex<HashMap<Ino, String>>,
    pub transactions: Transactions,
    pub snapshots: Snapshots,
    pub gathered: Gathered,
}

/// A file system on a disk. Cheap to clone.
#[derive(Clone)]
pub struct FileSystem {
    pub(crate) files: Arc<Files>,
}

/// How a file system is made.
#[derive(Clone, Copy, Debug)]
pub struct MakeOptions {
    /// The key of the hashes of names: draw it at random.
    pub key: u128,
    /// Who owns the root, and when it is made.
    pub caller: Caller,
}

fn list_options(disk: &Disk, block_bytes: u32) -> VolumeOptions {
    VolumeOptions { bytes: disk.file_list_bytes(block_bytes), block_bytes, ..VolumeOptions::default() }
}

fn read_super(inodes: &Volume) -> Result<Option<Super>> {
    let mut block = [0; Super::SIZE];
    inodes.read_at(0, &mut block)?;
    let found = Super::decode(&block);
    if found == Super::default() {
        return Ok(None);
    }
    if found.magic != SUPER_MAGIC {
        return Err(Error::new(ErrorKind::NotOurs, "the disk's list of inodes does not begin with a file system"));
    }
    if found.version != VERSION || found.features != 0 {
        return Err(Error::new(
            ErrorKind::NotOurs,
            format!(
                "the file system is of version {} with features {:#x}: expected version {VERSION} and no features. It \
                 was made by a newer version of Lode; use that one",
                found.version, found.features
            ),
        ));
    }
    Ok(Some(found))
}

impl FileSystem {
    /// Whether the disk has one. `NotOurs`: one that this version does not know.
    pub fn is_on(disk: &Disk) -> Result<bool> {
        match disk.file_list_named(NAME)? {
            Some(inodes) => Ok(read_super(&inodes)?.is_some()),
            None => Ok(false),
        }
    }

    /// Makes one: the root, and nothing in it. `Exists`: there is one. The disk may have volumes, too.
    pub fn make(disk: &Disk, options: &MakeOptions) -> Result<()> {
        if Self::is_on(disk)? {
            return Err(Error::new(ErrorKind::Exists, "the disk has a file system already"));
        }
        if let Some(inodes) = disk.file_list_named(NAME)?
            && inodes.next_stored(u64::from(INODE_BLOCK)..u64::MAX)?.is_some()
        {
            let what = "the disk has inodes: expected a superblock in front of them, found none";
            return Err(Error::new(ErrorKind::Damaged, what));
        }
        // What one that was not made to the end has left.
        for list in disk.file_lists() {
            disk.delete_file_list(list)?;
        }
        let make = |name, block| disk.create_file_list(name, &list_options(disk, block));
        let (content, orphans, owners) = (make("", BLOCK)?, make("", SMALL_BLOCK)?, make("", SMALL_BLOCK)?);
        let inodes = make(NAME, INODE_BLOCK)?;
        let head = Super {
            magic: SUPER_MAGIC,
            version: VERSION,
            key: options.key,
            made: options.caller.now.0,
            content: content.list().0,
            orphans: orphans.list().0,
            owners: owners.list().0,
            ..Super::default()
        };
        let files = Files::new(disk, head.key, [inodes, content, orphans, owners]);
        let mut op = files.change(&[Ino::ROOT]);
        let generation = disk.position().0;
        let mut root = Inode::new(Ino::ROOT, Kind::Directory.bits() | 0o755, &options.caller, generation);
        (root.head.links, root.head.parent) = (2, Ino::ROOT.0);
        op.make_buckets(&mut root)?;
        op.put_inode(&root);
        let mut block = Vec::new();
        head.push_to(&mut block);
        op.stage(Which::Inodes, 0, Some(block));
        op.finish()?;
        Ok(())
    }

    /// Opens the one that the disk has. Finishes what a crash left half-done: inodes without a name go, and lists that are
    /// nobody's. Cost: a look at each list of a large file, none at other files. `NotOurs`, `Damaged`.
    pub fn open(disk: &Disk, now: Time) -> Result<FileSystem> {
        let none = || Error::new(ErrorKind::NotOurs, "the disk has no file system: `lode fs make` makes one");
        let inodes = disk.file_list_named(NAME)?.ok_or_else(none)?;
        let head = read_super(&inodes)?.ok_or_else(none)?;
        let list = |number| {
            disk.file_list(ListId(number)).map_err(|error| match error.kind() {
                lode::ErrorKind::NotFound => Error::damaged("the superblock", format!("a list {number}: {error}")),
                _ => error.into(),
            })
        };
        let lists = [inodes, list(head.content)?, list(head.orphans)?, list(head.owners)?];
        let files = Arc::new(Files::new(disk, head.key, lists));
        let found = FileSystem { files };
        if !disk.info()?.read_only {
            found.files.take_up(now)?;
        }
        Ok(found)
    }

    /// What is committed, now and at each later moment.
    pub fn view(&self) -> View {
        View::new(Arc::clone(&self.files), Of::Now, false)
    }

    /// The same for somebody who says when he does not need an inode any more ([`View::release`]): what he was handed out
    /// stays until then, also without a name.
    pub fn holding_view(&self) -> View {
        View::new(Arc::clone(&self.files), Of::Now, true)
    }

    /// The disk that it is on.
    pub fn disk(&self) -> &Disk {
        &self.files.disk
    }

    /// Everything that was done so far survives the loss of power.
    pub fn sync(&self) -> Result<()> {
        self.files.sync()
    }

    /// How much there is, and how much is free.
    pub fn statistics(&self) -> Result<Statistics> {
        let info = self.files.disk.info()?;
        // An inode, its name, and the charge of both.
        let inodes = |bytes: u64| (bytes / 512).min(self.files.inodes_max());
        let (held, taken) = self.held();
        let free = info.free.saturating_add(taken);
        Ok(Statistics { bytes: info.usable, free, held, inodes: inodes(info.usable), free_inodes: inodes(free) })
    }
}

impl Most {
    fn of(inodes: &Volume, content: &Volume, orphans: &Volume) -> Most {
        let blocks = |volume: &Volume| volume.bytes() / u64::from(volume.block_bytes());
        let numbers = blocks(inodes).min(blocks(content) / SHARE).min(blocks(orphans));
        Most { inodes: numbers, content: content.bytes() }
    }
}

impl Files {
    fn new(disk: &Disk, key: u128, [inodes, content, orphans, owners]: [Volume; 4]) -> Files {
        let files = Files {
            most: Most::of(&inodes, &content, &orphans),
            disk: disk.clone(),
            key,
            inodes,
            content,
            orphans,
            owners,
            own: Mutex::default(),
            numbers: Mutex::new(Numbers::new()),
            spare: Mutex::default(),
            promises: Promises::default(),
            locks: Locks::new(disk.position()),
            gate: RwLock::new(()),
            commits: AtomicU64::new(0),
            moves: Mutex::new(()),
            held: Mutex::default(),
            damaged: Mutex::default(),
            transactions: Transactions::default(),
            snapshots: Snapshots::default(),
            gathered: Gathered::default(),
        };
        files.fill_reserve();
        files
    }

    /// Numbers of inodes are smaller.
    pub fn inodes_max(&self) -> u64 {
        self.most.inodes
    }

    /// Numbers of buckets are smaller.
    pub fn buckets_max(&self) -> u64 {
        self.most.content / u64::from(BLOCK)
    }

    /// The largest file.
    pub fn file_max(&self) -> u64 {
        self.most.content.min(1 << 62)
    }

    /// Numbers of blocks of a list are smaller. A file's own may have been deleted by others while a transaction still has it.
    pub fn blocks_max(&self, which: Which) -> u64 {
        match which {
            Which::Inodes | Which::Orphans => self.inodes_max(),
            Which::Content | Which::Own(_) => self.buckets_max(),
            Which::Owners => u64::from(u32::MAX),
        }
    }

    pub fn volume(&self, which: Which) -> Result<Cow<'_, Volume>> {
        Ok(match which {
            Which::Inodes => Cow::Borrowed(&self.inodes),
            Which::Content => Cow::Borrowed(&self.content),
            Which::Orphans => Cow::Borrowed(&self.orphans),
            Which::Owners => Cow::Borrowed(&self.owners),
            Which::Own(list) => Cow::Owned(self.own(list)?),
        })
    }

    fn own(&self, list: ListId) -> Result<Volume> {
        let mut own = self.own.lock();
        if let Some(volume) = own.get(&list) {
            return Ok(volume.clone());
        }
        let volume = self.disk.file_list(list).map_err(|error| match error.kind() {
            lode::ErrorKind::NotFound => Error::damaged(format!("list {}", list.0), "it to be there, as a file says"),
            _ => error.into(),
        })?;
        if own.len() >= HANDLES_MAX {
            own.clear();
        }
        own.insert(list, volume.clone());
        Ok(volume)
    }

    /// Everything that was done so far survives the loss of power.
    pub fn sync(&self) -> Result<()> {
        let settled = self.settle_and_tell();
        self.disk.flush(Survive::Power)?;
        settled
    }

    /// What was done to this inode so far survives the loss of power.
    pub fn sync_one(&self, ino: Ino) -> Result<()> {
        let settled = self.settle_and_tell();
        self.disk.flush_up_to(self.locks.position(ino), Survive::Power)?;
        settled
    }

    /// An operation on what is committed, that may change these inodes.
    pub fn change(&self, inodes: &[Ino]) -> Op<'_> {
        loop {
            if !planted::is(Bug::GatheredComesLate) {
                self.settle();
            }
            let gate = self.gate.read();
            let locked = self.locks.write(inodes);
            if planted::is(Bug::GatheredComesLate) || !self.is_gathered(inodes) {
                return Op::new(self, Seen::Now { locked, _gate: Some(gate) });
            }
        }
    }

    /// What is committed, for who has the gate alone.
    pub fn alone(&self) -> Op<'_> {
        Op::new(self, Seen::Now { locked: self.locks.read(&[]), _gate: None })
    }

    /// Looks at what is committed of these inodes, at one instant: again, if a transaction was committed meanwhile.
    pub fn look<T>(&self, inodes: &[Ino], look: impl FnMut(&Op<'_>) -> Result<T>) -> Result<T> {
        self.settle();
        self.look_only(inodes, look)
    }

    /// The same for who looks at no inodes but these.
    pub fn look_only<T>(&self, inodes: &[Ino], look: impl FnMut(&Op<'_>) -> Result<T>) -> Result<T> {
        self.look_past(inodes, || self.is_gathered(inodes) && !planted::is(Bug::GatheredNotSeen), look)
    }

    /// The same for who looks at what no write changes (G1). `unsettled`: it looks at more than that.
    pub fn look_past<T>(
        &self,
        inodes: &[Ino],
        unsettled: impl Fn() -> bool,
        mut look: impl FnMut(&Op<'_>) -> Result<T>,
    ) -> Result<T> {
        loop {
            let commits = self.commits.load(Ordering::Acquire);
            if commits % 2 == 1 {
                drop(self.gate.read());
                continue;
            }
            let locked = self.locks.read(inodes);
            if unsettled() {
                drop(locked);
                self.settle();
                continue;
            }
            let op = Op::new(self, Seen::Now { locked, _gate: None });
            let found = look(&op);
            if self.commits.load(Ordering::Acquire) == commits {
                return found;
            }
        }
    }

    pub fn take_number(&self) -> Result<Ino> {
        let mut numbers = self.numbers.lock();
        numbers.look_for_holes(&self.inodes, self.transactions.oldest().is_none())?;
        numbers.take(self.inodes_max(), self.transactions.oldest()).ok_or_else(|| {
            Error::new(ErrorKind::Full, format!("all {} inodes that there can be are in use", self.inodes_max()))
        })
    }

    pub fn give_back_numbers(&self, inodes: &[Ino]) {
        if !inodes.is_empty() {
            self.numbers.lock().give_back(inodes);
        }
    }

    /// Inodes are no more. Transactions that are open may still see them.
    pub fn free_numbers(&self, inodes: &[Ino]) {
        if !inodes.is_empty() {
            self.numbers.lock().free(inodes, self.transactions.newest());
        }
    }

    pub fn take_list(&self) -> Result<ListId> {
        if let Some(list) = self.spare.lock().pop() {
            return Ok(list);
        }
        let make = || self.disk.create_file_list("", &list_options(&self.disk, BLOCK)).map(|volume| volume.list());
        Ok(self.lending(make)?)
    }

    pub fn give_back_lists(&self, lists: &[ListId]) {
        if !lists.is_empty() {
            self.spare.lock().extend(lists);
        }
    }

    /// Deletes lists that are nobody's any more. One that cannot be deleted now is at the next opening.
    pub fn condemn(&self, lists: &[ListId]) {
        for list in lists {
            self.own.lock().remove(list);
            let _ = self.disk.delete_file_list(*list);
        }
    }

    /// What an opening has to finish.
    fn take_up(&self, now: Time) -> Result<()> {
        self.numbers.lock().begin_at(&self.inodes)?;
        self.take_up_transactions()?;
        self.take_up_snapshots()?;
        let mut at = 0;
        while let Some(orphan) = self.orphans.next_stored(at..u64::MAX)? {
            let ino = Ino(orphan / u64::from(SMALL_BLOCK));
            match self.reap(ino, now) {
                // It is left as it is.
                Err(error) if error.kind() == ErrorKind::Damaged => {}
                reaped => reaped?,
            }
            at = orphan + u64::from(SMALL_BLOCK);
        }
        let roots = [&self.inodes, &self.content, &self.orphans, &self.owners].map(Volume::list);
        for list in self.disk.file_lists() {
            let small = u64::from(SMALL_BLOCK);
            let at = u64::from(list.0) * small;
            let owned = || self.owners.next_stored(at..at + small);
            if roots.contains(&list) || self.transactions.owns(list) || owned()?.is_some() {
                continue;
            }
            if self.own(list)?.next_stored(0..u64::MAX)?.is_none() {
                self.spare.lock().push(list);
            } else {
                self.condemn(&[list]);
            }
        }
        Ok(())
    }

    /// An inode without a name that nobody needs any more goes.
    pub fn reap(&self, ino: Ino, now: Time) -> Result<()> {
        let mut op = self.change(&[ino]);
        op.frees = true;
        if let Some(inode) = op.find_inode(ino)?.filter(|inode| inode.head.links == 0) {
            if self.held.lock().contains_key(&ino) {
                return Ok(()); // It goes with who holds it.
            }
            op.remove(inode, now)?;
        }
        op.stage(Which::Orphans, ino.0, None);
        op.finish()?;
        Ok(())
    }

    /// Keeps these numbers out of the way.
    pub fn keep_numbers(&self, inodes: impl Iterator<Item = Ino>) {
        self.numbers.lock().keep(inodes);
    }
}
