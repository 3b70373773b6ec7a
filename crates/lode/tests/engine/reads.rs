//! What reads ask of the medium: counted, and with parts of it that cannot be read.
use crate::basics::quiet;
use lode::{Disk, ErrorKind, FormatOptions, OpenOptions, Survive, Volume, VolumeOptions};
use lode_media::{Geometry, Medium, Position, ZoneId, ram::RamMedium};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const CONTENT: u64 = 4096;
const INODE: u64 = 512;

/// Counts what is read, and has places that cannot be.
pub struct Sore {
    pub ram: RamMedium,
    pub bad: Mutex<Vec<Position>>,
    read_bytes: AtomicU64,
}

impl Sore {
    pub fn disk(zones: u32, zone_bytes: u32) -> Arc<Sore> {
        let ram = RamMedium::new(Geometry { zones, zone_bytes, append_align: 4096, devices: 1 });
        let medium = Arc::new(Sore { ram, bad: Mutex::default(), read_bytes: AtomicU64::new(0) });
        Disk::format(medium.clone(), &FormatOptions { disk_id: 7 }).unwrap();
        medium
    }

    /// Where these bytes lie.
    pub fn find(&self, bytes: &[u8]) -> Position {
        let geometry = self.ram.geometry();
        let mut zone = vec![0; geometry.zone_bytes as usize];
        for number in 4..geometry.zones {
            let start = Position { zone: ZoneId(number), offset: 0 };
            self.ram.read(start, &mut zone).unwrap();
            if let Some(at) = (0..zone.len() - bytes.len()).step_by(16).find(|at| zone[*at..].starts_with(bytes)) {
                return Position { offset: u32::try_from(at).unwrap(), ..start };
            }
        }
        panic!("they lie nowhere");
    }

    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    pub fn reads(&self) -> u64 {
        self.ram.counts().reads
    }
}

impl Medium for Sore {
    fn geometry(&self) -> Geometry {
        self.ram.geometry()
    }

    fn read(&self, at: Position, into: &mut [u8]) -> lode_media::Result<()> {
        self.ram.read(at, into)?;
        self.read_bytes.fetch_add(into.len() as u64, Ordering::Relaxed);
        let covers = |bad: &Position| {
            bad.zone == at.zone
                && bad.offset >= at.offset
                && bad.offset - at.offset < u32::try_from(into.len()).unwrap()
        };
        match self.bad.lock().unwrap().iter().any(covers) {
            true => Err(lode_media::Error::new(lode_media::ErrorKind::Io, "a bad sector".to_owned())),
            false => Ok(()),
        }
    }

    fn append(&self, at: Position, pieces: &[&[u8]]) -> lode_media::Result<()> {
        self.ram.append(at, pieces)
    }

    fn erase(&self, zone: ZoneId) -> lode_media::Result<()> {
        self.ram.erase(zone)
    }

    fn sync(&self) -> lode_media::Result<()> {
        self.ram.sync()
    }
}

/// Bytes that nothing else has.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0] | 1
    };
    (0..len).map(|_| next()).collect()
}

pub fn list(disk: &Disk, name: &str, block_bytes: u64) -> Volume {
    let block_bytes = u32::try_from(block_bytes).unwrap();
    let bytes = disk.file_list_bytes(block_bytes);
    disk.create_file_list(name, &VolumeOptions { bytes, block_bytes, ..Default::default() }).unwrap()
}

fn uncached() -> OpenOptions {
    OpenOptions { cache_bytes: 0, ..quiet() }
}

/// Files of one block each, as a file system writes them: an inode beside each, and the records of the unit. Every third
/// block has zeros at its end.
fn content(file: u64) -> Vec<u8> {
    let used = if file.is_multiple_of(3) { 3000 } else { 4096 };
    [noise(file, used), vec![0; 4096 - used]].concat()
}

