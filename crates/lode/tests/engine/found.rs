//! Schedules that went wrong once: each needs an append held up, or refused, at the right moment.
use super::basics::{medium, quiet};
use super::watch::{Event, Watched};
use lode::{Disk, OpenOptions, Survive, VolumeOptions};
use lode_media::{Geometry, Medium, Position, ZoneId};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};

/// Asked before each append, with the kind of its batch.
type Before = Arc<dyn Fn(Position, u8) -> lode_media::Result<()> + Send + Sync>;

const MOVED: u8 = 3;

struct Asking {
    below: Arc<dyn Medium>,
    before: Mutex<Option<Before>>,
}

impl Asking {
    fn new(below: &Arc<dyn Medium>, before: Option<Before>) -> Arc<Asking> {
        Arc::new(Asking { below: Arc::clone(below), before: Mutex::new(before) })
    }
}

impl Medium for Asking {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn read(&self, at: Position, into: &mut [u8]) -> lode_media::Result<()> {
        self.below.read(at, into)
    }

    fn append(&self, at: Position, pieces: &[&[u8]]) -> lode_media::Result<()> {
        let before = self.before.lock().unwrap().clone();
        before.map_or(Ok(()), |before| before(at, pieces[0][6]))?;
        self.below.append(at, pieces)
    }

    fn erase(&self, zone: ZoneId) -> lode_media::Result<()> {
        self.below.erase(zone)
    }

    fn sync(&self) -> lode_media::Result<()> {
        self.below.sync()
    }
}

fn power_gone() -> lode_media::Error {
    lode_media::Error::new(lode_media::ErrorKind::Io, "the power is gone")
}

fn scattered(step: u64, of: u64) -> u64 {
    step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407).rotate_left(29) % of
}

/// P5: the commit of a unit whose records need more zones than the keeper holds ready cleans for them. (It asked for
/// them again and again, and never ended.)
#[test]
fn a_large_commit_makes_the_room_that_it_needs() {
    let disk = Disk::open(medium(200, 64 << 10, 512), &OpenOptions { unit_memory_bytes: 64 << 10, ..quiet() }).unwrap();
    let volume = VolumeOptions { bytes: 64 * 60_000, block_bytes: 64, ..Default::default() };
    let volume = disk.create_volume("v", &volume).unwrap();
    let blocks = 26_000;
    for block in 0..blocks {
        volume.write_at(block * 64, &[1; 64]).unwrap();
    }
    for step in 0..120_000 {
        volume.write_at(scattered(step, blocks) * 64, &[2; 64]).unwrap();
    }
    let mut unit = disk.begin().unwrap();
    for n in 0..20_000 {
        unit.write_at(&volume, (30_000 + n * 7919 % 20_000) * 64, &[3; 64]).unwrap();
    }
    let (done, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(unit.commit()));
    told.recv_timeout(std::time::Duration::from_secs(60)).expect("the commit ends").unwrap();
    let mut read = [0; 64];
    volume.read_at(49_999 * 64, &mut read).unwrap();
    assert_eq!(read, [3; 64]);
}

/// R26: the record that opens a zone of moved blocks is durable, and the power goes before the first append there.
/// Nothing is damaged, and the zone is not lost to the disk.
#[test]
fn a_zone_that_was_opened_and_never_written_to_is_free_again() {
    let below = medium(96, 64 << 10, 512);
    let asking = Asking::new(&below, None);
    let disk = Disk::open(asking.clone(), &quiet()).unwrap();
    let blocks = 4000;
    let volume = VolumeOptions { bytes: 512 * blocks, block_bytes: 512, ..Default::default() };
    let volume = disk.create_volume("v", &volume).unwrap();
    for step in 0..blocks + 2500 {
        let block = if step < blocks { step } else { scattered(step, blocks) };
        volume.write_at(block * 512, &[1; 512]).unwrap();
    }
    disk.flush(Survive::Power).unwrap();
    let (other, begun, gone) = (disk.clone(), AtomicBool::new(false), AtomicBool::new(false));
    *asking.before.lock().unwrap() = Some(Arc::new(move |_, kind| {
        if kind == MOVED && !begun.swap(true, SeqCst) {
            other.flush(Survive::Power).unwrap();
            gone.store(true, SeqCst);
        }
        if gone.load(SeqCst) { Err(power_gone()) } else { Ok(()) }
    }));
    disk.clean().unwrap_err();
    *asking.before.lock().unwrap() = None;
    drop((volume, disk));
    let disk = Disk::open(Arc::clone(&below), &quiet()).unwrap();
    let volume = disk.volume("v").unwrap();
    for step in 0..40_000 {
        volume.write_at(scattered(step, blocks) * 512, &[2; 512]).unwrap();
    }
    assert_eq!(disk.info().unwrap().zones_aside, 0);
    drop(volume);
    disk.close().unwrap();
    assert_eq!(Disk::check(below).unwrap().problems, Vec::<String>::new());
}

/// How far the schedule below has come.
#[derive(Default)]
struct Stage {
    committing: bool,
    opened: u32,
    held: bool,
    released: bool,
}

