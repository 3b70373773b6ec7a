//! Transactions of a run, also within one another: each has its own tree, and the model says what its commit gives.

use super::model::{Node, Tree};
use super::run::{Run, Step, wrong};
use crate::rng::{narrow, wide};
use lode_fs::{Conflicts, ErrorKind, Ino, Time, Transaction, View};
use std::collections::BTreeMap;

/// So many are open at once.
const OPEN_MAX: u64 = 4;

/// A transaction that is open.
pub(super) struct Open {
    transaction: Transaction,
    /// Its own number, and that of the one that it is within.
    number: usize,
    within: Option<usize>,
    base: Tree,
    /// What the run has beside it.
    view: Option<View>,
    tree: Tree,
    inos: BTreeMap<Node, Ino>,
    held: BTreeMap<Node, u64>,
}

impl Run {
    /// A step on what is committed or in a transaction; or one begins or ends.
    pub fn somewhere(&mut self) -> Step<String> {
        let open = wide(self.transactions.len());
        let at = if open > 0 { narrow(self.rng.below(open)) } else { 0 };
        match self.rng.below(100) {
            0..6 if open < OPEN_MAX => {
                let outer = (open > 0 && self.rng.percent(40)).then_some(at);
                self.begin(outer)
            }
            6..10 if open > 0 => self.commit(at),
            10..11 if open > 0 => {
                let number = self.transactions[at].number;
                self.transactions.remove(at).transaction.abort();
                self.end_within(number);
                Ok("abort".to_owned())
            }
            11..47 if open > 0 => {
                self.swap(at);
                self.within = true;
                let done = self.step();
                self.within = false;
                let base = &self.transactions[at].base.inodes;
                let held = &self.held;
                self.tree.forget(|node| held.contains_key(&node) || base.contains_key(&node));
                let tree = &self.tree;
                self.inos.retain(|node, _| tree.inodes.contains_key(node));
                let differs = self.rng.percent(3).then(|| self.compare());
                self.swap(at);
                differs.transpose()?;
                Ok(format!("in a transaction: {}", done?.trim_end_matches("flushed")))
            }
            _ => self.step(),
        }
    }

    fn begin(&mut self, outer: Option<usize>) -> Step<String> {
        let now = Time(self.now);
        let (begun, tree, inos) = match outer.map(|at| &self.transactions[at]) {
            None => (self.fs().begin(Conflicts::Changed, now), &self.tree, &self.inos),
            Some(outer) => (outer.transaction.begin(Conflicts::Changed, now), &outer.tree, &outer.inos),
        };
        let transaction = match begun {
            Err(error) if error.kind() == ErrorKind::Full => return Ok("no space to begin".to_owned()),
            other => other.map_err(wrong)?,
        };
        let number = self.begun + 1;
        let open = Open {
            view: Some(transaction.holding_view()),
            transaction,
            number,
            within: outer.map(|at| self.transactions[at].number),
            base: tree.clone(),
            tree: tree.begun(number),
            inos: inos.clone(),
            held: BTreeMap::new(),
        };
        self.begun = number;
        self.transactions.push(open);
        Ok("begin".to_owned())
    }

    /// Changes places with a transaction.
    fn swap(&mut self, at: usize) {
        let open = &mut self.transactions[at];
        std::mem::swap(&mut self.view, &mut open.view);
        std::mem::swap(&mut self.tree, &mut open.tree);
        std::mem::swap(&mut self.inos, &mut open.inos);
        std::mem::swap(&mut self.held, &mut open.held);
    }

    /// Those within one that has ended have ended, too.
    fn end_within(&mut self, number: usize) {
        while let Some(at) = self.transactions.iter().position(|open| open.within == Some(number)) {
            let inner = self.transactions.remove(at).number;
            self.end_within(inner);
        }
    }

    fn commit(&mut self, at: usize) -> Step<String> {
        let open = self.transactions.remove(at);
        let outer = open.within.map(|number| {
            self.transactions.iter().position(|outer| outer.number == number).expect("it ends those within it")
        });
        let target = outer.map_or(&self.tree, |outer| &self.transactions[outer].tree);
        let right = target.merged(&open.base, &open.tree);
        match (open.transaction.commit(Time(self.now)), right) {
            (Ok(_), Some(merged)) => {
                self.end_within(open.number);
                // Others may have gone with those.
                let outer = open.within.and_then(|number| self.transactions.iter().position(|of| of.number == number));
                let (tree, inos) = match outer {
                    None => (&mut self.tree, &mut self.inos),
                    Some(outer) => {
                        let outer = &mut self.transactions[outer];
                        outer.tree.noted.extend(open.tree.noted);
                        (&mut outer.tree, &mut outer.inos)
                    }
                };
                tree.inodes = merged.inodes;
                inos.extend(open.inos);
                self.recording.committed += 1;
                self.recording.within += u64::from(outer.is_some());
                Ok("commit".to_owned())
            }
            (Err(error), None) if error.kind() == ErrorKind::Conflict => {
                self.end_within(open.number);
                self.recording.conflicts += 1;
                Ok("conflict".to_owned())
            }
            (Err(error), Some(_)) if error.kind() == ErrorKind::Full => {
                self.recording.full += 1;
                self.transactions.push(open);
                Ok("no space to commit".to_owned())
            }
            (found, right) => {
                Err(format!("a commit gave {found:?}, expected {}", if right.is_some() { "one" } else { "a conflict" }))
            }
        }
    }
}
