//! Changing ordered lists: simple operations in one hold, and deleted lists drained in bounded steps. What changes is
//! worked out by [`crate::ordered`].

use super::numbers::Lacking;
use super::put::Again;
use super::space::Claim;
use super::volumes::LIST_RECORD;
use super::{Core, Inner, charge};
use crate::error::{Error, ErrorKind, Result};
use crate::format::records::{Form, ListMeta, Record, encode_one_put, put_bytes};
use crate::ordered::{Attributes, Change, Op, Place, Refused, Row, Staged};
use crate::shape::BLOCK_CHARGE;
use crate::state::{Kept, State};
use crate::types::{BlockId, ListId, Location, Lsn, SnapshotId, len_u32, len_u64};
use smallvec::SmallVec;

/// Rows that a simple operation changes, at most; one more stands for the data of a removed block.
pub(crate) const ROWS: u32 = 8;
/// Blocks of a deleted list that are freed in one hold of the lock.
const DRAINED_AT_ONCE: usize = 512;
/// So many times in one step of the keeper.
const DRAIN_STEPS: usize = 32;

impl From<Refused> for Again {
    fn from(refused: Refused) -> Again {
        match refused {
            Refused::Cold(cold) => cold.into(),
            Refused::Meaningless(words) => Again::Never(Error::new(ErrorKind::NotFound, words)),
            Refused::Damaged(words) => Again::Never(Error::new(ErrorKind::Corrupt, words)),
        }
    }
}

/// Everything that staged rows come to: asked for before the first record is written.
#[derive(Default)]
pub(crate) struct Rows {
    kept: SmallVec<[Kept; 4]>,
    /// Blocks that are no more: their pool, their numbers, where they lie.
    freed: SmallVec<[(ListId, u64, Location); 2]>,
    /// Rows that change, and those of them that are new.
    changes: usize,
    new: usize,
}

impl Rows {
    /// Bytes of the records.
    pub fn bytes(&self) -> u64 {
        len_u64(self.changes + self.kept.len() + self.freed.len()) * u64::from(put_bytes(1))
    }

    fn free(&mut self, core: &Core, pool: ListId, block: u64) -> std::result::Result<(), Again> {
        let place = core.state.place(pool, block)?;
        if !place.is_none() {
            if !core.state.versions.is_empty() {
                self.kept.extend(core.kept(pool, std::iter::once(block))?);
            }
            self.freed.push((pool, block, place));
        }
        Ok(())
    }

    /// What they need of the disk's space.
    fn charge(&self) -> u64 {
        len_u64(self.new) * BLOCK_CHARGE + self.kept.iter().map(|kept| charge(kept.place)).sum::<u64>()
    }
}

impl Core {
    /// What snapshots see of the rows that change, and the data of removed blocks.
    pub fn ask_rows(&self, staged: &Staged) -> std::result::Result<Rows, Again> {
        let mut rows = Rows::default();
        let snapshots = !self.state.versions.is_empty();
        let mut pool = (ListId(0), ListId(0));
        for Change { row, old, new } in staged.changes() {
            rows.changes += 1;
            rows.new += usize::from(old.is_none());
            if snapshots {
                rows.kept.extend(self.kept(row.table, std::iter::once(row.at))?);
            }
            if !new.is_none() || row.table == self.state.tables.lists {
                continue;
            }
            if pool.0 != row.table {
                let found = self.state.tables.pools().find(|(_, pool)| pool.table == row.table);
                pool = (row.table, found.map_or(ListId(0), |(_, pool)| pool.blocks));
            }
            rows.free(self, pool.1, row.at)?;
        }
        Ok(rows)
    }

    /// What there is of one block of a pool that is no more.
    pub fn ask_freed(&self, pool: ListId, block: u64) -> std::result::Result<Rows, Again> {
        let mut rows = Rows::default();
        rows.free(self, pool, block)?;
        Ok(rows)
    }

    /// The records of staged rows, one after the other. `room` is asked for before each.
    pub fn write_rows(&mut self, staged: &Staged, rows: &Rows, mut room: impl FnMut(&mut Core, u32)) {
        let one = put_bytes(1);
        let mut put = |core: &mut Core, list: ListId, at: u64, place: Location, value: u32, old: Location| {
            room(core, one);
            let lsn = core.writer.record(|into| encode_one_put(list, at, place, old, value, into));
            core.state.apply_put(list, at, place, value, old, lsn);
        };
        for Kept { layer, block, place, checksum } in &rows.kept {
            put(self, layer.expect("asked for before"), *block, *place, *checksum, Location::NONE);
        }
        for (pool, block, old) in &rows.freed {
            put(self, *pool, *block, Location::NONE, 0, *old);
        }
        for Change { row, old, new } in staged.changes() {
            put(self, row.table, row.at, new.place(), new.value, old.place());
        }
        self.lists_changed += 1;
    }

