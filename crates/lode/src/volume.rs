//! A volume: an indexed list seen as bytes.
//!
//! Every call is one operation: atomic whatever its length, at one point of the merged stream (Mime, multiblock
//! writes).

use crate::disk::Inner;
use crate::disk::options::{UnitConflicts, UnitOptions, UnitView};
use crate::disk::put::NewBlock;
use crate::disk::read::{View, read_bytes};
use crate::error::{Error, ErrorKind, Result};
use crate::format::crc;
use crate::format::records::{Compression, ListMeta};
use crate::packed::{pack, without_zeros};
use crate::planted::{self, Bug};
use crate::state::ColdLeaf;
use crate::types::{Kind, ListId, Location, Lsn, SnapshotId, index, index64, len_u64};
use crate::unit::Unit;
use std::ops::Range;
use std::sync::Arc;

mod changes;
mod seek;

/// So often an exchange begins again because others have changed what it read.
const SWAP_TRIES: u32 = 64;

/// A stretch of a volume that is stored, or a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it starts, in bytes.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// Whether it is stored. A hole reads as zeros.
    pub allocated: bool,
}

/// A volume of an open disk. Cheap to clone; every clone names the same volume.
#[derive(Clone)]
pub struct Volume {
    disk: Arc<Inner>,
    list: ListId,
    name: Arc<str>,
    block_bytes: u32,
    compression: Compression,
    /// As this snapshot sees it.
    at: Option<SnapshotId>,
}

/// The error for a range beyond the end.
pub(crate) fn check_range(name: &str, size: u64, offset: u64, bytes: u64) -> Result<()> {
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Error::new(
            ErrorKind::OutOfRange,
            format!("{bytes} bytes at offset {offset} lie beyond the end of {name}, which has {size} bytes"),
        )),
    }
}

impl Volume {
    pub(crate) fn new(
        disk: Arc<Inner>,
        list: ListId,
        name: &str,
        block_bytes: u32,
        compression: Compression,
    ) -> Volume {
        Volume { disk, list, name: Arc::from(name), block_bytes, compression, at: None }
    }

    /// A volume as a snapshot sees it.
    pub(crate) fn at(disk: Arc<Inner>, list: ListId, meta: &ListMeta, snapshot: SnapshotId) -> Volume {
        let at = Some(snapshot);
        Volume { at, ..Volume::new(disk, list, &meta.name, meta.block_bytes(), meta.compression) }
    }

    /// The same as a snapshot sees it.
    pub(crate) fn seen_by(self, snapshot: SnapshotId) -> Volume {
        Volume { at: Some(snapshot), ..self }
    }

    pub(crate) fn disk(&self) -> &Arc<Inner> {
        &self.disk
    }

    /// The snapshot that it is seen by.
    pub(crate) fn snapshot(&self) -> Option<SnapshotId> {
        self.at
    }

    pub(crate) fn view(&self) -> View {
        View { list: self.list, at: self.at }
    }

    /// Whether it is seen by a snapshot, and so never changes.
    pub fn is_snapshot(&self) -> bool {
        self.at.is_some()
    }

    /// Its name when the handle was made.
    pub fn name(&self) -> String {
        self.name.to_string()
    }

    pub(crate) fn label(&self) -> &str {
        &self.name
    }

    /// The list that holds it.
    pub fn list(&self) -> ListId {
        self.list
    }

    /// Its size in bytes, now. Zero once it is deleted.
    pub fn bytes(&self) -> u64 {
        self.size().unwrap_or(0)
    }

    pub(crate) fn size(&self) -> Result<u64> {
        let core = self.disk.core.lock();
        let Some(snapshot) = self.at else { return Ok(core.check_list(self.list, 0)?.bytes) };
        if self.list.0 > snapshot.0 && core.state.is_file_list(self.list) {
            return Ok(core.check_list(self.list, 0)?.bytes); // It had nothing then.
        }
        let meta = core.state.meta_at(self.list, snapshot);
        let gone = || Error::new(ErrorKind::NotFound, format!("the snapshot of {} was deleted", self.name));
        Ok(meta.ok_or_else(gone)?.bytes)
    }

