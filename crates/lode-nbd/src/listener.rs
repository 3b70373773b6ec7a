//! Where clients connect: a Unix socket with mode 0600, or TCP, by default on a loopback address only; or a socket that
//! somebody else listens on already.
//!
//! Two servers that are started at once for one Unix path cannot both believe that the other's socket is stale: the
//! check and the bind happen under a lock on the directory, which leaves no file behind.

use std::{
    ffi::OsStr,
    fmt, fs, io,
    net::{SocketAddr, TcpListener, ToSocketAddrs},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            fs::{FileTypeExt, MetadataExt},
        },
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, Mode, fchmod, flock},
    io::{Errno, ioctl_fionbio},
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, getsockname, listen, socket_with,
        sockopt,
    },
};

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: i32 = 128;

/// Where a server can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// An IP address and port.
    Tcp(SocketAddr),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "{}", path.display()),
            Address::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// A socket that clients can connect to. Dropped, it removes its path, if that is still its own.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    address: Address,
    /// Device and inode of the path.
    inode: Option<(u64, u64)>,
}

impl Listener {
    /// Listens on a Unix socket that only this user may connect to. The directory must exist.
    ///
    /// A socket that is there already is replaced if nobody answers on it; else this fails with `AddrInUse`. A file
    /// that is no socket is never touched: `AlreadyExists`.
    pub fn unix(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let name = SocketAddrUnix::new(path)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = fs::File::open(parent)?;
        flock(&directory, FlockOperation::LockExclusive)?;
        remove_stale(path, &name)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags(), None)?;
        // Before bind: Linux makes the file with this mode, so that there is no moment when it is more open.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        bind(&socket, &name)?;
        listen(&socket, BACKLOG)?;
        let metadata = fs::symlink_metadata(path)?;
        let inode = Some((metadata.dev(), metadata.ino()));
        Ok(Listener { socket, address: Address::Unix(path.to_owned()), inode })
    }

    /// Listens on a TCP address, which must be a loopback one unless `allow_remote`: the protocol is neither encrypted
    /// nor authenticated here.
    pub fn tcp(address: impl ToSocketAddrs, allow_remote: bool) -> io::Result<Self> {
        let addresses: Vec<_> = address.to_socket_addrs()?.collect();
        addresses.iter().try_for_each(|address| check_remote(address, allow_remote))?;
        let listener = TcpListener::bind(addresses.as_slice())?;
        listener.set_nonblocking(true)?;
        let address = Address::Tcp(listener.local_addr()?);
        Ok(Listener { socket: listener.into(), address, inode: None })
    }

    /// Listens on a socket that another program has made and listens on already, as systemd does. Its path, if it has
    /// one, stays when this is dropped. A TCP address must be a loopback one unless `allow_remote`.
    pub fn given(socket: OwnedFd, allow_remote: bool) -> io::Result<Self> {
        let refuse = |words: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, words));
        if sockopt::socket_type(&socket)? != SocketType::STREAM || !sockopt::socket_acceptconn(&socket)? {
            return refuse("expected a stream socket that listens");
        }
        let name = getsockname(&socket)?;
        let address = if let Ok(unix) = SocketAddrUnix::try_from(name.clone()) {
            match unix.path() {
                Some(path) => Address::Unix(PathBuf::from(OsStr::from_bytes(path.to_bytes()))),
                None => return refuse("expected a Unix socket with a path"),
            }
        } else {
            Address::Tcp(SocketAddr::try_from(name)?)
        };
        if let Address::Tcp(address) = &address {
            check_remote(address, allow_remote)?;
        }
        ioctl_fionbio(&socket, true)?;
        Ok(Listener { socket, address, inode: None })
    }

    /// Where clients connect to; for TCP with the port that the kernel chose if 0 was asked for.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Accepts a connection that waits. It blocks, is closed on exec, and sends small replies at once.
    pub(crate) fn accept(&self) -> Result<OwnedFd, Errno> {
        let socket = rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC)?;
        if matches!(self.address, Address::Tcp(_)) {
            // Without them the connection is slow, or lives longer than its peer; it is served all the same.
            let _ = sockopt::set_tcp_nodelay(&socket, true);
            let _ = sockopt::set_socket_keepalive(&socket, true);
        }
        Ok(socket)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let (Address::Unix(path), Some(inode)) = (&self.address, self.inode)
            && fs::symlink_metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == inode)
        {
            // If it stays, the next server finds it stale.
            let _ = fs::remove_file(path);
        }
    }
}

fn check_remote(address: &SocketAddr, allow_remote: bool) -> io::Result<()> {
    if allow_remote || address.ip().is_loopback() {
        return Ok(());
    }
    let words = format!("{address} is no loopback address; remote clients have to be allowed explicitly");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, words))
}

fn flags() -> SocketFlags {
    SocketFlags::CLOEXEC | SocketFlags::NONBLOCK
}

fn remove_stale(path: &Path, name: &SocketAddrUnix) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    let refuse = |kind, words| Err(io::Error::new(kind, format!("{}: {words}", path.display())));
    if !found.file_type().is_socket() {
        return refuse(io::ErrorKind::AlreadyExists, "there is a file that is no socket");
    }
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags(), None)?;
    match connect(&probe, name) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        // A full queue (EAGAIN) is an answer as well.
        Ok(()) | Err(Errno::AGAIN) => refuse(io::ErrorKind::AddrInUse, "another server answers"),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
