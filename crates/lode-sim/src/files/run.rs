//! Operations drawn from a seed, done on a file system and on the model at once, comparing all the way.

use super::look;
use super::model::{Inode, Node, Tree};
use super::transactions::Open;
use crate::rng::{Rng, mix, narrow, wide};
use crate::trace::{Erased, TraceOp, TracingMedium};
use lode::{Disk, FormatOptions, OpenOptions};
use lode_fs::{
    Allocation, Attributes, Caller, Changes, ErrorKind, FileSystem, Gathering, Ino, Kind, MakeOptions, New, Renaming,
    Setting, Time, View,
};
use lode_media::{Geometry, Medium};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One operation: where the trace was before and behind it, and what a crash may leave from then on.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    pub start: usize,
    pub end: usize,
    /// The last state that no crash may take away.
    pub flushed: usize,
    /// The last state there is.
    pub states: usize,
}

/// What a run was.
#[derive(Default)]
pub struct Recording {
    pub ops: Vec<TraceOp>,
    /// The trace up to here made the file system.
    pub made: usize,
    pub notes: Vec<Note>,
    /// The hash of each state.
    pub states: Vec<u64>,
    /// Each in words, if wanted.
    pub words: Vec<String>,
    /// Operations refused for want of space.
    pub full: u64,
    /// Transactions that were committed, and such as were in conflict.
    pub committed: u64,
    pub conflicts: u64,
    /// Of those that were committed, such as were within another one.
    pub within: u64,
    /// Writes that were gathered.
    pub gathered: u64,
}

impl Recording {
    /// The first and the last state that a crash may leave after so many operations on the medium.
    pub fn allowed(&self, cut: usize) -> (usize, usize) {
        let first = self.notes.iter().filter(|note| note.end <= cut).map(|note| note.flushed).max().unwrap_or(0);
        let last = self.notes.iter().filter(|note| note.start < cut).map(|note| note.states).max().unwrap_or(0);
        (first, last)
    }
}

/// How a run goes.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub seed: u64,
    pub ops: usize,
    pub geometry: Geometry,
    pub erased: Erased,
    pub big: bool,
    /// How much is gathered of writes here and there.
    pub gathered: Gathering,
    /// Writes that begin within a block come in two pieces, as from a kernel, and count as one.
    pub joined: bool,
}

impl Setup {
    /// Follows from the seed.
    pub fn of(seed: u64) -> Setup {
        let mut rng = Rng::new(seed);
        let zone_bytes = *rng.pick(&[64 << 10, 128 << 10, 256 << 10]);
        let bytes = *rng.pick(&[3u32 << 20, 6 << 20, 24 << 20]);
        let align = *rng.pick(&[512, 4096]);
        Setup {
            seed,
            ops: narrow(if rng.percent(20) { rng.between(400, 900) } else { rng.between(20, 200) }),
            geometry: Geometry { zones: (bytes / zone_bytes).max(64), zone_bytes, append_align: align, devices: 1 },
            erased: *rng.pick(&[Erased::Old, Erased::Zeros, Erased::Noise]),
            big: rng.percent(30),
            gathered: {
                // Drawn apart: what a seed does without it stays as it was.
                let mut rng = Rng::new(mix(seed, 0x6A78E));
                let bytes = *rng.pick(&[0, 4096, 5 * 4096, 64 << 10, 1 << 20]);
                Gathering { bytes, after: u32::from(rng.percent(50)) }
            },
            joined: Rng::new(mix(seed, 0x101ED)).percent(50),
        }
    }
}

/// How disks of runs are opened.
pub fn options() -> OpenOptions {
    OpenOptions { background: false, cache_bytes: 1 << 20, unit_memory_bytes: 64 << 10, ..OpenOptions::default() }
}

pub(super) struct Run {
    setup: Setup,
    pub rng: Rng,
    medium: Arc<TracingMedium>,
    disk: Option<Arc<Disk>>,
    fs: Option<FileSystem>,
    pub view: Option<View>,
    pub tree: Tree,
    pub inos: BTreeMap<Node, Ino>,
    pub held: BTreeMap<Node, u64>,
    names: Vec<Vec<u8>>,
    pub now: i64,
    flushed: usize,
    /// What of each inode says that it was changed, and the state in which it was last.
    changed: BTreeMap<Node, (Marks, usize)>,
    pub recording: Recording,
    pub transactions: Vec<Open>,
    pub begun: usize,
    /// The step is one in a transaction.
    pub within: bool,
    /// So many blocks are still to be written over, one after the other.
    burst: u64,
}

