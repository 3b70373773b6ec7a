//! Directories: names in a trie of buckets by their hash.
//!
//! ```text
//!                 1                 a bucket that outgrows SPLIT becomes 2n and 2n + 1, by the next bit of the hash
//!             /       \
//!           2           3           only the ends of the tree are there: the others were divided
//!         /   \       /   \
//!        4     5     6     7
//! ```
//! Bucket n is block n of the directory's content. Entries are in the order of their hashes, and so are the buckets from
//! left to right: a hash is a place in the directory at which reading it goes on, whatever changes meanwhile.
//!
//! Invariants:
//! * D1 of the buckets from the root to where a hash leads, exactly one is there.
//! * D2 each name is in the one that its hash leads to, once.

use crate::content::place_of;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{BLOCK, BLOCK_LEN, BUCKET_MAGIC, BucketHead, EntryHead, FIRST};
use crate::inodes::Inode;
use crate::op::{Op, u64_of, usize_of};
use crate::types::{Entry, Ino, Kind, MODE_KIND, Which};
use lode::record::Cursor;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;

/// A bucket that holds more is divided.
const SPLIT: usize = 512;
/// Two buckets of one that hold less together become one again.
const JOIN: usize = 192;
/// A name has at most so many bytes.
pub(crate) const NAME_MAX: usize = 255;
/// Hashes have so many bits.
const HASH_BITS: u32 = 63;
/// Smaller ones are places in front of all names.
pub(crate) const HASH_MIN: u64 = 16;
/// The place behind all names.
pub(crate) const HASH_END: u64 = 1 << HASH_BITS;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub hash: u64,
    pub name: Vec<u8>,
    pub ino: Ino,
    pub kind: Kind,
}

impl Named {
    pub fn bytes(&self) -> usize {
        EntryHead::SIZE + self.name.len()
    }
}

/// One bucket.
struct Bucket {
    node: u64,
    entries: Vec<Named>,
}

impl Bucket {
    fn bytes(&self) -> usize {
        BucketHead::SIZE + self.entries.iter().map(Named::bytes).sum::<usize>()
    }

    /// Where a name is, or where it belongs.
    fn find(&self, hash: u64, name: &[u8]) -> std::result::Result<usize, usize> {
        self.entries.binary_search_by(|entry| (entry.hash, &entry.name[..]).cmp(&(hash, name)))
    }

    fn encode(&self, directory: Ino) -> Vec<u8> {
        let mut block = Vec::with_capacity(self.bytes());
        let count = u32::try_from(self.entries.len()).expect("a bucket is small");
        BucketHead { magic: BUCKET_MAGIC, count, directory: directory.0, node: self.node }.push_to(&mut block);
        for Named { hash, name, ino, kind } in &self.entries {
            let length = u8::try_from(name.len()).expect("checked when it came");
            let kind = u8::try_from(kind.bits() >> 12).expect("four bits");
            EntryHead { hash: *hash, inode: ino.0, kind, length }.push_to(&mut block);
            block.extend_from_slice(name);
        }
        block
    }

    /// What a block holds. None: nothing.
    fn decode(directory: Ino, node: u64, block: &[u8]) -> Result<Option<Bucket>> {
        let Some(mut stored) = Stored::new(directory, node, block)? else { return Ok(None) };
        let mut entries = Vec::with_capacity(usize_of(stored.left.into()).min(SPLIT / EntryHead::SIZE));
        while let Some(entry) = stored.next()? {
            entries.push(entry.to_named());
        }
        Ok(Some(Bucket { node, entries }))
    }
}

/// An entry in the bytes of a block.
#[derive(Clone, Copy)]
struct Told<'a> {
    hash: u64,
    name: &'a [u8],
    ino: Ino,
    kind: Kind,
}

impl Told<'_> {
    fn to_named(self) -> Named {
        Named { hash: self.hash, name: self.name.to_vec(), ino: self.ino, kind: self.kind }
    }
}

/// The entries of a block that are still to come, in their order.
struct Stored<'a> {
    directory: Ino,
    node: u64,
    cursor: Cursor<'a>,
    left: u32,
    last: Option<(u64, &'a [u8])>,
}

