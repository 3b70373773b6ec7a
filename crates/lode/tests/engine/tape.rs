//! A medium that remembers every call, and can be cut at any of them: for schedules that are told call by call.
//!
//! It is as harsh as its contract allows: an erase leaves the old bytes (M4); an append has to go where the one before
//! it in its zone was told to end (M1), and only into a zone erased in this *life*, from one opening to the next (R10).
//! It knows a batch's head by the offsets of `docs/FORMAT.md`, so that a test can say what it looks at.
use lode::{Disk, FormatOptions, OpenOptions, Survive, Volume, VolumeOptions};
use lode_media::{Error, ErrorKind, Geometry, Medium, Position, Result, ZoneId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A call that has ended.
#[derive(Clone)]
pub enum Event {
    Erase(u32),
    /// The zone holds noise from then on, at the latest after a cut.
    Discard(u32),
    /// There are so many zones, for good.
    Grow(u32),
    Append(Position, Arc<Vec<u8>>),
    /// Makes durable the events before this one (M2): those that had ended when the sync began.
    Sync(usize),
}

/// What a cut leaves of one sector that was not synced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    Old,
    New,
    Noise,
    Zeros,
}

/// A call that a hook waits for.
#[derive(Clone, Copy, PartialEq)]
pub enum Call {
    Read,
    Append,
    Sync,
}

type Hook = Box<dyn FnOnce() + Send>;

/// See the file's head.
pub struct Tape {
    /// With the number of zones that this life began with.
    geometry: Geometry,
    zones: AtomicU32,
    /// What was durable when this life began.
    base: Vec<u8>,
    now: Mutex<Vec<u8>>,
    events: Mutex<Vec<Event>>,
    /// Where the next append of each zone goes, of those that were erased in this life.
    ends: Mutex<BTreeMap<u32, u32>>,
    hook: Mutex<Option<(Call, Hook)>>,
    refusing: AtomicBool,
    /// The same, for zones whose space was given back.
    refusing_discarded: AtomicBool,
    discarded: Mutex<BTreeSet<u32>>,
    reused: AtomicUsize,
    failing_discards: Mutex<Option<ErrorKind>>,
    reads: Mutex<Vec<Position>>,
}

fn place(geometry: Geometry, at: Position) -> usize {
    usize::try_from(u64::from(at.zone.0) * u64::from(geometry.zone_bytes) + u64::from(at.offset)).unwrap()
}

impl Tape {
    pub fn new(geometry: Geometry, base: Vec<u8>) -> Arc<Tape> {
        Arc::new(Tape {
            geometry,
            zones: AtomicU32::new(geometry.zones),
            now: Mutex::new(base.clone()),
            base,
            events: Mutex::default(),
            ends: Mutex::default(),
            hook: Mutex::default(),
            refusing: AtomicBool::new(false),
            refusing_discarded: AtomicBool::new(false),
            discarded: Mutex::default(),
            reused: AtomicUsize::new(0),
            failing_discards: Mutex::default(),
            reads: Mutex::default(),
        })
    }

    /// A new disk with `volume` of small blocks, all of it durable.
    pub fn formatted(zones: u32, zone_bytes: u32, append_align: u32) -> Arc<Tape> {
        let geometry = Geometry { zones, zone_bytes, append_align, devices: 1 };
        let tape = Tape::new(geometry, vec![0; usize::try_from(u64::from(zones) * u64::from(zone_bytes)).unwrap()]);
        Disk::format(tape.clone(), &FormatOptions { disk_id: 7 }).unwrap();
        let disk = open(&tape);
        disk.create_volume("v", &VolumeOptions { bytes: 64 << 10, block_bytes: BLOCK, ..Default::default() }).unwrap();
        disk.close().unwrap();
        tape.restart()
    }

    /// Runs `hook` inside the next call of a kind, in the caller's thread.
    pub fn hook(&self, call: Call, hook: impl FnOnce() + Send + 'static) {
        *self.hook.lock().unwrap() = Some((call, Box::new(hook)));
    }

