//! The door's promise (N2): no reply before the export has said that the write survives what the reply says it does.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use lode_nbd::{
    Durability, Export, ExportError, ExportErrorKind, Limits, Ticket,
    memory::{MemoryExport, MemoryExports},
    request::{Cookie, Request, encode_request},
    wire::{Errno, command_flags, commands},
};
use parking_lot::Mutex;

use crate::support::{Client, House};

/// Memory that says which writes have become durable, late.
struct Late {
    memory: MemoryExport,
    tickets: Mutex<BTreeMap<u64, u64>>,
    last: AtomicU64,
    process: AtomicU64,
    power: AtomicU64,
    waits: AtomicU64,
    fails: bool,
}

impl Late {
    fn new(fails: bool) -> Arc<Self> {
        Arc::new(Late {
            memory: MemoryExport::new(1 << 20),
            tickets: Mutex::default(),
            last: AtomicU64::new(0),
            process: AtomicU64::new(0),
            power: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            fails,
        })
    }

    fn survives(&self, offset: u64, until: Durability) -> bool {
        let ticket = self.tickets.lock()[&offset];
        let reached = if until == Durability::Power { &self.power } else { &self.process };
        ticket <= reached.load(SeqCst)
    }
}

impl Export for Late {
    fn size(&self) -> u64 {
        self.memory.size()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn preferred_block(&self) -> u32 {
        4096
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ExportError> {
        self.memory.read(offset, into)
    }
    fn write(&self, offset: u64, data: &[u8], until: Durability) -> Result<(), ExportError> {
        let ticket = self.write_unwaited(offset, data)?;
        self.wait(ticket, until)
    }
    fn write_unwaited(&self, offset: u64, data: &[u8]) -> Result<Ticket, ExportError> {
        self.memory.write(offset, data, Durability::Process)?;
        let ticket = self.last.fetch_add(1, SeqCst) + 1;
        self.tickets.lock().insert(offset, ticket);
        Ok(Ticket(ticket))
    }
    fn wait(&self, ticket: Ticket, until: Durability) -> Result<(), ExportError> {
        self.waits.fetch_add(1, SeqCst);
        thread::sleep(Duration::from_millis(10));
        if self.fails {
            return Err(ExportError::new(ExportErrorKind::Io, "the log is broken"));
        }
        self.process.fetch_max(ticket.0, SeqCst);
        if until == Durability::Power {
            self.power.fetch_max(ticket.0, SeqCst);
        }
        Ok(())
    }
    fn zero(&self, offset: u64, bytes: u64, may_punch: bool, until: Durability) -> Result<(), ExportError> {
        self.memory.zero(offset, bytes, may_punch, until)
    }
    fn trim(&self, offset: u64, bytes: u64, until: Durability) -> Result<(), ExportError> {
        self.memory.trim(offset, bytes, until)
    }
    fn flush(&self) -> Result<(), ExportError> {
        let last = self.last.load(SeqCst);
        self.wait(Ticket(last), Durability::Power)
    }
    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<(u64, bool)>, ExportError> {
        self.memory.extents(offset, bytes)
    }
}

fn house(late: &Arc<Late>) -> House {
    House::new(MemoryExports::default().and("disk", Arc::clone(late) as Arc<dyn Export>), Limits::default())
}

/// Sends 48 writes of a page at once; the cookie is the page.
fn send_writes(client: &mut Client, flags: impl Fn(u64) -> u16) {
    let mut bytes = Vec::new();
    for page in 0..48 {
        let request = Request {
            flags: flags(page),
            command: commands::WRITE,
            cookie: Cookie(page),
            offset: page * 4096,
            length: 4096,
        };
        bytes.extend_from_slice(&encode_request(&request));
        bytes.extend_from_slice(&[1; 4096]);
    }
    client.send(&bytes);
}

fn cookie_of(client: &mut Client) -> (u64, u32) {
    match client.reply() {
        crate::support::Reply::Simple { cookie, error } => (cookie, error),
        other => panic!("not a reply to a write: {other:?}"),
    }
}

#[test]
fn no_reply_comes_before_its_durability() {
    let late = Late::new(false);
    let house = house(&late);
    let mut client = house.client(true);
    let flags = |page| if page % 5 == 0 { command_flags::FUA } else { 0 };
    for _ in 0..5 {
        send_writes(&mut client, flags);
        for _ in 0..48 {
            let (page, error) = cookie_of(&mut client);
            assert_eq!(error, 0);
            let until = if flags(page) == 0 { Durability::Process } else { Durability::Power };
            assert!(late.survives(page * 4096, until), "page {page} was answered before it survives {until:?}");
        }
    }
    let waits = late.waits.load(SeqCst);
    assert!(waits < 5 * 48 / 2, "{waits} waits for 240 writes: they are not batched");
}

#[test]
fn a_wait_that_fails_fails_every_write_of_its_batch() {
    let late = Late::new(true);
    let house = house(&late);
    let mut client = house.client(true);
    send_writes(&mut client, |page| u16::from(page % 2 == 0));
    for _ in 0..48 {
        assert_eq!(cookie_of(&mut client).1, Errno::Io.code());
    }
}
