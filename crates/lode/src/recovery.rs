//! Recovery: from a medium to a state. Reads and decides; writes nothing.
//!
//! First the newest root (R25). Then the directory and the small tables; map sections stay on the medium (R24). Then the
//! segments of the record stream since the replay start, and where the stream ends. Last the records since, applied.
//!
//! ```text
//! segment before the witness ── footer valid ─────────────> its records count, unread data and all
//!                            └─ footer lost ── walk ──────> the same, batch by batch; a gap is damage
//! segment behind the witness ── walk, verify every block ─> up to the first batch that is not whole
//! end of the stream: in front of the first gap, less an operation that goes on behind it
//! ```
//! A [`Recovered`] is a half-made disk: it has no writer, and only `open` turns it into one.

use crate::error::{Error, ErrorKind, Result};
use crate::format::Cursor;
use crate::format::header::{BatchKind, NO_ZONE};
use crate::format::object::{DIRECTORY, IMAGE, ObjectRef, SectionEntry};
use crate::format::records::{ListMeta, Record, run_fits};
use crate::format::root::{RootImage, RootSegment};
use crate::log::reader::{Batch, Reader, Scanned, records_of};
use crate::map::{MapSection, SectionMeta, Slot};
use crate::objects;
use crate::planted::{self, Bug};
use crate::roots::{self, RootCursor};
use crate::shape::{SECTIONS_MAX, Shape};
use crate::state::{SectionKey, State};
use crate::types::{ListId, Lsn, SegmentId, Sequence, index};
use crate::zones::Zone;
use lode_media::Medium;

/// A state and where the log goes on. See the file's head.
pub(crate) struct Recovered {
    pub shape: Shape,
    pub disk: u128,
    pub root: RootImage,
    pub cursor: RootCursor,
    pub state: State,
    /// The sequence and the record that come next.
    pub sequence: Sequence,
    pub lsn: Lsn,
    /// The segments that replay may need.
    pub segments: Vec<RootSegment>,
    /// The log ends before what was durable: what is missing.
    pub damage: Option<String>,
    /// How many records were read.
    pub replayed: u64,
    /// Zones whose batches do not count, but witness what the newest root relies on: not to be erased before the next one.
    pub dropped: Vec<u32>,
}

/// Recovers what a medium holds.
pub(crate) fn recover(medium: &dyn Medium) -> Result<Recovered> {
    let found = roots::find(medium)?;
    let shape = Shape::new(medium.geometry())?;
    let mut state = State::new(shape);
    read_directory(medium, &shape, &found.image, &mut state)?;
    state.next_list = state.next_list.max(found.image.root.next_list);
    let reader = Reader { medium, shape, disk: found.disk };
    let log = read_log(&reader, &found.image)?;
    let mut recovered = Recovered {
        shape,
        disk: found.disk,
        cursor: found.cursor,
        state,
        sequence: log.end,
        lsn: Lsn(found.image.root.replay_lsn),
        segments: log.segments,
        damage: log.damage,
        root: found.image,
        replayed: 0,
        dropped: log.dropped,
    };
    recovered.replay(&log.batches)?;
    Ok(recovered)
}

