//! A build for the measurement only: an operation changes one block after the other, as simple writes, and a crash may
//! leave some of them. What the unit round them costs is the difference.

use super::{Op, Step, block_bytes, u64_of, usize_of};
use crate::error::Result;
use crate::format::BLOCK_LEN;
use lode::{Lsn, Volume};

impl Op<'_> {
    /// What [`Op::finish`] does in other builds as one unit.
    pub(super) fn finish_now(&self) -> Result<Lsn> {
        // Stretches first, as there.
        for step in &self.steps {
            match step {
                Step::Write(which, offset, bytes) => drop(self.files.volume(*which)?.write_at(*offset, bytes)?),
                Step::Zeros(which, stretch) => zeros(&*self.files.volume(*which)?, stretch.start, stretch.end)?,
                Step::Discard(which, stretch) => {
                    self.files.volume(*which)?.discard(stretch.start, stretch.end - stretch.start)?;
                }
            }
        }
        for (which, block, bytes) in &self.staged {
            let size = block_bytes(*which);
            let volume = self.files.volume(*which)?;
            let offset = block * u64::from(size);
            match bytes {
                None => volume.discard(offset, u64::from(size))?,
                Some(bytes) if bytes.len() == usize_of(size.into()) => volume.write_at(offset, bytes)?,
                Some(bytes) => {
                    let mut whole = [0; BLOCK_LEN];
                    whole[..bytes.len()].copy_from_slice(bytes);
                    volume.write_at(offset, &whole[..usize_of(size.into())])?
                }
            };
        }
        self.fill();
        Ok(self.files.disk.position())
    }
}

fn zeros(volume: &Volume, start: u64, end: u64) -> Result<()> {
    let zeros = [0; BLOCK_LEN];
    let mut at = start;
    while at < end {
        let len = (end - at).min(u64_of(BLOCK_LEN));
        volume.write_at(at, &zeros[..usize_of(len)])?;
        at += len;
    }
    Ok(())
}
