//! The rules about epochs, unknown tails, the end of the log and its bounds (R9 to R11, R13), each with its schedule.
use crate::tape::{
    BLOCK, DURABLE, Event, Fate, MAIN, NEXT_A, NEXT_B, ROOT, SEQUENCE, Tape, bare, kind, open, put, recovered, u32_at,
    u64_at, values, write,
};
use lode::{Disk, ErrorKind, OpenOptions, Survive};
use lode_media::Position;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One block flushed, three more on their way; a cut takes from the first of these three its batch, or the block only.
fn with_a_gap(all: bool) -> Arc<Tape> {
    let tape = Tape::formatted(48, 32 << 10, 512);
    let disk = open(&tape);
    write(&disk, 0, 1);
    disk.flush(Survive::Power).unwrap();
    let start = tape.len();
    (1..4).for_each(|block| write(&disk, block, 1));
    let lost = tape.batches(start)[0].0;
    tape.cut(tape.len(), |n, sector| if n == lost && (all || sector > 0) { Fate::Old } else { Fate::New })
}

/// R9: an epoch ended before batches that lie there whole. The next epoch uses their sequences again, elsewhere. They
/// are void from then on, at each later opening, and also when one of the two roots that say so is ruined: of two
/// batches with one sequence the later epoch's counts (R7). Where only a block was torn its batch is among them, and no
/// witness of the later epoch may make it look durable.
#[test]
fn a_batch_behind_the_end_of_its_epoch_never_counts() {
    for all in [true, false] {
        let cut = with_a_gap(all);
        let disk = open(&cut);
        assert_eq!(values(&disk, 6), [1, 0, 0, 0, 0, 0]);
        let roots: Vec<Position> = cut.appends(0).iter().map(|(_, at, _)| *at).collect();
        assert_eq!(roots.len(), 2, "the opening wrote a root twice");
        (4..6).for_each(|block| write(&disk, block, 2));
        disk.flush(Survive::Power).unwrap();
        drop(disk);
        for ruined in [None, Some(roots[0]), Some(roots[1])] {
            let mut tape = cut.cut_hard();
            if let Some(root) = ruined {
                tape.ruin(root);
                tape = tape.restart();
            }
            for _ in 0..3 {
                let disk = open(&tape);
                assert_eq!(values(&disk, 6), [1, 0, 0, 0, 2, 2], "{ruined:?}");
                tape = tape.restart();
            }
        }
    }
}

/// R9: recovery that is interrupted recovers. An opening is cut at each of its calls, with what it wrote last there,
/// not there or garbage; the next one is cut likewise; the third finds the same.
#[test]
fn an_opening_cut_anywhere_is_opened_again() {
    fn cuts(tape: &Arc<Tape>, deep: u32, seen: &mut usize) {
        let disk = open(tape);
        assert_eq!(values(&disk, 4), [1, 0, 0, 0]);
        drop(disk);
        *seen += 1;
        if deep == 0 {
            return;
        }
        for at in 0..=tape.len() {
            for fates in 0..9usize {
                let fates =
                    [[Fate::Old, Fate::New, Fate::Noise][fates % 3], [Fate::Old, Fate::New, Fate::Noise][fates / 3]];
                let mut appends = BTreeMap::new();
                let cut = tape.cut(at, |n, _| {
                    let count = appends.len();
                    fates[*appends.entry(n).or_insert(count) % 2]
                });
                if !appends.is_empty() || fates == [Fate::Old; 2] {
                    cuts(&cut, deep - 1, seen);
                }
            }
        }
    }
    let mut seen = 0;
    cuts(&with_a_gap(true), 2, &mut seen);
    cuts(&with_a_gap(false), 1, &mut seen);
    assert!(seen > 100, "{seen}");
}

/// R10: a tail that recovery could not read is never appended to. Each opening ends in a cut that tears what was on its
/// way; the medium panics if any zone from before an opening is appended to, also one of roots.
#[test]
fn no_zone_from_before_an_opening_is_appended_to() {
    let mut tape = Tape::formatted(48, 32 << 10, 512);
    for round in 1..80u8 {
        let disk = open(&tape);
        let before = values(&disk, 20);
        assert_eq!(before, vec![round - 1; 20], "round {round}");
        (0..20).for_each(|block| put(&disk.volume("v").unwrap(), block, round));
        disk.flush(Survive::Power).unwrap();
        if round % 5 == 0 {
            disk.checkpoint().unwrap();
        }
        while disk.maintain().unwrap() {}
        let flushed = tape.len();
        (20..30).for_each(|block| write(&disk, block, round));
        drop(disk);
        let torn = [Fate::Noise, Fate::New, Fate::Old];
        tape = tape.cut(tape.len(), |n, sector| torn[(n - flushed + sector) % 3]);
    }
}

