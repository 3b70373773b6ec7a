//! Serves one disk in memory: `memory SOCKET-PATH|IP:PORT SIZE-IN-BYTES [read-only]`, until its standard input ends.

use std::{env, io, io::Read, sync::Arc, time::Duration};

use lode_nbd::{
    Limits, Listener, Server,
    memory::{MemoryExport, MemoryExports},
};

fn main() -> io::Result<()> {
    let mut arguments = env::args().skip(1);
    let usage = || io::Error::new(io::ErrorKind::InvalidInput, "memory SOCKET-PATH|IP:PORT SIZE-IN-BYTES [read-only]");
    let place = arguments.next().ok_or_else(usage)?;
    let size = arguments.next().and_then(|size| size.parse().ok()).ok_or_else(usage)?;
    let mut export = MemoryExport::new(size);
    if arguments.next().is_some_and(|word| word == "read-only") {
        export = export.into_read_only();
    }
    let listener = if place.contains('/') { Listener::unix(&place)? } else { Listener::tcp(&place, false)? };
    let exports = MemoryExports::default().and("memory", Arc::new(export));
    let server = Server::start(listener, Arc::new(exports), Limits::default())?;
    println!("{}", server.address());
    io::stdin().read_to_end(&mut Vec::new())?;
    println!("{:#?}", server.stats());
    println!("{:?}", server.drain(Duration::from_secs(5)));
    Ok(())
}