/// Version, turns, names, time of the last change.
type Marks = (u64, u64, u32, Time);

pub(super) type Step<T = ()> = Result<T, String>;

pub(super) fn wrong(what: impl std::fmt::Display) -> String {
    what.to_string()
}

/// A run of a seed, and what it was.
pub fn run(setup: &Setup) -> (Step, Recording) {
    let medium = Arc::new(TracingMedium::new(setup.geometry, setup.erased));
    let mut rng = Rng::new(setup.seed ^ 0xF11E5);
    let names = (0..rng.between(3, 60)).map(|n| name(&mut rng, n)).collect();
    let mut run = Run {
        setup: *setup,
        rng,
        medium,
        disk: None,
        fs: None,
        view: None,
        tree: Tree::new(Time(1)),
        inos: BTreeMap::from([(0, Ino::ROOT)]),
        held: BTreeMap::new(),
        names,
        now: 1,
        flushed: 0,
        changed: BTreeMap::new(),
        recording: Recording::default(),
        transactions: Vec::new(),
        begun: 0,
        within: false,
        burst: 0,
    };
    let result = run.all();
    let mut recording = std::mem::take(&mut run.recording);
    recording.ops = run.medium.ops();
    let broken = run.medium.violations();
    (result.and_then(|()| broken.first().map_or(Ok(()), |broken| Err(broken.clone()))), recording)
}

/// Short ones mostly; long ones divide buckets.
fn name(rng: &mut Rng, n: u64) -> Vec<u8> {
    let mut name = format!("n{n}").into_bytes();
    if rng.percent(30) {
        name.resize(narrow(rng.between(3, 255)), b'x');
    }
    name
}

impl Run {
    fn view(&self) -> View {
        self.view.clone().expect("open")
    }

    pub fn fs(&self) -> &FileSystem {
        self.fs.as_ref().expect("open")
    }

    fn caller(&self) -> Caller {
        Caller { uid: 1, gid: 2, umask: 0o22, now: Time(self.now) }
    }

    fn open(&mut self) -> Step {
        let medium: Arc<dyn Medium> = Arc::clone(&self.medium) as Arc<dyn Medium>;
        let disk = Arc::new(Disk::open(medium, &options()).map_err(wrong)?);
        let fs = FileSystem::open(&disk, Time(self.now)).map_err(wrong)?;
        fs.gather(self.setup.gathered);
        if self.setup.joined {
            fs.join_writes();
        }
        (self.view, self.fs, self.disk) = (Some(fs.holding_view()), Some(fs), Some(disk));
        Ok(())
    }

    fn close(&mut self) -> Step {
        (self.view, self.fs) = (None, None);
        let disk = Arc::try_unwrap(self.disk.take().expect("open")).map_err(|_| "the disk is still held")?;
        disk.close().map_err(wrong)
    }

    fn all(&mut self) -> Step {
        let medium: Arc<dyn Medium> = Arc::clone(&self.medium) as Arc<dyn Medium>;
        Disk::format(Arc::clone(&medium), &FormatOptions { disk_id: u128::from(self.setup.seed) }).map_err(wrong)?;
        let disk = Arc::new(Disk::open(medium, &options()).map_err(wrong)?);
        let caller = Caller { now: Time(1), ..Caller::default() };
        FileSystem::make(&disk, &MakeOptions { key: u128::from(self.setup.seed), caller }).map_err(wrong)?;
        disk.flush(lode::Survive::Power).map_err(wrong)?;
        drop(disk);
        self.open()?;
        self.recording.made = self.medium.ops().len();
        self.note(self.recording.made, "made")?;
        for n in 0..self.setup.ops {
            let start = self.medium.ops().len();
            self.now += 1;
            let what = if self.burst > 0 { self.write_over() } else { self.somewhere() };
            let what = what.map_err(|words| format!("operation {n}: {words}"))?;
            self.note(start, &format!("{n}: {what}")).map_err(|words| format!("operation {n}, {what}: {words}"))?;
        }
        self.compare()?;
        let report = self.fs().check(&mut |_, _| std::ops::ControlFlow::Continue(())).map_err(wrong)?;
        let problems = report.expect("not ended").problems;
        if problems.is_empty() { Ok(()) } else { Err(format!("check finds {problems:?}")) }
    }

