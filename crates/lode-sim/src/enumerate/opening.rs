//! One image opened: its content must be exactly one allowed state.

use crate::content::{content_hash, difference};
use crate::crash::CrashImage;
use crate::recording::{Allowed, History};
use crate::run::open_options;
use crate::script::Script;
use lode::Disk;
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
    let hash = content_hash(&disk).map_err(|error| format!("reading after the cut: {error} ({:?})", error.kind()))?;
    let whole = kill_counts && image.chooser().values().iter().all(|value| *value == 0);
    let first = if whole { allowed.kept.max(allowed.flushed) } else { allowed.flushed };
    let states = first..=allowed.appended;
    match states.clone().rev().find(|state| allowed.history.hashes[*state] == hash) {
        Some(state) => Ok((disk, state)),
        None => Err(wrong_state(&disk, allowed.history, &states, hash)),
    }
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
