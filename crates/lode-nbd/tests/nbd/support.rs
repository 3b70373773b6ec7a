//! A small client that sends whatever it is told, a server that lives as long as a test, and an export that can fail,
//! be slow, and tell what it was asked for.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use lode_nbd::{
    Durability, Export, ExportError, ExportErrorKind, Exports, Limits, Listener, Server, Stats,
    memory::{MemoryExport, MemoryExports},
    request::{Cookie, Request, encode_request},
    wire::{self, OptionReply, commands, options},
};
use parking_lot::Mutex;

/// Longer than anything here takes; a test that would wait for ever fails instead.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A server in a directory of its own.
pub struct House {
    pub server: Option<Server>,
    pub directory: PathBuf,
}

impl House {
    pub fn new(exports: impl Exports + 'static, limits: Limits) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("lode-nbd-{}-{}", std::process::id(), COUNT.fetch_add(1, SeqCst));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
        let listener = Listener::unix(directory.join("socket")).expect("the directory is new");
        let server = Server::start(listener, Arc::new(exports), limits).expect("the limits are sound");
        House { server: Some(server), directory }
    }

    /// One export in memory, `disk`.
    pub fn memory(size: u64) -> Self {
        House::new(MemoryExports::with("disk", size), Limits::default())
    }

    pub fn scripted(script: &Arc<Script>) -> Self {
        House::new(MemoryExports::default().and("disk", Arc::clone(script) as Arc<dyn Export>), Limits::default())
    }

    pub fn path(&self) -> PathBuf {
        self.directory.join("socket")
    }

    pub fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.path().display())
    }

    pub fn stats(&self) -> Stats {
        self.server.as_ref().expect("it runs").stats()
    }

    pub fn connect(&self) -> Client {
        let stream = UnixStream::connect(self.path()).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        stream.set_write_timeout(Some(PATIENCE)).expect("not zero");
        Client { stream, cookie: 0 }
    }

    /// A client that chose `disk`, with or without structured replies.
    pub fn client(&self, structured: bool) -> Client {
        let mut client = self.connect();
        client.greet();
        if structured {
            client.agree_on_structured();
        }
        client.go("disk");
        client
    }

    /// Waits until a number of the server's fulfils a condition.
    pub fn until(&self, what: &str, holds: impl Fn(&Stats) -> bool) {
        eventually(what, || holds(&self.stats()));
    }

    /// Fails unless a new client is served as if nothing had happened.
    pub fn assert_serves(&self) {
        let mut client = self.client(true);
        assert_eq!(client.write(0, b"still here"), 0);
        assert_eq!(client.read(0, 10), Ok(b"still here".to_vec()));
    }
}

impl Drop for House {
    fn drop(&mut self) {
        drop(self.server.take());
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never came true: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub struct Client {
    pub stream: UnixStream,
    pub cookie: u64,
}

/// A reply of the transmission.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    Simple { cookie: u64, error: u32 },
    Chunk { cookie: u64, kind: u16, content: Vec<u8> },
}

impl Client {
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server takes it");
    }