fn read_directory(medium: &dyn Medium, shape: &Shape, image: &RootImage, state: &mut State) -> Result<()> {
    let mut maps = Vec::new();
    for (number, page) in image.pages.iter().enumerate() {
        state.directory.pages.push(*page);
        let first_slot = u32::try_from(number).expect("fewer pages than 2^32") * shape.slots_per_page;
        state.directory.slots.resize(index(first_slot + shape.slots_per_page), None);
        if page.is_none() {
            continue;
        }
        let pages = objects::read_whole(medium, page, DIRECTORY, &format!("directory page {number}"))?;
        for (_, bytes) in pages {
            for (entry, deltas) in directory_entries(&bytes).ok_or_else(|| damaged_page(number))? {
                let key = match entry.table {
                    1 => SectionKey::Map(ListId(entry.list), entry.number),
                    2 => SectionKey::Lists(entry.number),
                    3 => SectionKey::Zones(entry.number),
                    _ => return Err(damaged_page(number)),
                };
                if !(first_slot..first_slot + shape.slots_per_page).contains(&entry.slot) {
                    return Err(damaged_page(number));
                }
                state.directory.slots[index(entry.slot)] = Some(key);
                let image = ObjectRef {
                    zone_a: entry.zone_a,
                    offset_a: entry.offset_a,
                    zone_b: entry.zone_b,
                    offset_b: entry.offset_b,
                    bytes: entry.bytes,
                    checksum: entry.checksum,
                };
                let meta = SectionMeta {
                    slot: Some(entry.slot),
                    lsn: Lsn(entry.lsn),
                    dirty: None,
                    whole: false,
                    image,
                    deltas,
                };
                match key {
                    SectionKey::Map(list, section) => maps.push((list, section, meta, entry.leaves)),
                    SectionKey::Lists(page) => {
                        read_lists(medium, &meta, page, state)?;
                        state.list_pages.insert(page, meta);
                    }
                    SectionKey::Zones(page) => {
                        read_zones(medium, shape, &meta, page, state)?;
                        *state.zone_pages.get_mut(index(page)).ok_or_else(|| damaged_page(number))? = meta;
                    }
                }
            }
        }
    }
    let slots = &state.directory.slots;
    state.directory.free =
        (0..slots.len()).filter(|slot| slots[*slot].is_none()).map(|slot| u32::try_from(slot).expect("few")).collect();
    state.zones.sum_up();
    for (list, number, meta, leaves) in maps {
        if u64::from(number) >= SECTIONS_MAX {
            return Err(Error::corrupt("the directory", format!("a section number below {SECTIONS_MAX}"), number));
        }
        let mut section = MapSection::new(shape.section_leaves());
        for (n, slot) in section.slots.iter_mut().enumerate() {
            if leaves >> n & 1 == 1 {
                *slot = Slot::Cold;
            }
        }
        section.meta = meta;
        state.adopt_section(list, number, section);
    }
    Ok(())
}

fn damaged_page(number: usize) -> Error {
    Error::corrupt(format!("directory page {number}"), "section entries", "bytes that are none")
}

/// The entries of a directory page.
pub(crate) fn directory_entries(bytes: &[u8]) -> Option<Vec<(SectionEntry, Vec<ObjectRef>)>> {
    let mut cursor = Cursor::new(bytes);
    let mut entries = Vec::new();
    while !cursor.is_empty() {
        let entry = SectionEntry::decode(cursor.take(SectionEntry::SIZE)?);
        let mut deltas = Vec::new();
        for _ in 0..entry.deltas {
            deltas.push(ObjectRef::decode(cursor.take(ObjectRef::SIZE)?));
        }
        entries.push((entry, deltas));
    }
    Some(entries)
}

fn read_lists(medium: &dyn Medium, meta: &SectionMeta, page: u32, state: &mut State) -> Result<()> {
    let what = format!("page {page} of the lists");
    for (_, bytes) in objects::read_whole(medium, &meta.image, IMAGE, &what)? {
        let mut cursor = Cursor::new(&bytes);
        while !cursor.is_empty() {
            let list =
                ListMeta::decode(&mut cursor).ok_or_else(|| Error::corrupt(&what, "lists", "bytes that are none"))?;
            state.install_list(list);
        }
    }
    Ok(())
}

fn read_zones(medium: &dyn Medium, shape: &Shape, meta: &SectionMeta, page: u32, state: &mut State) -> Result<()> {
    let what = format!("page {page} of the zones");
    for (_, bytes) in objects::read_whole(medium, &meta.image, IMAGE, &what)? {
        let mut cursor = Cursor::new(&bytes);
        let mut number = u64::from(page) * u64::from(shape.zones_per_page);
        while !cursor.is_empty() {
            let zone =
                Zone::decode(&mut cursor).ok_or_else(|| Error::corrupt(&what, "zones", "bytes that are none"))?;
            if zone.live > shape.zone_bytes {
                return Err(Error::corrupt(
                    &what,
                    format!("at most {} live bytes in zone {number}", shape.zone_bytes),
                    zone.live,
                ));
            }
            if number >= u64::from(shape.zones) {
                return Err(Error::corrupt(&what, format!("at most {} zones", shape.zones), "more"));
            }
            state.zones.all[usize::try_from(number).expect("below the number of zones")] = zone;
            number += 1;
        }
    }
    Ok(())
}

