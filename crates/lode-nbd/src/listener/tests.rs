use std::os::unix::{fs::PermissionsExt, net::UnixListener};

use super::*;

/// A directory of this test alone, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lode-nbd-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_socket_is_private_and_goes_with_its_listener() {
    let directory = Directory::new("private");
    let path = directory.0.join("socket");
    let listener = Listener::unix(&path).expect("free");
    let mode = fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let directory = Directory::new("stale");
    let path = directory.0.join("socket");
    drop(UnixListener::bind(&path).expect("free"));
    assert!(path.exists(), "std leaves the path behind, as a killed server does");
    let live = Listener::unix(&path).expect("nobody answers");
    let refused = Listener::unix(&path).expect_err("it answers");
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    drop(live);
}

#[test]
fn what_is_no_socket_is_not_touched() {
    let directory = Directory::new("file");
    let path = directory.0.join("precious");
    fs::write(&path, "data").expect("writable");
    let refused = Listener::unix(&path).expect_err("it is a file");
    assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&path).expect("still there"), b"data");
}

#[test]
fn a_listener_leaves_the_socket_of_its_successor() {
    let directory = Directory::new("successor");
    let path = directory.0.join("socket");
    let old = Listener::unix(&path).expect("free");
    fs::remove_file(&path).expect("it is there");
    let new = Listener::unix(&path).expect("free again");
    drop(old);
    assert!(path.exists());
    drop(new);
}

#[test]
fn remote_addresses_need_permission() {
    let refused = Listener::tcp("0.0.0.0:0", false).expect_err("not loopback");
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    assert!(Listener::tcp("0.0.0.0:0", true).is_ok());
    assert!(Listener::tcp("127.0.0.1:0", false).is_ok());
}

#[test]
fn a_given_socket_is_used_and_left_where_it_is() {
    let directory = Directory::new("given");
    let path = directory.0.join("socket");
    let made = UnixListener::bind(&path).expect("free");
    let listener = Listener::given(made.into(), false).expect("it listens");
    assert_eq!(listener.address(), &Address::Unix(path.clone()));
    let client = std::os::unix::net::UnixStream::connect(&path).expect("it is listened on");
    listener.accept().expect("somebody waits");
    assert_eq!(listener.accept().expect_err("nobody else does, and it does not block"), Errno::AGAIN);
    drop((listener, client));
    assert!(path.exists(), "it belongs to whoever made it");
}

#[test]
fn what_is_no_listening_socket_is_not_used() {
    let (one, _other) = std::os::unix::net::UnixStream::pair().expect("two sockets");
    let refused = Listener::given(one.into(), false).expect_err("it does not listen");
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    let file = fs::File::open("/dev/null").expect("it is there");
    Listener::given(file.into(), false).expect_err("it is no socket");
    let remote = || TcpListener::bind("0.0.0.0:0").expect("free").into();
    let refused = Listener::given(remote(), false).expect_err("not loopback");
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    let local = TcpListener::bind("127.0.0.1:0").expect("free");
    let address = Address::Tcp(local.local_addr().expect("bound"));
    assert_eq!(Listener::given(local.into(), false).expect("loopback").address(), &address);
    assert!(Listener::given(remote(), true).is_ok());
}
