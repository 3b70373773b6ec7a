//! Metadata contexts of one connection: chosen by name in the handshake, bound to the export with it, told in replies to
//! BLOCK_STATUS.
//!
//! `base:allocation` is every export's; others are offered by [`Exports::contexts`](crate::Exports::contexts).

use crate::{
    error::{ExportError, ExportErrorKind},
    export::{Context, Export},
    reply::{EXTENTS_MAX, Told},
    wire::{BASE_ALLOCATION, BASE_ALLOCATION_ID, STATE_HOLE_ZERO},
};

/// What a client chose, by name.
#[derive(Debug)]
pub(crate) struct Choice {
    /// The export, as the client called it. For another the choice does not count.
    pub(crate) export: String,
    /// The contexts and their numbers.
    pub(crate) names: Vec<(u32, String)>,
}

/// The contexts that were agreed, in the order in which replies tell them.
#[derive(Default)]
pub(crate) struct Contexts(Vec<(u32, Source)>);

enum Source {
    Allocation,
    Other(Box<dyn Context>),
}

impl Contexts {
    /// Binds what was chosen to the export. It fails if one of the names means nothing any more.
    pub(crate) fn of(choice: &Choice, export: &dyn Export) -> Result<Self, ExportError> {
        let bind = |(id, name): &(u32, String)| {
            let source =
                if *id == BASE_ALLOCATION_ID { Source::Allocation } else { Source::Other(export.context(name)?) };
            Ok((*id, source))
        };
        choice.names.iter().map(bind).collect::<Result<_, _>>().map(Contexts)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What each context says of a range; all of them or an error. The contexts share what one reply may tell, so that
    /// its size does not grow with their number.
    pub(crate) fn tell(
        &self,
        export: &dyn Export,
        offset: u64,
        bytes: u64,
        one: bool,
    ) -> Result<Vec<Told>, ExportError> {
        let count_max = if one { 1 } else { (EXTENTS_MAX / self.0.len().max(1)).max(1) };
        let tell = |(id, source): &(u32, Source)| {
            let extents = source.extents(export, offset, bytes)?;
            let nothing = || ExportError::new(ExportErrorKind::Io, "an export told no extents");
            Told::of(*id, bytes, count_max, &extents).ok_or_else(nothing)
        };
        self.0.iter().map(tell).collect()
    }
}

impl Source {
    fn extents(&self, export: &dyn Export, offset: u64, bytes: u64) -> Result<Vec<(u64, u32)>, ExportError> {
        let flags = |allocated| if allocated { 0 } else { STATE_HOLE_ZERO };
        match self {
            Source::Other(context) => context.extents(offset, bytes),
            Source::Allocation => {
                let extents = export.extents(offset, bytes)?;
                Ok(extents.into_iter().map(|(length, allocated)| (length, flags(allocated))).collect())
            }
        }
    }
}

/// The names that are offered, and their numbers: [`BASE_ALLOCATION`] first.
pub(crate) fn numbered(others: Vec<String>) -> impl Iterator<Item = (u32, String)> {
    (BASE_ALLOCATION_ID..).zip(std::iter::once(BASE_ALLOCATION.to_owned()).chain(others))
}
