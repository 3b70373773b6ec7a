//! Plain data: what callers give and get.

use lode::ListId;

/// The number of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The directory that everything lies in.
    pub const ROOT: Ino = Ino(1);
}

impl std::fmt::Display for Ino {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "inode {}", self.0)
    }
}

/// A moment, in nanoseconds since 1970: from 1677 to 2262. What lies outside is taken for the nearest of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub i64);

impl Time {
    /// Of seconds and nanoseconds.
    pub fn new(seconds: i64, nanoseconds: u32) -> Time {
        Time(seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(nanoseconds)))
    }

    /// Seconds, rounded down, and nanoseconds behind them.
    pub fn parts(self) -> (i64, u32) {
        let nanoseconds = self.0.rem_euclid(1_000_000_000);
        (self.0.div_euclid(1_000_000_000), u32::try_from(nanoseconds).expect("less than a billion"))
    }
}

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file with content.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device read and written by characters.
    CharacterDevice,
    /// A device read and written by blocks.
    BlockDevice,
    /// A pipe with a name.
    Fifo,
    /// A socket with a name.
    Socket,
}

/// The bits of a mode that say what it is of.
pub(crate) const MODE_KIND: u32 = 0o170_000;
/// The bits of a mode that can be changed.
pub(crate) const MODE_BITS: u32 = 0o7777;
/// New entries of a directory get its group.
pub(crate) const MODE_SETGID: u32 = 0o2000;

impl Kind {
    const ALL: [(Kind, u32); 7] = [
        (Kind::Fifo, 0o010_000),
        (Kind::CharacterDevice, 0o020_000),
        (Kind::Directory, 0o040_000),
        (Kind::BlockDevice, 0o060_000),
        (Kind::File, 0o100_000),
        (Kind::Link, 0o120_000),
        (Kind::Socket, 0o140_000),
    ];

    /// As it stands in a mode.
    pub fn bits(self) -> u32 {
        Self::ALL.into_iter().find(|(kind, _)| *kind == self).expect("one of all").1
    }

    /// What a mode says.
    pub fn of(mode: u32) -> Option<Kind> {
        Self::ALL.into_iter().find(|(_, bits)| *bits == mode & MODE_KIND).map(|(kind, _)| kind)
    }
}

/// For whom something is done, and when.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller {
    /// Who owns what is made.
    pub uid: u32,
    /// Its group, unless its directory says otherwise.
    pub gid: u32,
    /// The bits that a new mode does not get, unless its directory has a default list of who may what.
    pub umask: u32,
    /// What time it is. The file system has no clock.
    pub now: Time,
}

/// Everything about an inode but its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its number.
    pub ino: Ino,
    /// Its number and this together are never given out again.
    pub generation: u64,
    /// What it is.
    pub kind: Kind,
    /// Who may what: the lower twelve bits of a mode.
    pub permissions: u32,
    /// How many names it has.
    pub links: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// What device it is.
    pub device: u32,
    /// Its size in bytes.
    pub size: u64,
    /// Bytes of the blocks that are stored of it.
    pub stored: u64,
    /// When it was last read.
    pub accessed: Time,
    /// When its content was last changed.
    pub modified: Time,
    /// When anything of it was last changed.
    pub changed: Time,
    /// When it was made.
    pub made: Time,
}

/// What to change of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Who may what.
    pub permissions: Option<u32>,
    /// Its owner.
    pub uid: Option<u32>,
    /// Its group.
    pub gid: Option<u32>,
    /// Its size: what comes to it is a hole.
    pub size: Option<u64>,
    /// When it was last read.
    pub accessed: Option<Time>,
    /// When its content was last changed.
    pub modified: Option<Time>,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: Vec<u8>,
    /// What it names.
    pub ino: Ino,
    /// What that is.
    pub kind: Kind,
    /// Where reading the directory goes on behind it.
    pub next: u64,
}

/// How a rename treats a name that is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Renaming {
    /// What has the new name loses it.
    #[default]
    Replace,
    /// It must not be there.
    Keep,
    /// The two change places.
    Exchange,
}

/// What a stretch of a file is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Stored, what is there staying as it is; the file grows to it.
    Grow,
    /// The same, but the size stays.
    Keep,
    /// A hole; the size stays.
    Punch,
    /// Zeros, stored; the file grows to them.
    Zero,
    /// Zeros, stored; the size stays.
    ZeroKeep,
}

/// The file system as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes that there could be.
    pub bytes: u64,
    /// Bytes that are free for files.
    pub free: u64,
    /// Bytes of files among them that volumes on the same disk do not get.
    pub held: u64,
    /// Inodes that there could be, with the space that there is.
    pub inodes: u64,
    /// How many more there could be.
    pub free_inodes: u64,
}

/// One of the lists that the file system keeps things in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Which {
    Inodes,
    Content,
    /// A block for each inode without a name that is still needed, or was when the disk was last open.
    Orphans,
    /// A block for each list of a file's own: whose it is.
    Owners,
    /// A file's own.
    Own(ListId),
}
