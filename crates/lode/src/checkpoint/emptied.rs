//! Zones of tables that are mostly garbage, emptied: what lives in them is copied to the end of its stream as it is.
//! Nothing need be in memory for it, and what it takes is what it moves.
//!
//! The directory names the new places with the next root; until then the old ones count.

use super::GATHER_BYTES;
use crate::disk::Inner;
use crate::error::{ErrorKind, Result};
use crate::format::object::ObjectRef;
use crate::state::{SectionKey, State};
use crate::types::{GRANULE, index, len_u32};
use crate::zones::Holds;

/// A copy of an object that is to be moved.
struct ObjectCopy {
    key: SectionKey,
    object: ObjectRef,
}

/// The copies of all objects of sections that lie in these zones, of one stream.
fn copies_in(state: &State, zones: &[u32], stream: usize) -> Vec<ObjectCopy> {
    let mut copies = Vec::new();
    for key in state.directory.slots.iter().flatten() {
        let objects = state.meta(*key).into_iter().flat_map(|meta| meta.objects());
        let inside = objects.filter(|object| zones.contains(&object.copies()[stream].0));
        copies.extend(inside.map(|object| ObjectCopy { key: *key, object: *object }));
    }
    copies
}

impl State {
    /// The copy of an object lies elsewhere now. What is not there any more was garbage already.
    fn moved(&mut self, copy: &ObjectCopy, stream: usize, to: (u32, u32)) {
        let slots_per_page = self.shape.slots_per_page;
        let Some(meta) = self.meta_mut(copy.key) else { return };
        let old = copy.object.copies()[stream];
        let objects = std::iter::once(&mut meta.image).chain(&mut meta.deltas);
        let Some(object) = objects.filter(|object| !object.is_none()).find(|object| object.copies()[stream] == old)
        else {
            return;
        };
        match stream {
            0 => (object.zone_a, object.offset_a) = to,
            _ => (object.zone_b, object.offset_b) = to,
        }
        if let Some(slot) = meta.slot {
            self.directory.dirty.insert(slot / slots_per_page);
        }
    }
}

impl Inner {
    /// Moves everything that lives in these zones. What cannot be read stays where it is, and is left alone from then on.
    pub(crate) fn empty_tables(&self, zones: &[u32]) -> Result<()> {
        for (stream, holds) in [Holds::TableA, Holds::TableB].into_iter().enumerate() {
            let copies = copies_in(&self.core.lock().state, zones, stream);
            let mut rest = &copies[..];
            while let Some(first) = rest.first() {
                let room = self.room_for_copy(holds, first.object.bytes)?;
                let mut bytes = 0;
                let fit = rest.iter().take_while(|copy| {
                    bytes += copy.object.bytes.next_multiple_of(GRANULE);
                    bytes <= room
                });
                let (some, more) = rest.split_at(fit.count().max(1));
                self.move_copies(some, stream, holds)?;
                rest = more;
            }
        }
        for zone in zones {
            self.core.lock().state.touch_pages_in(*zone);
        }
        Ok(())
    }

    /// Bytes of objects that the next batch of a stream can take, at least so many.
    fn room_for_copy(&self, holds: Holds, least: u32) -> Result<u32> {
        if !self.fits_in(holds, least.next_multiple_of(GRANULE)) {
            self.open_side(holds)?;
        }
        let mut core = self.core.lock();
        let left = core.side(holds).left(&self.shape).saturating_sub(self.shape.head);
        Ok(left.min(len_u32(GATHER_BYTES)))
    }

    fn move_copies(&self, copies: &[ObjectCopy], stream: usize, holds: Holds) -> Result<()> {
        let mut read = Vec::new();
        for copy in copies {
            let what = format!("tables of {:?}", copy.key);
            match crate::objects::read_bytes(&*self.medium, &copy.object, &what) {
                Ok(bytes) => read.push((copy, bytes)),
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    crate::mark("tables: a damaged section left where it is");
                    let mut core = self.core.lock();
                    core.unreadable.insert(copy.key);
                    core.keeper_error = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        let data: u32 = read.iter().map(|(_, bytes)| len_u32(bytes.len()).next_multiple_of(GRANULE)).sum();
        if read.is_empty() {
            return Ok(());
        }
        let batch = self.core.lock().side(holds).begin(&self.shape, self.disk, data, Vec::new(), 0);
        let body = batch.body(read.iter().map(|(_, bytes)| &bytes[..]));
        let written = self.append_side(batch.at(), &[&batch.head(), &body])?;
        let mut core = self.core.lock();
        core.counters.checkpoint_bytes += written;
        let (zone, mut offset) = (batch.at().zone.0, batch.data_offset());
        for (copy, bytes) in read {
            core.state.moved(copy, stream, (zone, offset));
            offset += len_u32(bytes.len()).next_multiple_of(GRANULE);
            debug_assert!(index(copy.object.bytes) == bytes.len());
        }
        Ok(())
    }
}
