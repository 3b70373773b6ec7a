//! Looking at a disk without changing it: segments, batches, records, lists, as plain data for a person or a program.

mod map;

pub use map::{DiskMap, ZoneMap};

use crate::disk::open::Disk;
use crate::error::Result;
use crate::log::reader::{Reader, records_of};
use crate::types::{Sequence, len_u32};
use crate::zones::Holds;

/// One zone.
#[derive(Clone, Debug)]
pub struct SegmentView {
    /// Its number.
    pub zone: u32,
    /// What it holds: roots, free, main, moved, tables-a, tables-b, aside.
    pub holds: &'static str,
    /// The segment, if it holds one.
    pub segment: u64,
    /// Live bytes.
    pub live: u64,
    /// Live blocks.
    pub blocks: u32,
}

/// One batch.
#[derive(Clone, Debug)]
pub struct BatchView {
    /// The zone it lies in.
    pub zone: u32,
    /// Where it starts.
    pub offset: u32,
    /// Its bytes.
    pub bytes: u32,
    /// Its sequence.
    pub sequence: u64,
    /// The number of its first record.
    pub first_lsn: u64,
    /// How many records.
    pub records: u32,
    /// Whether the operation goes on in the next sequence.
    pub continues: bool,
    /// Whether it was read from its segment's footer.
    pub from_footer: bool,
    /// Its records, in words.
    pub content: Vec<String>,
}

fn holds(holds: Holds) -> &'static str {
    match holds {
        Holds::Roots => "roots",
        Holds::Nothing => "free",
        Holds::Main => "main",
        Holds::Moved => "moved",
        Holds::TableA => "tables-a",
        Holds::TableB => "tables-b",
        Holds::Aside => "aside",
    }
}

impl Disk {
    /// All zones.
    pub fn inspect_segments(&self) -> Vec<SegmentView> {
        let core = self.inner().core.lock();
        let view = |(number, zone): (usize, &crate::zones::Zone)| SegmentView {
            zone: len_u32(number),
            holds: holds(zone.holds),
            segment: zone.segment.0,
            live: u64::from(zone.live),
            blocks: zone.blocks,
        };
        core.state.zones.all.iter().enumerate().map(view).collect()
    }

    /// The batches of the zones that hold blocks, zone by zone. Cost: reads every footer, or the zone.
    pub fn inspect_batches(&self, visit: &mut dyn FnMut(&BatchView)) -> Result<()> {
        let inner = self.inner();
        let reader = Reader { medium: &*inner.medium, shape: inner.shape, disk: inner.disk };
        let zones = inner.core.lock().state.shape.zones;
        for number in 0..zones {
            let (holds, segment) = {
                let core = inner.core.lock();
                let zone = core.state.zones.get(number);
                (zone.holds, zone.segment)
            };
            if !matches!(holds, Holds::Main | Holds::Moved) {
                continue;
            }
            let scanned = match reader.footer(number, segment)? {
                Some(scanned) => scanned,
                None => {
                    let bytes = reader.zone(number);
                    let Ok((header, _)) = reader.header(&bytes, number, 0) else { continue };
                    if header.segment != segment.0 {
                        continue;
                    }
                    reader.walk(&bytes, number, segment, Sequence(header.sequence), 0)
                }
            };
            for batch in &scanned.batches {
                let content =
                    records_of(batch).unwrap_or_default().iter().map(|record| format!("{record:?}")).collect();
                visit(&BatchView {
                    zone: number,
                    offset: batch.offset,
                    bytes: batch.total,
                    sequence: batch.sequence.0,
                    first_lsn: batch.first_lsn.0,
                    records: batch.count,
                    continues: batch.continues,
                    from_footer: scanned.from_footer,
                    content,
                });
            }
        }
        Ok(())
    }

    /// How many sections of each volume's map are in memory and how many on the medium only.
    pub fn inspect_lists(&self) -> Vec<(String, usize, usize)> {
        let core = self.inner().core.lock();
        let lists = core.state.lists.values().map(|list| {
            let slots = list.sections.iter().flat_map(|(_, section)| section.slots.iter());
            let (mut loaded, mut cold) = (0, 0);
            for slot in slots {
                match slot {
                    crate::map::Slot::Loaded(_) => loaded += 1,
                    crate::map::Slot::Cold => cold += 1,
                    crate::map::Slot::Absent => {}
                }
            }
            (list.meta.name.clone(), loaded, cold)
        });
        lists.collect()
    }
}
