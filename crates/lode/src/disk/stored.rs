//! Reading stored bytes, for reads, the cleaner and the scrub: what lies close together is read in one go, with what lies
//! between.

use super::Inner;
use crate::format::crc;
use crate::types::{Location, index};
use lode_media::{AlignedBuffer, Position, ReadRequest, ZoneId};
use smallvec::SmallVec;
use std::cell::Cell;

/// What is read together.
pub(crate) struct Reach {
    /// Blocks that lie at most so many bytes apart.
    gap: u32,
    /// At most so many bytes, unless one block has more.
    most: u32,
    /// So many bytes are asked for at a time.
    at_once: usize,
}

/// For who reads a range: it is waited for.
pub(super) const READ: Reach = Reach { gap: 16 << 10, most: 2 << 20, at_once: KEPT_MAX };
/// For who reads along what follows.
pub(super) const ALONG: Reach = Reach { gap: 16 << 10, most: 2 << 20, at_once: 8 << 20 };
/// For who reads in bulk.
const BULK: Reach = Reach { gap: 32 << 10, most: 512 << 10, at_once: 8 << 20 };

/// A thread keeps a buffer of at most so many bytes for its next read.
const KEPT_MAX: usize = 2 << 20;
/// Shorter ones are made this long.
const BUFFER_MIN: usize = 64 << 10;

thread_local! {
    /// Fresh memory costs a page fault for every page.
    static KEPT: Cell<Option<AlignedBuffer>> = const { Cell::new(None) };
}

/// A buffer that goes back to its thread. It is taken out for its use, so that whoever else reads in the same thread
/// meanwhile takes another.
struct Lent(Option<AlignedBuffer>);

impl Lent {
    fn of(bytes: usize) -> Lent {
        if bytes == 0 {
            return Lent(None);
        }
        let kept = KEPT.try_with(Cell::take).ok().flatten().filter(|kept| kept.len() >= bytes);
        let len = if bytes > KEPT_MAX { bytes } else { bytes.next_power_of_two().max(BUFFER_MIN) };
        Lent(Some(kept.unwrap_or_else(|| AlignedBuffer::new(len))))
    }

    fn bytes(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(buffer) = self.0.take().filter(|buffer| buffer.len() <= KEPT_MAX) {
            // A thread that ends keeps none.
            let _ = KEPT.try_with(|kept| kept.set(Some(buffer)));
        }
    }
}

/// Reads with their results.
pub(super) type Requests<'a> = SmallVec<[ReadRequest<'a>; 1]>;
pub(super) type Results = SmallVec<[lode_media::Result<()>; 1]>;

impl Inner {
    /// The stored bytes of places on the medium, verified: an error for each that is damaged.
    pub fn read_stored(&self, places: &[(Location, u32)]) -> Vec<std::result::Result<Vec<u8>, Unread>> {
        let mut found: Vec<_> = places.iter().map(|_| Err(Unread::Checksum)).collect();
        self.each_stored(places, &BULK, Requests::new(), |at, stored| {
            found[at] = stored.map_err(Unread::Medium).and_then(|stored| {
                if crc(stored) == places[at].1 { Ok(stored.to_vec()) } else { Err(Unread::Checksum) }
            });
        });
        found
    }

