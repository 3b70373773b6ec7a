//! Metadata contexts beside `base:allocation`: listed, chosen, told, and what a hostile client gets.

use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering::SeqCst};

use lode_nbd::{
    Context, Durability, Export, ExportError, ExportErrorKind, Exports, Limits,
    memory::MemoryExport,
    reply::EXTENTS_MAX,
    wire::{self, Errno, OptionReply, command_flags, commands, options},
};

use crate::support::{Client, House, context_data, info_data};

const ACK: u32 = 1;
const SIZE: u64 = 1 << 20;

/// An export whose context `test:every:N` says that of N blocks of 512 bytes one has flag 1.
struct Marked {
    memory: MemoryExport,
    gone: Arc<AtomicBool>,
}

struct Every(u64, Arc<AtomicBool>);

/// `disk` with the contexts of these names, until they are gone; and `plain` without.
struct Shelf {
    names: Vec<String>,
    gone: Arc<AtomicBool>,
}

impl Exports for Shelf {
    fn list(&self) -> Result<Vec<String>, ExportError> {
        Ok(vec!["disk".to_owned(), "plain".to_owned()])
    }
    fn open(&self, name: &str) -> Result<Arc<dyn Export>, ExportError> {
        match name {
            "disk" => Ok(Arc::new(Marked { memory: MemoryExport::new(SIZE), gone: Arc::clone(&self.gone) })),
            "plain" => Ok(Arc::new(MemoryExport::new(SIZE))),
            _ => Err(ExportError::new(ExportErrorKind::Unknown, "no such export")),
        }
    }
    fn contexts(&self, name: &str) -> Result<Vec<String>, ExportError> {
        Ok(if name == "disk" { self.names.clone() } else { Vec::new() })
    }
}

impl Context for Every {
    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<(u64, u32)>, ExportError> {
        if self.1.load(SeqCst) {
            return Err(ExportError::new(ExportErrorKind::Io, "gone"));
        }
        let blocks = offset / 512..(offset + bytes).div_ceil(512);
        Ok(blocks.map(|block| (512, u32::from(block.is_multiple_of(self.0)))).collect())
    }
}

impl Export for Marked {
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
        self.memory.write(offset, data, until)
    }
    fn zero(&self, offset: u64, bytes: u64, may_punch: bool, until: Durability) -> Result<(), ExportError> {
        self.memory.zero(offset, bytes, may_punch, until)
    }
    fn trim(&self, offset: u64, bytes: u64, until: Durability) -> Result<(), ExportError> {
        self.memory.trim(offset, bytes, until)
    }
    fn flush(&self) -> Result<(), ExportError> {
        Ok(())
    }
    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<(u64, bool)>, ExportError> {
        self.memory.extents(offset, bytes)
    }
    fn context(&self, name: &str) -> Result<Box<dyn Context>, ExportError> {
        let number = name.strip_prefix("test:every:").and_then(|number| number.parse().ok());
        match number {
            Some(number) if !self.gone.load(SeqCst) => Ok(Box::new(Every(number, Arc::clone(&self.gone)))),
            _ => Err(ExportError::new(ExportErrorKind::Unknown, "no such context")),
        }
    }
}

fn house(count: u32, limits: Limits) -> (House, Arc<AtomicBool>) {
    let gone = Arc::new(AtomicBool::new(false));
    let names = (2..2 + count).map(|number| format!("test:every:{number}")).collect();
    (House::new(Shelf { names, gone: Arc::clone(&gone) }, limits), gone)
}

fn haggling(house: &House) -> Client {
    let mut client = house.connect();
    client.greet();
    client.agree_on_structured();
    client
}

/// The contexts that an option names, with their numbers, and its end.
fn contexts(client: &mut Client, option: u32, name: &str, queries: &[&str]) -> (Vec<(u32, String)>, u32) {
    let (replies, end) = client.option(option, &context_data(name, queries));
    let decode = |(kind, data): (u32, Vec<u8>)| {
        assert_eq!(kind, OptionReply::MetaContext.code());
        let id = u32::from_be_bytes(data[..4].try_into().expect("a number"));
        (id, String::from_utf8(data[4..].to_vec()).expect("a name"))
    };
    (replies.into_iter().map(decode).collect(), end)
}