    /// Its block size: reads and writes of whole blocks are the cheapest.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// How its blocks are compressed.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    pub(crate) fn belongs_to(&self, disk: &Arc<Inner>) -> Result<()> {
        self.changeable()?;
        if Arc::ptr_eq(&self.disk, disk) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidArgument, format!("volume {} is not of the unit's disk", self.name)))
    }

    pub(crate) fn changeable(&self) -> Result<()> {
        match self.at {
            None => Ok(()),
            Some(_) => {
                Err(Error::new(ErrorKind::ReadOnly, format!("{} is of a snapshot: it never changes", self.name)))
            }
        }
    }

    /// Fills `into` from `offset`, as the volume is at one instant. Any offset and length within it. Holes read as
    /// zeros.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        check_range(&self.name, self.size()?, offset, len_u64(into.len()))?;
        read_bytes(self.block_bytes, offset, into, |first, into| {
            self.disk.read_blocks(self.view(), self.block_bytes, first, into)
        })
    }

    /// Writes `data` at `offset` as one operation: whole or not at all after any crash, whatever its length. Parts of
    /// blocks are read, changed and written, in order with every other write of that block (R5). Gives back a position
    /// to flush up to.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<Lsn> {
        self.changeable()?;
        check_range(&self.name, self.size()?, offset, len_u64(data.len()))?;
        if data.is_empty() {
            return Ok(self.disk.writable()?.writer.lsn);
        }
        let block_bytes = u64::from(self.block_bytes);
        let blocks = (offset + len_u64(data.len())).div_ceil(block_bytes) - offset / block_bytes;
        if blocks <= u64::from(self.disk.shape.direct_blocks)
            && blocks * block_bytes <= u64::from(self.disk.shape.direct_bytes)
        {
            self.write_direct(offset, data)
        } else {
            self.as_unit(offset, len_u64(data.len()), |unit| unit.write_at(self, offset, data))
        }
    }

    /// A few blocks: packed and summed up outside the lock, then put into the open batch.
    fn write_direct(&self, offset: u64, data: &[u8]) -> Result<Lsn> {
        let size = index(self.block_bytes);
        let aligned = offset.is_multiple_of(u64::from(self.block_bytes)) && data.len().is_multiple_of(size);
        if aligned && !self.compression.is_hot() {
            let first = offset / u64::from(self.block_bytes);
            if data.len() == size {
                let mut one = [NewBlock::raw(first, data)];
                return self.disk.put_blocks(self.list, &mut one, data.len(), || Ok(()));
            }
            let mut blocks: Vec<NewBlock<'_>> =
                data.chunks(size).zip(first..).map(|(data, block)| NewBlock::raw(block, data)).collect();
            return self.disk.put_blocks(self.list, &mut blocks, data.len(), || Ok(()));
        }
        loop {
            let prepared = self.prepare(offset, data)?;
            let mut blocks: Vec<NewBlock<'_>> = prepared.iter().map(Prepared::as_new).collect();
            let stale = std::cell::Cell::new(false);
            let put = self.disk.put_blocks(self.list, &mut blocks, data.len(), || {
                stale.set(true);
                Err(Error::new(ErrorKind::Conflict, "a block changed while a part of it was written"))
            });
            match put {
                Err(_) if stale.get() => {}
                other => return other,
            }
        }
    }

    /// Whole blocks out of any bytes: what is written in part is read first, and its place remembered.
    fn prepare(&self, offset: u64, data: &[u8]) -> Result<Vec<Prepared>> {
        let mut prepared = Vec::new();
        let mut scratch = Vec::new();
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let block = at / u64::from(self.block_bytes);
            let within = index64(at % u64::from(self.block_bytes));
            let len = rest.len().min(index(self.block_bytes) - within);
            let (head, tail) = rest.split_at(len);
            let mut base = None;
            let mut whole = head.to_vec();
            if len < index(self.block_bytes) {
                base = Some(self.place_of(block)?);
                whole = vec![0; index(self.block_bytes)];
                self.disk.read_blocks(self.view(), self.block_bytes, block, &mut whole)?;
                whole[within..within + len].copy_from_slice(head);
            }
            let (stored, kind) = match pack(&whole, self.compression, &mut scratch) {
                Some(len) => (scratch[..len].to_vec(), Kind::Packed),
                None => (without_zeros(&whole).to_vec(), Kind::Raw),
            };
            let checksum = crc(&stored);
            prepared.push(Prepared { block, stored, kind, checksum, base });
            at += len_u64(len);
            rest = tail;
        }
        Ok(prepared)
    }

    /// Where a block is committed; none for a hole.
    pub(crate) fn place_of(&self, block: u64) -> Result<Location> {
        loop {
            let found = self.disk.core.lock().state.lookup(self.list, block);
            match found {
                Ok(found) => return Ok(found.map_or(Location::NONE, |(place, _)| place)),
                Err(cold) => self.disk.load(cold.0)?,
            }
        }
    }

    /// An operation that is too long for one batch is a unit of its own. `change` runs again if a block that it writes
    /// in part changes meanwhile.
    fn as_unit(&self, offset: u64, bytes: u64, mut change: impl FnMut(&mut Unit) -> Result<()>) -> Result<Lsn> {
        let block_bytes = u64::from(self.block_bytes);
        loop {
            let mut unit = Unit::simple(Arc::clone(&self.disk));
            let mut parts = Vec::new();
            for edge in [offset, offset + bytes] {
                if !edge.is_multiple_of(block_bytes) {
                    parts.push(edge / block_bytes);
                }
            }
            parts.dedup();
            for block in &parts {
                let base = self.place_of(*block)?;
                unit.set_base(self.list, *block, base);
            }
            change(&mut unit)?;
            match unit.try_commit() {
                Err(error)
                    if error.kind() == ErrorKind::Conflict
                        && !parts.is_empty()
                        && self.size().is_ok_and(|size| size >= offset + bytes) => {}
                other => return other,
            }
        }
    }

    /// Turns the range into zeros, giving back the space of whole blocks. One operation.
    pub fn discard(&self, offset: u64, bytes: u64) -> Result<Lsn> {
        self.changeable()?;
        check_range(&self.name, self.size()?, offset, bytes)?;
        self.as_unit(offset, bytes, |unit| unit.discard(self, offset, bytes))
    }

    /// Exchanges what two stretches hold, of one volume or of two, as one operation (*The Logical Disk*, section 5.4). The
    /// data is written again (R19). `InvalidArgument`: the stretches overlap. `OutOfRange`, `Full`; `Conflict`: others
    /// changed them again and again meanwhile.
    pub fn swap(&self, offset: u64, other: &Volume, other_offset: u64, bytes: u64) -> Result<Lsn> {
        if self.list == other.list && Arc::ptr_eq(&self.disk, &other.disk) && offset.abs_diff(other_offset) < bytes {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{bytes} bytes at {offset} and at {other_offset} of {} overlap", self.name),
            ));
        }
        for (volume, at) in [(self, offset), (other, other_offset)] {
            volume.changeable()?;
            check_range(&volume.name, volume.size()?, at, bytes)?;
        }
        let options = UnitOptions { view: UnitView::Moving, conflicts: UnitConflicts::Read };
        let mut tries = 0;
        loop {
            let mut unit = Unit::new(Arc::clone(&self.disk));
            unit.set_options(&options)?;
            let mut pieces = [vec![0; 1 << 20], vec![0; 1 << 20]];
            let mut done = 0;
            while done < bytes {
                let len = index64((bytes - done).min(1 << 20));
                let [here, there] = &mut pieces;
                unit.read_at(self, offset + done, &mut here[..len])?;
                unit.read_at(other, other_offset + done, &mut there[..len])?;
                unit.write_at(self, offset + done, &there[..len])?;
                if planted::is(Bug::SwapInTwo) {
                    unit.try_commit()?;
                    unit = Unit::new(Arc::clone(&self.disk));
                }
                unit.write_at(other, other_offset + done, &here[..len])?;
                done += len_u64(len);
            }
            crate::mark("volume: stretches exchanged");
            match unit.try_commit() {
                Err(error) if error.kind() == ErrorKind::Conflict && tries < SWAP_TRIES => tries += 1,
                other => return other,
            }
        }
    }

    /// Makes the volume what a snapshot of it sees, as one unit: its size, and all that changed since. Gives back a
    /// position to flush up to. The data is written again (R19). `InvalidArgument`, `Full`, `Conflict`.
    pub fn roll_back(&self, snapshot: &Volume) -> Result<Lsn> {
        self.changeable()?;
        let bytes = snapshot.size()?;
        let mut unit = Unit::new(Arc::clone(&self.disk));
        let changes = self.changes_since(snapshot)?;
        unit.resize(self, bytes)?;
        for range in changes {
            let range = range.start..range.end.min(bytes);
            if !range.is_empty() {
                self.take_back(snapshot, range, &mut unit)?;
            }
        }
        unit.try_commit()
    }

    /// Writes a range as a snapshot saw it, holes as holes.
    pub(crate) fn take_back(&self, snapshot: &Volume, range: Range<u64>, unit: &mut Unit) -> Result<()> {
        let mut piece = Vec::new();
        for extent in snapshot.extents(range.start, range.end - range.start)? {
            if !extent.allocated {
                unit.discard(self, extent.offset, extent.bytes)?;
                continue;
            }
            let mut at = extent.offset;
            while at < extent.offset + extent.bytes {
                piece.resize(index64((extent.offset + extent.bytes - at).min(1 << 20)), 0);
                snapshot.read_at(at, &mut piece)?;
                unit.write_at(self, at, &piece)?;
                at += len_u64(piece.len());
            }
        }
        Ok(())
    }

    /// What of the range is stored, in order and without gaps. Cost: the tables of the range.
    pub fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<Extent>> {
        check_range(&self.name, self.size()?, offset, bytes)?;
        let mut extents: Vec<Extent> = Vec::new();
        if bytes == 0 {
            return Ok(extents);
        }
        let block_bytes = u64::from(self.block_bytes);
        let end = offset + bytes;
        let mut at = offset;
        while at < end {
            let block = at / block_bytes;
            // Bounded holds: at most a thousand blocks each.
            let stop = (block + 1024).min(end.div_ceil(block_bytes));
            self.disk.load_range(self.list, block, stop)?;
            let mut cold = None;
            let core = self.disk.core.lock();
            for block in block..stop {
                let allocated = match self.view().lookup(&core.state, block) {
                    Ok(found) => found.is_some(),
                    Err(leaf) => {
                        cold = Some(leaf);
                        break;
                    }
                };
                let next = ((block + 1) * block_bytes).min(end);
                match extents.last_mut() {
                    Some(last) if last.allocated == allocated => last.bytes += next - at,
                    _ => extents.push(Extent { offset: at, bytes: next - at, allocated }),
                }
                at = next;
            }
            drop(core);
            if let Some(ColdLeaf(key)) = cold {
                self.disk.load(key)?;
            }
        }
        Ok(extents)
    }
}

struct Prepared {
    block: u64,
    stored: Vec<u8>,
    kind: Kind,
    checksum: u32,
    base: Option<Location>,
}

impl Prepared {
    fn as_new(&self) -> NewBlock<'_> {
        NewBlock { block: self.block, stored: &self.stored, kind: self.kind, checksum: self.checksum, base: self.base }
    }
}
