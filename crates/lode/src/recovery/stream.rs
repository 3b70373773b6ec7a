//! Follows the record stream from the replay start to its end, and decides which batches count. See the drawing in the
//! head of `recovery.rs`.

use crate::error::Result;
use crate::format::header::{BatchKind, NO_ZONE};
use crate::format::root::{RootImage, RootSegment};
use crate::log::reader::{Batch, Reader, Scanned};
use crate::planted::{self, Bug};
use crate::types::{Lsn, SegmentId, Sequence};

/// The record stream as far as it counts.
pub(super) struct ReadLog {
    pub batches: Vec<(u32, SegmentId, Batch)>,
    pub segments: Vec<RootSegment>,
    pub end: Sequence,
    pub damage: Option<String>,
    pub dropped: Vec<u32>,
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

/// What was read of the stream.
struct Followed {
    candidates: Vec<Candidate>,
    /// Everything before it was durable.
    witness: Sequence,
    /// An epoch newer than the root's has written a batch.
    newer: Option<u64>,
    /// Where the stream may go on could not be read.
    unreadable: Option<String>,
}

/// Reads the segments from the replay start on, as far as they can be followed.
fn follow(reader: &Reader<'_>, root: &RootImage) -> Result<Followed> {
    let mut unreadable = None;
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
        let Some(span) = first_of(reader, next[0], expected, root.root.epoch, &mut unreadable)? else { break };
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
    Ok(Followed { candidates, witness, newer: newer.get(), unreadable })
}

/// A sealed segment whose footer cannot be read, although it was durable, has lost nothing: its batches hold all that
/// the footer repeats (R12). Where the next segment goes on right behind it, the footer is put back as an empty one.
/// False: the segment is not sealed.
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
fn first_of(
    reader: &Reader<'_>,
    zone: u32,
    expected: Sequence,
    epoch: u64,
    unreadable: &mut Option<String>,
) -> Result<Option<RootSegment>> {
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
        // What cannot be read may be the next segment.
        *unreadable = bytes.readable(0, reader.shape.head).err().map(|error| error.to_string());
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
            // The end of the log decides what is lost: a read that went wrong must not look like it, so it is read
            // again.
            let walk = || {
                let bytes = reader.zone_from(span.zone, span.offset);
                reader.walk(&bytes, span.zone, segment, Sequence(span.first), span.offset)
            };
            let (first, second) = (walk(), walk());
            let better = (second.batches.len(), second.unreadable.is_none());
            if better > (first.batches.len(), first.unreadable.is_none()) { second } else { first }
        }
    };
    // What lies behind the end that a root has recorded is void, and so is what it witnesses (R9).
    let witness = scanned.witness.min(Sequence(span.end));
    Ok(Candidate { span, scanned: Scanned { witness, ..scanned } })
}

/// Decides what counts. See the drawing in the file's head.
pub(super) fn read_log(reader: &Reader<'_>, root: &RootImage) -> Result<ReadLog> {
    let Followed { candidates, witness, newer, mut unreadable } = follow(reader, root)?;
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
                let walked = reader.walk(&bytes, span.zone, SegmentId(span.segment), Sequence(span.first), span.offset);
                // Before the witness the footer is as good; behind it only what lies there whole counts.
                let from = walked.batches.len();
                let rest: Vec<Batch> =
                    scanned.batches.drain(..).skip(from).take_while(|batch| batch.sequence < witness).collect();
                scanned = walked;
                scanned.batches.extend(rest);
            }
            for (n, batch) in scanned.batches.iter().enumerate() {
                if batch.sequence >= witness
                    && batch.sequence.0 < span.end
                    && let Err(error) = bytes.readable(batch.offset, batch.offset + batch.total)
                {
                    scanned.unreadable = Some(error.to_string());
                    scanned.batches.truncate(n);
                    break;
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
        // Behind the end that a root has recorded nothing counts (R9).
        if span.end == u64::MAX && scanned.unreadable.is_some() {
            unreadable = scanned.unreadable;
        }
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
    let damage = damage.or_else(|| {
        // After a clean close there is nothing behind.
        let why = unreadable.filter(|_| root.root.clean == 0)?;
        crate::mark("recovery: end of the log unreadable");
        Some(format!(
            "the log is damaged: expected a batch of sequence {} or none, found what cannot be read ({why})",
            physical.0
        ))
    });
    // An operation that goes on behind the end does not count; nor does a footer that was only put back, since the next
    // opening could not put it back.
    while let Some((_, _, batch)) = batches.last() {
        if batch.continues {
            crate::mark("recovery: operation without its end dropped");
        } else if !batch.is_put_back() {
            break;
        }
        batches.pop();
    }
    let end = batches.last().map_or(Sequence(start), |(_, _, batch)| batch.sequence.next());
    let dropped = segments.iter().filter(|span| span.first >= end.0).map(|span| span.zone).collect();
    segments.retain(|span| span.first < end.0);
    Ok(ReadLog { batches, segments, end, damage, dropped })
}