fn listed(client: &mut Client, name: &str, queries: &[&str]) -> Vec<String> {
    let (found, end) = contexts(client, options::LIST_META_CONTEXT, name, queries);
    assert_eq!(end, ACK);
    found.into_iter().map(|(_, name)| name).collect()
}

/// The chunks of the reply to BLOCK_STATUS: of each a context's number, and its extents.
fn status(client: &mut Client, flags: u16, offset: u64, bytes: u32) -> Vec<(u32, Vec<(u32, u32)>)> {
    let cookie = client.request(commands::BLOCK_STATUS, flags, offset, bytes);
    let mut found = Vec::new();
    loop {
        assert_eq!(u32::from_be_bytes(client.take()), wire::STRUCTURED_REPLY_MAGIC);
        let last = u16::from_be_bytes(client.take()) == wire::chunks::FLAG_DONE;
        assert_eq!(u16::from_be_bytes(client.take()), wire::chunks::BLOCK_STATUS);
        assert_eq!(u64::from_be_bytes(client.take()), cookie);
        let length = u32::from_be_bytes(client.take());
        let id = u32::from_be_bytes(client.take());
        let content = client.take_vec(length - 4);
        let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
        found.push((id, content.chunks_exact(8).map(|pair| (word(&pair[..4]), word(&pair[4..]))).collect()));
        if last {
            return found;
        }
    }
}

#[test]
fn listing_knows_no_query_names_and_beginnings() {
    let (house, _) = house(2, Limits::default());
    let mut client = haggling(&house);
    let all = ["base:allocation", "test:every:2", "test:every:3"];
    assert_eq!(listed(&mut client, "disk", &[]), all);
    for query in ["test:", "test:every:"] {
        assert_eq!(listed(&mut client, "disk", &[query]), all[1..]);
    }
    assert_eq!(listed(&mut client, "disk", &["test:every:3", "test:every:3"]), all[2..]);
    assert_eq!(listed(&mut client, "disk", &["test:", "base:", "test:every:2"]), all);
    for query in ["", ":", "test", "test:e", "test:every", "test:every:4", "test:every:2:", "qemu:"] {
        assert_eq!(listed(&mut client, "disk", &[query]), <[&str; 0]>::default(), "{query:?}");
    }
    assert_eq!(listed(&mut client, "plain", &[]), all[..1]);
    assert_eq!(listed(&mut client, "nothing", &["test:"]), <[&str; 0]>::default());
}

#[test]
fn several_contexts_are_chosen_at_once_and_each_has_its_chunk() {
    let (house, _) = house(3, Limits::default());
    let mut client = haggling(&house);
    // What stands for many when listing chooses nothing.
    let chosen = contexts(&mut client, options::SET_META_CONTEXT, "disk", &["test:", "base:"]);
    assert_eq!(chosen, (vec![], ACK));
    let queries = ["test:every:4", "base:allocation", "test:every:2", "test:every:2", "test:every:99"];
    let (chosen, end) = contexts(&mut client, options::SET_META_CONTEXT, "disk", &queries);
    let names: Vec<_> = chosen.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!((names, end), (vec!["base:allocation", "test:every:2", "test:every:4"], ACK));
    let [base, two, four] = [0, 1, 2].map(|at| chosen[at].0);
    assert!(base != two && two != four && four != base);
    client.go("disk");
    assert_eq!(client.write(0, &[1; 512]), 0);
    let told = status(&mut client, 0, 512, 2048);
    assert_eq!(
        told,
        [
            (base, vec![(2048, 0)]),
            (two, vec![(512, 0), (512, 1), (512, 0), (512, 1)]),
            (four, vec![(1536, 0), (512, 1)])
        ]
    );
    let told = status(&mut client, command_flags::REQ_ONE, 512, 2048);
    assert_eq!(told, [(base, vec![(2048, 0)]), (two, vec![(512, 0)]), (four, vec![(1536, 0)])]);
    assert_eq!(client.command(commands::BLOCK_STATUS, 0, SIZE, 512), Errno::Invalid.code());
    assert_eq!(client.read(0, 1), Ok(vec![1]), "the next reply begins where it should");
}