impl<'a> Stored<'a> {
    /// None: nothing is stored there.
    fn new(directory: Ino, node: u64, block: &'a [u8]) -> Result<Option<Stored<'a>>> {
        let mut cursor = Cursor::new(block);
        let head = BucketHead::decode(cursor.take(BucketHead::SIZE).expect("a block is larger"));
        if head == BucketHead::default() {
            return Ok(None);
        }
        let stored = Stored { directory, node, cursor, left: head.count, last: None };
        if head.magic != BUCKET_MAGIC || head.directory != directory.0 || head.node != node {
            return Err(stored.wrong("itself, found something else"));
        }
        Ok(Some(stored))
    }

    fn wrong(&self, what: &str) -> Error {
        Error::damaged(format!("bucket {} of the directory {}", self.node, self.directory), what)
    }

    fn next(&mut self) -> Result<Option<Told<'a>>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let head = self.cursor.take(EntryHead::SIZE).map(EntryHead::decode);
        let named = head.and_then(|head| Some((head, self.cursor.take(usize::from(head.length))?)));
        let (EntryHead { hash, inode, kind, .. }, name) = named.ok_or_else(|| self.wrong("more bytes of names"))?;
        let kind = Kind::of(u32::from(kind) << 12 & MODE_KIND).ok_or_else(|| self.wrong("a kind that is known"))?;
        if self.last.is_some_and(|last| last >= (hash, name)) || !leads_to(hash, self.node) {
            return Err(self.wrong("names in their order"));
        }
        self.last = Some((hash, name));
        Ok(Some(Told { hash, name, ino: Ino(inode), kind }))
    }

    /// Looks for a name, through to the end: a bucket is damaged or it is not.
    fn find(mut self, hash: u64, name: &[u8]) -> Result<Option<Named>> {
        let mut found = None;
        while let Some(entry) = self.next()? {
            found = found.or_else(|| ((entry.hash, entry.name) == (hash, name)).then(|| entry.to_named()));
        }
        Ok(found)
    }
}

/// How far a bucket is from the root.
fn depth_of(node: u64) -> u32 {
    node.ilog2()
}

/// The bucket at a depth that a hash leads to.
fn node_at(hash: u64, depth: u32) -> u64 {
    (1 << depth) | (hash >> (HASH_BITS - depth) & ((1 << depth) - 1))
}

fn leads_to(hash: u64, node: u64) -> bool {
    hash < HASH_END && node_at(hash, depth_of(node)) == node
}

/// The first hash that leads to a bucket behind this one.
fn behind(node: u64) -> u64 {
    let depth = depth_of(node);
    let prefix = node - (1 << depth);
    (prefix + 1) << (HASH_BITS - depth)
}

impl crate::files::Files {
    /// The hash of a name.
    pub fn hash(&self, name: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key.to_le_bytes());
        hasher.write(name);
        (hasher.finish() >> (64 - HASH_BITS)).max(HASH_MIN)
    }
}

/// A name that may be given.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        let what = format!("a name of {} bytes: expected at most {NAME_MAX}", name.len());
        return Err(Error::new(ErrorKind::NameTooLong, what));
    }
    match name {
        b"" | b"." | b".." => Err(Error::new(ErrorKind::Invalid, "a name that cannot be given")),
        name if name.contains(&b'/') || name.contains(&0) => {
            Err(Error::new(ErrorKind::Invalid, "a name with a slash or a zero in it"))
        }
        _ => Ok(()),
    }
}

/// Reads the block of a bucket, of a directory and with a number. None: nothing is stored there.
trait ReadBucket<T>: Fn(Ino, u64, &[u8]) -> Result<Option<T>> {}

impl<T, F: Fn(Ino, u64, &[u8]) -> Result<Option<T>>> ReadBucket<T> for F {}

