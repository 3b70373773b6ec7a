//! Check and scrub: every invariant verified from the medium alone, and every stored block read.
//!
//! `check` recovers what the medium holds without writing, then builds the usage anew from the map: it does not believe
//! the counts that the records kept (I4), nor that no two blocks share a place (I2).

mod lists;

use crate::disk::Inner;
use crate::disk::open::Disk;
use crate::disk::options::OpenOptions;
use crate::error::Result;
use crate::format::records::ListState;
use crate::types::{ListId, Location, Lsn, index, len_u32};
use crate::zones::Holds;
use lode_media::Medium;
use std::ops::ControlFlow;
use std::sync::Arc;

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Everything that is not as it must be; empty if the disk is sound.
    pub problems: Vec<String>,
    /// Lists, deleted ones that are not drained included.
    pub lists: u64,
    /// Ordered lists, deleted ones that are not drained included.
    pub ordered_lists: u64,
    /// Stored blocks.
    pub blocks: u64,
    /// Their bytes.
    pub live_bytes: u64,
    /// Zones that hold segments.
    pub segments: u32,
    /// The position behind the last change.
    pub last: Lsn,
}

/// A stored block that cannot be read as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The volume, or the number of its list.
    pub volume: String,
    /// The block.
    pub block: u64,
    /// Where it lies.
    pub place: String,
    /// What is wrong.
    pub problem: String,
}

/// What a scrub found.
#[derive(Clone, Debug, Default)]
pub struct ScrubReport {
    /// Blocks read.
    pub blocks: u64,
    /// Their stored bytes.
    pub bytes: u64,
    /// Those that are damaged.
    pub damaged: Vec<Damage>,
}

impl Disk {
    /// Verifies everything that can be verified without reading the data itself. Never writes. Cost: reads all tables.
    ///
    /// An error means that nothing could be checked: no disk, another format. Damage is in the report.
    pub fn check(medium: Arc<dyn Medium>) -> Result<CheckReport> {
        let mut report = CheckReport::default();
        let options = OpenOptions { read_only: true, background: false, cache_bytes: 0, ..OpenOptions::default() };
        let disk = match Disk::open(medium, &options) {
            Ok(disk) => disk,
            Err(error) if error.kind() == crate::ErrorKind::Corrupt => {
                report.problems.push(error.to_string());
                return Ok(report);
            }
            Err(error) => return Err(error),
        };
        let inner = disk.inner();
        if let Some(damage) = &inner.damaged {
            report.problems.push(damage.clone());
        }
        report.last = disk.position();
        inner.check_map(&mut report)?;
        inner.check_lists(&mut report);
        inner.check_tables(&mut report);
        report.problems.extend(inner.damaged_units());
        Ok(report)
    }

    /// Reads and verifies every stored block. `progress` is told bytes done and in all; if it breaks off, the report is of
    /// what was read until then. Never writes.
    pub fn scrub(&self, progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>) -> Result<ScrubReport> {
        let inner = self.inner();
        inner.fold_all();
        let total = inner.core.lock().state.zones.live;
        let mut report = ScrubReport::default();
        for list in inner.all_lists() {
            let mut from = 0;
            while let Some(number) = inner.section_from(list, from) {
                from = number + 1;
                let mut blocks = inner.section_blocks(list, number)?;
                blocks.retain(|(_, place, _)| !place.is_bare());
                for chunk in blocks.chunks(64) {
                    let places: Vec<(Location, u32)> =
                        chunk.iter().map(|(_, place, checksum)| (*place, *checksum)).collect();
                    for ((block, place, checksum), read) in chunk.iter().zip(inner.read_stored(&places)) {
                        report.blocks += 1;
                        report.bytes += u64::from(place.footprint());
                        let Err(problem) = read else { continue };
                        // Moved, changed or not written yet: not damage.
                        let core = inner.core.lock();
                        let same =
                            matches!(core.state.lookup(list, *block), Ok(Some(now)) if now == (*place, *checksum));
                        if same && core.writer.stored(*place).is_none() {
                            let volume = core.state.label(list);
                            report.damaged.push(Damage {
                                volume,
                                block: *block,
                                place: format!("{place:?}"),
                                problem: problem.to_string(),
                            });
                        }
                    }
                    if progress(report.bytes.min(total), total).is_break() {
                        return Ok(report);
                    }
                }
            }
        }
        Ok(report)
    }
}

impl Inner {
    pub(crate) fn all_lists(&self) -> Vec<ListId> {
        self.core.lock().state.lists.keys().copied().collect()
    }

