//! The commit of a unit whose records do not fit in one batch (R16).
//!
//! ```text
//!  without the lock            in one hold                                 in bounded steps
//!  ────────────────            ────────────────────────────────            ────────────────
//!  look up, build records ──>  build again what others changed      ──>    fold the overlay
//!  (some blocks a hold)        copy all records into the stream            into the tables
//!                              one store: the overlay is visible
//! ```
//! All its data has been spilled before. One such commit at a time: the next one first ends the folding.

use super::Unit;
use super::plan::Plan;
use super::shadow::Shadow;
use crate::disk::put::Again;
use crate::disk::space::Claim;
use crate::disk::{Core, Inner};
use crate::error::Result;
use crate::fold::{Entry, FOLD_STEP, Fold, Watch};
use crate::format::records::{Record, encode_put, put_bytes};
use crate::shape::BLOCK_CHARGE;
use crate::state::Kept;
use crate::types::{ListId, Location, Lsn, len_u32, len_u64};

/// So many bytes of records are copied into the stream at once.
const GROUP: usize = 32 << 10;

/// The records of a unit, built beforehand.
#[derive(Default)]
pub(super) struct Built {
    /// In the order of lists and blocks.
    entries: Vec<Entry>,
    puts: Vec<BuiltPut>,
    bytes: Vec<u8>,
}

/// One Put: some entries, and its bytes if they are still true.
struct BuiltPut {
    first: usize,
    count: usize,
    bytes: std::ops::Range<usize>,
    stale: bool,
}

/// Nobody else prepares a large commit meanwhile, and what others change is noted.
pub(super) struct Preparing<'a> {
    disk: &'a Inner,
    _one: crate::sync::MutexGuard<'a, ()>,
}

impl<'a> Preparing<'a> {
    pub fn new(disk: &'a Inner) -> Preparing<'a> {
        let one = disk.large.lock();
        disk.fold_all();
        disk.core.lock().state.watch = Some(Watch::default());
        Preparing { disk, _one: one }
    }
}

impl Drop for Preparing<'_> {
    fn drop(&mut self) {
        self.disk.core.lock().state.watch = None;
    }
}

impl Unit {
    /// Looks up where every block of the unit lies and lay, a step at a time, and builds the records.
    pub(super) fn build(&self, disk: &Inner) -> Result<Built> {
        let holes = self.hole_ranges();
        let mut built = Built::default();
        for (list, shadow) in self.lists.iter() {
            let mut blocks = shadow.blocks.iter().peekable();
            while blocks.peek().is_some() {
                let mut core = disk.core.lock();
                core.alive()?;
                for _ in 0..FOLD_STEP {
                    let Some((block, shadow)) = blocks.peek() else { break };
                    assert!(!matches!(shadow, Shadow::Data { .. }), "a large unit has spilled all its data");
                    match self.entry(&core, list, (*block, shadow), &holes, &mut built) {
                        Ok(()) => drop(blocks.next()),
                        Err(Again::Load(key)) => {
                            drop(core);
                            disk.load(key)?;
                            core = disk.core.lock();
                        }
                        Err(Again::Layer(list)) => {
                            drop(core);
                            disk.make_layer(list, Claim::Urgent)?;
                            core = disk.core.lock();
                        }
                        Err(_) => break,
                    }
                }
            }
        }
        let most = disk.core.lock().entries_max();
        built.gather(most);
        Ok(built)
    }

    /// As `build`, in one hold.
    fn build_now(&self, core: &Core) -> std::result::Result<Built, Again> {
        let holes = self.hole_ranges();
        let mut built = Built::default();
        for (list, shadow) in self.lists.iter() {
            for block in shadow.blocks.iter() {
                self.entry(core, list, block, &holes, &mut built)?;
            }
        }
        built.gather(core.entries_max());
        Ok(built)
    }