    /// Numbers that staged rows free.
    pub fn free_numbers(&mut self, disk: &Inner, staged: &Staged) {
        let lists = self.state.tables.lists;
        for Change { row, old, new } in staged.changes() {
            if new.is_none() && !old.is_none() && (row.table != lists || (row.at > 1 && row.at % 2 == 1)) {
                let number = crate::types::low_u32(if row.table == lists { row.at / 2 } else { row.at });
                self.numbers_of(row.table).free(number, &disk.generations);
            }
        }
    }

    /// Blocks of a pool may be written only while they are in a list.
    pub fn check_blocks(
        &self,
        list: ListId,
        staged: &Staged,
        blocks: impl Iterator<Item = u64>,
    ) -> std::result::Result<(), Again> {
        let Some(table) = self.state.tables.table_of(list) else { return Ok(()) };
        for at in blocks {
            let links = staged.get(&self.state, Row { table, at })?;
            if links.is_none() {
                return Err(Refused::Meaningless(format!("block {at} is in no ordered list, or no more")).into());
            }
            staged.alive(&self.state, links.value)?;
        }
        Ok(())
    }
}

impl Inner {
    /// Looks something up in the tables of lists, now or as a snapshot sees them.
    pub(crate) fn look<T>(
        &self,
        at: Option<SnapshotId>,
        mut look: impl FnMut(&State, &Staged) -> std::result::Result<T, Refused>,
    ) -> Result<T> {
        let staged = Staged::seen_by(at);
        loop {
            let found = look(&self.core.lock().state, &staged);
            match found {
                Ok(found) => return Ok(found),
                Err(Refused::Cold(cold)) => self.load(cold.0)?,
                Err(Refused::Meaningless(words)) => return Err(Error::new(ErrorKind::NotFound, words)),
                Err(Refused::Damaged(words)) => return Err(Error::new(ErrorKind::Corrupt, words)),
            }
        }
    }

    /// Whether the records of a simple operation fit in one batch; if not, it is a unit of its own.
    pub fn lists_fit(&self) -> bool {
        4 * ROWS * put_bytes(1) <= self.shape.batch_bytes - self.shape.head
    }

