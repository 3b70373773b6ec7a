//! What has to be done at its time while a disk is served, which has no clock itself: leases of units end, schedules
//! of snapshots are kept, and what lies scattered is brought together when nobody works.

use crate::text;
use lode::{Disk, ErrorKind, ListId, Result, Survive};
use lode_fs::{FileSystem, Retention, Time};
use std::ops::ControlFlow;
use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// How often it looks.
const LOOK: Duration = Duration::from_secs(2);

/// So many looks in a row find nobody at work before the layout is improved.
const IDLE_LOOKS: u32 = 5;

/// The thread that looks.
pub struct Chores {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A time as the names of snapshots have it.
pub fn when(now: u64) -> String {
    humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + Duration::from_nanos(now)).to_string()
}

/// Does what is due, each whether or not the other fails. Gives back what failed.
fn look(disk: &Disk, now: u64) -> String {
    let told = |what: &str, done: Result<()>| done.err().map(|error| format!("{what}: {error}"));
    let leases = told("ending units", disk.end_leases(now).map(drop));
    let schedules = told("schedules of snapshots", disk.run_schedules(now, &when).map(drop));
    leases.into_iter().chain(schedules).collect::<Vec<_>>().join("; ")
}

/// A file system that is served.
pub struct Files {
    /// Which.
    pub fs: FileSystem,
    /// Snapshots of it that are kept by themselves.
    pub retained: Vec<Retention>,
}

impl Files {
    fn look(&self, now: u64) -> String {
        self.fs.settle();
        let name = |made: Time| when(made.0.max(0).cast_unsigned());
        let now = Time(i64::try_from(now).unwrap_or(i64::MAX));
        let done = self.retained.iter().map(|retention| (retention, self.fs.retain(retention, now, &name)));
        let told = done.filter_map(|(of, done)| Some(format!("snapshots {}: {}", of.name, done.err()?)));
        told.collect::<Vec<_>>().join("; ")
    }
}

/// Brings together what lies scattered when nobody works (*The Logical Disk*, section 3.6: the reorganizer).
#[derive(Default)]
struct Reorganizer {
    /// What users had done at the last look.
    seen: (u64, u64),
    /// Looks since then.
    idle: u32,
    /// All of it was looked through since then.
    done: bool,
}

/// What may lie scattered.
enum Scattered {
    Volume(String),
    /// A list of the file system: of a large file, or of what all files have.
    Files(ListId),
}

impl Reorganizer {
    /// What users have done so far.
    fn activity(disk: &Disk) -> (u64, u64) {
        let counters = disk.counters();
        (counters.user_bytes, counters.reads)
    }

