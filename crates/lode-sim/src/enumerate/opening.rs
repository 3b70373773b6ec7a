//! One image opened: its content must be exactly one allowed state.

use crate::content::{content_hash, difference, differing};
use crate::crash::CrashImage;
use crate::model::lists::read;
use crate::model::{Model, State};
use crate::recording::{Allowed, History};
use crate::rng::{index, narrow};
use crate::run::open_options;
use crate::script::{Script, unit_label};
use lode::{BlockId, Disk, OrderedId};
use lode_media::Medium;
use std::sync::Arc;

/// Opens an image; its content must be one of the allowed states, whose number is given back.
pub(super) fn open_and_compare(
    image: &Arc<CrashImage>,
    script: &Script,
    allowed: &Allowed<'_>,
    kill_counts: bool,
) -> Result<(Disk, usize), String> {
    let medium: Arc<dyn Medium> = Arc::clone(image) as Arc<dyn Medium>;
    let disk = Disk::open(medium, &open_options(script, allowed.anchor))
        .map_err(|error| format!("opening after the cut: {error} ({:?})", error.kind()))?;
    if let Some(violation) = image.violations().first() {
        return Err(format!("recovery broke the medium's contract: {violation}"));
    }
    must_have_zones(&disk, &allowed.zones)?;
    let hash = content_hash(&disk).map_err(|error| format!("reading after the cut: {error} ({:?})", error.kind()))?;
    let whole = kill_counts && image.chooser().values().iter().all(|value| *value == 0);
    let first = if whole { allowed.kept.max(allowed.flushed) } else { allowed.flushed };
    let states = first..=allowed.appended;
    match states.clone().rev().find(|state| allowed.history.hashes[*state] == hash) {
        Some(state) => compare_units(&disk, &allowed.history.states[state]).map(|()| (disk, state)),
        None => Err(wrong_state(&disk, allowed.history, &states, hash)),
    }
}

/// The disk has one of these numbers of zones: it grows at one instant, and stays so.
pub(super) fn must_have_zones(disk: &Disk, allowed: &[u32]) -> Result<(), String> {
    let zones = disk.info().map_err(|error| format!("asking for the size: {error}"))?.zones;
    if allowed.contains(&zones) { Ok(()) } else { Err(format!("the disk has {zones} zones, expected {allowed:?}")) }
}

/// Open units show what they did up to their last barriers.
fn compare_units(disk: &Disk, state: &Arc<State>) -> Result<(), String> {
    let model = Model::of(state);
    for number in model.units() {
        let label = unit_label(number);
        let failed = |what: &str, error: lode::Error| format!("unit {label}: {what}: {error} ({:?})", error.kind());
        let mut unit = disk.resume(&label).map_err(|error| failed("taking it up", error))?;
        for name in state.volumes.keys().filter(|name| model.unit_sees(number, name)) {
            let volume = disk.volume(name).map_err(|error| failed("finding a volume", error))?;
            let bytes = match model.unit_shows_committed(number) {
                true => state.volumes[name].bytes,
                false => model.unit_bytes(number, name),
            };
            let mut found = vec![0x33; narrow(bytes)];
            unit.read_at(&volume, 0, &mut found).map_err(|error| failed("reading", error))?;
            let mut expected = vec![0; found.len()];
            model.unit_read(number, name, 0, &mut expected);
            if let Some(words) = differing(name, 0, &found, &expected) {
                return Err(format!("unit {label}: {words}"));
            }
        }
        let lists =
            if model.unit_shows_committed(number) { Some(state.lists.clone()) } else { model.unit_lists(number) };
        for list in lists.iter().flatten() {
            let blocks = unit.blocks(OrderedId(list.list)).map_err(|error| failed("walking a list", error))?;
            let right: Vec<BlockId> = list.blocks.iter().map(|(block, _)| BlockId(*block)).collect();
            if blocks != right {
                return Err(format!("unit {label}: list {} has {blocks:?}, expected {right:?}", list.list));
            }
            for (block, content) in &list.blocks {
                let mut bytes = vec![0x33; index(list.block_bytes)];
                unit.read_block(BlockId(*block), 0, &mut bytes).map_err(|error| failed("reading a block", error))?;
                if bytes != read(content.as_ref(), list.block_bytes) {
                    return Err(format!("unit {label}: block {block} of list {} differs", list.list));
                }
            }
        }
    }
    Ok(())
}

fn wrong_state(disk: &Disk, history: &History, states: &std::ops::RangeInclusive<usize>, hash: u64) -> String {
    let first = difference(disk, &history.states[*states.start()]);
    let last = difference(disk, &history.states[*states.end()]);
    let known = history.hashes.iter().position(|known| *known == hash);
    let found = known.map_or("none that ever was".to_owned(), |state| format!("state {state}"));
    format!("found {found}, allowed are {states:?}; from the first: {first}; from the last: {last}")
}

/// The whole disk, checked from the medium alone, has no problem.
pub(super) fn check_medium(medium: Arc<dyn Medium>) -> Result<(), String> {
    let report = Disk::check(medium).map_err(|error| format!("check after recovery: {error}"))?;
    match report.problems.first() {
        None => Ok(()),
        Some(problem) => Err(format!("check after recovery: {problem} ({} problems)", report.problems.len())),
    }
}
