//! What clients did at once, recorded and judged: is it what one disk may show to all of them?
//!
//! Clients run *units* that read and write *registers* (blocks, of which each write holds a value that no other write
//! has, so that what is read names who wrote it) and change ordered lists (whose blocks have names of their own). A
//! simple operation is a unit of one. What they were told is a [`History`]; [`check`] says whether it keeps the
//! promises:
//!
//! * **H1** A commit has a *position* that lies inside of its call; no two that change something have the same. What is
//!   committed at a position is what all commits up to it did, in their order.
//! * **H2** A read of a unit with a moving view shows its own changes, else what was committed at one moment of the
//!   call: all that one call reads at the same moment (P4). With the view *committed*, its own changes not.
//! * **H3** All reads of a unit with a frozen view show its own changes, else what was committed at one moment of its
//!   begin.
//! * **H4** What a unit whose writes are a conflict has written was written by no other commit between its begin and
//!   its own: of two that write the same, the first to commit counts.
//! * **H5** What a unit whose reads are a conflict has read is what is committed just before its own commit, with its
//!   own changes on top: the order of commits is a serial order. This holds for those that only read, too.
//! * **H6** A commit is refused for a conflict only if there was one.
//!
//! What was aborted or refused is never seen by anybody else, which follows: it is committed at no moment. Since every
//! commit tells its position, no order has to be searched for: the check is exact, and takes a time that grows with
//! the history and the number of commits during each call.
//!
//! Of lists H4 knows only places: two that insert at the same end or behind the same block. Left out are simple
//! insertions, which tell no position, and what blocks of lists hold.

use lode::UnitOptions;

mod check;
mod client;
mod draw;
#[cfg(feature = "explore")]
mod explore;
mod run;
mod timeline;

#[cfg(test)]
mod tests;

pub use check::{Anomaly, Rule, Summary, check};
pub use client::{Step, Where};
pub use draw::{draw, draw_short};
#[cfg(feature = "explore")]
pub use explore::{MEETING, Meeting, REPLAY};
pub use run::{Setup, run};

/// What a register holds; 0 before anybody has written it.
pub type Value = u64;

/// Positions of the disk before and after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Before it.
    pub from: u64,
    /// After it.
    pub until: u64,
}

/// Where in a list a block was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// At its beginning.
    First,
    /// At its end.
    Last,
    /// Behind this block.
    Behind(u64),
}

/// One thing that a unit did, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// It wrote a register.
    Wrote {
        /// Which one.
        register: u32,
        /// What nobody else ever writes.
        value: Value,
    },
    /// It read registers that lie behind one another, in one call.
    Read {
        /// When.
        call: Span,
        /// The first of them.
        first: u32,
        /// What they held.
        values: Vec<Value>,
    },
    /// It put a new block into a list.
    Inserted {
        /// Which list.
        list: u32,
        /// Where in it.
        place: Place,
        /// The block.
        block: u64,
    },
    /// It took a block out of a list.
    Removed {
        /// Which list.
        list: u32,
        /// The block.
        block: u64,
    },
    /// It looked at a whole list.
    Looked {
        /// When.
        call: Span,
        /// Which list.
        list: u32,
        /// Its blocks.
        blocks: Vec<u64>,
    },
}

/// How a unit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was committed.
    Committed {
        /// Its position.
        at: u64,
        /// When.
        call: Span,
    },
    /// Its commit was refused for a conflict.
    Refused {
        /// When.
        call: Span,
    },
    /// It was dropped.
    Aborted,
}

/// A unit as its client saw it.
#[derive(Clone, Debug)]
pub struct Unit {
    /// For explanations.
    pub name: String,
    /// How it began.
    pub options: UnitOptions,
    /// When it began.
    pub begun: Span,
    /// What it did.
    pub acts: Vec<Act>,
    /// How it ended.
    pub end: End,
}

/// All units of all clients, in any order.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The units.
    pub units: Vec<Unit>,
}