    pub fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).expect("the server answers");
        bytes
    }

    pub fn take_vec(&mut self, count: u32) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(count).expect("small")];
        self.stream.read_exact(&mut bytes).expect("the server answers");
        bytes
    }

    /// Whether the server has hung up, now or soon; what it sent before is skipped.
    pub fn is_closed(&mut self) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }

    pub fn greet(&mut self) {
        let greeting: [u8; 18] = self.take();
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        assert_eq!(greeting[16..], [0, 3]);
        self.send(&3_u32.to_be_bytes());
    }

    pub fn send_option(&mut self, code: u32, data: &[u8]) {
        self.send(&option_bytes(code, data));
    }

    /// One reply to an option: its type and data.
    pub fn option_reply(&mut self, code: u32) -> (u32, Vec<u8>) {
        assert_eq!(u64::from_be_bytes(self.take()), wire::OPTION_REPLY_MAGIC);
        assert_eq!(u32::from_be_bytes(self.take()), code);
        let kind = u32::from_be_bytes(self.take());
        let length = u32::from_be_bytes(self.take());
        (kind, self.take_vec(length))
    }

    /// All replies to an option up to the final one, whose type comes last.
    pub fn option(&mut self, code: u32, data: &[u8]) -> (Vec<(u32, Vec<u8>)>, u32) {
        self.send_option(code, data);
        let mut replies = Vec::new();
        loop {
            let (kind, data) = self.option_reply(code);
            if kind == OptionReply::Ack.code() || kind >= 0x8000_0000 {
                return (replies, kind);
            }
            replies.push((kind, data));
        }
    }

    pub fn agree_on_structured(&mut self) {
        assert_eq!(self.option(options::STRUCTURED_REPLY, &[]).1, OptionReply::Ack.code());
    }

    pub fn go(&mut self, name: &str) {
        assert_eq!(self.option(options::GO, &info_data(name, &[])).1, OptionReply::Ack.code());
    }

    /// Sends a request without its payload.
    pub fn request(&mut self, command: u16, flags: u16, offset: u64, length: u32) -> u64 {
        self.cookie += 1;
        let request = Request { flags, command, cookie: Cookie(self.cookie), offset, length };
        self.send(&encode_request(&request));
        self.cookie
    }

    pub fn reply(&mut self) -> Reply {
        match u32::from_be_bytes(self.take()) {
            wire::SIMPLE_REPLY_MAGIC => {
                let error = u32::from_be_bytes(self.take());
                Reply::Simple { cookie: u64::from_be_bytes(self.take()), error }
            }
            wire::STRUCTURED_REPLY_MAGIC => {
                assert_eq!(u16::from_be_bytes(self.take()), 1, "each reply is one chunk");
                let kind = u16::from_be_bytes(self.take());
                let cookie = u64::from_be_bytes(self.take());
                let length = u32::from_be_bytes(self.take());
                Reply::Chunk { cookie, kind, content: self.take_vec(length) }
            }
            other => panic!("no reply begins with {other:#x}"),
        }
    }

    /// The error number of the next reply, which is to `cookie`.
    pub fn error(&mut self, cookie: u64) -> u32 {
        match self.reply() {
            Reply::Simple { cookie: found, error } if found == cookie => error,
            Reply::Chunk { cookie: found, kind: 0x8001, content } if found == cookie => {
                u32::from_be_bytes(content[..4].try_into().expect("an error has a number"))
            }
            other => panic!("not an answer to {cookie}: {other:?}"),
        }
    }

    /// Does a request without payload, either way; its error number.
    pub fn command(&mut self, command: u16, flags: u16, offset: u64, length: u32) -> u32 {
        let cookie = self.request(command, flags, offset, length);
        self.error(cookie)
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> u32 {
        self.write_with(0, offset, data)
    }

    pub fn write_with(&mut self, flags: u16, offset: u64, data: &[u8]) -> u32 {
        let cookie = self.request(commands::WRITE, flags, offset, u32::try_from(data.len()).expect("small"));
        self.send(data);
        self.error(cookie)
    }

    pub fn read(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, u32> {
        let cookie = self.request(commands::READ, 0, offset, length);
        self.read_reply(cookie, offset, length)
    }

    pub fn read_reply(&mut self, cookie: u64, offset: u64, length: u32) -> Result<Vec<u8>, u32> {
        let (found, result) = match self.reply() {
            Reply::Simple { cookie, error: 0 } => (cookie, Ok(self.take_vec(length))),
            Reply::Simple { cookie, error } => (cookie, Err(error)),
            Reply::Chunk { cookie, kind, content } => (cookie, read_content(kind, &content, offset, length)),
        };
        assert_eq!(found, cookie);
        result
    }
}

fn read_content(kind: u16, content: &[u8], offset: u64, length: u32) -> Result<Vec<u8>, u32> {
    let bytes = usize::try_from(length).expect("small");
    match kind {
        1 => {
            assert_eq!(content[..8], offset.to_be_bytes());
            assert_eq!(content.len() - 8, bytes);
            Ok(content[8..].to_vec())
        }
        2 => {
            assert_eq!(content[..8], offset.to_be_bytes());
            assert_eq!(content[8..], length.to_be_bytes());
            Ok(vec![0; bytes])
        }
        0x8001 => Err(u32::from_be_bytes(content[..4].try_into().expect("an error has a number"))),
        other => panic!("no chunk of a read has type {other}"),
    }
}

pub fn option_bytes(code: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = wire::OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend_from_slice(&code.to_be_bytes());
    bytes.extend_from_slice(&u32::try_from(data.len()).expect("small").to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

pub fn info_data(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = u32::try_from(name.len()).expect("small").to_be_bytes().to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&u16::try_from(infos.len()).expect("few").to_be_bytes());
    infos.iter().for_each(|item| data.extend_from_slice(&item.to_be_bytes()));
    data
}

pub fn context_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let length = |text: &str| u32::try_from(text.len()).expect("small").to_be_bytes();
    let mut data = length(name).to_vec();
    data.extend_from_slice(name.as_bytes());
    data.extend_from_slice(&u32::try_from(queries.len()).expect("few").to_be_bytes());
    for query in queries {
        data.extend_from_slice(&length(query));
        data.extend_from_slice(query.as_bytes());
    }
    data
}

/// What a script's export was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Read,
    Write(Durability),
    Zero(Durability),
    Trim,
    Flush,
}

