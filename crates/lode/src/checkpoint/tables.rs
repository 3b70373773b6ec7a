//! Where checkpoints are written: the two streams of tables, and the zones for all side streams.
//!
//! Writing never opens a zone: what finds no room says so, and room is made when nothing is on its way. For when no
//! zone is left, a root has to be written, and that must not pass over anything that is taken and not yet there (I3).

use super::TABLES_NEED;
use crate::disk::options::Survive;
use crate::disk::space::{Claim, Round};
use crate::disk::{Core, Inner};
use crate::error::{Error, Result};
use crate::format::object::ObjectRef;
use crate::format::records::Record;
use crate::log::side::Side;
use crate::types::{GRANULE, len_u32, len_u64};
use crate::zones::Holds;
use lode_media::Position;

/// So many rounds of cleaning in the middle of a checkpoint, until there are enough zones.
const ROUNDS: usize = 8;

impl Core {
    /// The side stream whose zones hold this.
    pub fn side(&mut self, holds: Holds) -> &mut Side {
        match holds {
            Holds::TableA => &mut self.table_a,
            Holds::TableB => &mut self.table_b,
            _ => &mut self.moved,
        }
    }
}

impl Inner {
    /// Makes sure that both table streams have room for `data` bytes, going on in other zones if not. Nothing that is
    /// to be written may be taken yet: when zones are lacking, a root is written, which must not pass over it.
    pub(super) fn table_room(&self, data: u32) -> Result<()> {
        for holds in [Holds::TableA, Holds::TableB] {
            if self.fits_in(holds, data) {
                continue;
            }
            let spare = self.core.lock().spare_zones();
            if spare == 0 {
                self.write_directory(true)?;
            }
            self.open_side(holds)?;
            if !self.fits_in(holds, data) {
                return Err(Error::new(
                    crate::ErrorKind::Unsupported,
                    format!("tables of {data} bytes do not fit in a zone of {} bytes", self.shape.zone_bytes),
                ));
            }
        }
        Ok(())
    }

    pub(super) fn fits_in(&self, holds: Holds, data: u32) -> bool {
        self.core.lock().side(holds).fits(&self.shape, data, 0)
    }

    /// Goes on with a side stream in another zone. The record of that enters the stream before anything refers to it.
    pub(crate) fn open_side(&self, holds: Holds) -> Result<()> {
        let zone = self.zone_for_side(holds)?;
        self.erase_zone(zone).inspect_err(|error| self.core.lock().latch(error))?;
        self.with_room(0, 64, Claim::Keeper, |core| {
            let segment = core.writer.next_segment();
            core.write_record(&Record::ZoneOpened { zone, stream: holds.stream(), segment: segment.0 });
            let side = core.side(holds);
            let before = side.zone;
            side.open(zone, segment);
            if let Some(before) = before {
                core.state.zones.get_mut(before).open = false;
            }
            core.state.zones.get_mut(zone).open = true;
        })
    }

    /// A zone out of the reserve, for the cleaner and the tables.
    fn zone_for_side(&self, holds: Holds) -> Result<u32> {
        let mut core = self.core.lock();
        core.alive()?;
        if let Some(zone) = core.take_spare_zone() {
            return Ok(zone);
        }
        drop(core);
        if self.reclaim_discarded().unwrap_or_else(|error| self.note_trouble(error)) {
            // There are more now.
        } else if holds == Holds::Moved {
            self.free_dead(true)?;
        } else {
            crate::mark("space: zone for tables freed on demand");
            self.free_dead_within()?;
        }
        let mut core = self.core.lock();
        core.take_spare_zone().ok_or_else(|| self.full(&core, 0))
    }

    /// As `free_dead`, in the middle of a checkpoint: only what is written already can be made to count.
    fn free_dead_within(&self) -> Result<()> {
        if self.free_dead_by_flush()? {
            return Ok(());
        }
        if self.verify_dead()? {
            crate::mark("space: dead zones looked through in the middle of a checkpoint");
            if self.free_dead_by_flush()? {
                return Ok(());
            }
        }
        if !self.core.lock().state.directory.dirty.is_empty() {
            return Ok(());
        }
        crate::mark("space: root written in the middle of a checkpoint");
        self.sync_and_root(false)?;
        self.free_dead_by_flush().map(drop)
    }

    /// In the middle of a checkpoint, with nothing on its way: makes zones out of what is garbage by now, of tables that pin
    /// zones, of data. False: there is no more.
    pub(super) fn gain_zones(&self, lacking: usize) -> Result<bool> {
        crate::mark("space: zones gained in the middle of a checkpoint");
        let before = self.core.lock().available();
        self.write_directory(true)?;
        self.sync_and_root(false)?;
        self.free_dead_by_flush()?;
        if !self.core.lock().state.directory.dirty.is_empty() {
            // What was freed may be what the other pages lacked.
            self.write_directory(true)?;
            self.sync_and_root(false)?;
            self.free_dead_by_flush()?;
        }
        let enough = || self.core.lock().available() >= before + lacking;
        if !enough() {
            self.clean_tables(true)?;
            self.free_dead_by_flush()?;
        }
        for _ in 0..ROUNDS {
            // A round takes zones before it gains any.
            let some = self.core.lock().available() >= TABLES_NEED;
            if enough() || !some || !self.clean_round_held(Round::WithoutRoot)? {
                break;
            }
            // That they are dead must be durable, then that they are free.
            self.flush(Survive::Power)?;
            self.free_dead_by_flush()?;
        }
        Ok(self.core.lock().available() > before)
    }

    /// Writes objects to both table streams. Gives back where they lie, in order; or how much room they lack.
    pub(super) fn write_objects(&self, objects: &[(&[u8], u32)]) -> Result<std::result::Result<Vec<ObjectRef>, u32>> {
        let mut offsets = Vec::new();
        let mut data = 0;
        for (bytes, _) in objects {
            offsets.push(data);
            data += len_u32(bytes.len()).next_multiple_of(GRANULE);
        }
        if !self.fits_in(Holds::TableA, data) || !self.fits_in(Holds::TableB, data) {
            return Ok(Err(data));
        }
        let [a, b] = {
            let mut core = self.core.lock();
            let core = &mut *core;
            let sides = [&mut core.table_a, &mut core.table_b];
            sides.map(|side| side.begin(&self.shape, self.disk, data, Vec::new(), 0))
        };
        // Both copies have the same body: it holds no records.
        let body = a.body(objects.iter().map(|(bytes, _)| *bytes));
        for batch in [&a, &b] {
            let written = self.append_side(batch.at(), &[&batch.head(), &body])?;
            self.core.lock().counters.checkpoint_bytes += written;
        }
        let refs = objects.iter().zip(offsets).map(|((bytes, checksum), offset)| ObjectRef {
            zone_a: a.at().zone.0,
            offset_a: a.data_offset() + offset,
            zone_b: b.at().zone.0,
            offset_b: b.data_offset() + offset,
            bytes: len_u32(bytes.len()),
            checksum: *checksum,
        });
        Ok(Ok(refs.collect()))
    }

    /// Appends a batch of a side stream. Gives back its bytes.
    pub(crate) fn append_side(&self, at: Position, pieces: &[&[u8]]) -> Result<u64> {
        self.core.lock().alive()?;
        self.medium.append(at, pieces).map_err(|error| {
            let error = Error::media(format!("appending to zone {} at offset {}", at.zone.0, at.offset), error);
            self.core.lock().latch(&error);
            error
        })?;
        Ok(pieces.iter().map(|piece| len_u64(piece.len())).sum())
    }
}
