//! Old versions: what snapshots see of blocks that have changed since.
//!
//! ```text
//!   snapshot 7      snapshot 12            now
//!      │               │                    │
//!   layer of 7 ──>  layer of 12  ──>  the list itself      a reader of 7 takes the first that has the block
//! ```
//! A *layer* is a hidden list. Before a block changes that the newest snapshot sees, and that no layer from that
//! snapshot on has yet, its place goes into the layer: the block is not copied, and still referred to once (R19). A hole
//! goes there as [`Location::HOLE`] (R18), unless the list did not have the block when a later layer was made. So taking a snapshot is one record, a change costs one more whatever the
//! number of snapshots, and the difference of two snapshots is what the layers between them hold.
//!
//! Invariants:
//! * S1 a layer has the size and the name that its list had when its snapshot was taken: it is made before either changes.
//! * S2 what a layer has was in the list when its snapshot was taken, and when every older snapshot was that sees it.
//! * S3 a list that is deleted stays, hidden, until it has no layers.
//! * S4 a deleted snapshot stays in the order of layers until its layer is merged into the next older one, or dropped.

use super::{ColdLeaf, State};
use crate::format::records::{Form, ListMeta, ListState};
use crate::map::{Slot, sections_of};
use crate::types::{ListId, Location, SnapshotId, UnitId};
use smallvec::SmallVec;
use std::cell::Ref;
use std::collections::{BTreeMap, BTreeSet};

/// Which snapshots and layers there are. All of it follows from the lists.
#[derive(Default)]
pub(crate) struct Versions {
    pub names: BTreeMap<String, SnapshotId>,
    /// Snapshots of all lists that are older.
    whole: BTreeSet<SnapshotId>,
    /// Snapshots of single lists.
    single: BTreeSet<(ListId, SnapshotId)>,
    layers: BTreeMap<(ListId, SnapshotId), ListId>,
    /// Layers that are being drained: nobody sees what they have, and the cleaner must know that it is theirs.
    dying: BTreeSet<(ListId, ListId)>,
    by_snapshot: BTreeSet<(SnapshotId, ListId)>,
    /// Deleted snapshots that still have layers, or may.
    pub leaving: BTreeSet<SnapshotId>,
    /// Deleted lists that snapshots see.
    pub hidden: BTreeSet<ListId>,
    /// What units have changed in lists at their last barriers: the list, then the shadow. One that a crash kept from
    /// being whole has left another.
    shadows: BTreeSet<(UnitId, ListId, ListId)>,
    /// Units with a barrier.
    pub units: BTreeMap<UnitId, ListId>,
}

