//! What of a file system is damaged is told, and all the rest can be used. Sectors of the medium that read as others than
//! they were written, and blocks that hold what no file system has written.
use crate::tree::{CALLER, NOW, at, directory, get, is_sound, open, put, remove};
use lode::{Disk, FormatOptions, OpenOptions, Volume};
use lode_fs::{Conflicts, Entry, ErrorKind, FileSystem, Ino, MakeOptions, New, Renaming, View};
use lode_media::{Geometry, Medium, Position, Result, ZoneId, ram::RamMedium};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

/// A medium on which certain bytes read as others, wherever they are.
struct Rotten {
    medium: RamMedium,
    /// What rots, once it is to.
    rots: Mutex<Vec<Vec<u8>>>,
}

impl Rotten {
    fn new() -> Arc<Rotten> {
        let geometry = Geometry { zones: 64, zone_bytes: 1 << 20, append_align: 4096, devices: 1 };
        let medium = Arc::new(Rotten { medium: RamMedium::new(geometry), rots: Mutex::default() });
        Disk::format(medium.clone(), &FormatOptions { disk_id: 7 }).unwrap();
        medium
    }

    fn rot(&self, bytes: &[u8]) {
        self.rots.lock().unwrap().push(bytes.to_vec());
    }
}

impl Medium for Rotten {
    fn geometry(&self) -> Geometry {
        self.medium.geometry()
    }

    fn read(&self, at: Position, into: &mut [u8]) -> Result<()> {
        self.medium.read(at, into)?;
        for rotten in self.rots.lock().unwrap().iter() {
            let found: Vec<usize> = (0..into.len()).filter(|at| into[*at..].starts_with(rotten)).collect();
            found.into_iter().for_each(|at| into[at] ^= 0x55);
        }
        Ok(())
    }

    fn append(&self, at: Position, pieces: &[&[u8]]) -> Result<()> {
        self.medium.append(at, pieces)
    }

    fn erase(&self, zone: ZoneId) -> Result<()> {
        self.medium.erase(zone)
    }

    fn sync(&self) -> Result<()> {
        self.medium.sync()
    }
}

/// A disk with a tree: three files, a link, and a directory of so many names that it has several buckets.
fn tree(medium: &Arc<dyn Medium>) {
    let (disk, fs) = open(medium);
    let view = fs.view();
    directory(&view, "/d");
    directory(&view, "/e");
    for n in 0..100 {
        put(&view, &format!("/d/name-number-{n:02}"), &format!("content {n}"));
    }
    put(&view, "/a", "the content of a");
    put(&view, "/b", "the content of b");
    put(&view, "/e/c", "the content of c");
    view.make(Ino::ROOT, b"link", &New::link(b"where-it-leads"), &CALLER).unwrap();
    is_sound(&fs);
    drop((view, fs));
    Arc::into_inner(disk).unwrap().close().unwrap();
}

fn opened(medium: &Arc<dyn Medium>) -> (Disk, FileSystem) {
    let disk = Disk::open(Arc::clone(medium), &OpenOptions { background: false, ..OpenOptions::default() }).unwrap();
    let fs = FileSystem::open(&disk, NOW).unwrap();
    (disk, fs)
}

fn problems(fs: &FileSystem) -> Vec<String> {
    fs.check(&mut |_, _| ControlFlow::Continue(())).unwrap().unwrap().problems
}

fn kind<T>(result: lode_fs::Result<T>) -> ErrorKind {
    result.map(drop).unwrap_err().kind()
}

/// The lists of the file system that there are by a name or a number, for who writes past it.
fn inodes(disk: &Disk) -> Volume {
    disk.file_list_named("inodes").unwrap().unwrap()
}

fn content(disk: &Disk) -> Volume {
    let mut list = [0; 4];
    inodes(disk).read_at(40, &mut list).unwrap();
    disk.file_list(lode::ListId(u32::from_le_bytes(list))).unwrap()
}

/// Writes bytes into an inode.
fn spoil(disk: &Disk, ino: Ino, at: u64, bytes: &[u8]) {
    inodes(disk).write_at(ino.0 * 512 + at, bytes).unwrap();
}

fn listed(view: &View, directory: Ino) -> (BTreeSet<String>, lode_fs::Result<()>) {
    let mut names = BTreeSet::new();
    let done = view.list_whole(directory, &mut |entry| {
        names.insert(String::from_utf8(entry.name.clone()).unwrap());
    });
    (names, done)
}

