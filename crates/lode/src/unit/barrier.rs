//! Barriers (*Mime*, barrier; architecture, section 7): what a unit has done so far outlives a crash, as a unit that is
//! still open.
//!
//! ```text
//!   list            what snapshots and readers see             unit (form *unit*): the image, see `image`
//!     │  shadow (form *shadow*): its blocks as of the barrier ──┘
//!     │     memory of the unit: blocks changed since
//! ```
//! A barrier is a commit into lists of the unit's own: a *shadow* for each list that it changed, and its image. So these
//! are tables with sections like any other (R17), a block is referred to once (R19), and a crash needs nothing taken
//! back: what a unit did behind its last barrier was never in any table (R9). The commit moves the places from the
//! shadows into the lists; nothing is copied.
//!
//! A unit reads: its memory; its shadow, but for what it dropped since the barrier (`fresh`); its holes; then what it
//! sees of everybody. All data is spilled before a barrier, so that its batch names the list and the unit, which stay
//! what they are (the cleaner asks for them).

use super::image::{self};
use super::shadow::{ListShadow, Shadow, Trimmed};
use super::{Reserved, Unit};
use crate::disk::Inner;
use crate::disk::space::Claim;
use crate::disk::units::Entry;
use crate::disk::volumes::LIST_RECORD;
use crate::error::{Error, ErrorKind, Result};
use crate::format::records::{Form, ListMeta, ListState, Record};
use crate::shape::BLOCK_CHARGE;
use crate::types::{Kind, ListId, Lsn, index, len_u64};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A client's cookie has at most so many bytes. That of a unit that receives a stream has more (`format::stream`).
pub(crate) const COOKIE_BYTES_MAX: usize = 64;
/// Blocks of an image.
const IMAGE_BLOCK: u32 = 512;

/// What a unit has that is known by its label, or has a barrier.
#[derive(Default)]
pub(crate) struct Barrier {
    pub label: String,
    /// When it began, and until when it is kept if nobody takes it up; the disk has no clock.
    pub made: u64,
    pub until: u64,
    /// Its list; zero before the first barrier.
    pub list: ListId,
    pub cookie: Vec<u8>,
    pub(super) image: Vec<u8>,
    /// At most so many blocks are in each shadow, and what the shadow's record says of that.
    pub(super) counts: BTreeMap<ListId, (u64, u64)>,
}

/// What else a commit does.
#[derive(Default)]
pub(super) struct Besides {
    /// It is a barrier: these are the unit's own lists, and it stays open.
    pub is_barrier: bool,
    /// A block that others change under the first list is entered under the second: lists and shadows.
    pub aliases: Vec<(ListId, ListId)>,
    /// Shadows that are emptied.
    pub emptied: Vec<ListId>,
    /// Records of lists.
    pub metas: Vec<ListMeta>,
    /// How many rows of ordered lists the unit may change; not zero if it names any of their numbers.
    pub rows: u32,
    /// How many blocks of each list were there before.
    pub replaced: BTreeMap<ListId, u64>,
}

impl Besides {
    /// What is entered for what others call by this name.
    pub fn entered(&self, list: ListId) -> ListId {
        self.aliases.iter().find(|(other, _)| *other == list).map_or(list, |(_, entered)| *entered)
    }

    /// The list that a block was spilled for.
    pub fn spilled_for(&self, list: ListId) -> ListId {
        if !self.is_barrier {
            return list;
        }
        self.aliases.iter().find(|(_, shadow)| *shadow == list).map_or(list, |(list, _)| *list)
    }

    /// Bytes of the records of lists.
    pub fn bytes(&self) -> u64 {
        len_u64(self.metas.len()) * u64::from(LIST_RECORD)
    }
}

impl Barrier {
    /// Of a unit that has none yet.
    pub fn labelled(label: String, made: u64, until: u64) -> Barrier {
        Barrier { label, made, until, ..Barrier::default() }
    }
}

