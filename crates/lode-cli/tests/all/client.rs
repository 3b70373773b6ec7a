//! The smallest NBD client that can keep an exact record of what was acknowledged: no retries, no cache.

use std::io::{Error, Read, Result, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const FUA: u16 = 1;

/// A connection in the transmission phase, with simple replies.
pub struct Client {
    stream: UnixStream,
    pub bytes: u64,
    pub flags: u16,
    cookie: u64,
}

fn unexpected(what: &str, found: impl std::fmt::Debug) -> Error {
    Error::other(format!("expected {what}, found {found:?}"))
}

impl Client {
    /// Connects, and chooses the export `name` with NBD_OPT_GO.
    pub fn connect(socket: &Path, name: &str) -> Result<Client> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.set_write_timeout(Some(Duration::from_secs(30)))?;
        let mut client = Client { stream, bytes: 0, flags: 0, cookie: 0 };
        let greeting = client.take::<18>()?;
        if &greeting[..16] != b"NBDMAGICIHAVEOPT" {
            return Err(unexpected("the greeting", greeting));
        }
        let mut go = 3_u32.to_be_bytes().to_vec();
        go.extend(b"IHAVEOPT");
        go.extend(7_u32.to_be_bytes());
        go.extend((name.len() as u32 + 6).to_be_bytes());
        go.extend((name.len() as u32).to_be_bytes());
        go.extend(name.as_bytes());
        go.extend(0_u16.to_be_bytes());
        client.stream.write_all(&go)?;
        loop {
            let head = client.take::<20>()?;
            let kind = u32::from_be_bytes(head[12..16].try_into().unwrap());
            let mut data = vec![0; u32::from_be_bytes(head[16..20].try_into().unwrap()) as usize];
            client.stream.read_exact(&mut data)?;
            match kind {
                1 => return Ok(client),
                3 if data.len() == 12 && data[..2] == [0, 0] => {
                    client.bytes = u64::from_be_bytes(data[2..10].try_into().unwrap());
                    client.flags = u16::from_be_bytes(data[10..12].try_into().unwrap());
                }
                3 => {}
                _ => return Err(unexpected("an export", String::from_utf8_lossy(&data))),
            }
        }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn ask(&mut self, flags: u16, kind: u16, offset: u64, bytes: u32, data: &[u8]) -> Result<()> {
        self.cookie += 1;
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        request.extend(flags.to_be_bytes());
        request.extend(kind.to_be_bytes());
        request.extend(self.cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(bytes.to_be_bytes());
        request.extend(data);
        self.stream.write_all(&request)?;
        let reply = self.take::<16>()?;
        let error = u32::from_be_bytes(reply[4..8].try_into().unwrap());
        let own = reply[..4] == 0x6744_6698_u32.to_be_bytes() && reply[8..] == self.cookie.to_be_bytes();
        if own && error == 0 { Ok(()) } else { Err(unexpected("a good reply", (reply, error))) }
    }

    /// Returns when the write is acknowledged.
    pub fn write(&mut self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        self.ask(if fua { FUA } else { 0 }, 1, offset, data.len() as u32, data)
    }

    pub fn read(&mut self, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        self.ask(0, 0, offset, bytes as u32, &[])?;
        let mut data = vec![0; bytes];
        self.stream.read_exact(&mut data)?;
        Ok(data)
    }

    pub fn flush(&mut self) -> Result<()> {
        self.ask(0, 3, 0, 0, &[])
    }

    pub fn trim(&mut self, offset: u64, bytes: u32) -> Result<()> {
        self.ask(0, 4, offset, bytes, &[])
    }
}