/// The record stream as far as it counts.
struct ReadLog {
    batches: Vec<(u32, SegmentId, Batch)>,
    segments: Vec<RootSegment>,
    end: Sequence,
    damage: Option<String>,
    dropped: Vec<u32>,
}

struct Candidate {
    span: RootSegment,
    scanned: Scanned,
}

impl Candidate {
    fn last(&self) -> Option<&Batch> {
        self.scanned.batches.last()
    }
}

/// Reads the segments from the replay start on, as far as they can be followed.
fn follow(reader: &Reader<'_>, root: &RootImage) -> Result<(Vec<Candidate>, Sequence, Option<u64>)> {
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut witness = Sequence(root.root.durable);
    for span in &root.segments {
        candidates.push(read_segment(reader, *span)?);
    }
    let current = |span: &RootSegment| span.end == u64::MAX;
    let mut next = match candidates.last() {
        Some(last) if current(&last.span) => {
            last.last().map_or([root.root.next_a, root.root.next_b], |batch| batch.next)
        }
        _ => [root.root.next_a, root.root.next_b],
    };
    loop {
        // The stream goes on in the next zone only when the last segment was sealed, or the epoch has none yet.
        let expected = match candidates.last() {
            Some(last) if current(&last.span) => match last.last() {
                Some(batch) if batch.kind == BatchKind::Footer => batch.sequence.next(),
                Some(batch) => batch.sequence.next().next(),
                None => break,
            },
            _ => Sequence(root.root.epoch_start),
        };
        let Some(span) = first_of(reader, next[0], expected, root.root.epoch)? else { break };
        if candidates.iter().any(|candidate| candidate.span.zone == span.zone && candidate.span.segment == span.segment)
        {
            break;
        }
        let candidate = read_segment(reader, span)?;
        if !mend(candidates.last_mut().filter(|last| current(&last.span)), &candidate, candidate.scanned.witness) {
            break;
        }
        next = candidate.last().map_or([NO_ZONE; 2], |batch| batch.next);
        candidates.push(candidate);
    }
    for candidate in &candidates {
        witness = witness.max(candidate.scanned.witness);
    }
    for n in 1..candidates.len() {
        let (before, behind) = candidates.split_at_mut(n);
        mend(before.last_mut(), &behind[0], witness);
    }
    // R11: what lies in the announced zones may witness more than what was found so far.
    let mut to_look: Vec<u32> = next.to_vec();
    let end = candidates.last().map_or(Sequence(root.root.epoch_start), |last| {
        last.last().map_or(Sequence(last.span.first), |batch| batch.sequence.next())
    });
    let mut looked = std::collections::BTreeSet::new();
    let newer = std::cell::Cell::new(None);
    while let Some(zone) = to_look.pop() {
        if zone < crate::shape::ROOT_ZONES || zone >= reader.shape.zones || !looked.insert(zone) {
            continue;
        }
        let bytes = reader.zone(zone);
        let mut scanned = Scanned::default();
        let of_interest = |header: &crate::format::header::Header| {
            let epoch = SegmentId(header.segment).epoch();
            if epoch > root.root.epoch {
                crate::mark("recovery: batch of an epoch newer than the root");
                // Its root was durable before its first batch was written, and is gone.
                newer.set(newer.get().max(Some(epoch)));
            }
            epoch == root.root.epoch && header.sequence >= end.0
        };
        reader.look_beyond(&bytes, zone, 0, of_interest, &mut scanned);
        if scanned.beyond.is_some() {
            crate::mark("recovery: announced zone goes on behind the end");
            witness = witness.max(scanned.witness);
            if let Ok((header, _)) = reader.header(&bytes, zone, 0) {
                to_look.extend([header.next_a, header.next_b]);
            }
        }
    }
    Ok((candidates, witness, newer.get()))
}