    /// What is to be committed for one block, as of now.
    fn entry(
        &self,
        core: &Core,
        list: ListId,
        (block, shadow): (u64, &Shadow),
        holes: &[(ListId, u64, u64)],
        built: &mut Built,
    ) -> std::result::Result<(), Again> {
        let (place, checksum) = match (shadow, self.lists.get(list).and_then(|shadow| shadow.kept)) {
            (Shadow::Kept, Some(own)) => core.state.lookup(own, block)?.expect("named because it is there"),
            _ => core.spilled[&self.id][&(self.spilled_for(list), block)],
        };
        let taken_over = matches!(shadow, Shadow::Kept);
        let behind = holes.partition_point(|(other, first, _)| (*other, *first) <= (list, block));
        let freed = holes[..behind].last().is_some_and(|(other, _, end)| *other == list && block < *end);
        // What the unit discards before it writes is freed by that.
        let before = core.state.place(list, block)?;
        let old = if freed { Location::NONE } else { before };
        if (!freed || before.is_none())
            && let [kept] = core.kept(list, std::iter::once(block))?[..]
        {
            let Kept { layer, block, place, checksum } = kept;
            let list = layer.expect("asked for before");
            let old = Location::NONE;
            built.entries.push(Entry {
                list,
                block,
                place,
                checksum,
                old,
                lsn: Lsn(0),
                reserved: if place == Location::HOLE { BLOCK_CHARGE } else { 0 },
                kept: true,
                taken_over: false,
                folded: false,
            });
        }
        let block_bytes = core.state.lists.get(&list).map_or(0, |list| u64::from(list.meta.block_bytes()));
        let reserved = block_bytes + BLOCK_CHARGE;
        let lsn = Lsn(0);
        built.entries.push(Entry {
            list,
            block,
            place,
            checksum,
            old,
            lsn,
            reserved,
            kept: false,
            taken_over,
            folded: false,
        });
        Ok(())
    }

    /// Builds again what others have changed since. If that is more than single blocks, everything is to be prepared
    /// once more; who is not `patient` any more does it here, in one hold.
    pub(super) fn refresh(&self, core: &mut Core, built: &mut Built, patient: bool) -> std::result::Result<(), Again> {
        let watch = core.state.watch.replace(Watch::default()).unwrap_or_default();
        let find =
            |(list, block)| built.entries.binary_search_by_key(&(list, block), |entry| (entry.list, entry.block));
        let entered = |list| self.besides.as_ref().map_or(list, |besides| besides.entered(list));
        let mut changed: Vec<usize> =
            watch.blocks.into_iter().filter_map(|(list, block)| find((entered(list), block)).ok()).collect();
        changed.dedup();
        // What others have kept for a snapshot is not to be kept again.
        if watch.much || (!changed.is_empty() && !core.state.versions.is_empty()) {
            crate::mark("unit: a large commit prepared again");
            if patient {
                return Err(Again::Space(0));
            }
            *built = self.build_now(core)?;
            return Ok(());
        }
        let holes = self.hole_ranges();
        for at in changed {
            crate::mark("unit: a block of a large commit changed while it was prepared");
            let mut again = Built::default();
            let (list, block) = (built.entries[at].list, built.entries[at].block);
            let shadow = self.lists.get(list).and_then(|shadow| shadow.blocks.get(block)).expect("built from it");
            self.entry(core, list, (block, shadow), &holes, &mut again)?;
            built.entries[at] = again.entries[0];
            let put = built.puts.partition_point(|put| put.first <= at) - 1;
            built.puts[put].stale = true;
        }
        Ok(())
    }