    fn note(&mut self, start: usize, words: &str) -> Step {
        let held = &self.held;
        self.tree.forget(|node| held.contains_key(&node));
        let tree = &self.tree;
        self.inos.retain(|node, _| tree.inodes.contains_key(node));
        let hash = self.tree.hash();
        if self.recording.states.last() != Some(&hash) {
            self.recording.states.push(hash);
            self.recording.words.push(words.to_owned());
        }
        let states = self.recording.states.len() - 1;
        for (node, inode) in &self.tree.inodes {
            let marks = (inode.version, inode.turns, inode.names, inode.changed);
            match self.changed.get(node) {
                Some((known, _)) if *known == marks => {}
                _ => drop(self.changed.insert(*node, (marks, states))),
            }
        }
        if words.ends_with("made") || words.ends_with("flushed") {
            self.flushed = states;
        }
        self.recording.notes.push(Note { start, end: self.medium.ops().len(), flushed: self.flushed, states });
        if self.rng.percent(5) { self.compare() } else { Ok(()) }
    }

    pub fn compare(&mut self) -> Step {
        let (found, right) = (look::hash(&self.view()).map_err(wrong)?, self.tree.hash());
        if found == right {
            return Ok(());
        }
        Err(format!("the tree differs from the model: {:#?}\n{:#?}", look::words(&self.view()), self.tree.words()))
    }

    fn nodes(&self, so: impl Fn(&Inode) -> bool) -> Vec<Node> {
        self.tree.inodes.iter().filter(|(_, inode)| so(inode)).map(|(node, _)| *node).collect()
    }

    fn node(&mut self, kind: Kind) -> Node {
        // Now and then something of another kind.
        let any = self.rng.percent(3);
        let nodes = self.nodes(|inode| any || inode.kind == kind);
        if nodes.is_empty() { 0 } else { *self.rng.pick(&nodes) }
    }

    fn directory(&mut self) -> Node {
        self.node(Kind::Directory)
    }

    fn a_name(&mut self, directory: Node) -> Vec<u8> {
        let there: Vec<Vec<u8>> = self.tree.get(directory).entries.keys().cloned().collect();
        if !there.is_empty() && self.rng.percent(60) { self.rng.pick(&there).clone() } else { self.new_name() }
    }

    fn new_name(&mut self) -> Vec<u8> {
        self.rng.pick(&self.names).clone()
    }

    fn ino(&self, node: Node) -> Ino {
        self.inos[&node]
    }

    fn hold(&mut self, node: Node, found: &Attributes) {
        self.inos.insert(node, found.ino);
        *self.held.entry(node).or_default() += 1;
    }

    /// The engine and the model must say the same; `Full` must leave everything as it was.
    fn settle<T>(&mut self, before: Tree, found: lode_fs::Result<T>, right: Result<(), ErrorKind>) -> Step<Option<T>> {
        match (found, right) {
            (Ok(found), Ok(())) => Ok(Some(found)),
            (Err(error), _) if error.kind() == ErrorKind::Full => {
                self.recording.full += 1;
                self.tree = before;
                Ok(None)
            }
            (Err(error), Err(kind)) if error.kind() == kind => Ok(None),
            (Ok(_), Err(kind)) => Err(format!("done, expected {kind:?}")),
            (Err(error), right) => Err(format!("{error} ({:?}), expected {right:?}", error.kind())),
        }
    }