/// As the kernel lists: a few at a time, until nothing comes.
fn listed_in_pieces(view: &View, directory: Ino) -> (BTreeSet<String>, lode_fs::Result<()>) {
    let (mut names, mut from) = (BTreeSet::new(), 0);
    loop {
        let mut piece: Vec<Entry> = Vec::new();
        let done = view.list(directory, from, &mut |entry| {
            piece.push(entry.clone());
            piece.len() < 5
        });
        let Some(last) = piece.last() else { return (names, done) };
        done.unwrap();
        from = last.next;
        names.extend(piece.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()));
    }
}

#[test]
fn content_that_has_rotted_is_an_error_and_nothing_else_is() {
    let rotten = Rotten::new();
    let medium: Arc<dyn Medium> = rotten.clone();
    tree(&medium);
    rotten.rot(b"the content of b");
    rotten.rot(b"where-it-leads");
    let (_disk, fs) = opened(&medium);
    let view = fs.view();
    let b = at(&view, "/b").unwrap();
    assert_eq!(kind(view.read(b, 0, &mut [0; 100])), ErrorKind::Damaged);
    assert_eq!(kind(view.read_link(at(&view, "/link").unwrap())), ErrorKind::Damaged);
    assert_eq!(view.attributes(b).unwrap().size, 16);
    assert_eq!(get(&view, "/a").as_deref(), Some("the content of a"));
    // As a whole it can be replaced, and removed.
    view.write(b, 0, &[7; 4096], NOW).unwrap();
    let mut found = [0; 4096];
    assert_eq!((view.read(b, 0, &mut found).unwrap(), found), (4096, [7; 4096]));
    remove(&view, "/link");
    is_sound(&fs);
}

#[test]
fn a_directory_that_has_rotted_in_part_has_the_rest() {
    let rotten = Rotten::new();
    let medium: Arc<dyn Medium> = rotten.clone();
    tree(&medium);
    rotten.rot(b"name-number-42");
    let (_disk, fs) = opened(&medium);
    let view = fs.view();
    let d = at(&view, "/d").unwrap();
    let whole = listed(&view, d);
    let pieces = listed_in_pieces(&view, d);
    assert_eq!(whole.0, pieces.0);
    assert!(whole.0.len() > 60 && whole.0.len() < 102, "{}", whole.0.len());
    assert!(!whole.0.contains("name-number-42"));
    assert_eq!((kind(whole.1), kind(pieces.1)), (ErrorKind::Damaged, ErrorKind::Damaged));
    let (mut there, mut damaged) = (2, 0);
    for n in 0..100 {
        let name = format!("name-number-{n:02}");
        match view.lookup(d, name.as_bytes()) {
            Ok(found) => {
                assert!(whole.0.contains(&name));
                assert_eq!(get(&view, &format!("/d/{name}")).unwrap(), format!("content {n}"));
                assert_eq!(view.attributes(found.ino).unwrap().links, 1);
                there += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
                damaged += 1;
            }
        }
    }
    assert_eq!((there, there + damaged), (whole.0.len(), 102));
    // Names of other buckets come and go, here and elsewhere.
    let name = whole.0.iter().find(|name| name.starts_with("name")).unwrap();
    remove(&view, &format!("/d/{name}"));
    put(&view, "/e/new", "new");
    assert_eq!(kind(view.make(d, b"name-number-42", &New::file(0o600), &CALLER)), ErrorKind::Damaged);
    assert_eq!(kind(view.remove_directory(Ino::ROOT, b"d", NOW)), ErrorKind::NotEmpty);
    let found = problems(&fs);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with(&format!("/d ({d}): ")), "{found:?}");
    // A transaction is refused what others are refused, and no more.
    let txn = fs.begin(Conflicts::Read, NOW).unwrap();
    put(&txn.view(), "/e/more", "more");
    txn.commit(NOW).unwrap();
    assert_eq!(get(&view, "/e/more").as_deref(), Some("more"));
}