/// R10: opening takes no log zone, and a segment without an accepted batch is free again: however often a disk is
/// opened, or dies with its first batch, it has the zones that it had.
#[test]
fn an_opening_without_an_accepted_batch_takes_no_log_zone() {
    let mut tape = Tape::formatted(48, 32 << 10, 512);
    let looking = OpenOptions { read_only: true, ..bare() };
    let free = Disk::open(tape.clone(), &looking).unwrap().info().unwrap().free_zones;
    for round in 0..100usize {
        let disk = open(&tape);
        assert_eq!(disk.info().unwrap().free_zones, free, "round {round}");
        assert!(tape.appends(0).iter().all(|(_, _, bytes)| kind(bytes) == ROOT), "only roots are written");
        if round % 2 == 1 {
            write(&disk, 0, 1);
        }
        drop(disk);
        tape = tape.cut(tape.len(), |_, sector| if sector == round / 2 % 2 { Fate::Noise } else { Fate::New });
    }
}

/// Where batches lie, and their bytes.
type Batches = Vec<(Position, usize)>;

/// A log of more than three segments in one epoch, each batch flushed by itself: the batches by segment, and the
/// newest.
fn long_log() -> (Arc<Tape>, Vec<Batches>) {
    let tape = Tape::formatted(48, 32 << 10, 512);
    let disk = open(&tape);
    let start = tape.len();
    let mut n = 0;
    while tape.segments(start).len() < 4 || tape.segments(start)[3].len() < 5 {
        write(&disk, n % 100, u8::try_from(n + 1).unwrap());
        disk.flush(Survive::Power).unwrap();
        n += 1;
    }
    let found = tape.segments(start);
    (tape, found)
}

/// R11: before a gap is the end, the open segment and both announced zones are searched, at every alignment. A batch is
/// lost that was durable, and what witnesses it lies: behind the gap; in the next zone, whose own first batch is gone;
/// in the zone after that, the next one being gone altogether; and so for the first segments of an epoch, which the
/// root names.
#[test]
fn what_witnesses_a_lost_batch_is_found_wherever_the_log_may_have_gone_on() {
    let (tape, segments) = long_log();
    let whole = |n: usize| segments[n].clone();
    let head = |n: usize, batch: usize| vec![segments[n][batch]];
    let footer_and_last = |n: usize| segments[n][segments[n].len() - 2..].to_vec();
    let lost: [(&str, Vec<Batches>); 9] = [
        ("a batch of the open segment", vec![head(3, 2)]),
        ("the first batch of the open segment", vec![head(3, 0)]),
        ("the end of the last sealed segment", vec![footer_and_last(2)]),
        ("that, and the first batch of the open segment", vec![footer_and_last(2), head(3, 0)]),
        ("all of the last sealed segment", vec![whole(2)]),
        ("that, and the first batch of the open segment", vec![whole(2), head(3, 0)]),
        ("the first segment of the epoch", vec![whole(0)]),
        ("that, and the first batch of the second", vec![whole(0), head(1, 0)]),
        ("the first batch of the epoch, and the footer of its segment", vec![head(0, 0), footer_and_last(0)]),
    ];
    for (what, ruined) in lost {
        let damaged = tape.restart();
        for (at, bytes) in ruined.concat() {
            damaged.damage(at, |place| place[..bytes].fill(0xA5));
        }
        let damaged = damaged.restart();
        let error = Disk::open(damaged.clone(), &bare()).map(drop).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
        let disk = Disk::open(damaged, &OpenOptions { read_only: true, ..bare() }).unwrap();
        let left = values(&disk, 100);
        // Block n is full of n + 1: what is left is a prefix.
        let count = left.iter().position(|value| *value == 0).unwrap_or(100);
        let prefix: Vec<u8> = (0..100u8).map(|n| if usize::from(n) < count { n + 1 } else { 0 }).collect();
        assert_eq!(left, prefix, "{what}");
    }
    let (newest, bytes) = *segments[3].last().unwrap();
    let cut = tape.restart();
    cut.damage(newest, |place| place[..bytes].fill(0xA5));
    assert!(open(&cut.restart()).info().unwrap().damaged.is_none(), "the newest batch has no witness");
}

