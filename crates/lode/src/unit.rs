//! Atomic recovery units: any group of operations as one indivisible step.
//!
//! ```text
//!             write, discard, resize            commit
//!   begin ───> open ────────────────> open ───────────────> committed (at one point of the merged stream)
//!                │                      │ memory full
//!                │ abort, drop          └──> spilled: data in the log, visible to nobody
//!                └──────────────> as if it had never been
//! ```
//! A unit keeps its shadow itself; what it spills lies in the log and is listed in [`Core::spilled`], so that the
//! cleaner can move it. Units do not lock: two that write one block are ordered by their commits (AR-01, AR-04).
//! *Concurrent atomic recovery units*, sections 3 and 4; *Mime*, visibility groups.

mod barrier;
mod blocks;
mod commit;
mod conflicts;
mod copy;
pub(crate) mod ending;
mod image;
mod large;
mod life;
mod lists;
mod plan;
mod ranges;
mod read;
mod resume;
mod seek;
mod shadow;

use crate::disk::options::{Survive, UnitOptions};
use crate::disk::put::NewBlock;
use crate::disk::space::Claim;
use crate::disk::{Core, Inner, Reserved, Spilled, charge};
use crate::error::{Error, ErrorKind, Result};
use crate::format::crc;
use crate::packed::{pack, without_zeros};
use crate::planted::{self, Bug};
use crate::shape::BLOCK_CHARGE;
use crate::sync::{Mutex, MutexGuard};
use crate::types::{Kind, ListId, Location, Lsn, SnapshotId, UnitId, index, index64, len_u32, len_u64};
use crate::volume::Volume;
pub(crate) use barrier::{Barrier, COOKIE_BYTES_MAX};
pub use copy::UnitCopy;
use shadow::{Arena, Chunks, Shadow, Shadows};
use smallvec::SmallVec;
use std::sync::Arc;

/// Zeros are written so many bytes at a time.
const ZEROS: u64 = 256 << 10;
/// The disk keeps so many chunks of ended units for new ones.
const SPARE_CHUNKS: usize = 32;

/// What a unit was given for blocks that it is about to write.
struct Promise {
    space: Reserved,
    /// The part of it that was reserved before.
    prepaid: Reserved,
    /// Memory that other units have used.
    chunks: Chunks,
}

/// An open unit. Any number may be open at once, each used from any thread. Dropping it aborts it; one with a label is
/// kept, until [`crate::Disk::resume`] takes it up again.
pub struct Unit {
    disk: Arc<Inner>,
    id: UnitId,
    lists: Shadows,
    ordered: Option<Box<lists::UnitLists>>,
    options: UnitOptions,
    /// The snapshot that it sees, or by which it finds conflicts.
    frozen: Option<SnapshotId>,
    /// What it has read, if that is asked for.
    read: Mutex<conflicts::ReadSet>,
    /// Numbers that are freed while it is open are not given out again before it has ended (R4).
    generation: u64,
    /// What `Shadow::Data` names.
    arena: Arena,
    reserved: Reserved,
    /// Taken over from a reservation, and not used yet.
    prepaid: Reserved,
    /// The part of `reserved` that was `prepaid`.
    drawn: Reserved,
    user_bytes: u64,
    has_spilled: bool,
    /// An operation failed half-way: the unit can only be aborted.
    broken: bool,
    /// Bases of partial blocks of a simple operation that is done by a unit (R5).
    bases: Vec<(ListId, u64, Location)>,
    /// Where the blocks that the commit cuts were committed.
    cut_bases: Vec<(ListId, u64, Location)>,
    /// What it had spilled when it was committed: to be forgotten without holding the lock.
    ended: Option<Spilled>,
    /// It has a label, or a barrier.
    barrier: Option<Box<Barrier>>,
    /// What the commit that is being made does beside its own.
    besides: Option<Box<barrier::Besides>>,
    /// What the commit does at its end.
    ending: Option<Box<ending::Ending>>,
    /// It is a simple operation that is too long for one batch.
    simple: bool,
    committed: bool,
    /// Its user wants it to end.
    aborted: bool,
    /// Its user wants it to be kept.
    kept: bool,
}

