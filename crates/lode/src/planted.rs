//! Bugs that can be planted, to prove that the simulator finds them. Without the feature `planted` there are
//! none.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A flush reports success without a sync.
    SkipSync,
    /// Recovery believes block data behind the witness without looking at it.
    ChecksumMissesData,
    /// Recovery accepts batches of ended epochs and older fillings.
    OldBatchAccepted,
    /// Zones are erased before what freed them is durable.
    EraseTooEarly,
    /// Reads from the medium are not checked.
    ReadUnchecked,
    /// What a unit reads is not kept for its conflicts.
    ReadsNotNoted,
    /// A commit does not ask whether others have written the same.
    WrittenNotAsked,
    /// A frozen view shows what is committed now.
    FrozenMoves,
    /// Conflicts are asked for in a hold before that of the commit.
    ConflictsAskedEarly,
    /// A read of several blocks takes their places in several holds.
    ReadInPieces,
    /// Who waits for a sync is not told of its end.
    SyncWakesNobody,
    /// The disk has new zones before a root names them.
    GrowWithoutRoot,
    /// The snapshot that a commit takes may be lost without the rest of it.
    EndingApart,
    /// A snapshot that is sent may be lost, and its number given again.
    SentNotDurable,
    /// An exchange is two commits.
    SwapInTwo,
    /// What is moved is referred to before it is durable.
    MovedNotSynced,
    /// What was reserved is asked for once more when it is written.
    ReservedAgain,
    /// A schedule deletes the oldest snapshot, whoever took it.
    SchedulesDeleteAll,
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

    /// What is planted in this thread, to be planted in the threads that it makes.
    pub fn get() -> Option<Bug> {
        PLANTED.with(|planted| planted.get())
    }

    pub(crate) fn is(bug: Bug) -> bool {
        get() == Some(bug)
    }
}

#[cfg(feature = "planted")]
pub(crate) use planting::is;
#[cfg(feature = "planted")]
pub use planting::{get, set};

#[cfg(not(feature = "planted"))]
pub(crate) fn is(_: Bug) -> bool {
    false
}
