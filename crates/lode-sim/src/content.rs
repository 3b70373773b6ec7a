//! The content of a disk, to be compared with a state of the model.

use crate::model::{State, VolumeState, block_hash};
use crate::rng::{index, mix, narrow, wide};
use lode::{Compression, Disk};

/// A hash of all volumes: equal to [`State::hash`] of the state that the disk has.
pub fn content_hash(disk: &Disk) -> lode::Result<u64> {
    let mut infos = disk.volumes()?;
    infos.sort_by(|a, b| a.name.cmp(&b.name));
    let mut hash = 0;
    let mut bytes = Vec::new();
    for info in infos {
        bytes.clear();
        bytes.resize(narrow(info.bytes), 0x11);
        disk.volume(&info.name)?.read_at(0, &mut bytes)?;
        let volume = volume_hash(&info.name, &mut bytes, info.block_bytes, info.compression != Compression::None);
        hash = mix(hash, volume);
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
    let infos = match disk.volumes() {
        Ok(infos) => infos,
        Err(error) => return format!("the volumes cannot be listed: {error}"),
    };
    let mut words = Vec::new();
    for name in state.volumes.keys().filter(|name| !infos.iter().any(|info| &info.name == *name)) {
        words.push(format!("volume {name} is missing"));
    }
    for info in infos {
        let Some(volume) = state.volumes.get(&info.name) else {
            words.push(format!("volume {} should not be", info.name));
            continue;
        };
        let compressed = info.compression != Compression::None;
        if (info.bytes, info.block_bytes, compressed) != (volume.bytes, volume.block_bytes, volume.compressed) {
            words.push(format!(
                "volume {}: {} bytes in blocks of {}, compressed: {compressed}; expected {} bytes in blocks of {}, compressed: {}",
                info.name, info.bytes, info.block_bytes, volume.bytes, volume.block_bytes, volume.compressed
            ));
            continue;
        }
        let mut bytes = vec![0; narrow(info.bytes)];
        match disk.volume(&info.name).and_then(|volume| volume.read_at(0, &mut bytes)) {
            Err(error) => words.push(format!("volume {} cannot be read: {error}", info.name)),
            Ok(()) => words.extend(first_difference(&info.name, volume, &bytes)),
        }
    }
    if words.is_empty() { "no difference".to_owned() } else { words.join("; ") }
}

/// Where some bytes of a volume, from its start, first differ from the model.
pub fn first_difference(name: &str, volume: &VolumeState, bytes: &[u8]) -> Option<String> {
    let mut expected = vec![0; bytes.len()];
    volume.read(0, &mut expected);
    differing(name, 0, bytes, &expected)
}

/// Where bytes that were read at an offset first differ from what was expected.
pub fn differing(name: &str, offset: u64, found: &[u8], expected: &[u8]) -> Option<String> {
    let at = found.iter().zip(expected).position(|(a, b)| a != b)?;
    let count = found.iter().zip(expected).filter(|(a, b)| a != b).count();
    let shown = |bytes: &[u8]| bytes[at..bytes.len().min(at + 8)].to_vec();
    let place = offset + wide(at);
    Some(format!(
        "{name} differs in {count} bytes, first at {place}: {:?}, expected {:?}",
        shown(found),
        shown(expected)
    ))
}