impl Unit {
    /// A simple operation as a unit of its own.
    pub(crate) fn simple(disk: Arc<Inner>) -> Unit {
        let mut unit = Unit::new(disk);
        unit.simple = true;
        unit
    }

    pub(crate) fn new(disk: Arc<Inner>) -> Unit {
        let id = disk.new_unit();
        Unit::with_id(disk, id)
    }

    fn with_id(disk: Arc<Inner>, id: UnitId) -> Unit {
        let generation = disk.generations.enter();
        Unit {
            ordered: None,
            ending: None,
            options: UnitOptions::default(),
            frozen: None,
            read: Mutex::default(),
            generation,
            barrier: None,
            besides: None,
            simple: false,
            committed: false,
            aborted: false,
            kept: false,
            ended: None,
            disk,
            id,
            lists: Shadows::default(),
            arena: Arena::default(),
            reserved: Reserved::default(),
            prepaid: Reserved::default(),
            drawn: Reserved::default(),
            user_bytes: 0,
            has_spilled: false,
            broken: false,
            bases: Vec::new(),
            cut_bases: Vec::new(),
        }
    }

    /// The unit's name: never used again, on this disk.
    pub fn id(&self) -> UnitId {
        self.id
    }

    /// Writes into the unit's shadow. `Full`: there is no space for it (P5); the unit stays as it was.
    pub fn write_at(&mut self, volume: &Volume, offset: u64, data: &[u8]) -> Result<()> {
        self.alive()?;
        volume.belongs_to(&self.disk)?;
        let len = len_u64(data.len());
        let block_bytes = u64::from(volume.block_bytes());
        let core = self.disk.writable()?;
        let size = match self.lists.get(volume.list()).and_then(|list| list.bytes) {
            Some(bytes) => bytes,
            None => self.bytes_in(&core, volume)?,
        };
        crate::volume::check_range(volume.label(), size, offset, len)?;
        if data.is_empty() {
            return Ok(());
        }
        let end = (offset + len).div_ceil(block_bytes);
        let promise = self.promise(core, volume.list(), block_bytes, offset / block_bytes, end)?;
        self.accept(promise);
        self.write_blocks(volume, offset, data, Claim::Data)
    }

    /// As `write_at` with zeros, of any length, which takes no memory for them. All of it is promised first.
    pub fn write_zeros(&mut self, volume: &Volume, offset: u64, bytes: u64) -> Result<()> {
        self.alive()?;
        self.check_range(volume, offset, bytes)?;
        let block_bytes = u64::from(volume.block_bytes());
        if bytes > 0 {
            self.reserve(volume.list(), block_bytes, offset / block_bytes, (offset + bytes).div_ceil(block_bytes))?;
        }
        let zeros = vec![0; index64(ZEROS.min(bytes))];
        let mut at = offset;
        while at < offset + bytes {
            // Only the first and the last piece end inside of a block.
            let piece = (ZEROS - at % ZEROS).min(offset + bytes - at);
            let done = self.write_blocks(volume, at, &zeros[..index64(piece)], Claim::Data);
            self.broken |= done.is_err() && at > offset;
            done?;
            at += piece;
        }
        Ok(())
    }