    /// Makes the tables, and the pool of a block size, if they are not there yet.
    pub fn make_pool(&self, shift: u8) -> Result<()> {
        let (least, most) = (crate::types::BLOCK_BYTES_MIN.ilog2(), self.shape.block_bytes_max().ilog2());
        if !(least..=most).contains(&u32::from(shift)) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("blocks of 2^{shift} bytes: expected from 2^{least} to 2^{most}"),
            ));
        }
        let blocks = self.shape.blocks_max().min(Location::NEIGHBOURS_MAX.into());
        for form in [Form::Lists, Form::Blocks, Form::Pool] {
            self.with_room(0, LIST_RECORD, Claim::Urgent, |core| {
                let tables = &core.state.tables;
                let pool = tables.any_pool(shift);
                let found = match form {
                    Form::Lists => tables.lists,
                    Form::Blocks => pool.table,
                    _ => pool.blocks,
                };
                if found != ListId(0) {
                    return Ok(());
                }
                if !core.promises(self.shape.list_charge()) {
                    return Err(self.full(core, self.shape.list_charge()));
                }
                core.write_record(&Record::List(ListMeta {
                    block_shift: shift,
                    bytes: blocks << shift,
                    ..ListMeta::new(ListId(core.state.next_list), form)
                }));
                Ok(())
            })??;
        }
        Ok(())
    }

    /// Does a simple operation. `stage` may run several times.
    fn change_lists<T>(
        &self,
        claim: Claim,
        mut stage: impl FnMut(&mut Core, &mut Stage<'_>) -> std::result::Result<T, Again>,
    ) -> Result<(T, Lsn)> {
        let made = self.until_made(
            0,
            |core| core.with_kept((ROWS + 1) * put_bytes(1)),
            claim,
            |core| {
                let mut on = Stage { disk: self, staged: Staged::default(), taken: None };
                let made = stage(core, &mut on).and_then(|made| {
                    let rows = core.ask_rows(&on.staged)?;
                    match claim == Claim::Data && !core.promises(rows.charge()) {
                        true => Err(Again::Space(rows.charge())),
                        false => Ok((made, rows)),
                    }
                });
                match made {
                    Ok((made, rows)) => {
                        core.write_rows(&on.staged, &rows, |_, _| {});
                        core.free_numbers(self, &on.staged);
                        Ok((made, core.writer.lsn))
                    }
                    Err(again) => {
                        if let Some((table, number)) = on.taken {
                            core.numbers_of(table).give_back(number);
                        }
                        Err(again)
                    }
                }
            },
            || Ok(()),
        )?;
        Ok(made)
    }

    pub fn create_list(&self, place: Place<u32>, attributes: Attributes) -> Result<(u32, Lsn)> {
        self.make_pool(attributes.shift)?;
        self.change_lists(Claim::Data, |core, on| {
            let table = core.state.tables.lists;
            on.new_number(core, table, |list| Op::Create { list, place, attributes })
        })
    }

    /// `place`: in the pool of the list's block size.
    pub fn insert_block(&self, list: u32, place: Place<BlockId>) -> Result<(BlockId, Lsn)> {
        self.change_lists(Claim::Data, |core, on| {
            let shift = on.staged.alive(&core.state, list)?.shift;
            let place = number_in(shift, place)?;
            let table = core.state.tables.pool(shift).unwrap_or_default().table;
            let block = on.new_number(core, table, |block| Op::Insert { list, place, block })?;
            Ok(BlockId::new(shift, block))
        })
    }

    /// Works on a full disk (P5).
    pub fn remove_block(&self, list: u32, block: BlockId) -> Result<Lsn> {
        let ((), lsn) = self.change_lists(Claim::Urgent, |core, on| {
            let shift = on.staged.alive(&core.state, list)?.shift;
            number_in(shift, Place::After(block))?;
            Ok(on.staged.apply(&core.state, &Op::Remove { list, block: block.parts().1 })?)
        })?;
        Ok(lsn)
    }

    /// An operation that makes nothing new. Works on a full disk (P5).
    pub fn change_list(&self, op: &Op) -> Result<Lsn> {
        let ((), lsn) = self.change_lists(Claim::Urgent, |core, on| Ok(on.staged.apply(&core.state, op)?))?;
        Ok(lsn)
    }

    /// A list was deleted: its space is to come back.
    pub fn lists_deleted(&self) -> Result<()> {
        self.keeper.notify_all();
        if !self.options.background {
            while self.drain_step()? {}
        }
        Ok(())
    }

    /// Frees some blocks of a deleted list, or the list if it has none any more. False: there is no deleted list.
    pub(crate) fn drain_list(&self) -> Result<bool> {
        if self.core.lock().state.tables.lists == ListId(0) {
            return Ok(false);
        }
        let one = put_bytes(1);
        // For so many rows; the open batch is sealed early only for that much.
        let room = (4 * len_u32(DRAINED_AT_ONCE) * one).min(self.shape.batch_bytes - self.shape.head);
        let mut drained = false;
        for _ in 0..DRAIN_STEPS {
            let more = self.until_made(
                0,
                |_| room,
                Claim::Keeper,
                |core| {
                    // A row and its data, and what snapshots see of both; and four rows of the list and its neighbours.
                    let each = if core.state.versions.is_empty() { 2 } else { 4 };
                    let fits = (crate::types::index(room / one) / each).saturating_sub(4).max(1);
                    let mut staged = Staged::default();
                    let mut left = fits.min(DRAINED_AT_ONCE);
                    // Short lists go many at a time.
                    while left > 0 {
                        let Some(gone) = staged.drain(&core.state, left)? else { break };
                        left = left.saturating_sub(gone + 4);
                    }
                    let rows = core.ask_rows(&staged)?;
                    core.write_rows(&staged, &rows, |_, _| {});
                    core.free_numbers(self, &staged);
                    Ok(rows.changes > 0)
                },
                || Ok(()),
            )?;
            if !more {
                break;
            }
            drained = true;
            self.let_append()?; // Else the records of a long list fill the memory.
        }
        Ok(drained)
    }
}

/// A number of a block in the pool of these.
pub(crate) fn number_in(shift: u8, place: Place<BlockId>) -> Result<Place<u32>> {
    match place {
        Place::After(block) if block.parts().0 != shift => Err(Error::new(
            ErrorKind::NotFound,
            format!("block {} is in no list with blocks of {} bytes", block.0, 1u64 << shift),
        )),
        place => Ok(place.map(|block| block.parts().1)),
    }
}

/// A simple operation while it is worked out.
pub(crate) struct Stage<'a> {
    disk: &'a Inner,
    staged: Staged,
    /// To be given back if nothing comes of it.
    taken: Option<(ListId, u32)>,
}

impl Stage<'_> {
    fn new_number(
        &mut self,
        core: &mut Core,
        table: ListId,
        op: impl Fn(u32) -> Op,
    ) -> std::result::Result<u32, Again> {
        let number = core.take_number(self.disk, table)?;
        self.taken = Some((table, number));
        self.staged.apply(&core.state, &op(number))?;
        Ok(number)
    }
}

impl Core {
    /// A number that nobody else gets.
    pub fn take_number(&mut self, disk: &Inner, table: ListId) -> std::result::Result<u32, Again> {
        self.numbers_of(table).take(&disk.generations).map_err(|lacking| match lacking {
            Lacking::Look => Again::Numbers(table),
            Lacking::Numbers => {
                Again::Never(Error::new(ErrorKind::Full, "all numbers for blocks, or lists, are in use"))
            }
        })
    }
}
