//! Taking snapshots, making layers, and letting deleted snapshots go. See `state/versions.rs` for how they lie.

use super::options::{SnapshotInfo, SnapshotOptions};
use super::space::Claim;
use super::volumes::{LIST_RECORD, check_name};
use super::{Core, Inner};
use crate::error::{Error, ErrorKind, Result};
use crate::format::records::{Form, Freed, ListMeta, ListState, Origin, Record};
use crate::shape::BLOCK_CHARGE;
use crate::state::Kept;
use crate::types::{ListId, Lsn, SnapshotId, len_u32};
use std::collections::BTreeMap;

/// What the record of a snapshot that came in a stream has more.
pub(crate) const ORIGIN_BYTES: u32 = 16;

/// A snapshot is of at most so many volumes, if not of all.
const MEMBERS_MAX: usize = 64;
/// What ordered lists are in, at most: their table, and two lists for each block size.
pub(super) const TABLES_MAX: usize = 1 + 2 * 11;

/// Room for the record of a list or snapshot.
fn room_of(meta: &ListMeta) -> u32 {
    LIST_RECORD + len_u32(meta.members.len()) * 4 + ORIGIN_BYTES
}

impl Core {
    /// The lists that are named so; and those that hold the ordered lists.
    pub fn members(&self, volumes: &[String], lists: bool) -> Result<Vec<ListId>> {
        let none = |what: String| Error::new(ErrorKind::NotFound, format!("there {what}"));
        let named = |volume: &String| {
            let found = self.state.names.get(volume).copied();
            found.ok_or_else(|| none(format!("is no volume named {volume}")))
        };
        let mut members = volumes.iter().map(named).collect::<Result<Vec<ListId>>>()?;
        if lists {
            let tables = &self.state.tables;
            if tables.lists == ListId(0) {
                return Err(none("are no ordered lists".to_owned()));
            }
            members.push(tables.lists);
            members.extend(tables.pools().flat_map(|(_, pool)| [pool.table, pool.blocks]));
        }
        Ok(members)
    }

    pub fn write_snapshot(
        &mut self,
        name: &str,
        made: u64,
        members: Vec<ListId>,
        origin: Option<Origin>,
        schedule: ListId,
    ) -> SnapshotId {
        let snapshot = self.state.next_list;
        self.write_record(&Record::List(ListMeta {
            state: ListState::Snapshot,
            name: name.to_owned(),
            cut: schedule.0.into(),
            made,
            members,
            origin,
            ..ListMeta::new(ListId(snapshot), Form::Indexed)
        }));
        SnapshotId(snapshot)
    }
}

impl Inner {
    /// One record: takes the same time whatever is on the disk, and holds up nobody.
    pub fn take_snapshot(&self, name: &str, options: &SnapshotOptions) -> Result<Lsn> {
        self.take_snapshot_by(name, options, ListId(0))
    }