    fn run_hook(&self, call: Call) {
        let mut waiting = self.hook.lock().unwrap();
        if waiting.as_ref().is_some_and(|(of, _)| *of == call) {
            let (_, hook) = waiting.take().unwrap();
            drop(waiting);
            hook();
        }
    }

    /// From now on the file system below has no space for further zones, or has again.
    pub fn refuse_erases(&self, refusing: bool) {
        self.refusing.store(refusing, Ordering::SeqCst);
    }

    /// The same for zones whose space was given back: somebody else has taken it, or gives it back.
    pub fn refuse_erases_of_discarded(&self, refusing: bool) {
        self.refusing_discarded.store(refusing, Ordering::SeqCst);
    }

    /// Discards fail from now on.
    pub fn fail_discards(&self, kind: ErrorKind) {
        *self.failing_discards.lock().unwrap() = Some(kind);
    }

    /// How many zones were given back.
    pub fn discards(&self) -> usize {
        self.events().iter().filter(|event| matches!(event, Event::Discard(_))).count()
    }

    /// How many zones were made real again after they were given back.
    pub fn erases_of_discarded(&self) -> usize {
        self.reused.load(Ordering::SeqCst)
    }

    /// How many calls have ended.
    pub fn len(&self) -> usize {
        self.events.lock().unwrap().len()
    }

    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    /// The appends from the event `from` on, with their numbers.
    pub fn appends(&self, from: usize) -> Vec<(usize, Position, Arc<Vec<u8>>)> {
        let append = |(n, event): (usize, &Event)| match event {
            Event::Append(at, bytes) if n >= from => Some((n, *at, bytes.clone())),
            _ => None,
        };
        self.events.lock().unwrap().iter().enumerate().filter_map(append).collect()
    }

    /// Those of them that are batches of the record stream.
    pub fn batches(&self, from: usize) -> Vec<(usize, Position, Arc<Vec<u8>>)> {
        self.appends(from).into_iter().filter(|(_, _, bytes)| matches!(kind(bytes), MAIN | FOOTER)).collect()
    }

    /// The same, segment by segment: where each lies and its length.
    pub fn segments(&self, from: usize) -> Vec<Vec<(Position, usize)>> {
        let mut segments = vec![Vec::new()];
        for (_, at, bytes) in self.batches(from) {
            segments.last_mut().unwrap().push((at, bytes.len()));
            if kind(&bytes) == FOOTER {
                segments.push(Vec::new());
            }
        }
        segments
    }

    /// Where reads began since the last time it was asked.
    pub fn take_reads(&self) -> Vec<Position> {
        std::mem::take(&mut *self.reads.lock().unwrap())
    }

    /// The medium as it is, in its next life: the process ended, or began again. What was not synced is durable,
    /// as it is after all when the power stays.
    pub fn restart(&self) -> Arc<Tape> {
        Tape::new(self.geometry(), self.now.lock().unwrap().clone())
    }

    /// The process ends and another begins, but what was not synced still is not.
    pub fn next_process(&self) {
        self.ends.lock().unwrap().clear();
    }

    /// The power is cut when `at` calls have ended. What no sync of them covers is as `fate` says for each event and
    /// sector of it.
    pub fn cut(&self, at: usize, mut fate: impl FnMut(usize, usize) -> Fate) -> Arc<Tape> {
        let events = self.events.lock().unwrap();
        let durable = events[..at].iter().filter_map(|event| match event {
            Event::Sync(covers) => Some(*covers),
            _ => None,
        });
        let durable = durable.max().unwrap_or(0);
        let grown = events[..at].iter().rev().find_map(|event| match event {
            Event::Grow(zones) => Some(*zones),
            _ => None,
        });
        let geometry = Geometry { zones: grown.unwrap_or(self.geometry.zones), ..self.geometry };
        let mut image = self.base.clone();
        image.resize(place(geometry, Position { zone: ZoneId(geometry.zones), offset: 0 }), 0xA5);
        let align = usize::try_from(self.geometry.append_align).unwrap();
        for (n, event) in events[..at].iter().enumerate() {
            if let Event::Discard(zone) = event {
                let start = place(self.geometry, Position { zone: ZoneId(*zone), offset: 0 });
                image[start..][..usize::try_from(self.geometry.zone_bytes).unwrap()].fill(0xA5);
            }
            let Event::Append(start, bytes) = event else { continue };
            let start = place(self.geometry, *start);
            for (sector, content) in bytes.chunks(align).enumerate() {
                let into = &mut image[start + sector * align..][..align];
                match if n < durable { Fate::New } else { fate(n, sector) } {
                    Fate::Old => {}
                    Fate::New => into.copy_from_slice(content),
                    Fate::Noise => into.fill(0xA5),
                    Fate::Zeros => into.fill(0),
                }
            }
        }
        Tape::new(geometry, image)
    }

