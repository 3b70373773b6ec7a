//! A client: does steps on a disk, one after the other, and records what it was told.

use super::{Act, End, Place, Span, Unit, Value};
use lode::{BlockId, Disk, ErrorKind, Lsn, OrderedId, Survive, UnitConflicts, UnitOptions, UnitView, Volume};
use std::collections::BTreeMap;

/// Where a step inserts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// At the beginning.
    First,
    /// At the end.
    Last,
    /// Behind one of those that the client saw there last; at the end, if it saw none.
    Behind(u8),
}

/// One thing that a client does: in its open unit, or as a simple operation if it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Begins a unit.
    Begin(UnitView, UnitConflicts),
    /// Writes so many registers from the first on in one call.
    Write(u32, u32),
    /// Reads so many registers from the first on in one call.
    Read(u32, u32),
    /// Puts a block into a list.
    Insert(u32, Where),
    /// Takes out of a list one of the blocks that the client saw there last.
    Remove(u32, u8),
    /// Looks at a whole list.
    Look(u32),
    /// Commits.
    Commit,
    /// Commits, and flushes up to that.
    CommitAndFlush,
    /// Drops the unit.
    Abort,
    /// Flushes.
    Flush(Survive),
    /// A step of what keeps the disk in shape.
    Maintain,
    /// Cleans zones whether or not it is due.
    Clean,
    /// Writes all tables.
    Checkpoint,
}

/// See the file's head.
pub(super) struct Client<'a> {
    pub number: u32,
    pub disk: &'a Disk,
    pub volume: &'a Volume,
    pub lists: &'a [OrderedId],
    open: Option<(lode::Unit, Unit)>,
    /// What each list was when the client last looked.
    seen: BTreeMap<u32, Vec<BlockId>>,
    written: u32,
    begun: u32,
    pub done: Vec<Unit>,
}

type Done<T = ()> = Result<T, String>;

fn words(what: &str, error: &lode::Error) -> String {
    format!("{what}: {error} ({:?})", error.kind())
}

