//! The record stream in memory.
//!
//! A *batch* is open (it takes records and data), then *sealed* (it has its sequence, place and checksum), then
//! *appended*, then *durable*. Sequences are consecutive, and sealed in the order in which memory was changed (R6).
//!
//! ```text
//!   open ──seal──> queue ──append begins──> in flight ──ends──> appended ──sync──> durable
//! ```
//! Invariants: W1 a place is given out once, at the write. W2 `appended` and `durable` are sequences below which all
//! batches are so. W3 each header names the next two zones, already erased (R11); fewer only while the keeper works
//! with the last free ones. W4 a segment always has room for its footer. This file decides nothing about space and does
//! no I/O.

use crate::format::VERSION;
#[cfg(test)]
use crate::format::crc;
use crate::format::header::{BatchKind, FLAG_CONTINUES, FooterEntry, Header, MAGIC, NO_ZONE, TRAILER_MAGIC, Trailer};
use crate::format::root::RootSegment;
use crate::shape::Shape;
use crate::types::{Kind, Location, Lsn, SegmentId, Sequence, index, len_u32};
use lode_media::{AlignedBuffer, Position, ZoneId};
use std::collections::VecDeque;
use std::sync::Arc;

/// What recovery has to verify behind the witness is about this much at most: a sync is asked for by the segment that
/// completes it (R13).
const SYNC_BYTES: u64 = 16 << 20;

/// A batch that is not changed any more.
pub(crate) struct Sealed {
    pub sequence: Sequence,
    pub zone: u32,
    pub offset: u32,
    pub total: u32,
    pub buffer: AlignedBuffer,
}

impl Sealed {
    pub fn at(&self) -> Position {
        Position { zone: ZoneId(self.zone), offset: self.offset }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..index(self.total)]
    }

    /// The stored bytes of a place inside of this batch.
    pub fn stored(&self, place: Location) -> Option<&[u8]> {
        let start = place.offset().checked_sub(self.offset)?;
        (place.zone() == self.zone && start < self.total)
            .then(|| &self.buffer[index(start)..index(start + place.stored())])
    }
}

struct Open {
    buffer: AlignedBuffer,
    data: u32,
    records: Vec<u8>,
    count: u32,
    first_lsn: Lsn,
}

struct Segment {
    zone: u32,
    id: SegmentId,
    offset: u32,
    entries: Vec<u8>,
}

/// Why there is no room for what shall be written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lacking {
    /// Another erased zone must be made ready first.
    Zone,
}

/// The record stream. See the file's head.
pub(crate) struct Writer {
    shape: Shape,
    disk: u128,
    epoch: u64,
    counter: u32,
    /// The number of the next record.
    pub lsn: Lsn,
    /// The sequence of the next batch to be sealed.
    pub sequence: Sequence,
    open: Option<Open>,
    segment: Option<Segment>,
    /// Erased zones, in the order in which they will be used.
    pub ready: VecDeque<u32>,
    queue: VecDeque<Arc<Sealed>>,
    in_flight: Vec<Arc<Sealed>>,
    unsynced: VecDeque<(Sequence, Option<Lsn>)>,
    /// All batches below are appended.
    pub appended: Sequence,
    /// All batches below are durable.
    pub durable: Sequence,
    /// All records below are appended, respectively durable, and count.
    pub appended_lsn: Lsn,
    pub durable_lsn: Lsn,
    /// The segments that replay may need, oldest first; the last one is being filled.
    pub segments: VecDeque<RootSegment>,
    /// Zones that were sealed and are not yet told to the owner: zone and end of its records.
    pub sealed_zones: Vec<(u32, Lsn)>,
    /// Zones that were opened and are not yet told to the owner.
    pub opened_zones: Vec<(u32, SegmentId)>,
    pool: Vec<AlignedBuffer>,
    /// Memory of the last batch, and of the last segment, for the records of the next.
    spare: (Vec<u8>, Vec<u8>),
    /// Bytes sealed and not yet appended.
    pub waiting_bytes: u64,
    /// Bytes sealed since opening.
    pub bytes: u64,
    /// So much was sealed that it is time for a sync (R13).
    pub wants_sync: bool,
    /// So much may be sealed without a sync; segments are counted whole.
    sync_every: u64,
    /// Where `bytes` was when the last sync began.
    sync_begun: u64,
}

