//! What reads ask of the medium: counted, and with parts of it that cannot be read.
use crate::basics::quiet;
use lode::{Disk, ErrorKind, FormatOptions, OpenOptions, Survive, Volume, VolumeOptions};
use lode_media::{Geometry, Medium, Position, ZoneId, ram::RamMedium};
use std::sync::{Arc, Mutex};

const CONTENT: u64 = 4096;
const INODE: u64 = 512;

/// Counts what is read, and has places that cannot be.
pub struct Sore {
    pub ram: RamMedium,
    bad: Mutex<Vec<Position>>,
}

impl Sore {
    pub fn disk(zones: u32, zone_bytes: u32) -> Arc<Sore> {
        let ram = RamMedium::new(Geometry { zones, zone_bytes, append_align: 4096, devices: 1 });
        let medium = Arc::new(Sore { ram, bad: Mutex::default() });
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