    /// Cut now; of what is not synced nothing is left.
    pub fn cut_hard(&self) -> Arc<Tape> {
        self.cut(self.len(), |_, _| Fate::Old)
    }

    /// Changes bytes where they lie.
    pub fn damage(&self, at: Position, change: impl FnOnce(&mut [u8])) {
        change(&mut self.now.lock().unwrap()[place(self.geometry, at)..]);
    }

    /// Turns a sector into noise.
    pub fn ruin(&self, at: Position) {
        let align = usize::try_from(self.geometry.append_align).unwrap();
        self.damage(at, |bytes| bytes[..align].fill(0xA5));
    }
}

impl Medium for Tape {
    fn geometry(&self) -> Geometry {
        Geometry { zones: self.zones.load(Ordering::SeqCst), ..self.geometry }
    }

    fn grow(&self, zones: Option<u32>) -> Result<()> {
        let zones = zones.unwrap_or(0).max(self.geometry().zones);
        self.now.lock().unwrap().resize(place(self.geometry, Position { zone: ZoneId(zones), offset: 0 }), 0xA5);
        self.zones.store(zones, Ordering::SeqCst);
        self.events.lock().unwrap().push(Event::Grow(zones));
        Ok(())
    }

    fn read(&self, at: Position, into: &mut [u8]) -> Result<()> {
        self.run_hook(Call::Read);
        self.reads.lock().unwrap().push(at);
        into.copy_from_slice(&self.now.lock().unwrap()[place(self.geometry, at)..][..into.len()]);
        Ok(())
    }

    fn append(&self, at: Position, pieces: &[&[u8]]) -> Result<()> {
        let bytes = pieces.concat();
        let len = u32::try_from(bytes.len()).unwrap();
        assert!(at.offset.is_multiple_of(self.geometry.append_align) && len.is_multiple_of(self.geometry.append_align));
        {
            let mut ends = self.ends.lock().unwrap();
            let end = ends.get_mut(&at.zone.0).unwrap_or_else(|| panic!("R10: zone {} is from before", at.zone.0));
            assert_eq!(
                *end, at.offset,
                "R1: an append into zone {} at another place than the last one ended",
                at.zone.0
            );
            *end += len;
            assert!(*end <= self.geometry.zone_bytes);
        }
        self.run_hook(Call::Append);
        self.now.lock().unwrap()[place(self.geometry, at)..][..bytes.len()].copy_from_slice(&bytes);
        self.events.lock().unwrap().push(Event::Append(at, Arc::new(bytes)));
        Ok(())
    }

    fn erase(&self, zone: ZoneId) -> Result<()> {
        if self.refusing.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::NoSpace, "no space for a further zone"));
        }
        if self.discarded.lock().unwrap().contains(&zone.0) {
            if self.refusing_discarded.load(Ordering::SeqCst) {
                return Err(Error::new(ErrorKind::NoSpace, "no space for a further zone"));
            }
            self.discarded.lock().unwrap().remove(&zone.0);
            self.reused.fetch_add(1, Ordering::SeqCst);
        }
        self.ends.lock().unwrap().insert(zone.0, 0);
        self.events.lock().unwrap().push(Event::Erase(zone.0));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let covers = self.len();
        self.run_hook(Call::Sync);
        self.events.lock().unwrap().push(Event::Sync(covers));
        Ok(())
    }

    fn discard(&self, zone: ZoneId) -> Result<()> {
        if let Some(kind) = *self.failing_discards.lock().unwrap() {
            return Err(Error::new(kind, "the device refuses"));
        }
        self.ends.lock().unwrap().remove(&zone.0);
        self.discarded.lock().unwrap().insert(zone.0);
        let start = Position { zone, offset: 0 };
        let bytes = usize::try_from(self.geometry.zone_bytes).unwrap();
        self.now.lock().unwrap()[place(self.geometry, start)..][..bytes].fill(0xA5);
        self.events.lock().unwrap().push(Event::Discard(zone.0));
        Ok(())
    }
}