fn files(disk: &Disk, count: u64) -> (Volume, Volume) {
    let (inodes, contents) = (list(disk, "inodes", INODE), list(disk, "content", CONTENT));
    for file in 0..count {
        let mut unit = disk.begin().unwrap();
        unit.write_at(&inodes, file * INODE, &noise(1 << 32 | file, 200)).unwrap();
        unit.write_at(&contents, file * CONTENT, &content(file)).unwrap();
        unit.commit().unwrap();
    }
    disk.flush(Survive::Power).unwrap();
    (inodes, contents)
}

/// Blocks that were written one after the other, with small ones between, are read in one go, and no farther than that.
#[test]
fn blocks_that_lie_close_together_are_read_at_once() {
    let medium = Sore::disk(64, 4 << 20);
    let disk = Disk::open(medium.clone(), &uncached()).unwrap();
    let (_, contents) = files(&disk, 256);
    let mut read = vec![1; 256 * 4096];
    let before = medium.reads();
    contents.read_at(0, &mut read).unwrap();
    for (file, found) in (0..).zip(read.chunks(4096)) {
        assert!(found == content(file), "file {file}");
    }
    let reads = medium.reads() - before;
    assert!(reads <= 4, "{reads} reads of the medium for 1 MiB in order");
    // From another place in it, backwards and with holes.
    let mut unit = disk.begin().unwrap();
    for file in (0..64u64).rev() {
        unit.write_at(&contents, (1000 + 2 * file) * CONTENT, &content(file)).unwrap();
    }
    unit.commit_and_flush(Survive::Power).unwrap();
    let before = medium.reads();
    contents.read_at(1000 * CONTENT, &mut read[..128 * 4096]).unwrap();
    for (n, found) in read[..128 * 4096].chunks(4096).enumerate() {
        let expected = if n % 2 == 0 { content(n as u64 / 2) } else { vec![0; 4096] };
        assert!(found == expected, "block {n}");
    }
    assert!(medium.reads() - before <= 2);
}

/// What lies far apart is not brought in by reading what lies between.
#[test]
fn blocks_that_lie_far_apart_are_read_apart() {
    let medium = Sore::disk(64, 4 << 20);
    let disk = Disk::open(medium.clone(), &uncached()).unwrap();
    let contents = list(&disk, "content", CONTENT);
    for file in 0..8 {
        contents.write_at(file * CONTENT, &content(file)).unwrap();
        contents.write_at((100 + file * 8) * CONTENT, &noise(file, 8 * 4096)).unwrap();
    }
    disk.flush(Survive::Power).unwrap();
    let before = medium.reads();
    let mut read = vec![1; 8 * 4096];
    contents.read_at(0, &mut read).unwrap();
    assert!(read.chunks(4096).zip(0..).all(|(found, file)| found == content(file)));
    assert_eq!(medium.reads() - before, 8);
}

/// Of blocks that are read together each stands for itself: damage is told by the name of the one that has it, and a sector
/// that cannot be read takes no other block along.
#[test]
fn damage_in_what_is_read_together_is_of_one_block() {
    for unreadable in [false, true] {
        let medium = Sore::disk(64, 4 << 20);
        let disk = Disk::open(medium.clone(), &uncached()).unwrap();
        let (inodes, contents) = files(&disk, 32);
        for (list, bytes, of) in [(&contents, CONTENT, content(9)), (&inodes, INODE, noise(1 << 32 | 20, 200))] {
            let at = medium.find(&of[..200]);
            if unreadable {
                medium.bad.lock().unwrap().push(at);
            } else {
                medium.ram.overwrite(at, &[of[0] ^ 8]).unwrap();
            }
            let bad = if bytes == CONTENT { 9 } else { 20 };
            let mut read = vec![0; 32 * usize::try_from(bytes).unwrap()];
            let error = list.read_at(0, &mut read).unwrap_err();
            assert_eq!(error.kind(), if unreadable { ErrorKind::Media } else { ErrorKind::Corrupt }, "{error}");
            assert!(error.to_string().contains(&format!(" block {bad} ")), "{error}");
            for block in (0..32).filter(|block| *block != bad) {
                list.read_at(block * bytes, &mut read[..usize::try_from(bytes).unwrap()]).unwrap();
            }
            let (before, behind) = read.split_at_mut(usize::try_from(bad * bytes).unwrap());
            list.read_at(0, before).unwrap();
            let behind = &mut behind[usize::try_from(bytes).unwrap()..];
            list.read_at((bad + 1) * bytes, behind).unwrap();
        }
    }
}

