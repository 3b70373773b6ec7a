//! What a run leaves for the crash enumeration: the trace, and what a crash may leave at each point of it.

use crate::model::{Model, State};
use crate::trace::TraceOp;
use lode::Lsn;
use std::sync::Arc;

/// One call of the engine: where the trace began and what was promised when it returned.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    /// How many operations the trace had before the call.
    pub start: usize,
    /// Which history the states are of.
    pub history: usize,
    /// The last state that no power cut may take away, when the call had returned.
    pub flushed: usize,
    /// The last state that the death of the process may not take away, when the call had returned.
    pub kept: usize,
    /// The last state there is, when the call had returned.
    pub appended: usize,
    /// The position that the last flush returned.
    pub anchor: Option<Lsn>,
    /// The zones of the disk, when the call had returned.
    pub zones: u32,
}

/// The states of one history: from the script's start or a kill in it up to the next kill, and what came before.
#[derive(Clone, Debug)]
pub struct History {
    /// The states.
    pub states: Vec<Arc<State>>,
    /// Their hashes.
    pub hashes: Vec<u64>,
}

impl History {
    /// The history of a model as it is now.
    pub fn of(model: &Model) -> Self {
        let states = (0..=model.appended()).map(|number| Arc::clone(model.state(number))).collect();
        History { states, hashes: model.hashes().to_vec() }
    }
}

/// What may be found after a cut.
#[derive(Clone, Copy, Debug)]
pub struct Allowed<'a> {
    /// The states, oldest first.
    pub history: &'a History,
    /// The first one allowed after a power cut.
    pub flushed: usize,
    /// The first one allowed after a kill.
    pub kept: usize,
    /// The last one allowed.
    pub appended: usize,
    /// The position that the client kept, to be demanded at the opening.
    pub anchor: Option<Lsn>,
    /// The numbers of zones that the disk may have.
    pub zones: [u32; 3],
}

/// All that a run leaves.
#[derive(Debug, Default)]
pub struct Recording {
    /// The operations of the medium.
    pub ops: Vec<TraceOp>,
    /// The calls of the engine, in order.
    pub notes: Vec<Note>,
    /// The histories that the notes speak of.
    pub histories: Vec<History>,
    /// The length of the trace when the disk was formatted.
    pub formatted: usize,
    /// The length of the trace when the prelude was over.
    pub prelude: usize,
}

impl Recording {
    /// What may be found after a cut behind the first `cut` operations.
    pub fn allowed(&self, cut: usize) -> Allowed<'_> {
        let during = self.notes.partition_point(|note| note.start <= cut).saturating_sub(1);
        let note = &self.notes[during];
        // A call that had not returned promised nothing; what had returned before did.
        let ended = self.notes.get(during + 1).map_or(self.ops.len(), |next| next.start) <= cut;
        let before = if ended || during == 0 { note } else { &self.notes[during - 1] };
        Allowed {
            history: &self.histories[note.history],
            flushed: before.flushed,
            kept: before.kept,
            appended: note.appended,
            anchor: before.anchor,
            zones: [before.zones, note.zones, note.zones],
        }
    }
}