/// A sealed segment whose footer cannot be read, although it was durable, has lost nothing: its batches hold all that the
/// footer repeats (R12). Where the next segment goes on right behind it, the footer is put back as an empty one. False: the
/// segment is not sealed.
fn mend(before: Option<&mut Candidate>, next: &Candidate, witness: Sequence) -> bool {
    let Some(before) = before else { return true };
    let Some(last) = before.last() else { return true };
    if last.kind == BatchKind::Footer {
        return true;
    }
    // Within an epoch no segment follows another without a footer between them; where an epoch ended there is none.
    if SegmentId(before.span.segment).epoch() != SegmentId(next.span.segment).epoch() {
        return false;
    }
    let sequence = last.sequence.next();
    if next.span.first != sequence.next().0 || witness <= sequence {
        return false;
    }
    crate::mark("recovery: footer lost, its batches are there");
    let footer = Batch {
        kind: BatchKind::Footer,
        sequence,
        offset: last.offset + last.total,
        total: 0,
        first_lsn: Lsn(last.first_lsn.0 + u64::from(last.count)),
        count: 0,
        continues: false,
        records: Vec::new(),
        next: last.next,
    };
    before.scanned.batches.push(footer);
    true
}

/// The segment that starts in `zone` with this sequence in this epoch, if it does.
fn first_of(reader: &Reader<'_>, zone: u32, expected: Sequence, epoch: u64) -> Result<Option<RootSegment>> {
    if zone < crate::shape::ROOT_ZONES || zone >= reader.shape.zones {
        return Ok(None);
    }
    let mut bytes = reader.zone(zone);
    if reader.header(&bytes, zone, 0).is_err() {
        crate::mark("recovery: announced zone holds no next segment");
        bytes = reader.zone(zone); // Read again, as above.
    }
    let found = match reader.header(&bytes, zone, 0) {
        Ok((header, BatchKind::Main))
            if header.sequence == expected.0
                && (SegmentId(header.segment).epoch() == epoch || planted::is(Bug::OldBatchAccepted)) =>
        {
            Some(RootSegment {
                zone,
                segment: header.segment,
                first: header.sequence,
                end: u64::MAX,
                first_lsn: header.first_lsn,
                offset: 0,
            })
        }
        _ => reader.any_footer(zone)?.filter(|(segment, _)| segment.epoch() == epoch).and_then(|(segment, scanned)| {
            // The first batch is ruined, and the footer is there: a sealed segment (R12).
            let first = scanned.batches.first().filter(|first| first.sequence == expected)?;
            crate::mark("recovery: segment known by its footer");
            Some(RootSegment {
                zone,
                segment: segment.0,
                first: first.sequence.0,
                end: u64::MAX,
                first_lsn: first.first_lsn.0,
                offset: 0,
            })
        }),
    };
    if found.is_none() {
        bytes.readable(0, reader.shape.head)?; // What cannot be read may be the next segment.
    }
    Ok(found)
}

fn read_segment(reader: &Reader<'_>, span: RootSegment) -> Result<Candidate> {
    let segment = SegmentId(span.segment);
    let footer = reader.footer(span.zone, segment)?.map(|mut scanned| {
        scanned.batches.retain(|batch| batch.sequence.0 >= span.first);
        scanned
    });
    let scanned = match footer {
        Some(scanned) if scanned.batches.first().is_some_and(|batch| batch.sequence.0 == span.first) => scanned,
        _ => {
            crate::mark("recovery: segment walked");
            // The end of the log decides what is lost: a read that went wrong must not look like it, so it is read again.
            let walk = || {
                let bytes = reader.zone_from(span.zone, span.offset);
                reader.walk(&bytes, span.zone, segment, Sequence(span.first), span.offset)
            };
            let (first, second) = (walk()?, walk()?);
            if second.batches.len() > first.batches.len() { second } else { first }
        }
    };
    // What lies behind the end that a root has recorded is void, and so is what it witnesses (R9).
    let witness = scanned.witness.min(Sequence(span.end));
    Ok(Candidate { span, scanned: Scanned { witness, ..scanned } })
}