    /// A look. Ends its work as soon as somebody does something, or `stopped` says so.
    fn look(&mut self, disk: &Disk, stopped: impl Fn() -> bool) -> Result<()> {
        let now = Self::activity(disk);
        if now != self.seen {
            *self = Reorganizer { seen: now, ..Reorganizer::default() };
            return Ok(());
        }
        self.idle = self.idle.saturating_add(1);
        if self.done || self.idle < IDLE_LOOKS {
            return Ok(());
        }
        let mut wanted = true;
        let volumes = disk.volume_names().into_iter().map(Scattered::Volume);
        for what in volumes.chain(disk.file_lists().into_iter().map(Scattered::Files)) {
            let step = &mut |_, _| {
                wanted = !stopped() && Self::activity(disk) == now;
                if wanted { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            let done = match what {
                Scattered::Volume(name) => disk.recluster(&name, step),
                Scattered::Files(list) => disk.recluster_file_list(list, step),
            };
            match done {
                // Deleted meanwhile; or there is no room for it, which is no trouble.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Full) => {}
                done => drop(done?),
            }
            if !wanted {
                return Ok(());
            }
        }
        self.done = true;
        disk.flush(Survive::Power).map(drop)
    }
}

impl Chores {
    /// Looks now and then, unless the disk is open for reading only.
    pub fn start(disk: &Disk, read_only: bool, reorganize: bool, files: Option<Files>) -> Chores {
        let (stop, stopped) = channel();
        let disk = disk.clone();
        let mut reorganizer = reorganize.then(Reorganizer::default);
        let looking = move || {
            let mut told = String::new();
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let mut words = look(&disk, crate::now());
                if let Some(failed) = files.as_ref().map(|files| files.look(crate::now())) {
                    let between = if words.is_empty() || failed.is_empty() { "" } else { "; " };
                    words = format!("{words}{between}{failed}");
                }
                let ended = || stopped.try_recv() == Err(TryRecvError::Disconnected);
                if let Some(Err(error)) = reorganizer.as_mut().map(|reorganizer| reorganizer.look(&disk, ended)) {
                    words.push_str(&format!("; reorganizing: {error}"));
                }
                // What goes on failing is told once.
                if words != told && !words.is_empty() {
                    eprintln!("lode: {}", text::safe(&words));
                }
                told = words;
            }
        };
        let start = || std::thread::Builder::new().name("chores".into()).spawn(looking).ok();
        Chores { stop: Some(stop), thread: if read_only { None } else { start() } }
    }

    /// Looks no more.
    pub fn stop(mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has no panic that could be acted on.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{IDLE_LOOKS, Reorganizer, look};
    use lode::{
        Compression, Disk, FormatOptions, OpenOptions, SnapshotSchedule, UnitLabel, UnitOptions, VolumeOptions,
    };
    use lode_media::fault::{FaultMedium, FaultPlan, FaultPoint, Lasting};
    use lode_media::{ErrorKind, Geometry, ram::RamMedium};
    use std::ops::ControlFlow;
    use std::sync::Arc;

    #[test]
    fn a_unit_that_cannot_be_read_holds_up_no_schedule() {
        let geometry = Geometry { zones: 64, zone_bytes: 1 << 20, append_align: 4096, devices: 1 };
        let medium = Arc::new(FaultMedium::new(RamMedium::new(geometry), FaultPlan::new(1)));
        Disk::format(medium.clone(), &FormatOptions { disk_id: 7 }).expect("it is formatted");
        let options = OpenOptions { background: false, cache_bytes: 0, ..OpenOptions::default() };
        let disk = Disk::open(medium.clone(), &options).expect("it opens");
        let size = VolumeOptions { bytes: 1 << 20, ..VolumeOptions::default() };
        let data = disk.create_volume("data", &size).expect("there is room");
        let label = UnitLabel { label: "job".into(), until: 1, ..UnitLabel::default() };
        let mut unit = disk.begin_labelled(&label, &UnitOptions::default()).expect("there is room");
        unit.write_at(&data, 0, &[1; 4096]).and_then(|()| unit.barrier(b"")).expect("there is room");
        let every = SnapshotSchedule { name: "often".into(), every: 1 << 30, keep: 2, ..SnapshotSchedule::default() };
        disk.set_schedule(&every).expect("there is room");
        drop(unit);
        disk.close().expect("it closes");
        let disk = Disk::open(medium.clone(), &options).expect("it opens");
        medium.fail(FaultPoint::Read, 1, Lasting::Forever, ErrorKind::Io);
        let words = look(&disk, 1 << 40);
        assert!(words.starts_with("ending units: "), "{words}");
        assert_eq!(disk.snapshots().len(), 1, "{words}");
        medium.heal();
        assert_eq!(look(&disk, 1 << 40), "");
        assert!(disk.units().expect("they are readable").is_empty());
    }

    /// LD-35: it runs only when nobody works, and ends when somebody does.
    #[test]
    fn what_lies_scattered_is_brought_together_when_nobody_works() {
        let geometry = Geometry { zones: 160, zone_bytes: 1 << 20, append_align: 4096, devices: 1 };
        let medium = Arc::new(RamMedium::new(geometry));
        Disk::format(medium.clone(), &FormatOptions { disk_id: 8 }).expect("it is formatted");
        let options = OpenOptions { background: false, ..OpenOptions::default() };
        let disk = Disk::open(medium, &options).expect("it opens");
        let size = VolumeOptions { bytes: 32 << 20, block_bytes: 4096, compression: Compression::None };
        let data = disk.create_volume("data", &size).expect("there is room");
        let blocks = size.bytes / 4096;
        for n in 0..blocks {
            data.write_at(n * 4099 % blocks * 4096, &[1; 4096]).expect("there is room");
        }
        let file = disk.create_file_list("", &VolumeOptions { bytes: 4 << 20, ..size }).expect("there is room");
        for n in 0..1024 {
            file.write_at(n * 259 % 1024 * 4096, &[2; 4096]).expect("there is room");
        }
        let scattered = || disk.stretches("data").expect("it is there");
        let before = scattered();
        let mut reorganizer = Reorganizer::default();
        let mut looks = |count, stopped: &dyn Fn() -> bool| {
            for _ in 0..count {
                reorganizer.look(&disk, stopped).expect("there is room");
            }
        };
        // Somebody works all the time.
        for _ in 0..3 * IDLE_LOOKS {
            looks(1, &|| false);
            data.read_at(0, &mut [0; 512]).expect("it is there");
        }
        looks(IDLE_LOOKS - 1, &|| false);
        assert_eq!(scattered(), before);
        // Somebody comes when the first piece is done.
        looks(2, &|| data.read_at(0, &mut [0; 512]).is_err());
        let between = scattered();
        assert!(between < before && between > before / 3, "{before} stretches, then {between}");
        looks(1 + IDLE_LOOKS, &|| false);
        assert!(scattered() < before / 50, "{before} stretches, then {}", scattered());
        let moved = disk.recluster_file_list(file.list(), &mut |_, _| ControlFlow::Continue(()));
        assert_eq!(moved.expect("there is room"), 0, "it lies in order, too");
    }
}