/// R11: the zones that the first batch of a segment or a root names are erased by then, and the stream goes on in the
/// first of them; where users write, there are two. Named before it is erased, a zone would be searched for what it
/// held.
#[test]
fn every_segment_and_root_names_two_zones_that_are_erased() {
    let tape = Tape::formatted(64, 32 << 10, 512);
    for opening in 0..3 {
        let disk = open(&tape);
        for round in 0..4 {
            let volume = disk.volume("v").unwrap();
            (0..96).filter(|block| block % 8 != round).for_each(|block| put(&volume, block, opening + 1));
            disk.flush(Survive::Power).unwrap();
        }
        drop(disk);
        tape.next_process();
    }
    let mut erased: BTreeMap<u32, bool> = BTreeMap::new();
    let (mut named, mut segments) = (None, 0);
    for (n, event) in tape.events().iter().enumerate() {
        let Event::Append(at, bytes) = event else {
            if let Event::Erase(zone) = event {
                erased.insert(*zone, true);
            }
            continue;
        };
        erased.insert(at.zone.0, false);
        let next = match kind(bytes) {
            MAIN if at.offset == 0 => {
                segments += 1;
                assert!(named.is_none_or(|[first, _]: [u32; 2]| first == at.zone.0), "the stream went elsewhere");
                [u32_at(bytes, NEXT_A), u32_at(bytes, NEXT_B)]
            }
            ROOT => [u32_at(bytes, 128 + 64), u32_at(bytes, 128 + 68)],
            _ => continue,
        };
        for zone in next {
            assert_eq!(erased.get(&zone), Some(&true), "event {n} ({at:?}) names {next:?}");
        }
        named = Some(next);
    }
    assert!(segments > 20, "{segments}");
}

/// R13: the engine syncs by itself, so that without a single flush what has no witness stays bounded, and so what
/// recovery has to verify and what a cut may take.
#[test]
fn without_any_flush_what_has_no_witness_stays_bounded() {
    for (window, every) in [(None, 12 << 10), (Some(1 << 20), 128 << 10)] {
        let tape = Tape::formatted(64, 32 << 10, 512);
        let options = OpenOptions { checkpoint_window_bytes: window, ..bare() };
        let disk = Disk::open(tape.clone(), &options).unwrap();
        let start = tape.len();
        let volume = disk.volume("v").unwrap();
        let mut written = Vec::new();
        for n in 0..600u64 {
            volume.write_at(n % 128 * u64::from(BLOCK), &[u8::try_from(n / 128 + 1).unwrap(); BLOCK as usize]).unwrap();
            written.push(tape.len());
        }
        let bound = every + 2 * (32 << 10);
        let batches = tape.batches(start);
        let mut bytes_of = BTreeMap::new();
        for (n, _, bytes) in &batches {
            bytes_of.insert(u64_at(bytes, SEQUENCE), bytes.len());
            let unwitnessed: usize = bytes_of.range(u64_at(bytes, DURABLE)..).map(|(_, bytes)| bytes).sum();
            assert!(unwitnessed <= bound, "{unwitnessed} bytes without a witness at event {n}");
        }
        assert!(bytes_of.values().sum::<usize>() > 3 * (32 << 10) + every, "too little was written");
        drop((volume, disk));
        for at in (start..tape.len()).step_by(3).chain([tape.len()]) {
            let found = recovered(&tape.cut(at, |_, _| Fate::Old), 100);
            // What is there is that of the first `count` writes; those before `sure` were appended longer ago than the
            // bound.
            let sum: u64 = found.iter().map(|value| u64::from(*value)).sum();
            let done = u64::try_from(written.iter().filter(|end| **end <= at).count()).unwrap();
            let sure = done.saturating_sub(u64::try_from(bound).unwrap() / u64::from(BLOCK) + 28);
            assert!(sum * 128 / 100 + 128 >= sure, "{sum} of {done} writes are left, {sure} had to be");
        }
    }
}