    pub fn step(&mut self) -> Step<String> {
        let now = Time(self.now);
        let before = self.tree.clone();
        let view = self.view();
        let bursts = if self.setup.gathered.bytes > 0 && !self.within { 12 } else { 0 };
        let weights = [20, 6, 10, 5, 8, 25, 8, 8, 6, 4, 4, 6, 6, 3, 3, 2, bursts];
        Ok(match self.rng.weighted(&weights) {
            0 => {
                let (directory, name) = (self.directory(), self.new_name());
                let kind = *self.rng.pick(&[
                    Kind::File,
                    Kind::File,
                    Kind::File,
                    Kind::Directory,
                    Kind::Directory,
                    Kind::Link,
                    Kind::Fifo,
                    Kind::BlockDevice,
                ]);
                let target = vec![b't'; narrow(self.rng.between(1, 300))];
                let device = if kind == Kind::BlockDevice { 7 } else { 0 };
                let new =
                    New { kind, permissions: 0o777, device, target: if kind == Kind::Link { &target } else { b"" } };
                let permissions = if kind == Kind::Link { 0o777 } else { 0o755 };
                let mut inode = Inode::new(kind, permissions, now);
                (inode.uid, inode.gid, inode.device) = (1, 2, device);
                inode.content = new.target.to_vec();
                let made = self.tree.make(directory, &name, inode, now);
                let found = view.make(self.ino(directory), &name, &new, &self.caller());
                if let Some(found) = self.settle(before, found, made.map(drop))? {
                    self.hold(made.expect("settled"), &found);
                }
                format!("make {kind:?} in {directory}")
            }
            1 => {
                let (node, directory) = (self.node(Kind::File), self.directory());
                let name = self.new_name();
                let right = self.tree.link(node, directory, &name, now);
                let found = view.link(self.ino(node), self.ino(directory), &name, now);
                if let Some(found) = self.settle(before, found, right)? {
                    self.hold(node, &found);
                }
                format!("link {node}")
            }
            2 => {
                let directory = self.directory();
                let name = self.a_name(directory);
                let right = self.tree.unlink(directory, &name, now);
                let found = view.unlink(self.ino(directory), &name, now);
                // A transaction gives back nothing before its commit.
                if !self.within && found.as_ref().is_err_and(|error| error.kind() == ErrorKind::Full) {
                    return Err("unlink was refused for want of space".to_owned());
                }
                self.settle(before, found, right)?;
                format!("unlink in {directory}")
            }
            3 => {
                let directory = self.directory();
                let name = self.a_name(directory);
                let right = self.tree.remove_directory(directory, &name, now);
                let found = view.remove_directory(self.ino(directory), &name, now);
                self.settle(before, found, right)?;
                format!("remove a directory in {directory}")
            }
            4 => {
                let (from, to) = (self.directory(), self.directory());
                let (name, new) = (self.a_name(from), self.a_name(to));
                let how = *self.rng.pick(&[Renaming::Replace, Renaming::Replace, Renaming::Keep, Renaming::Exchange]);
                let right = self.tree.rename(from, &name, to, &new, how, now);
                let found = view.rename(self.ino(from), &name, self.ino(to), &new, how, now);
                self.settle(before, found, right)?;
                format!("rename from {from} to {to} {how:?}")
            }
            5 => {
                let node = self.node(Kind::File);
                let (offset, bytes) = (self.offset(node), self.bytes());
                self.write(node, offset, &bytes)?
            }
            6 => {
                let node = self.node(Kind::File);
                let size = self.offset(node);
                let right = self.asked(node);
                if right.is_ok() {
                    self.tree.resize(node, size, now);
                }
                let changes = Changes { size: Some(size), ..Changes::default() };
                let found = view.set_attributes(self.ino(node), &changes, now);
                self.settle(before, found, right)?;
                format!("resize {node} to {size}")
            }
            7 => {
                let node = self.node(Kind::File);
                let (offset, bytes) = (self.offset(node), self.rng.between(1, 70_000));
                let how = *self.rng.pick(&[
                    Allocation::Grow,
                    Allocation::Keep,
                    Allocation::Punch,
                    Allocation::Zero,
                    Allocation::ZeroKeep,
                ]);
                let zeros = matches!(how, Allocation::Punch | Allocation::Zero | Allocation::ZeroKeep);
                let grow = matches!(how, Allocation::Grow | Allocation::Zero);
                let right = self.asked(node);
                if right.is_ok() {
                    self.tree.clear(node, offset, offset + bytes, zeros, grow, now);
                }
                let found = view.allocate(self.ino(node), how, offset, bytes, now);
                self.settle(before, found, right)?;
                format!("{how:?} {bytes} bytes at {offset} of {node}")
            }
            8 => {
                let nodes = self.nodes(|_| true);
                let node = *self.rng.pick(&nodes);
                let word = self.rng.word();
                let changes = Changes {
                    permissions: Some(u32::try_from(word & 0o7777).expect("small")).filter(|_| self.rng.percent(50)),
                    uid: Some(5).filter(|_| self.rng.percent(50)),
                    accessed: Some(Time(-9)).filter(|_| self.rng.percent(50)),
                    modified: Some(Time(12345)).filter(|_| self.rng.percent(50)),
                    ..Changes::default()
                };
                self.tree.change(node, now, |inode| {
                    inode.permissions = changes.permissions.unwrap_or(inode.permissions);
                    inode.uid = changes.uid.unwrap_or(inode.uid);
                    inode.accessed = changes.accessed.unwrap_or(inode.accessed);
                    inode.modified = changes.modified.unwrap_or(inode.modified);
                });
                let found = view.set_attributes(self.ino(node), &changes, now);
                self.settle(before, found, Ok(()))?;
                format!("attributes of {node}")
            }
            9 => {
                let nodes = self.nodes(|_| true);
                let node = *self.rng.pick(&nodes);
                let name = format!("user.{}", self.rng.below(4)).into_bytes();
                let len = *self.rng.pick(&[0, 10, 100, 400, 5000, 20_000]);
                let value = vec![7; len];
                let all: usize = self.tree.get(node).attributes.values().map(Vec::len).sum();
                if all + len > 60_000 {
                    return Ok("nothing".to_owned());
                }
                self.tree.change(node, now, |inode| drop(inode.attributes.insert(name.clone(), value.clone())));
                let found = view.set_attribute(self.ino(node), &name, &value, Setting::Any, now);
                self.settle(before, found, Ok(()))?;
                format!("extended attribute of {len} bytes of {node}")
            }
            10 => {
                let nodes = self.nodes(|inode| !inode.attributes.is_empty());
                let Some(node) = nodes.first().copied() else { return Ok("nothing".to_owned()) };
                let name = self.tree.get(node).attributes.keys().next().expect("one").clone();
                self.tree.change(node, now, |inode| drop(inode.attributes.remove(&name)));
                let found = view.remove_attribute(self.ino(node), &name, now);
                self.settle(before, found, Ok(()))?;
                format!("one extended attribute less of {node}")
            }
            11 => {
                let nodes: Vec<Node> = self.held.keys().copied().collect();
                if nodes.is_empty() {
                    return Ok("nothing".to_owned());
                }
                let node = *self.rng.pick(&nodes);
                let count = self.held.remove(&node).expect("held");
                view.release(self.ino(node), count, now).map_err(wrong)?;
                format!("let go of {node}")
            }
            12 => self.flush()?,
            13 => {
                self.disk.as_ref().expect("open").checkpoint().map_err(wrong)?;
                "checkpoint".to_owned()
            }
            14 => {
                while self.disk.as_ref().expect("open").maintain().map_err(wrong)? {}
                "maintain".to_owned()
            }
            16 => {
                self.burst = self.rng.between(2, 30);
                "nothing".to_owned()
            }
            _ => {
                if !self.transactions.is_empty() {
                    return Ok("nothing".to_owned());
                }
                drop(view);
                self.close()?;
                self.held.clear();
                self.open()?;
                "opened again, flushed".to_owned()
            }
        })
    }