/// Decides what counts. See the drawing in the file's head.
fn read_log(reader: &Reader<'_>, root: &RootImage) -> Result<ReadLog> {
    let (candidates, witness, newer) = follow(reader, root)?;
    let mut batches: Vec<(u32, SegmentId, Batch)> = Vec::new();
    let mut segments = Vec::new();
    let start = candidates.first().map_or(root.root.epoch_start, |first| first.span.first);
    let mut physical = Sequence(start);
    let mut why = String::from("no batch there");
    'segments: for candidate in candidates {
        let Candidate { span, mut scanned } = candidate;
        if span.first != physical.0 {
            crate::mark("recovery: segment out of turn");
            why = format!("the segment in zone {} begins with sequence {}", span.zone, span.first);
            break;
        }
        let last = scanned.batches.last().map_or(physical, |batch| batch.sequence);
        if last >= witness || !scanned.from_footer {
            let bytes = reader.zone_from(span.zone, span.offset);
            if scanned.from_footer {
                crate::mark("recovery: sealed segment behind the witness");
                let walked =
                    reader.walk(&bytes, span.zone, SegmentId(span.segment), Sequence(span.first), span.offset)?;
                // Before the witness the footer is as good; behind it only what lies there whole counts.
                let from = walked.batches.len();
                let rest: Vec<Batch> =
                    scanned.batches.drain(..).skip(from).take_while(|batch| batch.sequence < witness).collect();
                scanned = walked;
                scanned.batches.extend(rest);
            }
            for (n, batch) in scanned.batches.iter().enumerate() {
                if batch.sequence >= witness && batch.sequence.0 < span.end {
                    bytes.readable(batch.offset, batch.offset + batch.total)?;
                }
                if batch.sequence >= witness
                    && batch.sequence.0 < span.end
                    && !planted::is(Bug::ChecksumMissesData)
                    && let Err(problem) = reader
                        .verify_data(&bytes, span.zone, batch)
                        .or_else(|_| reader.verify_data(&reader.zone_from(span.zone, span.offset), span.zone, batch))
                {
                    crate::mark("recovery: block torn behind the witness");
                    why = format!("zone {} offset {}: {problem}", span.zone, batch.offset);
                    scanned.batches.truncate(n);
                    break;
                }
            }
        }
        segments.push(span);
        let mut whole = false;
        for batch in scanned.batches {
            if batch.sequence.0 >= span.end {
                break;
            }
            if batch.sequence != physical {
                crate::mark("recovery: gap between batches");
                why = format!(
                    "zone {} offset {}: expected sequence {}, found {}",
                    span.zone, batch.offset, physical.0, batch.sequence.0
                );
                break 'segments;
            }
            physical = physical.next();
            whole = batch.kind == BatchKind::Footer;
            batches.push((span.zone, SegmentId(span.segment), batch));
        }
        if span.end != u64::MAX {
            if physical.0 != span.end {
                crate::mark("recovery: ended segment cut short");
                break;
            }
        } else if !whole {
            break;
        }
    }
    let durable =
        witness.0.max(segments.iter().filter(|span| span.end != u64::MAX).map(|span| span.end).max().unwrap_or(0));
    let damage = (physical.0 < durable).then(|| {
        crate::mark("recovery: log ends before what was durable");
        format!("the log is damaged: expected every batch below sequence {durable}, which was durable; found them only below {} ({why})", physical.0)
    });
    let damage = damage.or_else(|| {
        let epoch = newer?;
        crate::mark("recovery: newest root lost");
        Some(format!(
            "the newest roots are damaged: expected a root of epoch {epoch}, which wrote a batch, found none newer than epoch {}",
            root.root.epoch
        ))
    });
    // An operation that goes on behind the end does not count.
    while batches.last().is_some_and(|(_, _, batch)| batch.continues) {
        crate::mark("recovery: operation without its end dropped");
        batches.pop();
    }
    let end = batches.last().map_or(Sequence(start), |(_, _, batch)| batch.sequence.next());
    let dropped = segments.iter().filter(|span| span.first >= end.0).map(|span| span.zone).collect();
    segments.retain(|span| span.first < end.0);
    Ok(ReadLog { batches, segments, end, damage, dropped })
}

