//! Leaves of the map from the medium into memory, without holding the lock over the reads (R24).

use super::Inner;
use crate::error::{Error, Result};
use crate::map::leaf::Leaf;
use crate::map::{Pending, Slot, page};
use crate::objects;
use crate::state::LeafKey;
use crate::types::{ListId, Location};

impl Inner {
    /// Loads every cold leaf among the blocks `first..end` of a list.
    pub fn load_range(&self, list: ListId, first: u64, end: u64) -> Result<()> {
        loop {
            let cold = self.core.lock().state.cold_leaf(list, first, end);
            match cold {
                None => return Ok(()),
                Some(key) => self.load(key)?,
            }
        }
    }

    /// Loads one leaf. Returns also if it is loaded already, or gone.
    pub fn load(&self, key: LeafKey) -> Result<()> {
        let what = format!("the map of list {}, section {} leaf {}", key.list.0, key.section, key.leaf);
        loop {
            let objects: Vec<_> = {
                let core = self.core.lock();
                let Some(section) = core.state.map_section(key.list, key.section) else { return Ok(()) };
                if !matches!(section.slots.get(crate::types::index(key.leaf)), Some(Slot::Cold)) {
                    return Ok(());
                }
                section.meta.objects().copied().collect()
            };
            let mut pages = Vec::new();
            let mut failed = None;
            for object in &objects {
                match objects::read_leaf(&*self.medium, object, key.leaf, &what) {
                    Ok(Some(page)) => pages.push(page),
                    Ok(None) => {}
                    Err(error) => failed = Some(error),
                }
            }
            let mut leaf = Box::new(Leaf::new(self.shape.leaf_blocks()));
            for bytes in &pages {
                if page::apply(bytes, &mut leaf).is_none() {
                    failed.get_or_insert_with(|| Error::corrupt(&what, "a page of the map", "bytes that are none"));
                }
            }
            let mut core = self.core.lock();
            let Some(section) = core.state.map_section_mut(key.list, key.section) else { return Ok(()) };
            if !section.meta.objects().eq(objects.iter()) {
                crate::mark("load: section written again meanwhile");
                continue; // It was written again meanwhile: what was read may be erased already.
            }
            if let Some(error) = failed {
                return Err(error);
            }
            let slot = &mut section.slots[crate::types::index(key.leaf)];
            if !matches!(slot, Slot::Cold) {
                return Ok(());
            }
            for pending in section.pending.remove(&key.leaf).unwrap_or_default() {
                match pending {
                    Pending::Put { block, place, checksum } => {
                        leaf.set(u32::from(block), place, checksum);
                    }
                    Pending::Clear { from, end } => {
                        crate::mark("load: replayed discard on a cold leaf");
                        for at in from..end {
                            if leaf.get(at).is_some() {
                                leaf.set(at, Location::NONE, 0);
                            }
                        }
                    }
                }
            }
            *slot = Slot::Loaded(leaf);
            return Ok(());
        }
    }
}
