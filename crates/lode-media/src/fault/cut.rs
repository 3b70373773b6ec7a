//! What a power cut leaves of what was not synced (M3, M4).
//!
//! Appends meet their fates independently of each other, so every order in which they may have reached the medium
//! is covered. Inside a torn append each sector is old, new or garbage by itself; or, as devices were seen to do
//! (Zheng et al., FAST '13), a run of sectors is old, or only the front is new.

use std::sync::Arc;

use crate::bounds::index;
use crate::ram::NOISE;
use crate::{Geometry, Position, ZoneId};

use super::cells::{Cell, Cells, Key, sectors};
use super::{FaultPlan, Rng};

/// Something done and not synced.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    /// `astray`: written where the medium behind does not expect it.
    Append {
        at: Position,
        data: Arc<[u8]>,
        astray: bool,
    },
    Erase(ZoneId),
    Discard(ZoneId),
}

/// Reads what a sector would hold if nothing pending had happened.
pub(super) type Old<'a> = dyn Fn(Key) -> Vec<u8> + 'a;

/// Chooses the fate of everything pending by chance. Returns the sectors that are not as they were.
pub(super) fn by_chance(
    pending: &[Pending],
    geometry: Geometry,
    plan: &FaultPlan,
    rng: &mut Rng,
    old: &Old<'_>,
) -> Cells {
    let mut after = Cells::default();
    for one in pending {
        match one {
            Pending::Erase(zone) | Pending::Discard(zone) => {
                if rng.chance(plan.erase_happens_per_mille) {
                    erased(*zone, geometry, rng, &mut after);
                }
            }
            Pending::Append { at, data, .. } => {
                if rng.chance(plan.drop_per_mille) {
                    continue;
                }
                let news: Vec<(Key, Cell)> = sectors(geometry, *at, data.len())
                    .map(|(key, from)| (key, Cell::Part { of: Arc::clone(data), from }))
                    .collect();
                if rng.chance(plan.tear_per_mille) {
                    torn(news, geometry, plan, rng, old, &mut after);
                } else {
                    news.into_iter().for_each(|(key, cell)| after.insert(key, cell));
                }
            }
        }
    }
    after
}

/// An erase that happened, wholly or in part.
fn erased(zone: ZoneId, geometry: Geometry, rng: &mut Rng, after: &mut Cells) {
    let style = rng.below(3);
    for sector in 0..geometry.zone_bytes / geometry.append_align {
        let fill = match style {
            0 => Some(0),
            1 => Some(NOISE),
            _ => [None, Some(0), Some(NOISE)][rng.index(3)],
        };
        if let Some(fill) = fill {
            after.insert(Key { zone: zone.0, sector }, Cell::Fill(fill));
        }
    }
}

fn torn(news: Vec<(Key, Cell)>, geometry: Geometry, plan: &FaultPlan, rng: &mut Rng, old: &Old<'_>, after: &mut Cells) {
    let count = news.len();
    if count == 0 {
        return;
    }
    let style = rng.below(4);
    let (first, second) = (rng.index(count), rng.index(count));
    let run = first.min(second)..=first.max(second);
    for (number, (key, new)) in news.into_iter().enumerate() {
        let cell = match style {
            0 => (number < first).then_some(new),
            1 => (!run.contains(&number)).then_some(new),
            _ if rng.chance(plan.garbage_per_mille) => Some(garbage(key, new, geometry, rng, old)),
            _ => rng.chance(500).then_some(new),
        };
        if let Some(cell) = cell {
            after.insert(key, cell);
        }
    }
}

/// What an interrupted write of one sector may leave: noise, zeros (which fool what looks for content), random
/// bytes, or the front of the new content before the rest of the old.
fn garbage(key: Key, new: Cell, geometry: Geometry, rng: &mut Rng, old: &Old<'_>) -> Cell {
    let len = index(geometry.append_align);
    match rng.below(4) {
        0 => Cell::Fill(NOISE),
        1 => Cell::Fill(0),
        2 => {
            let mut bytes = vec![0; len];
            rng.bytes(&mut bytes);
            Cell::bytes(bytes)
        }
        _ => {
            let mut bytes = old(key);
            let shorn = rng.index(len);
            match new {
                Cell::Part { of, from } => bytes[..shorn].copy_from_slice(&of[from..from + shorn]),
                Cell::Fill(byte) => bytes[..shorn].fill(byte),
            }
            Cell::bytes(bytes)
        }
    }
}

/// Chooses the fate of everything pending by asking: `choose(n)` says a number below `n`. An erase asks once (not
/// happened, zeros, noise), an append once for each sector (old, new, noise, zeros). For enumerating all cuts.
pub(super) fn by_choice(pending: &[Pending], geometry: Geometry, choose: &mut dyn FnMut(u32) -> u32) -> Cells {
    let mut after = Cells::default();
    for one in pending {
        match one {
            Pending::Erase(zone) | Pending::Discard(zone) => {
                let fill = match choose(3) {
                    0 => continue,
                    1 => 0,
                    _ => NOISE,
                };
                for sector in 0..geometry.zone_bytes / geometry.append_align {
                    after.insert(Key { zone: zone.0, sector }, Cell::Fill(fill));
                }
            }
            Pending::Append { at, data, .. } => {
                for (key, from) in sectors(geometry, *at, data.len()) {
                    match choose(4) {
                        0 => {}
                        1 => after.insert(key, Cell::Part { of: Arc::clone(data), from }),
                        2 => after.insert(key, Cell::Fill(NOISE)),
                        _ => after.insert(key, Cell::Fill(0)),
                    }
                }
            }
        }
    }
    after
}
