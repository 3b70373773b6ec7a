//! Rules of those who meet: the schedules that R29 and R30 answer.
use crate::basics::quiet;
use crate::watch::{Call, Event, Watched};
use lode::{Disk, ErrorKind, OpenOptions, Survive, Volume, VolumeOptions};
use lode_media::Position;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

const BLOCK: u64 = 512;

fn options(bytes: u64) -> VolumeOptions {
    VolumeOptions { bytes, block_bytes: 512, ..VolumeOptions::default() }
}

fn uncached() -> OpenOptions {
    OpenOptions { cache_bytes: 0, ..quiet() }
}

fn stamp(step: u64) -> Vec<u8> {
    step.to_le_bytes().repeat(64)
}

fn stamp_of(volume: &Volume, block: u64) -> u64 {
    let mut bytes = [0; 512];
    volume.read_at(block * BLOCK, &mut bytes).unwrap();
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

/// Holds calls of the medium up until it is opened.
#[derive(Default)]
struct Gate {
    /// Somebody stands before it; it is open.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Gate {
    /// A gate before the calls of a medium that `stops` names.
    fn at(medium: &Watched, stops: impl Fn(&Call) -> bool + Send + Sync + 'static) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        let held = Arc::clone(&gate);
        medium.before_each(move |call| {
            if stops(call) {
                held.pass();
            }
        });
        gate
    }

    fn at_first_append(medium: &Watched) -> Arc<Gate> {
        let first = AtomicBool::new(true);
        Gate::at(medium, move |call| matches!(call, Call::Append) && first.swap(false, Ordering::Relaxed))
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 = true;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.1).unwrap());
    }

    fn wait_for_somebody(&self) {
        drop(self.changed.wait_while(self.state.lock().unwrap(), |state| !state.0).unwrap());
    }

    fn is_open(&self) -> bool {
        self.state.lock().unwrap().1
    }

    fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

/// Runs `work` while somebody stands before the gate. If it waits for the gate, it never ends: that is told after a
/// minute.
fn while_held_up(gate: &Gate, work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let (done, told) = mpsc::channel();
        scope.spawn(move || {
            work();
            done.send(()).unwrap();
        });
        let ended = told.recv_timeout(Duration::from_secs(60));
        gate.open();
        ended.expect("it ends while the medium is held up");
    });
}

/// A disk with two volumes and a log with something to clean. Without threads of its own nobody but the test appends.
fn two_volumes(background: bool, write_buffer_bytes: usize) -> (Arc<Watched>, Disk, Volume, Volume) {
    let medium = Watched::disk(96, 64 << 10, 512);
    let options_small = OpenOptions { background, write_buffer_bytes, ..uncached() };
    let disk = Disk::open(medium.clone(), &options_small).unwrap();
    let volume = disk.create_volume("v", &options(512 * BLOCK)).unwrap();
    let other = disk.create_volume("other", &options(512 * BLOCK)).unwrap();
    for step in 0..1024u64 {
        volume.write_at(step * 37 % 512 * BLOCK, &stamp(step + 1)).unwrap();
    }
    disk.flush(Survive::Power).unwrap();
    (medium, disk, volume, other)
}

/// R29: the device takes for ever over a sync that somebody flushes with. Commits, deletes, simple writes and reads go
/// on.
#[test]
fn a_commit_never_waits_for_a_sync_and_a_reader_never_for_a_flush() {
    let (medium, disk, volume, other) = two_volumes(true, 1 << 20);
    let gate = Gate::at(&medium, |call| matches!(call, Call::Sync));
    std::thread::scope(|scope| {
        volume.write_at(0, &stamp(5000)).unwrap();
        let flushing = scope.spawn(|| disk.flush(Survive::Power).unwrap());
        gate.wait_for_somebody();
        while_held_up(&gate, || {
            for step in 0..20u64 {
                let mut unit = disk.begin().unwrap();
                unit.write_at(&volume, step * BLOCK, &stamp(step)).unwrap();
                unit.write_at(&other, step * BLOCK, &stamp(step)).unwrap();
                unit.commit().unwrap();
                volume.write_at((100 + step) * BLOCK, &stamp(step)).unwrap();
            }
            assert_eq!(stamp_of(&volume, 7), 7);
            assert_eq!(stamp_of(&volume, 107), 7);
            assert_ne!(stamp_of(&volume, 300), 0);
            disk.delete_volume("other").unwrap();
            assert!(!gate.is_open());
        });
        flushing.join().unwrap();
    });
}