impl Versions {
    /// Whether there is any snapshot.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.single.is_empty()
    }

    /// A list, layer or snapshot is there (or not any more).
    pub fn note(&mut self, meta: &ListMeta, there: bool) {
        fn set<T: Ord>(of: &mut BTreeSet<T>, what: T, there: bool) {
            if there {
                of.insert(what);
            } else {
                of.remove(&what);
            }
        }
        match meta.state {
            ListState::There => {
                let (unit, shadow) = (UnitId(meta.cut), (UnitId(meta.made), meta.parent, meta.list));
                match (meta.form, there) {
                    (Form::Unit, true) => drop(self.units.insert(unit, meta.list)),
                    (Form::Unit, false) => drop(self.units.remove(&unit)),
                    (Form::Shadow, _) => set(&mut self.shadows, shadow, there),
                    _ => {}
                }
            }
            ListState::Draining => set(&mut self.dying, (meta.parent, meta.list), there),
            ListState::Hidden => set(&mut self.hidden, meta.list, there),
            ListState::Leaving => set(&mut self.leaving, SnapshotId(meta.list.0), there),
            ListState::Layer => {
                set(&mut self.by_snapshot, (meta.snapshot, meta.list), there);
                if there {
                    self.layers.insert((meta.parent, meta.snapshot), meta.list);
                } else {
                    self.layers.remove(&(meta.parent, meta.snapshot));
                }
            }
            ListState::Snapshot => {
                let snapshot = SnapshotId(meta.list.0);
                if meta.members.is_empty() {
                    set(&mut self.whole, snapshot, there);
                }
                for member in &meta.members {
                    set(&mut self.single, (*member, snapshot), there);
                }
                // A frozen view of a unit has no name.
                if there && !meta.name.is_empty() {
                    self.names.insert(meta.name.clone(), snapshot);
                } else {
                    self.names.remove(&meta.name);
                }
            }
        }
    }

    /// The layers of a list from a snapshot on, oldest first.
    pub fn layers(&self, list: ListId, from: SnapshotId) -> impl DoubleEndedIterator<Item = ListId> + '_ {
        self.layers.range((list, from)..=(list, SnapshotId(u32::MAX))).map(|(_, layer)| *layer)
    }

    /// The layer of a list for exactly this snapshot.
    pub fn layer(&self, list: ListId, snapshot: SnapshotId) -> Option<ListId> {
        self.layers.get(&(list, snapshot)).copied()
    }

    /// The shadows of a unit, each behind its list.
    pub fn shadows_of(&self, unit: UnitId) -> impl Iterator<Item = (ListId, ListId)> + '_ {
        let range = (unit, ListId(0), ListId(0))..=(unit, ListId(u32::MAX), ListId(u32::MAX));
        self.shadows.range(range).map(|(_, list, own)| (*list, *own))
    }

    /// The shadows whose unit has no barrier, or none any more.
    pub fn stray_shadows(&self) -> Vec<ListId> {
        let stray = self.shadows.iter().filter(|(unit, ..)| !self.units.contains_key(unit));
        stray.map(|(.., own)| *own).collect()
    }

    /// The layers of a snapshot, each with its list.
    pub fn layers_of(&self, snapshot: SnapshotId) -> Vec<(ListId, ListId)> {
        let layers = self.layers.iter().filter(|((_, of), _)| *of == snapshot);
        layers.map(|((list, _), layer)| (*list, *layer)).collect()
    }

    /// Some layer of a snapshot.
    pub fn layer_of(&self, snapshot: SnapshotId) -> Option<ListId> {
        let next = self.by_snapshot.range((snapshot, ListId(0))..=(snapshot, ListId(u32::MAX))).next();
        next.map(|(_, layer)| *layer)
    }

    /// The newest snapshot before `before` that is of a list.
    pub fn newest(&self, list: ListId, before: SnapshotId) -> Option<SnapshotId> {
        let whole = self.whole.range(..before).next_back().filter(|snapshot| snapshot.0 > list.0);
        let single = self.single.range((list, SnapshotId(0))..(list, before)).next_back().map(|(_, snapshot)| snapshot);
        whole.max(single).copied()
    }

    /// Whether a snapshot is of a list.
    pub fn is_of(&self, snapshot: SnapshotId, list: ListId) -> bool {
        (self.whole.contains(&snapshot) && snapshot.0 > list.0) || self.single.contains(&(list, snapshot))
    }
}

/// So many lists are known at once.
const KEEPERS_MAX: usize = 16;

/// What a change of a list must ask for snapshots: kept from one change to the next, until a snapshot, a layer or a list
/// comes, changes or goes.
pub(crate) struct Keeper {
    /// The layers from the newest snapshot on that sees the list, oldest first, and from where on what each lacks was a hole.
    layers: SmallVec<[(ListId, u64); 1]>,
    /// The snapshot sees so many blocks.
    seen: u64,
}

/// What has to go into a layer before a block changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// None: it must be made first.
    pub layer: Option<ListId>,
    pub block: u64,
    pub place: Location,
    pub checksum: u32,
}

