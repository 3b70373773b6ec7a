//! Space that was reserved on a disk that is being served, by name. A reservation of the engine ends with its handle: the
//! server keeps that for those who asked, until it is cancelled or the server ends.

use crate::failure::{Code, Failure, Result};
use crate::{size, text};
use lode::{Disk, Reservation, Unit};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// No name is longer.
const NAME_BYTES_MAX: usize = 255;

/// All that one server holds.
#[derive(Default)]
pub struct Reservations(Mutex<BTreeMap<String, Held>>);

struct Held {
    reservation: Reservation,
    block_bytes: u32,
    /// How many blocks it was made for.
    blocks: u64,
}

/// One of them, as it is now.
pub struct Info {
    /// Its name.
    pub name: String,
    /// The size of the blocks that it is for.
    pub block_bytes: u32,
    /// What it was made for.
    pub bytes: u64,
    /// What it is still good for.
    pub left_bytes: u64,
    /// What it takes of the disk now, with what every block is charged beside its bytes.
    pub held_bytes: u64,
}

impl Held {
    fn info(&self, name: &str) -> Info {
        let bytes = |blocks: u64| blocks.saturating_mul(self.block_bytes.into());
        Info {
            name: name.to_owned(),
            block_bytes: self.block_bytes,
            bytes: bytes(self.blocks),
            left_bytes: bytes(self.reservation.blocks()),
            held_bytes: self.reservation.held_bytes(),
        }
    }
}

fn absent(name: &str) -> Failure {
    Failure::new(Code::NotFound, format!("no reservation {} is held", text::safe(name)))
}

impl Reservations {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Held>> {
        // Whoever panicked has added, drawn or removed one whole, or nothing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves so many bytes, rounded up to whole blocks. `Full`; `Exists` if the name is taken.
    pub fn create(&self, disk: &Disk, name: &str, bytes: u64, block_bytes: u32) -> Result<()> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            let expected = format!("1 to {NAME_BYTES_MAX} bytes, none of them a control character");
            return Err(Failure::usage(format!("expected a name of {expected}, found {name:?}")));
        }
        let blocks = bytes.div_ceil(block_bytes.into());
        let mut all = self.lock();
        if let Some(held) = all.get(name) {
            let left = size::show(held.info(name).left_bytes);
            let words = format!("a reservation {} is held already, with {left} left", text::safe(name));
            return Err(Failure::new(Code::Exists, words));
        }
        let reservation = disk.reserve(blocks, block_bytes)?;
        all.insert(name.to_owned(), Held { reservation, block_bytes, blocks });
        Ok(())
    }

    /// All of them, by name.
    pub fn list(&self) -> Vec<Info> {
        self.lock().iter().map(|(name, held)| held.info(name)).collect()
    }

    /// Gives back what is left of one. `NotFound`.
    pub fn cancel(&self, name: &str) -> Result<()> {
        self.lock().remove(name).map(drop).ok_or_else(|| absent(name))
    }

    /// One of them. `NotFound`.
    pub fn get(&self, name: &str) -> Result<Info> {
        self.lock().get(name).map(|held| held.info(name)).ok_or_else(|| absent(name))
    }

    /// Space for at most so many blocks goes over to a unit. Gives back how many: what was cancelled has none left.
    pub fn draw(&self, name: &str, unit: &mut Unit, blocks: u64, block_bytes: u32) -> Result<u64> {
        let mut all = self.lock();
        let Some(held) = all.get_mut(name).filter(|held| held.block_bytes == block_bytes) else { return Ok(0) };
        let blocks = blocks.min(held.reservation.blocks());
        unit.draw_on(&mut held.reservation, blocks)?;
        Ok(blocks)
    }
}
