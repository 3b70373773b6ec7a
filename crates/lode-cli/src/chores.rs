//! What has to be done at its time while a disk is served, which has no clock itself: leases of units end, and schedules
//! of snapshots are kept.

use crate::text;
use lode::{Disk, Result};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// How often it looks.
const LOOK: Duration = Duration::from_secs(2);

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

impl Chores {
    /// Looks now and then, unless the disk is open for reading only.
    pub fn start(disk: &Disk, read_only: bool) -> Chores {
        let (stop, stopped) = channel();
        let disk = disk.clone();
        let looking = move || {
            let mut told = String::new();
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let words = look(&disk, crate::now());
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
    use super::look;
    use lode::{Disk, FormatOptions, OpenOptions, SnapshotSchedule, UnitLabel, UnitOptions, VolumeOptions};
    use lode_media::fault::{FaultMedium, FaultPlan, FaultPoint, Lasting};
    use lode_media::{ErrorKind, Geometry, ram::RamMedium};
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
}