    /// Everything, or what was done to one inode.
    fn flush(&mut self) -> Step<String> {
        // Drawn apart, as above.
        let mut rng = Rng::new(mix(self.setup.seed, u64::try_from(self.now).expect("positive")));
        if self.within || rng.percent(50) {
            self.fs().sync().map_err(wrong)?;
            return Ok("flushed".to_owned());
        }
        let nodes = self.nodes(|_| true);
        let node = *rng.pick(&nodes);
        self.view().flush(self.ino(node)).map_err(wrong)?;
        let through = self.changed.get(&node).map_or(0, |(_, state)| *state);
        self.flushed = self.flushed.max(through);
        Ok(format!("flushed as far as {node} was changed"))
    }

    /// Whole blocks here and there in a large file, over what it has.
    fn write_over(&mut self) -> Step<String> {
        self.burst -= 1;
        let large = |inode: &Inode| inode.kind == Kind::File && inode.content.len() >= 18 * 4096;
        let nodes = self.nodes(large);
        let Some(node) = nodes.first().copied() else {
            // So that there is one.
            let files = self.nodes(|inode| inode.kind == Kind::File);
            let Some(node) = files.first().copied() else { return Ok("nothing".to_owned()) };
            return self.write(node, 0, &vec![b'w'; 30 * 4096]);
        };
        let node = if self.rng.percent(80) { node } else { *self.rng.pick(&nodes) };
        let blocks = wide(self.tree.get(node).content.len()) / 4096;
        let first = self.rng.between(16, blocks - 1);
        let count = self.rng.between(1, (blocks - first).min(4));
        let mut bytes = vec![0; narrow(count * 4096)];
        self.rng.fill(&mut bytes);
        let before = self.disk.as_ref().expect("open").position();
        let words = self.write(node, first * 4096, &bytes)?;
        self.recording.gathered += u64::from(self.disk.as_ref().expect("open").position() == before);
        if self.rng.percent(5) {
            self.fs().settle();
        }
        if self.rng.percent(10) {
            let mut found = vec![0; bytes.len()];
            self.view().read(self.ino(node), first * 4096, &mut found).map_err(wrong)?;
            let content = &self.tree.get(node).content;
            if found != content[narrow(first * 4096)..][..found.len()] {
                return Err(format!("{words}, but something else is read"));
            }
        }
        Ok(words)
    }

