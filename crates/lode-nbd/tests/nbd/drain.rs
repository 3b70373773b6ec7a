//! The server's end: what is in flight is answered, who holds on is closed, and nothing stays behind.

use std::{
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

use lode_nbd::{DrainReport, wire::commands};

use crate::support::{Call, House, Script, eventually};

#[test]
fn idle_connections_and_handshakes_end_at_once() {
    let mut house = House::memory(1 << 20);
    let mut chosen = house.client(true);
    assert_eq!(chosen.read(0, 1), Ok(vec![0]));
    let mut haggling = house.connect();
    haggling.greet();
    let mut silent = house.connect();
    house.until("all are there", |stats| stats.connections == 3);
    let started = Instant::now();
    let report = house.server.take().expect("it runs").drain(Duration::from_secs(10));
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(report, DrainReport { finished: 3, dropped: 0 });
    assert!(chosen.is_closed() && haggling.is_closed() && silent.is_closed());
    assert!(!house.path().exists(), "the socket's path is gone");
    assert!(UnixStream::connect(house.path()).is_err());
}

#[test]
fn requests_in_flight_are_answered_and_flushed() {
    let script = Script::new(1 << 20);
    let mut house = House::scripted(&script);
    let mut client = house.client(true);
    assert_eq!(client.read(0, 1), Ok(vec![0]));
    *script.delay.lock() = Duration::from_millis(300);
    let cookie = client.request(commands::WRITE, 0, 0, 4);
    client.send(b"last");
    eventually("the write is being done", || script.calls.lock().contains(&Call::Write(lode_nbd::Durability::Process)));
    let server = house.server.take().expect("it runs");
    let draining = thread::spawn(move || server.drain(Duration::from_secs(10)));
    assert_eq!(client.error(cookie), 0);
    assert!(client.is_closed());
    assert_eq!(draining.join().expect("no panic"), DrainReport { finished: 1, dropped: 0 });
    assert_eq!(script.calls.lock().last(), Some(&Call::Flush));
}

#[test]
fn who_holds_on_is_closed_at_the_deadline() {
    // CVE-2024-7409: a client that held its socket while the server went down.
    let script = Script::new(1 << 20);
    let mut house = House::scripted(&script);
    let mut partial = house.client(true);
    assert_eq!(partial.read(0, 1), Ok(vec![0]));
    partial.request(commands::WRITE, 0, 0, 1000);
    partial.send(&[1; 10]);
    thread::sleep(Duration::from_millis(50));
    let started = Instant::now();
    let report = house.server.take().expect("it runs").drain(Duration::from_millis(300));
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(report, DrainReport { finished: 0, dropped: 1 });
    assert!(partial.is_closed());
    assert!(!script.calls.lock().contains(&Call::Write(lode_nbd::Durability::Process)), "half a write was made");
}

#[test]
fn dropping_the_server_closes_all() {
    let mut house = House::memory(1 << 20);
    let mut client = house.client(true);
    drop(house.server.take());
    assert!(client.is_closed());
    eventually("the path is gone", || !house.path().exists());
}

#[test]
fn a_drained_server_holds_no_export() {
    let script = Script::new(8 << 20);
    let mut house = House::scripted(&script);
    let mut clients: Vec<_> = (0..4).map(|_| house.client(true)).collect();
    for client in &mut clients {
        // So that workers are started.
        for _ in 0..10 {
            client.request(commands::FLUSH, 0, 0, 0);
            client.request(commands::READ, 0, 0, 1 << 20);
        }
    }
    for client in &mut clients {
        (0..20).for_each(|_| drop(client.reply()));
    }
    assert_eq!(house.server.take().expect("it runs").drain(Duration::from_secs(10)).dropped, 0);
    assert_eq!(std::sync::Arc::strong_count(&script), 1, "whoever closes the engine now is alone");
}