impl Unit {
    /// What it did so far outlives a crash from the next flush on, as a unit that is still open, and that
    /// `Disk::units` lists with this cookie (at most 64 bytes). Never waits for the device. `Full`: there is no space
    /// for its records. Gives back a position to flush up to.
    pub fn barrier(&mut self, cookie: &[u8]) -> Result<Lsn> {
        if cookie.len() > COOKIE_BYTES_MAX {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("a cookie of {} bytes: expected at most {COOKIE_BYTES_MAX}", cookie.len()),
            ));
        }
        self.barrier_as(cookie)
    }

    /// The same, with what a unit that receives a stream says of it.
    pub(crate) fn barrier_as(&mut self, cookie: &[u8]) -> Result<Lsn> {
        self.alive()?;
        if !self.arena.is_empty() {
            self.spill(Claim::Data).inspect_err(|_| self.broken = true)?;
        }
        self.own_lists()?;
        let barrier = self.barrier.as_deref().expect("made with its lists");
        let ordered = self.ordered.as_deref();
        let bytes = image::encode(cookie, barrier, &self.options, &self.lists, ordered, &self.read.lock());
        if len_u64(bytes.len()) > image::BYTES_MAX {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "a barrier that keeps {} bytes besides blocks: expected at most {}",
                    bytes.len(),
                    image::BYTES_MAX
                ),
            ));
        }
        let unchanged = |shadow: &ListShadow| shadow.blocks.is_empty() && shadow.fresh.is_empty();
        if bytes == barrier.image && self.lists.iter().all(|(_, shadow)| unchanged(shadow)) {
            return Ok(crate::disk::position(&*self.disk.writable()?)); // It is what it was at the last one.
        }
        let mut carrier = self.carrier(&bytes)?;
        crate::mark("unit: barrier");
        let lsn = carrier.commit_now().inspect_err(|_| self.broken = true)?;
        self.has_spilled = false;
        let barrier = self.barrier.as_mut().expect("made with its lists");
        (barrier.image, barrier.cookie) = (bytes, cookie.to_vec());
        let besides = carrier.besides.as_deref().expect("a barrier has");
        // What was in a shadow already has its promise for what snapshots see twice.
        let mut twice = Reserved::default();
        for (own, replaced) in &besides.replaced {
            if let Some(counts) = barrier.counts.get_mut(own) {
                counts.0 = counts.0.saturating_sub(*replaced);
                twice.blocks += *replaced;
            }
        }
        twice.blocks = twice.blocks.min(self.reserved.blocks);
        self.reserved -= twice;
        self.disk.core.lock().reserved -= twice;
        for meta in &besides.metas {
            if let Some(counts) = barrier.counts.get_mut(&meta.list) {
                counts.1 = meta.cut;
            }
        }
        let entry = Entry::of(barrier);
        let entry = Entry { frozen: self.sees().is_some(), ..entry };
        self.disk.units.lock().insert(self.id, entry);
        Ok(lsn)
    }

    /// The position that the unit's user gave to its last barrier.
    pub fn cookie(&self) -> &[u8] {
        self.barrier.as_ref().map_or(&[], |barrier| &barrier.cookie)
    }

    /// What its entry among the open units says of its last barrier.
    pub(crate) fn told(&self) -> (Vec<u8>, u64, bool) {
        let until = self.barrier.as_ref().map_or(0, |barrier| barrier.until);
        (self.cookie().to_vec(), until, self.sees().is_some())
    }

    /// The name by which it is taken up again.
    pub fn label(&self) -> Option<&str> {
        self.barrier.as_ref().map(|barrier| &barrier.label[..]).filter(|label| !label.is_empty())
    }

    /// Makes the lists that a barrier needs. They count for nothing until it is whole.
    fn own_lists(&mut self) -> Result<()> {
        let unit = self.id;
        let snapshot = self.frozen.unwrap_or_default();
        let barrier = self.barrier.get_or_insert_default();
        if barrier.list == ListId(0) {
            let (name, made) = (barrier.label.clone(), barrier.made);
            let shift = IMAGE_BLOCK.min(self.disk.shape.block_bytes_max()).ilog2();
            barrier.list = self.disk.own_list(|list| ListMeta {
                name,
                made,
                snapshot,
                cut: unit.0,
                block_shift: u8::try_from(shift).expect("at most 16"),
                ..ListMeta::new(list, Form::Unit)
            })?;
        }
        let mut gone = Vec::new();
        for (list, shadow) in self.lists.iter_mut() {
            if shadow.kept.is_none() && !shadow.blocks.is_empty() {
                let meta = self.disk.core.lock().check_list(list, 0).ok().cloned();
                let Some(meta) = meta else {
                    gone.push(list);
                    continue;
                };
                let bytes = crate::disk::volumes::most_bytes(&self.disk.shape, meta.block_bytes());
                let made = self.disk.own_list(|own| ListMeta {
                    parent: list,
                    made: unit.0,
                    block_shift: meta.block_shift,
                    bytes,
                    ..ListMeta::new(own, Form::Shadow)
                })?;
                shadow.kept = Some(made);
            }
        }
        // Of a list that is gone meanwhile nothing can be committed: its blocks need not be kept.
        for list in gone {
            self.drop_blocks(list, 0, u64::MAX);
        }
        Ok(())
    }

    /// A unit that commits what this one has in memory into its own lists.
    fn carrier(&mut self, image: &[u8]) -> Result<Unit> {
        let disk = Arc::clone(&self.disk);
        let mut carrier = Unit::with_id(Arc::clone(&disk), self.id);
        carrier.besides = Some(Box::new(Besides { is_barrier: true, ..Besides::default() }));
        let mut besides = Besides { is_barrier: true, ..Besides::default() };
        let barrier = self.barrier.as_mut().expect("its lists are made");
        let own = disk.core.lock().check_list(barrier.list, 0)?.block_bytes();
        let old = barrier.image.chunks(index(own)).map(Some).chain(std::iter::repeat(None));
        let changed = image.chunks(index(own)).zip(old).enumerate().filter(|(_, (new, old))| *old != Some(*new));
        let changed: Vec<(u64, Vec<u8>)> = changed
            .map(|(n, (new, _))| {
                let mut block = new.to_vec();
                block.resize(index(own), 0);
                (len_u64(n), block)
            })
            .collect();
        for (n, _) in &changed {
            carrier.reserve(barrier.list, own.into(), *n, n + 1)?; // The last step that may find the disk full.
        }
        for (n, block) in &changed {
            carrier.shadow(barrier.list, *n, block, Kind::Raw);
        }
        let bytes = len_u64(image.len());
        let listed = carrier.lists.of(barrier.list);
        // Its last block is whole as it is.
        (listed.bytes, listed.trimmed) =
            (Some(bytes), Some(Box::new(Trimmed { bytes, block: u64::MAX, tail: Vec::new() })));
        let rows = self.ordered.as_ref().map_or(Reserved::default(), |lists| lists.promised);
        let named = self.ordered.as_ref().is_some_and(|lists| !lists.log.is_empty() || !lists.taken.is_empty());
        let rows_max = rows.blocks.max(rows.bytes / BLOCK_CHARGE).max(named.into());
        besides.rows = u32::try_from(rows_max).unwrap_or(u32::MAX);
        for (list, shadow) in self.lists.iter_mut() {
            let Some(own) = shadow.kept else { continue };
            let into = carrier.lists.of(own);
            into.blocks = std::mem::take(&mut shadow.blocks);
            into.holes = std::mem::take(&mut shadow.fresh);
            besides.aliases.push((list, own));
            let counts = barrier.counts.entry(own).or_default();
            counts.0 += len_u64(into.blocks.len());
            if counts.0 > counts.1 {
                // The record says somewhat more, so that it is not written each time.
                let mut meta = disk.core.lock().check_list(own, 0)?.clone();
                meta.cut = counts.0 + counts.0 / 4;
                besides.metas.push(meta);
            }
        }
        // What the blocks took goes over; what their commit may need for what snapshots see stays.
        let blocks = Reserved { bytes: self.reserved.bytes - rows.bytes, blocks: 0 };
        self.reserved -= blocks;
        self.drawn = Reserved::default();
        carrier.reserved += blocks;
        carrier.has_spilled = self.has_spilled;
        carrier.besides = Some(Box::new(besides));
        Ok(carrier)
    }

    /// Before a commit: what lies in the shadows is named among the unit's blocks.
    pub(super) fn gather_kept(&mut self) -> Result<()> {
        self.gather().inspect_err(|_| self.scatter_kept())
    }

    fn gather(&mut self) -> Result<()> {
        let Some(barrier) = self.barrier.as_ref().filter(|barrier| barrier.list != ListId(0)) else { return Ok(()) };
        let disk = Arc::clone(&self.disk);
        disk.fold_all(); // A large barrier may wait there.
        let mut besides = Besides::default();
        let end = |core: &crate::disk::Core, list| {
            let meta = &core.state.lists[&list].meta;
            ListMeta { state: ListState::Draining, ..meta.clone() }
        };
        besides.metas.push(end(&disk.core.lock(), barrier.list));
        for (list, shadow) in self.lists.iter_mut() {
            let Some(own) = shadow.kept else { continue };
            besides.metas.push(end(&disk.core.lock(), own));
            besides.aliases.push((own, list));
            besides.emptied.push(own);
            let mut from = 0;
            while let Some(number) = disk.section_from(own, from) {
                from = number + 1;
                for (block, _, _) in disk.section_blocks(own, number)? {
                    if !shadow.blocks.contains(block) && !shadow.is_fresh(block) {
                        shadow.blocks.insert(block, Shadow::Kept);
                    }
                }
            }
        }
        self.besides = Some(Box::new(besides));
        Ok(())
    }

    /// After a commit that failed.
    pub(super) fn scatter_kept(&mut self) {
        self.besides = None;
        for (_, shadow) in self.lists.iter_mut().filter(|(_, shadow)| shadow.kept.is_some()) {
            shadow.blocks.retain(|shadow| !matches!(shadow, Shadow::Kept));
        }
    }

    /// Which of these blocks are read from the unit's shadow of the list; empty: none.
    pub(super) fn in_shadow(&self, list: ListId, first: u64, count: usize) -> Result<SmallVec<[bool; 8]>> {
        let Some((shadow, own)) = self.lists.get(list).and_then(|shadow| Some((shadow, shadow.kept?))) else {
            return Ok(SmallVec::new());
        };
        let asked = |block| match shadow.blocks.get(block) {
            Some(found) => matches!(found, Shadow::Kept),
            None => !shadow.is_fresh(block),
        };
        let found =
            self.disk.which(first, count, |state, block| Ok(asked(block) && !state.place(own, block)?.is_none()))?;
        Ok(if found.contains(&true) { found } else { SmallVec::new() })
    }

    /// Whether the unit has a version of a block: in memory, or as of its last barrier.
    pub(super) fn holds(&self, list: ListId, block: u64) -> Result<bool> {
        let in_memory = self.lists.get(list).is_some_and(|shadow| shadow.blocks.contains(block));
        Ok(in_memory || self.in_shadow(list, block, 1)?.contains(&true))
    }
}

impl Inner {
    /// Makes a list of a unit's own. `Full`.
    fn own_list(&self, meta: impl FnOnce(ListId) -> ListMeta) -> Result<ListId> {
        self.with_room(0, LIST_RECORD, Claim::Urgent, |core| {
            if !core.promises(self.shape.list_charge()) {
                return Err(self.full(core, self.shape.list_charge()));
            }
            let list = ListId(core.state.next_list);
            core.write_record(&Record::List(meta(list)));
            Ok(list)
        })?
    }
}
