//! The content of a disk, to be compared with a state of the model.

use crate::model::lists::{Lists, content_of, head_hash, read};
use crate::model::{Schedule, State, VolumeState, Volumes, block_hash, with_schedule, with_snapshot, with_unit};
use crate::rng::{index, mix, narrow, wide};
use crate::script::{unit_label, unit_number};
use lode::{BlockId, Compression, Disk, ErrorKind, OrderedId, SnapshotSchedule, UnitInfo, Volume};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What cannot be read of units is read so often again.
const READS_AGAIN: u32 = 16;

/// Those that a crash cannot take away, in order.
fn units_of(disk: &Disk) -> lode::Result<Vec<UnitInfo>> {
    let mut units = disk.units()?;
    units.retain(|unit| unit.has_barrier && !unit.label.ends_with(RECEIVING));
    units.sort_by_key(|unit| unit_number(&unit.label));
    Ok(units)
}

/// How the names of volumes end that a stream has begun to bring.
const RECEIVING: &str = ".receiving";

/// What is left where a stream was cut by a crash: no part of the content, as long as it has no byte.
pub fn is_remnant(name: &str, bytes: u64) -> bool {
    bytes == 0 && name.ends_with(RECEIVING)
}

/// The names of all volumes but remnants.
pub fn volume_names(disk: &Disk) -> lode::Result<Vec<String>> {
    let infos = disk.volumes()?.into_iter();
    Ok(infos.filter(|info| !is_remnant(&info.name, info.bytes)).map(|info| info.name).collect())
}

/// The volumes of a disk whose names end so that a stream may have been cut there.
pub fn remnants(disk: &Disk) -> Vec<String> {
    disk.volume_names().iter().filter_map(|name| name.strip_suffix(RECEIVING)).map(str::to_owned).collect()
}

/// A hash of all volumes and snapshots: equal to [`State::hash`] of the state that the disk has.
pub fn content_hash(disk: &Disk) -> lode::Result<u64> {
    let names = volume_names(disk)?;
    let mut hash = mix(volumes_hash(names, |name| disk.volume(name))?, lists_hash(disk, None)?);
    let mut snapshots = disk.snapshots();
    snapshots.sort_by(|a, b| a.name.cmp(&b.name));
    for snapshot in snapshots {
        let volumes = volumes_hash(snapshot.volumes, |name| disk.volume_at(&snapshot.name, name))?;
        let seen = mix(volumes, lists_hash(disk, Some(&snapshot.name))?);
        hash = with_snapshot(hash, &snapshot.name, seen, snapshot.made);
    }
    let mut units = units_of(disk)?;
    for _ in 0..READS_AGAIN {
        let Some(unit) = units.iter().find(|unit| unit.damage.is_some()) else { break };
        match disk.resume(&unit.label) {
            Err(error) if error.kind() == ErrorKind::Exists => {} // The run has it in hand.
            unit => drop(unit?),                                  // It says why, unless the read went wrong only once.
        }
        units = units_of(disk)?;
    }
    let hash = units.iter().fold(hash, |hash, unit| with_unit(hash, &unit.label, &unit.cookie));
    Ok(disk.schedules().iter().fold(hash, |hash, schedule| {
        with_schedule(hash, &schedule.name, schedule.every, schedule.keep, &schedule.volumes)
    }))
}

/// The blocks of a list, now or as a snapshot sees it, each with what it holds.
pub fn blocks_of(disk: &Disk, at: Option<&str>, list: OrderedId, size: u32) -> lode::Result<Vec<(BlockId, Vec<u8>)>> {
    let blocks = match at {
        None => disk.blocks(list)?,
        Some(snapshot) => disk.blocks_at(snapshot, list)?,
    };
    let read = |block: BlockId| {
        let mut bytes = vec![0x55; index(size)];
        match at {
            None => disk.read_block(block, 0, &mut bytes)?,
            Some(snapshot) => disk.read_block_at(snapshot, block, 0, &mut bytes)?,
        }
        Ok((block, bytes))
    };
    blocks.into_iter().map(read).collect()
}

fn lists_of(disk: &Disk, at: Option<&str>) -> lode::Result<Vec<lode::ListInfo>> {
    match at {
        None => disk.lists()?.into_iter().map(|list| disk.list(list)).collect(),
        Some(snapshot) => disk.lists_at(snapshot)?.into_iter().map(|list| disk.list_at(snapshot, list)).collect(),
    }
}