impl Writer {
    pub fn new(
        shape: Shape,
        disk: u128,
        epoch: u64,
        sequence: Sequence,
        lsn: Lsn,
        segments: VecDeque<RootSegment>,
        window_bytes: u64,
    ) -> Writer {
        Writer {
            shape,
            disk,
            epoch,
            counter: 0,
            lsn,
            sequence,
            open: None,
            segment: None,
            ready: VecDeque::new(),
            queue: VecDeque::new(),
            in_flight: Vec::new(),
            unsynced: VecDeque::new(),
            appended: sequence,
            durable: sequence,
            appended_lsn: lsn,
            durable_lsn: lsn,
            segments,
            sealed_zones: Vec::new(),
            opened_zones: Vec::new(),
            pool: Vec::new(),
            spare: Default::default(),
            waiting_bytes: 0,
            bytes: 0,
            wants_sync: false,
            sync_every: SYNC_BYTES.min(window_bytes / 8),
            sync_begun: 0,
        }
    }

    /// A name for a new segment of whatever stream.
    pub fn next_segment(&mut self) -> SegmentId {
        self.counter += 1;
        SegmentId::new(self.epoch, self.counter)
    }

    fn footer_total(&self, entries: u32) -> u32 {
        (len_u32(Header::SIZE + Trailer::SIZE) + entries).max(self.shape.head).next_multiple_of(self.shape.align)
    }

    /// Whether a batch of this content, begun at `offset` in a segment whose footer holds `entries` bytes, fits (W4).
    fn fits(&self, offset: u32, entries: u32, data: u32, records: u32) -> bool {
        let total = Header::content_bytes(self.shape.head, data, records).next_multiple_of(u64::from(self.shape.align));
        let footer = self.footer_total(entries + len_u32(FooterEntry::SIZE) + records);
        total <= u64::from(self.shape.batch_bytes)
            && u64::from(offset) + total + u64::from(footer) <= u64::from(self.shape.zone_bytes)
    }

    /// Makes sure that the open batch has room for so much more, sealing batches and segments as needed.
    /// The caller never asks for more than half a batch at once.
    /// With fewer than `ready_min` zones ready no segment is opened.
    pub fn make_room(&mut self, data: u32, records: u32, continues: bool, ready_min: usize) -> Result<(), Lacking> {
        if let (Some(open), Some(segment)) = (&self.open, &self.segment)
            && self.fits(
                segment.offset,
                len_u32(segment.entries.len()),
                open.data + data,
                len_u32(open.records.len()) + records,
            )
        {
            return Ok(());
        }
        // Whatever happens now, a zone may be needed; ask before anything is changed.
        let offset_after = |writer: &Writer| {
            writer.segment.as_ref().map(|segment| match &writer.open {
                Some(open) if open.count > 0 => {
                    let total = Header::content_bytes(writer.shape.head, open.data, len_u32(open.records.len()));
                    let total = u32::try_from(total).expect("within a zone").next_multiple_of(writer.shape.align);
                    (segment.offset + total, len_u32(segment.entries.len() + FooterEntry::SIZE + open.records.len()))
                }
                _ => (segment.offset, len_u32(segment.entries.len())),
            })
        };
        let stays = offset_after(self).is_some_and(|(offset, entries)| self.fits(offset, entries, data, records));
        if !stays && self.ready.len() < ready_min {
            return Err(Lacking::Zone);
        }
        self.seal(continues);
        if !stays {
            self.seal_segment(continues);
            self.open_segment();
        }
        let segment = self.segment.as_ref().expect("opened above");
        assert!(
            self.fits(segment.offset, len_u32(segment.entries.len()), data, records),
            "W4: {data} bytes of data and {records} of records do not fit in an empty batch"
        );
        let buffer = self.buffer();
        let records = std::mem::take(&mut self.spare.0);
        self.open = Some(Open { buffer, data: 0, records, count: 0, first_lsn: self.lsn });
        Ok(())
    }