/// R29: the write buffer is full, since an append takes for ever. Whoever brings new data waits; commits, deletes and
/// the cleaner do not.
#[test]
fn only_new_data_waits_for_room_in_the_write_buffer() {
    let (medium, disk, volume, other) = two_volumes(false, 1);
    let mut units: Vec<_> = (0..20u64)
        .map(|n| {
            let mut unit = disk.begin().unwrap();
            unit.write_at(&volume, n * BLOCK, &stamp(7000 + n)).unwrap();
            unit
        })
        .collect();
    let gate = Gate::at_first_append(&medium);
    std::thread::scope(|scope| {
        other.write_at(0, &stamp(1)).unwrap();
        let flushing = scope.spawn(|| disk.flush(Survive::Process).unwrap());
        gate.wait_for_somebody();
        let writing = scope.spawn(|| {
            other.write_at(BLOCK, &stamp(2)).unwrap();
            assert!(gate.is_open(), "new data went in although the buffer was full");
        });
        while_held_up(&gate, || {
            for unit in units.drain(..) {
                unit.commit().unwrap();
            }
            assert_eq!(stamp_of(&volume, 3), 7003);
            disk.clean().unwrap();
            disk.delete_volume("v").unwrap();
        });
        writing.join().unwrap();
        flushing.join().unwrap();
    });
    assert_eq!((stamp_of(&other, 0), stamp_of(&other, 1)), (1, 2));
}

/// R26: the cleaner finds out what a zone holds from the medium; a zone that is full and still on its way there is none
/// of its business, or it would be taken for damaged and set aside.
#[test]
fn a_zone_that_is_still_to_be_appended_is_not_cleaned() {
    let medium = Watched::disk(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &OpenOptions { background: true, ..uncached() }).unwrap();
    let volume = disk.create_volume("v", &options(64 * BLOCK)).unwrap();
    disk.flush(Survive::Power).unwrap();
    let gate = Gate::at(&medium, |call| matches!(call, Call::Append));
    // Some zones full of blocks of which none lives.
    for step in 0..512 {
        volume.write_at(step % 64 * BLOCK, &stamp(step + 1)).unwrap();
    }
    gate.wait_for_somebody();
    while_held_up(&gate, || {
        disk.clean().unwrap();
        assert_eq!(disk.info().unwrap().zones_aside, 0);
    });
    assert_eq!(stamp_of(&volume, 63), 512);
}

/// R29: nobody who waits holds the lock. While one waits for room in the write buffer, another reads and asks.
#[test]
fn who_waits_for_room_holds_no_lock() {
    let (medium, disk, volume, other) = two_volumes(false, 1);
    let gate = Gate::at(&medium, |call| matches!(call, Call::Append));
    std::thread::scope(|scope| {
        other.write_at(0, &stamp(1)).unwrap();
        let flushing = scope.spawn(|| disk.flush(Survive::Process).unwrap());
        gate.wait_for_somebody();
        let writing: Vec<_> = (1..4)
            .map(|n| {
                let other = &other;
                scope.spawn(move || other.write_at(n * BLOCK, &stamp(n)).unwrap())
            })
            .collect();
        while_held_up(&gate, || {
            for block in 0..512 {
                assert_ne!(stamp_of(&volume, block), 0);
                assert_eq!(disk.info().unwrap().reserved, 0);
            }
        });
        for thread in writing {
            thread.join().unwrap();
        }
        flushing.join().unwrap();
    });
}

/// A disk that is mostly full, and scattered: neighbours lie in different zones.
fn scattered() -> (Arc<Watched>, Disk, Volume, u64) {
    let medium = Watched::disk(64, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &uncached()).unwrap();
    let blocks = disk.info().unwrap().usable / (512 + 128) * 7 / 10;
    let volume = disk.create_volume("v", &options(blocks * BLOCK)).unwrap();
    for n in 0..blocks {
        volume.write_at(n * 769 % blocks * BLOCK, &stamp(1)).unwrap();
    }
    disk.flush(Survive::Power).unwrap();
    (medium, disk, volume, blocks)
}

/// Overwrites everything behind block `from` until the zones of these places were erased and filled again.
fn reuse(medium: &Watched, volume: &Volume, blocks: u64, from: u64, places: &[Position]) {
    let since = medium.events();
    for round in 0..40u64 {
        for n in from..blocks {
            volume.write_at((from + n * 769 % (blocks - from)) * BLOCK, &stamp(100 + round)).unwrap();
        }
        let journal = medium.journal();
        let filled = |at: &Position| {
            let erased =
                journal[since..].iter().position(|event| matches!(event, Event::Erase(zone) if *zone == at.zone));
            erased.is_some_and(|erased| {
                journal[since + erased..].iter().any(|event| {
                    matches!(event, Event::Append(to, bytes)
                        if to.zone == at.zone && u64::from(to.offset) + bytes.len() as u64 > u64::from(at.offset) + 512)
                })
            })
        };
        if places.iter().all(filled) {
            return;
        }
    }
    panic!("the zones are not used again");
}

/// R30: between the lookup of a block and the read of its bytes the block is moved, or overwritten, and its zone erased
/// and filled with other blocks. That is no damage: the read starts over.
#[test]
fn a_read_under_which_its_zone_is_erased_and_filled_again_starts_over() {
    for overwritten in [false, true] {
        let (medium, disk, volume, blocks) = scattered();
        let (armed, inner, target) = (AtomicBool::new(true), Arc::downgrade(&medium), volume.clone());
        medium.before_each(move |call| {
            let Call::Read(at) = call else { return };
            if armed.swap(false, Ordering::Relaxed) {
                if overwritten {
                    target.write_at(0, &stamp(2)).unwrap();
                }
                reuse(&inner.upgrade().unwrap(), &target, blocks, 1, &[*at]);
            }
        });
        assert_eq!(stamp_of(&volume, 0), if overwritten { 2 } else { 1 });
        medium.let_be();
        assert!(disk.counters().zones_cleaned > 0);
    }
}