    /// Gives `take` the stored bytes of each place, by its number and in the order of places, or why they cannot be had.
    /// Nobody has verified them. `besides` is read along; gives back its results.
    pub(super) fn each_stored(
        &self,
        places: &[(Location, u32)],
        reach: &Reach,
        besides: Requests<'_>,
        mut take: impl FnMut(usize, lode_media::Result<&[u8]>),
    ) -> Results {
        let mut order: SmallVec<[usize; 8]> = (0..places.len()).collect();
        order.sort_unstable_by_key(|at| places[*at].0);
        let stretches: SmallVec<[Stretch; 4]> = Stretch::of(&order, places, self.shape.align, reach).collect();
        let mut rest = &stretches[..];
        let mut alone = Some(besides);
        let mut results = Results::new();
        while !rest.is_empty() || alone.is_some() {
            let mut bytes = 0;
            let fits = |stretch: &&Stretch| {
                bytes += index(stretch.bytes);
                bytes <= reach.at_once
            };
            let (group, behind) = rest.split_at(rest.iter().take_while(fits).count().max(1).min(rest.len()));
            rest = behind;
            let total = group.iter().map(|stretch| index(stretch.bytes)).sum();
            let mut buffer = Lent::of(total);
            let mut read = self.read_stretches(group, &mut buffer.bytes()[..total], alone.take().unwrap_or_default());
            let mut at = 0;
            for (stretch, result) in group.iter().zip(&read) {
                let bytes = &buffer.bytes()[at..at + index(stretch.bytes)];
                at += bytes.len();
                for n in &order[stretch.members.clone()] {
                    let place = places[*n].0;
                    match result {
                        Ok(()) => {
                            let start = index(place.offset() - stretch.at.offset);
                            take(*n, Ok(&bytes[start..start + index(place.stored())]));
                        }
                        // One bad sector says nothing of the others.
                        Err(_) => match self.read_one_stored(place) {
                            Ok(bytes) => take(*n, Ok(&bytes)),
                            Err(error) => take(*n, Err(error)),
                        },
                    }
                }
            }
            results.extend(read.drain(group.len()..));
        }
        results
    }

    pub(super) fn read_stretches<'b: 'a, 'a>(
        &self,
        stretches: &[Stretch],
        buffer: &'a mut [u8],
        besides: Requests<'b>,
    ) -> Results {
        let mut rest = buffer;
        let of_stretches = stretches.iter().map(|stretch| {
            let (into, behind) = std::mem::take(&mut rest).split_at_mut(index(stretch.bytes));
            rest = behind;
            ReadRequest { at: stretch.at, into, result: Ok(()) }
        });
        let mut requests: Requests<'a> = of_stretches.collect();
        for request in besides {
            requests.push(request); // It outlives the buffer.
        }
        self.medium.read_many(&mut requests);
        requests.into_iter().map(|request| request.result).collect()
    }

    fn read_one_stored(&self, place: Location) -> lode_media::Result<Vec<u8>> {
        let mut bytes = vec![0; index(place.stored())];
        self.medium.read(position(place), &mut bytes)?;
        Ok(bytes)
    }
}

/// Where a block is stored.
pub(super) fn position(place: Location) -> Position {
    Position { zone: ZoneId(place.zone()), offset: place.offset() }
}

/// Why stored bytes are not to be had.
pub(crate) enum Unread {
    Medium(lode_media::Error),
    Checksum,
    Packed(String),
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unread::Medium(error) => error.fmt(f),
            Unread::Checksum => f.write_str("its checksum does not match"),
            Unread::Packed(problem) => f.write_str(problem),
        }
    }
}

/// Stored blocks that are read in one go.
pub(super) struct Stretch {
    pub at: Position,
    pub bytes: u32,
    /// Which they are, in the order of places.
    pub members: std::ops::Range<usize>,
}

impl Stretch {
    /// Stretches of places, given in order, none of which lies far behind the one before it.
    pub fn of(order: &[usize], places: &[(Location, u32)], align: u32, reach: &Reach) -> impl Iterator<Item = Stretch> {
        let Reach { gap, most, .. } = *reach;
        let place = |n: usize| places[order[n]].0;
        let mut next = 0;
        std::iter::from_fn(move || {
            let first = next;
            let start = place((first < order.len()).then_some(first)?);
            let mut end = start.offset() + start.stored();
            let offset = start.offset() / align * align;
            next += 1;
            while next < order.len() {
                let candidate = place(next);
                let far = candidate.zone() != start.zone()
                    || candidate.offset() > end + gap
                    || (candidate.offset() + candidate.stored()).next_multiple_of(align) - offset > most;
                if far {
                    break;
                }
                end = end.max(candidate.offset() + candidate.stored());
                next += 1;
            }
            let at = Position { zone: ZoneId(start.zone()), offset };
            Some(Stretch { at, bytes: end.next_multiple_of(align) - offset, members: first..next })
        })
    }
}