    /// Room for a whole batch; what it holds is left over from another one.
    fn buffer(&mut self) -> AlignedBuffer {
        self.pool.pop().unwrap_or_else(|| AlignedBuffer::new(index(self.shape.batch_bytes)))
    }

    fn open_segment(&mut self) {
        let zone = self.ready.pop_front().expect("checked by the caller");
        let id = self.next_segment();
        self.segments.push_back(RootSegment {
            zone,
            segment: id.0,
            first: self.sequence.0,
            end: u64::MAX,
            first_lsn: self.lsn.0,
            offset: 0,
        });
        self.opened_zones.push((zone, id));
        self.segment = Some(Segment { zone, id, offset: 0, entries: std::mem::take(&mut self.spare.1) });
    }

    /// Copies stored bytes into the open batch and says where they lie now (W1). Room was made before.
    pub fn place(&mut self, stored: &[u8], kind: Kind) -> Location {
        let open = self.open.as_mut().expect("room was made");
        let segment = self.segment.as_ref().expect("room was made");
        let at = self.shape.head + open.data;
        let len = len_u32(stored.len());
        let place = Location::new(segment.zone, segment.offset + at, len, kind);
        let end = at + place.footprint();
        open.buffer[index(at)..index(at + len)].copy_from_slice(stored);
        open.buffer[index(at + len)..index(end)].fill(0);
        open.data += place.footprint();
        place
    }