    fn write(&mut self, node: Node, offset: u64, bytes: &[u8]) -> Step<String> {
        let (mut before, now) = (self.tree.clone(), Time(self.now));
        let right = self.asked(node);
        if right.is_ok() {
            self.tree.write(node, offset, bytes, now);
        }
        let (view, ino) = (self.view(), self.ino(node));
        let cut = self.cut(offset, bytes.len());
        let mut found = Ok(());
        if let Some(cut) = cut {
            found = view.write(ino, offset, &bytes[..cut], now);
            if found.is_ok() {
                // It counts, even if there is no room for the rest.
                before.write(node, offset, &bytes[..cut], now);
            }
        }
        if found.is_ok() {
            let rest = cut.unwrap_or(0);
            found = view.write(ino, offset + wide(rest), &bytes[rest..], now);
        }
        self.settle(before, found, right)?;
        Ok(format!("write {} bytes at {offset} of {node}, cut behind {cut:?}", bytes.len()))
    }

    /// Where a kernel that lacks the page in which a write begins cuts it.
    fn cut(&self, offset: u64, len: usize) -> Option<usize> {
        let mut rng = Rng::new(mix(self.setup.seed, offset));
        let folio = 4096 << rng.below(3);
        let cut = narrow(offset.next_multiple_of(folio) - offset);
        (self.setup.joined && !self.within && !offset.is_multiple_of(4096) && cut < len).then_some(cut)
    }

    /// Whether a node has content to change.
    fn asked(&self, node: Node) -> Result<(), ErrorKind> {
        match self.tree.get(node).kind {
            Kind::File => Ok(()),
            Kind::Directory => Err(ErrorKind::IsDirectory),
            _ => Err(ErrorKind::Invalid),
        }
    }

    fn offset(&mut self, node: Node) -> u64 {
        let size = wide(self.tree.get(node).content.len());
        let most = if self.setup.big { 200_000 } else { 30_000 };
        match self.rng.below(6) {
            0 => 0,
            1 | 2 => size.min(most),
            3 => self.rng.below(size.max(1)),
            4 => self.rng.below(most) / 4096 * 4096,
            _ => self.rng.below(most),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let most = *self.rng.pick(&[50, 5000, 20_000, if self.setup.big { 120_000 } else { 20_000 }]);
        let mut bytes = vec![0; narrow(self.rng.between(1, most))];
        self.rng.fill(&mut bytes);
        if self.rng.percent(20) {
            let half = bytes.len() / 2;
            bytes[half..].fill(0);
        }
        bytes
    }
}
