//! Where volumes are served over NBD, and the server there: for `lode serve`, and for `lode mount`, which serves them
//! beside the files.

use crate::exports::Volumes;
use crate::failure::{Code, Failure, Result};
use crate::shelf::Shelf;
use crate::{image, text};
use listenfd::ListenFd;
use lode::Disk;
use lode_nbd::{Address, Limits, Listener, Server};
use std::fmt::Write as _;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

/// Where to serve.
#[derive(clap::Args, Clone, Default)]
pub struct Where {
    /// Serve the volumes over NBD on a unix socket
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    pub socket: Option<PathBuf>,
    /// Serve the volumes over NBD on TCP
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// Listen on an address that is not a loopback one
    #[arg(long, conflicts_with = "socket")]
    pub allow_remote: bool,
}

impl Where {
    /// Nobody said where.
    pub fn is_nowhere(&self) -> bool {
        self.socket.is_none() && self.listen.is_none()
    }

    /// Listens there, or on the socket of systemd.
    fn listener(&self) -> Result<Listener> {
        match (&self.socket, &self.listen) {
            (Some(path), _) => Listener::unix(path).map_err(|error| refused(&image::show(path), error)),
            (None, Some(address)) => {
                Listener::tcp(address, self.allow_remote).map_err(|error| refused(&text::safe(address), error))
            }
            (None, None) => given(self.allow_remote),
        }
    }
}

/// Serves the volumes of a disk.
pub fn start(at: &Where, disk: &Disk, read_only: bool, shelf: &Arc<Shelf>) -> Result<Server> {
    let exports = Arc::new(Volumes::new(disk.clone(), read_only, Arc::clone(shelf)));
    Server::start(at.listener()?, exports, Limits::default()).map_err(|error| Failure::io("serving", error))
}

/// The socket that systemd listens on for this process.
fn given(allow_remote: bool) -> Result<Listener> {
    let mut sockets = ListenFd::from_env();
    match sockets.len() {
        1 => {}
        0 => return Err(Failure::usage("serve: expected --socket, --listen or a socket of systemd, found none")),
        many => return Err(Failure::usage(format!("serve: expected one socket of systemd, found {many}"))),
    }
    let unix = sockets.take_unix_listener(0).map(|found| found.map(OwnedFd::from));
    let socket = unix.or_else(|_| sockets.take_tcp_listener(0).map(|found| found.map(OwnedFd::from)));
    let given = socket.and_then(|socket| Listener::given(socket.expect("there is one"), allow_remote));
    given.map_err(|error| refused("the socket of systemd", error))
}

/// Why there is no socket.
fn refused(at: &str, error: std::io::Error) -> Failure {
    let code = match error.kind() {
        ErrorKind::AddrInUse => Code::Busy,
        ErrorKind::AlreadyExists => Code::Exists,
        ErrorKind::InvalidInput => Code::Usage,
        _ => return Failure::io(format!("listening on {at}"), error),
    };
    Failure::new(code, format!("listening on {at}: {error}"))
}

/// The URIs of all volumes, a line each.
pub fn uris(disk: &Disk, address: &Address) -> Result<String> {
    let mut words = String::new();
    for volume in disk.volumes()? {
        let _ = writeln!(words, "{}", uri(address, &volume.name));
    }
    Ok(words)
}

/// The URI of a volume, as every NBD client takes it.
fn uri(address: &Address, volume: &str) -> String {
    let volume = escape(volume);
    match address {
        Address::Tcp(address) => format!("nbd://{address}/{volume}"),
        Address::Unix(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            format!("nbd+unix:///{volume}?socket={}", escape(&path.to_string_lossy()))
        }
    }
}

/// Percent-encodes what has a meaning in a URI or to a terminal.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::uri;
    use lode_nbd::Address;

    #[test]
    fn uris_are_escaped() {
        let address = Address::Unix("/tmp/a b.sock".into());
        assert_eq!(uri(&address, "dä ta?"), "nbd+unix:///d%C3%A4%20ta%3F?socket=/tmp/a%20b.sock");
        let address = Address::Tcp("127.0.0.1:10809".parse().expect("an address"));
        assert_eq!(uri(&address, "data"), "nbd://127.0.0.1:10809/data");
    }
}
