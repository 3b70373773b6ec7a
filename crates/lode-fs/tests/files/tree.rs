//! Files by their paths.
use lode::{Disk, FormatOptions, OpenOptions};
use lode_fs::{Caller, FileSystem, Ino, MakeOptions, New, Time, View};
use lode_media::{Geometry, Medium, ram::RamMedium};
use std::sync::Arc;

pub const NOW: Time = Time(1_000);
pub const CALLER: Caller = Caller { uid: 1, gid: 1, umask: 0, now: NOW };

pub fn medium(zones: u32) -> Arc<dyn Medium> {
    let geometry = Geometry { zones, zone_bytes: 1 << 20, append_align: 4096, devices: 1 };
    let medium = Arc::new(RamMedium::new(geometry));
    Disk::format(medium.clone(), &FormatOptions { disk_id: 7 }).unwrap();
    medium
}

pub fn open(medium: &Arc<dyn Medium>) -> (Arc<Disk>, FileSystem) {
    let options = OpenOptions { background: false, ..OpenOptions::default() };
    let disk = Arc::new(Disk::open(Arc::clone(medium), &options).unwrap());
    if !FileSystem::is_on(&disk).unwrap() {
        FileSystem::make(&disk, &MakeOptions { key: 9, caller: CALLER }).unwrap();
    }
    let fs = FileSystem::open(&disk, NOW).unwrap();
    (disk, fs)
}

/// The inode at a path.
pub fn at(view: &View, path: &str) -> Option<Ino> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    let mut at = Ino::ROOT;
    for part in parts {
        at = view.lookup(at, part.as_bytes()).ok()?.ino;
    }
    Some(at)
}

/// Makes or changes a file at a path whose directory is there.
pub fn put(view: &View, path: &str, content: &str) {
    let (directory, name) = path.rsplit_once('/').unwrap();
    let directory = at(view, directory).unwrap();
    let ino = at(view, path)
        .unwrap_or_else(|| view.make(directory, name.as_bytes(), &New::file(0o644), &CALLER).unwrap().ino);
    view.set_attributes(ino, &lode_fs::Changes { size: Some(0), ..Default::default() }, NOW).unwrap();
    view.write(ino, 0, content.as_bytes(), NOW).unwrap();
}

pub fn get(view: &View, path: &str) -> Option<String> {
    let ino = at(view, path)?;
    let mut bytes = vec![0; 1 << 16];
    let len = view.read(ino, 0, &mut bytes).unwrap();
    Some(String::from_utf8(bytes[..len].to_vec()).unwrap())
}

pub fn directory(view: &View, path: &str) -> Ino {
    let (parent, name) = path.rsplit_once('/').unwrap();
    view.make(at(view, parent).unwrap(), name.as_bytes(), &New::directory(0o755), &CALLER).unwrap().ino
}

pub fn remove(view: &View, path: &str) {
    let (parent, name) = path.rsplit_once('/').unwrap();
    view.unlink(at(view, parent).unwrap(), name.as_bytes(), NOW).unwrap();
}

pub fn is_sound(fs: &FileSystem) {
    let report = fs.check(&mut |_, _| std::ops::ControlFlow::Continue(())).unwrap().unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}