    pub(crate) fn alive(&self) -> Result<()> {
        if self.disk.options.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the disk is open for reading only"));
        }
        if self.committed {
            return Err(Error::new(ErrorKind::InvalidArgument, "the unit is committed already"));
        }
        if self.broken {
            return Err(Error::new(
                ErrorKind::Failed,
                "an operation of this unit failed half-way: it can only be dropped, and taken up again at its last \
                 barrier if it has a label",
            ));
        }
        Ok(())
    }

    /// Promises space for blocks that the unit does not hold yet, uncompressed (R27).
    fn reserve(&mut self, list: ListId, block_bytes: u64, first: u64, end: u64) -> Result<()> {
        let promise = self.promise(self.disk.writable()?, list, block_bytes, first, end)?;
        self.accept(promise);
        Ok(())
    }

    pub(crate) fn is_of(&self, disk: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.disk, disk)
    }

    /// Space that was reserved elsewhere, and is the unit's from now on.
    pub(crate) fn prepay(&mut self, space: Reserved) {
        self.prepaid += space;
    }

    /// What of that it has not used.
    pub(crate) fn take_prepaid(&mut self) -> Reserved {
        std::mem::take(&mut self.prepaid)
    }

    fn accept(&mut self, promise: Promise) {
        self.reserved += promise.space;
        self.prepaid -= promise.prepaid;
        self.drawn += promise.prepaid;
        self.arena.stock(promise.chunks);
    }

    fn promise(
        &self,
        core: MutexGuard<'_, Core>,
        list: ListId,
        block_bytes: u64,
        first: u64,
        end: u64,
    ) -> Result<Promise> {
        let held = self.lists.get(list).map_or(0, |shadow| shadow.blocks.range(first, end).count());
        let blocks = end - first - len_u64(held);
        let wanted = blocks.saturating_mul(block_bytes + BLOCK_CHARGE);
        let promisable = core.state.shape.promisable();
        let mut core = self.disk.admit(self.disk.pace(core), Claim::Data)?;
        let mut chunks = Chunks::new();
        let space = Reserved { bytes: wanted, blocks };
        if self.prepaid.covers(space) && !planted::is(Bug::ReservedAgain) {
            if !core.promises(core.reserves(space)) {
                crate::mark("unit: reserved space on a full disk");
            }
            core.chunks_for(&self.arena, wanted, &mut chunks);
            return Ok(Promise { space, prepaid: space, chunks });
        }
        if core.promised().saturating_add(core.reserves(space)) > promisable {
            // A simple operation gives back what it overwrites; only what it needs beyond that must be free.
            let mut freed = 0;
            if self.simple {
                drop(core);
                self.disk.load_range(list, first, end)?;
                core = self.disk.writable()?;
                for block in first..end {
                    // What a snapshot sees stays.
                    if let (Ok(Some((place, _))), Ok(None)) =
                        (core.state.lookup(list, block), core.state.keep(list, block))
                    {
                        freed += charge(place);
                    }
                }
            }
            if core.promised().saturating_add(core.reserves(space)) > promisable + freed.min(promisable / 32) {
                return Err(self.disk.full(&core, wanted));
            }
        }
        core.reserved += space;
        core.chunks_for(&self.arena, wanted, &mut chunks);
        Ok(Promise { space, prepaid: Reserved::default(), chunks })
    }

    /// `claim`: what a spill on the way may wait for. What of the first and the last block stays is read before anything
    /// is changed: damage there leaves the unit as it was.
    fn write_blocks(&mut self, volume: &Volume, offset: u64, data: &[u8], claim: Claim) -> Result<()> {
        let block_bytes = volume.block_bytes();
        let mut scratch = Vec::new();
        let size = u64::from(block_bytes);
        let mut bases: SmallVec<[(u64, Vec<u8>); 2]> = SmallVec::new();
        for edge in [offset, offset + len_u64(data.len())].into_iter().filter(|edge| !edge.is_multiple_of(size)) {
            if bases.last().is_none_or(|(block, _)| *block != edge / size) {
                let mut base = vec![0; index(block_bytes)];
                self.read_blocks(volume, edge / size, &mut base)?;
                bases.push((edge / size, base));
            }
        }
        let done = self.write_over(volume, offset, data, &mut bases, &mut scratch, claim);
        self.broken |= done.is_err();
        done
    }

    fn write_over(
        &mut self,
        volume: &Volume,
        offset: u64,
        data: &[u8],
        bases: &mut [(u64, Vec<u8>)],
        scratch: &mut Vec<u8>,
        claim: Claim,
    ) -> Result<()> {
        let (list, block_bytes) = (volume.list(), volume.block_bytes());
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let block = at / u64::from(block_bytes);
            let within = index64(at % u64::from(block_bytes));
            let len = rest.len().min(index(block_bytes) - within);
            let (head, tail) = rest.split_at(len);
            let whole: &[u8] = match bases.iter_mut().find(|(base, _)| *base == block) {
                Some((_, base)) => {
                    base[within..within + len].copy_from_slice(head);
                    base
                }
                None => head,
            };
            match pack(whole, volume.compression(), scratch) {
                Some(len) => self.shadow(list, block, &scratch[..len], Kind::Packed),
                None => self.shadow(list, block, without_zeros(whole), Kind::Raw),
            }
            at += len_u64(len);
            rest = tail;
            if self.arena.bytes() > self.disk.options.unit_memory_bytes {
                self.spill(claim)?;
            }
        }
        self.user_bytes += len_u64(data.len());
        Ok(())
    }

    fn shadow(&mut self, list: ListId, block: u64, stored: &[u8], kind: Kind) {
        let checksum = crc(stored);
        let blocks = &mut self.lists.of(list).blocks;
        let piece = match blocks.get(block) {
            Some(Shadow::Data { piece, .. }) if piece.len() == len_u32(stored.len()) => {
                self.arena.replace(*piece, stored);
                *piece
            }
            _ => self.arena.push(stored),
        };
        if let Some(Shadow::Spilled) = blocks.insert(block, Shadow::Data { piece, kind, checksum }) {
            self.forget_spilled(list, block);
        }
    }

    fn forget_spilled(&self, list: ListId, block: u64) {
        self.disk.core.lock().forget_spilled_of(self.id, list, block);
    }

    /// Moves all data from memory into the log. A commit claims it as urgent: it never waits for the throttle (R29),
    /// and its space was promised (P5).
    fn spill(&mut self, claim: Claim) -> Result<()> {
        let most = self.disk.shape.direct_bytes;
        let blocks_max = index(self.disk.shape.direct_blocks);
        self.has_spilled = true;
        for (list, shadow) in self.lists.iter_mut() {
            let mut waiting: Vec<(u64, &mut Shadow)> =
                shadow.blocks.iter_mut().filter(|(_, shadow)| matches!(shadow, Shadow::Data { .. })).collect();
            let mut start = 0;
            while start < waiting.len() {
                let mut chunk = Vec::new();
                let mut bytes = 0;
                for (block, shadow) in &waiting[start..] {
                    let Shadow::Data { piece, kind, checksum } = **shadow else { continue };
                    let stored = self.arena.get(piece);
                    let footprint = len_u32(stored.len()).next_multiple_of(crate::types::GRANULE);
                    if chunk.len() == blocks_max || (!chunk.is_empty() && bytes + footprint > most) {
                        break;
                    }
                    bytes += footprint;
                    chunk.push(NewBlock { block: *block, stored, kind, checksum, base: None });
                }
                let count = chunk.len();
                self.disk.spill(self.id, list, &chunk, claim)?;
                for (_, shadow) in &mut waiting[start..start + count] {
                    **shadow = Shadow::Spilled;
                }
                start += count;
            }
        }
        let emptied = self.arena.clear().collect();
        self.arena.stock(emptied);
        Ok(())
    }

    /// Turns whole blocks into holes and zeroes the edges. Reads as zeros.
    pub fn discard(&mut self, volume: &Volume, offset: u64, bytes: u64) -> Result<()> {
        self.alive()?;
        self.check_range(volume, offset, bytes)?;
        let block_bytes = u64::from(volume.block_bytes());
        let size = self.bytes(volume)?;
        let end = offset + bytes;
        // The last block of the volume counts as whole if all of it that there is is discarded.
        let last = if end == size { end.div_ceil(block_bytes) } else { end / block_bytes };
        let first = offset.div_ceil(block_bytes);
        if first >= last {
            return if bytes == 0 { Ok(()) } else { self.write_at(volume, offset, &vec![0; index64(bytes)]) };
        }
        // Both edges are promised before either is written: `Full` leaves the unit as it was.
        let (head, tail) = (first * block_bytes - offset, end.saturating_sub(last * block_bytes));
        for (bytes, block) in [(head, first.wrapping_sub(1)), (tail, last)] {
            if bytes > 0 {
                self.reserve(volume.list(), block_bytes, block, block + 1)?;
            }
        }
        for (bytes, at) in [(head, offset), (tail, last * block_bytes)] {
            if bytes > 0 {
                self.write_blocks(volume, at, &vec![0; index64(bytes)], Claim::Data)?;
            }
        }
        self.take_out(volume.list(), block_bytes, first, last);
        self.lists.of(volume.list()).holes.insert(first, last);
        Ok(())
    }

    /// What the unit wrote there counts no more, and the space that was promised for it is given back: to the reservation
    /// that it was drawn on, as far as it was, else to everybody (R27).
    fn take_out(&mut self, list: ListId, block_bytes: u64, first: u64, end: u64) {
        let blocks = self.drop_blocks(list, first, end);
        if blocks == 0 {
            return;
        }
        let space = Reserved { bytes: blocks * (block_bytes + BLOCK_CHARGE), blocks };
        let drawn = space.least(self.drawn);
        self.reserved -= space;
        self.drawn -= drawn;
        self.prepaid += drawn;
        let mut free = space;
        free -= drawn;
        self.disk.core.lock().reserved -= free;
    }

    /// Forgets what the unit holds of these blocks. Gives back how many it were.
    fn drop_blocks(&mut self, list: ListId, first: u64, end: u64) -> u64 {
        let Some(shadow) = self.lists.get_mut(list) else { return 0 };
        if shadow.kept.is_some() {
            shadow.fresh.insert(first, end);
        }
        let dropped: Vec<u64> = shadow.blocks.range(first, end).map(|(block, _)| block).collect();
        let (count, mut spilled) = (len_u64(dropped.len()), Vec::new());
        for block in dropped {
            if let Some(Shadow::Spilled) = shadow.blocks.remove(block) {
                spilled.push(block);
            }
        }
        for block in spilled {
            self.forget_spilled(list, block);
        }
        count
    }

    /// Gives the volume another size. What lies behind the new end is gone; new space reads as zeros.
    pub fn resize(&mut self, volume: &Volume, bytes: u64) -> Result<()> {
        self.alive()?;
        volume.belongs_to(&self.disk)?;
        crate::disk::volumes::check_size(&self.disk.shape, bytes, volume.block_bytes())?;
        let size = self.bytes(volume)?;
        let block_bytes = u64::from(volume.block_bytes());
        let (last, within) = (bytes / block_bytes, bytes % block_bytes);
        if within > 0 {
            // What is cut off the last block must read as zeros if the volume grows again.
            let holds = self.holds(volume.list(), last)?;
            let shadow = self.lists.of(volume.list());
            if !holds {
                // The commit writes that block in place of itself: nothing is promised for it, so that a volume can be
                // made shorter on a full disk (P5).
                let cut = shadow.cuts.entry(last).or_insert(usize::MAX);
                *cut = (*cut).min(index64(within));
            } else if bytes < size {
                let end = size.min(bytes.next_multiple_of(block_bytes));
                self.write_at(volume, bytes, &vec![0; index64(end - bytes)])?;
            }
        }
        let blocks = bytes.div_ceil(block_bytes);
        // Also when it seems to grow: others may have made the volume shorter since the unit wrote behind this end.
        self.take_out(volume.list(), block_bytes, blocks, u64::MAX);
        let shadow = self.lists.of(volume.list());
        shadow.bytes = Some(bytes);
        // Also when the volume grows: others may have made it longer still by the time of the commit.
        shadow.floor = Some(shadow.floor.map_or(blocks, |floor| floor.min(blocks)));
        Ok(())
    }

    /// Remembers what a simple operation's partial block was derived from.
    pub(crate) fn set_base(&mut self, list: ListId, block: u64, base: Location) {
        self.bases.push((list, block, base));
    }

    /// Everything the unit did becomes part of the committed state at one point of the merged stream. Never waits for
    /// the device. `Conflict`: an operation has no meaning any more (the volume was deleted or cut short); nothing is
    /// applied, and the unit is gone, or kept as it was if it has a label.
    pub fn commit(mut self) -> Result<Lsn> {
        self.try_commit()
    }

    /// As `commit`, then a flush up to it.
    pub fn commit_and_flush(mut self, survive: Survive) -> Result<Lsn> {
        let lsn = self.try_commit()?;
        self.disk.flush_to(lsn, survive)?;
        Ok(lsn)
    }
}

impl Core {
    /// Emptied memory for so many bytes more.
    fn chunks_for(&mut self, arena: &Arena, bytes: u64, into: &mut Chunks) {
        for _ in 0..arena.lacks(bytes) {
            let Some(chunk) = self.chunks.pop() else { break };
            into.push(chunk);
        }
    }

    fn forget_spilled_of(&mut self, unit: UnitId, list: ListId, block: u64) {
        if let Some((place, _)) = self.spilled.get_mut(&unit).and_then(|spilled| spilled.remove(&(list, block))) {
            self.state.zones.get_mut(place.zone()).shadow -= place.footprint();
        }
    }
}
