//! What a file system shows, as a hash that the model makes of the same, and in words.

use super::model::summary;
use crate::rng::{hash_bytes, mix, wide};
use lode_fs::{Attributes, Ino, Kind, Result, View};
use std::collections::BTreeMap;

/// Bytes that are read at once.
const PIECE: usize = 300_000;

/// All of a file's content.
pub fn content(view: &View, attributes: &Attributes) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    loop {
        let at = content.len();
        content.resize(at + PIECE, 0x5A);
        let len = view.read(attributes.ino, wide(at), &mut content[at..])?;
        content.truncate(at + len);
        if len < PIECE {
            return Ok(content);
        }
    }
}

/// Names and what they mean, ordered by name; as they are listed.
pub fn entries(view: &View, directory: Ino) -> Result<BTreeMap<Vec<u8>, (Ino, Kind)>> {
    let (mut all, mut double) = (BTreeMap::new(), None);
    view.list(directory, 2, &mut |entry| {
        if all.insert(entry.name.clone(), (entry.ino, entry.kind)).is_some() {
            double = Some(entry.name.clone());
        }
        true
    })?;
    assert!(double.is_none(), "{double:?} is listed twice");
    Ok(all)
}

/// A hash of all that can be reached by name: see [`super::model::Tree::hash`].
pub fn hash(view: &View) -> Result<u64> {
    hash_of(view, Ino::ROOT, &mut BTreeMap::new(), &mut |_| {}, "")
}

/// The same in words, a line for each name.
pub fn words(view: &View) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    hash_of(view, Ino::ROOT, &mut BTreeMap::new(), &mut |line| lines.push(line), "")?;
    Ok(lines)
}

fn hash_of(
    view: &View,
    ino: Ino,
    seen: &mut BTreeMap<Ino, u64>,
    tell: &mut dyn FnMut(String),
    path: &str,
) -> Result<u64> {
    let count = wide(seen.len());
    let number = *seen.entry(ino).or_insert(count);
    if number < count {
        tell(format!("{path}: as number {number}"));
        return Ok(mix(number, 77));
    }
    let found = view.attributes(ino)?;
    let bytes = if matches!(found.kind, Kind::File | Kind::Link) { content(view, &found)? } else { Vec::new() };
    let content = if found.kind == Kind::Directory { 0 } else { hash_bytes(&bytes) };
    let times = [found.accessed, found.modified, found.changed];
    let mut hash = summary(
        number,
        found.kind,
        &[found.permissions, found.links, found.uid, found.gid, found.device],
        content,
        &times,
    );
    tell(format!(
        "{path}: number {number} {ino} {:?} {:o} links {} owner {}:{} {} bytes {times:?}",
        found.kind,
        found.permissions,
        found.links,
        found.uid,
        found.gid,
        bytes.len()
    ));
    let mut names = view.attribute_names(ino)?;
    names.sort();
    for name in names {
        hash = mix(hash, mix(hash_bytes(&name), hash_bytes(&view.attribute(ino, &name)?)));
    }
    if found.kind == Kind::Directory {
        for (name, (entry, kind)) in entries(view, ino)? {
            let path = format!("{path}/{}", String::from_utf8_lossy(&name));
            assert_eq!(view.attributes(entry)?.kind, kind, "{path}");
            hash = mix(hash, mix(hash_bytes(&name), hash_of(view, entry, seen, tell, &path)?));
        }
    }
    Ok(hash)
}