fn file(inodes: &Volume, contents: &Volume, file: u64) {
    let (mut inode, mut block) = ([0; 512], [0; 4096]);
    inodes.read_at(file * INODE, &mut inode).unwrap();
    assert!(inode[..200] == noise(1 << 32 | file, 200) && inode[200..] == [0; 312], "inode {file}");
    contents.read_at(file * CONTENT, &mut block).unwrap();
    assert!(block[..] == content(file), "file {file}");
}

/// Small files that were written together are read from the medium in large pieces, whoever reads them.
#[test]
fn small_files_that_were_written_together_are_read_by_windows() {
    let medium = Sore::disk(64, 4 << 20);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    files(&disk, 1000);
    disk.close().unwrap();
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let (inodes, contents) =
        (disk.file_list_named("inodes").unwrap().unwrap(), disk.file_list_named("content").unwrap().unwrap());
    // The maps.
    for list in [&inodes, &contents] {
        assert!(!list.extents(0, 1000 * CONTENT).unwrap().is_empty());
    }
    let before = medium.reads();
    (0..1000).for_each(|n| file(&inodes, &contents, n));
    let reads = medium.reads() - before;
    // About 4.6 MiB: seventy windows, one read before each.
    assert!(reads < 200, "{reads} reads for 2000 small blocks");
    assert!(lode::marks().iter().any(|(name, _)| *name == "read: window on the log"));
}

/// Who reads here and there reads nothing besides.
#[test]
fn reads_at_random_are_not_made_longer() {
    let medium = Sore::disk(64, 4 << 20);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let contents = list(&disk, "content", CONTENT);
    for block in (0..16_384).step_by(256) {
        contents.write_at(block * CONTENT, &noise(block, 256 * 4096)).unwrap();
    }
    disk.flush(Survive::Power).unwrap();
    let before = (medium.reads(), medium.read_bytes());
    let mut block = vec![0; 4096];
    for n in 0..500 {
        contents.read_at(n * 7919 % 16_384 * CONTENT, &mut block).unwrap();
    }
    assert_eq!((medium.reads() - before.0, medium.read_bytes() - before.1), (500, 500 * 4096));
}

/// What was just written is read right while its zone is still being filled, and no window is made of it in vain.
#[test]
fn the_zone_that_is_being_filled_is_read_right() {
    let medium = Sore::disk(64, 4 << 20);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let contents = list(&disk, "content", CONTENT);
    let mut block = vec![0; 4096];
    let mut read = 0;
    for n in 0..600 {
        contents.write_at(n * CONTENT, &content(n)).unwrap();
        disk.flush(Survive::Process).unwrap();
        for back in [0, 1, 7, 15].into_iter().filter(|back| *back <= n) {
            contents.read_at((n - back) * CONTENT, &mut block).unwrap();
            assert!(block == content(n - back), "block {n} - {back}");
            read += 4096;
        }
    }
    assert!(medium.read_bytes() < read, "{} bytes for {read}", medium.read_bytes());
}

/// A zone is erased and filled again: windows on what it held before count no more.
#[test]
fn a_window_is_of_one_filling_of_its_zone() {
    let medium = Sore::disk(256, 64 << 10);
    // Three windows, and a cache that holds little of the disk.
    let options = OpenOptions { cache_bytes: 4 << 20, ..quiet() };
    let disk = Disk::open(medium.clone(), &options).unwrap();
    let inodes = list(&disk, "inodes", INODE);
    let count = 12_000;
    let mut turns = vec![0; 12_000];
    let bytes = |block: u64, turn: u64| noise(turn << 32 | block, 512);
    for turn in 1..=6 {
        for n in 0..count {
            let block = n * 7 % count;
            if block % 5 != turn % 5 {
                inodes.write_at(block * INODE, &bytes(block, turn)).unwrap();
                turns[usize::try_from(block).unwrap()] = turn;
            }
            if n % 8 == 0 {
                // Some that were written together.
                for back in 0..4 {
                    let block = (n + count - 40 - back) * 7 % count;
                    let mut read = [0; 512];
                    inodes.read_at(block * INODE, &mut read).unwrap();
                    let turn = turns[usize::try_from(block).unwrap()];
                    assert!(turn == 0 && read == [0; 512] || read[..] == bytes(block, turn), "block {block} {turn}");
                }
            }
        }
    }
    assert!(disk.counters().zones_cleaned > 50, "zones were used again");
    assert!(lode::marks().iter().any(|(name, _)| *name == "read: window on the log"));
}

