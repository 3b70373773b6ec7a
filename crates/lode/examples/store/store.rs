//! A store of keys and values with transactions, as a client of a logical disk: locks of its own (two phases, held to
//! the end), a unit for each transaction, `commit_and_flush` where it wants durability, and barriers as checkpoints inside
//! of a long one (*Concurrent atomic recovery units*, section 6; *Mime*, section 2). It has no log and no recovery: a unit
//! is there whole or not at all.
//!
//! A hash table with a slot for each block. Whoever touches a slot locks it until his transaction ends. Of two that want the
//! same one the older waits and the younger gives up, so that nobody waits in a ring (wait-die).

use lode::{Disk, Survive, Unit, UnitLabel, UnitOptions, Volume, VolumeOptions};
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

const SLOT: u32 = 512;
const HEAD: usize = 4;

/// Why an operation did not work.
#[derive(Debug)]
pub enum Error {
    /// An older transaction has the slot: abort this one, and try again.
    Busy,
    /// A key and its value are larger than a slot, or all slots are taken.
    TooMuch,
    /// The disk says so.
    Disk(lode::Error),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Busy => f.write_str("an older transaction has the slot"),
            Error::TooMuch => f.write_str("there is no room in a slot, or no slot"),
            Error::Disk(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<lode::Error> for Error {
    fn from(error: lode::Error) -> Error {
        Error::Disk(error)
    }
}

/// Who has which slot, by the number of the transaction; and whether one has all of them.
#[derive(Default)]
struct Locks {
    held: HashMap<u64, u64>,
    all: Option<u64>,
    begun: u64,
}

/// The store.
pub struct Store {
    disk: Disk,
    table: Volume,
    slots: u64,
    locks: Mutex<Locks>,
    freed: Condvar,
}

/// A transaction. Dropped, it has never been.
pub struct Transaction<'a> {
    store: &'a Store,
    unit: Option<Unit>,
    number: u64,
}

fn slot_of(key: &[u8], slots: u64) -> u64 {
    let hash =
        key.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    hash % slots
}

/// Key and value of a slot that is taken.
fn unpack(slot: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = |at: usize| usize::from(u16::from_le_bytes([slot[at], slot[at + 1]]));
    let (key, value) = (len(0), len(2));
    (key > 0).then(|| slot[HEAD..HEAD + key + value].split_at(key))
}

impl Store {
    /// The store on a disk, made if there is none.
    pub fn open(disk: &Disk, slots: u64) -> Result<Store, Error> {
        let options = VolumeOptions { bytes: slots * u64::from(SLOT), block_bytes: SLOT, ..VolumeOptions::default() };
        let table = match disk.volume("store") {
            Ok(table) => table,
            Err(_) => disk.create_volume("store", &options)?,
        };
        let slots = table.bytes() / u64::from(SLOT);
        Ok(Store { disk: disk.clone(), table, slots, locks: Mutex::default(), freed: Condvar::new() })
    }

    fn locked(&self) -> MutexGuard<'_, Locks> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with(&self, unit: Unit, all: bool) -> Transaction<'_> {
        let mut locks = self.locked();
        locks.begun += 1;
        let number = locks.begun;
        if all {
            locks.all = Some(number);
        }
        Transaction { store: self, unit: Some(unit), number }
    }

    /// Begins a transaction.
    pub fn begin(&self) -> Result<Transaction<'_>, Error> {
        Ok(self.with(self.disk.begin()?, false))
    }

    /// Begins a long one that has a name: after a crash it can be gone on with at its last checkpoint.
    pub fn begin_named(&self, name: &str) -> Result<Transaction<'_>, Error> {
        let label = UnitLabel { label: name.to_owned(), ..UnitLabel::default() };
        Ok(self.with(self.disk.begin_labelled(&label, &UnitOptions::default())?, false))
    }

    /// Goes on with one that a crash has interrupted, before others begin: which slots it had is not known any more, so it
    /// has all of them. Gives back what its last checkpoint said.
    pub fn interrupted(&self, name: &str) -> Result<(Transaction<'_>, Vec<u8>), Error> {
        let unit = self.disk.resume(name)?;
        let said = unit.cookie().to_vec();
        Ok((self.with(unit, true), said))
    }
}

impl Transaction<'_> {
    fn unit(&mut self) -> &mut Unit {
        self.unit.as_mut().expect("it has one until it ends")
    }

    fn lock(&self, slot: u64) -> Result<(), Error> {
        let mut locks = self.store.locked();
        loop {
            let owner = locks.all.or(locks.held.get(&slot).copied());
            match owner {
                Some(owner) if owner == self.number => return Ok(()),
                None => {
                    locks.held.insert(slot, self.number);
                    return Ok(());
                }
                Some(owner) if owner < self.number => return Err(Error::Busy),
                Some(_) => locks = self.store.freed.wait(locks).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// The slot of a key, or the empty one where it would be; and what is there.
    fn find(&mut self, key: &[u8]) -> Result<(u64, Vec<u8>), Error> {
        let first = slot_of(key, self.store.slots);
        for step in 0..self.store.slots {
            let slot = (first + step) % self.store.slots;
            self.lock(slot)?;
            let mut bytes = vec![0; SLOT as usize];
            let table = &self.store.table;
            self.unit.as_ref().expect("it has one until it ends").read_at(table, slot * u64::from(SLOT), &mut bytes)?;
            if unpack(&bytes).is_none_or(|(found, _)| found == key) {
                return Ok((slot, bytes));
            }
        }
        Err(Error::TooMuch)
    }

    /// The value of a key.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let (_, bytes) = self.find(key)?;
        Ok(unpack(&bytes).map(|(_, value)| value.to_vec()))
    }

    /// Gives a key a value.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        if key.is_empty() || HEAD + key.len() + value.len() > SLOT as usize {
            return Err(Error::TooMuch);
        }
        let (slot, _) = self.find(key)?;
        let mut bytes = Vec::with_capacity(SLOT as usize);
        for part in [key, value] {
            bytes.extend(u16::try_from(part.len()).expect("less than a slot").to_le_bytes());
        }
        bytes.extend(key.iter().chain(value));
        bytes.resize(SLOT as usize, 0);
        let table = self.store.table.clone();
        Ok(self.unit().write_at(&table, slot * u64::from(SLOT), &bytes)?)
    }

    /// What it has done so far outlives a crash, once the disk is flushed; and so does what it says of that.
    pub fn checkpoint(&mut self, says: &[u8]) -> Result<(), Error> {
        let position = self.unit().barrier(says)?;
        self.store.disk.flush_up_to(position, Survive::Power)?;
        Ok(())
    }

    /// Lets go of one that has a name, to be gone on with later.
    pub fn leave(mut self) {
        self.unit.take().expect("it has one until it ends").keep();
    }

    /// Makes it count. With `durable` it survives a power cut when this returns; else it may be lost, whole, and nothing that
    /// came before it with it.
    pub fn commit(mut self, durable: bool) -> Result<(), Error> {
        let unit = self.unit.take().expect("it has one until it ends");
        if durable { unit.commit_and_flush(Survive::Power) } else { unit.commit() }?;
        Ok(())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if let Some(unit) = self.unit.take() {
            unit.abort();
        }
        let mut locks = self.store.locked();
        locks.held.retain(|_, owner| *owner != self.number);
        locks.all = locks.all.filter(|owner| *owner != self.number);
        drop(locks);
        self.store.freed.notify_all();
    }
}