fn lists_hash(disk: &Disk, at: Option<&str>) -> lode::Result<u64> {
    let lists = lists_of(disk, at)?;
    let mut hash = wide(lists.len());
    for info in lists {
        let compressed = info.compression != Compression::None;
        hash = mix(hash, head_hash(info.list.0, info.block_bytes, compressed));
        for (block, bytes) in blocks_of(disk, at, info.list, info.block_bytes)? {
            hash = mix(mix(hash, block.0), content_of(&bytes));
        }
    }
    Ok(hash)
}

/// In words, how the lists of a disk, or of a snapshot of it, differ from what was expected.
fn list_differences(of: &str, disk: &Disk, at: Option<&str>, expected: &Lists) -> Vec<String> {
    let lists = match lists_of(disk, at) {
        Ok(lists) => lists,
        Err(error) => return vec![format!("{of}the lists cannot be read: {error}")],
    };
    let heads: Vec<(u32, u32, bool)> =
        lists.iter().map(|info| (info.list.0, info.block_bytes, info.compression != Compression::None)).collect();
    let right: Vec<(u32, u32, bool)> =
        expected.iter().map(|state| (state.list, state.block_bytes, state.compressed)).collect();
    if heads != right {
        return vec![format!("{of}the lists are {heads:?}, expected {right:?}")];
    }
    let mut words = Vec::new();
    for (info, state) in lists.into_iter().zip(expected) {
        let found = match blocks_of(disk, at, info.list, info.block_bytes) {
            Ok(found) => found,
            Err(error) => {
                words.push(format!("{of}list {} cannot be read: {error}", info.list.0));
                continue;
            }
        };
        let ids = |blocks: &[(BlockId, Vec<u8>)]| blocks.iter().map(|(block, _)| block.0).collect::<Vec<_>>();
        let right: Vec<(BlockId, Vec<u8>)> = state
            .blocks
            .iter()
            .map(|(block, content)| (BlockId(*block), read(content.as_ref(), state.block_bytes)))
            .collect();
        if ids(&found) != ids(&right) {
            words.push(format!("{of}list {}: blocks {:?}, expected {:?}", info.list.0, ids(&found), ids(&right)));
        } else if let Some(at) = (0..found.len()).find(|at| found[*at] != right[*at]) {
            words.push(format!("{of}list {}: block {} differs", info.list.0, found[at].0.0));
        }
    }
    words
}

fn volumes_hash(mut names: Vec<String>, find: impl Fn(&str) -> lode::Result<Volume>) -> lode::Result<u64> {
    names.sort();
    let mut hash = 0;
    let mut bytes = Vec::new();
    for name in names {
        let volume = find(&name)?;
        if is_remnant(&name, volume.bytes()) {
            continue; // A snapshot saw it.
        }
        bytes.clear();
        bytes.resize(narrow(volume.bytes()), 0x11);
        volume.read_at(0, &mut bytes)?;
        let compressed = volume.compression() != Compression::None;
        hash = mix(hash, volume_hash(&name, &mut bytes, volume.block_bytes(), compressed));
    }
    Ok(hash)
}

fn volume_hash(name: &str, bytes: &mut Vec<u8>, block_bytes: u32, compressed: bool) -> u64 {
    let size = wide(bytes.len());
    // The model keeps whole blocks: what lies behind the end of the last one is zeros.
    bytes.resize(bytes.len().next_multiple_of(index(block_bytes)), 0);
    let mut content = 0u64;
    for (block, piece) in bytes.chunks_exact(index(block_bytes)).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            content = content.wrapping_add(block_hash(wide(block), piece));
        }
    }
    let shape = mix(mix(size, u64::from(block_bytes)), u64::from(compressed));
    mix(crate::rng::hash_bytes(name.as_bytes()), mix(shape, content))
}