/// R30: a read of many blocks, which lie in many places, has some of its bytes when a unit overwrites all of these
/// blocks and their zones are filled with others. What it gives back is of one time, not of two.
#[test]
fn a_read_of_many_blocks_gives_what_was_there_at_one_time() {
    let (medium, disk, volume, blocks) = scattered();
    let (reads, inner, target, writer) = (AtomicU64::new(0), Arc::downgrade(&medium), volume.clone(), disk.clone());
    let places = Mutex::new(Vec::new());
    medium.before_each(move |call| {
        let Call::Read(at) = call else { return };
        let count = reads.fetch_add(1, Ordering::Relaxed);
        if count < 8 {
            places.lock().unwrap().push(*at);
        }
        if count == 7 {
            let mut unit = writer.begin().unwrap();
            for block in 0..16 {
                unit.write_at(&target, block * BLOCK, &stamp(2)).unwrap();
            }
            unit.commit().unwrap();
            reuse(&inner.upgrade().unwrap(), &target, blocks, 16, &places.lock().unwrap()[7..]);
        }
    });
    let mut bytes = vec![0; 16 * 512];
    volume.read_at(0, &mut bytes).unwrap();
    medium.let_be();
    let found: Vec<u64> = bytes.chunks(512).map(|block| u64::from_le_bytes(block[..8].try_into().unwrap())).collect();
    assert!(found.iter().all(|stamp| *stamp == 2), "{found:?}");
}

/// R30: the bytes of a block that has not moved are wrong. Reading again and again would not end: it is damage, told
/// with the block's name.
#[test]
fn a_mismatch_at_an_unchanged_place_is_damage() {
    let (medium, _disk, volume, _) = scattered();
    let place = Arc::new(Mutex::new(None));
    let (seen, reads) = (Arc::clone(&place), AtomicU64::new(0));
    medium.before_each(move |call| {
        let Call::Read(at) = call else { return };
        seen.lock().unwrap().get_or_insert(*at);
        assert!(reads.fetch_add(1, Ordering::Relaxed) < 50, "it reads for ever");
    });
    assert_eq!(stamp_of(&volume, 5), 1);
    let place = place.lock().unwrap().unwrap();
    medium.damage(place, &[0xff]);
    let error = volume.read_at(5 * BLOCK, &mut [0; 512]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("block 5 "), "{error}");
    assert_eq!(stamp_of(&volume, 6), 1);
}

/// R30: a block is in the cache by its place; the block moves, its zone is filled again, and another block comes to lie
/// at the very same place. The cache is not asked for that one's content by the place alone.
#[test]
fn a_cached_block_is_not_taken_for_another_that_lies_at_its_place_now() {
    let medium = Watched::disk(64, 64 << 10, 512);
    let disk = Disk::open(medium, &quiet()).unwrap();
    let blocks = disk.info().unwrap().usable / (512 + 128) * 6 / 10;
    let volume = disk.create_volume("v", &options(blocks * BLOCK)).unwrap();
    let mut twin = vec![0; usize::try_from(blocks).unwrap()];
    for step in 1..=blocks * 6 {
        let block = step * 769 % blocks;
        volume.write_at(block * BLOCK, &stamp(step)).unwrap();
        twin[usize::try_from(block).unwrap()] = step;
        if step % 64 == 0 {
            disk.flush(Survive::Process).unwrap();
            for block in (step % 16..blocks).step_by(16) {
                assert_eq!(stamp_of(&volume, block), twin[usize::try_from(block).unwrap()], "block {block}");
            }
        }
    }
    assert!(disk.counters().zones_cleaned > 20);
}

/// R29: a unit holds a megabyte in memory when the write buffer fills up: its commit spills first, but must not wait.
#[test]
fn a_commit_that_spills_does_not_wait_for_room_in_the_write_buffer() {
    let medium = Watched::disk(96, 64 << 10, 512);
    let disk = Disk::open(medium.clone(), &OpenOptions { write_buffer_bytes: 1, ..uncached() }).unwrap();
    let volume = disk.create_volume("v", &options(512 * BLOCK)).unwrap();
    let mut unit = disk.begin().unwrap();
    unit.write_at(&volume, 0, &[1; 128 << 10]).unwrap();
    let gate = Gate::at_first_append(&medium);
    std::thread::scope(|scope| {
        volume.write_at(300 * BLOCK, &stamp(1)).unwrap();
        let flushing = scope.spawn(|| disk.flush(Survive::Process).unwrap());
        gate.wait_for_somebody();
        while_held_up(&gate, || drop(unit.commit().map(|_| ())));
        flushing.join().unwrap();
    });
}
