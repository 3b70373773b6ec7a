//! A medium that keeps a journal of what was done to it, lets a test do something in the middle of a call, and can be
//! built again as a power cut may have left it.
use lode::{Disk, FormatOptions};
use lode_media::{Geometry, Medium, Position, Result, ZoneId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

/// What an erased zone reads as: whoever reads it by mistake sees nothing that makes sense.
const NOISE: u8 = 0xA5;

/// Something that changed the medium.
#[derive(Clone)]
pub enum Event {
    Append(Position, Vec<u8>),
    Erase(ZoneId),
    Sync,
}

impl Event {
    /// The zone that was appended to or erased.
    pub fn zone(&self) -> Option<u32> {
        match self {
            Event::Append(at, _) => Some(at.zone.0),
            Event::Erase(zone) => Some(zone.0),
            Event::Sync => None,
        }
    }

    /// A root is written.
    pub fn is_root(&self) -> bool {
        matches!(self, Event::Append(at, _) if at.zone.0 < 4)
    }
}

/// A call that is about to be done.
pub enum Call {
    Read(Position),
    Append,
    Sync,
}

type Hook = Arc<dyn Fn(&Call) + Send + Sync>;

/// Zones in plain memory.
pub struct Watched {
    geometry: Geometry,
    bytes: RwLock<Vec<u8>>,
    journal: Mutex<Vec<Event>>,
    hook: Mutex<Option<Hook>>,
    reads: AtomicU64,
    read_bytes: AtomicU64,
}

impl Watched {
    fn over(geometry: Geometry, bytes: Vec<u8>) -> Arc<Watched> {
        Arc::new(Watched {
            geometry,
            bytes: RwLock::new(bytes),
            journal: Mutex::default(),
            hook: Mutex::default(),
            reads: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
        })
    }

    /// A new disk. Its journal begins with the making of it.
    pub fn disk(zones: u32, zone_bytes: u32, append_align: u32) -> Arc<Watched> {
        let geometry = Geometry { zones, zone_bytes, append_align, devices: 1 };
        let medium = Watched::over(geometry, vec![NOISE; geometry_bytes(geometry)]);
        Disk::format(medium.clone(), &FormatOptions { disk_id: 7 }).unwrap();
        medium
    }

    /// Everything done so far.
    pub fn journal(&self) -> Vec<Event> {
        self.journal.lock().unwrap().clone()
    }

    /// How much was done so far.
    pub fn events(&self) -> usize {
        self.journal.lock().unwrap().len()
    }

    /// Calls of `read`, and bytes read, so far.
    pub fn reads(&self) -> (u64, u64) {
        (self.reads.load(Ordering::Relaxed), self.read_bytes.load(Ordering::Relaxed))
    }

    /// Runs `hook` before each call, in the thread of the call. The engine holds no lock then.
    pub fn before_each(&self, hook: impl Fn(&Call) + Send + Sync + 'static) {
        *self.hook.lock().unwrap() = Some(Arc::new(hook));
    }

    /// Runs nothing before calls any more.
    pub fn let_be(&self) {
        *self.hook.lock().unwrap() = None;
    }

    fn call(&self, call: &Call) {
        let hook = self.hook.lock().unwrap().clone();
        if let Some(hook) = hook {
            hook(call);
        }
    }

    /// A copy as the medium is now: what the death of the process leaves.
    pub fn copy(&self) -> Arc<Watched> {
        Watched::over(self.geometry, self.bytes.read().unwrap().clone())
    }

    /// Puts bytes in place, and gives back what was there.
    pub fn damage(&self, at: Position, with: &[u8]) -> Vec<u8> {
        let start = self.start(at);
        let mut bytes = self.bytes.write().unwrap();
        let old = bytes[start..start + with.len()].to_vec();
        bytes[start..start + with.len()].copy_from_slice(with);
        old
    }

    fn start(&self, at: Position) -> usize {
        let start = u64::from(at.zone.0) * u64::from(self.geometry.zone_bytes) + u64::from(at.offset);
        usize::try_from(start).unwrap()
    }

    fn apply(&self, event: &Event) {
        match event {
            Event::Append(at, bytes) => drop(self.damage(*at, bytes)),
            Event::Erase(zone) => {
                let noise = vec![NOISE; usize::try_from(self.geometry.zone_bytes).unwrap()];
                self.damage(Position { zone: *zone, offset: 0 }, &noise);
            }
            Event::Sync => {}
        }
    }

    fn note(&self, event: Event) {
        self.apply(&event);
        self.journal.lock().unwrap().push(event);
    }
}

fn geometry_bytes(geometry: Geometry) -> usize {
    usize::try_from(u64::from(geometry.zones) * u64::from(geometry.zone_bytes)).unwrap()
}

/// Media as power cuts leave them, out of a journal, going forward in it.
pub struct Cuts<'a> {
    journal: &'a [Event],
    /// With everything before `synced`, all of which was made durable by the sync in front of it.
    base: Arc<Watched>,
    synced: usize,
}

impl<'a> Cuts<'a> {
    pub fn of(medium: &Watched, journal: &'a [Event]) -> Cuts<'a> {
        let base = Watched::over(medium.geometry, vec![NOISE; geometry_bytes(medium.geometry)]);
        Cuts { journal, base, synced: 0 }
    }

    /// What was not durable when event `at` was about to happen.
    pub fn waiting(&mut self, at: usize) -> std::ops::Range<usize> {
        let last = (self.synced..at).rev().find(|n| matches!(self.journal[*n], Event::Sync));
        if let Some(last) = last {
            for event in &self.journal[self.synced..=last] {
                self.base.apply(event);
            }
            self.synced = last + 1;
        }
        self.synced..at
    }

    /// The medium after a cut in front of event `at`: of what was not durable, what `stays` says has happened.
    pub fn cut(&mut self, at: usize, stays: impl Fn(usize, &Event) -> bool) -> Arc<Watched> {
        let waiting = self.waiting(at);
        let medium = self.base.copy();
        for n in waiting.filter(|n| stays(*n, &self.journal[*n])) {
            medium.apply(&self.journal[n]);
        }
        medium
    }

    /// Cuts in front of event `at`: everything has happened; nothing; and all but one, for each that was not durable.
    pub fn all(&mut self, at: usize, mut see: impl FnMut(&Arc<Watched>)) {
        see(&self.cut(at, |_, _| true));
        see(&self.cut(at, |_, _| false));
        for lost in self.waiting(at) {
            see(&self.cut(at, |n, _| n != lost));
        }
    }
}

impl Medium for Watched {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: Position, into: &mut [u8]) -> Result<()> {
        self.call(&Call::Read(at));
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(u64::try_from(into.len()).unwrap(), Ordering::Relaxed);
        let start = self.start(at);
        into.copy_from_slice(&self.bytes.read().unwrap()[start..start + into.len()]);
        Ok(())
    }

    fn append(&self, at: Position, pieces: &[&[u8]]) -> Result<()> {
        self.call(&Call::Append);
        self.note(Event::Append(at, pieces.concat()));
        Ok(())
    }

    fn erase(&self, zone: ZoneId) -> Result<()> {
        self.note(Event::Erase(zone));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.call(&Call::Sync);
        self.note(Event::Sync);
        Ok(())
    }
}