    /// Appends one record by `encode`. Room was made before. Gives back the record's number.
    pub fn record(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Lsn {
        let open = self.open.as_mut().expect("room was made");
        encode(&mut open.records);
        open.count += 1;
        let lsn = self.lsn;
        self.lsn = Lsn(lsn.0 + 1);
        lsn
    }

    /// Appends `count` records that are encoded already. Room was made before. Gives back the number of the first.
    pub fn records(&mut self, bytes: &[u8], count: u32) -> Lsn {
        let open = self.open.as_mut().expect("room was made");
        open.records.extend_from_slice(bytes);
        open.count += count;
        let lsn = self.lsn;
        self.lsn = Lsn(lsn.0 + u64::from(count));
        lsn
    }

    /// A header with everything that follows from where the stream is; `own` is what the batch itself knows.
    fn header(&self, segment: &Segment, own: Header) -> Header {
        Header {
            magic: MAGIC,
            version: VERSION,
            disk: self.disk,
            segment: segment.id.0,
            sequence: self.sequence.0,
            durable: self.durable.0,
            zone: segment.zone,
            offset: segment.offset,
            next_a: self.ready.front().copied().unwrap_or(NO_ZONE),
            next_b: self.ready.get(1).copied().unwrap_or(NO_ZONE),
            head: self.shape.head,
            ..own
        }
    }

    /// Seals the open batch, if it holds any record. `continues`: the operation goes on in the next sequence.
    pub fn seal(&mut self, continues: bool) {
        let Some(mut open) = self.open.take() else { return };
        if open.count == 0 {
            self.spare.0 = open.records;
            self.give_back(open.buffer);
            return;
        }
        let mut segment = self.segment.take().expect("a batch is open only in a segment");
        let records = len_u32(open.records.len());
        let content = Header::content_bytes(self.shape.head, open.data, records);
        let total = u32::try_from(content).expect("within a zone").next_multiple_of(self.shape.align);
        let flags = if continues { FLAG_CONTINUES } else { 0 };
        let mut header = self.header(
            &segment,
            Header {
                kind: BatchKind::Main.code(),
                flags,
                total,
                data: open.data,
                records,
                count: open.count,
                first_lsn: open.first_lsn.0,
                ..Header::default()
            },
        );
        header.checksum = header.seal(&[&open.records]);
        header.encode(&mut open.buffer[..Header::SIZE]);
        let (in_head, in_tail) = header.record_ranges();
        let (first, rest) = open.records.split_at(in_head.len());
        open.buffer[in_head.clone()].copy_from_slice(first);
        open.buffer[in_head.end..index(self.shape.head)].fill(0);
        open.buffer[in_tail.clone()].copy_from_slice(rest);
        open.buffer[in_tail.end..index(total)].fill(0);
        FooterEntry {
            sequence: self.sequence.0,
            first_lsn: open.first_lsn.0,
            offset: segment.offset,
            total,
            records,
            count: open.count,
            flags: u32::from(flags),
            reserved: 0,
        }
        .push_to(&mut segment.entries);
        segment.entries.extend_from_slice(&open.records);
        open.records.clear();
        self.spare.0 = open.records;
        self.push(&segment, total, open.buffer, (!continues).then_some(self.lsn));
        segment.offset += total;
        self.segment = Some(segment);
    }

    /// `counts_to`: every record below it counts once this batch is durable; none if the operation goes on behind it.
    fn push(&mut self, segment: &Segment, total: u32, buffer: AlignedBuffer, counts_to: Option<Lsn>) {
        let sealed = Sealed { sequence: self.sequence, zone: segment.zone, offset: segment.offset, total, buffer };
        self.unsynced.push_back((sealed.sequence, counts_to));
        self.queue.push_back(Arc::new(sealed));
        self.sequence = self.sequence.next();
        self.waiting_bytes += u64::from(total);
        self.bytes += u64::from(total);
    }

    /// Ends the segment with its footer, which reaches to the end of the zone (R12).
    fn seal_segment(&mut self, continues: bool) {
        let Some(mut segment) = self.segment.take() else { return };
        let total = self.shape.zone_bytes - segment.offset;
        let records = len_u32(segment.entries.len());
        let flags = if continues { FLAG_CONTINUES } else { 0 };
        let mut header = self.header(
            &segment,
            Header {
                kind: BatchKind::Footer.code(),
                flags,
                total,
                records,
                first_lsn: self.lsn.0,
                ..Header::default()
            },
        );
        header.checksum = header.seal(&[&segment.entries]);
        let mut trailer = Trailer {
            magic: TRAILER_MAGIC,
            footer: segment.offset,
            segment: segment.id.0,
            total,
            reserved: 0,
            checksum: 0,
        };
        trailer.checksum = trailer.seal();
        let mut buffer = if total <= self.shape.batch_bytes { self.buffer() } else { AlignedBuffer::new(index(total)) };
        header.encode(&mut buffer[..Header::SIZE]);
        let end = Header::SIZE + segment.entries.len();
        buffer[Header::SIZE..end].copy_from_slice(&segment.entries);
        buffer[end..index(total)].fill(0);
        trailer.encode(&mut buffer[index(total) - Trailer::SIZE..]);
        self.push(&segment, total, buffer, (!continues).then_some(self.lsn));
        self.sealed_zones.push((segment.zone, self.lsn));
        segment.entries.clear();
        self.spare.1 = segment.entries;
        self.wants_sync |= self.bytes - self.sync_begun >= self.sync_every;
    }

    /// The next batch to be appended; it is in flight from now on.
    pub fn take_batch(&mut self) -> Option<Arc<Sealed>> {
        let sealed = self.queue.pop_front()?;
        self.in_flight.push(Arc::clone(&sealed));
        Some(sealed)
    }

    pub fn is_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// The batch's append has returned.
    pub fn finish_batch(&mut self, sealed: Arc<Sealed>) {
        self.in_flight.retain(|other| other.sequence != sealed.sequence);
        self.waiting_bytes -= u64::from(sealed.total);
        let first_waiting = self
            .in_flight
            .iter()
            .map(|batch| batch.sequence)
            .chain(self.queue.front().map(|batch| batch.sequence))
            .min();
        self.appended = first_waiting.unwrap_or(self.sequence);
        for (sequence, counts_to) in &self.unsynced {
            if *sequence >= self.appended {
                break;
            }
            self.appended_lsn = self.appended_lsn.max(counts_to.unwrap_or_default());
        }
        if let Ok(sealed) = Arc::try_unwrap(sealed) {
            self.give_back(sealed.buffer);
        }
    }

    fn give_back(&mut self, buffer: AlignedBuffer) {
        if buffer.len() == index(self.shape.batch_bytes) && self.pool.len() < 32 {
            self.pool.push(buffer);
        }
    }

    /// A sync is about to be issued. Gives back what it will have made durable.
    pub fn begin_sync(&mut self) -> Sequence {
        self.wants_sync = false;
        self.sync_begun = self.bytes;
        self.appended
    }

    /// A sync that was issued when all batches below `through` were appended has returned.
    pub fn synced(&mut self, through: Sequence) {
        self.durable = self.durable.max(through);
        while let Some((sequence, counts_to)) = self.unsynced.front() {
            if *sequence >= self.durable {
                break;
            }
            self.durable_lsn = self.durable_lsn.max(counts_to.unwrap_or_default());
            self.unsynced.pop_front();
        }
    }

    /// The stored bytes of a place that is not on the medium yet, if it is one.
    pub fn stored(&self, place: Location) -> Option<Waiting<'_>> {
        if let (Some(open), Some(segment)) = (&self.open, &self.segment)
            && place.zone() == segment.zone
            && place.offset() >= segment.offset
        {
            let start = index(place.offset() - segment.offset);
            return Some(Waiting::Open(&open.buffer[start..start + index(place.stored())]));
        }
        let waiting = self.queue.iter().chain(&self.in_flight).find(|sealed| sealed.stored(place).is_some())?;
        Some(Waiting::Sealed(waiting))
    }