impl Op<'_> {
    fn bucket(&self, directory: &Inode, node: u64) -> Result<Option<Bucket>> {
        self.read_bucket(directory, node, Bucket::decode)
    }

    fn read_bucket<T>(&self, directory: &Inode, node: u64, read: impl ReadBucket<T>) -> Result<Option<T>> {
        if node >= FIRST && directory.head.list == 0 {
            return Ok(None);
        }
        let (which, block) = place_of(&directory.head, node);
        let mut bytes = [0; BLOCK_LEN];
        self.block(which, block, &mut bytes)?;
        read(directory.ino(), node, &bytes)
    }

    /// The bucket that a hash leads to.
    fn bucket_of(&self, directory: &Inode, hash: u64) -> Result<Bucket> {
        self.bucket_at(directory, hash, Bucket::decode)?.1
    }

    /// What is read in the bucket that a hash leads to; if that is damaged, which it is.
    fn bucket_at<T>(&self, directory: &Inode, hash: u64, read: impl ReadBucket<T>) -> Result<(u64, Result<T>)> {
        let deepest = directory.head.depth.min(HASH_BITS);
        // Buckets are two thirds full, on an average.
        let guess = (directory.head.size / u64_of(SPLIT * 2 / 3)).max(1).ilog2().min(deepest);
        for step in 0..=deepest {
            for depth in [guess.checked_sub(step), Some(guess + step).filter(|_| step > 0)].into_iter().flatten() {
                let node = node_at(hash, depth);
                match if depth <= deepest { self.read_bucket(directory, node, &read) } else { Ok(None) } {
                    Ok(None) => {}
                    Ok(Some(found)) => return Ok((node, Ok(found))),
                    // Where something is stored no other bucket is on the way.
                    Err(error) if error.kind() == ErrorKind::Damaged => return Ok((node, Err(error))),
                    Err(error) => return Err(error),
                }
            }
        }
        Err(Error::damaged(format!("the directory {}", directory.ino()), "a bucket for each name, found none"))
    }

    fn put_bucket(&mut self, directory: &mut Inode, bucket: &Bucket) -> Result<()> {
        if bucket.node >= FIRST && directory.head.list == 0 {
            directory.head.list = self.take_list(directory.ino())?.0;
        }
        let (which, block) = place_of(&directory.head, bucket.node);
        self.stage(which, block, Some(bucket.encode(directory.ino())));
        Ok(())
    }

    fn drop_bucket(&mut self, directory: &Inode, node: u64) {
        if node >= FIRST && directory.head.list == 0 {
            return; // One that was divided before it was put.
        }
        let (which, block) = place_of(&directory.head, node);
        self.stage(which, block, None);
    }

    /// A new directory's only bucket.
    pub fn make_buckets(&mut self, directory: &mut Inode) -> Result<()> {
        directory.head.blocks = 1;
        self.put_bucket(directory, &Bucket { node: 1, entries: Vec::new() })
    }

    /// What a name means.
    pub fn find_name(&self, directory: &Inode, name: &[u8]) -> Result<Option<Named>> {
        let hash = self.files.hash(name);
        self.note_read(|read| {
            read.names.insert((directory.ino(), name.to_vec()));
        });
        let search = |directory, node, block: &[u8]| -> Result<Option<Option<Named>>> {
            Stored::new(directory, node, block)?.map(|stored| stored.find(hash, name)).transpose()
        };
        self.bucket_at(directory, hash, search)?.1
    }

    /// Gives a name that is not there. The directory's inode is to be put by the caller.
    pub fn insert_name(&mut self, directory: &mut Inode, name: &[u8], ino: Ino, kind: Kind) -> Result<()> {
        let hash = self.files.hash(name);
        let bucket = self.bucket_of(directory, hash)?;
        self.insert_named(directory, bucket, Named { hash, name: name.to_vec(), ino, kind })
    }

    fn insert_named(&mut self, directory: &mut Inode, mut bucket: Bucket, entry: Named) -> Result<()> {
        let Err(at) = bucket.find(entry.hash, &entry.name) else {
            return Err(Error::new(ErrorKind::Exists, "there is one of that name already"));
        };
        self.note_name(directory.ino(), &entry.name);
        directory.head.entries += 1;
        directory.head.size += u64_of(entry.bytes());
        bucket.entries.insert(at, entry);
        self.settle(directory, bucket)
    }

    /// Puts a bucket, divided as long as that is needed.
    fn settle(&mut self, directory: &mut Inode, bucket: Bucket) -> Result<()> {
        let depth = depth_of(bucket.node);
        let deeper =
            bucket.node.checked_mul(2).filter(|node| node + 1 < self.files.buckets_max() && depth + 1 < HASH_BITS);
        let Some(left) = deeper.filter(|_| bucket.bytes() > SPLIT && bucket.entries.len() > 1) else {
            if bucket.bytes() > BLOCK_LEN {
                return Err(Error::new(ErrorKind::Full, "too many names with one hash"));
            }
            return self.put_bucket(directory, &bucket);
        };
        self.drop_bucket(directory, bucket.node);
        directory.head.depth = directory.head.depth.max(depth + 1);
        directory.head.blocks += 1;
        let at = bucket.entries.partition_point(|entry| leads_to(entry.hash, left));
        let mut entries = bucket.entries;
        let right = entries.split_off(at);
        self.settle(directory, Bucket { node: left, entries })?;
        self.settle(directory, Bucket { node: left + 1, entries: right })
    }

    /// Takes a name away. The directory's inode is to be put by the caller.
    pub fn remove_name(&mut self, directory: &mut Inode, name: &[u8]) -> Result<Named> {
        let hash = self.files.hash(name);
        let mut bucket = self.bucket_of(directory, hash)?;
        let Ok(at) = bucket.find(hash, name) else {
            return Err(Error::new(ErrorKind::NotFound, "there is none of that name"));
        };
        self.note_name(directory.ino(), name);
        let gone = bucket.entries.remove(at);
        // They may be damaged.
        directory.head.entries = directory.head.entries.saturating_sub(1);
        directory.head.size = directory.head.size.saturating_sub(u64_of(gone.bytes()));
        while bucket.node > 1
            && bucket.bytes() < JOIN
            && let Some(mut other) = self.bucket(directory, bucket.node ^ 1)?
            && bucket.bytes() + other.bytes() < JOIN
        {
            self.drop_bucket(directory, bucket.node);
            self.drop_bucket(directory, other.node);
            directory.head.blocks = directory.head.blocks.saturating_sub(1);
            let (mut entries, behind) = if bucket.node < other.node {
                (bucket.entries, std::mem::take(&mut other.entries))
            } else {
                (std::mem::take(&mut other.entries), bucket.entries)
            };
            entries.extend(behind);
            bucket = Bucket { node: other.node / 2, entries };
        }
        self.put_bucket(directory, &bucket)?;
        Ok(gone)
    }

    /// Lets a name that is there mean something else.
    pub fn replace_name(&mut self, directory: &mut Inode, name: &[u8], ino: Ino, kind: Kind) -> Result<()> {
        let hash = self.files.hash(name);
        let mut bucket = self.bucket_of(directory, hash)?;
        let Ok(at) = bucket.find(hash, name) else {
            return Err(Error::new(ErrorKind::NotFound, "there is none of that name"));
        };
        self.note_name(directory.ino(), name);
        (bucket.entries[at].ino, bucket.entries[at].kind) = (ino, kind);
        self.put_bucket(directory, &bucket)
    }

    /// The names of one bucket with hashes from `from` on, and from where on to go on.
    pub fn names_from(&self, directory: &Inode, from: u64) -> Result<(Vec<Named>, u64)> {
        let (names, next) = self.names_or_damage(directory, from)?;
        Ok((names?, next))
    }

    /// The same; of a bucket that is damaged its damage, and where behind it to go on.
    pub fn names_or_damage(&self, directory: &Inode, from: u64) -> Result<(Result<Vec<Named>>, u64)> {
        let (node, bucket) = self.bucket_at(directory, from, Bucket::decode)?;
        let names = bucket.map(|bucket| {
            let first = bucket.entries.partition_point(|entry| entry.hash < from);
            let mut entries = bucket.entries;
            entries.split_off(first)
        });
        Ok((names, behind(node)))
    }

    /// All names.
    pub fn all_names(&self, directory: &Inode) -> Result<Vec<Named>> {
        let (mut all, mut from) = (Vec::new(), 0);
        while from < HASH_END {
            let (some, next) = self.names_from(directory, from)?;
            all.extend(some);
            from = next;
        }
        Ok(all)
    }

    /// Nothing of a directory without entries is to be left but its inode.
    pub fn drop_buckets(&mut self, directory: &mut Inode) {
        let share = place_of(&directory.head, 0).1;
        let block = u64::from(BLOCK);
        self.discard(Which::Content, share * block..(share + FIRST) * block);
        if directory.head.list != 0 {
            self.condemn(lode::ListId(directory.head.list));
            directory.head.list = 0;
        }
    }
}

impl Named {
    /// As it is told.
    pub fn into_entry(self, next: u64) -> Entry {
        Entry { name: self.name, ino: self.ino, kind: self.kind, next }
    }
}