/// Memory that obeys a script.
pub struct Script {
    memory: MemoryExport,
    pub fail: Mutex<Option<ExportErrorKind>>,
    pub delay: Mutex<Duration>,
    pub panics: AtomicBool,
    pub concurrent_reads: usize,
    pub calls: Mutex<Vec<Call>>,
    /// Calls that have not returned.
    pub inside: AtomicU64,
    pub inside_max: AtomicU64,
}

impl Script {
    pub fn new(size: u64) -> Arc<Self> {
        Arc::new(Self::build(size, 1))
    }

    pub fn build(size: u64, concurrent_reads: usize) -> Self {
        Script {
            memory: MemoryExport::new(size),
            fail: Mutex::default(),
            delay: Mutex::default(),
            panics: AtomicBool::new(false),
            concurrent_reads,
            calls: Mutex::default(),
            inside: AtomicU64::new(0),
            inside_max: AtomicU64::new(0),
        }
    }

    fn play(&self, call: Call) -> Result<(), ExportError> {
        self.calls.lock().push(call);
        assert!(!self.panics.load(SeqCst), "the script says so");
        self.inside_max.fetch_max(self.inside.fetch_add(1, SeqCst) + 1, SeqCst);
        let delay = *self.delay.lock();
        thread::sleep(delay);
        self.inside.fetch_sub(1, SeqCst);
        match *self.fail.lock() {
            Some(kind) => Err(ExportError::new(kind, "the script says so")),
            None => Ok(()),
        }
    }
}

impl Export for Script {
    fn size(&self) -> u64 {
        self.memory.size()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn preferred_block(&self) -> u32 {
        4096
    }
    fn concurrent_reads(&self) -> usize {
        self.concurrent_reads
    }
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ExportError> {
        self.play(Call::Read)?;
        self.memory.read(offset, into)
    }
    fn write(&self, offset: u64, data: &[u8], until: Durability) -> Result<(), ExportError> {
        self.play(Call::Write(until))?;
        self.memory.write(offset, data, until)
    }
    fn zero(&self, offset: u64, bytes: u64, may_punch: bool, until: Durability) -> Result<(), ExportError> {
        self.play(Call::Zero(until))?;
        self.memory.zero(offset, bytes, may_punch, until)
    }
    fn trim(&self, offset: u64, bytes: u64, until: Durability) -> Result<(), ExportError> {
        self.play(Call::Trim)?;
        self.memory.trim(offset, bytes, until)
    }
    fn flush(&self) -> Result<(), ExportError> {
        self.play(Call::Flush)
    }
    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<(u64, bool)>, ExportError> {
        self.memory.extents(offset, bytes)
    }
}