    /// Up to where all of a zone of the stream has been appended.
    pub fn appended_end(&self, zone: u32) -> u32 {
        let waiting = self.queue.iter().chain(&self.in_flight).filter(|batch| batch.zone == zone);
        let filled = self.segment.as_ref().filter(|segment| segment.zone == zone).map(|segment| segment.offset);
        waiting.map(|batch| batch.offset).chain(filled).min().unwrap_or(self.shape.zone_bytes)
    }

    /// Called when no table lacks any record: if everything is durable, replay can begin right behind it, and no
    /// segment before that is needed, not even to find the way.
    pub fn begin_replay_here(&mut self) {
        let at_rest = self.open.as_ref().is_none_or(|open| open.count == 0) && self.durable == self.sequence;
        if !at_rest {
            return;
        }
        self.segments.clear();
        if let Some(segment) = &self.segment {
            self.segments.push_back(RootSegment {
                zone: segment.zone,
                segment: segment.id.0,
                first: self.sequence.0,
                end: u64::MAX,
                first_lsn: self.lsn.0,
                offset: segment.offset,
            });
        }
    }

    /// Forgets the segments that replay does not need any more.
    pub fn release_segments(&mut self, replay: Lsn) {
        while self.segments.len() > 1 && self.segments[1].first_lsn <= replay.0 {
            self.segments.pop_front();
        }
    }
}

/// Bytes that are still in memory.
pub(crate) enum Waiting<'a> {
    /// In the open batch: to be copied while the lock is held.
    Open(&'a [u8]),
    /// In a sealed batch, which may be held on to.
    Sealed(&'a Arc<Sealed>),
}

/// Proves that a trailer's checksum covers what `crc` covers.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_knows_its_own_bytes() {
        let mut trailer = Trailer { magic: TRAILER_MAGIC, footer: 4096, segment: 7, total: 8192, ..Trailer::default() };
        trailer.checksum = trailer.seal();
        let mut bytes = [0; Trailer::SIZE];
        trailer.encode(&mut bytes);
        assert_eq!(Trailer::decode(&bytes).seal(), trailer.checksum);
        assert_eq!(crc(&bytes[..28]), trailer.checksum);
    }
}