/// In words, how a disk differs from a state.
pub fn difference(disk: &Disk, state: &State) -> String {
    let names = match volume_names(disk) {
        Ok(names) => names,
        Err(error) => return format!("the volumes cannot be listed: {error}"),
    };
    let mut words = differences("", names, &state.volumes, |name| disk.volume(name));
    words.extend(list_differences("", disk, None, &state.lists));
    let snapshots = disk.snapshots();
    for name in state.snapshots.keys().filter(|name| !snapshots.iter().any(|snapshot| &snapshot.name == *name)) {
        words.push(format!("snapshot {name} is missing"));
    }
    for snapshot in snapshots {
        let find = |name: &str| disk.volume_at(&snapshot.name, name);
        match state.snapshots.get(&snapshot.name) {
            None => words.push(format!("snapshot {} should not be", snapshot.name)),
            Some(seen) => {
                let of = format!("{}: ", snapshot.name);
                if snapshot.made != seen.made {
                    words.push(format!("{of}made at {}, expected {}", snapshot.made, seen.made));
                }
                words.extend(differences(&of, snapshot.volumes.clone(), &seen.volumes, find));
                words.extend(list_differences(&of, disk, Some(&snapshot.name), &seen.lists));
            }
        }
    }
    let units = match units_of(disk) {
        Ok(units) => units.into_iter().map(|unit| (unit.label, unit.cookie)).collect(),
        Err(error) => return format!("the units cannot be listed: {error}"),
    };
    let right: BTreeMap<String, Vec<u8>> =
        state.dormant.iter().map(|(unit, state)| (unit_label(*unit), state.cookie().to_vec())).collect();
    let found: BTreeMap<String, Vec<u8>> = units;
    if found != right {
        words.push(format!("units with barriers are {found:?}, expected {right:?}"));
    }
    let of_model = |(name, schedule): (&String, &Arc<Schedule>)| SnapshotSchedule {
        name: name.clone(),
        every: schedule.every,
        keep: schedule.keep,
        volumes: schedule.volumes_in(state),
        lists: false,
    };
    let (found, right) = (disk.schedules(), state.schedules.iter().map(of_model).collect::<Vec<_>>());
    if found != right {
        words.push(format!("the schedules are {found:?}, expected {right:?}"));
    }
    if words.is_empty() { "no difference".to_owned() } else { words.join("; ") }
}

fn differences(
    of: &str,
    names: Vec<String>,
    volumes: &Volumes,
    find: impl Fn(&str) -> lode::Result<Volume>,
) -> Vec<String> {
    let mut words = Vec::new();
    for name in volumes.keys().filter(|name| !names.contains(name)) {
        words.push(format!("{of}volume {name} is missing"));
    }
    for name in names {
        let Some(expected) = volumes.get(&name) else {
            if find(&name).map_or(true, |volume| !is_remnant(&name, volume.bytes())) {
                words.push(format!("{of}volume {name} should not be"));
            }
            continue;
        };
        let volume = match find(&name) {
            Ok(volume) => volume,
            Err(error) => {
                words.push(format!("{of}volume {name} cannot be found: {error}"));
                continue;
            }
        };
        let shape = |bytes, block_bytes, compressed| {
            format!("{bytes} bytes in blocks of {block_bytes}, compressed: {compressed}")
        };
        let found = shape(volume.bytes(), volume.block_bytes(), volume.compression() != Compression::None);
        let right = shape(expected.bytes, expected.block_bytes, expected.compressed);
        if found != right {
            words.push(format!("{of}volume {name}: {found}; expected {right}"));
            continue;
        }
        let mut bytes = vec![0; narrow(volume.bytes())];
        match volume.read_at(0, &mut bytes) {
            Err(error) => words.push(format!("{of}volume {name} cannot be read: {error}")),
            Ok(()) => words.extend(first_difference(&name, expected, &bytes).map(|found| format!("{of}{found}"))),
        }
    }
    words
}

/// Where some bytes of a volume, from its start, first differ from the model.
pub fn first_difference(name: &str, volume: &VolumeState, bytes: &[u8]) -> Option<String> {
    let mut expected = vec![0; bytes.len()];
    volume.read(0, &mut expected);
    differing(name, 0, bytes, &expected)
}

/// The first byte that differs.
pub fn first_byte(found: &[u8], expected: &[u8]) -> Option<usize> {
    found.iter().zip(expected).position(|(a, b)| a != b)
}

/// Where bytes that were read at an offset first differ from what was expected.
pub fn differing(name: &str, offset: u64, found: &[u8], expected: &[u8]) -> Option<String> {
    let at = first_byte(found, expected)?;
    let count = found.iter().zip(expected).filter(|(a, b)| a != b).count();
    let shown = |bytes: &[u8]| bytes[at..bytes.len().min(at + 8)].to_vec();
    let place = offset + wide(at);
    Some(format!(
        "{name} differs in {count} bytes, first at {place}: {:?}, expected {:?}",
        shown(found),
        shown(expected)
    ))
}