#[test]
fn one_context_without_the_allocation() {
    let (house, _) = house(1, Limits::default());
    let mut client = haggling(&house);
    let (chosen, _) = contexts(&mut client, options::SET_META_CONTEXT, "disk", &["test:every:2"]);
    client.go("disk");
    assert_eq!(status(&mut client, 0, 0, 1024), [(chosen[0].0, vec![(512, 1), (512, 0)])]);
    // The last choice counts, and only for its export.
    let mut client = haggling(&house);
    contexts(&mut client, options::SET_META_CONTEXT, "disk", &["test:every:2"]);
    contexts(&mut client, options::SET_META_CONTEXT, "disk", &["test:every:77"]);
    client.go("disk");
    assert_eq!(client.command(commands::BLOCK_STATUS, 0, 0, 512), Errno::Invalid.code());
    let mut client = haggling(&house);
    contexts(&mut client, options::SET_META_CONTEXT, "disk", &["test:every:2"]);
    client.go("plain");
    assert_eq!(client.command(commands::BLOCK_STATUS, 0, 0, 512), Errno::Invalid.code());
}

#[test]
fn a_context_that_is_gone_is_an_error_and_not_silence() {
    let (house, gone) = house(1, Limits::default());
    let mut client = haggling(&house);
    contexts(&mut client, options::SET_META_CONTEXT, "disk", &["base:allocation", "test:every:2"]);
    let mut late = haggling(&house);
    contexts(&mut late, options::SET_META_CONTEXT, "disk", &["test:every:2"]);
    client.go("disk");
    gone.store(true, SeqCst);
    // One error for the whole request: nothing was told of the other context either.
    assert_eq!(client.command(commands::BLOCK_STATUS, 0, 0, 512), Errno::Io.code());
    assert_eq!(client.read(0, 1), Ok(vec![0]));
    assert_eq!(late.option(options::GO, &info_data("disk", &[])).1, OptionReply::ErrUnknown.code());
    late.go("plain");
}

#[test]
fn hostile_choices_are_refused_and_replies_stay_small() {
    let mut limits = Limits::default();
    limits.contexts = 4;
    let (house, _) = house(3000, limits);
    let mut client = haggling(&house);
    assert_eq!(listed(&mut client, "disk", &["test:"]).len(), 3000);
    let names: Vec<String> = (2..300).map(|number| format!("test:every:{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let too_many = contexts(&mut client, options::SET_META_CONTEXT, "disk", &names[..5]);
    assert_eq!(too_many, (vec![], OptionReply::ErrTooBig.code()));
    assert_eq!(contexts(&mut client, options::SET_META_CONTEXT, "disk", &names).1, OptionReply::ErrTooBig.code());
    // As many queries as an option can carry.
    let empty = vec![""; 2000];
    assert_eq!(contexts(&mut client, options::SET_META_CONTEXT, "disk", &empty), (vec![], ACK));
    let many = vec![""; 3000];
    assert_eq!(contexts(&mut client, options::LIST_META_CONTEXT, "disk", &many).1, OptionReply::ErrTooBig.code());
    assert_eq!(contexts(&mut client, options::SET_META_CONTEXT, "disk", &names[..4]).0.len(), 4);
    client.go("disk");
    let told = status(&mut client, 0, 0, u32::try_from(SIZE).expect("small"));
    assert_eq!(told.len(), 4);
    assert!(told.iter().all(|(_, extents)| !extents.is_empty() && extents.len() <= EXTENTS_MAX / 4));
    // All of it can be asked for, part by part.
    let (mut at, mut changed) = (0, 0);
    while at < SIZE {
        let told = status(&mut client, 0, at, u32::try_from(SIZE - at).expect("small"));
        for (length, flags) in &told[0].1 {
            at += u64::from(*length);
            changed += flags * length;
        }
    }
    assert_eq!(u64::from(changed), SIZE / 2);
}
