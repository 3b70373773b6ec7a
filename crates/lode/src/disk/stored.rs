//! Reading stored bytes in bulk, for compressed blocks, the cleaner and the scrub: what lies close together is read in
//! one go, with what lies between.

use super::Inner;
use crate::format::crc;
use crate::types::{Location, index};
use lode_media::{AlignedBuffer, Position, ReadRequest, ZoneId};

/// Blocks that lie at most so many bytes apart are read together.
const STRETCH_GAP: u32 = 32 << 10;
/// At most so many bytes are read together, unless one block has more.
const STRETCH_MAX: u32 = 512 << 10;
/// So many stretches are asked for at a time.
const STRETCHES: usize = 64;

impl Inner {
    /// The stored bytes of places on the medium, verified: an error for each that is damaged. What lies close together
    /// is read in one go, with what lies between.
    pub fn read_stored(&self, places: &[(Location, u32)]) -> Vec<std::result::Result<Vec<u8>, Unread>> {
        if places.is_empty() {
            return Vec::new();
        }
        let mut found: Vec<_> = places.iter().map(|_| Err(Unread::Checksum)).collect();
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_unstable_by_key(|at| places[*at].0);
        let stretches: Vec<Stretch> = Stretch::of(&order, places, self.shape.align).collect();
        for group in stretches.chunks(STRETCHES) {
            let mut buffers: Vec<_> = group.iter().map(|stretch| AlignedBuffer::new(index(stretch.bytes))).collect();
            let results = self.read_stretches(group, &mut buffers);
            for ((stretch, buffer), result) in group.iter().zip(&buffers).zip(results) {
                for at in &order[stretch.members.clone()] {
                    let (place, checksum) = places[*at];
                    found[*at] = match &result {
                        Ok(()) => {
                            let start = index(place.offset() - stretch.at.offset);
                            verified(&buffer[start..start + index(place.stored())], checksum)
                        }
                        // One bad sector says nothing of the others.
                        Err(_) => self.read_one_stored(place, checksum),
                    };
                }
            }
        }
        found
    }

    fn read_stretches(&self, stretches: &[Stretch], buffers: &mut [AlignedBuffer]) -> Vec<lode_media::Result<()>> {
        let requests = stretches.iter().zip(buffers);
        let mut requests: Vec<ReadRequest<'_>> =
            requests.map(|(stretch, into)| ReadRequest { at: stretch.at, into, result: Ok(()) }).collect();
        self.medium.read_many(&mut requests);
        requests.into_iter().map(|request| request.result).collect()
    }

    fn read_one_stored(&self, place: Location, checksum: u32) -> std::result::Result<Vec<u8>, Unread> {
        let mut bytes = vec![0; index(place.stored())];
        let at = Position { zone: ZoneId(place.zone()), offset: place.offset() };
        self.medium.read(at, &mut bytes).map_err(Unread::Medium)?;
        verified(&bytes, checksum)
    }
}

fn verified(stored: &[u8], checksum: u32) -> std::result::Result<Vec<u8>, Unread> {
    if crc(stored) == checksum { Ok(stored.to_vec()) } else { Err(Unread::Checksum) }
}

/// Why stored bytes are not to be had.
pub(crate) enum Unread {
    Medium(lode_media::Error),
    Checksum,
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unread::Medium(error) => error.fmt(f),
            Unread::Checksum => f.write_str("its checksum does not match"),
        }
    }
}

/// Stored blocks that are read in one go.
struct Stretch {
    at: Position,
    bytes: u32,
    /// Which they are, in the order of places.
    members: std::ops::Range<usize>,
}

impl Stretch {
    /// Stretches of places, given in order, none of which lies far behind the one before it.
    fn of(order: &[usize], places: &[(Location, u32)], align: u32) -> impl Iterator<Item = Stretch> {
        let place = |n: usize| places[order[n]].0;
        let mut next = 0;
        std::iter::from_fn(move || {
            let first = next;
            let start = place((first < order.len()).then_some(first)?);
            let mut end = start.offset() + start.stored();
            next += 1;
            while next < order.len() {
                let candidate = place(next);
                let far = candidate.zone() != start.zone()
                    || candidate.offset() > end + STRETCH_GAP
                    || candidate.offset() + candidate.stored() - start.offset() > STRETCH_MAX;
                if far {
                    break;
                }
                end = end.max(candidate.offset() + candidate.stored());
                next += 1;
            }
            let offset = start.offset() / align * align;
            let at = Position { zone: ZoneId(start.zone()), offset };
            Some(Stretch { at, bytes: end.next_multiple_of(align) - offset, members: first..next })
        })
    }
}