    /// Puts the built records into the stream and makes them visible. Zones are ready for all of it.
    pub(super) fn commit_built(&mut self, core: &mut Core, plan: &Plan, mut built: Built) {
        let room = |core: &mut Core, bytes: u32| {
            core.writer.make_room(0, bytes, true, 1).expect("zones were made ready for the whole commit");
            core.note_zones();
        };
        for (list, shadow) in self.lists.iter() {
            if let Some(bytes) = shadow.bytes {
                room(core, 512);
                core.write_record(&Record::List(self.resized(core, list, bytes)));
            }
        }
        let group_most = GROUP.min(crate::types::index(plan.group));
        let mut again = Vec::new();
        let mut at = 0;
        while at < built.puts.len() {
            let first = &built.puts[at];
            if first.stale {
                again.clear();
                again.extend(runs_of(&built.entries, first.first..first.first + first.count, usize::MAX));
                for (first, count) in again.drain(..) {
                    room(core, put_bytes(count));
                    let entries = &mut built.entries[first..first + count];
                    let lsn = core.writer.record(|into| encode(entries, into));
                    entries.iter_mut().for_each(|entry| entry.lsn = lsn);
                }
                at += 1;
                continue;
            }
            let start = first.bytes.start;
            let mut end = at + 1;
            while end < built.puts.len() && !built.puts[end].stale && built.puts[end].bytes.end - start <= group_most {
                end += 1;
            }
            let bytes = &built.bytes[start..built.puts[end - 1].bytes.end];
            room(core, len_u32(bytes.len()));
            let lsn = core.writer.records(bytes, len_u32(end - at));
            for (n, put) in built.puts[at..end].iter().enumerate() {
                for entry in &mut built.entries[put.first..put.first + put.count] {
                    entry.lsn = Lsn(lsn.0 + len_u64(n));
                }
            }
            at = end;
        }
        self.write_metas(core, room);
        let blocks = len_u64(built.entries.iter().filter(|entry| !entry.kept).count());
        if self.is_barrier() {
            for entry in built.entries.iter().filter(|entry| !entry.old.is_none()) {
                *self.besides.as_mut().expect("it is one").replaced.entry(entry.list).or_default() += 1;
            }
        } else {
            room(core, 24);
            core.write_record(&Record::Commit { unit: self.id, blocks });
        }
        // What lay in the unit's own lists is nobody's until it is folded, as what was spilled is.
        for entry in built.entries.iter().filter(|entry| entry.taken_over) {
            core.state.zones.get_mut(entry.place.zone()).shadow += entry.place.footprint();
        }
        if self.ending.is_some() {
            room(core, self.ending_bytes());
            self.write_ending(core);
        }
        core.counters.user_bytes += self.user_bytes;
        // From here on everybody sees it. The places are shadow until they are folded.
        self.has_spilled = false;
        self.ended = core.spilled.remove(&self.id);
        assert!(core.state.fold.is_none(), "one large commit at a time");
        core.state.fold = Fold::new(built.entries);
    }
}

impl Built {
    /// Gathers neighbours into Puts and encodes them.
    fn gather(&mut self, most: usize) {
        self.entries.sort_unstable_by_key(|entry| (entry.list, entry.block)); // Layers come behind their lists.
        for (first, count) in runs_of(&self.entries, 0..self.entries.len(), most) {
            let start = self.bytes.len();
            encode(&self.entries[first..first + count], &mut self.bytes);
            self.puts.push(BuiltPut { first, count, bytes: start..self.bytes.len(), stale: false });
        }
    }
}

fn encode(entries: &[Entry], into: &mut Vec<u8>) {
    let pairs: smallvec::SmallVec<[(Location, u32); 4]> =
        entries.iter().map(|entry| (entry.old, entry.checksum)).collect();
    encode_put(entries[0].list, entries[0].block, entries[0].place, &pairs, into);
}

/// Stretches of entries, at most `most` long, that are neighbours by block and by place.
fn runs_of(entries: &[Entry], range: std::ops::Range<usize>, most: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let first = at;
        let start = *entries.get(first).filter(|_| first < range.end)?;
        while at < range.end && at - first < most {
            let (step, entry) = (len_u32(at - first), &entries[at]);
            let joins = entry.list == start.list
                && entry.block == start.block + u64::from(step)
                && entry.place == start.place.step(step);
            if !joins {
                break;
            }
            at += 1;
        }
        Some((first, at - first))
    })
}