#[test]
fn an_inode_that_is_damaged_says_so_and_its_name_can_be_removed() {
    let rotten: Arc<dyn Medium> = Rotten::new();
    tree(&rotten);
    let (disk, fs) = opened(&rotten);
    let view = fs.view();
    let (a, b, c, e) =
        (at(&view, "/a").unwrap(), at(&view, "/b").unwrap(), at(&view, "/e/c").unwrap(), at(&view, "/e").unwrap());
    spoil(&disk, a, 64, &[9; 8]); // Its number.
    spoil(&disk, c, 0, &[0xff; 4]); // Its mode.
    inodes(&disk).discard(b.0 * 512, 512).unwrap(); // It is not there.
    for (name, ino, expected) in
        [("/a", a, ErrorKind::Damaged), ("/e/c", c, ErrorKind::Damaged), ("/b", b, ErrorKind::NotFound)]
    {
        let (parent, name) = name.rsplit_once('/').unwrap();
        let parent = at(&view, parent).unwrap();
        assert_eq!(kind(view.lookup(parent, name.as_bytes())), expected);
        assert_eq!(view.entry(parent, name.as_bytes()).unwrap().ino, ino);
        assert_eq!(kind(view.attributes(ino)), expected);
        assert_eq!(kind(view.read(ino, 0, &mut [0; 10])), expected);
        assert_eq!(kind(view.write(ino, 0, &[0; 10], NOW)), expected);
        assert!(listed(&view, parent).0.contains(name));
    }
    let found = problems(&fs);
    let about = |what: &str| found.iter().filter(|problem| problem.contains(what)).count();
    assert!(about(&format!("/a ({a}): ")) == 1 && about(&format!("/e/c ({c}): ")) == 1, "{found:?}");
    assert!(about("b in it: expected") == 1, "{found:?}");
    // Replaced, removed, and removed with its directory.
    put(&view, "/new", "new");
    view.rename(Ino::ROOT, b"new", Ino::ROOT, b"a", Renaming::Replace, NOW).unwrap();
    assert_eq!(get(&view, "/a").as_deref(), Some("new"));
    remove(&view, "/b");
    remove(&view, "/e/c");
    view.remove_directory(Ino::ROOT, b"e", NOW).unwrap();
    let (names, done) = listed(&view, Ino::ROOT);
    done.unwrap();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), [".", "..", "a", "d", "link"]);
    assert!(at(&view, "/e").is_none() && kind(view.attributes(e)) == ErrorKind::NotFound);
    let found = problems(&fs);
    assert!(
        found.iter().all(|problem| problem.contains(&a.to_string())
            || problem.contains(&c.to_string())
            || problem.contains(&b.to_string())),
        "{found:?}"
    );
}

#[test]
fn a_directory_whose_inode_is_damaged_can_be_removed_and_what_was_in_it_is_told() {
    let rotten: Arc<dyn Medium> = Rotten::new();
    tree(&rotten);
    let (disk, fs) = opened(&rotten);
    let view = fs.view();
    let (d, e) = (at(&view, "/d").unwrap(), at(&view, "/e").unwrap());
    spoil(&disk, e, 64, &[9; 8]);
    assert_eq!(kind(view.lookup(e, b"c")), ErrorKind::Damaged);
    assert_eq!(listed(&view, e).1.unwrap_err().kind(), ErrorKind::Damaged);
    let found = problems(&fs);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with(&format!("/e ({e}): ")), "{found:?}");
    assert_eq!(kind(view.unlink(Ino::ROOT, b"e", NOW)), ErrorKind::IsDirectory);
    view.remove_directory(Ino::ROOT, b"e", NOW).unwrap();
    assert_eq!(view.attributes(Ino::ROOT).unwrap().links, 3);
    // The list of its own is not there.
    spoil(&disk, d, 112, &[0xee; 4]);
    let (names, done) = listed(&view, d);
    assert!(done.is_ok() || kind(done) == ErrorKind::Damaged, "{names:?}");
    assert_eq!(get(&view, "/a").as_deref(), Some("the content of a"));
    let found = problems(&fs);
    assert!(found.iter().any(|problem| problem.starts_with(&format!("/d ({d}): expected "))), "{found:?}");
}