impl<'a> Client<'a> {
    pub fn new(number: u32, disk: &'a Disk, volume: &'a Volume, lists: &'a [OrderedId]) -> Client<'a> {
        let (open, seen, written, begun, done) = (None, BTreeMap::new(), 0, 0, Vec::new());
        Client { number, disk, volume, lists, open, seen, written, begun, done }
    }

    /// Does a step. An error is one that no client should ever see.
    pub fn step(&mut self, step: Step) -> Done {
        let found = match step {
            Step::Begin(view, conflicts) => self.begin(UnitOptions { view, conflicts }),
            Step::Write(first, count) => self.write(first, count),
            Step::Read(first, count) => self.read(first, count),
            Step::Insert(list, place) => self.insert(list, place),
            Step::Remove(list, nth) => self.remove(list, nth),
            Step::Look(list) => self.look(list),
            Step::Commit => self.commit(false),
            Step::CommitAndFlush => self.commit(true),
            Step::Abort => {
                self.abort();
                Ok(())
            }
            Step::Flush(survive) => self.disk.flush(survive).map(drop),
            Step::Maintain => self.disk.maintain().map(drop),
            Step::Clean => self.disk.clean().map(drop),
            Step::Checkpoint => self.disk.checkpoint(),
        };
        match found {
            Ok(()) => Ok(()),
            // The disk is full, or others took away what a step, or one before it, names: what is open is given up.
            Err(error) if [ErrorKind::Full, ErrorKind::NotFound, ErrorKind::Conflict].contains(&error.kind()) => {
                self.abort();
                Ok(())
            }
            Err(error) => Err(words(&format!("client {}, {step:?}", self.number), &error)),
        }
    }

    /// Gives up what is open, and gives back what was done.
    pub fn end(mut self) -> Vec<Unit> {
        self.abort();
        self.done
    }

    fn position(&self) -> u64 {
        self.disk.position().0
    }

    /// Runs a call, and says when.
    fn spanned<T>(&mut self, call: impl FnOnce(&mut Self) -> lode::Result<T>) -> (Span, lode::Result<T>) {
        let from = self.position();
        let found = call(self);
        (Span { from, until: self.position() }, found)
    }

    fn record(&mut self, options: UnitOptions, begun: Span) -> Unit {
        self.begun += 1;
        let name = format!("unit {} of client {}", self.begun, self.number);
        Unit { name, options, begun, acts: Vec::new(), end: End::Aborted }
    }

    fn begin(&mut self, options: UnitOptions) -> lode::Result<()> {
        self.abort();
        let (begun, unit) = self.spanned(|client| client.disk.begin_with(&options));
        let record = self.record(options, begun);
        self.open = Some((unit?, record));
        Ok(())
    }

    fn abort(&mut self) {
        if let Some((unit, record)) = self.open.take() {
            unit.abort();
            self.done.push(record);
        }
    }

    fn commit(&mut self, flush: bool) -> lode::Result<()> {
        let Some((mut unit, mut record)) = self.open.take() else { return Ok(()) };
        let (call, committed) = self.spanned(|_| unit.try_commit());
        let position = match committed {
            Ok(position) => {
                record.end = End::Committed { at: position.0, call };
                Some(position)
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                record.end = End::Refused { call };
                None
            }
            Err(error) => {
                self.done.push(record);
                return Err(error);
            }
        };
        self.done.push(record);
        drop(unit);
        match position {
            Some(position) if flush => self.disk.flush_up_to(position, Survive::Power),
            _ => Ok(()),
        }
    }

    /// A simple operation: a unit of one.
    fn alone(&mut self, acts: Vec<Act>, change: impl FnOnce(&mut Self) -> lode::Result<Lsn>) -> lode::Result<()> {
        let (call, changed) = self.spanned(change);
        let mut record = self.record(UnitOptions::default(), call);
        record.acts = acts;
        if let Ok(Lsn(at)) = changed {
            record.end = End::Committed { at, call };
        }
        self.done.push(record); // Also if it was refused: then nobody may ever see it.
        changed.map(drop)
    }

    fn value(&mut self) -> Value {
        self.written += 1;
        u64::from(self.number + 1) << 32 | u64::from(self.written)
    }

    fn write(&mut self, first: u32, count: u32) -> lode::Result<()> {
        let block = self.volume.block_bytes();
        let mut data = Vec::new();
        let mut acts = Vec::new();
        for register in first..first + count {
            let value = self.value();
            acts.push(Act::Wrote { register, value });
            data.extend(value.to_le_bytes().iter().cycle().take(crate::rng::index(block)));
        }
        let offset = u64::from(first) * u64::from(block);
        let volume = self.volume;
        match &mut self.open {
            Some((unit, record)) => {
                record.acts.extend(acts);
                unit.write_at(volume, offset, &data)
            }
            None => self.alone(acts, |_| volume.write_at(offset, &data)),
        }
    }

    fn read(&mut self, first: u32, count: u32) -> lode::Result<()> {
        let block = self.volume.block_bytes();
        let mut data = vec![0x55; crate::rng::index(block * count)];
        let offset = u64::from(first) * u64::from(block);
        let (call, found) = self.spanned(|client| match &client.open {
            Some((unit, _)) => unit.read_at(client.volume, offset, &mut data),
            None => client.volume.read_at(offset, &mut data),
        });
        found?;
        let values = data.chunks(crate::rng::index(block)).map(value_in).collect();
        self.note_read(call, Act::Read { call, first, values });
        Ok(())
    }

    fn note_read(&mut self, call: Span, act: Act) {
        if let Some((_, record)) = &mut self.open {
            record.acts.push(act);
            return;
        }
        let mut record = self.record(UnitOptions::default(), call);
        record.acts.push(act);
        self.done.push(record);
    }

    fn look(&mut self, list: u32) -> lode::Result<()> {
        let id = self.lists[crate::rng::index(list)];
        let (call, found) = self.spanned(|client| match &mut client.open {
            Some((unit, _)) => unit.blocks(id),
            None => client.disk.blocks(id),
        });
        let found = found?;
        let blocks = found.iter().map(|block| block.0).collect();
        self.seen.insert(list, found);
        self.note_read(call, Act::Looked { call, list, blocks });
        Ok(())
    }

    fn nth_seen(&self, list: u32, nth: u8) -> Option<BlockId> {
        let seen = self.seen.get(&list)?;
        seen.get(usize::from(nth) % seen.len().max(1)).copied()
    }

    /// Without an open unit in one of its own, since a simple insertion does not tell its position.
    fn insert(&mut self, list: u32, place: Where) -> lode::Result<()> {
        let alone = self.open.is_none();
        if alone {
            self.begin(UnitOptions::default())?;
        }
        let behind = if let Where::Behind(nth) = place { self.nth_seen(list, nth) } else { None };
        let (to, place) = match (place, behind) {
            (_, Some(block)) => (lode::Place::After(block), Place::Behind(block.0)),
            (Where::First, None) => (lode::Place::First, Place::First),
            (_, None) => (lode::Place::Last, Place::Last),
        };
        let Some((unit, record)) = &mut self.open else { return Ok(()) };
        let block = unit.insert_block(self.lists[crate::rng::index(list)], to)?.0;
        record.acts.push(Act::Inserted { list, place, block });
        if alone { self.commit(false) } else { Ok(()) }
    }

    fn remove(&mut self, list: u32, nth: u8) -> lode::Result<()> {
        let Some(block) = self.nth_seen(list, nth) else { return self.look(list) };
        let id = self.lists[crate::rng::index(list)];
        let act = Act::Removed { list, block: block.0 };
        match &mut self.open {
            Some((unit, record)) => {
                unit.remove_block(id, block)?;
                record.acts.push(act);
                Ok(())
            }
            None => self.alone(vec![act], |client| client.disk.remove_block(id, block)),
        }
    }
}

/// What a register holds; of a torn one something that nobody wrote.
fn value_in(block: &[u8]) -> Value {
    let (words, _) = block.as_chunks::<8>();
    let value = words.first().map_or(0, |word| Value::from_le_bytes(*word));
    if words.iter().all(|word| Value::from_le_bytes(*word) == value) { value } else { Value::MAX }
}
