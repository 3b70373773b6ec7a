//! The blocks of a unit by number: few in a sorted row, which costs no memory of its own for the smallest units; many
//! in a tree.

use super::shadow::Shadow;
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// So many are kept in a row.
const FEW: usize = 32;

/// See the file's head.
pub(crate) enum Blocks {
    Few(SmallVec<[(u64, Shadow); 1]>),
    Many(BTreeMap<u64, Shadow>),
}

impl Default for Blocks {
    fn default() -> Self {
        Blocks::Few(SmallVec::new())
    }
}

impl Blocks {
    fn find(few: &[(u64, Shadow)], block: u64) -> Result<usize, usize> {
        // Mostly what comes next is behind all others.
        match few.last() {
            Some((last, _)) if *last >= block => few.binary_search_by_key(&block, |(block, _)| *block),
            _ => Err(few.len()),
        }
    }

    pub fn get(&self, block: u64) -> Option<&Shadow> {
        match self {
            Blocks::Few(few) => Self::find(few, block).ok().map(|at| &few[at].1),
            Blocks::Many(many) => many.get(&block),
        }
    }

    pub fn contains(&self, block: u64) -> bool {
        self.get(block).is_some()
    }

    /// Gives back what was there.
    pub fn insert(&mut self, block: u64, shadow: Shadow) -> Option<Shadow> {
        let few = match self {
            Blocks::Few(few) => few,
            Blocks::Many(many) => return many.insert(block, shadow),
        };
        match Self::find(few, block) {
            Ok(at) => Some(std::mem::replace(&mut few[at].1, shadow)),
            Err(at) if few.len() < FEW => {
                few.insert(at, (block, shadow));
                None
            }
            Err(_) => {
                let mut many: BTreeMap<u64, Shadow> = few.drain(..).collect();
                many.insert(block, shadow);
                *self = Blocks::Many(many);
                None
            }
        }
    }

    pub fn remove(&mut self, block: u64) -> Option<Shadow> {
        match self {
            Blocks::Few(few) => Self::find(few, block).ok().map(|at| few.remove(at).1),
            Blocks::Many(many) => many.remove(&block),
        }
    }

    /// In order, from `first` up to, not including, `end`.
    pub fn range(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, &Shadow)> {
        let end = end.max(first);
        let (few, many) = match self {
            Blocks::Few(few) => {
                let start = few.partition_point(|(block, _)| *block < first);
                (&few[start..start + few[start..].partition_point(|(block, _)| *block < end)], None)
            }
            Blocks::Many(many) => (&[][..], Some(many.range(first..end))),
        };
        few.iter()
            .map(|(block, shadow)| (*block, shadow))
            .chain(many.into_iter().flatten().map(|(block, shadow)| (*block, shadow)))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut Shadow)> {
        let (few, many) = match self {
            Blocks::Few(few) => (&mut few[..], None),
            Blocks::Many(many) => (&mut [][..], Some(many)),
        };
        few.iter_mut()
            .map(|(block, shadow)| (*block, shadow))
            .chain(many.into_iter().flatten().map(|(block, shadow)| (*block, shadow)))
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &Shadow)> {
        let (few, many) = match self {
            Blocks::Few(few) => (&few[..], None),
            Blocks::Many(many) => (&[][..], Some(many)),
        };
        few.iter()
            .map(|(block, shadow)| (*block, shadow))
            .chain(many.into_iter().flatten().map(|(block, shadow)| (*block, shadow)))
    }

    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.iter().map(|(block, _)| block)
    }

    /// Drops all but these.
    pub fn retain(&mut self, keep: impl Fn(&Shadow) -> bool) {
        match self {
            Blocks::Few(few) => few.retain(|(_, shadow)| keep(shadow)),
            Blocks::Many(many) => many.retain(|_, shadow| keep(shadow)),
        }
    }

    /// The greatest number.
    pub fn last(&self) -> Option<u64> {
        match self {
            Blocks::Few(few) => few.last().map(|(block, _)| *block),
            Blocks::Many(many) => many.last_key_value().map(|(block, _)| *block),
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Blocks::Few(few) => few.len(),
            Blocks::Many(many) => many.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
