//! What a damaged disk shows: right, or an error that names the damage; never something that was not there.

use crate::content::{is_remnant, volume_names};
use crate::model::lists::Lists;
use crate::model::{State, VolumeState, Volumes};
use crate::rng::{index, narrow};
use crate::run::Run;
use lode::{Disk, ErrorKind, Volume};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// The blocks of volumes that cannot be read.
pub(super) type Bad = BTreeSet<(String, u64)>;

/// The last state that explains all that can be read, if one does, and what cannot be read. Nothing is ever read that
/// was not there at some time.
pub(super) fn prefix(disk: &Disk, run: &Run<'_>) -> Result<(Option<usize>, Bad), String> {
    let mut last = String::new();
    for state in (0..=run.model.appended()).rev() {
        match judge(disk, run.model.state(state)) {
            Ok(bad) => return Ok((Some(state), bad)),
            Err(words) if last.is_empty() => last = words,
            Err(_) => {}
        }
    }
    let bad = judge_by_parts(disk, run)
        .map_err(|words| format!("no state that ever was explains {words}; from the last one: {last}"))?;
    Ok((None, bad))
}

/// Reads every block: as it was in one state or another, or an error of damage.
fn judge_by_parts(disk: &Disk, run: &Run<'_>) -> Result<Bad, String> {
    let mut bad = BTreeSet::new();
    let states = || (0..=run.model.appended()).map(|state| run.model.state(state));
    let infos = disk.volumes().map_err(|error| format!("this: {error}"))?;
    for info in infos.into_iter().filter(|info| !is_remnant(&info.name, info.bytes)) {
        let known = || states().filter_map(|state| state.volumes.get(&info.name));
        if !known().any(|known| known.bytes == info.bytes) {
            return Err(format!("volume {} of {} bytes", info.name, info.bytes));
        }
        let Ok(volume) = disk.volume(&info.name) else { continue };
        let size = u64::from(info.block_bytes);
        for block in 0..info.bytes.div_ceil(size) {
            let mut found = vec![0x44; narrow(size.min(info.bytes - block * size))];
            match volume.read_at(block * size, &mut found) {
                Err(error) if of_damage(error.kind()) => {
                    bad.insert((info.name.clone(), block));
                }
                Err(error) => return Err(format!("{} block {block}: {error} ({:?})", info.name, error.kind())),
                Ok(()) => {
                    let mut right = vec![0; found.len()];
                    let is_right = |known: &std::sync::Arc<VolumeState>| {
                        known.read(block * size, &mut right);
                        right == found
                    };
                    if !known().any(is_right) && found.iter().any(|byte| *byte != 0) {
                        return Err(format!("{} block {block}", info.name));
                    }
                }
            }
        }
    }
    Ok(bad)
}

/// The kinds of error that damage may come as.
fn of_damage(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Corrupt | ErrorKind::Media | ErrorKind::NotADisk | ErrorKind::Failed)
}

pub(super) fn may_refuse(error: &lode::Error) -> Result<(), String> {
    if of_damage(error.kind()) { Ok(()) } else { Err(format!("the damaged disk: {error} ({:?})", error.kind())) }
}

/// Reads every block, of snapshots too: right, or an error of damage. Gives back the blocks of volumes that cannot be
/// read.
pub(super) fn judge(disk: &Disk, state: &State) -> Result<Bad, String> {
    let names = match volume_names(disk) {
        Ok(names) => names,
        Err(error) => return may_refuse(&error).map(|()| Bad::new()),
    };
    let mut bad = judge_volumes("", names, &state.volumes, |name| disk.volume(name))?;
    bad.extend(judge_lists("", disk, None, &state.lists)?);
    let snapshots: BTreeMap<String, Vec<String>> =
        disk.snapshots().into_iter().map(|snapshot| (snapshot.name, snapshot.volumes)).collect();
    if !snapshots.keys().eq(state.snapshots.keys()) {
        return Err(format!("the snapshots are {:?}, expected {:?}", snapshots.keys(), state.snapshots.keys()));
    }
    for (snapshot, names) in snapshots {
        let find = |name: &str| disk.volume_at(&snapshot, name);
        let (of, seen) = (format!("{snapshot}: "), &state.snapshots[&snapshot]);
        let names = names.into_iter().filter(|name| find(name).map_or(true, |seen| !is_remnant(name, seen.bytes())));
        judge_volumes(&of, names.collect(), &seen.volumes, find)?;
        judge_lists(&of, disk, Some(&snapshot), &seen.lists)?;
    }
    Ok(bad)
}

