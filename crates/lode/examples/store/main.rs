//! Accounts in a store on a logical disk in memory: many clients move money at once, each transfer all or nothing.
//! `cargo run --release -p lode --example store`

mod store;

use lode::{Disk, FormatOptions, OpenOptions};
use lode_media::{Geometry, ram::RamMedium};
use std::sync::Arc;
use store::{Error, Store};

const ACCOUNTS: u64 = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let geometry = Geometry { zones: 64, zone_bytes: 1 << 20, append_align: 4096, devices: 1 };
    let medium = Arc::new(RamMedium::new(geometry));
    Disk::format(medium.clone(), &FormatOptions { disk_id: 1 })?;
    let disk = Disk::open(medium.clone(), &OpenOptions::default())?;
    let store = Store::open(&disk, 1024)?;
    let mut first = store.begin()?;
    for account in 0..ACCOUNTS {
        first.put(&account.to_le_bytes(), &1000u64.to_le_bytes())?;
    }
    first.commit(true)?;
    let tried: Vec<u64> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|client| {
                scope.spawn({
                    let store = &store;
                    move || transfers(store, client)
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("no panic").expect("there is room")).collect()
    });
    let mut last = store.begin()?;
    let mut sum = 0;
    for account in 0..ACCOUNTS {
        sum += balance(&mut last, account)?;
    }
    println!("{} transfers, {} tries; the sum is {sum}", 4 * 1000, tried.iter().sum::<u64>());
    assert_eq!(sum, ACCOUNTS * 1000);
    drop(last);
    // One that goes on when the disk is opened again.
    let mut long = store.begin_named("report")?;
    long.put(b"sum", &sum.to_le_bytes())?;
    long.checkpoint(b"summed up")?;
    long.leave();
    drop(store);
    disk.close()?;
    let disk = Disk::open(medium, &OpenOptions::default())?;
    let store = Store::open(&disk, 1024)?;
    let (mut long, said) = store.interrupted("report")?;
    println!("gone on with: {}, {:?}", String::from_utf8_lossy(&said), long.get(b"sum")?.map(|sum| sum.len()));
    long.commit(true)?;
    Ok(())
}

fn balance(transaction: &mut store::Transaction<'_>, account: u64) -> Result<u64, Error> {
    let value = transaction.get(&account.to_le_bytes())?.unwrap_or_default();
    Ok(value.try_into().map_or(0, u64::from_le_bytes))
}

/// A thousand of them. Gives back how often it had to try.
fn transfers(store: &Store, client: u64) -> Result<u64, Error> {
    let mut tries = 0;
    for turn in 0..1000u64 {
        let pick = (turn * 31 + client * 17).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let (from, to) = (pick % ACCOUNTS, (pick / ACCOUNTS + 1 + pick) % ACCOUNTS);
        loop {
            tries += 1;
            match transfer(store, from, to) {
                Err(Error::Busy) => std::thread::yield_now(),
                done => break done?,
            }
        }
    }
    Ok(tries)
}

fn transfer(store: &Store, from: u64, to: u64) -> Result<(), Error> {
    let mut transaction = store.begin()?;
    let (has, gets) = (balance(&mut transaction, from)?, balance(&mut transaction, to)?);
    if from != to && has > 0 {
        transaction.put(&from.to_le_bytes(), &(has - 1).to_le_bytes())?;
        transaction.put(&to.to_le_bytes(), &(gets + 1).to_le_bytes())?;
    }
    transaction.commit(false)
}
