//! The part of a run that works on volumes outside of units.

use super::{Run, Step, Stop};
use crate::content::differing;
use crate::model::Model;
use crate::rng::{narrow, wide};
use crate::script::{UnitNumber, VolumeNumber, volume_name};
use lode::{Compression, ErrorKind, Volume, VolumeOptions};

/// One of the ways in which blocks are compressed, at once or by the cleaner.
pub(super) fn compression(compressed: bool, salt: u64) -> Compression {
    let ways = [Compression::Lz4, Compression::ColdLz4, Compression::ColdZstd];
    if compressed { ways[narrow(salt / 64 % 3)] } else { Compression::None }
}

impl Run<'_> {
    pub(super) fn create(&mut self, number: VolumeNumber, bytes: u64, block_bytes: u32, compressed: bool) -> Step {
        let name = volume_name(number);
        let compression = compression(compressed, bytes);
        let note = self.begin_call();
        let options = VolumeOptions { bytes, block_bytes, compression };
        let result = self.open_disk().create_volume(&name, &options);
        let too_large = block_bytes > 64 && u64::from(block_bytes) * 16 > u64::from(self.script.geometry.zone_bytes);
        if self.model.volume(&name).is_some() {
            return match result {
                Err(error) if error.kind() == ErrorKind::InvalidArgument && too_large => Ok(()),
                Err(error) if error.kind() == ErrorKind::Exists => Ok(()),
                Err(error) => Err(self.refused("making a volume again", error)),
                Ok(_) => Err(Stop::Finding(format!("{name} was made twice"))),
            };
        }
        match result {
            Err(error) if error.kind() == ErrorKind::InvalidArgument && too_large => return Ok(()),
            result => {
                if let Some(volume) = self.tolerable(result, "making a volume", |model| {
                    model.create(&name, bytes, block_bytes, compressed);
                })? {
                    self.volumes.insert(number, volume);
                }
            }
        }
        self.end_call(note);
        Ok(())
    }

    /// Applies a change to the model if it was made, or if the medium failed and it may have been.
    pub(super) fn tolerable<T>(
        &mut self,
        result: lode::Result<T>,
        what: &str,
        change: impl FnOnce(&mut Model),
    ) -> Step<Option<T>> {
        match self.changed(what, result) {
            Ok(None) => Ok(None),
            Ok(value) => {
                change(&mut self.model);
                Ok(value)
            }
            Err(Stop::Refused(error)) => {
                change(&mut self.model);
                Err(Stop::Refused(error))
            }
            Err(stop) => Err(stop),
        }
    }

    pub(super) fn delete(&mut self, number: VolumeNumber) -> Step {
        let name = volume_name(number);
        let note = self.begin_call();
        let result = self.open_disk().delete_volume(&name);
        self.volumes.remove(&number);
        if self.model.volume(&name).is_none() {
            return match result {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                Err(error) => Err(self.refused("deleting a volume again", error)),
                Ok(_) => Err(Stop::Finding(format!("{name} was deleted twice"))),
            };
        }
        let full = matches!(&result, Err(error) if error.kind() == ErrorKind::Full);
        if full {
            return Err(Stop::Finding("a delete was refused because the disk is full".to_owned()));
        }
        self.tolerable(result, "deleting a volume", |model| model.delete(&name))?;
        self.end_call(note);
        Ok(())
    }

    pub(super) fn resize(&mut self, number: VolumeNumber, bytes: u64) -> Step {
        let name = volume_name(number);
        let Some(volume) = self.model.volume(&name) else { return Ok(()) };
        let cuts_inside = bytes < volume.bytes && !bytes.is_multiple_of(u64::from(volume.block_bytes));
        if cuts_inside && self.model.shadowed(&name) {
            return Ok(()); // What a unit holds of a block that is cut inside is not modelled.
        }
        let note = self.begin_call();
        let result = self.open_disk().resize_volume(&name, bytes);
        self.tolerable(result, "resizing a volume", |model| model.resize(&name, bytes))?;
        self.end_call(note);
        Ok(())
    }

    /// Writes; false: refused because the disk is full.
    pub(super) fn write(&mut self, number: VolumeNumber, offset: u64, data: &[u8]) -> Step<bool> {
        let Some(volume) = self.volume(number)? else { return Ok(true) };
        let name = volume_name(number);
        let note = self.begin_call();
        let result = volume.write_at(offset, data);
        if self.beyond(number, None, offset, wide(data.len())) {
            self.must_be_out_of_range(result)?;
            return Ok(true);
        }
        let done = self.tolerable(result, "a write", |model| model.write(&name, offset, data))?;
        self.end_call(note);
        Ok(done.is_some())
    }

    pub(super) fn discard(&mut self, number: VolumeNumber, offset: u64, bytes: u64) -> Step {
        let Some(volume) = self.volume(number)? else { return Ok(()) };
        let name = volume_name(number);
        let note = self.begin_call();
        let result = volume.discard(offset, bytes);
        if self.beyond(number, None, offset, bytes) {
            return self.must_be_out_of_range(result);
        }
        // Where only a part of a block becomes zeros, that block is written again.
        let block = u64::from(volume.block_bytes());
        let whole = offset.is_multiple_of(block) && (offset + bytes).is_multiple_of(block);
        let full = matches!(&result, Err(error) if error.kind() == ErrorKind::Full);
        if full && whole {
            let words = format!("a discard of {bytes} bytes from {offset} on was refused because the disk is full");
            return Err(Stop::Finding(format!("{words}; {:?}", self.open_disk().info())));
        }
        let done = self.tolerable(result, "a discard", |model| model.discard(&name, offset, bytes))?;
        self.end_call(note);
        if done.is_some() { self.must_be_holes(&volume, offset, bytes) } else { Ok(()) }
    }

    /// After a discard, its whole blocks are not allocated.
    pub(super) fn must_be_holes(&self, volume: &Volume, offset: u64, bytes: u64) -> Step {
        let block = u64::from(volume.block_bytes());
        let first = offset.next_multiple_of(block);
        let end = (offset + bytes) / block * block;
        if first >= end {
            return Ok(());
        }
        let extents = volume.extents(first, end - first).map_err(|error| self.refused("extents", error))?;
        let covered: u64 = extents.iter().map(|extent| extent.bytes).sum();
        if covered != end - first || extents.iter().any(|extent| extent.allocated) {
            return Err(Stop::Finding(format!("after a discard from {first} to {end} the extents are {extents:?}")));
        }
        Ok(())
    }

    pub(super) fn beyond(&self, number: VolumeNumber, unit: Option<UnitNumber>, offset: u64, bytes: u64) -> bool {
        let name = volume_name(number);
        let size = match unit {
            Some(unit) => self.model.unit_bytes(unit, &name),
            None => self.model.volume(&name).map_or(0, |volume| volume.bytes),
        };
        offset + bytes > size
    }

    pub(super) fn must_be_out_of_range<T>(&self, result: lode::Result<T>) -> Step {
        match result {
            Err(error) if error.kind() == ErrorKind::OutOfRange => Ok(()),
            Err(error) => Err(self.refused("an access beyond the end", error)),
            Ok(_) => Err(Stop::Finding("an access beyond the end was accepted".to_owned())),
        }
    }

    pub(super) fn read(&mut self, number: VolumeNumber, offset: u64, bytes: u64) -> Step {
        let Some(volume) = self.volume(number)? else { return Ok(()) };
        let mut found = vec![0x22; narrow(bytes)];
        let result = volume.read_at(offset, &mut found);
        if self.beyond(number, None, offset, bytes) {
            return self.must_be_out_of_range(result);
        }
        result.map_err(|error| self.refused("a read", error))?;
        let name = volume_name(number);
        let mut expected = vec![0; found.len()];
        self.model.now().volumes[&name].read(offset, &mut expected);
        self.counts.compared += bytes;
        differing(&name, offset, &found, &expected).map_or(Ok(()), |words| Err(Stop::Finding(words)))
    }
}