fn judge_volumes(
    of: &str,
    names: Vec<String>,
    volumes: &Volumes,
    find: impl Fn(&str) -> lode::Result<Volume>,
) -> Result<Bad, String> {
    let mut bad = Bad::new();
    if names.len() != volumes.len() || names.iter().any(|name| !volumes.contains_key(name)) {
        return Err(format!("{of}the volumes are {names:?}, expected {:?}", volumes.keys()));
    }
    for name in names {
        let expected = &volumes[&name];
        let volume = match find(&name) {
            Ok(volume) => volume,
            Err(error) => {
                may_refuse(&error)?;
                continue;
            }
        };
        if expected.bytes != volume.bytes() {
            return Err(format!("{of}volume {name} has {} bytes, expected {}", volume.bytes(), expected.bytes));
        }
        let size = u64::from(volume.block_bytes());
        for block in 0..expected.blocks() {
            let length = narrow(size.min(expected.bytes - block * size));
            let mut found = vec![0x44; length];
            match volume.read_at(block * size, &mut found) {
                Err(error) if of_damage(error.kind()) => {
                    bad.insert((name.clone(), block));
                }
                Err(error) => return Err(format!("{of}{name} block {block}: {error} ({:?})", error.kind())),
                Ok(()) => {
                    let mut right = vec![0; length];
                    expected.read(block * size, &mut right);
                    if right != found {
                        return Err(format!("{of}{name} block {block} was read wrong without an error"));
                    }
                }
            }
        }
    }
    Ok(bad)
}

/// Reads every block of every ordered list, now or as a snapshot sees it.
fn judge_lists(of: &str, disk: &Disk, at: Option<&str>, lists: &Lists) -> Result<Bad, String> {
    let mut bad = Bad::new();
    let found = match at {
        None => disk.lists(),
        Some(snapshot) => disk.lists_at(snapshot),
    };
    match found {
        Ok(found) if !found.iter().map(|list| list.0).eq(lists.iter().map(|state| state.list)) => {
            let expected: Vec<u32> = lists.iter().map(|state| state.list).collect();
            return Err(format!("{of}the ordered lists are {found:?}, expected {expected:?}"));
        }
        Ok(_) => {}
        Err(error) => return may_refuse(&error).map(|()| bad),
    }
    for state in lists {
        let list = lode::OrderedId(state.list);
        let found = match at {
            None => disk.blocks(list),
            Some(snapshot) => disk.blocks_at(snapshot, list),
        };
        let blocks = match found {
            Ok(blocks) => blocks,
            Err(error) => {
                may_refuse(&error)?;
                continue;
            }
        };
        if !blocks.iter().map(|block| block.0).eq(state.blocks.iter().map(|(block, _)| *block)) {
            return Err(format!("{of}list {} has the blocks {blocks:?}, expected {:?}", state.list, state.blocks));
        }
        for (block, content) in &state.blocks {
            let mut found = vec![0x44; index(state.block_bytes)];
            let read = match at {
                None => disk.read_block(lode::BlockId(*block), 0, &mut found),
                Some(snapshot) => disk.read_block_at(snapshot, lode::BlockId(*block), 0, &mut found),
            };
            match read {
                Err(error) if of_damage(error.kind()) => {
                    bad.insert((format!("{POOL}{} bytes of ordered lists", state.block_bytes), block & 0xffff_ffff));
                }
                Err(error) => return Err(format!("{of}block {block}: {error} ({:?})", error.kind())),
                Ok(()) if found != crate::model::lists::read(content.as_ref(), state.block_bytes) => {
                    return Err(format!("{of}list {} block {block} was read wrong without an error", state.list));
                }
                Ok(()) => {}
            }
        }
    }
    Ok(bad)
}

/// How a scrub names the blocks of ordered lists.
const POOL: &str = "blocks of ";

/// Scrub names exactly the blocks that could not be read.
pub(super) fn scrubbed(disk: &Disk, bad: &BTreeSet<(String, u64)>) -> Result<(), String> {
    let report = match disk.scrub(&mut |_, _| ControlFlow::Continue(())) {
        Ok(report) => report,
        Err(error) => return may_refuse(&error),
    };
    // What only snapshots or units see is named after them. What is deleted and not drained yet is nobody's to read.
    let private = |name: &str| {
        name.contains('@') || name.contains("?unit=") || name.starts_with("unit ") || name.ends_with("(deleted)")
    };
    let of_volumes = report.damaged.iter().filter(|damage| !private(&damage.volume));
    let named: BTreeSet<(String, u64)> = of_volumes.map(|damage| (damage.volume.clone(), damage.block)).collect();
    if let Some((volume, block)) = bad.difference(&named).next() {
        return Err(format!("scrub does not name {volume} block {block}, which cannot be read"));
    }
    // Blocks of lists that are deleted and not drained yet are nobody's to read.
    if let Some((volume, block)) = named.difference(bad).find(|(volume, _)| !volume.starts_with(POOL)) {
        return Err(format!("scrub names {volume} block {block}, which is read without an error"));
    }
    Ok(())
}