impl State {
    /// The snapshot that sees what a list is now, and the layer that keeps it, if there is one.
    pub fn keeper_of(&self, list: ListId) -> Option<(SnapshotId, Option<ListId>)> {
        let meta = &self.lists.get(&list)?.meta;
        if self.versions.is_empty() || meta.state != ListState::There || meta.form.is_private() {
            return None;
        }
        let snapshot = self.versions.newest(list, SnapshotId(u32::MAX))?;
        Some((snapshot, self.versions.layers(list, snapshot).next()))
    }

    fn make_keeper(&self, list: ListId) -> Option<Keeper> {
        let (snapshot, layer) = self.keeper_of(list)?;
        let seen = self.lists.get(&layer.unwrap_or(list)).map_or(0, |list| list.meta.blocks());
        let cut = |layer: &ListId| self.lists.get(layer).map_or(u64::MAX, |layer| layer.meta.cut);
        let layers = self.versions.layers(list, snapshot).map(|layer| (layer, cut(&layer))).collect();
        Some(Keeper { layers, seen })
    }

    /// What a change of a list has to ask. None: no snapshot sees it.
    pub fn keeper(&self, list: ListId) -> Option<Ref<'_, Keeper>> {
        if self.versions.is_empty() {
            return None;
        }
        let known = self.keepers.borrow();
        let at = known.iter().position(|(known, _)| *known == list);
        let (known, at) = match at {
            Some(at) => (known, at),
            None => {
                drop(known);
                self.find_keeper(list);
                let known = self.keepers.borrow();
                let last = known.len() - 1;
                (known, last)
            }
        };
        Ref::filter_map(known, |known| known[at].1.as_ref()).ok()
    }

    /// Puts at the end of those that are known what a change of a list has to ask.
    fn find_keeper(&self, list: ListId) {
        let keeper = self.make_keeper(list);
        let mut known = self.keepers.borrow_mut();
        if known.len() >= KEEPERS_MAX {
            known.clear();
        }
        known.push((list, keeper));
    }

    /// Whether a layer must be made before the list changes in any way (S1).
    pub fn lacks_layer(&self, list: ListId) -> bool {
        self.keeper_of(list).is_some_and(|(_, layer)| layer.is_none())
    }

    /// What is to be kept of a block that is about to change. None: no snapshot sees it as it is now.
    pub fn keep(&self, list: ListId, block: u64) -> Result<Option<Kept>, ColdLeaf> {
        let Some(keeper) = self.keeper(list) else { return Ok(None) };
        self.keep_by(&keeper, block, self.lookup(list, block)?)
    }

    /// The same, of a block that is stored so now, in a list whose keeper is at hand.
    pub fn keep_by(
        &self,
        keeper: &Keeper,
        block: u64,
        stored: Option<(Location, u32)>,
    ) -> Result<Option<Kept>, ColdLeaf> {
        if block >= keeper.seen {
            return Ok(None);
        }
        for (layer, cut) in &keeper.layers {
            if block >= *cut || !self.place(*layer, block)?.is_none() {
                return Ok(None);
            }
        }
        let (place, checksum) = stored.unwrap_or((Location::HOLE, 0));
        let layer = keeper.layers.first().map(|(layer, _)| *layer);
        Ok(Some(Kept { layer, block, place, checksum }))
    }

    /// The layers that hold what changed between two snapshots of a list, or a snapshot and now; and the first block of
    /// those that were cut off, or did not exist yet, at some time between.
    pub fn layers_between(&self, list: ListId, from: SnapshotId, to: Option<SnapshotId>) -> (Vec<ListId>, u64) {
        let to = to.unwrap_or(SnapshotId(u32::MAX));
        let between = self.versions.layers.range((list, from)..(list, to)).map(|(_, layer)| *layer);
        let layers: Vec<ListId> = between.collect();
        let cuts = layers.iter().filter_map(|layer| self.lists.get(layer)).map(|layer| layer.meta.cut);
        let cut = cuts.min().unwrap_or(u64::MAX);
        (layers, cut)
    }

    /// Whether a block has changed since a snapshot: a layer since then has an entry for it (R18).
    pub fn changed_since(&self, list: ListId, from: SnapshotId, block: u64) -> Result<bool, ColdLeaf> {
        // Behind the end nothing is, and nothing was changed.
        let there = self.lists.get(&list).is_some_and(|list| block < list.meta.blocks());
        for layer in self.versions.layers(list, from) {
            if there && self.is_cut(layer, block) || !self.place(layer, block)?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether any of the blocks `first..end` has.
    pub fn any_changed_since(&self, list: ListId, from: SnapshotId, first: u64, end: u64) -> Result<bool, ColdLeaf> {
        self.some_changed_since(list, from, first..end, |_| Ok(true))
    }

    /// Whether `asked` is true of any of the blocks in a range that have changed.
    pub fn some_changed_since(
        &self,
        list: ListId,
        from: SnapshotId,
        range: std::ops::Range<u64>,
        mut asked: impl FnMut(u64) -> Result<bool, ColdLeaf>,
    ) -> Result<bool, ColdLeaf> {
        let (first, end) = (range.start, range.end);
        for layer in self.versions.layers(list, from) {
            let cut = self.lists.get(&layer).map_or(u64::MAX, |layer| layer.meta.cut);
            if cut < end.min(self.lists.get(&list).map_or(0, |list| list.meta.blocks())) {
                return Ok(true);
            }
            if let Some(key) = self.cold_leaf(layer, first, end) {
                return Err(ColdLeaf(key));
            }
            let Some(owner) = self.lists.get(&layer) else { continue };
            let (shift, leaf_shift) = (self.shape.section_blocks_shift(), self.shape.leaf_shift);
            for (number, section) in owner.sections.range(sections_of(range.clone(), shift)) {
                for (n, slot) in (0..).zip(&section.slots) {
                    let Slot::Loaded(leaf) = slot else { continue };
                    let start = (u64::from(number) << shift) + (n << leaf_shift);
                    for block in leaf.iter().map(|(at, _, _)| start + u64::from(at)) {
                        if range.contains(&block) && asked(block)? {
                            return Ok(true);
                        }
                    }
                }
            }
        }
        Ok(false)
    }

    /// Frozen views that are there.
    pub fn views(&self) -> Vec<SnapshotId> {
        let views = self.lists.values().map(|list| &list.meta);
        let views = views.filter(|meta| meta.state == ListState::Snapshot && meta.name.is_empty());
        views.map(|meta| SnapshotId(meta.list.0)).collect()
    }

    /// What a list is called towards people: what only snapshots see is named after the newest of them.
    pub fn label(&self, list: ListId) -> String {
        let Some(meta) = self.lists.get(&list).map(|list| &list.meta) else { return format!("list {}", list.0) };
        let layer = self.versions.layers(list, SnapshotId(0)).next_back().and_then(|layer| self.lists.get(&layer));
        let snapshot = match meta.state {
            ListState::Layer => Some(meta.snapshot),
            ListState::Hidden => layer.map(|layer| layer.meta.snapshot),
            _ => None,
        };
        let name = match meta.form {
            Form::Indexed => meta.name.clone(),
            Form::File if meta.name.is_empty() => format!("list {} of files", list.0),
            Form::File => format!("{} of files", meta.name),
            Form::Lists => "the table of ordered lists".to_owned(),
            Form::Blocks => format!("the table of blocks of {} bytes", meta.block_bytes()),
            Form::Pool => format!("blocks of {} bytes of ordered lists", meta.block_bytes()),
            Form::Shadow => {
                let unit = self.versions.units.get(&UnitId(meta.made)).and_then(|unit| self.lists.get(unit));
                let label = unit.map(|unit| &unit.meta.name).filter(|name| !name.is_empty());
                let label = label.map_or_else(|| meta.made.to_string(), Clone::clone);
                format!("{}?unit={label}", self.label(meta.parent))
            }
            Form::Unit if meta.name.is_empty() => format!("unit {}", meta.cut),
            Form::Unit => format!("unit {}", meta.name),
            Form::Schedule => format!("schedule {}", meta.name),
        };
        let of = snapshot.and_then(|snapshot| self.lists.get(&ListId(snapshot.0)));
        match of {
            None if meta.state == ListState::Draining => format!("{name} (deleted)"),
            None => name,
            Some(of) if of.meta.name.is_empty() => format!("{name}@(view of a unit)"),
            Some(of) => format!("{name}@{}", of.meta.name),
        }
    }

    /// The list that stands for a snapshot.
    pub fn snapshot_named(&self, name: &str) -> crate::error::Result<ListId> {
        let found = self.versions.names.get(name).map(|snapshot| ListId(snapshot.0));
        found.ok_or_else(|| {
            crate::error::Error::new(crate::ErrorKind::NotFound, format!("there is no snapshot named {name}"))
        })
    }

    /// What the layer does not have of this block was a hole, and what came later is another one.
    fn is_cut(&self, layer: ListId, block: u64) -> bool {
        self.lists.get(&layer).is_some_and(|layer| block >= layer.meta.cut)
    }

    /// Whether a layer says itself what its snapshot sees of a block.
    pub fn has_own(&self, layer: ListId, block: u64) -> Result<bool, ColdLeaf> {
        Ok(self.is_cut(layer, block) || !self.place(layer, block)?.is_none())
    }

    /// Where a block is stored that a snapshot sees.
    pub fn lookup_at(
        &self,
        list: ListId,
        snapshot: SnapshotId,
        block: u64,
    ) -> Result<Option<(Location, u32)>, ColdLeaf> {
        if list.0 > snapshot.0 {
            return Ok(None); // The list is newer.
        }
        for layer in self.versions.layers(list, snapshot) {
            if let Some(found) = self.lookup(layer, block)? {
                return Ok(Some(found).filter(|(place, _)| *place != Location::HOLE));
            }
            if self.is_cut(layer, block) {
                return Ok(None);
            }
        }
        self.lookup(list, block)
    }

    /// Everything about a list but its blocks, as a snapshot sees it. None: it does not see the list.
    pub fn meta_at(&self, list: ListId, snapshot: SnapshotId) -> Option<&ListMeta> {
        if !self.versions.is_of(snapshot, list) {
            return None;
        }
        let layer = self.versions.layers(list, snapshot).next();
        let meta = &self.lists.get(&layer.unwrap_or(list))?.meta;
        matches!(meta.state, ListState::There | ListState::Layer).then_some(meta)
    }

    /// The volumes that a snapshot sees.
    pub fn volumes_at(&self, snapshot: SnapshotId) -> impl Iterator<Item = (ListId, &ListMeta)> {
        let lists = self
            .lists
            .range(..ListId(snapshot.0))
            .filter(|(_, list)| matches!(list.meta.state, ListState::There | ListState::Hidden))
            .filter(|(_, list)| list.meta.form == Form::Indexed);
        lists.filter_map(move |(id, _)| Some((*id, self.meta_at(*id, snapshot)?)))
    }

    /// The list that holds a block of `list` at this place: itself, one of its layers, or what the unit that wrote it has
    /// of it.
    pub fn holder(&self, list: ListId, block: u64, place: Location, unit: UnitId) -> Result<Option<ListId>, ColdLeaf> {
        if self.lookup(list, block)?.is_some_and(|found| found.0 == place) {
            return Ok(Some(list));
        }
        let dying = self.versions.dying.range((list, ListId(0))..=(list, ListId(u32::MAX))).map(|(_, layer)| *layer);
        let shadows = (unit, list, ListId(0))..=(unit, list, ListId(u32::MAX));
        let shadow = self.versions.shadows.range(shadows).map(|(.., own)| *own);
        for layer in self.versions.layers(list, SnapshotId(0)).rev().chain(shadow).chain(dying) {
            if self.lookup(layer, block)?.is_some_and(|found| found.0 == place) {
                return Ok(Some(layer));
            }
        }
        Ok(None)
    }
}