    fn check_map(&self, report: &mut CheckReport) -> Result<()> {
        let zones = index(self.shape.zones);
        let mut usage = vec![(0u32, 0u32); zones];
        let mut places: Vec<(Location, ListId, u64)> = Vec::new();
        for list in self.all_lists() {
            report.lists += 1;
            let (blocks, block_bytes, name, is_layer, is_table) = {
                let core = self.core.lock();
                let meta = &core.state.lists[&list].meta;
                let is_layer = meta.state == ListState::Layer || meta.parent != ListId(0);
                let state = |list| core.state.lists.get(&list).map(|list| list.meta.state);
                if meta.state == ListState::Layer {
                    let of = (state(meta.parent), state(ListId(meta.snapshot.0)));
                    let parent = matches!(of.0, Some(ListState::There | ListState::Hidden));
                    if !parent || !matches!(of.1, Some(ListState::Snapshot | ListState::Leaving)) {
                        report.problems.push(format!(
                            "list {} is a layer: expected its list {} and its snapshot {}, found {of:?} (S3, S4)",
                            list.0, meta.parent.0, meta.snapshot.0
                        ));
                    }
                }
                (meta.blocks(), meta.block_bytes(), core.state.label(list), is_layer, meta.form.is_table())
            };
            let mut from = 0;
            while let Some(number) = self.section_from(list, from) {
                from = number + 1;
                let section = self.section_blocks(list, number).unwrap_or_else(|error| {
                    report.problems.push(error.to_string());
                    Vec::new()
                });
                for (block, place, _) in section {
                    report.blocks += 1;
                    report.live_bytes += u64::from(place.footprint());
                    if block >= blocks {
                        report.problems.push(format!("{name} block {block}: expected only blocks below {blocks} (I1)"));
                    }
                    if (place == Location::HOLE && is_layer) || (place.as_neighbours().is_some() && is_table) {
                        usage[0].1 += 1;
                        continue;
                    }
                    if is_table {
                        report
                            .problems
                            .push(format!("{name} row {block}: expected neighbours, found a place: {place:?}"));
                    }
                    if place.stored() > block_bytes || place.kind().is_none() {
                        report.problems.push(format!(
                            "{name} block {block}: expected at most {block_bytes} stored bytes, found {place:?}"
                        ));
                    }
                    let end = u64::from(place.offset()) + u64::from(place.footprint());
                    match usage.get_mut(index(place.zone())) {
                        Some(usage) if end <= u64::from(self.shape.zone_bytes) => {
                            usage.0 = usage.0.saturating_add(place.footprint());
                            usage.1 += 1;
                            places.push((place, list, block));
                        }
                        _ => report
                            .problems
                            .push(format!("{name} block {block}: expected a place on the disk, found {place:?}")),
                    }
                }
            }
        }
        places.sort_unstable();
        for pair in places.windows(2) {
            let ((a, list_a, block_a), (b, list_b, block_b)) = (pair[0], pair[1]);
            if a.zone() == b.zone() && a.offset() + a.footprint() > b.offset() {
                report.problems.push(format!(
                    "list {} block {block_a} and list {} block {block_b} share bytes at {b:?} (I2)",
                    list_a.0, list_b.0
                ));
            }
        }
        let core = self.core.lock();
        for (number, (zone, (live, blocks))) in core.state.zones.all.iter().zip(usage).enumerate() {
            if (zone.live, zone.blocks) != (live, blocks) {
                report.problems.push(format!(
                    "zone {number}: expected a usage of {live} bytes in {blocks} blocks, as the map has it, found {} in {} (I4)",
                    zone.live, zone.blocks
                ));
            }
            if live > 0 && !matches!(zone.holds, Holds::Main | Holds::Moved | Holds::Aside) {
                report.problems.push(format!(
                    "zone {number}: expected a zone of blocks, since {blocks} live in it, found one that holds {:?}",
                    zone.holds
                ));
            }
            if matches!(zone.holds, Holds::Main | Holds::Moved) {
                report.segments += 1;
            }
            if zone.holds == Holds::Aside {
                report.problems.push(format!("zone {number} is set aside: it holds damage"));
            }
        }
        Ok(())
    }

    /// Both copies of every object are where they should be, in zones of tables.
    fn check_tables(&self, report: &mut CheckReport) {
        let core = self.core.lock();
        let tables = core.state.table_bytes();
        for zone in tables.keys() {
            let holds = core.state.zones.all.get(index(*zone)).map(|zone| zone.holds);
            if !matches!(holds, Some(Holds::TableA | Holds::TableB)) {
                report.problems.push(format!(
                    "zone {zone}: expected a zone of tables, since the root names some in it, found {holds:?}"
                ));
            }
        }
        let keys: Vec<_> = core.state.directory.slots.iter().flatten().copied().collect();
        let mut objects: Vec<_> = keys
            .iter()
            .filter_map(|key| core.state.meta(*key))
            .flat_map(|meta| meta.objects().copied().collect::<Vec<_>>())
            .collect();
        objects.extend(core.state.directory.pages.iter().filter(|page| !page.is_none()));
        drop(core);
        for object in objects {
            for (n, problem) in crate::objects::verify(&*self.medium, &object) {
                let (zone, offset) = object.copies()[n];
                report.problems.push(format!(
                    "tables in zone {zone} at offset {offset} (copy {} of 2): {problem}",
                    len_u32(n) + 1
                ));
            }
        }
    }
}
