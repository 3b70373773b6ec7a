//! How much a commit will write: asked before it begins, so that it finds room for all of it.

use super::Unit;
use super::shadow::Shadow;
use crate::disk::Inner;
use crate::format::records::put_bytes;
use crate::map::sections_of;
use crate::types::{ListId, len_u64, low_u32};
use std::ops::Range;

pub(super) struct Plan {
    pub data: u32,
    pub records: u32,
    pub chained: bool,
    pub zones: usize,
    /// The most bytes of records that a batch is asked to take at once.
    pub group: u32,
    /// Bytes that the records of discards may take.
    pub holes: u64,
    /// Bytes that the records of ordered lists may take.
    pub rows: u64,
    /// There are snapshots, so that what changes may have to be kept.
    pub snapshots: bool,
}

impl Unit {
    /// How much room the commit needs: in one batch if it is small, else as a chain of them. `count`: what discards free
    /// is counted; else it may be all that they cover, whatever others write there meanwhile.
    pub(super) fn plan(&self, disk: &Inner, count: bool) -> Plan {
        let shape = &disk.shape;
        let snapshots = !disk.core.lock().state.versions.is_empty();
        let mut data = 0;
        let mut records = len_u64(24);
        for (_, shadow) in self.lists.iter() {
            records += 24 + 8 + 256 + 64 + len_u64(shadow.blocks.len()) * u64::from(put_bytes(1));
            for (_, block) in shadow.blocks.iter() {
                if let Shadow::Data { piece, .. } = block {
                    data += piece.len().next_multiple_of(crate::types::GRANULE);
                }
            }
        }
        let rows = self.ordered.as_ref().map_or(0, |lists| lists.records);
        records += rows + u64::from(self.ending_bytes());
        records += self.besides.as_ref().map_or(0, |besides| besides.bytes());
        let emptied = self.emptied().iter().map(|own| (*own, 0, u64::MAX >> 1));
        let holes = self.hole_ranges().into_iter().chain(emptied);
        let holes: u64 = holes.map(|(list, first, end)| disk.discard_bytes(list, first..end, count)).sum();
        let group = (shape.batch_bytes - shape.head) / 4;
        let most = u64::from(shape.batch_bytes - shape.head) / 2;
        if records + holes + u64::from(data) <= most {
            Plan {
                data,
                records: u32::try_from(records + holes).expect("less than a batch"),
                chained: false,
                zones: 3,
                group,
                holes,
                rows,
                snapshots,
            }
        } else {
            if snapshots {
                records *= 2;
            }
            // What snapshots see of them is counted in.
            records += holes;
            // The records are written twice, and the end of each zone is lost.
            let per_zone = u64::from(shape.zone_bytes - shape.batch_bytes) / 2 - u64::from(shape.head);
            let zones = 4 + usize::try_from(records / per_zone.max(1)).expect("fewer than there are zones");
            Plan { data, records: 0, chained: true, zones, group, holes, rows, snapshots }
        }
    }

    /// The unit's own lists that this commit empties.
    pub(super) fn emptied(&self) -> &[ListId] {
        self.besides.as_ref().map_or(&[], |besides| &besides.emptied)
    }

    /// What turns into holes: stretches in order, none touching another, so that each block is freed once.
    pub(super) fn hole_ranges(&self) -> Vec<(ListId, u64, u64)> {
        let mut all: Vec<(ListId, u64, u64)> = Vec::new();
        for (list, shadow) in self.lists.iter().filter(|(_, shadow)| !shadow.is_plain()) {
            let mut holes = shadow.holes.clone();
            if let Some(floor) = shadow.floor {
                holes.insert(floor, u64::MAX >> 1);
            }
            all.extend(holes.iter().map(|(first, end)| (list, first, end)));
        }
        all
    }
}

impl Inner {
    /// How many bytes of records a discard takes, at most. Cost: a bounded look at each leaf of the range.
    fn discard_bytes(&self, list: ListId, blocks: Range<u64>, count: bool) -> u64 {
        let core = self.core.lock();
        let Some(owner) = core.state.lists.get(&list) else { return 0 };
        let (shift, leaf_blocks) = (self.shape.section_blocks_shift(), self.shape.leaf_blocks());
        let seen = core.state.keeper_of(list).is_some();
        let mut bytes = 0;
        for (number, section) in owner.sections.range(sections_of(blocks.clone(), shift)) {
            let start = u64::from(number) << shift;
            let within = |end: u64| low_u32(end.clamp(start, start + (1 << shift)) - start);
            for freed in section.stored_in(within(blocks.start)..within(blocks.end), leaf_blocks, count) {
                let zones = freed.min(core.state.shape.zones);
                let kept = if seen { u64::from(freed * put_bytes(1)) } else { 0 };
                bytes += 40 + 12 * u64::from(zones) + kept;
            }
        }
        bytes
    }
}
