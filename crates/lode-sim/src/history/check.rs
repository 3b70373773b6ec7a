//! The judge: a history in, a verdict with its reason out. See the head of [`super`] for the rules.

use super::timeline::{Spot, Timeline, apply, spots};
use super::{Act, End, History, Span, Unit, Value};
use lode::{UnitConflicts, UnitView};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Which promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// H1.
    Order,
    /// H2.
    Moment,
    /// H3.
    Frozen,
    /// H4.
    FirstCommitter,
    /// H5.
    Serial,
    /// H6.
    Refusal,
}

/// What is wrong with a history.
#[derive(Clone, Debug)]
pub struct Anomaly {
    /// The promise that it breaks.
    pub rule: Rule,
    /// Who, what was found, what was expected.
    pub words: String,
}

impl Anomaly {
    pub(super) fn new(rule: Rule, words: impl Into<String>) -> Anomaly {
        Anomaly { rule, words: words.into() }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.words)
    }
}

/// What a history that is as it should be has in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Units that were committed, simple operations among them.
    pub committed: u64,
    /// Commits refused for a conflict.
    pub refused: u64,
    /// Units that were dropped.
    pub aborted: u64,
    /// Reads whose content was compared.
    pub reads: u64,
}

/// Judges a history.
pub fn check(history: &History) -> Result<Summary, Anomaly> {
    let timeline = Timeline::new(history)?;
    let judge = Judge { history, timeline, writers: writers(history)? };
    let mut summary = Summary::default();
    for (number, unit) in history.units.iter().enumerate() {
        judge.views(unit)?;
        match unit.end {
            End::Committed { at, .. } => {
                summary.committed += 1;
                judge.first_committer(number, at)?;
                judge.serial(number, at)?;
            }
            End::Refused { call } => {
                summary.refused += 1;
                judge.refusal(number, call)?;
            }
            End::Aborted => summary.aborted += 1,
        }
        let reads = unit.acts.iter().filter(|act| matches!(act, Act::Read { .. } | Act::Looked { .. })).count();
        summary.reads += crate::rng::wide(reads);
    }
    Ok(summary)
}

/// Who wrote each value.
fn writers(history: &History) -> Result<BTreeMap<Value, usize>, Anomaly> {
    let mut writers = BTreeMap::new();
    for (number, unit) in history.units.iter().enumerate() {
        for act in &unit.acts {
            let Act::Wrote { value, .. } = act else { continue };
            if *value == 0 || writers.insert(*value, number).is_some() {
                let words = format!("{} wrote {value}, which is no value of its own", unit.name);
                return Err(Anomaly::new(Rule::Order, words));
            }
        }
    }
    Ok(writers)
}

/// What a unit has changed so far, as it sees it itself.
#[derive(Default)]
struct Shadow<'a> {
    registers: BTreeMap<u32, Value>,
    lists: Vec<&'a Act>,
}

impl<'a> Shadow<'a> {
    fn note(&mut self, act: &'a Act) {
        match act {
            Act::Wrote { register, value } => drop(self.registers.insert(*register, *value)),
            Act::Inserted { .. } | Act::Removed { .. } => self.lists.push(act),
            Act::Read { .. } | Act::Looked { .. } => {}
        }
    }
}

struct Judge<'a> {
    history: &'a History,
    timeline: Timeline,
    writers: BTreeMap<Value, usize>,
}