/// R9: a root names the segments of a large commit that is not whole yet, and the power goes. The commit does not count,
/// but until the next root is durable its zones are what the newest root relies on: an opening that is cut again must not
/// have erased them.
#[test]
fn an_opening_is_cut_after_a_commit_was_dropped_that_the_newest_root_names() {
    const MAIN: u8 = 1;
    let below = Watched::disk(96, 64 << 10, 512);
    let asking = Asking::new(&(below.clone() as Arc<dyn Medium>), None);
    let options = OpenOptions { unit_memory_bytes: 16 << 10, ..quiet() };
    let disk = Disk::open(asking.clone(), &options).unwrap();
    let volume = VolumeOptions { bytes: 64 * 60_000, block_bytes: 64, ..Default::default() };
    let volume = disk.create_volume("v", &volume).unwrap();
    let mut unit = disk.begin().unwrap();
    for n in 0..5000 {
        unit.write_at(&volume, n * 7919 % 5000 * 64, &[3; 64]).unwrap();
    }
    disk.checkpoint().unwrap();
    volume.write_at(59_999 * 64, &[1; 64]).unwrap();

    let stage = Arc::new((Mutex::new(Stage::default()), Condvar::new()));
    let begin = std::sync::mpsc::channel::<()>();
    let (main, shared) = (std::thread::current().id(), Arc::clone(&stage));
    *asking.before.lock().unwrap() = Some(Arc::new(move |at, kind| {
        if at.zone.0 < 4 || kind != MAIN {
            return Ok(());
        }
        let (stage, changed) = &*shared;
        let mut stage = stage.lock().unwrap();
        if std::thread::current().id() == main {
            if !std::mem::replace(&mut stage.committing, true) {
                begin.0.send(()).unwrap();
                drop(changed.wait_while(stage, |stage| !stage.held).unwrap());
            }
        } else if at.offset == 0 {
            stage.opened += 1;
        } else if !stage.held && stage.opened == 3 {
            stage.held = true;
            changed.notify_all();
            drop(changed.wait_while(stage, |stage| !stage.released).unwrap());
        }
        Ok(())
    }));
    let commit = std::thread::spawn(move || {
        begin.1.recv().unwrap();
        unit.commit().unwrap();
    });
    disk.checkpoint().unwrap();
    let left = below.copy();
    stage.0.lock().unwrap().released = true;
    stage.1.notify_all();
    commit.join().unwrap();
    drop((volume, disk));

    for appends in 0.. {
        let copy = left.copy();
        let count = AtomicU32::new(0);
        let refuse: Before =
            Arc::new(move |_, _| if count.fetch_add(1, SeqCst) < appends { Ok(()) } else { Err(power_gone()) });
        let opened = Disk::open(Asking::new(&(copy.clone() as Arc<dyn Medium>), Some(refuse)), &options);
        let disk = Disk::open(copy, &options).unwrap();
        assert_eq!(disk.info().unwrap().damaged, None, "after {appends} appends of an opening");
        let mut read = [0; 64];
        let volume = disk.volume("v").unwrap();
        volume.read_at(59_999 * 64, &mut read).unwrap();
        assert_eq!(read, [1; 64]);
        volume.read_at(0, &mut read).unwrap();
        assert_eq!(read, [0; 64]);
        if opened.is_ok() {
            assert!(appends > 0);
            break;
        }
    }
}

/// P8: both copies of a part of a list's map are gone, and the list is deleted. Its space does not come back, which is told;
/// the disk goes on all the same.
#[test]
fn a_deleted_list_whose_map_is_damaged_holds_up_nobody() {
    let medium = Watched::disk(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &quiet()).unwrap();
    let blocks = 2000;
    let options = VolumeOptions { bytes: 512 * blocks, block_bytes: 512, ..Default::default() };
    let [gone, kept] = ["gone", "kept"].map(|name| disk.create_volume(name, &options).unwrap());
    for n in 0..blocks {
        gone.write_at(n * 7 % blocks * 512, &[1; 512]).unwrap();
    }
    kept.write_at(0, &[1; 512]).unwrap();
    let begun = medium.events();
    disk.checkpoint().unwrap();
    drop((gone, kept, disk));
    let tables: Vec<(Position, usize)> = medium.journal()[begun..]
        .iter()
        .filter_map(|event| match event {
            Event::Append(at, bytes) if at.zone.0 >= 4 && bytes[6] > MOVED => Some((*at, bytes.len())),
            _ => None,
        })
        .collect();
    let reads = |disk: &Disk, name: &str| disk.volume(name).and_then(|volume| volume.read_at(0, &mut [0; 512])).is_ok();
    let read_only = OpenOptions { read_only: true, ..quiet() };
    // The copies are written one after the other.
    let found =
        tables.chunks(2).flat_map(|pair| (0..pair[0].1 / 512).map(|sector| (pair[0].0, pair[1].0, sector * 512)));
    let mut found = found.filter_map(|(a, b, skip)| {
        let left = medium.copy();
        for at in [a, b] {
            left.damage(Position { offset: at.offset + u32::try_from(skip).unwrap(), ..at }, &[0x5a; 512]);
        }
        let disk = Disk::open(left.clone(), &read_only).ok()?;
        (!reads(&disk, "gone") && reads(&disk, "kept")).then_some(left)
    });
    let left = found.next().expect("one sector holds the map of one list");
    let disk = Disk::open(left, &quiet()).unwrap();
    disk.delete_volume("gone").unwrap();
    let trouble = disk.info().unwrap().trouble.expect("it is told");
    assert!(trouble.contains("the map of list 1"), "{trouble}");
    let kept = disk.volume("kept").unwrap();
    for step in 0..40_000 {
        kept.write_at(scattered(step, blocks) * 512, &[2; 512]).unwrap();
    }
    assert!(disk.counters().zones_cleaned > 0);
}