/// Of a window, too, each block stands for itself.
#[test]
fn damage_in_a_window_is_of_one_block() {
    for unreadable in [false, true] {
        let medium = Sore::disk(64, 4 << 20);
        let disk = Disk::open(medium.clone(), &quiet()).unwrap();
        files(&disk, 100);
        disk.close().unwrap();
        let at = medium.find(&content(9)[..200]);
        if unreadable {
            medium.bad.lock().unwrap().push(at);
        } else {
            medium.ram.overwrite(at, &[content(9)[0] ^ 8]).unwrap();
        }
        let disk = Disk::open(medium.clone(), &quiet()).unwrap();
        let (inodes, contents) =
            (disk.file_list_named("inodes").unwrap().unwrap(), disk.file_list_named("content").unwrap().unwrap());
        for _ in 0..2 {
            (0..100).filter(|n| *n != 9).for_each(|n| file(&inodes, &contents, n));
            let error = contents.read_at(9 * CONTENT, &mut [0; 4096]).unwrap_err();
            assert_eq!(error.kind(), if unreadable { ErrorKind::Media } else { ErrorKind::Corrupt }, "{error}");
            assert!(error.to_string().contains(" block 9 "), "{error}");
        }
    }
}

/// A large read leaves in the cache what is there, and brings nothing in; a small one does: whole blocks of files the second time.
#[test]
fn a_large_read_leaves_the_cache_as_it_is() {
    let medium = Sore::disk(64, 4 << 20);
    let options = OpenOptions { cache_bytes: 2 << 20, ..quiet() };
    let disk = Disk::open(medium.clone(), &options).unwrap();
    let (small, large) = (list(&disk, "small", CONTENT), list(&disk, "large", CONTENT));
    for block in (0..4096).step_by(128) {
        large.write_at(block * CONTENT, &noise(block, 128 * 4096)).unwrap();
    }
    // Far apart, and so read one by one.
    for block in 0..64 {
        small.write_at(block * CONTENT, &content(block)).unwrap();
        large.write_at((5000 + block * 32) * CONTENT, &noise(block, 32 * 4096)).unwrap();
    }
    disk.flush(Survive::Power).unwrap();
    let read_small = || {
        let (before, mut block) = (medium.reads(), [0; 4096]);
        for n in 0..64 {
            small.read_at(n * CONTENT, &mut block).unwrap();
            assert!(block == content(n)[..]);
        }
        medium.reads() - before
    };
    assert_eq!(read_small(), 64);
    assert_eq!(read_small(), 42, "once is enough for those that are not stored whole: the end of a file is");
    assert_eq!(read_small(), 0, "they are in the cache");
    let mut bytes = vec![0; 1 << 20];
    let read_large = |bytes: &mut [u8], times: u64| {
        let before = medium.reads();
        for n in 0..times {
            large.read_at(n * bytes.len() as u64, bytes).unwrap();
        }
        medium.reads() - before
    };
    assert!(read_large(&mut bytes, 16) >= 16);
    assert_eq!(read_small(), 0, "they still are");
    assert!(read_large(&mut bytes, 16) >= 16, "nothing of it is");
    assert!(read_large(&mut bytes[..128 << 10], 1) > 0);
    assert!(read_large(&mut bytes[..128 << 10], 1) > 0);
    assert_eq!(read_large(&mut bytes[..128 << 10], 1), 0, "128 KiB are");
}
