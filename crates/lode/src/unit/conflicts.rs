//! Conflicts that a unit asks to be told of (R15): something that it changed, or read, was changed by others since it
//! began. What has changed since is what the layers since its frozen view have (R18), so nothing else is kept for it.

use super::Unit;
use super::ranges::Ranges;
use crate::disk::Core;
use crate::disk::options::{UnitConflicts, UnitOptions, UnitView};
use crate::disk::put::Again;
use crate::error::{Error, ErrorKind, Result};
use crate::ordered::{Change, Links, Staged};
use crate::planted::{self, Bug};
use crate::types::{ListId, SnapshotId};
use std::collections::{BTreeMap, BTreeSet};

/// What a unit has read: of each list stretches of blocks.
#[derive(Clone, Default)]
pub(super) struct ReadSet {
    pub blocks: BTreeMap<ListId, Ranges>,
    /// It has looked at ordered lists: at which, is not kept.
    pub lists: bool,
}

/// More stretches of one list than this become one.
const STRETCHES_MAX: usize = 1024;

fn changed(what: &str) -> Again {
    crate::mark("unit: conflict with what others changed");
    Again::Never(Error::new(ErrorKind::Conflict, format!("{what} was changed by others since the unit began")))
}

impl Unit {
    pub(crate) fn set_options(&mut self, options: &UnitOptions) -> Result<()> {
        self.options = *options;
        if options.view == UnitView::Frozen || options.conflicts != UnitConflicts::Allowed {
            self.frozen = Some(self.disk.freeze()?);
            self.disk.hold_view(self.frozen);
        }
        Ok(())
    }

    pub(super) fn reads_count(&self) -> bool {
        self.options.conflicts == UnitConflicts::Read
    }

    /// Remembers a read, if reads count.
    pub(super) fn note_read(&self, list: ListId, block_bytes: u32, offset: u64, bytes: u64) {
        if !self.reads_count() || planted::is(Bug::ReadsNotNoted) {
            return;
        }
        let size = u64::from(block_bytes);
        let (first, end) = (offset / size, offset.saturating_add(bytes).div_ceil(size));
        let mut read = self.read.lock();
        let stretches = read.blocks.entry(list).or_default();
        stretches.insert(first, end);
        if stretches.len() > STRETCHES_MAX {
            stretches.join();
        }
    }

    pub(super) fn note_look(&self) {
        if self.reads_count() {
            self.read.lock().lists = true;
        }
    }

    /// Whether what others changed is a conflict. Asked before anything is changed.
    pub(super) fn ask_conflicts(&self, core: &Core, staged: &Staged) -> std::result::Result<(), Again> {
        if planted::is(Bug::ConflictsAskedEarly) {
            return Ok(());
        }
        self.find_conflicts(core, staged)
    }

    /// For [`Bug::ConflictsAskedEarly`].
    pub(super) fn ask_early(&self) -> Result<()> {
        match self.find_conflicts(&self.disk.core.lock(), &Staged::default()) {
            Err(Again::Never(error)) => Err(error),
            _ => Ok(()),
        }
    }

    fn find_conflicts(&self, core: &Core, staged: &Staged) -> std::result::Result<(), Again> {
        let Some(from) = self.frozen.filter(|_| self.options.conflicts != UnitConflicts::Allowed) else {
            return Ok(());
        };
        let state = &core.state;
        let name = |list| state.label(list);
        for (list, shadow) in self.lists.iter() {
            for block in shadow.blocks.numbers() {
                if state.changed_since(list, from, block)? && !planted::is(Bug::WrittenNotAsked) {
                    return Err(changed(&format!("{} block {block}", name(list))));
                }
            }
            if shadow.bytes.is_some() {
                same_size(core, list, from)?;
            }
        }
        for (list, first, end) in self.hole_ranges() {
            if state.any_changed_since(list, from, first, end)? {
                return Err(changed(&format!("{} between blocks {first} and {end}", name(list))));
            }
        }
        for Change { row, .. } in staged.changes() {
            if state.changed_since(row.table, from, row.at)? {
                return Err(changed("an ordered list, where the unit changed it,"));
            }
        }
        self.find_lost(core, staged, from)?;
        let read = self.read.lock();
        for (list, stretches) in &read.blocks {
            same_size(core, *list, from)?;
            for (first, end) in stretches.iter() {
                if state.any_changed_since(*list, from, first, end)? {
                    return Err(changed(&format!(
                        "{} between blocks {first} and {end}, which it has read,",
                        name(*list)
                    )));
                }
            }
        }
        if read.lists {
            let tables = state.tables.pools().map(|(_, pool)| pool.table).chain([state.tables.lists]);
            for table in tables {
                if state.any_changed_since(table, from, 0, u64::MAX >> 1)? {
                    return Err(changed("an ordered list, at some of which the unit looked,"));
                }
            }
        }
        Ok(())
    }
}

impl Unit {
    /// What others did to blocks that the unit removes, and to the blocks of lists that it deletes.
    fn find_lost(&self, core: &Core, staged: &Staged, from: SnapshotId) -> std::result::Result<(), Again> {
        let state = &core.state;
        let deleted = self.ordered.as_ref().map_or_else(BTreeSet::new, |lists| lists.deleted());
        for (_, pool) in state.tables.pools() {
            let removed = staged.changes().filter(|change| change.row.table == pool.table && change.new.is_none());
            for Change { row, .. } in removed {
                if state.changed_since(pool.blocks, from, row.at)? {
                    return Err(changed("a block that the unit removes"));
                }
            }
            // Of a list now, or when the unit began.
            let in_deleted = |at| {
                let now = Links::new(state.lookup(pool.table, at)?.unwrap_or_default()).value;
                let then = Links::new(state.lookup_at(pool.table, from, at)?.unwrap_or_default()).value;
                Ok(deleted.contains(&now) || deleted.contains(&then))
            };
            for list in [pool.table, pool.blocks].into_iter().filter(|_| !deleted.is_empty()) {
                if state.some_changed_since(list, from, 0..u64::MAX >> 1, in_deleted)? {
                    return Err(changed("a list that the unit deletes"));
                }
            }
        }
        Ok(())
    }
}

fn same_size(core: &Core, list: ListId, from: SnapshotId) -> std::result::Result<(), Again> {
    let now = core.state.lists.get(&list).map(|list| list.meta.bytes);
    match core.state.meta_at(list, from) {
        Some(then) if Some(then.bytes) != now => Err(changed(&format!("the size of {}", then.name))),
        _ => Ok(()),
    }
}