#[test]
fn counts_and_buckets_that_make_no_sense_are_no_reason_to_end() {
    let rotten: Arc<dyn Medium> = Rotten::new();
    tree(&rotten);
    let (disk, fs) = opened(&rotten);
    let view = fs.view();
    let (d, a, link) = (at(&view, "/d").unwrap(), at(&view, "/a").unwrap(), at(&view, "/link").unwrap());
    spoil(&disk, link, 16, &u64::MAX.to_le_bytes());
    assert_eq!(kind(view.read_link(link)), ErrorKind::Damaged);
    for field in [16, 24, 88, 104, 124] {
        for value in [0u64, 1, u64::from(u32::MAX) >> 1] {
            let bytes = if field == 124 { value.to_le_bytes()[..4].to_vec() } else { value.to_le_bytes().to_vec() };
            let mut before = [0; 512];
            inodes(&disk).read_at(d.0 * 512, &mut before).unwrap();
            spoil(&disk, d, field, &bytes);
            let _ = listed(&view, d);
            let _ = view.lookup(d, b"name-number-07");
            let _ = view.unlink(d, b"not there", NOW);
            assert!(!problems(&fs).is_empty() || field == 88 || field == 124, "{field} {value}");
            inodes(&disk).write_at(d.0 * 512, &before).unwrap();
        }
    }
    is_sound_but(&fs, &link.to_string());
    // A bucket of another directory, or with a name in the wrong place.
    let root = content(&disk);
    let mut bucket = [0; 4096];
    let place = (Ino::ROOT.0 * 32 + 1) * 4096;
    root.read_at(place, &mut bucket).unwrap();
    for (at, value) in [(8, 0xff), (16, 2), (4, 0xff), (24 + 7, 0x7f), (24 + 17, 0xff)] {
        let mut wrong = bucket;
        wrong[at] ^= value;
        root.write_at(place, &wrong).unwrap();
        let named = [&b"a"[..], b"b", b"d", b"e", b"link"].map(|name| view.lookup(Ino::ROOT, name).map(drop));
        assert!(
            named.iter().any(|found| found.as_ref().is_err_and(|error| error.kind() == ErrorKind::Damaged)),
            "{at}"
        );
        assert!(problems(&fs)[0].starts_with("/ (inode 1): "), "{at}: {:?}", problems(&fs));
        assert_eq!(view.read(a, 0, &mut [0; 100]).unwrap(), 16, "who knows it reads it");
    }
    root.write_at(place, &bucket).unwrap();
    is_sound_but(&fs, &link.to_string());
    // Counts that say there is nothing, of what is there.
    spoil(&disk, d, 16, &[0; 16]);
    spoil(&disk, d, 104, &[0; 8]);
    for n in 0..100 {
        remove(&view, &format!("/d/name-number-{n:02}"));
    }
    assert_eq!(listed(&view, d).0.len(), 2);
}

fn is_sound_but(fs: &FileSystem, what: &str) {
    let found = problems(fs);
    assert!(found.iter().all(|problem| problem.contains(what)), "{found:?}");
}

#[test]
fn what_was_open_when_it_was_damaged_keeps_nobody_from_opening() {
    let rotten: Arc<dyn Medium> = Rotten::new();
    tree(&rotten);
    let (disk, fs) = opened(&rotten);
    let view = fs.holding_view();
    let a = view.lookup(Ino::ROOT, b"a").unwrap().ino;
    remove(&view, "/a");
    assert_eq!(view.attributes(a).unwrap().links, 0);
    spoil(&disk, a, 64, &[9; 8]);
    drop((view, fs));
    disk.close().unwrap();
    let (_disk, fs) = opened(&rotten);
    assert_eq!(get(&fs.view(), "/b").as_deref(), Some("the content of b"));
    let found = problems(&fs);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with(&format!("{a}: expected itself")), "{found:?}");
}

#[test]
fn a_superblock_that_is_damaged_or_of_others_opens_nothing_and_is_not_written_over() {
    let rotten: Arc<dyn Medium> = Rotten::new();
    tree(&rotten);
    let (disk, fs) = opened(&rotten);
    drop(fs);
    let mut before = [0; 512];
    inodes(&disk).read_at(0, &mut before).unwrap();
    let options = MakeOptions { key: 9, caller: CALLER };
    for (at, what, expected) in [
        (0, "does not begin with a file system", ErrorKind::NotOurs),
        (8, "made by a newer version of Lode", ErrorKind::NotOurs),
        (12, "with features 0xff", ErrorKind::NotOurs),
    ] {
        let mut wrong = before;
        wrong[at] ^= 0xff;
        inodes(&disk).write_at(0, &wrong).unwrap();
        let refused = FileSystem::open(&disk, NOW).map(drop).unwrap_err();
        assert!(refused.kind() == expected && refused.to_string().contains(what), "{refused}");
        assert_eq!(kind(FileSystem::make(&disk, &options)), expected);
    }
    inodes(&disk).discard(0, 512).unwrap();
    assert_eq!(kind(FileSystem::open(&disk, NOW)), ErrorKind::NotOurs);
    let refused = FileSystem::make(&disk, &options).unwrap_err();
    assert!(refused.kind() == ErrorKind::Damaged && refused.to_string().contains("superblock"), "{refused}");
    // A list that it names is not there.
    let mut wrong = before;
    wrong[40] ^= 0x40;
    inodes(&disk).write_at(0, &wrong).unwrap();
    assert_eq!(kind(FileSystem::open(&disk, NOW)), ErrorKind::Damaged);
    inodes(&disk).write_at(0, &before).unwrap();
    assert_eq!(get(&FileSystem::open(&disk, NOW).unwrap().view(), "/a").as_deref(), Some("the content of a"));
    let empty: Arc<dyn Medium> = Rotten::new();
    let other = Disk::open(empty, &OpenOptions { background: false, ..OpenOptions::default() }).unwrap();
    let refused = FileSystem::open(&other, NOW).map(drop).unwrap_err();
    assert!(refused.to_string().contains("`lode fs make` makes one"), "{refused}");
}
