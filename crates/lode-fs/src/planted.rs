//! Bugs that can be planted, to prove that the simulator finds them. Without the feature `planted` there are none.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The blocks of an operation are written one after the other.
    OperationInParts,
    /// A file that is open still when it loses its last name is not remembered.
    OrphanNotMarked,
    /// What a file had behind a new end is there again when it grows.
    TailLeft,
    /// A list is deleted before what frees it counts.
    ListGoesEarly,
    /// A commit does not ask whether others have changed the same files.
    VersionsNotAsked,
    /// A commit does not ask whether others have changed the same names.
    NamesNotAsked,
    /// A directory that both have changed is as the transaction has it.
    BucketsNotTakenBack,
    /// What a commit puts together counts before the rest of it.
    MergedApart,
    /// A commit into another transaction asks nothing.
    WithinNotAsked,
    /// What is gathered comes behind what others do after it.
    GatheredComesLate,
    /// Who looks at a file does not see what of it is gathered.
    GatheredNotSeen,
    /// A write that comes in two pieces is two operations.
    PiecesApart,
    /// Who flushes a new file flushes nothing.
    NewNotFlushed,
}

#[cfg(feature = "planted")]
mod planting {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Plants a bug in this thread, or pulls it out.
    pub fn set(bug: Option<Bug>) {
        PLANTED.with(|planted| planted.set(bug));
    }

    pub(crate) fn is(bug: Bug) -> bool {
        PLANTED.with(Cell::get) == Some(bug)
    }
}

#[cfg(feature = "planted")]
pub(crate) use planting::is;
#[cfg(feature = "planted")]
pub use planting::set;

#[cfg(not(feature = "planted"))]
pub(crate) fn is(_: Bug) -> bool {
    false
}