impl Recovered {
    fn replay(&mut self, batches: &[(u32, SegmentId, Batch)]) -> Result<()> {
        let mut expected: Option<Lsn> = None;
        let mut epoch = 0;
        for (zone, segment, batch) in batches {
            if batch.kind == BatchKind::Footer {
                continue;
            }
            let place = format!("zone {zone} offset {}", batch.offset);
            // A repair leaves out the numbers of what it gave up (see `number_on`).
            let goes_on =
                |expected: Lsn| expected == batch.first_lsn || (segment.epoch() > epoch && expected < batch.first_lsn);
            if let Some(expected) = expected
                && !goes_on(expected)
            {
                return Err(Error::corrupt(
                    place,
                    format!("record {}", expected.0),
                    format!("record {}", batch.first_lsn.0),
                ));
            }
            epoch = segment.epoch();
            if batch.first_lsn.0 >= roots::NUMBERS_MAX {
                return Err(Error::corrupt(place, "a record number that a disk can reach", batch.first_lsn.0));
            }
            if batch.offset == 0 {
                self.state.zone_opened(*zone, crate::zones::Holds::Main, *segment, batch.first_lsn);
            }
            let records = records_of(batch)
                .ok_or_else(|| Error::corrupt(&place, "records of this version", "bytes that are none"))?;
            let mut lsn = batch.first_lsn;
            for record in &records {
                self.validate(record).map_err(|what| Error::corrupt(&place, "a record that has a meaning", what))?;
                if lsn.0 >= self.root.root.replay_lsn {
                    self.state.apply(record, lsn);
                    self.replayed += 1;
                }
                lsn = Lsn(lsn.0 + 1);
            }
            expected = Some(lsn);
            self.state.zones.get_mut(*zone).records_end = lsn;
        }
        self.state.name_lists();
        if let Some(lsn) = expected {
            self.lsn = lsn;
        } else {
            crate::mark("recovery: nothing to replay");
            self.lsn = self.lsn.max(Lsn(self.root.root.replay_lsn));
        }
        if let Some(broken) = self.state.zones.broken.take() {
            return Err(Error::new(ErrorKind::Corrupt, format!("the tables and the log disagree: {broken}")));
        }
        if let Some(list) = self.state.orphans.keys().next() {
            return Err(Error::corrupt(
                "the directory",
                "sections of lists that exist",
                format!("a section of list {}", list.0),
            ));
        }
        Ok(())
    }

    /// Before a damaged log is gone on with: sections may hold records that the log has lost, so the next record gets a
    /// number that all of them take for new (R23).
    pub fn number_on(&mut self) -> Result<()> {
        let maps =
            self.state.lists.values().flat_map(|list| list.sections.iter().flatten().map(|section| &section.meta));
        let metas = maps.chain(self.state.list_pages.values()).chain(&self.state.zone_pages);
        let newest = metas.map(|meta| meta.lsn).max().unwrap_or_default();
        if newest.0 >= roots::NUMBERS_MAX {
            return Err(Error::corrupt("the directory", "a record number that a disk can reach", newest.0));
        }
        self.lsn = self.lsn.max(newest).max(Lsn(self.root.root.next_lsn));
        Ok(())
    }

    /// What `apply` relies on, asked of records that come from outside.
    fn validate(&self, record: &Record) -> std::result::Result<(), String> {
        let (zones, zone_bytes) = (self.shape.zones, self.shape.zone_bytes);
        let fits = |place, count: usize| run_fits(place, count, zones, zone_bytes);
        match record {
            Record::Put { place, entries, first, list } => {
                if !fits(*place, entries.len()) || entries.iter().any(|(old, _)| !old.is_none() && !fits(*old, 1)) {
                    return Err(format!("list {} block {first}: a place outside of the disk", list.0));
                }
                let end = first.saturating_add(u64::try_from(entries.len()).unwrap_or(u64::MAX));
                if end > self.shape.blocks_max() {
                    return Err(format!("list {} block {first}: beyond the largest list", list.0));
                }
                Ok(())
            }
            Record::ZoneOpened { zone, .. } | Record::ZoneFreed { zone, .. }
                if *zone >= zones || *zone < crate::shape::ROOT_ZONES =>
            {
                Err(format!("zone {zone} is none that may be used"))
            }
            _ => Ok(()),
        }
    }
}