impl Judge<'_> {
    /// Whether a read found what is there at a position, with the unit's own changes on top.
    fn shows(&self, act: &Act, shadow: &Shadow, at: u64) -> bool {
        match act {
            Act::Read { first, values, .. } => (*first..).zip(values).all(|(register, found)| {
                let own = shadow.registers.get(&register).copied();
                *found == own.unwrap_or_else(|| self.timeline.register(register, at))
            }),
            Act::Looked { list, blocks, .. } => {
                let mut expected = self.timeline.list(*list, at).to_vec();
                let own = shadow.lists.iter().filter(|act| list_of(act) == Some(*list));
                own.map(|act| apply(act, &mut expected)).all(|done| done.is_some()) && expected == *blocks
            }
            _ => true,
        }
    }

    /// The reads of a unit, each with what it had changed by then.
    fn all_show(&self, unit: &Unit, at: u64) -> Result<(), usize> {
        let mut shadow = Shadow::default();
        for (n, act) in unit.acts.iter().enumerate() {
            if !self.shows(act, &shadow, at) {
                return Err(n);
            }
            if unit.options.view != UnitView::Committed {
                shadow.note(act);
            }
        }
        Ok(())
    }

    /// H2, H3.
    fn views(&self, unit: &Unit) -> Result<(), Anomaly> {
        if unit.options.view == UnitView::Frozen {
            if self.begins(unit).next().is_some() {
                return Ok(());
            }
            // The first read that goes with all reads before it at no moment.
            let wrong = self.timeline.moments(unit.begun).filter_map(|at| self.all_show(unit, at).err()).max();
            let wrong = wrong.unwrap_or_default();
            let words = format!("{} began at {:?} with a frozen view, and found", unit.name, unit.begun);
            return Err(self.wrong(Rule::Frozen, unit, wrong, &words, unit.begun));
        }
        let mut shadow = Shadow::default();
        for (n, act) in unit.acts.iter().enumerate() {
            if let Act::Read { call, .. } | Act::Looked { call, .. } = act
                && !self.timeline.moments(*call).any(|at| self.shows(act, &shadow, at))
            {
                let words = format!("{} read at {call:?}, and found", unit.name);
                return Err(self.wrong(Rule::Moment, unit, n, &words, *call));
            }
            if unit.options.view != UnitView::Committed {
                shadow.note(act);
            }
        }
        Ok(())
    }

    /// The moments at which the unit may have begun, after what it has read.
    fn begins<'a>(&'a self, unit: &'a Unit) -> impl Iterator<Item = u64> + 'a {
        let frozen = unit.options.view == UnitView::Frozen;
        self.timeline.moments(unit.begun).filter(move |at| !frozen || self.all_show(unit, *at).is_ok())
    }

    /// H4.
    fn first_committer(&self, number: usize, at: u64) -> Result<(), Anomaly> {
        let unit = &self.history.units[number];
        if unit.options.conflicts == UnitConflicts::Allowed {
            return Ok(());
        }
        let wrote: BTreeSet<Spot> = spots(unit).into_iter().filter(|spot| *spot != Spot::Lists).collect();
        let other =
            |begun: u64| wrote.iter().find_map(|spot| Some((*spot, self.timeline.between(*spot, begun, at).next()?)));
        if self.begins(unit).any(|begun| other(begun).is_none()) {
            return Ok(());
        }
        // Every moment at which it may have begun has one.
        let (spot, first) = self.begins(unit).find_map(other).expect("a view without a moment was told of before");
        let words = format!(
            "{} began at {:?} and was committed at {at}, and so was {} at {}: both changed {spot:?}",
            unit.name, unit.begun, self.history.units[first.unit].name, first.at
        );
        Err(Anomaly::new(Rule::FirstCommitter, words))
    }

    /// H5.
    fn serial(&self, number: usize, at: u64) -> Result<(), Anomaly> {
        let unit = &self.history.units[number];
        if unit.options.conflicts != UnitConflicts::Read {
            return Ok(());
        }
        let before = self.timeline.found_by(number, at);
        let Err(wrong) = self.all_show(unit, before) else { return Ok(()) };
        let words = format!("{} was committed at {at}, and had found", unit.name);
        Err(self.wrong(Rule::Serial, unit, wrong, &words, Span { from: before, until: before }))
    }

    /// H6.
    fn refusal(&self, number: usize, call: Span) -> Result<(), Anomaly> {
        let unit = &self.history.units[number];
        let mut asked = spots(unit);
        if unit.options.conflicts == UnitConflicts::Allowed {
            asked.retain(|spot| *spot == Spot::Lists); // Where it has no meaning any more.
        }
        if unit.options.conflicts == UnitConflicts::Read {
            for act in &unit.acts {
                match act {
                    Act::Read { first, values, .. } => {
                        asked.extend((*first..).zip(values).map(|(register, _)| Spot::Register(register)));
                    }
                    Act::Looked { .. } => drop(asked.insert(Spot::Lists)),
                    _ => {}
                }
            }
        }
        let reason = |spot: &Spot| self.timeline.between(*spot, unit.begun.from, call.until + 1).next().is_some();
        if asked.iter().any(reason) {
            return Ok(());
        }
        let words = format!(
            "{} began at {:?} and its commit was refused at {call:?}, but nobody else changed any of {asked:?}",
            unit.name, unit.begun
        );
        Err(Anomaly::new(Rule::Refusal, words))
    }

    /// Words on a read that shows what was at no moment of a span.
    fn wrong(&self, rule: Rule, unit: &Unit, act: usize, what: &str, span: Span) -> Anomaly {
        let words = match &unit.acts[act] {
            Act::Read { first, values, .. } => {
                let found = (*first..).zip(values).map(|(register, value)| {
                    let now = [span.from, span.until].map(|at| self.timeline.register(register, at));
                    format!(
                        "register {register} with {} (committed: {} at {}, {} at {})",
                        self.source(*value),
                        now[0],
                        span.from,
                        now[1],
                        span.until
                    )
                });
                found.collect::<Vec<_>>().join(", ")
            }
            Act::Looked { list, blocks, .. } => format!(
                "list {list} as {blocks:?} (committed: {:?} at {}, {:?} at {})",
                self.timeline.list(*list, span.from),
                span.from,
                self.timeline.list(*list, span.until),
                span.until
            ),
            other => format!("{other:?}"),
        };
        Anomaly::new(rule, format!("{what} {words}"))
    }

    /// Who wrote a value, and what became of it.
    fn source(&self, value: Value) -> String {
        let Some(writer) = self.writers.get(&value).map(|number| &self.history.units[*number]) else {
            return if value == 0 { "0, as at first".into() } else { format!("{value}, which nobody wrote") };
        };
        match writer.end {
            End::Committed { at, .. } => format!("{value} of {}, committed at {at}", writer.name),
            End::Refused { .. } => format!("{value} of {}, whose commit was refused", writer.name),
            End::Aborted => format!("{value} of {}, which was aborted", writer.name),
        }
    }
}

fn list_of(act: &Act) -> Option<u32> {
    match act {
        Act::Inserted { list, .. } | Act::Removed { list, .. } | Act::Looked { list, .. } => Some(*list),
        Act::Wrote { .. } | Act::Read { .. } => None,
    }
}
