//! What was committed at each position: the state that the commits of a history make, one after the other (H1).

use super::check::{Anomaly, Rule};
use super::{Act, End, History, Place, Span, Unit, Value};
use std::collections::{BTreeMap, BTreeSet};

/// What two units may both change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Spot {
    Register(u32),
    Place(u32, Place),
    /// Anything in any list.
    Lists,
}

/// A change that counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub at: u64,
    /// Who made it, by number.
    pub unit: usize,
}

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    registers: BTreeMap<u32, Vec<(u64, Value)>>,
    lists: BTreeMap<u32, Vec<(u64, Vec<u64>)>>,
    /// Positions of all changes, in order.
    moments: Vec<u64>,
    changes: BTreeMap<Spot, Vec<Change>>,
    /// Units that changed something.
    changed: BTreeSet<usize>,
}

/// Puts a block into a list, or takes one out. `None`: that has no meaning there.
pub(super) fn apply(act: &Act, blocks: &mut Vec<u64>) -> Option<()> {
    let find = |blocks: &[u64], block: u64| blocks.iter().position(|known| *known == block);
    match act {
        Act::Inserted { place, block, .. } => {
            let at = match place {
                Place::First => 0,
                Place::Last => blocks.len(),
                Place::Behind(other) => find(blocks, *other)? + 1,
            };
            blocks.insert(at, *block);
        }
        Act::Removed { block, .. } => {
            blocks.remove(find(blocks, *block)?);
        }
        _ => {}
    }
    Some(())
}

/// What a unit changes, as far as it has not undone it again.
pub(super) fn spots(unit: &Unit) -> BTreeSet<Spot> {
    let removed =
        |wanted: u64| unit.acts.iter().any(|act| matches!(act, Act::Removed { block, .. } if *block == wanted));
    let mut spots = BTreeSet::new();
    for act in &unit.acts {
        match act {
            Act::Wrote { register, .. } => drop(spots.insert(Spot::Register(*register))),
            Act::Inserted { list, place, block } => {
                if !removed(*block) {
                    spots.insert(Spot::Place(*list, *place));
                }
                spots.insert(Spot::Lists);
            }
            Act::Removed { .. } => drop(spots.insert(Spot::Lists)),
            Act::Read { .. } | Act::Looked { .. } => {}
        }
    }
    spots
}

/// What is there at a position: the newest that is not behind it.
fn newest<T>(versions: Option<&Vec<(u64, T)>>, at: u64) -> Option<&T> {
    let versions = versions?;
    let behind = versions.partition_point(|(position, _)| *position <= at);
    versions[..behind].last().map(|(_, content)| content)
}

impl Timeline {
    pub fn new(history: &History) -> Result<Timeline, Anomaly> {
        let mut commits: Vec<(u64, usize)> = Vec::new();
        for (number, unit) in history.units.iter().enumerate() {
            if let End::Committed { at, call } = unit.end {
                if at < call.from || at > call.until {
                    return Err(Anomaly::new(
                        Rule::Order,
                        format!("{} was committed at {at}, outside of its call at {call:?}", unit.name),
                    ));
                }
                commits.push((at, number));
            }
        }
        commits.sort_unstable();
        let mut timeline = Timeline::default();
        for (at, number) in commits {
            timeline.commit(history, at, number)?;
        }
        Ok(timeline)
    }

    fn commit(&mut self, history: &History, at: u64, number: usize) -> Result<(), Anomaly> {
        let unit = &history.units[number];
        let mut registers: BTreeMap<u32, Value> = BTreeMap::new();
        let mut lists: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for act in &unit.acts {
            match act {
                Act::Wrote { register, value } => drop(registers.insert(*register, *value)),
                Act::Inserted { list, .. } | Act::Removed { list, .. } => {
                    let blocks = lists.entry(*list).or_insert_with(|| self.list(*list, at).to_vec());
                    apply(act, blocks).ok_or_else(|| {
                        let words = format!("{} was committed at {at}, where {act:?} has no meaning", unit.name);
                        Anomaly::new(Rule::Order, format!("{words}: the list is {blocks:?}"))
                    })?;
                }
                Act::Read { .. } | Act::Looked { .. } => {}
            }
        }
        lists.retain(|list, blocks| self.list(*list, at) != blocks);
        if registers.is_empty() && lists.is_empty() {
            return Ok(());
        }
        if self.moments.last() == Some(&at) {
            let other = self
                .changed
                .iter()
                .find(|other| matches!(history.units[**other].end, End::Committed { at: there, .. } if there == at));
            let other = other.map_or("another", |other| &history.units[*other].name);
            return Err(Anomaly::new(Rule::Order, format!("{} and {other} were both committed at {at}", unit.name)));
        }
        if let End::Committed { call, .. } = unit.end
            && at == call.from
        {
            let words = format!("{} was committed at {at}, before its call at {call:?}", unit.name);
            return Err(Anomaly::new(Rule::Order, words));
        }
        self.moments.push(at);
        self.changed.insert(number);
        for (register, value) in registers {
            self.registers.entry(register).or_default().push((at, value));
        }
        for (list, blocks) in lists {
            self.lists.entry(list).or_default().push((at, blocks));
        }
        for spot in spots(unit) {
            self.changes.entry(spot).or_default().push(Change { at, unit: number });
        }
        Ok(())
    }

    pub fn register(&self, register: u32, at: u64) -> Value {
        newest(self.registers.get(&register), at).copied().unwrap_or_default()
    }

    pub fn list(&self, list: u32, at: u64) -> &[u64] {
        newest(self.lists.get(&list), at).map_or(&[], Vec::as_slice)
    }

    /// All moments of a span between which something changed.
    pub fn moments(&self, span: Span) -> impl Iterator<Item = u64> {
        let first = self.moments.partition_point(|at| *at <= span.from);
        let end = self.moments.partition_point(|at| *at <= span.until).max(first);
        std::iter::once(span.from).chain(self.moments[first..end].iter().copied())
    }

    /// The changes of something behind one position and before another, those two not counted.
    pub fn between(&self, spot: Spot, behind: u64, before: u64) -> impl Iterator<Item = Change> {
        let changes = self.changes.get(&spot).map_or(&[][..], Vec::as_slice);
        changes.iter().copied().filter(move |change| behind < change.at && change.at < before)
    }

    /// The last position whose state the commit of a unit at `at` finds.
    pub fn found_by(&self, unit: usize, at: u64) -> u64 {
        if self.changed.contains(&unit) { at - 1 } else { at }
    }
}