    /// As `take_snapshot`, by a schedule.
    pub(super) fn take_snapshot_by(&self, name: &str, options: &SnapshotOptions, schedule: ListId) -> Result<Lsn> {
        check_name("a snapshot", name)?;
        let room = LIST_RECORD + len_u32(options.volumes.len() + if options.lists { TABLES_MAX } else { 0 }) * 4;
        if options.volumes.len() > MEMBERS_MAX || room > self.shape.batch_bytes - self.shape.head {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "a snapshot of {} volumes: expected at most {MEMBERS_MAX}, fewer on a tiny disk, or none for all",
                    options.volumes.len()
                ),
            ));
        }
        self.with_room(0, room, Claim::Urgent, |core| {
            if core.state.versions.names.contains_key(name) {
                return Err(Error::new(ErrorKind::Exists, format!("there is a snapshot named {name} already")));
            }
            // Holes may be seen from now on where units write.
            let holes = if core.state.versions.is_empty() { core.reserved.blocks * BLOCK_CHARGE } else { 0 };
            if !core.promises(holes + self.shape.list_charge()) {
                return Err(self.full(core, holes + self.shape.list_charge()));
            }
            let members = core.members(&options.volumes, options.lists)?;
            core.write_snapshot(name, options.made, members, None, schedule);
            Ok(core.writer.lsn)
        })?
    }

    /// A snapshot without a name, of everything, until its unit ends.
    pub fn freeze(&self) -> Result<SnapshotId> {
        self.with_room(0, LIST_RECORD, Claim::Urgent, |core| {
            let holes = if core.state.versions.is_empty() { core.reserved.blocks * BLOCK_CHARGE } else { 0 };
            if !core.promises(holes + self.shape.list_charge()) {
                return Err(self.full(core, holes + self.shape.list_charge()));
            }
            Ok(core.write_snapshot("", 0, Vec::new(), None, ListId(0)))
        })?
    }

    /// One record; what only it holds comes back in bounded steps.
    pub fn delete_snapshot(&self, name: &str) -> Result<Lsn> {
        let leaving = {
            let core = self.core.lock();
            let meta = &core.state.lists[&core.state.snapshot_named(name)?].meta;
            // One that open units see stays without a name, until they end.
            let viewed = core.is_viewed(SnapshotId(meta.list.0));
            let (state, name) =
                if viewed { (meta.state, String::new()) } else { (ListState::Leaving, meta.name.clone()) };
            ListMeta { state, name, ..meta.clone() }
        };
        let deleted = self.with_room(0, room_of(&leaving), Claim::Urgent, |core| {
            let there = core.state.lists.get(&leaving.list).is_some_and(|list| list.meta.state == ListState::Snapshot);
            if !there {
                return Err(Error::new(ErrorKind::NotFound, format!("snapshot {name} was deleted meanwhile")));
            }
            core.write_record(&Record::List(leaving));
            Ok(core.writer.lsn)
        })?;
        self.keeper.notify_all();
        if !self.options.background {
            while self.drain_step()? {}
        }
        deleted
    }

    pub fn list_snapshots(&self) -> Vec<SnapshotInfo> {
        let core = self.core.lock();
        let snapshots = core.state.versions.names.values().filter_map(|id| core.state.lists.get(&ListId(id.0)));
        let mut snapshots: Vec<SnapshotInfo> = snapshots
            .map(|list| SnapshotInfo {
                name: list.meta.name.clone(),
                id: SnapshotId(list.meta.list.0),
                made: list.meta.made,
                lists: core.state.versions.is_of(SnapshotId(list.meta.list.0), core.state.tables.lists)
                    && core.state.tables.lists != ListId(0),
                volumes: core
                    .state
                    .volumes_at(SnapshotId(list.meta.list.0))
                    .map(|(_, meta)| meta.name.clone())
                    .collect(),
            })
            .collect();
        snapshots.sort_by_key(|snapshot| snapshot.id);
        snapshots
    }

    /// Bytes that come back when a snapshot is deleted: what its layers have and the next older snapshot does not see.
    /// Cost: reads its layers.
    pub fn space_of(&self, name: &str) -> Result<u64> {
        self.fold_all();
        let (snapshot, layers) = {
            let core = self.core.lock();
            let id = SnapshotId(core.state.snapshot_named(name)?.0);
            (id, core.state.versions.layers_of(id))
        };
        let mut bytes = 0;
        for (list, layer) in layers {
            let mut from = 0;
            while let Some(number) = self.section_from(layer, from) {
                from = number + 1;
                for (block, place, _) in self.section_blocks(layer, number)? {
                    if !self.seen_by_older(list, snapshot, block)? {
                        bytes += u64::from(place.footprint());
                    }
                }
            }
        }
        Ok(bytes)
    }

    /// Whether what a snapshot's layer has of a block is what the next older snapshot sees, too.
    fn seen_by_older(&self, list: ListId, snapshot: SnapshotId, block: u64) -> Result<bool> {
        loop {
            let found = {
                let core = self.core.lock();
                let Some(older) = core.state.versions.newest(list, snapshot) else { return Ok(false) };
                let Some(layer) = core.state.versions.layer(list, older) else { return Ok(true) };
                core.state.has_own(layer, block)
            };
            match found {
                Ok(own) => return Ok(!own),
                Err(cold) => self.load(cold.0)?,
            }
        }
    }

    /// Makes the layer that a change of a list needs (S1). It changes nothing that anybody sees. `Full` only for new
    /// data (P5).
    pub(crate) fn make_layer(&self, list: ListId, claim: Claim) -> Result<()> {
        // The keeper must not wait for itself.
        let room = if claim == Claim::Keeper { Claim::Keeper } else { Claim::Urgent };
        self.with_room(0, LIST_RECORD, room, |core| {
            let Some((snapshot, None)) = core.state.keeper_of(list) else { return Ok(()) };
            if claim == Claim::Data && !core.promises(self.shape.list_charge()) {
                return Err(self.full(core, self.shape.list_charge()));
            }
            let meta = core.state.lists[&list].meta.clone();
            let layer = ListId(core.state.next_list);
            crate::mark("snapshot: layer made");
            core.write_record(&Record::List(ListMeta {
                list: layer,
                state: ListState::Layer,
                parent: list,
                snapshot,
                cut: meta.blocks(),
                ..meta
            }));
            Ok(())
        })?
    }

    /// A step towards forgetting deleted snapshots, and deleted lists that none sees any more. False: there is none.
    pub(crate) fn leave_step(&self) -> Result<bool> {
        let (record, merge) = {
            let mut core = self.core.lock();
            if let Some(list) = core.ended_lists.pop() {
                drop(core);
                let ended = self.with_room(0, LIST_RECORD, Claim::Keeper, |core| core.end_own(list));
                ended.inspect_err(|_| self.core.lock().ended_lists.push(list))?;
                return Ok(true);
            }
            if let Some(view) = core.ended_views.pop() {
                let list = core.state.lists.get(&ListId(view.0)).map(|list| list.meta.clone());
                drop(core);
                if let Some(meta) = list {
                    let leaving = Record::List(ListMeta { state: ListState::Leaving, ..meta });
                    let ended = self.with_room(0, LIST_RECORD, Claim::Keeper, |core| core.write_record(&leaving));
                    ended.inspect_err(|_| self.core.lock().ended_views.push(view))?;
                }
                return Ok(true);
            }
            let state = &core.state;
            let unseen =
                state.versions.hidden.iter().find(|list| state.versions.layers(**list, SnapshotId(0)).next().is_none());
            if let Some(list) = unseen {
                let meta = state.lists[list].meta.clone();
                (Some(Record::List(ListMeta { state: ListState::Draining, ..meta })), None)
            } else if let Some(snapshot) = state.versions.leaving.first().copied() {
                // The oldest first, so that nothing lies between a layer and the one that it is merged into (S4).
                match state.versions.layer_of(snapshot) {
                    None => (Some(Record::ListGone { list: ListId(snapshot.0) }), None),
                    Some(layer) => {
                        let meta = state.lists[&layer].meta.clone();
                        let older = state.versions.newest(meta.parent, snapshot);
                        match older.map(|older| (older, state.versions.layer(meta.parent, older))) {
                            None => (Some(Record::List(ListMeta { state: ListState::Draining, ..meta })), None),
                            Some((older, None)) => {
                                crate::mark("snapshot: layer handed to an older snapshot");
                                (Some(Record::List(ListMeta { snapshot: older, ..meta })), None)
                            }
                            Some((_, Some(into))) => (None, Some((layer, into))),
                        }
                    }
                }
            } else {
                return Ok(false);
            }
        };
        if let Some((layer, into)) = merge {
            return self.merge_step(layer, into).map(|()| true);
        }
        if let Some(record) = record {
            let room = if let Record::List(meta) = &record { room_of(meta) } else { LIST_RECORD };
            self.with_room(0, room, Claim::Keeper, |core| core.write_record(&record))?;
        }
        Ok(true)
    }

    /// Merges a section of a layer into an older one: what that has already is freed, the rest goes over.
    fn merge_step(&self, layer: ListId, into: ListId) -> Result<()> {
        self.fold_all();
        let shift = self.shape.section_blocks_shift();
        let mut from = 0;
        let number = loop {
            let Some(number) = self.section_from(layer, from) else { break None };
            if self.core.lock().state.map_section(layer, number).is_some_and(|section| !section.is_empty()) {
                break Some(number);
            }
            from = number + 1;
        };
        let Some(number) = number else {
            // It is empty now: where it ended goes over too, then it goes as a deleted list goes.
            return self.with_room(0, LIST_RECORD, Claim::Keeper, |core| {
                let meta = |list| core.state.lists.get(&list).map(|list| list.meta.clone());
                let (Some(layer), Some(into)) = (meta(layer), meta(into)) else { return };
                let next = if into.cut > layer.cut {
                    ListMeta { cut: layer.cut, ..into }
                } else {
                    ListMeta { state: ListState::Draining, ..layer }
                };
                core.write_record(&Record::List(next));
            });
        };
        crate::mark("snapshot: layers merged");
        let blocks = u64::from(number) << shift..(u64::from(number) + 1) << shift;
        for list in [layer, into] {
            self.load_range(list, blocks.start, blocks.end)?;
        }
        let stored: Vec<u64> = self.section_blocks(layer, number)?.into_iter().map(|(block, _, _)| block).collect();
        let leaf_blocks = u64::from(self.shape.leaf_blocks());
        for chunk in stored.chunk_by(|a, b| a / leaf_blocks == b / leaf_blocks) {
            for chunk in chunk.chunks(crate::types::index(self.shape.direct_blocks)) {
                let records = self.merge_bytes(chunk.len());
                self.with_room(0, records, Claim::Keeper, |core| {
                    let mut kept = Vec::new();
                    let mut freed: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
                    let seen = core.state.lists.get(&into).map_or(0, |list| list.meta.cut.min(list.meta.blocks()));
                    for block in chunk {
                        let (Ok(Some((place, checksum))), Ok(older)) =
                            (core.state.lookup(layer, *block), core.state.lookup(into, *block))
                        else {
                            return; // Dropped from memory meanwhile: the next step finds it again.
                        };
                        if older.is_none() && *block < seen {
                            kept.push(Kept { layer: Some(into), block: *block, place, checksum });
                        }
                        let zone = freed.entry(place.zone()).or_default();
                        *zone = (zone.0 + 1, zone.1 + place.footprint());
                    }
                    core.keep(&kept);
                    let freed =
                        freed.into_iter().map(|(zone, (blocks, bytes))| Freed { zone, blocks, bytes }).collect();
                    let (first, end) = (chunk[0], chunk[chunk.len() - 1] + 1);
                    core.write_record(&Record::Discard { list: layer, first, end, freed });
                })?;
            }
        }
        Ok(())
    }

    fn merge_bytes(&self, blocks: usize) -> u32 {
        crate::format::records::put_bytes(1) * len_u32(blocks) + 32 + 12 * len_u32(blocks)
    }
}
