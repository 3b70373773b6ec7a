//! Clients at once on one disk, each in a thread of its own: real ones, or those of the schedule explorer.

use super::client::Client;
use super::{History, Step};
use crate::rng::{mix, wide};
use lode::{Disk, FormatOptions, ListOptions, OpenOptions, OrderedId, Place, Volume, VolumeOptions};
use lode_media::{Geometry, Medium, Position, ZoneId, ram::RamMedium};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "explore")]
use shuttle::thread;
#[cfg(not(feature = "explore"))]
use std::thread;

/// The disk on which clients meet.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// How many registers there are.
    pub registers: u32,
    /// How many ordered lists.
    pub lists: u32,
    /// Bytes of a register.
    pub block_bytes: u32,
    /// Zones of 16 KiB.
    pub zones: u32,
    /// Whether the disk has threads of its own.
    pub background: bool,
    /// What a unit keeps in memory before it spills.
    pub unit_memory_bytes: usize,
    /// Whether the medium and the clients take their time, so that calls overlap.
    pub hesitates: bool,
    /// For what is drawn of that.
    pub seed: u64,
}

/// A medium in memory that takes its time.
struct Hesitant {
    medium: RamMedium,
    pauses: Pauses,
}

/// Pauses drawn from a seed.
struct Pauses {
    wanted: bool,
    seed: u64,
    calls: AtomicU64,
}

impl Pauses {
    fn pause(&self) {
        if !self.wanted {
            return;
        }
        let draw = mix(self.seed, self.calls.fetch_add(1, Ordering::Relaxed));
        match draw % 8 {
            0 => thread::sleep(std::time::Duration::from_micros(draw % 100)),
            1..=3 => thread::yield_now(),
            _ => {}
        }
    }
}

impl Medium for Hesitant {
    fn geometry(&self) -> Geometry {
        self.medium.geometry()
    }

    fn read(&self, at: Position, into: &mut [u8]) -> lode_media::Result<()> {
        self.pauses.pause();
        self.medium.read(at, into)
    }

    fn append(&self, at: Position, pieces: &[&[u8]]) -> lode_media::Result<()> {
        self.pauses.pause();
        self.medium.append(at, pieces)
    }

    fn erase(&self, zone: ZoneId) -> lode_media::Result<()> {
        self.pauses.pause();
        self.medium.erase(zone)
    }

    fn sync(&self) -> lode_media::Result<()> {
        self.pauses.pause();
        self.medium.sync()
    }

    fn discard(&self, zone: ZoneId) -> lode_media::Result<()> {
        self.medium.discard(zone)
    }
}

struct Meeting {
    disk: Disk,
    volume: Volume,
    lists: Vec<OrderedId>,
}

fn make(setup: &Setup) -> lode::Result<Meeting> {
    let geometry = Geometry { zones: setup.zones, zone_bytes: 16 << 10, append_align: 512, devices: 1 };
    let pauses = Pauses { wanted: setup.hesitates, seed: setup.seed, calls: AtomicU64::new(0) };
    let medium: Arc<dyn Medium> = Arc::new(Hesitant { medium: RamMedium::new(geometry), pauses });
    Disk::format(Arc::clone(&medium), &FormatOptions { disk_id: u128::from(setup.seed) })?;
    let options = OpenOptions {
        background: setup.background,
        unit_memory_bytes: setup.unit_memory_bytes,
        cache_bytes: 0,
        ..OpenOptions::default()
    };
    let disk = Disk::open(medium, &options)?;
    let bytes = u64::from(setup.registers) * u64::from(setup.block_bytes);
    let options = VolumeOptions { bytes, block_bytes: setup.block_bytes, ..VolumeOptions::default() };
    let volume = disk.create_volume("registers", &options)?;
    let options = ListOptions { block_bytes: 64, ..ListOptions::default() };
    let lists = (0..setup.lists).map(|_| disk.create_list(&options, Place::Last)).collect::<lode::Result<_>>()?;
    Ok(Meeting { disk, volume, lists })
}

/// Runs clients at once, each its steps, and gives back what they saw; `Err`: one was told what none should be. At the
/// end a last one looks at everything.
pub fn run(setup: &Setup, clients: &[Vec<Step>]) -> Result<History, String> {
    let place = make(setup).map_err(|error| format!("making a disk: {error} ({:?})", error.kind()))?;
    let Meeting { disk, volume, lists } = &place;
    let mut history = History::default();
    #[cfg(feature = "planted")]
    let bug = lode::planted::get();
    thread::scope(|scope| {
        let mut running = Vec::new();
        for (number, steps) in (0..).zip(clients) {
            running.push(scope.spawn(move || {
                #[cfg(feature = "planted")]
                lode::planted::set(bug);
                let pauses = Pauses {
                    wanted: setup.hesitates,
                    seed: mix(setup.seed, u64::from(number)),
                    calls: AtomicU64::new(0),
                };
                let mut client = Client::new(number, disk, volume, lists);
                for step in steps {
                    client.step(*step)?;
                    pauses.pause();
                }
                Ok(client.end())
            }));
        }
        for thread in running {
            let done: Result<_, String> = thread.join().map_err(|_| "a client panicked".to_owned())?;
            history.units.extend(done?);
        }
        Ok::<(), String>(())
    })?;
    let number = u32::try_from(wide(clients.len())).expect("few clients");
    let mut last = Client::new(number, disk, volume, lists);
    last.step(Step::Read(0, setup.registers))?;
    for list in 0..setup.lists {
        last.step(Step::Look(list))?;
    }
    history.units.extend(last.end());
    Ok(history)
}