/// Kinds of batches, and places in a batch's head (`docs/FORMAT.md`, Header).
pub const MAIN: u8 = 1;
pub const FOOTER: u8 = 2;
pub const ROOT: u8 = 5;
pub const SEQUENCE: usize = 32;
pub const DURABLE: usize = 40;
pub const NEXT_A: usize = 80;
pub const NEXT_B: usize = 84;

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// What kind of batch the bytes are; none of the format's if they are no batch.
pub fn kind(bytes: &[u8]) -> u8 {
    if bytes.starts_with(b"LODE") { bytes[6] } else { 0 }
}

/// Makes the checksum of a changed batch right again.
pub fn reseal(bytes: &mut [u8]) {
    let usize_at = |at| usize::try_from(u32_at(bytes, at)).unwrap();
    let (data, records, head) = (usize_at(68), usize_at(72), usize_at(88));
    let in_head = records.min(head - 128);
    let tail = head + data.next_multiple_of(16);
    let mut covered = bytes[..128 + in_head].to_vec();
    covered[124..128].fill(0);
    covered.extend_from_slice(bytes.get(tail..tail + records - in_head).unwrap_or_default());
    let checksum = u32::try_from(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &covered)).unwrap();
    bytes[124..128].copy_from_slice(&checksum.to_le_bytes());
}

/// Bytes of a batch's head area where appends are multiples of 512.
pub const HEAD: u32 = 512;
/// Bytes of a block of the volume of [`Tape::formatted`].
pub const BLOCK: u32 = 512;

/// Without threads and without a cache: every read is one of the medium.
pub fn bare() -> OpenOptions {
    OpenOptions { background: false, cache_bytes: 0, ..OpenOptions::default() }
}

pub fn open(tape: &Arc<Tape>) -> Disk {
    Disk::open(tape.clone(), &bare()).unwrap()
}

/// Writes one block full of `value`, and appends it: in a batch of its own.
pub fn write(disk: &Disk, block: u64, value: u8) {
    put(&disk.volume("v").unwrap(), block, value);
    disk.flush(Survive::Process).unwrap();
}

pub fn put(volume: &Volume, block: u64, value: u8) {
    volume.write_at(block * u64::from(BLOCK), &[value; BLOCK as usize]).unwrap();
}

/// What the first `count` blocks are full of.
pub fn values(disk: &Disk, count: usize) -> Vec<u8> {
    let volume = disk.volume("v").unwrap();
    let value = |block: usize| {
        let mut read = [0; BLOCK as usize];
        volume.read_at(u64::try_from(block).unwrap() * u64::from(BLOCK), &mut read).unwrap();
        assert!(read.iter().all(|byte| *byte == read[0]), "block {block} is of two writes");
        read[0]
    };
    (0..count).map(value).collect()
}

/// Opens what a cut left: what the first blocks are full of. The disk has to be sound, then and when it is written on.
pub fn recovered(tape: &Arc<Tape>, count: usize) -> Vec<u8> {
    let disk = open(tape);
    let found = values(&disk, count);
    put(&disk.volume("v").unwrap(), 100, 1);
    disk.flush(Survive::Power).unwrap();
    drop(disk);
    let after = tape.cut_hard();
    assert_eq!(Disk::check(after.clone()).unwrap().problems, Vec::<String>::new());
    assert_eq!(values(&open(&after), count), found);
    found
}
