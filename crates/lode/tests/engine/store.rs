//! A store with locks and transactions as a client of the disk: the example, through crashes.
#[path = "../../examples/store/store.rs"]
mod client;

use crate::tape::{Fate, Tape};
use client::{Error, Store};
use lode::{Disk, OpenOptions};

const KEYS: u64 = 12;

fn value(store: &Store, key: u64) -> u64 {
    let mut transaction = store.begin().unwrap();
    transaction.get(&key.to_le_bytes()).unwrap().map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()))
}

fn add(store: &Store, from: u64, to: u64) -> Result<(), Error> {
    let mut transaction = store.begin()?;
    let mut get = |key: u64| {
        let found = transaction.get(&key.to_le_bytes())?;
        Ok::<u64, Error>(found.map_or(100, |value| u64::from_le_bytes(value.try_into().unwrap())))
    };
    let (has, gets) = (get(from)?, get(to)?);
    transaction.put(&from.to_le_bytes(), &(has - 1).to_le_bytes())?;
    transaction.put(&to.to_le_bytes(), &(gets + 1).to_le_bytes())?;
    transaction.commit(has % 5 == 0)
}

/// AR-32, LD-F9: isolation and durability are the client's, atomicity is the disk's: whatever the order of the threads, and
/// wherever it is cut, no transfer is there in part.
#[test]
fn transfers_of_many_clients_are_whole_after_any_cut() {
    let tape = Tape::formatted(64, 64 << 10, 512);
    let disk = Disk::open(tape.clone(), &OpenOptions::default()).unwrap();
    let store = Store::open(&disk, 16).unwrap();
    let mut first = store.begin().unwrap();
    for key in 0..KEYS {
        first.put(&key.to_le_bytes(), &100u64.to_le_bytes()).unwrap();
    }
    first.commit(true).unwrap();
    let begun = tape.len();
    std::thread::scope(|scope| {
        for client in 0..3u64 {
            let store = &store;
            scope.spawn(move || {
                for turn in 0..60 {
                    let (from, to) = ((client + turn) % KEYS, (client * 5 + turn * 7 + 1) % KEYS);
                    while from != to && matches!(add(store, from, to), Err(Error::Busy)) {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    let sum = |store: &Store| (0..KEYS).map(|key| value(store, key)).sum::<u64>();
    assert_eq!(sum(&store), KEYS * 100);
    drop(store);
    drop(disk);
    let events = tape.len();
    assert!(events > begun + 20);
    for cut in (begun..=events).step_by(3) {
        let medium = tape.cut(cut, |event, sector| [Fate::Old, Fate::New, Fate::Noise][(event * 7 + sector) % 3]);
        let disk = Disk::open(medium, &crate::basics::quiet()).unwrap();
        assert_eq!(sum(&Store::open(&disk, 16).unwrap()), KEYS * 100, "cut at {cut}");
    }
}

/// MI-39: an abort undoes; a barrier is a checkpoint inside of a transaction, at which it is gone on with after a crash.
#[test]
fn a_long_transaction_goes_on_at_its_checkpoint() {
    let tape = Tape::formatted(64, 64 << 10, 512);
    let open = || Disk::open(tape.clone(), &crate::basics::quiet()).unwrap();
    let disk = open();
    let store = Store::open(&disk, 64).unwrap();
    let mut undone = store.begin().unwrap();
    undone.put(b"a", &[1; 8]).unwrap();
    drop(undone);
    let mut long = store.begin_named("long").unwrap();
    long.put(b"a", &2u64.to_le_bytes()).unwrap();
    long.checkpoint(b"a is done").unwrap();
    long.put(b"b", &3u64.to_le_bytes()).unwrap();
    // Younger ones give up where it has been, and nowhere else.
    let mut other = store.begin().unwrap();
    assert!(matches!(other.get(b"a"), Err(Error::Busy)));
    assert_eq!(other.get(b"c").unwrap(), None);
    other.put(b"c", &4u64.to_le_bytes()).unwrap();
    other.commit(true).unwrap();
    long.leave(); // In memory, where the crash ends it.
    drop((store, disk));
    let disk = open();
    let store = Store::open(&disk, 64).unwrap();
    let (mut long, said) = store.interrupted("long").unwrap();
    assert_eq!(said, b"a is done");
    assert!(matches!(store.begin().unwrap().get(b"c"), Err(Error::Busy)), "it has all of it");
    assert_eq!(long.get(b"b").unwrap(), None);
    assert_eq!(long.get(b"c").unwrap(), Some(4u64.to_le_bytes().to_vec()));
    long.put(b"b", &5u64.to_le_bytes()).unwrap();
    long.commit(true).unwrap();
    let mut last = store.begin().unwrap();
    let found = [b"a", b"b", b"c"].map(|key| last.get(key).unwrap().map(|value| value[0]));
    assert_eq!(found, [2, 5, 4].map(Some));
    assert!(matches!(last.put(b"d", &[0; 600]), Err(Error::TooMuch)));
}
