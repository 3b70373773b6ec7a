//! What a list may be: its state, its form, how its blocks are compressed.

/// What a list is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListState {
    /// There for its users.
    There,
    /// Deleted; its blocks are freed in bounded steps.
    Draining,
    /// Deleted, and seen by snapshots.
    Hidden,
    /// What snapshots see of a list and is there no more.
    Layer,
    /// A snapshot: no list at all.
    Snapshot,
    /// A deleted snapshot whose layers are not all gone yet.
    Leaving,
}

impl ListState {
    pub(super) const ALL: [ListState; 6] = [
        ListState::There,
        ListState::Draining,
        ListState::Hidden,
        ListState::Layer,
        ListState::Snapshot,
        ListState::Leaving,
    ];
}

/// What a list is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Form {
    /// A volume: its users name blocks by their index.
    #[default]
    Indexed,
    /// Two rows for each ordered list: its ends, and its place among the lists. See `ordered`.
    Lists,
    /// A row for each block of a pool: its neighbours and its list.
    Blocks,
    /// The blocks of all ordered lists with this block size.
    Pool,
    /// What a unit had changed in a list at its last barrier. See `unit::barrier`.
    Shadow,
    /// A unit as it was at its last barrier: its image, but for the blocks.
    Unit,
    /// When snapshots are taken, and how many are kept. It has no blocks.
    Schedule,
    /// As a volume, for a client that keeps files in lists: its users name it by number.
    File,
}

impl Form {
    pub(super) const ALL: [Form; 8] =
        [Form::Indexed, Form::Lists, Form::Blocks, Form::Pool, Form::Shadow, Form::Unit, Form::Schedule, Form::File];

    /// Its rows are no blocks of data.
    pub fn is_table(self) -> bool {
        matches!(self, Form::Lists | Form::Blocks)
    }

    /// No snapshot sees it: a unit's own, or a schedule.
    pub fn is_private(self) -> bool {
        matches!(self, Form::Shadow | Form::Unit | Form::Schedule)
    }
}

/// How the blocks of a list are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Compression {
    /// Stored as they are.
    #[default]
    None,
    /// Compressed by lz4; what does not get smaller is stored as it is.
    Lz4,
    /// Stored as they are written; compressed by lz4 when the cleaner moves them, which it does with what stays.
    ColdLz4,
    /// The same by Zstandard: smaller, and slower to read.
    ColdZstd,
}

impl Compression {
    const ALL: [Compression; 4] = [Compression::None, Compression::Lz4, Compression::ColdLz4, Compression::ColdZstd];

    /// How it is written down.
    pub(crate) fn code(self) -> u8 {
        match self {
            Compression::None => 0,
            Compression::Lz4 => 1,
            Compression::ColdLz4 => 2,
            Compression::ColdZstd => 3,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Compression> {
        Self::ALL.into_iter().find(|compression| compression.code() == code)
    }

    /// Blocks are compressed when they are written.
    pub(crate) fn is_hot(self) -> bool {
        self == Compression::Lz4
    }
}
